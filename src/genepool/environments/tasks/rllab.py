"""The tasks of GPO's tables: rllab's robots, flat and on hills, made from Gymnasium's models.

Reward, end, start, pace, motors and observation are rllab's. Gymnasium's models came from rllab's, and what has been changed
in them since is changed back here; what still differs is MuJoCo itself, 1.31 there, with its solver and its contacts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import mujoco
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.utils import EzPickle

from genepool.environments.tasks.hills import Ground, compiled, followed, raised

HORIZON = 512  # GPO's T
HILLY = ("HalfCheetah", "Walker2d", "Hopper")
EULER, RK4 = mujoco.mjtIntegrator.mjINT_EULER, mujoco.mjtIntegrator.mjINT_RK4


class RllabEnv(MujocoEnv, EzPickle):
    """A robot of rllab's, by its name in `ROBOTS`. Its actions are in [-1, 1]; others are clipped, as rllab's `normalize` does.

    v is the velocity along x of the whole robot's centre of mass after the step, where Gymnasium takes the torso's way
    during it. Three of them run over hills if `difficulty` is above 0, as `hills.Hills` says.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"]}

    def __init__(self, robot: str, *, difficulty: float = 0.0, terrain_seed: int = 0, **options: Any):
        if difficulty and robot not in HILLY:
            raise ValueError(f"{robot} has no hills: difficulty is for {', '.join(HILLY)}")
        EzPickle.__init__(self, robot, difficulty=difficulty, terrain_seed=terrain_seed, **options)
        self._robot, self._terrain = ROBOTS[robot], (difficulty, terrain_seed)
        MujocoEnv.__init__(self, self._robot.file, self._robot.frames, None, **followed(options))
        self.metadata = {**self.metadata, "render_fps": round(1.0 / self.dt)}
        data, torso = self.data, 1
        self.qpos, self.qvel, self.ctrl, self.constraint = data.qpos, data.qvel, data.ctrl, data.qfrc_constraint
        self.com, self.velocity, self.rotation = data.subtree_com[torso], data.subtree_linvel[torso], data.xmat[torso]
        self.contact = np.zeros_like(data.cfrc_ext)
        self._ground = Ground(self.model, data)
        if self._robot.pose:
            self.init_qpos = np.array(self._robot.pose)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, self._observation().shape, np.float64)

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        spec = mujoco.MjSpec.from_file(self.fullpath)
        spec.option.timestep, spec.option.integrator = self._robot.timestep, self._robot.integrator
        self._robot.change(spec)
        return compiled(raised(spec, *self._terrain), self.width, self.height)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Act, and see what follows from positions and velocities as they are after it."""
        self.ctrl[:] = action
        within(1.0, self.ctrl, self.ctrl)
        if self._robot.integrator == EULER:
            # what a time step works out before it looks at the controls is worked out ahead, and so not twice
            mujoco.mj_step2(self.model, self.data)
            if self.frame_skip > 1:
                mujoco.mj_step(self.model, self.data, nstep=self.frame_skip - 1)
            self._ground.lap(self.qpos)
            mujoco.mj_step1(self.model, self.data)
        else:
            mujoco.mj_step(self.model, self.data, nstep=self.frame_skip)
            self._ground.lap(self.qpos)
            mujoco.mj_forward(self.model, self.data)
        return self._observation(), self.reward(), bool(self._robot.over(self)), False, {}

    def reset_model(self) -> np.ndarray:
        """Begin near the robot's own pose."""
        self.set_state(*self._robot.start(self))
        return self._observation()

    def _observation(self) -> np.ndarray:
        if self._robot.feels:
            mujoco.mj_rnePostConstraint(self.model, self.data)
            within(1.0, self.data.cfrc_ext, self.contact)
        return np.concatenate(self._robot.sees(self))

    def reward(self) -> float:
        """What the robot is paid for being as it is after its last action."""
        mujoco.mj_subtreeVel(self.model, self.data)
        return float(self._robot.pays(self))

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
    """The numbers clipped to [-limit, limit], in half the time of np.clip."""
    return np.minimum(np.maximum(numbers, -limit, out=out), limit, out=out)


def _jittered(env: RllabEnv) -> tuple[np.ndarray, np.ndarray]:
    qpos, qvel = env.np_random.standard_normal(len(env.qpos)), env.np_random.standard_normal(len(env.qvel))
    return env.init_qpos + 0.01 * qpos, env.init_qvel + 0.1 * qvel


@dataclass(frozen=True)
class Robot:
    """What a robot sees and is paid, when its episodes are over, how they begin, and how it differs from Gymnasium's."""

    file: str  # Gymnasium's model
    timestep: float
    integrator: mujoco.mjtIntegrator
    sees: Callable[[RllabEnv], Sequence[np.ndarray]]
    pays: Callable[[RllabEnv], float]
    over: Callable[[RllabEnv], bool] = lambda env: False
    start: Callable[[RllabEnv], tuple[np.ndarray, np.ndarray]] = _jittered
    change: Callable[[mujoco.MjSpec], None] = lambda spec: None
    frames: int = 1  # time steps of a step
    pose: tuple[float, ...] = ()  # at the start; none: the model's own
    feels: bool = False  # contact forces


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
    (x, _, y), (_, v_1, v_2) = env.data.site_xpos[0], env.qvel
    return 10.0 - (0.01 * x**2 + (y - 2.0) ** 2) - (1e-3 * v_1**2 + 5e-3 * v_2**2)


ZXY = np.array([1, 0, *range(2, 9)])  # rllab's order of joints in Walker2d and Hopper: z first
ROBOTS = {
    "HalfCheetah": Robot(
        *("half_cheetah.xml", 0.01, EULER),
        sees=lambda env: (env.qpos[1:], env.qvel, env.com),
        pays=lambda env: env.v - 0.05 * env.effort,
    ),
    "Walker2d": Robot(
        *("walker2d_v5.xml", 0.005, EULER),
        sees=lambda env: (env.qpos[ZXY], env.qvel[ZXY], env.com),
        pays=lambda env: env.v - 0.005 * env.effort,
        over=lambda env: not (0.8 < env.torso_height < 2.0 and abs(env.qpos[2]) < 1.0),
        change=_walker2d,
    ),
    "Hopper": Robot(
        *("hopper.xml", 0.02, RK4),
        sees=lambda env: (
            *(env.qpos[1:], within(10.0, env.qvel[ZXY[:6]])),
            *(within(10.0, env.constraint[ZXY[:6]]), env.com),
        ),
        pays=lambda env: env.v + 1.0 - 0.005 * env.effort,
        over=lambda env: (
            not (env.torso_height > 0.7 and abs(env.qpos[2]) < 0.2 and np.abs((*env.qpos[3:], *env.qvel)).max() < 100.0)
        ),
    ),
    "Swimmer": Robot(
        *("swimmer.xml", 0.001, EULER),
        sees=lambda env: (env.qpos, env.qvel, env.com),
        pays=lambda env: env.v - 0.005 * env.effort,
        change=_swimmer,
        frames=50,
    ),
    "Ant": Robot(
        *("ant.xml", 0.02, RK4),
        sees=lambda env: (env.qpos, env.qvel, env.contact.ravel(), env.rotation, env.com),
        pays=lambda env: env.v + 0.05 - 0.005 * env.effort - 5e-4 * np.vdot(env.contact, env.contact),
        over=lambda env: not 0.2 <= env.qpos[2] <= 1.0,
        change=_ant,
        pose=(0.0, 0.0, 0.55, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0),
        feels=True,
    ),
    "InvertedDoublePendulum": Robot(
        *("inverted_double_pendulum.xml", 0.01, RK4),
        sees=lambda env: (
            *(env.qpos[:1], np.sin(env.qpos[1:]), np.cos(env.qpos[1:])),
            *(within(10.0, env.qvel), within(10.0, env.constraint)),
        ),
        pays=_balanced,
        over=lambda env: env.data.site_xpos[0, 2] <= 1.0,
        start=_swung,
        change=_pendulum,
        frames=2,
    ),
}
TASKS = {
    **{f"{robot}Rllab-v0": {"robot": robot} for robot in ROBOTS},
    **{f"{robot}HillyRllab-v0": {"robot": robot, "difficulty": 1.0} for robot in HILLY},
}
for _id, _given in TASKS.items():
    gymnasium.register(_id, entry_point=RllabEnv, kwargs=_given, max_episode_steps=HORIZON)
