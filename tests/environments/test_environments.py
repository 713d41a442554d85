"""Tasks: the papers' tasks by name, DM Control's, the cyclic MDP, and discrete actions."""

import contextlib
import importlib.util
from dataclasses import replace

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from tasks import Reach, Switch

import genepool
from genepool.environments.lookup import find
from genepool.environments.spaces import Spaces
from genepool.environments.tasks import dm_control
from genepool.networks import Actor
from genepool.types import Candidate, Individual

GYMNASIUM = (
    *("HalfCheetah-v5", "Humanoid-v5", "Ant-v5", "Walker2d-v5", "Swimmer-v5", "Hopper-v5", "Reacher-v5"),
    *("InvertedDoublePendulum-v5", "LunarLanderContinuous-v3"),
)
GPO = ("HopperHilly?difficulty=0.5&terrain_seed=3", "HalfCheetahRllab", "AntRllab", "Walker2dHillyRllab")
DM_CONTROL = ("HumanoidStand", "HumanoidWalk", "HumanoidRun", "CheetahRun", "WalkerWalk", "FishUpright")


def played(task, numbers, episodes=1):
    """What comes of numbered candidates, each with its own actor, noise and seeds, played together."""

    def candidate(k):
        noise = np.random.default_rng(k).uniform(-1, 1, (task.horizon, task.action_size)).astype(np.float32)
        actor = Actor(jax.random.key(k), task.observation_size, task.action_size, (8,))
        seeds = tuple(10 * k + e for e in range(episodes))
        return Candidate(Individual(actor, None), seeds=seeds, noise=noise, number=k)

    workers = genepool.LocalWorkers(task)
    outcomes = workers.map([candidate(k) for k in numbers])
    workers.close()
    return outcomes


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a.transitions, b.transitions, strict=True))


@pytest.mark.parametrize("name", [*GYMNASIUM, *DM_CONTROL, *GPO, "CartPole-v1", "CyclicMDP"])
def test_an_episode_depends_on_its_seed_and_its_player_alone(name):
    task = replace(find(name), max_steps=20)
    together = played(task, (0, 1, 2))
    assert all(np.isfinite(x).all() for outcome in together for x in outcome.transitions)
    assert same(together[1], played(task, (1,))[0])
    assert same(together[2], played(task, (2, 0))[0])
    assert not np.array_equal(together[0].transitions.action[0], together[1].transitions.action[0])


@pytest.mark.parametrize(
    ("name", "size", "actions"),
    [
        ("CheetahRun", 17, 6),
        ("HumanoidStand", 67, 21),
        ("HumanoidRunPureState", 55, 21),
        ("WalkerRun", 24, 6),
        ("FishUpright", 21, 5),
        ("FishSwim", 24, 5),
        ("CartpoleSwingup", 5, 1),
        ("QuadrupedWalk", 78, 12),
        ("FingerSpin", 9, 2),
    ],
)
def test_dm_controls_tasks_have_their_usual_names_and_its_own_sizes(name, size, actions):
    task = find(name)
    assert task == find(f"{name}-v1") == find(name, "envpool")
    assert task.id == f"{name}-v1"
    assert (task.observation_size, task.action_size, task.horizon) == (size, actions, 1000)


def test_every_part_that_a_dm_control_task_shows_is_one_that_envpool_gives():
    import envpool

    for id, shown in dm_control.SHOWN.items():
        given = envpool.make_spec(id).observation_space
        assert set(shown) <= set(given), id
        assert len(shown) < len(given) or id == "FishSwim-v1"


def test_dm_controls_episodes_last_a_thousand_steps_and_never_terminate():
    outcome = played(find("CartpoleSwingup"), (0,))[0]
    assert outcome.frames == 1000
    assert not outcome.transitions.terminated.any()
    assert 0.0 <= outcome.transitions.reward.min() <= outcome.transitions.reward.max() <= 1.0


def test_the_parts_of_an_observation_are_laid_flat_in_dm_controls_order():
    rows = played(replace(find("WalkerWalk"), max_steps=5), (0,))[0].transitions.observation
    assert np.allclose(
        np.square(rows[:, :14].reshape(-1, 7, 2)).sum(axis=2), 1.0, atol=1e-5
    )  # orientations, 7 cos, sin
    assert ((rows[:, 14] > 0.5) & (rows[:, 14] < 2.0)).all()  # height
    fish = played(replace(find("FishSwim"), max_steps=5), (0,))[0].transitions.observation
    assert np.ptp(np.linalg.norm(fish[:, 8:11], axis=1)) < 0.1  # target, far away
    assert np.linalg.norm(fish[0, 11:]) < 1e-3  # velocity, from rest


@pytest.mark.parametrize("name", ["CheetahRun", "FishSwim"])
def test_models_without_pictures_move_as_those_with_them(name, monkeypatch):
    task = replace(find(name), max_steps=40)
    without = played(task, (0,))[0]
    monkeypatch.setattr(dm_control, "plain", lambda id, assets: contextlib.nullcontext(assets))
    assert same(without, played(task, (0,))[0])


def test_a_lander_that_does_nothing_falls_for_seventy_steps_and_crashes():
    task = find("LunarLanderContinuous-v3")
    idle = Actor(jax.random.key(0), 8, 2, (4,))
    idle = jax.tree.map(np.zeros_like, idle)
    outcome = genepool.LocalWorkers(task).map([Candidate(Individual(idle, None), seeds=tuple(range(50)))])[0]
    assert 65 < outcome.frames / 50 < 75  # Gymnasium's: 70.1
    assert -160 < outcome.fitness < -100  # Gymnasium's: -133
    assert outcome.transitions.terminated.sum() == 50


def test_who_has_no_envpool_is_told_what_dm_control_needs(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "envpool" else found(name))
    with pytest.raises(genepool.UserError, match=r"DM Control.*pip install 'genepool\[envpool\]'"):
        find("CheetahRun")
    assert find("CyclicMDP").horizon == 2000


def test_a_name_that_is_almost_one_of_dm_controls_is_put_right():
    with pytest.raises(genepool.UserError, match="did you mean CheetahRun-v1"):
        find("ChetahRun")
    with pytest.raises(genepool.UserError, match="leave --engine out"):
        find("CheetahRun", "gymnasium")


def walk(actions, **options):
    """The rewards of a walk on the ring, and how it ended."""
    ring = genepool.CyclicMDP(**options)
    ring.reset(seed=0)
    rewards = []
    for action in actions:
        _, reward, terminated, truncated, _ = ring.step(action)
        rewards.append(reward)
        if terminated or truncated:
            break
    return rewards, terminated, truncated


def test_who_always_walks_clockwise_earns_two_thousand():
    rewards, terminated, truncated = walk([0] * 3000)
    assert (len(rewards), sum(rewards), terminated, truncated) == (2000, 2000.0, False, True)


@pytest.mark.parametrize("wrong", [1, 2])
@pytest.mark.parametrize("j", [1, 2, 3, 4, 700, 2000])
def test_a_first_wrong_step_j_ends_the_walk_with_j_minus_two(j, wrong):
    rewards, terminated, _ = walk([0] * (j - 1) + [wrong])
    assert (sum(rewards), len(rewards), terminated) == (j - 2, j, True)


def test_the_authors_ring_pays_four_a_lap_and_never_ends():
    rewards, _, truncated = walk([0] * 6000, lap_reward=2.0, horizon=None)
    assert rewards[:6] == [1.0, 1.0, 2.0, 1.0, 1.0, 2.0]
    assert sum(rewards) == 8000.0
    assert not truncated


def test_the_ring_shows_where_one_is_and_is_a_gymnasium_environment():
    ring = genepool.CyclicMDP()
    shown = [ring.reset()[0], *(ring.step(0)[0] for _ in range(3))]
    assert np.array_equal(shown, np.eye(3)[[0, 1, 2, 0]])
    check_env(genepool.CyclicMDP(), skip_render_check=True)
    check_env(gymnasium.make("CyclicMDP-v0").unwrapped, skip_render_check=True)
    assert find("CyclicMDP") == find("CyclicMDP-v0")


def test_a_policy_that_prefers_clockwise_earns_two_thousand_in_our_hands():
    task = find("CyclicMDP")
    actor = jax.tree.map(np.zeros_like, Actor(jax.random.key(0), 3, 3, (4,)))  # all the same: the first, clockwise
    outcome = genepool.LocalWorkers(task).map([Candidate(Individual(actor, None), seeds=(0,))])[0]
    assert (outcome.fitness, outcome.frames) == (2000.0, 2000)
    assert not outcome.transitions.terminated.any()


def test_of_discrete_actions_the_highest_is_taken_and_of_equals_the_first():
    spaces = Spaces((2,), (), (-1.0,) * 3, (1.0,) * 3, 10, first=5)
    taken = spaces.to_environment(np.array([[0.0, 0.5, 0.4], [1.0, -1.0, 1.0], [-1.0, -1.0, -1.0]], np.float32))
    assert taken.tolist() == [6, 5, 5]
    assert np.issubdtype(taken.dtype, np.integer)


def test_the_replay_holds_the_policys_outputs_and_the_environment_gets_their_argmax():
    task = find(Switch)
    rows = played(task, (0,))[0].transitions
    assert rows.action.shape == (10, 3)
    assert np.abs(rows.action).max() <= 1.0
    assert np.array_equal(rows.next_observation[:, 0], 7.0 + rows.action.argmax(axis=1))  # it shows the action it got


@pytest.mark.parametrize("engine", ["envpool", "gymnasium"])
def test_a_cart_pushed_to_one_side_falls_within_a_dozen_steps(engine):
    task = find("CartPole-v1", engine)
    for side, action in enumerate(np.eye(2, dtype=np.float32)):
        environment = task.open()
        observation = environment.begin([0], 1)
        live = np.zeros(1, np.int32)
        for _ in range(12):
            observation, reward, terminated, truncated = environment.step(task.spaces.to_environment(action), live)
            assert reward == 1.0
            assert not truncated
            if terminated:
                break
        assert terminated
        assert np.sign(observation[0, 1]) == (-1, 1)[side]
        environment.close()


def test_actions_of_another_kind_are_refused():
    class Levers(Reach):
        action_space = gymnasium.spaces.MultiDiscrete([2, 3])

    with pytest.raises(genepool.UserError, match="MultiDiscrete actions"):
        find(Levers)
    with pytest.raises(genepool.UserError, match="without bounds"):
        find("LqrLqr21")
    with pytest.raises(genepool.UserError, match="Discrete actions"):
        find("Blackjack-v1", "envpool")


@pytest.mark.parametrize("preset", [genepool.es, genepool.ddpg])
def test_a_run_with_discrete_actions_goes_on_where_it_stopped_and_its_policy_gives_integers(preset, tmp_path):
    tiny = {"hidden": (4,), "max_steps": 40} | ({"pairs": 2} if preset is genepool.es else {"replay": 1000})

    def make():
        return preset("CyclicMDP", **tiny)

    whole = [record["fitness"] for record in genepool.start(make(), frames=60, run=tmp_path / "whole")]
    part = [record["fitness"] for record in genepool.start(make(), frames=20, run=tmp_path / "part")]
    resumed = genepool.resume(tmp_path / "part", frames=60)
    assert part + [record["fitness"] for record in resumed] == whole
    observations = np.eye(3, dtype=np.float32)
    many, one = (genepool.load(tmp_path / "part").predict(given)[0] for given in (observations, observations[0]))
    assert isinstance(one, np.ndarray)
    assert (one.shape, many.shape, many.dtype.kind) == ((), (3,), "i")
    assert one == many[0]
    assert genepool.CyclicMDP().action_space.contains(one)


def test_spaces_that_were_saved_before_there_were_discrete_actions_are_read():
    old = {"observation_shape": (3,), "action_shape": (1,), "low": (-2.0,), "high": (2.0,), "horizon": 200}
    assert Spaces(**old).to_environment(np.array([[0.5]])).tolist() == [[1.0]]
