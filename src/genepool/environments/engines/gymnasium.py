"""The Gymnasium engine: any environment with flat spaces, also a user's own."""

import ast
import contextlib
import importlib
import inspect
import io
import sys
import urllib.parse
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from genepool.environments.spaces import Spaces, flat_spaces
from genepool.errors import EpisodeFailed, UserError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import gymnasium
    from gymnasium.envs.registration import load_env_creator

    from genepool.environments.tasks import cyclic, hills, rllab

WINDOW = (1280, 800)  # pixels
OWN = {id.removesuffix("-v0"): id for id in (cyclic.ID, *hills.IDS, *rllab.TASKS)}  # our own tasks: names to ids


class GymnasiumEngine:
    """A batch of environments, stepped one after the other. The seed of its reset determines an episode."""

    def __init__(self, make: Callable[[], Any]):
        self._make = make
        self._environments: list[Any] = []

    def begin(self, seeds: Sequence[int], threads: int) -> np.ndarray:
        """Start one episode per seed. It uses no threads: a user's code may not be safe with them."""
        while len(self._environments) < len(seeds):
            self._environments.append(self._make())
        return np.stack([_flat(self._do(k, lambda env, s=seed: env.reset(seed=s)[0])) for k, seed in enumerate(seeds)])

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Start the next episodes of these indices, whose random numbers continue. The first observations."""
        return np.stack([_flat(self._do(k, lambda env: env.reset()[0])) for k in which])

    def step(self, actions: np.ndarray, live: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Step the episodes of the indices `live`: observations, rewards, terminated, truncated."""
        answers = [self._do(k, lambda env, a=action: env.step(a)) for k, action in zip(live, actions, strict=True)]
        observations, rewards, terminated, truncated, _ = zip(*answers, strict=True)
        return (
            np.stack([_flat(o) for o in observations]),
            np.array(rewards, float),
            np.array(terminated, bool),
            np.array(truncated, bool),
        )

    def _do(self, k: int, act: Callable[[Any], Any]) -> Any:
        try:
            return act(self._environments[k])
        except Exception as error:
            raise EpisodeFailed(k) from error

    def close(self) -> None:
        """Free the environments."""
        for env in self._environments:
            env.close()
        self._environments = []


def _flat(observation: Any) -> np.ndarray:
    return np.asarray(observation, np.float32).reshape(-1)


def make(task: str, **more: Any) -> Any:
    """An environment by its id with its options and `more` of them, without Gymnasium's advice on standard error."""
    id, options = parsed(task)
    with contextlib.suppress(ImportError):
        # Gymnasium's models have a deprecated word. MuJoCo would warn of it, also in a log file in the current folder
        importlib.import_module("mujoco").set_mju_user_warning(_pass_on)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        return gymnasium.make(id, **options, **more)


def follow(environment: Any) -> None:
    """Let the camera follow a MuJoCo robot: with Gymnasium 1.4 HalfCheetah and Swimmer run out of the picture."""
    robot = environment.unwrapped
    with contextlib.suppress(AttributeError, KeyError):  # not a MuJoCo robot, or one without this camera
        renderer = robot.mujoco_renderer
        camera = robot.model.camera("track").id
        renderer.camera_id = camera  # for pictures; a window starts with the settings below
        fixed = importlib.import_module("mujoco").mjtCamera.mjCAMERA_FIXED
        renderer.default_cam_config = {"type": int(fixed), "fixedcamid": camera}
        if environment.render_mode == "human":
            renderer.width, renderer.height = WINDOW


def parsed(task: str) -> tuple[str, dict[str, Any]]:
    """The id and the options of a task that is written as ID?name=value&name=value.

    A value is a Python number, tuple, True, False or None, or else a string.
    """
    id, mark, query = task.partition("?")
    try:
        given = urllib.parse.parse_qsl(query, keep_blank_values=True, strict_parsing=True) if mark else []
    except ValueError:
        raise UserError(f"the options of {task!r} are not name=value: write ID?name=value&name=value") from None
    return id, {name: _value(text) for name, text in given}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def arguments(id: str) -> list[str]:
    """The names of an environment's arguments, with those of its base classes."""
    creator = gymnasium.spec(id).entry_point
    creator = load_env_creator(creator) if isinstance(creator, str) else creator
    makers: list[Any] = [kind.__init__ for kind in creator.__mro__[:-1]] if isinstance(creator, type) else [creator]
    return [name for maker in makers for name in inspect.signature(maker).parameters]


def _pass_on(warning: str) -> None:
    if "deprecated" not in warning:
        print(f"MuJoCo: {warning}", file=sys.stderr)


def spaces(environment: Any, name: str) -> Spaces:
    """The sizes and ranges of an environment. Refused if it is not of a kind that genepool trains on."""
    limit = environment.spec.max_episode_steps if environment.spec else None
    return flat_spaces([environment.observation_space], environment.action_space, limit, name)


def id_of(task: str) -> str | None:
    """Gymnasium's id of a task; None if it has no such task. Our own tasks may be named without a version."""
    task = OWN.get(task, task)
    return task if task in names() else None


def names() -> list[str]:
    """All ids that Gymnasium knows."""
    with contextlib.suppress(ImportError):
        importlib.import_module("gymnasium.envs.registration")
    return sorted(gymnasium.registry)


def version() -> dict[str, str]:
    """The versions that results depend on."""
    versions = {"gymnasium": gymnasium.__version__}
    with contextlib.suppress(ImportError):
        versions["mujoco"] = importlib.import_module("mujoco").__version__
    return versions
