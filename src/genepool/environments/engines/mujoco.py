"""The MuJoCo engine: five of Gymnasium's robots, a batch of them stepped by one call of MuJoCo.

The states of a batch are the rows of one array. MuJoCo's own data are shared by the whole batch, so they stay in the
core's cache. Models, first states and constants are those of Gymnasium's environment; observations and rewards of a
batch are computed here. One thing differs from Gymnasium: MuJoCo's solver starts every frame afresh, not from the
accelerations of the last frame. It finds the same forces to its tolerance, so trajectories diverge slowly.
"""

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import mujoco
import numpy as np
from mujoco.rollout import Rollout

from genepool.environments.engines import gymnasium as gymnasium_engine

STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS.value  # a state: time, positions, velocities
CONTROL = mujoco.mjtState.mjSTATE_CTRL.value
StepResult = tuple[np.ndarray, np.ndarray, np.ndarray]  # observations, rewards, terminated
StepFunction = Callable[[np.ndarray, np.ndarray, np.ndarray], StepResult]  # from states before and after, and actions


class MuJoCoEngine:
    """A batch of one robot. Every episode starts as Gymnasium's with the same seed."""

    def __init__(self, id: str):
        self._robot, self._reset_lock = _robot(id)
        self._evaluate = TASKS[id](self._robot)
        self._data = [mujoco.MjData(self._robot.model)]
        self._rollout = Rollout(nthread=0)  # in the calling thread

    def begin(self, seeds: Sequence[int], threads: int) -> np.ndarray:
        """Start one episode per seed. It uses no threads: the caller runs several engines instead."""
        self._states = np.empty((len(seeds), mujoco.mj_stateSize(self._robot.model, STATE)))
        self._generators: list[Any] = [None] * len(seeds)
        self._live: np.ndarray | None = None
        return np.stack([self._reset(k, seed) for k, seed in enumerate(seeds)])

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Start the next episodes of these indices, whose random numbers continue. The first observations."""
        return np.stack([self._reset(k) for k in which])

    def _reset(self, k: int, seed: int | None = None) -> np.ndarray:
        """Start an episode of index k. Without a seed its random numbers continue.

        All engines of a task share one robot, so each index keeps its own state and random generator.
        """
        with self._reset_lock:
            if seed is None:
                self._robot.np_random = self._generators[k]
            observation, _ = self._robot.reset(seed=seed)
            self._generators[k] = self._robot.np_random
            mujoco.mj_getState(self._robot.model, self._robot.data, self._states[k], STATE)
        return observation

    def step(self, actions: np.ndarray, live: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Step the episodes of the indices `live` and no others: observations, rewards, terminated, truncated."""
        if live is not self._live:  # it changes seldom
            self._make_room(live)
        before = self._states[self._rows]
        after = self._passed[:, -1]
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
        result = self._evaluate(before, after, actions)
        self._states[self._rows] = after
        return *result, self._truncated

    def _make_room(self, live: np.ndarray) -> None:
        """Allocate the arrays for a step of these episodes."""
        n = len(live)
        model = self._robot.model
        steps = self._robot.frame_skip
        self._live = live
        self._rows = slice(None) if n == len(self._states) else live
        self._models = [model] * n
        self._controls = np.empty((n, steps, model.nu))
        self._passed = np.empty((n, steps, self._states.shape[1]))
        self._sensed = np.empty((n, steps, model.nsensordata))
        self._truncated = np.zeros(n, bool)

    def close(self) -> None:
        """Free the states."""
        self._states = np.empty((0, 0))
        self._live = None


@lru_cache(maxsize=16)
def _robot(id: str) -> tuple[Any, threading.Lock]:
    """Gymnasium's environment of a task, for its model and constants, and the lock to hold when it is reset."""
    return gymnasium_engine.make(id).unwrapped, threading.Lock()


def _runner(robot: Any, hidden: int) -> StepFunction:
    """HalfCheetah and Swimmer. Their first coordinates, one and two of them, are hidden from the policy."""
    reward = _reward(robot)

    def evaluate(before: np.ndarray, after: np.ndarray, actions: np.ndarray) -> StepResult:
        return after[:, 1 + hidden :], reward(before, after, actions), np.zeros(len(after), bool)

    return evaluate


def _walker(robot: Any, most: float) -> StepFunction:
    """Hopper and Walker2d. They observe speeds clipped to ten, and may fall. `most` limits the other coordinates."""
    reward = _reward(robot)
    first_speed = 1 + robot.model.nq
    low, high = robot._healthy_z_range
    back, forth = robot._healthy_angle_range

    def evaluate(before: np.ndarray, after: np.ndarray, actions: np.ndarray) -> StepResult:
        observations = after[:, 2:].copy()
        height = after[:, 2]
        angle = after[:, 3]
        speeds = observations[:, first_speed - 2 :]
        np.minimum(np.maximum(speeds, -10.0, out=speeds), 10.0, out=speeds)
        healthy = (low < height) & (height < high) & (back < angle) & (angle < forth)
        if most < np.inf:
            healthy &= (np.abs(after[:, 3:]) < most).all(axis=1)
        return observations, reward(before, after, actions) + robot._healthy_reward * healthy, ~healthy

    return evaluate


def _pole(robot: Any) -> StepFunction:
    """InvertedPendulum: the reward is one for every step, but zero for the step in which the pole falls."""

    def evaluate(before: np.ndarray, after: np.ndarray, actions: np.ndarray) -> StepResult:
        # the columns of a state: time, the cart's position, the pole's angle, the two velocities
        upright = np.abs(after[:, 2]) <= 0.2
        return after[:, 1:], upright.astype(float), ~upright

    return evaluate


def _reward(robot: Any) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """The reward for speed along the first coordinate, less the cost of the actions."""
    speed = robot._forward_reward_weight / robot.dt
    cost = robot._ctrl_cost_weight

    def reward(before: np.ndarray, after: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return speed * (after[:, 1] - before[:, 1]) - cost * np.vecdot(actions, actions)

    return reward


TASKS: dict[str, Callable[[Any], StepFunction]] = {
    "HalfCheetah-v5": lambda robot: _runner(robot, hidden=1),
    "Hopper-v5": lambda robot: _walker(robot, most=robot._healthy_state_range[1]),
    "InvertedPendulum-v5": _pole,
    "Swimmer-v5": lambda robot: _runner(robot, hidden=2),
    "Walker2d-v5": lambda robot: _walker(robot, most=np.inf),
}
version = gymnasium_engine.version


def id_of(task: str) -> str | None:
    """The id of a task; None if it is not one of these."""
    return task if task in TASKS else None
