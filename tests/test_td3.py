"""TD3: its equations written naively, what each call may touch, its lessons, and tasks whose answers are known."""

import math
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import genepool
from genepool import buffer
from genepool.environments.task import find
from genepool.learning import td3
from genepool.learning.lessons import Lesson
from genepool.learning.td3 import BLOCK, TD3, random_player
from genepool.networks import Actor, QNetwork
from genepool.schedule import Clock, synchronous
from genepool.types import Candidate, Individual, Transitions

KEY = jax.random.key(0)
SMALL = TD3(batch_size=32, discount=0.9, tau=0.1, critic_hidden=(16, 16))  # one for all: compiling is most of the time


@cache
def learner(part=SMALL, sizes=(3, 2)):
    return part.init(KEY, Actor(KEY, *sizes, (8, 8), layer_norm=False))


def close(ours, naive, atol):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), ours, naive)


def same(one, other):
    leaves = (jax.tree.leaves(tree) for tree in (one, other))
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*leaves, strict=True))


def distance(one, other):
    leaves = (jax.tree.leaves(tree) for tree in (one, other))
    return max(float(np.max(np.abs(a - b))) for a, b in zip(*leaves, strict=True))


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
    batch, critic = rows(20), QNetwork(KEY, 3, 2, (8, 6))
    found = critic(batch.observation, batch.action)
    np.testing.assert_allclose(found, naive_forward(critic, batch.observation, batch.action), atol=1e-5)


def test_the_target_is_that_of_the_bellman_equation_written_row_by_row(rows):
    """min of two slow critics, at the policy's action with clipped noise, clipped; only a true end stops the bootstrap."""
    part = TD3(discount=0.9, target_noise=0.4, noise_clip=0.5)
    batch, policy = rows(30), Actor(jax.random.key(5), 3, 2, (8, 8), layer_norm=False)
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
    critic = lambda s, a: a[:, 0]
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
    one = lambda s, a: jnp.ones(len(s))
    y = TD3(discount=0.5).targets(np.zeros((200, 1)), lambda s: s[:, :1], (one, one), rows)
    np.testing.assert_allclose(y, rows.reward + 0.5, rtol=1e-5)


def test_the_critics_loss_is_the_sum_of_two_means(rows):
    batch, y = rows(12), np.arange(12.0)
    critics = (lambda s, a: s[:, 0] + a[:, 0]), (lambda s, a: 2 * s[:, 1])
    expected = sum(np.mean((np.asarray(q(batch.observation, batch.action)) - y) ** 2) for q in critics)
    np.testing.assert_allclose(SMALL.critic_loss(critics, batch, y), expected, rtol=1e-5)


def test_the_actor_climbs_the_first_critic_and_no_other(rows):
    states, state = rows(12).observation, learner()
    value = -np.mean(naive_forward(state.critics[0], states, state.actor(states)))
    np.testing.assert_allclose(SMALL.actor_loss(state.actor, state.critics[0], states), value, atol=1e-5)
    assert SMALL.teacher(state) is SMALL.critic(state) is state.critics[0]


def test_updates_equal_the_equations_written_with_optax(replay):
    part, steps, state = SMALL, 7, learner()
    found = part.update(KEY, state, replay, steps)
    drawn = jax.jit(td3._minibatches(part, jax.random.fold_in(KEY, 0), replay))
    critic_adam, actor_adam = optax.adam(part.critic_rate), optax.adam(part.actor_rate)

    @jax.jit
    def critic_step(critics, adam_state, slow_actor, slow_critics, batch, noise):
        a = jnp.clip(slow_actor(batch.next_observation) + jnp.clip(0.2 * noise, -0.5, 0.5), -1, 1)
        q = jnp.minimum(*(slow(batch.next_observation, a) for slow in slow_critics))
        y = batch.reward + 0.9 * (1 - batch.terminated) * q
        loss = lambda qs: sum(jnp.mean((q(batch.observation, batch.action) - y) ** 2) for q in qs)
        value, slope = jax.value_and_grad(loss)(critics)
        change, adam_state = critic_adam.update(slope, adam_state)
        return optax.apply_updates(critics, change), adam_state, value

    @jax.jit
    def actor_step(actor, adam_state, critics, slow_actor, slow_critics, states):
        climb = lambda mu: -jnp.mean(critics[0](states, mu(states)))  # the critic already updated
        change, adam_state = actor_adam.update(jax.grad(climb)(actor), adam_state)
        actor = optax.apply_updates(actor, change)
        follow = lambda slow, fast: jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, slow, fast)
        return actor, adam_state, follow(slow_actor, actor), follow(slow_critics, critics)

    actor, critics, slow_actor, slow_critics = state.actor, state.critics, state.actor, state.critics
    critic_state, actor_state, losses = critic_adam.init(critics), actor_adam.init(actor), []
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


# -- what each call may touch


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
    policy, state = Actor(jax.random.key(9), 3, 2, (8, 8), layer_norm=False), learner()
    one = SMALL.update_critic(KEY, state, policy, replay, 1)
    follow = lambda slow, fast: jax.tree.map(lambda s, f: s + SMALL.tau * (f - s), slow, fast)
    close(one.target_critics, follow(state.target_critics, one.critics), 1e-7)
    assert not same(one.target_critics, state.target_critics)
    ten = SMALL.update_critic(KEY, state, policy, replay, 10)
    assert int(ten.updates) == int(ten.critic_optimiser.t) == 10
    kept = lambda s: (s.actor, s.target_actor, s.actor_optimiser)
    assert same(kept(ten), kept(state))
    another = SMALL.update_critic(KEY, state, state.actor, replay, 10)
    assert not same(another.critics, ten.critics)  # whose value they learn is up to the caller


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
    part, state = SMALL, learner()
    if how == "update":
        names = ("actor", "critics", "target_actor", "target_critics", "actor_optimiser", "critic_optimiser")
        found, work = part.update(KEY, state, replay, 1500), lambda *rest: td3._update(part, *rest)
    else:
        names = ("critics", "target_critics", "critic_optimiser")
        found = part.update_critic(KEY, state, state.actor, replay, 1500)
        work = lambda *rest: td3._update_critic(part, state.actor, *rest)
    networks = tuple(getattr(state, name) for name in names)
    for begin, count in ((0, 1000), (1000, 500)):
        networks, _ = work(jax.random.fold_in(KEY, begin), networks, replay, count)
    assert same(networks, tuple(getattr(found, name) for name in names))


# -- lessons


def lesson(replay, steps, key=KEY, part=SMALL):
    data = np.asarray(jax.random.key_data(key))
    return Lesson(part, data, learner().critics[0], replay.data.observation, replay.size, np.asarray(steps))


def test_a_lesson_of_no_steps_changes_nothing(replay):
    assert same(lesson(replay, 0)(learner().actor), learner().actor)


def test_a_lesson_climbs_the_frozen_critic(replay, rows):
    actor, states = learner().actor, rows(50).observation
    improved = lesson(replay, 300)(actor)
    before, after = (-float(SMALL.actor_loss(a, learner().critics[0], states)) for a in (actor, improved))
    assert after > before + 0.01


def test_every_lesson_has_a_fresh_optimiser(replay):
    """Two lessons in a row are not one of double length; and a lesson is steps of Adam from its beginning."""
    actor, states = learner().actor, replay.data.observation
    twice = lesson(replay, 5)(lesson(replay, 5)(actor))
    assert not same(twice, lesson(replay, 10)(actor))
    adam = optax.adam(SMALL.actor_rate)
    places = jax.random.randint(jax.random.fold_in(KEY, 0), (BLOCK, SMALL.batch_size), 0, replay.size)

    @jax.jit
    def step(actor, moments, s):
        climb = lambda mu: -jnp.mean(learner().critics[0](s, mu(s)))
        change, moments = adam.update(jax.grad(climb)(actor), moments)
        return optax.apply_updates(actor, change), moments

    naive = actor
    for _ in range(2):
        moments = adam.init(naive)
        for i in range(5):
            naive, moments = step(naive, moments, states[places[i]])
    close(twice, naive, 1e-5)


def test_a_lesson_draws_its_states_from_those_that_are_filled(memory):
    ring = memory(2000, 5)
    poisoned = ring.data.observation.at[5:].set(jnp.nan)
    taught = SMALL.improve(KEY, learner().actor, learner().critics[0], poisoned, ring.size, 50)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(taught))


def test_a_long_lesson_goes_in_blocks_with_one_optimiser(replay):
    part, state = SMALL, learner()
    states, teacher = replay.data.observation, state.critics[0]
    found = part.improve(KEY, state.actor, teacher, states, replay.size, 1500)
    learning = state.actor, td3.adam_init(state.actor)
    for begin, count in ((0, 1000), (1000, 500)):
        learning = td3._improve(part, jax.random.fold_in(KEY, begin), learning, teacher, states, replay.size, count)
    assert same(found, learning[0])
    assert int(learning[1].t) == 1500


# -- exploration


def test_actions_of_the_warm_up_are_uniform_over_their_range():
    actor = Actor(jax.random.key(3), 3, 2, (8, 8), layer_norm=False)
    player, noise = random_player(KEY, actor, 10_000)
    actions = np.asarray(player.explore(jnp.ones((10_000, 3)), noise))
    assert np.abs(actions).max() <= 1.0
    np.testing.assert_allclose(actions.mean(axis=0), 0.0, atol=0.025)  # 4 standard errors
    np.testing.assert_allclose(actions.var(axis=0), 1 / 3, atol=0.012)
    np.testing.assert_allclose(np.mean(actions > 0.8), 0.1, atol=0.01)
    np.testing.assert_allclose(np.corrcoef(actions.T)[0, 1], 0.0, atol=0.04)


def test_it_acts_at_random_until_the_replay_has_the_warm_up_and_with_noise_of_its_own_after_it():
    part, state, last = TD3(warmup=100), learner(), np.zeros(2)
    player, _ = part.explore(KEY, state, last, 20, seen=99)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(player))
    player, noise = part.explore(KEY, state, last, 20_000, seen=100)
    assert player is state.actor
    np.testing.assert_allclose(noise.std(), 0.1, rtol=0.03)
    np.testing.assert_allclose(noise[:-1].ravel() @ noise[1:].ravel() / noise.size, 0.0, atol=3e-4)  # no memory


def test_noise_is_in_units_of_half_the_action_range_so_that_humanoid_s_is_honoured():
    """A policy's full action is 0.4 on Humanoid, and the smoothing noise 0.2 of that, where both codes have 0.2."""
    spaces = find("Humanoid-v5", "gymnasium").spaces
    np.testing.assert_allclose(spaces.to_environment(np.ones((1, 17), np.float32)), 0.4, rtol=1e-6)
    noise = np.asarray(TD3().noise.draw(KEY, np.zeros(17), 2000))
    np.testing.assert_allclose(spaces.to_environment(noise).std(), 0.1 * 0.4, rtol=0.03)
    batch = SimpleNamespace(next_observation=np.zeros((1, 17)), reward=0.0, terminated=0.0)
    farthest = lambda s, a: jnp.max(spaces.high[0] * a)
    zero = lambda s: jnp.zeros_like(s)
    np.testing.assert_allclose(TD3(discount=1.0).targets(99.0, zero, (farthest,) * 2, batch), 0.5 * 0.4, rtol=1e-6)


# -- tasks with known answers


RETURNS = {
    # measured: eight of eight seeds. A policy that is there may fall back for a while: at one fixed moment, after 9,000
    # frames, ten of ten seeds were beyond -150 and, with another rounding of the matrix products, one was at -338
    "Pendulum-v1": (11_000, -250.0, {}, 1.0),
    # measured: five of five seeds, with 1000, the most there is, by 8,900 frames. With one step per frame, tau 0.005 and
    # batches of 64 none of five came beyond 90 within 12,000
    "InvertedPendulum-v5": (11_000, 900.0, {"tau": 0.01}, 2.0),
}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("task", RETURNS)
def test_td3_alone_learns_a_task_of_seconds(task, seed):
    """Tested every 1,000 frames with ten episodes, it reaches the return within the frames."""
    frames, enough, options, updates = RETURNS[task]
    part = TD3(batch_size=100, warmup=1000, critic_hidden=(64, 64), **options)
    algorithm = genepool.td3(task, engine="gymnasium", hidden=(64, 64), replay=20_000, learner=part)
    algorithm = replace(algorithm, updates_per_frame=updates)
    key, workers, played, g, returns = jax.random.key(seed), genepool.LocalWorkers(algorithm.task), 0, 0, []
    state = algorithm.init(key)
    while played < frames and max(returns, default=-math.inf) < enough:
        state, outcomes = synchronous(algorithm, workers, jax.random.fold_in(key, g), state, Clock())
        g, before, played = g + 1, played, played + sum(outcome.frames for outcome in outcomes)
        if played // 1000 > before // 1000:
            policy = Individual(algorithm.policies(state)["learner"], None)
            returns.append(workers.map([Candidate(policy, tuple(range(10)))])[0].fitness)
    assert returns[0] < enough  # it was not there from the beginning
    assert max(returns) >= enough


def test_the_learner_solves_a_task_of_one_step():
    rng, n, best = np.random.default_rng(0), 2000, np.array([0.5, -0.3], np.float32)
    action = rng.uniform(-1, 1, (n, 2)).astype(np.float32)
    state = rng.uniform(-1, 1, (n, 3)).astype(np.float32)  # tells nothing
    reward = -np.sum((action - best) ** 2, axis=1)
    replay = buffer.record(buffer.empty(n, 3, 2), Transitions(state, action, reward, state, np.ones(n, np.float32)))
    learnt = SMALL.update(KEY, learner(), replay, 5000)
    np.testing.assert_allclose(np.mean(SMALL.actor(learnt)(state), axis=0), best, atol=0.1)
    np.testing.assert_allclose(SMALL.actor(learnt)(state), np.tile(best, (n, 1)), atol=0.25)
    for critic in learnt.critics:
        np.testing.assert_allclose(np.mean(np.abs(critic(state, action) - reward)), 0.0, atol=0.1)
    # and an actor that is only taught finds the same answer
    pupil = Actor(jax.random.key(8), 3, 2, (8, 8), layer_norm=False)
    taught = SMALL.improve(KEY, pupil, SMALL.teacher(learnt), replay.data.observation, replay.size, 1500)
    np.testing.assert_allclose(np.mean(taught(state), axis=0), best, atol=0.1)


@pytest.mark.parametrize(
    "options",
    [{"batch_size": 0}, {"policy_delay": 0}, {"warmup": -1}, {"discount": 1.5}, {"tau": -0.1}, {"critic_hidden": ()}],
)
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(genepool.UserError):
        TD3(**options)
