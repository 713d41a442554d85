"""The EnvPool engine: MuJoCo, DM Control and Box2D tasks stepped by C++ threads."""

import contextlib
import warnings
from collections.abc import Sequence
from typing import Any

import envpool
import numpy as np
from envpool.registration import registry

from genepool.environments.spaces import Spaces, flat_spaces
from genepool.environments.tasks import dm_control
from genepool.errors import UserError

DISCRETE = ("envpool.classic_control", "envpool.box2d")  # EnvPool's families with discrete actions that are not games


class EnvPoolEngine:
    """EnvPool's tasks. A pool is built for every batch of episodes: EnvPool takes its seeds when it is built."""

    def __init__(self, id: str):
        spec = envpool.make_spec(id)
        self._id = id
        self._pool: Any = None  # EnvPool makes its class when it is first needed
        self._limit = spec.config.max_episode_steps
        self._action_dtype = spec.action_space.dtype

    def begin(self, seeds: Sequence[int], threads: int) -> np.ndarray:
        """Start one episode per seed, on at most so many threads."""
        n = len(seeds)
        # EnvPool reports an episode that terminates in its last step as truncated. With a larger limit of its own,
        # `done` means terminated; the caller watches the time limit.
        options = {"num_envs": n, "num_threads": min(n, threads), "seed": list(seeds)}
        with _assets(self._id) as folder:
            self._pool = envpool.make_gymnasium(
                self._id, **options, max_episode_steps=self._limit + 1, base_path=folder
            )
        keys = list(self._pool._state_keys)
        self._wanted = [keys.index(name) for name in ("reward", "done")]
        given = [key for key in keys if key.partition(":")[0] == "obs"]
        # of DM Control's tasks, only the parts that DM Control itself shows
        self._parts = [keys.index(key) for key in dm_control.shown(self._id, given, "obs:")]
        return self.restart(np.arange(n, dtype=np.int32))

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Start the next episodes of these indices, whose random numbers continue. The first observations."""
        self._pool._reset(which)
        return self._flat(self._pool._recv())

    def step(self, actions: np.ndarray, live: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Step the episodes of the indices `live` and no others: observations, rewards, terminated, truncated."""
        self._pool._send([live, live, actions.astype(self._action_dtype)])
        answer = self._pool._recv()
        rewards, terminated = (answer[k] for k in self._wanted)
        return self._flat(answer), rewards, terminated, np.zeros(len(live), bool)

    def _flat(self, answer: Sequence[np.ndarray]) -> np.ndarray:
        parts = [answer[k].reshape(len(answer[k]), -1) for k in self._parts]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def close(self) -> None:
        """Free the pool."""
        self._pool = None


def _of_dm_control(id: str) -> bool:
    return id in registry.specs and registry.specs[id][0] == "envpool.mujoco.dmc"


def _assets(id: str) -> contextlib.AbstractContextManager[str]:
    assets = registry.specs[id][2]["base_path"]
    return dm_control.plain(id, assets) if _of_dm_control(id) else contextlib.nullcontext(assets)


def id_of(task: str) -> str | None:
    """EnvPool's id of a task; None if it has no such task. DM Control's tasks may be named without a version."""
    if task not in registry.specs and _of_dm_control(f"{task}-v1"):
        return f"{task}-v1"
    return task if task in registry.specs else None


def names() -> list[str]:
    """All ids that EnvPool knows."""
    return sorted(registry.specs)


def spaces(id: str) -> Spaces:
    """The sizes and ranges of a task, without building it. The parts of an observation are flattened."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium warns of the precision of EnvPool's boxes
        spec = envpool.make_spec(id)
        observation = spec.observation_space
        action = spec.action_space
        if type(action).__name__ == "Discrete" and registry.specs[id][0] not in DISCRETE:
            raise UserError(
                f"EnvPool's {id} has Discrete actions: choose classic control or Box2D, or a task with Box actions"
            )
        parts = [observation]
        if _of_dm_control(id):  # a dictionary of parts: those that DM Control itself shows are kept
            parts = [observation[name] for name in dm_control.shown(id, list(observation))]
        return flat_spaces(parts, action, spec.config.max_episode_steps, id)


def version() -> dict[str, str]:
    """The versions that results depend on. EnvPool contains its own MuJoCo."""
    return {"envpool": envpool.__version__}
