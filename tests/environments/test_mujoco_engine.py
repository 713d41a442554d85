"""The engine that steps batches of MuJoCo's robots: it plays as Gymnasium does, and refuses other tasks."""

import numpy as np
import pytest

import genepool
from genepool.environments.engines import gymnasium as gymnasium_engine
from genepool.environments.engines import mujoco as mujoco_engine
from genepool.environments.lookup import find

SEEDS = (5, 6, 7, 8)
# so strong that every task's kind of end is seen in some episode, or that none is
STRENGTH = {"HalfCheetah-v5": 1.0, "Hopper-v5": 0.5, "InvertedPendulum-v5": 0.1, "Swimmer-v5": 1.0, "Walker2d-v5": 1.0}


def begun(id):
    """The engine and Gymnasium's environments with the same seeds, and what both show first."""
    engine = mujoco_engine.MuJoCoEngine(id)
    theirs = [gymnasium_engine.make(id).unwrapped for _ in SEEDS]
    first = engine.begin(SEEDS, 1), np.stack([env.reset(seed=s)[0] for env, s in zip(theirs, SEEDS, strict=True)])
    return engine, theirs, first


@pytest.mark.parametrize("id", mujoco_engine.TASKS)
def test_an_episode_begins_as_gymnasiums_and_stays_with_it_for_fifty_steps(id):
    engine, theirs, (ours, first) = begun(id)
    assert np.array_equal(ours, first)
    rng = np.random.default_rng(0)
    live = np.arange(len(SEEDS), dtype=np.int32)
    ended = 0
    for _ in range(50):
        actions = STRENGTH[id] * rng.uniform(-1.0, 1.0, (len(SEEDS), theirs[0].model.nu)).astype(np.float32)
        observation, reward, terminated, truncated = engine.step(actions, live)
        wanted = [env.step(action) for env, action in zip(theirs, actions, strict=True)]
        assert np.allclose(observation, [o for o, *_ in wanted], rtol=0.0, atol=1e-7)
        assert np.allclose(reward, [r for _, r, *_ in wanted], rtol=0.0, atol=1e-6)  # Gymnasium's costs are float32
        assert terminated.tolist() == [end for _, _, end, *_ in wanted]
        assert not truncated.any()
        ended += terminated.sum()
    assert (ended > 0) == (id not in ("HalfCheetah-v5", "Swimmer-v5"))


def test_the_chance_of_an_episode_goes_on_where_it_was_when_the_next_begins():
    engine, theirs, _ = begun("Hopper-v5")
    live = np.arange(len(SEEDS), dtype=np.int32)
    engine.step(np.zeros((len(SEEDS), 3), np.float32), live)
    assert np.array_equal(engine.restart(np.array([2, 0])), [theirs[2].reset()[0], theirs[0].reset()[0]])
    for env in (theirs[1], theirs[3]):
        env.step(np.zeros(3, np.float32))
    observation = engine.step(np.zeros((len(SEEDS), 3), np.float32), live)[0]
    wanted = [env.step(np.zeros(3, np.float32))[0] for env in theirs]
    assert np.allclose(observation, wanted, rtol=0.0, atol=1e-5)  # MuJoCo's solver begins elsewhere than theirs


def test_who_is_not_live_stands_still():
    engine, theirs, _ = begun("Walker2d-v5")
    push = np.full((2, 6), 0.3, np.float32)
    for _ in range(3):
        engine.step(push, np.array([1, 3], np.int32))
    observation = engine.step(np.zeros((2, 6), np.float32), np.array([0, 2], np.int32))[0]
    wanted = [theirs[k].step(np.zeros(6, np.float32))[0] for k in (0, 2)]
    assert np.allclose(observation, wanted, rtol=0.0, atol=1e-9)


def test_two_engines_in_turns_play_as_each_does_alone():
    def steps(engine, live):
        return [engine.step(np.full((4, 6), 0.5, np.float32), live)[0].copy() for _ in range(5)]

    live = np.arange(4, dtype=np.int32)
    alone = begun("HalfCheetah-v5")[0]
    wanted = steps(alone, live)
    one = begun("HalfCheetah-v5")[0]
    other = begun("HalfCheetah-v5")[0]
    for k in range(5):
        for engine in (one, other):
            assert np.array_equal(engine.step(np.full((4, 6), 0.5, np.float32), live)[0], wanted[k])


def test_its_tasks_are_its_own_unless_another_engine_is_asked_for():
    assert {find(id).engine for id in mujoco_engine.TASKS} == {"mujoco"}
    assert find("Hopper-v5", "envpool").engine == "envpool"
    assert find("Hopper-v5", "gymnasium").engine == "gymnasium"
    assert find("Ant-v5").engine == "envpool"


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("Ant-v5", "HalfCheetah-v5, Hopper-v5.*leave --engine out for 'Ant-v5'"),
        ("Hopper-v5?healthy_reward=2", "takes no options.*--engine gymnasium"),
    ],
)
def test_what_it_does_not_have_is_said_in_a_line(task, said):
    with pytest.raises(genepool.UserError, match=said):
        find(task, "mujoco")


def test_a_run_names_it_and_goes_on_with_it(tmp_path):
    def make():
        return genepool.cem("Swimmer-v5", hidden=(4,), max_steps=20, population=4)

    whole = [record["fitness"] for record in genepool.start(make(), frames=240, run=tmp_path / "whole")]
    part = genepool.start(make(), frames=80, run=tmp_path / "part")
    first = [record["fitness"] for record in part]
    resumed = genepool.resume(tmp_path / "part", frames=240)
    assert first + [record["fitness"] for record in resumed] == whole
    assert resumed.algorithm.task.engine == "mujoco"
