"""SAC: both forms written naively, and what each call changes."""

import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from naive_updates import sac_optimisers, sac_step
from scipy import stats
from tiny_sac import FORMS, KEY, TWIN, VALUE, close, learner, new_policy, same, scaled

from genepool import buffer
from genepool.learning import sac
from genepool.learning.offpolicy import noisy_minibatches
from genepool.learning.sac import FrozenCritics
from genepool.types import Transitions


@pytest.fixture(scope="module")
def replay(memory):
    return scaled(memory(2000, 50))


# -- the equations


def naive_net(layers, x):
    """A plain network with ReLU units, written with numpy."""
    for weight, bias in layers[:-1]:
        x = np.maximum(x @ weight + bias, 0.0)
    return x @ layers[-1][0] + layers[-1][1]


def pairs(*layers):
    return [(np.asarray(layer.weight, np.float64), np.asarray(layer.bias, np.float64)) for layer in layers]


def naive_q(critic, s, a):
    layers = pairs(critic.first, *critic.hidden, critic.output)
    layers[0] = np.concatenate([layers[0][0], np.asarray(critic.first_action)]), layers[0][1]
    return naive_net(layers, np.concatenate([s, a], axis=1))[:, 0]


def naive_v(value, s):
    return naive_net(pairs(*value.hidden, value.output), s)[:, 0]


def naive_sample(policy, s, noise):
    """Actions and log pi, with numpy and scipy."""
    for weight, bias in pairs(*policy.mean.hidden):
        s = np.tanh(s @ weight + bias)
    m, log_std = (naive_net(pairs(head), s) for head in (policy.mean.output, policy.spread))
    std = np.exp(np.clip(log_std, -20, 2))
    u = m + std * noise
    return np.tanh(u), np.sum(stats.norm.logpdf(u, m, std) - np.log(1 - np.tanh(u) ** 2), axis=1)


def shifted(valuation, batch, noise, policy):
    """The valuation with the second critic shifted, so that each critic is the smaller one in some rows."""
    a = policy.sample(batch.observation, noise[0])[0]

    def move(q, r):
        return eqx.tree_at(
            lambda x: x.output.bias, r, r.output.bias + jnp.median(q(batch.observation, a) - r(batch.observation, a))
        )

    first, second = valuation.critics
    critics = first, move(first, second)
    target = critics if valuation.value is None else valuation.target
    return eqx.tree_at(lambda v: (v.critics, v.target), valuation, (critics, target))


@FORMS
def test_the_target_is_that_of_the_bellman_equation(part, rows):
    batch = rows(30)
    policy = new_policy(5)
    noise = np.random.default_rng(0).standard_normal((2, 30, 2)).astype(np.float32)
    valuation = shifted(learner(part).valuation, batch, noise, policy)
    s = batch.next_observation
    draw = policy.sample(s, noise[1]) if part is TWIN else None
    found = part.targets(valuation, draw, batch)
    if part is TWIN:
        a, log_pi = naive_sample(policy, s, noise[1])
        values = [naive_q(q, s, a) for q in valuation.target]
        assert 0 < np.sum(values[0] < values[1]) < 30  # now one critic is the smaller, now the other
        value = np.minimum(*values) - 0.2 * log_pi
    else:
        value = naive_v(valuation.target, s)
    y = np.where(batch.terminated, batch.reward, batch.reward + 0.9 * value)
    assert 0 < batch.terminated.sum() < 30
    np.testing.assert_allclose(found, y, rtol=1e-4, atol=1e-4)


def test_the_losses_are_those_of_the_equations(rows):
    batch = rows(12)
    y = np.arange(12.0)
    policy = new_policy(3)
    valuation = learner(VALUE).valuation
    s = batch.observation
    noise = np.random.default_rng(1).standard_normal((12, 2)).astype(np.float32)
    squares = [np.mean((naive_q(q, s, batch.action) - y) ** 2) for q in valuation.critics]
    np.testing.assert_allclose(TWIN.critic_loss(valuation.critics, batch, y), sum(squares), rtol=1e-5)
    np.testing.assert_allclose(VALUE.critic_loss(valuation.critics, batch, y), sum(squares) / 2, rtol=1e-5)
    half = np.mean((naive_v(valuation.value, s) - y) ** 2) / 2
    np.testing.assert_allclose(VALUE.value_loss(valuation.value, s, y), half, rtol=1e-5)
    a, log_pi = naive_sample(policy, s, noise)
    climbed = np.mean(0.7 * log_pi - np.minimum(*(naive_q(q, s, a) for q in valuation.critics)))
    np.testing.assert_allclose(
        TWIN.actor_loss(policy, FrozenCritics(valuation.critics, 0.7), s, noise), climbed, rtol=1e-4
    )
    found = TWIN.temperature_loss(jnp.log(0.5), log_pi, 2)  # as many as there are actions
    np.testing.assert_allclose(found, -np.log(0.5) * (np.mean(log_pi) - 2.0), rtol=1e-4)
    wanted = replace(TWIN, target_entropy=-0.5).temperature_loss(jnp.log(0.5), log_pi, 2)
    np.testing.assert_allclose(wanted, -np.log(0.5) * (np.mean(log_pi) - 0.5), rtol=1e-4)


def test_the_tangent_has_the_value_and_the_slope_of_the_smaller_critic(rows):
    batch = rows(30)
    policy = new_policy(5)
    noise = np.zeros((2, 30, 2), np.float32)
    critics = shifted(learner().valuation, batch, noise, policy).critics
    s = batch.observation
    a = policy(batch.observation)
    values = [q(s, a) for q in critics]
    assert 0 < np.sum(values[0] < values[1]) < 30  # now one critic is the smaller, now the other

    def plain(critics, a):
        return jnp.minimum(*(q(s, a) for q in critics))

    np.testing.assert_array_equal(sac.tangent(critics, s, a), plain(critics, a))

    def weighted(value):
        return lambda critics, a: jnp.sum(value(critics, a) * np.arange(30.0))

    expected = jax.grad(weighted(plain), argnums=1)(critics, a)
    found = jax.grad(weighted(lambda critics, a: sac.tangent(critics, s, a)), argnums=1)(critics, a)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@FORMS
def test_an_update_equals_the_same_steps_written_naively(part, replay):
    """Only the batches and the noise are those of our code."""
    state = learner(part)
    steps = 6
    found = part.update(KEY, state, replay, steps)
    adams = sac_optimisers(part)
    q1, q2 = state.valuation.critics
    networks = {"policy": state.policy, "q1": q1, "q2": q2, "v": state.valuation.value}
    networks |= {"temperature": state.valuation.log_temperature}
    slow = state.valuation.target
    moments = {name: adams[name].init(networks[name]) for name in adams}
    step = sac_step(part, adams)
    drawn = noisy_minibatches(jax.random.fold_in(KEY, 0), replay, part.batch_size, 2)
    for i in range(steps):
        networks, slow, moments = step(networks, slow, moments, *drawn(i))
    ours = found.valuation
    close(
        (found.policy, *ours.critics, ours.value), tuple(networks[name] for name in ("policy", "q1", "q2", "v")), 3e-5
    )
    close(ours.target, slow, 3e-5)
    np.testing.assert_allclose(ours.log_temperature, networks["temperature"], atol=1e-5)
    assert part.automatic == (abs(float(ours.log_temperature) - math.log(0.2)) > 1e-3)
    assert int(found.updates) == steps
    assert not same(found.policy, state.policy)
    assert np.isfinite(found.losses).all()


def test_the_slow_copy_of_v_follows_by_tau(replay):
    state = learner(VALUE)
    found = VALUE.update(KEY, state, replay, 1).valuation

    def step(slow, fast):
        return jax.tree.map(lambda s, f: s + 0.1 * (f - s), slow, fast)

    close(found.target, step(state.valuation.target, found.value), 1e-7)


def test_the_temperature_falls_where_entropy_is_too_high_and_rises_where_it_is_too_low():

    def slope(entropy):
        return float(jax.grad(VALUE.temperature_loss)(jnp.log(0.2), jnp.full(5, -entropy), 2))

    assert slope(-0.9) > 0 > slope(-1.1)  # it descends
    assert slope(-1.0) == 0


def test_an_automatic_temperature_brings_the_entropy_that_is_wanted():
    """The entropy is higher at first; a uniform policy has ln 4."""
    n = 2000
    rng = np.random.default_rng(0)
    s = rng.uniform(-1, 1, (n, 3)).astype(np.float32)
    a = rng.uniform(-1, 1, (n, 2)).astype(np.float32)
    reward = -np.sum(a**2, axis=1)
    ring = buffer.record(buffer.empty(n, 3, 2), Transitions(s, a, reward, s, np.ones(n, np.float32)))
    first = VALUE.update(KEY, learner(VALUE), ring, 1)
    last = VALUE.update(KEY, VALUE.update(KEY, first, ring, 4000), ring, 500)
    assert VALUE.report(first)["entropy"] > -0.5
    np.testing.assert_allclose(VALUE.report(last)["entropy"], -1.0, atol=0.2)


def test_a_fixed_temperature_stays(replay):
    found = TWIN.update(KEY, learner(), replay, 20)
    np.testing.assert_allclose(TWIN.report(found)["temperature"], 0.2, rtol=1e-6)


# -- what each call changes


@FORMS
def test_critics_that_learn_for_others_leave_the_actor_alone(part, replay):
    state = learner(part)
    policy = new_policy(9)
    ten = part.update_critic(KEY, state, policy, replay, 10)
    assert int(ten.updates) == int(ten.valuation.optimisers[0].t) == 10
    assert same((ten.policy, ten.optimiser), (state.policy, state.optimiser))
    assert not same(ten.valuation.critics, state.valuation.critics)
    assert not same(ten.valuation.target, state.valuation.target)
    another = part.update_critic(KEY, state, state.policy, replay, 10)
    assert not same(another.valuation.critics, ten.valuation.critics)  # the caller chooses the policy
    assert part.report(ten)["actor_loss"] is None


@FORMS
def test_the_critics_step_first_and_as_they_would_alone(part, replay):
    both = part.update(KEY, learner(part), replay, 1)
    alone = part.update_critic(KEY, learner(part), learner(part).policy, replay, 1)
    close(both.valuation, alone.valuation, 1e-6)


@pytest.mark.parametrize("how", ["update", "update_critic"])
def test_learning_goes_in_blocks_of_a_thousand_steps(replay, how):
    part = TWIN
    state = learner()
    if how == "update":
        found = part.update(KEY, state, replay, 1500)
        learning = (state.policy, state.optimiser, state.valuation)

        def work(*rest):
            return sac._update(part, *rest)

        ends = found.policy, found.optimiser, found.valuation
    else:
        found = part.update_critic(KEY, state, state.policy, replay, 1500)
        learning = state.valuation

        def work(*rest):
            return sac._update_critic(part, state.policy, *rest)

        ends = found.valuation
    for begin, count in ((0, 1000), (1000, 500)):
        learning, _ = work(jax.random.fold_in(KEY, begin), learning, replay, count)
    assert same(learning, ends)


def test_no_steps_change_nothing(replay):
    for found in (TWIN.update(KEY, learner(), replay, 0), TWIN.update_critic(KEY, learner(), new_policy(), replay, 0)):
        assert same((found.policy, found.valuation, found.updates), (learner().policy, learner().valuation, 0))


def test_it_begins_with_the_actor_or_the_policy_that_it_is_given():
    policy = new_policy(4)
    assert TWIN.init(KEY, policy).policy is policy
    state = TWIN.init(KEY, policy.mean)
    assert TWIN.actor(state) is policy.mean
    assert not same(state.policy.spread, policy.spread)
    q = TWIN.critic(state)
    assert np.isfinite(q(np.zeros(3), np.zeros(2)))
