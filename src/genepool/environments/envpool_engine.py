"""The EnvPool engine: MuJoCo, DM Control and Box2D tasks stepped by C++ threads."""

import warnings
from collections.abc import Sequence

import envpool
import numpy as np
from envpool.registration import registry

from genepool.environments.spaces import Spaces, box_spaces


class EnvPoolEngine:
    """A pool built anew for every batch of episodes, for EnvPool takes its seeds when it is built."""

    def __init__(self, id: str):
        self._id = id
        self._limit = envpool.make_spec(id).config.max_episode_steps

    def begin(self, seeds: Sequence[int], threads: int) -> np.ndarray:
        """Start one episode per seed, on at most so many threads."""
        n = len(seeds)
        # EnvPool calls an episode that fails in its very last step truncated; with its own limit out of the way,
        # `done` means terminated and nothing else, and the limit is ours to set.
        self._pool = envpool.make_gymnasium(
            self._id, num_envs=n, num_threads=min(n, threads), seed=list(seeds), max_episode_steps=self._limit + 1
        )
        keys = list(self._pool._state_keys)
        self._wanted = [keys.index(name) for name in ("obs", "reward", "done")]
        self._pool._reset(np.arange(n, dtype=np.int32))
        self._steps = 0
        return self._pool._recv()[self._wanted[0]].reshape(n, -1)

    def step(self, actions: np.ndarray, live: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Step the live episodes, given by index, and no others: observations, rewards, terminated, truncated."""
        self._pool._send([live, live, actions.astype(np.float64)])
        answer = self._pool._recv()
        observations, rewards, terminated = (answer[k] for k in self._wanted)
        self._steps += 1
        return observations.reshape(len(live), -1), rewards, terminated, np.full(len(live), self._steps >= self._limit)

    def close(self) -> None:
        """Free the pool."""
        self._pool = None


def names() -> list[str]:
    """All the ids that EnvPool knows."""
    return sorted(registry.specs)


def spaces(id: str) -> Spaces:
    """The sizes and ranges of a task, found without building it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium's, on the precision of the boxes that EnvPool makes
        spec = envpool.make_spec(id)
        return box_spaces(spec.observation_space, spec.action_space, spec.config.max_episode_steps, id)


def version() -> dict[str, str]:
    """What the numbers of a run with this engine depend on. EnvPool carries its own MuJoCo."""
    return {"envpool": envpool.__version__}
