"""DM Control's tasks as EnvPool has them: what of their observations is shown, and their models without pictures.

A flat observation is DM Control's own: `np.concatenate([np.ravel(part) for part in timestep.observation.values()])`.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

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


def shown(id: str, given: list[str], prefix: str = "") -> list[str]:
    """The parts of an observation, of those that EnvPool gives, in the order in which they are laid flat."""
    return [prefix + name for name in SHOWN[id]] if id in SHOWN else given


@contextlib.contextmanager
def plain(id: str, assets: str) -> Iterator[str]:
    """EnvPool's assets for building a task, as far as it needs them, with pictures of one pixel.

    Nobody sees the sky and the floor, and painting them took 0.2 s and 12 MB per environment: more than the episode.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / MODELS / "common").mkdir(parents=True)
        for file, text in _models(id, Path(assets)).items():
            copy = Path(folder, file)
            copy.symlink_to(Path(assets, file)) if text is None else copy.write_text(text)
        yield folder


@lru_cache(maxsize=8)
def _models(id: str, assets: Path) -> dict[Path, str | None]:
    """The files that a task is built of, and of those that paint pictures the text with one pixel each."""
    pixel = lambda texture: re.sub(r'(width|height)="\d+"', r'\1="1"', texture[0])
    own = lambda path: id.lower().startswith(path.stem.replace("_", "").lower().removesuffix("assets"))
    paths = [path for path in (assets / MODELS).iterdir() if own(path)]
    models = {}
    for path in (*paths, *(assets / MODELS / "common").iterdir()):
        text = path.read_text() if path.suffix == ".xml" else ""
        plain = re.sub(r"<texture[^>]*>", pixel, text)
        models[path.relative_to(assets)] = None if plain == text else plain
    return models
