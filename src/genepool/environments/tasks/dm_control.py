"""DM Control's tasks in EnvPool: the parts of their observations, and their models without textures.

A flat observation is DM Control's own: `np.concatenate([np.ravel(part) for part in timestep.observation.values()])`.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

MODELS = Path("mujoco", "assets_dmc")  # DM Control's, below EnvPool's assets

# EnvPool gives all tasks of a DM Control domain the same parts, with zeros for parts that a task does not have, and the
# fish's parts in another order. These are DM Control's parts, in its order. For all other tasks EnvPool's are the same.
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


def shown(id: str, given: list[str], prefix: str = "") -> list[str]:
    """Those of EnvPool's parts of an observation that DM Control has, in DM Control's order."""
    return [prefix + name for name in SHOWN[id]] if id in SHOWN else given


@contextlib.contextmanager
def plain(id: str, assets: str) -> Iterator[str]:
    """A folder with EnvPool's assets for one task, with textures of one pixel.

    Sky and floor are never rendered, and making their textures takes longer than an episode.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / MODELS / "common").mkdir(parents=True)
        for file, text in _models(id, Path(assets)).items():
            copy = Path(folder, file)
            copy.symlink_to(Path(assets, file)) if text is None else copy.write_text(text)
        yield folder


@lru_cache(maxsize=8)
def _models(id: str, assets: Path) -> dict[Path, str | None]:
    """The files that a task is built of. For files with textures, their text with textures of one pixel; else None."""

    def is_own(path: Path) -> bool:
        return id.lower().startswith(path.stem.replace("_", "").lower().removesuffix("assets"))

    def one_pixel(texture: re.Match[str]) -> str:
        return re.sub(r'(width|height)="\d+"', r'\1="1"', texture[0])

    paths = [path for path in (assets / MODELS).iterdir() if is_own(path)]
    models: dict[Path, str | None] = {}
    for path in (*paths, *(assets / MODELS / "common").iterdir()):
        text = path.read_text() if path.suffix == ".xml" else ""
        plain_text = re.sub(r"<texture[^>]*>", one_pixel, text)
        models[path.relative_to(assets)] = None if plain_text == text else plain_text
    return models
