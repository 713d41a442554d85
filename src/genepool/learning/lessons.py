"""Lessons: gradient steps that an individual takes against a frozen critic before it acts (CEM-RL, AES-RL).

And the protocol of the learners that give them.
"""

from collections.abc import Callable
from typing import Any, Protocol

import equinox as eqx
import jax
import numpy as np
from jax import Array

from genepool.buffer import Buffer
from genepool.errors import UserError
from genepool.networks import Actor


class Learner(Protocol):
    """An off-policy actor-critic learner: alone, beside a population (ERL), or as a teacher (CEM-RL, AES-RL)."""

    warmup: int  # no learning until the replay holds more than this

    def init(self, key: Array, actor: Actor) -> Any:
        """A learner that begins with this actor. Its state has `updates`, the gradient steps so far."""

    def actor(self, state: Any) -> Actor:
        """The policy learnt so far, deterministic."""

    def critic(self, state: Any) -> Callable[[Array, Array], Array]:
        """Q(s, a)."""

    def explore(self, key: Array, state: Any, last: Array, steps: int, seen: int) -> tuple[Any, np.ndarray]:
        """Who plays an exploring episode, and the noise on its actions; `seen` rows are in the replay."""

    def update(self, key: Array, state: Any, replay: Buffer, steps: int) -> Any:
        """Steps of critic and actor together."""

    def update_critic(self, key: Array, state: Any, policy: Actor, replay: Buffer, steps: int) -> Any:
        """Steps of the critic alone, towards the value of another's policy."""

    def teacher(self, state: Any) -> Any:
        """What `improve` needs, frozen: the critic (SAC: and its temperature)."""

    def improve(self, key: Array, actor: Actor, teacher: Any, states: Array, filled: Array, steps: int) -> Actor:
        """The actor after steps up the frozen critic, on states drawn from the ring."""

    def report(self, state: Any) -> dict[str, Any]:
        """Losses and gradient steps, for the record."""


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
