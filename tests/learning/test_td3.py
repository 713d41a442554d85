"""TD3: its equations written naively, and what each call changes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from naive_updates import td3_actor_step, td3_critic_step
from tiny_td3 import KEY, SMALL, close, distance, learner, same

import genepool
from genepool.environments.lookup import find
from genepool.learning import td3
from genepool.learning.offpolicy import noisy_minibatches
from genepool.learning.td3 import TD3
from genepool.networks import Actor, QNetwork
from genepool.types import Candidate, Individual, Transitions


@pytest.fixture(scope="module")
def replay(memory):
    return memory(2000, 50)


# -- the equations


def naive_forward(network, *inputs):
    """A plain network, written with numpy."""
    network = jax.tree.map(np.asarray, network)
    x = np.concatenate([np.asarray(i) for i in inputs], axis=-1)
    first = np.concatenate([network.first.weight, network.first_action])
    x = x @ first + network.first.bias
    for layer in network.hidden:
        x = np.where(x > 0, x, 0.01 * x) @ layer.weight + layer.bias
    x = np.where(x > 0, x, 0.01 * x)
    return (x @ network.output.weight + network.output.bias)[:, 0]


def test_a_critic_is_a_plain_network_of_state_and_action_with_leaky_units(rows):
    batch = rows(20)
    critic = QNetwork(KEY, 3, 2, (8, 6))
    found = critic(batch.observation, batch.action)
    np.testing.assert_allclose(found, naive_forward(critic, batch.observation, batch.action), atol=1e-5)


def test_the_target_is_that_of_the_bellman_equation_written_row_by_row(rows):
    """The smaller of two slow critics, at the policy's clipped action with clipped noise. Only a true end stops it."""
    part = TD3(discount=0.9, target_noise=0.4, noise_clip=0.5)
    batch = rows(30)
    policy = Actor(jax.random.key(5), 3, 2, (8, 8), layer_norm=False)
    critics = tuple(QNetwork(jax.random.key(k), 3, 2, (8, 8)) for k in (1, 2))
    # the second shifted so that now the one, now the other is the smaller
    values = [q(batch.next_observation, policy(batch.next_observation)) for q in critics]
    shift = jnp.median(values[0] - values[1])
    critics = critics[0], eqx.tree_at(lambda q: q.output.bias, critics[1], critics[1].output.bias + shift)
    noise = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    found = part.targets(noise, policy, critics, batch)
    actions = np.asarray(policy(batch.next_observation))
    clipped = both = 0
    for k in range(30):
        smoothing = np.minimum(np.maximum(0.4 * noise[k], -0.5), 0.5)
        a = np.minimum(np.maximum(actions[k] + smoothing, -1.0), 1.0)
        values = [naive_forward(q, batch.next_observation[k : k + 1], a[None])[0] for q in critics]
        y = batch.reward[k] if batch.terminated[k] else batch.reward[k] + 0.9 * min(values)
        np.testing.assert_allclose(found[k], y, rtol=1e-5, atol=1e-5)
        clipped += np.any(np.abs(0.4 * noise[k]) > 0.5)
        both += values[0] < values[1]
    assert clipped  # the noise was clipped somewhere
    assert 0 < both < 30  # now one critic was the smaller, now the other
    assert 0 < batch.terminated.sum() < 30


def test_the_target_action_stays_in_its_range():
    batch = Transitions(*(np.zeros((4, n), np.float32) for n in (1, 1)), np.zeros(4), np.zeros((4, 1)), np.zeros(4))
    noise = np.array([[9.0], [1.0], [-1.0], [-9.0]])

    def critic(s, a):
        return a[:, 0]

    found = TD3(discount=1.0).targets(noise, lambda s: 0.9 * jnp.ones_like(s), (critic, critic), batch)
    np.testing.assert_allclose(found, [1.0, 1.0, 0.7, 0.4], rtol=1e-6)  # 0.9 + 0.5, 0.9 + 0.2, 0.9 - 0.2, 0.9 - 0.5


def test_a_time_limit_bootstraps_and_a_fall_does_not():
    """The flag comes from the workers: at the time limit it is 0."""
    task = find("Pendulum-v1", "gymnasium")
    (outcome,) = genepool.LocalWorkers(task).map(
        [Candidate(Individual(Actor(KEY, 3, 1, (8,), layer_norm=False), None), (0,))]
    )
    rows = outcome.transitions
    assert outcome.frames == 200

    def one(s, a):
        return jnp.ones(len(s))

    y = TD3(discount=0.5).targets(np.zeros((200, 1)), lambda s: s[:, :1], (one, one), rows)
    np.testing.assert_allclose(y, rows.reward + 0.5, rtol=1e-5)


def test_the_critics_loss_is_the_sum_of_two_means(rows):
    batch = rows(12)
    y = np.arange(12.0)

    def first(s, a):
        return s[:, 0] + a[:, 0]

    def second(s, a):
        return 2 * s[:, 1]

    critics = first, second
    expected = sum(np.mean((np.asarray(q(batch.observation, batch.action)) - y) ** 2) for q in critics)
    np.testing.assert_allclose(SMALL.critic_loss(critics, batch, y), expected, rtol=1e-5)


def test_the_actor_climbs_the_first_critic_and_no_other(rows):
    states = rows(12).observation
    state = learner()
    value = -np.mean(naive_forward(state.critics[0], states, state.actor(states)))
    np.testing.assert_allclose(SMALL.actor_loss(state.actor, state.critics[0], states), value, atol=1e-5)
    assert SMALL.teacher(state) is SMALL.critic(state) is state.critics[0]


def test_updates_equal_the_equations_written_with_optax(replay):
    part = SMALL
    steps = 7
    state = learner()
    found = part.update(KEY, state, replay, steps)
    drawn = jax.jit(noisy_minibatches(jax.random.fold_in(KEY, 0), replay, part.batch_size))
    critic_adam = optax.adam(part.critic_rate)
    actor_adam = optax.adam(part.actor_rate)

    critic_step = td3_critic_step(critic_adam)
    actor_step = td3_actor_step(actor_adam)
    actor = state.actor
    critics = state.critics
    slow_actor = state.actor
    slow_critics = state.critics
    critic_state = critic_adam.init(critics)
    actor_state = actor_adam.init(actor)
    losses = []
    for i in range(steps):
        batch, noise = drawn(i)
        critics, critic_state, loss = critic_step(critics, critic_state, slow_actor, slow_critics, batch, noise)
        losses.append(loss)
        if i % 2 == 1:
            actor, actor_state, slow_actor, slow_critics = actor_step(
                actor, actor_state, critics, slow_actor, slow_critics, batch.observation
            )
    close(
        (found.actor, found.critics, found.target_actor, found.target_critics),
        (actor, critics, slow_actor, slow_critics),
        2e-5,
    )
    np.testing.assert_allclose(found.losses[0], np.mean(losses), rtol=1e-4)
    assert int(found.updates) == steps
    assert distance(found.actor, state.actor) > 1e-3


# -- what each call changes


@pytest.mark.parametrize(("steps", "actor_steps"), [(1, 0), (2, 1), (3, 1), (7, 3)])
def test_actor_and_targets_move_once_for_every_two_steps_of_the_critics(replay, steps, actor_steps):
    state = learner()
    found = SMALL.update(KEY, state, replay, steps)
    assert int(found.critic_optimiser.t) == steps
    assert int(found.actor_optimiser.t) == actor_steps
    assert not same(found.critics, state.critics)
    still = (found.actor, found.target_actor, found.target_critics)
    assert same(still, (state.actor, state.target_actor, state.target_critics)) == (actor_steps == 0)
    before = SMALL.update(KEY, state, replay, steps - steps % 2)
    assert same(still, (before.actor, before.target_actor, before.target_critics))  # untouched by the odd step


def test_critics_that_learn_for_others_move_their_targets_every_step_and_no_actor_ever(replay):
    policy = Actor(jax.random.key(9), 3, 2, (8, 8), layer_norm=False)
    state = learner()
    one = SMALL.update_critic(KEY, state, policy, replay, 1)

    def follow(slow, fast):
        return jax.tree.map(lambda s, f: s + SMALL.tau * (f - s), slow, fast)

    close(one.target_critics, follow(state.target_critics, one.critics), 1e-7)
    assert not same(one.target_critics, state.target_critics)
    ten = SMALL.update_critic(KEY, state, policy, replay, 10)
    assert int(ten.updates) == int(ten.critic_optimiser.t) == 10

    def kept(s):
        return (s.actor, s.target_actor, s.actor_optimiser)

    assert same(kept(ten), kept(state))
    another = SMALL.update_critic(KEY, state, state.actor, replay, 10)
    assert not same(another.critics, ten.critics)  # the caller chooses the policy


def test_the_critics_optimiser_lasts_over_calls(replay):
    state = learner()
    first = SMALL.update_critic(KEY, state, state.actor, replay, 5)
    second = SMALL.update_critic(KEY, first, state.actor, replay, 5)
    assert int(second.critic_optimiser.t) == 10
    forgetful = eqx.tree_at(lambda s: s.critic_optimiser, first, state.critic_optimiser)
    fresh = SMALL.update_critic(KEY, forgetful, state.actor, replay, 5)
    assert not same(fresh.critics, second.critics)


@pytest.mark.parametrize("how", ["update", "update_critic"])
def test_learning_goes_in_blocks_of_a_thousand_steps(replay, how):
    """1500 steps are a block of 1000 and one of 500, each with its own key."""
    part = SMALL
    state = learner()
    if how == "update":
        names = ("actor", "critics", "target_actor", "target_critics", "actor_optimiser", "critic_optimiser")
        found = part.update(KEY, state, replay, 1500)

        def work(*rest):
            return td3._update(part, *rest)

    else:
        names = ("critics", "target_critics", "critic_optimiser")
        found = part.update_critic(KEY, state, state.actor, replay, 1500)

        def work(*rest):
            return td3._update_critic(part, state.actor, *rest)

    networks = tuple(getattr(state, name) for name in names)
    for begin, count in ((0, 1000), (1000, 500)):
        networks, _ = work(jax.random.fold_in(KEY, begin), networks, replay, count)
    assert same(networks, tuple(getattr(found, name) for name in names))
