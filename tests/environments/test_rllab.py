"""The tasks of GPO's tables: what rllab pays, when it ends an episode, how it begins one, and what it shows."""

import gymnasium
import mujoco
import numpy as np
import pytest

from genepool.environments.lookup import find
from genepool.environments.tasks import rllab
from genepool.environments.tasks.rllab import HILLY, ROBOTS

NAMES = [*ROBOTS, *(f"{robot}Hilly" for robot in HILLY)]


def make(name, **options):
    environment = gymnasium.make(f"{name}Rllab-v0", disable_env_checker=True, **options).unwrapped
    environment.reset(seed=0)
    return environment


def put(environment, place=None, motion=None, action=0.0):
    """A state by hand: the model's own pose at rest, but for the joints that are named by their numbers."""
    qpos = environment.init_qpos.copy()
    qvel = environment.init_qvel.copy()
    for joints, values in ((qpos, place), (qvel, motion)):
        for joint, value in (values or {}).items():
            joints[joint] = value
    environment.set_state(qpos, qvel)
    environment.ctrl[:] = action
    environment._observation()  # what it feels follows from the state too
    return environment


@pytest.mark.parametrize(
    ("name", "reward"),
    [
        ("HalfCheetah", 2.0 - 0.05 * 6 * 0.25),
        ("HalfCheetahHilly", 2.0 - 0.05 * 6 * 0.25),
        ("Walker2d", 2.0 - 0.005 * 6 * 0.25),
        ("Walker2dHilly", 2.0 - 0.005 * 6 * 0.25),
        ("Hopper", 2.0 + 1.0 - 0.005 * 3 * 0.25),
        ("HopperHilly", 2.0 + 1.0 - 0.005 * 3 * 0.25),
        ("Swimmer", 2.0 - 0.005 * 2 * 0.25),
    ],
)
def test_who_slides_forward_at_two_metres_a_second_is_paid_two_less_the_control_cost(name, reward):
    assert put(make(name), motion={0: 2.0}, action=0.5).reward() == pytest.approx(reward, abs=1e-12)


def test_an_ant_is_paid_for_its_way_and_its_life_and_pays_for_control_and_contact():
    ant = make("Ant")
    flying = put(ant, place={2: 0.95}, motion={0: 2.0}, action=-0.5)
    assert flying.data.ncon == 0
    assert flying.reward() == pytest.approx(2.0 + 0.05 - 0.005 * 8 * 0.25, abs=1e-12)
    lying = put(ant, place={2: 0.2})
    felt = np.clip(lying.data.cfrc_ext, -1.0, 1.0)
    assert felt.shape == (14, 6)
    assert (np.abs(felt) == 1.0).any()  # some are clipped
    assert lying.reward() == pytest.approx(0.05 - 5e-4 * (felt**2).sum(), abs=1e-12)


def test_a_pendulum_is_paid_for_a_tip_that_is_high_and_in_the_middle_and_slow():
    pendulum = make("InvertedDoublePendulum")
    upright = put(pendulum, place={0: 0.5}, motion={1: 1.0, 2: 2.0})  # its tip is at x = 0.5, y = 1.2
    assert upright.reward() == pytest.approx(10 - (0.01 * 0.25 + 0.8**2) - (0.001 + 0.005 * 4), abs=1e-12)
    aslant = put(pendulum, place={1: np.radians(60)})  # at x = 1.2 sin 60, y = 0.6: it fell, and is still paid 10
    assert aslant.reward() == pytest.approx(10 - (0.01 * 1.08 + 1.4**2), abs=1e-9)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "InvertedDoublePendulum"])
def test_the_way_that_is_paid_is_that_of_the_whole_robots_centre_of_mass(name):
    environment = make(name)
    rng = np.random.default_rng(0)
    for _ in range(15):
        reward = environment.step(rng.uniform(-1, 1, environment.model.nu))[1]
    jacobian = np.zeros((3, environment.model.nv))
    mujoco.mj_jacSubtreeCom(environment.model, environment.data, jacobian, environment.model.body("torso").id)
    velocity = jacobian[0] @ environment.data.qvel
    assert environment.v == pytest.approx(velocity, abs=1e-9)
    masses = environment.model.body_mass[1:]
    centre = masses @ environment.data.xipos[1:] / masses.sum()
    assert np.allclose(environment.com, centre)
    cost = (0.05 if "HalfCheetah" in name else 0.005) * (environment.data.ctrl**2).sum()
    alive = {"Hopper": 1.0, "HopperHilly": 1.0, "Ant": 0.05}.get(name, 0.0)
    contact = 5e-4 * (np.clip(environment.data.cfrc_ext, -1, 1) ** 2).sum() if name == "Ant" else 0.0
    assert reward == pytest.approx(velocity + alive - cost - contact, abs=1e-9)


def test_an_action_beyond_the_motors_range_is_clipped_before_it_is_paid_for():
    one = make("HalfCheetah")
    many = make("HalfCheetah")
    answers = [environment.step(np.full(6, action)) for environment, action in ((one, 1.0), (many, 50.0))]
    assert answers[0][1] == answers[1][1]
    assert np.array_equal(answers[0][0], answers[1][0])


@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_mujocos_own_and_what_is_seen_is_up_to_date(name):
    environment = make(name)
    rng = np.random.default_rng(1)
    model = environment.model
    plain = mujoco.MjData(environment.model)
    plain.qpos = environment.data.qpos
    plain.qvel = environment.data.qvel
    mujoco.mj_forward(model, plain)
    frames = {"Swimmer": 50, "InvertedDoublePendulum": 2}.get(name, 1)
    for _ in range(20):
        plain.ctrl = rng.uniform(-1, 1, model.nu)
        environment.step(plain.ctrl)
        for _ in range(frames):
            mujoco.mj_step(model, plain)
        mujoco.mj_forward(model, plain)
        mujoco.mj_subtreeVel(model, plain)
        assert np.array_equal(environment.data.qpos, plain.qpos)
        assert np.array_equal(environment.data.qvel, plain.qvel)
        assert np.allclose(environment.com, plain.subtree_com[1], atol=1e-12)
        assert environment.v == pytest.approx(plain.subtree_linvel[1, 0], abs=1e-12)


@pytest.mark.parametrize(
    ("name", "place", "motion", "over"),
    [
        ("HalfCheetah", {1: -0.6, 2: 3.0}, {0: 200.0}, False),
        ("Swimmer", {2: 3.0}, {0: 200.0}, False),
        ("Walker2d", {1: 0.81, 2: 0.99}, {}, False),
        ("Walker2d", {1: 0.79}, {}, True),
        ("Walker2d", {1: 2.01}, {}, True),
        ("Walker2d", {2: -1.01}, {}, True),
        ("Hopper", {1: 0.71, 2: 0.19}, {0: 99.0}, False),
        ("Hopper", {1: 0.69}, {}, True),
        ("Hopper", {2: 0.21}, {}, True),
        ("Hopper", {}, {0: -101.0}, True),
        ("Hopper", {0: 500.0}, {}, False),
        ("Ant", {2: 0.21}, {}, False),
        ("Ant", {2: 0.19}, {}, True),
        ("Ant", {2: 1.01}, {}, True),
        ("InvertedDoublePendulum", {1: 0.5}, {}, False),
        ("InvertedDoublePendulum", {1: 0.6}, {}, True),
    ],
)
def test_an_episode_is_over_where_rllab_ends_it(name, place, motion, over):
    environment = put(make(name), place, motion)
    assert bool(ROBOTS[name].ends(environment)) is over


@pytest.mark.parametrize(
    ("name", "size", "actions", "seconds"),
    [
        ("HalfCheetah", 20, 6, 0.01),
        ("HalfCheetahHilly", 20, 6, 0.01),
        ("Walker2d", 21, 6, 0.005),
        ("Walker2dHilly", 21, 6, 0.005),
        ("Hopper", 20, 3, 0.02),
        ("HopperHilly", 20, 3, 0.02),
        ("Swimmer", 13, 2, 0.05),
        ("Ant", 125, 8, 0.02),
        ("InvertedDoublePendulum", 11, 1, 0.02),
    ],
)
def test_the_nine_tasks_have_rllabs_sizes_and_pace_and_the_papers_horizon(name, size, actions, seconds):
    task = find(f"{name}Rllab")
    assert (task.observation_size, task.action_size, task.horizon) == (size, actions, 512)
    assert (task.spaces.low, task.spaces.high) == ((-1.0,) * actions, (1.0,) * actions)
    assert make(name).dt == pytest.approx(seconds)


def test_there_are_nine():
    assert sorted(rllab.TASKS) == sorted(f"{name}Rllab-v0" for name in NAMES)


def test_what_a_robot_sees_is_in_rllabs_order():
    walker = put(make("Walker2d"), {0: 3.0, 2: 0.1}, {0: 2.0, 1: -1.0})
    seen = walker._observation()
    assert seen[:3].tolist() == [1.25, 3.0, 0.1]  # z before x
    assert seen[9:12].tolist() == [-1.0, 2.0, 0.0]
    assert np.array_equal(seen[-3:], walker.data.subtree_com[1])
    hopper = put(make("Hopper"), {0: 3.0, 2: 0.1}, {0: 20.0, 1: -1.0})._observation()
    assert hopper[:2].tolist() == [1.25, 0.1]  # without x
    assert hopper[5:8].tolist() == [-1.0, 10.0, 0.0]  # clipped
    cheetah = put(make("HalfCheetah"), {0: 3.0, 1: 0.5}, {0: 2.0})._observation()
    assert cheetah[0] == 0.5
    assert cheetah[8] == 2.0
    ant = put(make("Ant"))
    assert np.array_equal(ant._observation()[113:122], np.eye(3).ravel())
    assert ant._observation()[2] == 0.55
    pendulum = put(make("InvertedDoublePendulum"), {0: 0.3, 1: 0.2, 2: 0.1})._observation()
    assert np.allclose(pendulum[:5], [0.3, np.sin(0.2), np.sin(0.1), np.cos(0.2), np.cos(0.1)])


def test_episodes_begin_with_rllabs_noise():
    for name in ("HalfCheetah", "Ant"):
        environment = make(name)
        starts = []
        for seed in range(300):
            environment.reset(seed=seed)
            starts.append((environment.data.qpos - environment.init_qpos, environment.data.qvel.copy()))
        places, motions = (np.stack(column) for column in zip(*starts, strict=True))
        assert places.std() == pytest.approx(0.01, rel=0.05)
        assert motions.std() == pytest.approx(0.1, rel=0.05)
        assert np.abs(places.mean(axis=0)).max() < 0.003
    pendulum = make("InvertedDoublePendulum")
    angles = []
    for seed in range(200):
        pendulum.reset(seed=seed)
        angles.append(np.degrees(pendulum.data.qpos[1]))
        assert pendulum.data.qpos[[0, 2]].tolist() == [0.0, 0.0]
        assert not pendulum.data.qvel.any()
    assert 18 < max(angles) < 20
    assert -20 < min(angles) < -18


def test_what_gymnasium_changed_in_rllabs_models_is_changed_back():
    walker, swimmer, ant, pendulum = (make(n).model for n in ("Walker2d", "Swimmer", "Ant", "InvertedDoublePendulum"))
    assert walker.actuator_gear[:, 0].tolist() == [150, 100, 100, 150, 100, 100]
    assert (walker.geom("foot_geom").friction[0], walker.geom("foot_left_geom").friction[0]) == (0.9, 1.9)
    assert swimmer.actuator_gear[:, 0].tolist() == [50, 50]
    assert not swimmer.dof_armature.any()
    assert np.allclose(ant.geom_solimp[:, :3], [0.8, 0.8, 0.01])
    assert ant.actuator_gear[:, 0].tolist() == [150] * 8
    assert pendulum.joint("slider").range.tolist() == [-10, 10]
    assert make("Hopper").model.actuator_gear[:, 0].tolist() == [200] * 3
