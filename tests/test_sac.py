"""SAC: its policy's density, both forms written naively, what each call may touch, and tasks whose answers are known."""

import math
from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats
from tasks import Plane, Reach

import genepool
from genepool import buffer
from genepool.learning import sac
from genepool.learning.lessons import Lesson
from genepool.learning.sac import SAC, Teacher
from genepool.learning.td3 import BLOCK
from genepool.networks import Actor, Linear, QNetwork, SquashedGaussian, deterministic
from genepool.runs.folder import CLOCKED
from genepool.schedule import Clock, synchronous
from genepool.types import Candidate, Individual, Transitions

KEY = jax.random.key(0)
# one for all: compiling is most of the time
TWIN = SAC(
    batch_size=32,
    discount=0.9,
    tau=0.1,
    critic_hidden=(16, 16),
    actor_rate=1e-3,
    critic_rate=1e-3,
    warmup=60,
    random_frames=60,
)
VALUE = replace(TWIN, critics="value", automatic=True, target_entropy=-1.0, temperature_rate=1e-2)
FORMS = pytest.mark.parametrize("part", [TWIN, VALUE], ids=["twin", "value"])


def new_actor(seed=0, sizes=(3, 2)):
    return Actor(jax.random.key(seed), *sizes, (8, 8), layer_norm=False)


def new_policy(seed=0, sizes=(3, 2)):
    return SquashedGaussian(jax.random.key(100 + seed), new_actor(seed, sizes))


@cache
def learner(part=TWIN):
    return part.init(KEY, new_actor())


def close(ours, naive, atol):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), ours, naive)


def same(one, other):
    leaves = (jax.tree.leaves(tree) for tree in (one, other))
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*leaves, strict=True))


@pytest.fixture(scope="module")
def replay(memory):
    ring = memory(2000, 50)  # rewards are the rows' numbers: scaled, for two naive sums to agree
    return eqx.tree_at(lambda b: b.data.reward, ring, 0.1 * ring.data.reward)


# -- the policy


def fixed(mean, log_std):
    """A policy of one action that has this mean and log std in every state."""
    policy = jax.tree.map(jnp.zeros_like, new_policy(sizes=(1, 1)))
    heads = lambda p: (p.mean.output.bias, p.spread.bias)
    return eqx.tree_at(heads, policy, (jnp.array([mean]), jnp.array([log_std])))


def densities(policy, u):
    """Actions tanh(u) and log pi of each, where u = m + e^l noise."""
    m, log_std = float(policy.mean.output.bias[0]), float(np.clip(policy.spread.bias[0], -20.0, 2.0))
    noise = ((u - m) / math.exp(log_std)).astype(np.float32)[:, None]
    return (np.asarray(x, np.float64) for x in policy.sample(np.zeros((len(u), 1), np.float32), noise))


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.4, -1.0), (-1.0, 0.5), (0.2, -3.0)])
def test_the_density_of_an_action_integrates_to_one(mean, log_std):
    u = mean + math.exp(log_std) * np.linspace(-8.0, 8.0, 20_001)
    a, log_pi = densities(fixed(mean, log_std), u)
    np.testing.assert_allclose(np.trapezoid(np.exp(log_pi), a.ravel()), 1.0, atol=2e-3)


def test_the_density_is_the_normal_s_by_change_of_variables():
    u = np.linspace(-4.0, 4.0, 101)
    a, log_pi = densities(fixed(0.3, -0.5), u)
    expected = stats.norm.logpdf(u, 0.3, math.exp(-0.5)) - np.log(1.0 - np.tanh(u) ** 2)
    np.testing.assert_allclose(a.ravel(), np.tanh(u), atol=1e-6)
    np.testing.assert_allclose(log_pi, expected, rtol=1e-4, atol=1e-4)


def test_the_density_is_finite_where_the_tanh_is_one_and_its_gradient_too():
    u = np.array([-60.0, -20.0, 20.0, 60.0])
    a, log_pi = densities(fixed(0.0, 0.0), u)
    np.testing.assert_array_equal(np.abs(a), 1.0)
    np.testing.assert_allclose(log_pi, stats.norm.logpdf(u) - 2 * (math.log(2.0) - np.abs(u)), rtol=1e-5)
    slope = jax.grad(lambda p: jnp.sum(p.sample(jnp.zeros((4, 1)), u[:, None])[1]))(fixed(0.0, 0.0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


def test_log_stds_are_kept_between_minus_20_and_2():
    noise = np.array([[0.1]], np.float32)
    draw = lambda log_std: np.asarray(fixed(0.0, log_std).explore(np.zeros((1, 1)), noise))
    np.testing.assert_array_equal(draw(50.0), draw(2.0))
    np.testing.assert_array_equal(draw(-50.0), draw(-20.0))
    assert draw(2.0) > draw(1.0)


def test_the_density_of_several_actions_is_the_product_and_draws_have_it(rows):
    policy, s = new_policy(), jnp.asarray(rows(1).observation[0])
    noise = np.random.default_rng(0).standard_normal((40_000, 2)).astype(np.float32)
    a, log_pi = jax.vmap(policy.sample, (None, 0))(s, noise)
    np.testing.assert_allclose(a, jax.vmap(policy.explore, (None, 0))(s, noise), atol=1e-6)
    # E[1 / pi(a)] over the draws is the volume of the square, where pi has all of it as its support; 4 standard errors
    inside = np.all(np.abs(a) < 0.9, axis=1)
    weights = np.where(inside, np.exp(-np.asarray(log_pi, np.float64)), 0.0)
    np.testing.assert_allclose(weights.mean(), 1.8**2, atol=4 * weights.std() / 200)


def test_without_noise_it_is_the_actor_it_was_built_around(rows):
    states, policy = rows(20).observation, new_policy()
    np.testing.assert_array_equal(policy(states), new_actor()(states))
    np.testing.assert_allclose(policy.explore(states, np.zeros((20, 2))), policy(states), atol=1e-6)
    assert deterministic(policy) is policy.mean
    assert deterministic(policy.mean) is policy.mean
    assert policy.sizes == (3, 8, 8, 2)


def test_played_without_noise_it_earns_what_its_actor_earns():
    workers = genepool.LocalWorkers(genepool.sac(Reach).task)
    policy = new_policy(sizes=(1, 1))
    plays = [workers.map([Candidate(Individual(actor, None), (0, 1))])[0] for actor in (policy, policy.mean)]
    np.testing.assert_allclose(plays[0].returns, plays[1].returns, rtol=1e-5)


def test_xavier_s_weights_have_his_limit_and_no_bias():
    layer = Linear(np.random.default_rng(0), 100, 50, "xavier")
    limit = math.sqrt(6 / 150)
    assert not layer.bias.any()
    assert 0.99 * limit < np.abs(layer.weight).max() <= limit
    np.testing.assert_allclose(np.var(layer.weight), limit**2 / 3, rtol=0.05)
    network = QNetwork(KEY, 3, 2, (8, 8), initial="xavier")
    assert not any(layer.bias.any() for layer in (network.first, *network.hidden, network.output))
    assert np.abs(network.first_action).max() <= math.sqrt(6 / 13)


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
    """The valuation with its second critics moved so that now the one, now the other is the smaller."""
    a = policy.sample(batch.observation, noise[0])[0]
    move = lambda q, r: eqx.tree_at(
        lambda x: x.output.bias, r, r.output.bias + jnp.median(q(batch.observation, a) - r(batch.observation, a))
    )
    first, second = valuation.critics
    critics = first, move(first, second)
    target = critics if valuation.value is None else valuation.target
    return eqx.tree_at(lambda v: (v.critics, v.target), valuation, (critics, target))


@FORMS
def test_the_target_is_that_of_the_bellman_equation(part, rows):
    batch, policy = rows(30), new_policy(5)
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
    batch, y, policy = rows(12), np.arange(12.0), new_policy(3)
    valuation = learner(VALUE).valuation
    s, noise = batch.observation, np.random.default_rng(1).standard_normal((12, 2)).astype(np.float32)
    squares = [np.mean((naive_q(q, s, batch.action) - y) ** 2) for q in valuation.critics]
    np.testing.assert_allclose(TWIN.critic_loss(valuation.critics, batch, y), sum(squares), rtol=1e-5)
    np.testing.assert_allclose(VALUE.critic_loss(valuation.critics, batch, y), sum(squares) / 2, rtol=1e-5)
    half = np.mean((naive_v(valuation.value, s) - y) ** 2) / 2
    np.testing.assert_allclose(VALUE.value_loss(valuation.value, s, y), half, rtol=1e-5)
    a, log_pi = naive_sample(policy, s, noise)
    climbed = np.mean(0.7 * log_pi - np.minimum(*(naive_q(q, s, a) for q in valuation.critics)))
    np.testing.assert_allclose(TWIN.actor_loss(policy, Teacher(valuation.critics, 0.7), s, noise), climbed, rtol=1e-4)
    found = TWIN.temperature_loss(jnp.log(0.5), log_pi, 2)  # as many as there are actions
    np.testing.assert_allclose(found, -np.log(0.5) * (np.mean(log_pi) - 2.0), rtol=1e-4)
    wanted = replace(TWIN, target_entropy=-0.5).temperature_loss(jnp.log(0.5), log_pi, 2)
    np.testing.assert_allclose(wanted, -np.log(0.5) * (np.mean(log_pi) - 0.5), rtol=1e-4)


def test_the_tangent_has_the_value_and_the_slope_of_the_smaller_critic(rows):
    batch, policy, noise = rows(30), new_policy(5), np.zeros((2, 30, 2), np.float32)
    critics = shifted(learner().valuation, batch, noise, policy).critics
    s, a = batch.observation, policy(batch.observation)
    values = [q(s, a) for q in critics]
    assert 0 < np.sum(values[0] < values[1]) < 30  # now one critic is the smaller, now the other
    plain = lambda critics, a: jnp.minimum(*(q(s, a) for q in critics))
    np.testing.assert_array_equal(sac.tangent(critics, s, a), plain(critics, a))
    weighted = lambda value: lambda critics, a: jnp.sum(value(critics, a) * np.arange(30.0))
    expected = jax.grad(weighted(plain), argnums=1)(critics, a)
    found = jax.grad(weighted(lambda critics, a: sac.tangent(critics, s, a)), argnums=1)(critics, a)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@FORMS
def test_an_update_equals_the_same_steps_written_naively(part, replay):
    """Whole losses by autodiff, optax for Adam, one for each network; batches and noise are all that is taken over."""
    state, steps = learner(part), 6
    found = part.update(KEY, state, replay, steps)
    rates = {"policy": part.actor_rate, "temperature": part.temperature_rate}
    adams = {name: optax.adam(rates.get(name, part.critic_rate)) for name in ("policy", "q1", "q2", "v", "temperature")}
    q1, q2 = state.valuation.critics
    networks = {"policy": state.policy, "q1": q1, "q2": q2, "v": state.valuation.value}
    networks |= {"temperature": state.valuation.log_temperature}
    smaller = lambda one, other, s, a: jnp.minimum(one(s, a), other(s, a))

    @jax.jit
    def step(networks, slow, moments, batch, noise):
        s, a, r, s_next, d = batch
        alpha, policy = jnp.exp(networks["temperature"]), networks["policy"]

        def move(name, loss):
            change, moments[name] = adams[name].update(jax.grad(loss)(networks[name]), moments[name])
            networks[name] = optax.apply_updates(networks[name], change)

        if part.critics == "twin":
            a_next, log_pi = policy.sample(s_next, noise[1])
            y = r + 0.9 * (1 - d) * (smaller(*slow, s_next, a_next) - alpha * log_pi)
            half = 1.0
        else:
            y, half = r + 0.9 * (1 - d) * slow(s_next), 0.5
        for name in ("q1", "q2"):
            move(name, lambda q: half * jnp.mean((q(s, a) - y) ** 2))
        q1, q2 = networks["q1"], networks["q2"]
        if part.critics == "value":
            own, log_pi = policy.sample(s, noise[0])
            v = smaller(q1, q2, s, own) - alpha * log_pi
            move("v", lambda net: half * jnp.mean((net(s) - v) ** 2))
        if part.automatic:
            move("temperature", lambda x: -x * jnp.mean(log_pi - 1.0))
            alpha = jnp.exp(networks["temperature"])

        def climb(policy):
            own, log_pi = policy.sample(s, noise[0])
            return jnp.mean(alpha * log_pi - smaller(q1, q2, s, own))

        move("policy", climb)
        fast = (q1, q2) if part.critics == "twin" else networks["v"]
        return networks, jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, slow, fast), moments

    slow, moments = state.valuation.target, {name: adams[name].init(networks[name]) for name in adams}
    drawn = sac._minibatches(part, jax.random.fold_in(KEY, 0), replay)
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
    step = lambda slow, fast: jax.tree.map(lambda s, f: s + 0.1 * (f - s), slow, fast)
    close(found.target, step(state.valuation.target, found.value), 1e-7)


def test_the_temperature_falls_where_entropy_is_too_high_and_rises_where_it_is_too_low():
    slope = lambda entropy: float(jax.grad(VALUE.temperature_loss)(jnp.log(0.2), jnp.full(5, -entropy), 2))
    assert slope(-0.9) > 0 > slope(-1.1)  # it descends
    assert slope(-1.0) == 0


def test_an_automatic_temperature_brings_the_entropy_that_is_wanted():
    """From more in the beginning; a uniform policy would have ln 4."""
    n, rng = 2000, np.random.default_rng(0)
    s, a = rng.uniform(-1, 1, (n, 3)).astype(np.float32), rng.uniform(-1, 1, (n, 2)).astype(np.float32)
    reward = -np.sum(a**2, axis=1)
    ring = buffer.record(buffer.empty(n, 3, 2), Transitions(s, a, reward, s, np.ones(n, np.float32)))
    first = VALUE.update(KEY, learner(VALUE), ring, 1)
    last = VALUE.update(KEY, VALUE.update(KEY, first, ring, 4000), ring, 500)
    assert VALUE.report(first)["entropy"] > -0.5
    np.testing.assert_allclose(VALUE.report(last)["entropy"], -1.0, atol=0.2)


def test_a_fixed_temperature_stays(replay):
    found = TWIN.update(KEY, learner(), replay, 20)
    np.testing.assert_allclose(TWIN.report(found)["temperature"], 0.2, rtol=1e-6)


# -- what each call may touch


@FORMS
def test_critics_that_learn_for_others_leave_the_actor_alone(part, replay):
    state, policy = learner(part), new_policy(9)
    ten = part.update_critic(KEY, state, policy, replay, 10)
    assert int(ten.updates) == int(ten.valuation.optimisers[0].t) == 10
    assert same((ten.policy, ten.optimiser), (state.policy, state.optimiser))
    assert not same(ten.valuation.critics, state.valuation.critics)
    assert not same(ten.valuation.target, state.valuation.target)
    another = part.update_critic(KEY, state, state.policy, replay, 10)
    assert not same(another.valuation.critics, ten.valuation.critics)  # whose value they learn is up to the caller
    assert part.report(ten)["actor_loss"] is None


@FORMS
def test_the_critics_step_first_and_as_they_would_alone(part, replay):
    both = part.update(KEY, learner(part), replay, 1)
    alone = part.update_critic(KEY, learner(part), learner(part).policy, replay, 1)
    close(both.valuation, alone.valuation, 1e-6)


@pytest.mark.parametrize("how", ["update", "update_critic"])
def test_learning_goes_in_blocks_of_a_thousand_steps(replay, how):
    part, state = TWIN, learner()
    if how == "update":
        found = part.update(KEY, state, replay, 1500)
        learning, work = (state.policy, state.optimiser, state.valuation), lambda *rest: sac._update(part, *rest)
        ends = found.policy, found.optimiser, found.valuation
    else:
        found = part.update_critic(KEY, state, state.policy, replay, 1500)
        learning, work = state.valuation, lambda *rest: sac._update_critic(part, state.policy, *rest)
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


# -- lessons


def lesson(replay, steps, part=TWIN):
    data = np.asarray(jax.random.key_data(KEY))
    return Lesson(part, data, part.teacher(learner()), replay.data.observation, replay.size, np.asarray(steps))


def test_a_lesson_of_no_steps_changes_nothing(replay):
    assert same(lesson(replay, 0)(new_policy()), new_policy())


def test_a_lesson_climbs_the_frozen_critics_with_a_fresh_optimiser(replay, rows):
    policy, s, noise = new_policy(), rows(50).observation, jax.random.normal(KEY, (50, 2))
    improved = lesson(replay, 300)(policy)
    before, after = (float(TWIN.actor_loss(p, TWIN.teacher(learner()), s, noise)) for p in (policy, improved))
    assert after < before - 0.01
    assert not same(lesson(replay, 5)(lesson(replay, 5)(policy)), lesson(replay, 10)(policy))
    assert not same(improved.spread, policy.spread)


def test_a_lesson_draws_its_states_from_those_that_are_filled(memory):
    ring = memory(2000, 5)
    poisoned = ring.data.observation.at[5:].set(jnp.nan)
    taught = TWIN.improve(KEY, new_policy(), TWIN.teacher(learner()), poisoned, ring.size, 50)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(taught))


def test_a_long_lesson_goes_in_blocks_with_one_optimiser(replay):
    states, teacher, policy = replay.data.observation, TWIN.teacher(learner()), new_policy()
    found = TWIN.improve(KEY, policy, teacher, states, replay.size, BLOCK + 200)
    learning = policy, sac.adam_init(policy)
    for begin, count in ((0, BLOCK), (BLOCK, 200)):
        learning = sac._improve(TWIN, jax.random.fold_in(KEY, begin), learning, teacher, states, replay.size, count)
    assert same(found, learning[0])
    assert int(learning[1].t) == BLOCK + 200


# -- exploration


def test_it_acts_at_random_at_first_and_by_its_own_draws_after_that():
    part, state, last = SAC(random_frames=100), learner(), np.zeros(2)
    player, noise = part.explore(KEY, state, last, 5_000, seen=99)
    actions = np.asarray(player.explore(jnp.ones((5_000, 3)), noise))
    np.testing.assert_allclose(actions.var(axis=0), 1 / 3, atol=0.02)
    assert np.abs(actions).max() <= 1.0
    player, noise = part.explore(KEY, state, last, 5_000, seen=100)
    assert player is state.policy
    assert noise.shape == (5_000, 2)
    np.testing.assert_allclose(noise.std(axis=0), 1.0, atol=0.04)


def test_an_exploring_episode_is_played_by_the_distribution():
    part = SAC(random_frames=0, batch_size=8, critic_hidden=(8, 8))
    algorithm = genepool.sac(Reach, learner=part, hidden=(8, 8), replay=500)
    state = algorithm.init(KEY)
    (candidate,), _ = algorithm.ask(KEY, state, 1)
    rows = genepool.LocalWorkers(algorithm.task).map([candidate])[0].transitions
    expected = state.learner.policy.explore(rows.observation, candidate.noise[: len(rows.reward)])
    np.testing.assert_allclose(rows.action, expected, atol=1e-5)
    assert np.std(rows.action) > 0.1


# -- tasks with known answers


def test_the_learner_solves_a_task_of_one_step():
    rng, n, best = np.random.default_rng(0), 2000, np.array([0.5, -0.3], np.float32)
    action = rng.uniform(-1, 1, (n, 2)).astype(np.float32)
    state = rng.uniform(-1, 1, (n, 3)).astype(np.float32)  # tells nothing
    reward = -5.0 * np.sum((action - best) ** 2, axis=1)
    replay = buffer.record(buffer.empty(n, 3, 2), Transitions(state, action, reward, state, np.ones(n, np.float32)))
    learnt = TWIN.update(KEY, learner(), replay, 12_000)
    np.testing.assert_allclose(np.mean(TWIN.actor(learnt)(state), axis=0), best, atol=0.1)
    # pi ~ exp(Q / alpha) is all but normal here, with the variance alpha / 10
    draws = learnt.policy.explore(state, rng.standard_normal((n, 2)).astype(np.float32))
    np.testing.assert_allclose(np.std(draws, axis=0), math.sqrt(0.2 / 10), rtol=0.2)
    # and a policy that is only taught finds the same answer
    taught = TWIN.improve(KEY, new_policy(8), TWIN.teacher(learnt), replay.data.observation, replay.size, 1500)
    np.testing.assert_allclose(np.mean(taught(state), axis=0), best, atol=0.1)


@pytest.mark.parametrize(("form", "seed"), [("twin", 0), ("twin", 1), ("twin", 2), ("value", 0)])
def test_sac_alone_learns_to_swing_a_pendulum_up(form, seed):
    """Tested every 600 frames with ten episodes, it comes beyond -250 within 6,000."""
    rates = {"actor_rate": 1e-3, "critic_rate": 1e-3, "tau": 0.01}
    part = SAC(form, batch_size=64, warmup=400, random_frames=800, critic_hidden=(64, 64), **rates)
    algorithm = genepool.sac("Pendulum-v1", engine="gymnasium", hidden=(64, 64), replay=20_000, learner=part)
    key, workers, returns = jax.random.key(seed), genepool.LocalWorkers(algorithm.task), []
    state = algorithm.init(key)
    for episode in range(30):
        state, _ = synchronous(algorithm, workers, jax.random.fold_in(key, episode), state, Clock())
        if episode % 3 == 2:
            policy = Individual(algorithm.policies(state)["learner"], None)
            returns.append(workers.map([Candidate(policy, tuple(range(10)))])[0].fitness)
            if returns[-1] > -250.0:
                break
    assert returns[0] < -1000.0  # it was not there from the beginning
    assert max(returns) > -250.0


# -- in the loops


SMALL = {"hidden": (8, 8), "layer_norm": False, "replay": 2_000, "test_episodes": 2}
LOOPS = {
    "sac": (genepool.sac, {"activation": "tanh"}),
    "pderl": (genepool.pderl, {"population": 3, "memory": 100}),
    "cem_rl": (genepool.cem_rl, {"warmup": 60, "population": 4, "lessons": genepool.FirstHalf(2)}),
    "aes_rl": (genepool.aes_rl, {"warmup": 60, "critic_head_start": 60, "reference_episodes": 1, "population": 3}),
}


def trained(folder, loop, generations, frames=500):
    """The records of a run that stops after so many generations, or goes on where it stopped."""
    preset, options = LOOPS[loop]
    run = genepool.resume(folder, Plane) if folder.exists() else None
    run = run or genepool.train(preset(Plane, learner=TWIN, **SMALL, **options), frames, seed=1, run=folder)
    for record in run:
        if record["generation"] == generations:
            break
    return [{k: v for k, v in row.items() if k not in CLOCKED} for row in run.folder.records], run


@pytest.mark.parametrize("loop", LOOPS)
def test_a_run_with_sac_is_stopped_and_resumed_to_the_last_bit(loop, tmp_path):
    whole, run = trained(tmp_path / "whole", loop, 5)
    assert len(trained(tmp_path / "parts", loop, 3)[0]) == 3
    assert trained(tmp_path / "parts", loop, 5)[0] == whole
    last = whole[-1]
    assert last["updates"] > 0
    assert last["temperature"] == pytest.approx(0.2)
    if loop in ("cem_rl", "aes_rl"):
        assert any(c["operators"] == ["lesson"] for row in whole for c in row["candidates"])
    policy = genepool.load(tmp_path / "parts")
    assert type(policy.actor) is Actor
    champion = next(iter(run.algorithm.policies(run.state).values()))
    np.testing.assert_allclose(policy.predict(np.ones(3))[0], champion(np.ones(3)), atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 0},
        {"random_frames": -1},
        {"warmup": -1},
        {"discount": 1.5},
        {"tau": -0.1},
        {"temperature": -0.1},
        {"temperature": 0.0, "automatic": True},
        {"critic_hidden": ()},
    ],
)
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(genepool.UserError):
        SAC(**options)
