"""The discrete cyclic MDP of ESAC (Fig. 2): three states on a ring; only steps clockwise are rewarded."""

from typing import Any, cast

import gymnasium
import numpy as np

ID = "CyclicMDP-v0"  # Gymnasium's
CLOCKWISE, ANTICLOCKWISE, STAY = range(3)
MOVES = (1, -1, 0)


class CyclicMDP(gymnasium.Env[np.ndarray, Any]):
    """S0 -> S1 -> S2 -> S0: a step clockwise earns 1. Others earn -1 and end the episode. Observations are one-hot.

    The return is 2000 for walking clockwise always, and j - 2 if step j is the first that does not. In the authors'
    code the step from S2 to S0 earns 2, and there is no time limit: `lap_reward=2, horizon=None`.
    """

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, lap_reward: float = 1.0, horizon: int | None = 2000):
        self.lap_reward = float(lap_reward)
        self.horizon = horizon

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start in S0."""
        super().reset(seed=seed)
        self._state = self._steps = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Walk clockwise, or end."""
        wrong = bool(action != CLOCKWISE)
        reward = -1.0 if wrong else self.lap_reward if self._state == 2 else 1.0
        self._state = (self._state + MOVES[action]) % 3
        self._steps += 1
        return self._observation(), reward, wrong, self._steps == self.horizon, {}

    def _observation(self) -> np.ndarray:
        one_hot = np.zeros(3, np.float32)
        one_hot[self._state] = 1.0
        return one_hot


gymnasium.register(ID, entry_point=cast(Any, CyclicMDP), max_episode_steps=2000)  # Gymnasium's type wants **kwargs
