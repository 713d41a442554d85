"""Gymnasium's HalfCheetah, Walker2d and Hopper on hills: GPO's hilly tasks with Gymnasium's rewards and ends.

The same tasks with rllab's rewards and ends are in `rllab.py`.
"""

import math
import warnings
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
from gymnasium.envs.mujoco.walker2d_v5 import Walker2dEnv

from genepool.environments.tasks.terrain import CELLS, SIDE, terrain

if TYPE_CHECKING:
    from gymnasium.envs.mujoco import MujocoEnv

    class _Robot(MujocoEnv, gymnasium.utils.EzPickle):  # `Hills` stands before one of these
        pass

else:
    _Robot = object

FLOOR = "floor"  # the name of the ground in all of Gymnasium's models
DOWN = np.array([0.0, 0.0, -1.0])


def raised(spec: mujoco.MjSpec, difficulty: float, terrain_seed: int) -> mujoco.MjSpec:
    """The model with hills as its floor, the highest `difficulty` metres above the start; unchanged if that is 0.

    The terrain repeats: past an edge of the square the same hills follow.
    """
    if not (isinstance(difficulty, Real) and 0.0 <= difficulty < math.inf):
        raise ValueError(f"difficulty is the height of the highest hill in metres, 0 or more, not {difficulty!r}")
    if not (isinstance(terrain_seed, Integral) and terrain_seed >= 0):
        raise ValueError(f"terrain_seed is a whole number, 0 or more, not {terrain_seed!r}")
    if difficulty == 0.0:
        return spec
    size = (SIDE / 2, SIDE / 2, float(difficulty), 0.1)
    heights = terrain(int(terrain_seed))
    spec.add_hfield(name="hills", nrow=CELLS, ncol=CELLS, size=size, userdata=heights.ravel())
    floor = spec.geom(FLOOR)
    floor.type = mujoco.mjtGeom.mjGEOM_HFIELD
    floor.hfieldname = "hills"
    for x in (-SIDE, SIDE):
        tile = spec.worldbody.add_geom(type=floor.type, hfieldname="hills", pos=(x, 0, 0))
        for name in ("conaffinity", "condim", "material", "rgba"):  # all else is the model's default
            setattr(tile, name, getattr(floor, name))
    camera = spec.camera("track")
    above = 1.0 + difficulty  # at Gymnasium's height the camera would be inside the hills
    camera.pos = (0, -3, above)
    camera.alt.xyaxes = (1, 0, 0, 0, above, 3)
    spec.stat.extent = 4.0  # of the robot, not of the ground: the near plane of the camera depends on it
    return spec


def compiled(spec: mujoco.MjSpec, width: int, height: int) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """A simulation of the model that can be rendered in this size."""
    window = spec.visual.global_
    window.offwidth = max(window.offwidth, width)
    window.offheight = max(window.offheight, height)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MuJoCo warns of a deprecated word in Gymnasium's models
        model = spec.compile()
    return model, mujoco.MjData(model)


def followed(options: dict[str, Any]) -> dict[str, Any]:
    """Gymnasium's arguments with the camera that follows the robot, unless they name another."""
    return options if {"camera_id", "camera_name"} & options.keys() else {**options, "camera_name": "track"}


class Ground:
    """The ground below a robot that moves in the plane y = 0."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData):
        self._model = model
        self._data = data
        self._floor = model.geom(FLOOR).id
        self._hilly = model.geom_type[self._floor] == mujoco.mjtGeom.mjGEOM_HFIELD
        self._top = 1.0 + model.hfield_size[0, 2] if self._hilly else 0.0
        self._eye = np.array([0.0, 0.0, self._top])

    def height(self, x: float) -> float:
        """The height of the ground at x, in metres."""
        if not self._hilly:
            return 0.0
        self._eye[0] = math.remainder(x, SIDE)
        return self._top - mujoco.mj_rayHfield(self._model, self._data, self._floor, self._eye, DOWN)

    def lap(self, qpos: np.ndarray) -> None:
        """Move a robot that has left the square of hills to its other side, which is the same place."""
        if self._hilly and abs(qpos[0]) > SIDE / 2:
            qpos[0] = math.remainder(qpos[0], SIDE)


class Hills(_Robot):
    """Puts one of Gymnasium's robots on hills. All its other arguments are Gymnasium's.

    The terrain is made from `terrain_seed`, not from an episode's seed, so it belongs to the task. Where Gymnasium
    ends an episode by the torso's height, that is the height over the ground below the torso. Observations are
    Gymnasium's: the policy does not observe the hills. x is a position on a ring of 71.4 m: a step over the edge
    earns its full reward, and the next step starts on the other side.
    """

    def __init__(self, *, difficulty: float = 1.0, terrain_seed: int = 0, **options: Any):
        self._terrain = difficulty, terrain_seed
        super().__init__(**followed(options))  # unless the options name another camera, it follows the robot
        self._ground = Ground(self.model, self.data)
        own = {"difficulty": difficulty, "terrain_seed": terrain_seed}
        gymnasium.utils.EzPickle.__init__(self, **own, **options)

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        return compiled(raised(mujoco.MjSpec.from_file(self.fullpath), *self._terrain), self.width, self.height)

    # Gymnasium's robots do not say what they return, and for those that cannot fall False is inferred, not bool
    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.float64, Any, Any, dict[str, Any]]:
        """As Gymnasium's, on the ring."""
        answer = super().step(action)
        self._ground.lap(self.data.qpos)
        return answer

    @property
    def _healthy_z_range(self) -> tuple[float, float]:
        ground = self._ground.height(self.data.qpos[0])
        return self._healthy_heights[0] + ground, self._healthy_heights[1] + ground

    @_healthy_z_range.setter
    def _healthy_z_range(self, heights: tuple[float, float]) -> None:
        self._healthy_heights = heights


class HalfCheetahHilly(Hills, HalfCheetahEnv):
    """HalfCheetah-v5 on hills."""


class Walker2dHilly(Hills, Walker2dEnv):
    """Walker2d-v5 on hills."""


class HopperHilly(Hills, HopperEnv):
    """Hopper-v5 on hills."""


IDS = tuple(f"{robot.__name__}-v0" for robot in (HalfCheetahHilly, Walker2dHilly, HopperHilly))
for _id, _robot in zip(IDS, (HalfCheetahHilly, Walker2dHilly, HopperHilly), strict=True):
    gymnasium.register(_id, entry_point=_robot, max_episode_steps=1000)
