"""What a policy must know of a task: the sizes of its spaces, the range of its actions, and how long it lasts."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from genepool.errors import UserError

NO_LIMIT = 10_000  # steps, of an environment that sets itself no time limit


@dataclass(frozen=True)
class Spaces:
    """Flat observations, actions in [low, high], at most `horizon` steps."""

    observation_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    horizon: int

    @property
    def observation_size(self) -> int:
        """|S|."""
        return math.prod(self.observation_shape)

    @property
    def action_size(self) -> int:
        """|A|."""
        return len(self.low)

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Actions of a policy, in [-1, 1], as the environment's: low + (a + 1) / 2 (high - low)."""
        if self.low != (-1.0,) * len(self.low) or self.high != (1.0,) * len(self.high):
            low, high = np.asarray(self.low, actions.dtype), np.asarray(self.high, actions.dtype)
            actions = low + (actions + 1.0) / 2.0 * (high - low)
        return actions.reshape(-1, *self.action_shape)


def box_spaces(observation: Any, action: Any, limit: int | None, name: str) -> Spaces:
    """The spaces of a task, where both are boxes and the action's is bounded."""
    for role, space in (("observations", observation), ("actions", action)):
        if type(space).__name__ != "Box":
            raise UserError(
                f"{name} has {type(space).__name__} {role}: genepool trains on Box observations and Box actions; wrap it"
            )
    low, high = np.asarray(action.low, float).reshape(-1), np.asarray(action.high, float).reshape(-1)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UserError(
            f"{name} has actions without bounds: wrap it with gymnasium.wrappers.RescaleAction or give its Box a range"
        )
    return Spaces(
        tuple(observation.shape), tuple(action.shape), tuple(low.tolist()), tuple(high.tolist()), int(limit or NO_LIMIT)
    )
