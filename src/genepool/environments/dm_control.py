"""DM Control's tasks as EnvPool has them: their names, what of their observations is shown, and their bare models.

A flat observation is DM Control's own: `np.concatenate([np.ravel(part) for part in timestep.observation.values()])`.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from envpool.registration import registry

MODELS = Path("mujoco", "assets_dmc")  # DM Control's, below EnvPool's assets

# EnvPool gives all tasks of a DM Control domain the same parts, with zeros for what a task does not show, and the fish's in
# another order. Here are the parts that DM Control shows, in its order; of all other tasks EnvPool's are the same.
_DOG = (
    *("joint_angles", "joint_velocites", "torso_pelvis_height", "z_projection", "torso_com_velocity"),
    *("inertial_sensors", "foot_forces", "touch_sensors", "actuator_state"),
)
_HUMANOID = ("joint_angles", "head_height", "extremities", "torso_vertical", "com_velocity", "velocity")
_QUADRUPED = ("egocentric_state", "torso_velocity", "torso_upright", "imu", "force_torque")
SHOWN = {
    **dict.fromkeys(("DogStand-v1", "DogWalk-v1", "DogTrot-v1", "DogRun-v1"), _DOG),
    "FingerSpin-v1": ("position", "velocity", "touch"),
    "FishSwim-v1": ("joint_angles", "upright", "target", "velocity"),
    "FishUpright-v1": ("joint_angles", "upright", "velocity"),
    **dict.fromkeys(("HumanoidStand-v1", "HumanoidWalk-v1", "HumanoidRun-v1"), _HUMANOID),
    "HumanoidRunPureState-v1": ("position", "velocity"),
    **dict.fromkeys(("QuadrupedWalk-v1", "QuadrupedRun-v1"), _QUADRUPED),
    "QuadrupedEscape-v1": (*_QUADRUPED, "origin", "rangefinder"),
    "QuadrupedFetch-v1": (*_QUADRUPED, "ball_state", "target_position"),
}


def has(id: str) -> bool:
    """Whether an EnvPool id is a task of DM Control's."""
    return id in registry.specs and registry.specs[id][0] == "envpool.mujoco.dmc"


def versioned(task: str) -> str | None:
    """EnvPool's id of a task by its usual name, such as CheetahRun."""
    return f"{task}-v1" if has(f"{task}-v1") else None


def shown(id: str, given: list[str], prefix: str = "") -> list[str]:
    """The parts of an observation, of those that EnvPool gives, in the order in which they are laid flat."""
    return [prefix + name for name in SHOWN[id]] if id in SHOWN else given


@contextlib.contextmanager
def plain(id: str) -> Iterator[dict[str, Any]]:
    """Where DM Control's models are, with pictures of one pixel, while a pool is built.

    Nobody sees the sky and the floor, and painting them took 0.2 s and 12 MB per environment: more than the episode.
    """
    if not has(id):
        yield {}
        return
    with tempfile.TemporaryDirectory() as base:
        (Path(base) / MODELS / "common").mkdir(parents=True)
        for source, text in _models(id).items():
            path = Path(base) / MODELS / source.relative_to(_folder(id))
            path.symlink_to(source) if text is None else path.write_text(text)
        yield {"base_path": base}


def _folder(id: str) -> Path:
    return Path(registry.specs[id][2]["base_path"]) / MODELS


@lru_cache(maxsize=8)
def _models(id: str) -> dict[Path, str | None]:
    """The files that a task of DM Control's is built of; of those that paint pictures, the text with one pixel each."""
    pixel = lambda texture: re.sub(r'(width|height)="\d+"', r'\1="1"', texture[0])
    own = lambda path: id.lower().startswith(path.stem.replace("_", "").lower().removesuffix("assets"))
    models = dict.fromkeys(path for path in _folder(id).iterdir() if own(path))
    for path in [*models, *(_folder(id) / "common").iterdir()]:
        text = path.read_text() if path.suffix == ".xml" else ""
        plain = re.sub(r"<texture[^>]*>", pixel, text)
        models[path] = None if plain == text else plain
    return models
