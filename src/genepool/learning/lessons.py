"""Lessons: gradient steps that an individual takes against a frozen critic before it acts (CEM-RL, AES-RL)."""

from typing import Any, cast

import equinox as eqx
import jax
import numpy as np
from jax import Array

from genepool.errors import UserError
from genepool.networks import Actor
from genepool.protocols import Learner


def check_replay(learner: Learner[Any], capacity: int) -> None:
    """Refuse a replay that is too small for the learner ever to begin."""
    wanted = {"warmup": learner.warmup + 1, "random-frames": getattr(learner, "random_frames", 0)}
    name = max(wanted, key=wanted.__getitem__)
    if capacity < wanted[name]:
        raise UserError(
            f"the learner waits for {wanted[name]:,} transitions, and a replay of {capacity:,} never holds them: "
            f"give a larger --replay or a smaller --learner.{name}"
        )


class GradientLesson(eqx.Module):
    """`steps` gradient steps with a fresh optimiser, on states of the replay as it was when the lesson was made."""

    learner: Any = eqx.field(static=True)
    key: np.ndarray  # the data of a JAX key: keys themselves cannot be sent to a worker
    teacher: Any
    states: Array  # [capacity, |S|]
    state_count: Array  # only the first rows of `states` are in use
    steps: np.ndarray

    def __call__(self, actor: Actor) -> Actor:
        """The actor after the lesson."""
        key = jax.random.wrap_key_data(cast(Array, self.key))  # JAX takes NumPy's too
        return self.learner.improve(key, actor, self.teacher, self.states, self.state_count, int(self.steps))
