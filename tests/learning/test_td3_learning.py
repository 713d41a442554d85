"""TD3: its lessons, its exploration, and tasks with known answers."""

import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from one_step import BEST, one_step_replay
from tiny_td3 import KEY, SMALL, close, learner, same

import genepool
from genepool.environments.lookup import find
from genepool.learning import offpolicy
from genepool.learning.lessons import GradientLesson
from genepool.learning.offpolicy import BLOCK, random_player
from genepool.learning.td3 import TD3
from genepool.networks import Actor
from genepool.optimiser import Adam, adam_init
from genepool.schedule import Clock, synchronous
from genepool.types import Candidate, Individual


@pytest.fixture(scope="module")
def replay(memory):
    return memory(2000, 50)


# -- lessons


def lesson(replay, steps, key=KEY, part=SMALL):
    data = np.asarray(jax.random.key_data(key))
    return GradientLesson(part, data, learner().critics[0], replay.data.observation, replay.size, np.asarray(steps))


def test_a_lesson_of_no_steps_changes_nothing(replay):
    assert same(lesson(replay, 0)(learner().actor), learner().actor)


def test_a_lesson_climbs_the_frozen_critic(replay, rows):
    actor = learner().actor
    states = rows(50).observation
    improved = lesson(replay, 300)(actor)
    before, after = (-float(SMALL.actor_loss(a, learner().critics[0], states)) for a in (actor, improved))
    assert after > before + 0.01


def test_every_lesson_has_a_fresh_optimiser(replay):
    """Two lessons differ from one of double length, because each begins with a fresh Adam."""
    actor = learner().actor
    states = replay.data.observation
    twice = lesson(replay, 5)(lesson(replay, 5)(actor))
    assert not same(twice, lesson(replay, 10)(actor))
    adam = optax.adam(SMALL.actor_rate)
    places = jax.random.randint(jax.random.fold_in(KEY, 0), (BLOCK, SMALL.batch_size), 0, replay.size)

    @jax.jit
    def step(actor, moments, s):

        def climb(mu):
            return -jnp.mean(learner().critics[0](s, mu(s)))

        change, moments = adam.update(jax.grad(climb)(actor), moments)
        return optax.apply_updates(actor, change), moments

    naive = actor
    for _ in range(2):
        moments = adam.init(naive)
        for i in range(5):
            naive, moments = step(naive, moments, states[places[i]])
    close(twice, naive, 1e-5)


def test_a_lesson_draws_its_states_from_the_rows_that_are_in_use(memory):
    ring = memory(2000, 5)
    poisoned = ring.data.observation.at[5:].set(jnp.nan)
    improved = SMALL.improve(KEY, learner().actor, learner().critics[0], poisoned, ring.size, 50)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(improved))


def test_a_long_lesson_goes_in_blocks_with_one_optimiser(replay):
    part = SMALL
    state = learner()
    states = replay.data.observation
    teacher = state.critics[0]
    found = part.improve(KEY, state.actor, teacher, states, replay.size, 1500)
    learning = (state.actor, adam_init(state.actor))
    adam = Adam(part.actor_rate)
    for begin, count in ((0, 1000), (1000, 500)):
        key = jax.random.fold_in(KEY, begin)
        learning = offpolicy._improve(part, adam, key, learning, teacher, states, replay.size, count)
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
    part = TD3(warmup=100)
    state = learner()
    last = np.zeros(2)
    player, _ = part.explore(KEY, state, last, 20, frames_so_far=99)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(player))
    player, noise = part.explore(KEY, state, last, 20_000, frames_so_far=100)
    assert player is state.actor
    np.testing.assert_allclose(noise.std(), 0.1, rtol=0.03)
    np.testing.assert_allclose(noise[:-1].ravel() @ noise[1:].ravel() / noise.size, 0.0, atol=3e-4)  # no memory


def test_noise_is_in_units_of_half_the_action_range_so_that_humanoid_s_is_honoured():
    """An action of 1 is 0.4 on Humanoid. The smoothing noise is 0.2 of that; both codes have 0.2."""
    spaces = find("Humanoid-v5", "gymnasium").spaces
    np.testing.assert_allclose(spaces.to_environment(np.ones((1, 17), np.float32)), 0.4, rtol=1e-6)
    noise = np.asarray(TD3().noise.draw(KEY, np.zeros(17), 2000))
    np.testing.assert_allclose(spaces.to_environment(noise).std(), 0.1 * 0.4, rtol=0.03)
    batch = SimpleNamespace(next_observation=np.zeros((1, 17)), reward=0.0, terminated=0.0)

    def farthest(s, a):
        return jnp.max(spaces.high[0] * a)

    def zero(s):
        return jnp.zeros_like(s)

    np.testing.assert_allclose(TD3(discount=1.0).targets(99.0, zero, (farthest,) * 2, batch), 0.5 * 0.4, rtol=1e-6)


# -- tasks with known answers


RETURNS = {
    # the best test counts, because a good policy may get worse for a while
    "Pendulum-v1": (11_000, -250.0, {}, 1.0),
    # the largest return is 1000; a larger tau and two steps per frame make it learnable in so few frames
    "InvertedPendulum-v5": (11_000, 900.0, {"tau": 0.01}, 2.0),
}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("task", RETURNS)
def test_td3_alone_learns_a_task_of_seconds(task, seed):
    """Tested every 1,000 frames with ten episodes, it reaches the return within the frames."""
    frames, enough, options, updates = RETURNS[task]
    part = TD3(batch_size=100, warmup=1000, critic_hidden=(64, 64), **options)
    sizes = {"hidden": (64, 64), "replay": 20_000}
    algorithm = genepool.td3(task, engine="gymnasium", learner=part, updates_per_frame=updates, **sizes)
    key = jax.random.key(seed)
    workers = genepool.LocalWorkers(algorithm.task)
    played = 0
    g = 0
    returns = []
    state = algorithm.init(key)
    while played < frames and max(returns, default=-math.inf) < enough:
        state, outcomes = synchronous(algorithm, workers, jax.random.fold_in(key, g), state, Clock())
        g += 1
        before = played
        played += sum(outcome.frames for outcome in outcomes)
        if played // 1000 > before // 1000:
            policy = Individual(algorithm.policies(state)["learner"], None)
            returns.append(workers.map([Candidate(policy, tuple(range(10)))])[0].fitness)
    assert returns[0] < enough  # it did not know it from the beginning
    assert max(returns) >= enough


def test_the_learner_solves_a_task_of_one_step():
    replay = one_step_replay()
    rows = replay.data
    trained = SMALL.update(KEY, learner(), replay, 5000)
    actions = SMALL.actor(trained)(rows.observation)
    np.testing.assert_allclose(np.mean(actions, axis=0), BEST, atol=0.1)
    np.testing.assert_allclose(actions, np.tile(BEST, (len(actions), 1)), atol=0.25)
    for critic in trained.critics:
        errors = np.abs(critic(rows.observation, rows.action) - rows.reward)
        np.testing.assert_allclose(np.mean(errors), 0.0, atol=0.1)
    # an actor that only takes lessons finds the same action
    actor = Actor(jax.random.key(8), 3, 2, (8, 8), layer_norm=False)
    improved = SMALL.improve(KEY, actor, SMALL.teacher(trained), rows.observation, replay.size, 1500)
    np.testing.assert_allclose(np.mean(improved(rows.observation), axis=0), BEST, atol=0.1)


@pytest.mark.parametrize(
    "options",
    [{"batch_size": 0}, {"policy_delay": 0}, {"warmup": -1}, {"discount": 1.5}, {"tau": -0.1}, {"critic_hidden": ()}],
)
def test_invalid_settings_are_refused(options):
    with pytest.raises(genepool.UserError):
        TD3(**options)
