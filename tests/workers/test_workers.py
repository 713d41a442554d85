"""Local workers: an outcome depends on its candidate alone."""

import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest
from tasks import Reach

import genepool
from genepool.acting.episodes import Rollout
from genepool.cores import last_cache
from genepool.environments.lookup import find
from genepool.networks import Actor
from genepool.types import Candidate, Individual
from genepool.workers import local


def candidates(task, n, episodes=2):
    """Different actors, each with its own seeds; the third explores with noise."""
    keys = jax.random.split(jax.random.key(0), n)
    actors = [Actor(key, task.observation_size, task.action_size, (32, 32)) for key in keys]
    noise = 0.3 * np.random.default_rng(1).standard_normal((task.horizon, task.action_size)).astype(np.float32)

    def make(k):
        seeds = tuple(100 * k + e for e in range(episodes))
        return Candidate(Individual(actors[k], None), seeds, noise if k == 2 else None, number=k)

    return [make(k) for k in range(n)]


def same(a, b):
    return a.returns == b.returns and all(
        np.array_equal(x, y) for x, y in zip(a.transitions, b.transitions, strict=True)
    )


@pytest.mark.parametrize(
    ("id", "engine"),
    [
        ("Hopper-v5", "mujoco"),
        ("HalfCheetah-v5", "mujoco"),
        ("Swimmer-v5", "mujoco"),
        ("Hopper-v5", "envpool"),
        ("HalfCheetah-v5", "envpool"),
        ("Pendulum-v1", "gymnasium"),
    ],
)
def test_an_outcome_does_not_depend_on_how_many_are_played_at_once(id, engine):
    task = replace(find(id, engine), max_steps=120)
    several = candidates(task, 10)
    at_once = genepool.LocalWorkers(task).map(several)
    for size in (1, 3):
        workers = genepool.LocalWorkers(task)
        apart = [o for k in range(0, 10, size) for o in workers.map(several[k : k + size])]
        assert all(same(a, b) for a, b in zip(at_once, apart, strict=True))
    backwards = genepool.LocalWorkers(task).map(several[::-1])[::-1]
    assert all(same(a, b) for a, b in zip(at_once, backwards, strict=True))


def test_actors_of_different_architectures_play_in_one_batch_as_each_plays_alone():
    task = replace(find("Hopper-v5", "envpool"), max_steps=120)
    sizes = (task.observation_size, task.action_size)
    keys = jax.random.split(jax.random.key(1), 12)
    builds = [((32, 32), True), ((16,), True), ((32, 32), False), ((40, 24), False)]
    several = [
        replace(candidate, individual=Individual(Actor(keys[k], *sizes, *builds[k % 4]), None))
        for k, candidate in enumerate(candidates(task, 12))
    ]
    at_once = genepool.LocalWorkers(task).map(several)
    apart = [genepool.LocalWorkers(task).map([candidate])[0] for candidate in several]
    alike = [o for k in range(4) for o in genepool.LocalWorkers(task).map(several[k::4])]
    assert all(same(a, b) for a, b in zip(at_once, apart, strict=True))
    assert all(same(a, b) for a, b in zip([o for k in range(4) for o in at_once[k::4]], alike, strict=True))
    assert len({o.frames for o in at_once}) > 1  # so that some episodes ended while others went on


def test_compiled_programs_run_on_the_calling_thread():
    code = "import jax, genepool; genepool.pderl; print(jax.config.read('jax_cpu_enable_async_dispatch'))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_largest_batches_are_played_first_so_that_all_processes_end_together(monkeypatch):
    task = replace(find("Pendulum-v1", "gymnasium"), max_steps=5)
    sizes = []
    play = local.play

    def counted(task, engine, threads, rollouts):
        sizes.append(len(rollouts))
        return play(task, engine, threads, rollouts)

    monkeypatch.setattr(local, "play", counted)
    monkeypatch.setattr(local, "CAPACITY", 3)
    several = candidates(task, 10, episodes=1)
    outcomes = genepool.LocalWorkers(task, alone=True).map(several)
    assert sizes == [3, 3, 2, 2]
    assert [outcome.candidate.seeds for outcome in outcomes] == [candidate.seeds for candidate in several]


def test_rollouts_are_split_evenly_and_in_order_into_batches_whose_weights_fit_the_cache():
    def split(size, rollouts, processes):
        return local.split_into_batches(
            [Rollout(np.zeros(size, np.float32), None, k) for k in range(rollouts)], processes
        )

    def sizes(*arguments):
        return [len(batch) for batch in split(*arguments)]

    assert sizes(10, 10, 1) == [10]
    assert sizes(10, 10, 3) == [3, 3, 4]
    assert sizes(10, 2 * local.CAPACITY + 1, 1) == [43, 43, 43]
    heavy = local.BATCH_BYTES // 4 // 7  # seven of them fit
    assert sizes(heavy, 100, 2) == [6, 6, 6, 7] * 4
    assert sizes(local.BATCH_BYTES, 3, 2) == [1, 1, 1]
    assert [rollout.seed for batch in split(10, 10, 3) for rollout in batch] == list(range(10))


@pytest.mark.parametrize(("sharers", "each"), [("3", 16), ("00000000,000000ff", 4), ("1", 32), ("0", 0), ("?", 0)])
def test_a_core_has_its_share_of_the_last_cache_as_far_as_the_system_says(tmp_path, sharers, each):
    for index, (level, size) in enumerate([(1, "48K"), (1, "32K"), (3, "32768K"), (2, "2048K")]):
        cache = tmp_path / "cache" / f"index{index}"
        cache.mkdir(parents=True)
        contents = {"level": f"{level}\n", "size": f"{size}\n", "shared_cpu_map": f"{sharers}\n"}
        for name, content in contents.items():
            (cache / name).write_text(content)
    assert last_cache(tmp_path) == each * 2**20
    assert last_cache(tmp_path / "none") == 0


def test_more_episodes_than_fit_at_once_are_played_batch_after_batch():
    task = replace(find("Pendulum-v1", "gymnasium"), max_steps=5)
    several = candidates(task, 10, episodes=13)
    one_by_one = [genepool.LocalWorkers(task).map([candidate])[0] for candidate in several]
    assert all(same(a, b) for a, b in zip(genepool.LocalWorkers(task).map(several), one_by_one, strict=True))


@pytest.mark.parametrize("engine", ["mujoco", "envpool", "gymnasium"])
def test_a_time_limit_is_not_a_termination(engine):
    task = find("HalfCheetah-v5", engine)
    short = replace(task, max_steps=30)
    outcome = genepool.LocalWorkers(short).map(candidates(short, 1, episodes=1))[0]
    assert outcome.frames == 30
    assert not outcome.transitions.terminated.any()
    own_limit = genepool.LocalWorkers(task).map(candidates(task, 1, episodes=1))[0]
    assert own_limit.frames == 1000
    assert not own_limit.transitions.terminated.any()
    faithful = replace(short, truncation_is_terminal=True)
    ends = genepool.LocalWorkers(faithful).map(candidates(faithful, 1, episodes=2))[0].transitions.terminated
    assert ends.sum() == 2
    assert ends[29] == ends[59] == 1.0


@pytest.mark.parametrize("engine", ["mujoco", "envpool", "gymnasium"])
def test_a_fall_is_a_termination_and_the_fallen_state_is_the_last_next_observation(engine):
    task = find("Hopper-v5", engine)
    outcome = genepool.LocalWorkers(task).map(candidates(task, 1, episodes=1))[0]
    rows = outcome.transitions
    assert outcome.frames < 1000
    assert rows.terminated[-1] == 1.0
    assert rows.terminated[:-1].sum() == 0.0
    assert np.array_equal(rows.observation[1:], rows.next_observation[:-1])
    height, angle = rows.next_observation[-1][:2]
    assert height < 0.7 or abs(angle) > 0.2


def test_the_episodes_of_a_candidate_stand_one_after_the_other_and_fitness_is_their_mean_return():
    task = find(Reach)
    outcome = genepool.LocalWorkers(task).map(candidates(task, 1, episodes=3))[0]
    assert outcome.frames == 60
    assert outcome.returns == pytest.approx(outcome.transitions.reward.reshape(3, 20).sum(axis=1), abs=1e-4)
    assert outcome.fitness == pytest.approx(np.mean(outcome.returns))


def test_actions_are_stored_in_the_policys_range_and_played_in_the_environments():
    played = []

    class Listening(Reach):
        def step(self, action):
            played.append(float(action[0]))
            return super().step(action)

    task = find(Listening)
    exploring = genepool.LocalWorkers(task).map(candidates(task, 3, episodes=1))[2]
    stored = exploring.transitions.action
    assert np.abs(stored).max() <= 1.0
    assert np.allclose(2.0 * stored[:, 0], played[2::3], atol=1e-6)


def test_humanoids_actions_reach_its_own_bounds_and_no_further():
    spaces = find("Humanoid-v5").spaces
    assert np.allclose(
        spaces.to_environment(np.array([[-1.0] * 17, [0.0] * 17, [1.0] * 17])), [[-0.4] * 17, [0.0] * 17, [0.4] * 17]
    )


def test_the_engines_agree_on_what_a_task_is():
    for id in (
        "HalfCheetah-v5",
        "Hopper-v5",
        "Walker2d-v5",
        "Ant-v5",
        "Swimmer-v5",
        "Humanoid-v5",
        "Reacher-v5",
        "CartPole-v1",
    ):
        ours = find(id, "envpool").spaces
        theirs = find(id, "gymnasium").spaces
        assert ours.observation_shape == theirs.observation_shape, id
        assert ours.horizon == theirs.horizon
        assert np.allclose(ours.low, theirs.low)
        assert np.allclose(ours.high, theirs.high)


def streaming(task, n):
    """Candidates that play streams of 70 and 45 steps, each with noise of its own."""
    noise = np.random.default_rng(2).standard_normal((n, 2, 70, task.action_size)).astype(np.float32)
    return [replace(candidate, steps=(70, 45), noise=0.3 * noise[k]) for k, candidate in enumerate(candidates(task, n))]


@pytest.mark.parametrize(
    ("id", "engine"), [("Hopper-v5", "mujoco"), ("Hopper-v5", "envpool"), ("CartPole-v1", "gymnasium")]
)
def test_streams_of_episodes_have_exactly_their_steps_and_do_not_depend_on_the_rest_of_the_batch(id, engine):
    task = replace(find(id, engine), max_steps=30)
    several = streaming(task, 5) + candidates(task, 3)
    at_once = genepool.LocalWorkers(task).map(several)
    workers = genepool.LocalWorkers(task)
    apart = [workers.map([candidate])[0] for candidate in several]
    assert all(same(a, b) and a.lengths == b.lengths for a, b in zip(at_once, apart, strict=True))
    for outcome in at_once[:5]:
        assert outcome.frames == sum(outcome.lengths) == 115
        assert max(outcome.lengths) <= 30
        assert len(outcome.lengths) >= 5  # 30, 30, 10 and 30, 15 at the fewest
    assert all(len(outcome.lengths) == len(outcome.returns) == 2 for outcome in at_once[5:])


def test_in_a_stream_an_episode_ends_with_its_last_observation_and_the_next_begins_anew():
    task = replace(find(Reach), max_steps=8)
    (outcome,) = genepool.LocalWorkers(task).map(streaming(task, 1))
    rows = outcome.transitions
    ends = np.cumsum(outcome.lengths)
    assert outcome.lengths == (8,) * 8 + (6,) + (8,) * 5 + (5,)
    moved = rows.observation + 0.15 * 2.0 * np.clip(rows.action, -1.0, 1.0)
    assert np.allclose(rows.next_observation, moved, atol=1e-5)
    starts = rows.observation[np.append(0, ends[:-1])]
    assert ((np.abs(starts) >= 0.9) & (np.abs(starts) <= 1.1)).all()
    assert not rows.terminated.any()
    finished = [k for k, length in enumerate(outcome.lengths) if length == 8]
    sums = np.add.reduceat(rows.reward.astype(float), ends - outcome.lengths)
    assert outcome.returns == pytest.approx(sums[finished])


def test_a_stream_in_which_no_episode_ends_has_the_return_of_its_steps():
    task = replace(find(Reach), max_steps=20)
    candidate = replace(candidates(task, 1, 1)[0], steps=(6,))
    (outcome,) = genepool.LocalWorkers(task).map([candidate])
    assert outcome.returns == pytest.approx([outcome.transitions.reward.sum()])


class Unsound(Reach):
    """In the episode with seed 101, the observation or the reward of step 7 is not a number."""

    wrong = "reward"

    def reset(self, *, seed=None, options=None):
        self.bad = seed == 101
        return super().reset(seed=seed)

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if self.bad and self.t == 7:
            return (observation, np.nan, *rest) if self.wrong == "reward" else (observation * np.inf, reward, *rest)
        return observation, reward, *rest


@pytest.mark.parametrize(("wrong", "said"), [("reward", "a reward"), ("observation", "an observation")])
def test_what_is_not_a_number_is_named_with_its_seed_and_step(wrong, said, monkeypatch):
    monkeypatch.setattr(Unsound, "wrong", wrong)
    task = find(Unsound)
    with pytest.raises(genepool.UserError, match=rf"returned {said} that is not finite .* seed 101, step 7$"):
        genepool.LocalWorkers(task).map(candidates(task, 3))
