"""The MuJoCo engine: five of Gymnasium's robots, a whole batch of them stepped by one call of MuJoCo's.

A world is a row of numbers. MuJoCo's own data are one for all worlds of a batch and stay in the core's cache, and nobody waits for
another thread: a batch costs its physics and little more. Models, first states and constants are those of Gymnasium's
environment; what a batch of worlds shows and earns is said here. One thing is not Gymnasium's: MuJoCo's solver begins every frame
afresh, not from the accelerations of the last one. It ends at the same forces to its tolerance, so paths part slowly.
"""

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import mujoco
import numpy as np
from mujoco.rollout import Rollout

from genepool.environments.engines import gymnasium as gymnasium_engine

STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS.value  # of these robots: time, positions, velocities
CONTROL = mujoco.mjtState.mjSTATE_CTRL.value
Judgement = tuple[np.ndarray, np.ndarray, np.ndarray]  # observations, rewards, terminated
Judge = Callable[[np.ndarray, np.ndarray, np.ndarray], Judgement]  # of states before and after, and actions


class MuJoCoEngine:
    """A batch of worlds. Every episode begins as Gymnasium's with its seed does."""

    def __init__(self, id: str):
        self._robot, self._resets = _robot(id)
        self._judge = TASKS[id](self._robot)
        self._data = [mujoco.MjData(self._robot.model)]
        self._rollout = Rollout(nthread=0)  # in the thread that calls

    def begin(self, seeds: Sequence[int], threads: int) -> np.ndarray:
        """Start one episode per seed. It has no threads of its own: several engines may play side by side."""
        self._states = np.empty((len(seeds), mujoco.mj_stateSize(self._robot.model, STATE)))
        self._chances: list[Any] = [None] * len(seeds)
        self._live: np.ndarray | None = None
        return np.stack([self._reset(k, seed) for k, seed in enumerate(seeds)])

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Start the next episode of these, whose chance goes on where it was; the first observations."""
        return np.stack([self._reset(k) for k in which])

    def _reset(self, k: int, seed: int | None = None) -> np.ndarray:
        with self._resets:
            if seed is None:
                self._robot.np_random = self._chances[k]
            observation, _ = self._robot.reset(seed=seed)
            self._chances[k] = self._robot.np_random
            mujoco.mj_getState(self._robot.model, self._robot.data, self._states[k], STATE)
        return observation

    def step(self, actions: np.ndarray, live: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Step the live episodes, given by index, and no others: observations, rewards, terminated, truncated."""
        if live is not self._live:  # who plays changes seldom
            self._follow(live)
        before, after = self._states[self._rows], self._passed[:, -1]
        self._controls[:] = actions[:, None]
        self._rollout.rollout(
            self._models,
            self._data,
            before,
            self._controls,
            control_spec=CONTROL,
            skip_checks=True,
            nstep=self._robot.frame_skip,
            state=self._passed,
            sensordata=self._sensed,
        )
        judgement = self._judge(before, after, actions)
        self._states[self._rows] = after
        return *judgement, self._truncated

    def _follow(self, live: np.ndarray) -> None:
        """Make room for a step of those that are live."""
        n, model, steps = len(live), self._robot.model, self._robot.frame_skip
        self._live, self._rows = live, slice(None) if n == len(self._states) else live
        self._models = [model] * n
        self._controls = np.empty((n, steps, model.nu))
        self._passed = np.empty((n, steps, self._states.shape[1]))
        self._sensed = np.empty((n, steps, model.nsensordata))
        self._truncated = np.zeros(n, bool)

    def close(self) -> None:
        """Forget the worlds."""
        self._states = self._live = None


@lru_cache(maxsize=16)
def _robot(id: str) -> tuple[Any, threading.Lock]:
    """Gymnasium's environment of a task, for its model and its constants, and whoever has the lock may reset it."""
    return gymnasium_engine.make(id).unwrapped, threading.Lock()


def _runner(robot: Any, hidden: int) -> Judge:
    """HalfCheetah, which does not see its first coordinate, and Swimmer, which does not see its first two."""
    pay = _pay(robot)

    def judge(before: np.ndarray, after: np.ndarray, actions: np.ndarray) -> Judgement:
        return after[:, 1 + hidden :], pay(before, after, actions), np.zeros(len(after), bool)

    return judge


def _walker(robot: Any, most: float) -> Judge:
    """Hopper, whose every other number must stay below the most, and Walker2d: both see speeds of at most ten, and may fall."""
    pay, first_speed = _pay(robot), 1 + robot.model.nq
    (low, high), (back, forth) = robot._healthy_z_range, robot._healthy_angle_range

    def judge(before: np.ndarray, after: np.ndarray, actions: np.ndarray) -> Judgement:
        observations, height, angle = after[:, 2:].copy(), after[:, 2], after[:, 3]
        speeds = observations[:, first_speed - 2 :]
        np.minimum(np.maximum(speeds, -10.0, out=speeds), 10.0, out=speeds)
        healthy = (low < height) & (height < high) & (back < angle) & (angle < forth)
        if most < np.inf:
            healthy &= (np.abs(after[:, 3:]) < most).all(axis=1)
        return observations, pay(before, after, actions) + robot._healthy_reward * healthy, ~healthy

    return judge


def _pole(robot: Any) -> Judge:
    """InvertedPendulum: a step is worth one unless it is the last."""

    def judge(before: np.ndarray, after: np.ndarray, actions: np.ndarray) -> Judgement:
        upright = np.abs(after[:, 2]) <= 0.2
        return after[:, 1:], upright.astype(float), ~upright

    return judge


def _pay(robot: Any) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """What a robot earns by its way along the first coordinate, less what its actions cost."""
    speed, cost = robot._forward_reward_weight / robot.dt, robot._ctrl_cost_weight

    def pay(before: np.ndarray, after: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return speed * (after[:, 1] - before[:, 1]) - cost * np.vecdot(actions, actions)

    return pay


TASKS: dict[str, Callable[[Any], Judge]] = {
    "HalfCheetah-v5": lambda robot: _runner(robot, hidden=1),
    "Hopper-v5": lambda robot: _walker(robot, most=robot._healthy_state_range[1]),
    "InvertedPendulum-v5": _pole,
    "Swimmer-v5": lambda robot: _runner(robot, hidden=2),
    "Walker2d-v5": lambda robot: _walker(robot, most=np.inf),
}
version = gymnasium_engine.version


def id_of(task: str) -> str | None:
    """The id of a task, if it is one of these."""
    return task if task in TASKS else None
