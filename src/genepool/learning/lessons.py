"""Lessons: gradient steps that an individual takes against a frozen critic before it acts (CEM-RL, AES-RL)."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import Array

from genepool.errors import UserError
from genepool.networks import Actor
from genepool.protocols import Learner


def check_replay(learner: Learner, capacity: int) -> None:
    """Refuse a replay that never holds what the learner waits for."""
    wanted = {"warmup": learner.warmup + 1, "random-frames": getattr(learner, "random_frames", 0)}
    name = max(wanted, key=wanted.get)
    if capacity < wanted[name]:
        raise UserError(
            f"the learner waits for {wanted[name]:,} transitions, and a replay of {capacity:,} never holds them: "
            f"give a larger --replay or a smaller --learner.{name}"
        )


class Lesson(eqx.Module):
    """`steps` gradient steps with an optimiser of the individual's own, on states of the ring as it stood."""

    learner: Any = eqx.field(static=True)
    key: np.ndarray  # a key's data, for keys do not travel
    teacher: Any
    states: Array  # [capacity, |S|]
    filled: Array  # how many of them are
    steps: np.ndarray

    def __call__(self, actor: Actor) -> Actor:
        """The actor after the lesson."""
        key = jax.random.wrap_key_data(self.key)
        return self.learner.improve(key, actor, self.teacher, self.states, self.filled, int(self.steps))
