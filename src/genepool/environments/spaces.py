"""What a policy must know of a task: the sizes of its spaces, the range of its actions, and its time limit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from genepool.errors import UserError

NO_LIMIT = 10_000  # steps: the time limit of an environment that has none
UNBOUNDED = 1e10  # DM Control's infinity
LEAST = np.float32(-1.0)  # the range of an action, as NumPy's own numbers, which it handles faster than Python's
MOST = np.float32(1.0)


@dataclass(frozen=True)
class Spaces:
    """Flat observations, actions in [low, high], at most `horizon` steps.

    For discrete actions a policy gives each action a number in [-1, 1]; the action with the highest number is taken.
    """

    observation_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    horizon: int
    first: int | None = None  # the lowest of discrete actions; None: actions are continuous

    @property
    def observation_size(self) -> int:
        """|S|: the size of an observation."""
        return math.prod(self.observation_shape)

    @property
    def action_size(self) -> int:
        """|A|: how many numbers a policy gives."""
        return len(self.low)

    @cached_property
    def _is_unit(self) -> bool:
        return set(self.low) == {-1.0} and set(self.high) == {1.0}

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """A policy's actions a as the environment's: low + (clip(a) + 1) / 2 (high - low), or argmax a."""
        if self.first is not None:
            return self.first + actions.reshape(-1, self.action_size).argmax(axis=1)  # the first of equals
        actions = np.minimum(np.maximum(actions, LEAST), MOST)  # np.clip is much slower for a few actions
        if not self._is_unit:
            low = np.asarray(self.low, actions.dtype)
            high = np.asarray(self.high, actions.dtype)
            actions = low + (actions + 1.0) / 2.0 * (high - low)
        return actions if actions.shape[1:] == self.action_shape else actions.reshape(-1, *self.action_shape)


def flat_spaces(observations: Sequence[Any], action: Any, limit: int | None, name: str) -> Spaces:
    """The spaces of a task. Refused unless observations are boxes, and actions a bounded box or discrete."""
    kinds = {"observations": ("Box",), "actions": ("Box", "Discrete")}
    for role, space in (*(("observations", part) for part in observations), ("actions", action)):
        if type(space).__name__ not in kinds[role]:
            raise UserError(
                f"{name} has {type(space).__name__} {role}: genepool trains on Box observations and Box or Discrete "
                "actions; wrap it"
            )
    shape = tuple(observations[0].shape)
    horizon = int(limit or NO_LIMIT)
    if len(observations) > 1:
        shape = (sum(math.prod(part.shape) for part in observations),)
    if type(action).__name__ == "Discrete":
        n = int(action.n)
        return Spaces(shape, (), (-1.0,) * n, (1.0,) * n, horizon, int(action.start))
    low = np.asarray(action.low, float).reshape(-1)
    high = np.asarray(action.high, float).reshape(-1)
    if not (np.abs([low, high]) < UNBOUNDED).all():
        raise UserError(
            f"{name} has actions without bounds: wrap it with gymnasium.wrappers.RescaleAction or give its Box a range"
        )
    return Spaces(shape, tuple(action.shape), tuple(low.tolist()), tuple(high.tolist()), horizon)
