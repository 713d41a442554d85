"""The tasks of GPO's tables: rllab's robots, flat and on hills, made from Gymnasium's models.

Rewards, ends, starts, time steps, motors and observations are rllab's. Gymnasium's models come from rllab's; later
changes in them are undone here. What still differs is MuJoCo, 1.31 in rllab, with another solver and other contacts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import gymnasium
import mujoco
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.utils import EzPickle

from genepool.environments.tasks.hills import Ground, compiled, followed, raised

HORIZON = 512  # GPO's T
HILLY = ("HalfCheetah", "Walker2d", "Hopper")
EULER = mujoco.mjtIntegrator.mjINT_EULER
METADATA = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"]}
RK4 = mujoco.mjtIntegrator.mjINT_RK4


class RllabEnv(MujocoEnv, EzPickle):
    """A robot of rllab's, by its name in `ROBOTS`. Actions are clipped to [-1, 1], as in rllab's `normalize`.

    v is the velocity along x of the robot's centre of mass after the step; Gymnasium uses the torso's displacement
    during the step. If `difficulty` is above 0, three of the robots run over hills, see `hills.Hills`.
    """

    metadata: dict[str, Any] = METADATA

    def __init__(self, robot: str, *, difficulty: float = 0.0, terrain_seed: int = 0, **options: Any):
        if difficulty and robot not in HILLY:
            raise ValueError(f"{robot} has no hills: difficulty is for {', '.join(HILLY)}")
        EzPickle.__init__(self, robot, difficulty=difficulty, terrain_seed=terrain_seed, **options)
        self._robot = ROBOTS[robot]
        self._terrain = (difficulty, terrain_seed)
        with_camera = followed(options)  # unless the options name another camera, it follows the robot
        MujocoEnv.__init__(self, self._robot.file, self._robot.frames, None, **with_camera)
        self.metadata = {**self.metadata, "render_fps": round(1.0 / self.dt)}
        data = self.data
        torso = 1
        # views of the simulation: MuJoCo updates them in place
        self.qpos = data.qpos
        self.qvel = data.qvel
        self.ctrl = data.ctrl
        self.constraint = data.qfrc_constraint
        self.com = data.subtree_com[torso]
        self.velocity = data.subtree_linvel[torso]
        self.rotation = data.xmat[torso]
        self.contact = np.zeros_like(data.cfrc_ext)  # no view: the forces, clipped by `_observation`
        self._ground = Ground(self.model, data)
        if self._robot.pose:
            self.init_qpos = np.array(self._robot.pose)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, self._observation().shape, np.float64)

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        spec = mujoco.MjSpec.from_file(self.fullpath)
        spec.option.timestep = self._robot.timestep
        spec.option.integrator = self._robot.integrator
        self._robot.change(spec)
        return compiled(raised(spec, *self._terrain), self.width, self.height)

    # pyrefly: ignore[bad-override]  # MujocoEnv says np.float64, but a reward is SupportsFloat in gymnasium.Env
    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Act, then observe positions and velocities and all that is computed from them."""
        self.ctrl[:] = action
        within(1.0, self.ctrl, self.ctrl)
        if self._robot.integrator == EULER:
            # the part of a time step that does not depend on the controls is computed ahead, so it is not done twice
            mujoco.mj_step2(self.model, self.data)
            if self.frame_skip > 1:
                mujoco.mj_step(self.model, self.data, nstep=self.frame_skip - 1)
            self._ground.lap(self.qpos)
            mujoco.mj_step1(self.model, self.data)
        else:
            mujoco.mj_step(self.model, self.data, nstep=self.frame_skip)
            self._ground.lap(self.qpos)
            mujoco.mj_forward(self.model, self.data)
        return self._observation(), self.reward(), bool(self._robot.ends(self)), False, {}

    def reset_model(self) -> np.ndarray:
        """Start near the robot's initial pose."""
        self.set_state(*self._robot.start(self))
        return self._observation()

    def _observation(self) -> np.ndarray:
        if self._robot.has_contacts:
            mujoco.mj_rnePostConstraint(self.model, self.data)
            within(1.0, self.data.cfrc_ext, self.contact)
        return np.concatenate(self._robot.observes(self))

    def reward(self) -> float:
        """The reward of the current state and the last action."""
        mujoco.mj_subtreeVel(self.model, self.data)
        return float(self._robot.earns(self))

    @property
    def v(self) -> float:
        """The velocity along x of the centre of mass."""
        return self.velocity[0]

    @property
    def effort(self) -> float:
        """||a||^2."""
        return self.ctrl @ self.ctrl

    @property
    def torso_height(self) -> float:
        """The height of the torso over the ground below it."""
        return self.qpos[1] - self._ground.height(self.qpos[0])


def within(limit: float, numbers: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """The numbers clipped to [-limit, limit], faster than np.clip."""
    return np.minimum(np.maximum(numbers, -limit, out=out), limit, out=out)


def _jittered(env: RllabEnv) -> tuple[np.ndarray, np.ndarray]:
    qpos = env.np_random.standard_normal(len(env.qpos))
    qvel = env.np_random.standard_normal(len(env.qvel))
    return env.init_qpos + 0.01 * qpos, env.init_qvel + 0.1 * qvel


@dataclass(frozen=True)
class Robot:
    """A robot: its observation, reward, end and start, and how its model differs from Gymnasium's."""

    file: str  # Gymnasium's model
    timestep: float
    integrator: mujoco.mjtIntegrator
    observes: Callable[[RllabEnv], Sequence[np.ndarray]]
    earns: Callable[[RllabEnv], float]
    ends: Callable[[RllabEnv], bool] = lambda env: False
    start: Callable[[RllabEnv], tuple[np.ndarray, np.ndarray]] = _jittered
    change: Callable[[mujoco.MjSpec], None] = lambda spec: None
    frames: int = 1  # time steps per step
    pose: tuple[float, ...] = ()  # at the start; empty: the model's own
    has_contacts: bool = False  # whether it observes contact forces


def _walker2d(spec: mujoco.MjSpec) -> None:
    for motor, strength in zip(spec.actuators, (150, 100, 100, 150, 100, 100), strict=True):
        motor.gear[0] = strength
    spec.geom("foot_geom").friction[0] = 0.9  # the other foot's is 1.9


def _swimmer(spec: mujoco.MjSpec) -> None:
    for motor in spec.actuators:
        motor.gear[0] = 50
    for joint in spec.joints:
        joint.armature = 0.0


def _ant(spec: mujoco.MjSpec) -> None:
    for geom in spec.geoms:
        geom.solimp[:3] = 0.8, 0.8, 0.01


def _pendulum(spec: mujoco.MjSpec) -> None:
    spec.joint("slider").range = -10, 10


def _swung(env: RllabEnv) -> tuple[np.ndarray, np.ndarray]:
    angle = np.radians(env.np_random.uniform(-20.0, 20.0))
    return np.array([0.0, angle, 0.0]), env.init_qvel


def _balanced(env: RllabEnv) -> float:
    x, _, y = env.data.site_xpos[0]
    _, v_1, v_2 = env.qvel
    return 10.0 - (0.01 * x**2 + (y - 2.0) ** 2) - (1e-3 * v_1**2 + 5e-3 * v_2**2)


ZXY = np.array([1, 0, *range(2, 9)])  # rllab's order of joints in Walker2d and Hopper: z first
ROBOTS = {
    "HalfCheetah": Robot(
        *("half_cheetah.xml", 0.01, EULER),
        observes=lambda env: (env.qpos[1:], env.qvel, env.com),
        earns=lambda env: env.v - 0.05 * env.effort,
    ),
    "Walker2d": Robot(
        *("walker2d_v5.xml", 0.005, EULER),
        observes=lambda env: (env.qpos[ZXY], env.qvel[ZXY], env.com),
        earns=lambda env: env.v - 0.005 * env.effort,
        ends=lambda env: not (0.8 < env.torso_height < 2.0 and abs(env.qpos[2]) < 1.0),
        change=_walker2d,
    ),
    "Hopper": Robot(
        *("hopper.xml", 0.02, RK4),
        observes=lambda env: (
            *(env.qpos[1:], within(10.0, env.qvel[ZXY[:6]])),
            *(within(10.0, env.constraint[ZXY[:6]]), env.com),
        ),
        earns=lambda env: env.v + 1.0 - 0.005 * env.effort,
        ends=lambda env: (
            not (env.torso_height > 0.7 and abs(env.qpos[2]) < 0.2 and np.abs((*env.qpos[3:], *env.qvel)).max() < 100.0)
        ),
    ),
    "Swimmer": Robot(
        *("swimmer.xml", 0.001, EULER),
        observes=lambda env: (env.qpos, env.qvel, env.com),
        earns=lambda env: env.v - 0.005 * env.effort,
        change=_swimmer,
        frames=50,
    ),
    "Ant": Robot(
        *("ant.xml", 0.02, RK4),
        observes=lambda env: (env.qpos, env.qvel, env.contact.ravel(), env.rotation, env.com),
        earns=lambda env: env.v + 0.05 - 0.005 * env.effort - 5e-4 * np.vdot(env.contact, env.contact),
        ends=lambda env: not 0.2 <= env.qpos[2] <= 1.0,
        change=_ant,
        pose=(0.0, 0.0, 0.55, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0),
        has_contacts=True,
    ),
    "InvertedDoublePendulum": Robot(
        *("inverted_double_pendulum.xml", 0.01, RK4),
        observes=lambda env: (
            *(env.qpos[:1], np.sin(env.qpos[1:]), np.cos(env.qpos[1:])),
            *(within(10.0, env.qvel), within(10.0, env.constraint)),
        ),
        earns=_balanced,
        ends=lambda env: env.data.site_xpos[0, 2] <= 1.0,
        start=_swung,
        change=_pendulum,
        frames=2,
    ),
}
TASKS = {
    **{f"{robot}Rllab-v0": {"robot": robot} for robot in ROBOTS},
    **{f"{robot}HillyRllab-v0": {"robot": robot, "difficulty": 1.0} for robot in HILLY},
}
_make = cast(Any, RllabEnv)  # Gymnasium's type wants **kwargs alone
for _id, _given in TASKS.items():
    gymnasium.register(_id, entry_point=_make, kwargs=_given, max_episode_steps=HORIZON)
