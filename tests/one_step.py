"""A task of one step with a known best action."""

import numpy as np

from genepool import buffer
from genepool.types import Transitions

BEST = np.array([0.5, -0.3], np.float32)  # the action with the highest reward


def one_step_replay(best=BEST, weight=1.0, observation_size=3, n=2000):
    """A replay of random actions. The reward is -weight |a - best|^2; the state says nothing, and the episode ends."""
    rng = np.random.default_rng(0)
    best = np.asarray(best, np.float32)
    action = rng.uniform(-1, 1, (n, best.size)).astype(np.float32)
    state = rng.uniform(-1, 1, (n, observation_size)).astype(np.float32)
    reward = -weight * np.sum((action - best) ** 2, axis=1)
    rows = Transitions(state, action, reward, state, np.ones(n, np.float32))
    return buffer.record(buffer.empty(n, observation_size, best.size), rows)
