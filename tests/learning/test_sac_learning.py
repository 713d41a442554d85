"""SAC: its lessons, its exploration, tasks with known answers, and SAC in other systems."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from one_step import BEST, one_step_replay
from tasks import Plane, Reach
from tiny_sac import KEY, TWIN, learner, new_policy, same, scaled

import genepool
from genepool.learning import sac
from genepool.learning.lessons import GradientLesson
from genepool.learning.offpolicy import BLOCK
from genepool.learning.sac import SAC
from genepool.networks import Actor
from genepool.optimiser import adam_init
from genepool.runs.folder import CLOCKED
from genepool.schedule import Clock, synchronous
from genepool.types import Candidate, Individual


@pytest.fixture(scope="module")
def replay(memory):
    return scaled(memory(2000, 50))


# -- lessons


def lesson(replay, steps, part=TWIN):
    data = np.asarray(jax.random.key_data(KEY))
    return GradientLesson(part, data, part.teacher(learner()), replay.data.observation, replay.size, np.asarray(steps))


def test_a_lesson_of_no_steps_changes_nothing(replay):
    assert same(lesson(replay, 0)(new_policy()), new_policy())


def test_a_lesson_climbs_the_frozen_critics_with_a_fresh_optimiser(replay, rows):
    policy = new_policy()
    s = rows(50).observation
    noise = jax.random.normal(KEY, (50, 2))
    improved = lesson(replay, 300)(policy)
    before, after = (float(TWIN.actor_loss(p, TWIN.teacher(learner()), s, noise)) for p in (policy, improved))
    assert after < before - 0.01
    assert not same(lesson(replay, 5)(lesson(replay, 5)(policy)), lesson(replay, 10)(policy))
    assert not same(improved.spread, policy.spread)


def test_a_lesson_draws_its_states_from_the_rows_that_are_in_use(memory):
    ring = memory(2000, 5)
    poisoned = ring.data.observation.at[5:].set(jnp.nan)
    improved = TWIN.improve(KEY, new_policy(), TWIN.teacher(learner()), poisoned, ring.size, 50)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(improved))


def test_a_long_lesson_goes_in_blocks_with_one_optimiser(replay):
    states = replay.data.observation
    teacher = TWIN.teacher(learner())
    policy = new_policy()
    found = TWIN.improve(KEY, policy, teacher, states, replay.size, BLOCK + 200)
    learning = policy, adam_init(policy)
    for begin, count in ((0, BLOCK), (BLOCK, 200)):
        learning = sac._improve(TWIN, jax.random.fold_in(KEY, begin), learning, teacher, states, replay.size, count)
    assert same(found, learning[0])
    assert int(learning[1].t) == BLOCK + 200


# -- exploration


def test_it_acts_at_random_at_first_and_by_its_own_draws_after_that():
    part = SAC(random_frames=100)
    state = learner()
    last = np.zeros(2)
    player, noise = part.explore(KEY, state, last, 5_000, frames_so_far=99)
    actions = np.asarray(player.explore(jnp.ones((5_000, 3)), noise))
    np.testing.assert_allclose(actions.var(axis=0), 1 / 3, atol=0.02)
    assert np.abs(actions).max() <= 1.0
    player, noise = part.explore(KEY, state, last, 5_000, frames_so_far=100)
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
    replay = one_step_replay(weight=5.0)
    states = replay.data.observation
    trained = TWIN.update(KEY, learner(), replay, 12_000)
    np.testing.assert_allclose(np.mean(TWIN.actor(trained)(states), axis=0), BEST, atol=0.1)
    # pi ~ exp(Q / alpha) is close to a normal distribution with variance alpha / 10
    noise = np.random.default_rng(1).standard_normal((len(states), 2)).astype(np.float32)
    draws = trained.policy.explore(states, noise)
    np.testing.assert_allclose(np.std(draws, axis=0), math.sqrt(0.2 / 10), rtol=0.2)
    # a policy that only takes lessons finds the same action
    improved = TWIN.improve(KEY, new_policy(8), TWIN.teacher(trained), states, replay.size, 1500)
    np.testing.assert_allclose(np.mean(improved(states), axis=0), BEST, atol=0.1)


@pytest.mark.parametrize(("form", "seed"), [("twin", 0), ("twin", 1), ("twin", 2), ("value", 0)])
def test_sac_alone_learns_to_swing_a_pendulum_up(form, seed):
    """Tested every 600 frames with ten episodes, it comes beyond -250 within 6,000."""
    rates = {"actor_rate": 1e-3, "critic_rate": 1e-3, "tau": 0.01}
    part = SAC(form, batch_size=64, warmup=400, random_frames=800, critic_hidden=(64, 64), **rates)
    algorithm = genepool.sac("Pendulum-v1", engine="gymnasium", hidden=(64, 64), replay=20_000, learner=part)
    key = jax.random.key(seed)
    workers = genepool.LocalWorkers(algorithm.task)
    returns = []
    state = algorithm.init(key)
    for episode in range(30):
        state, _ = synchronous(algorithm, workers, jax.random.fold_in(key, episode), state, Clock())
        if episode % 3 == 2:
            policy = Individual(algorithm.policies(state)["learner"], None)
            returns.append(workers.map([Candidate(policy, tuple(range(10)))])[0].fitness)
            if returns[-1] > -250.0:
                break
    assert returns[0] < -1000.0  # it did not know it from the beginning
    assert max(returns) > -250.0


# -- in other systems


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
    run = run or genepool.start(preset(Plane, learner=TWIN, **SMALL, **options), frames, seed=1, run=folder)
    for record in run:
        if record["generation"] == generations:
            break
    return [{k: v for k, v in row.items() if k not in CLOCKED} for row in run.folder.records], run


@pytest.mark.parametrize("loop", LOOPS)
def test_a_run_with_sac_is_stopped_and_resumed_to_the_last_bit(loop, tmp_path):
    uninterrupted, run = trained(tmp_path / "uninterrupted", loop, 5)
    assert len(trained(tmp_path / "parts", loop, 3)[0]) == 3
    assert trained(tmp_path / "parts", loop, 5)[0] == uninterrupted
    last = uninterrupted[-1]
    assert last["updates"] > 0
    assert last["temperature"] == pytest.approx(0.2)
    if loop in ("cem_rl", "aes_rl"):
        assert any(c["operators"] == ["lesson"] for row in uninterrupted for c in row["candidates"])
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
def test_invalid_settings_are_refused(options):
    with pytest.raises(genepool.UserError):
        SAC(**options)
