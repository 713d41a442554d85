"""Schedules: when to ask, tell and learn. They know no algorithm by name."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import jax
from jax import Array

from genepool.types import Candidate, Outcome


class Algorithm(Protocol):
    """What to try, what to make of it, and how to learn from it."""

    generation: int  # candidates that the synchronous schedule asks for at once

    def init(self, key: Array) -> Any:
        """A new state."""

    def ask(self, key: Array, state: Any, n: int) -> tuple[list[Candidate], Any]:
        """What to try."""

    def tell(self, key: Array, state: Any, outcomes: Sequence[Outcome]) -> Any:
        """What to make of it."""

    def learn(self, key: Array, state: Any) -> Any:
        """How to learn from it. Writes `state.learner` and nothing else."""


class Workers(Protocol):
    """Where candidates are tried."""

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Try them all; their outcomes, in the same order."""


class Clock:
    """Seconds spent in each phase, and the phase that is on now."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self.phase = ""

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Count the seconds spent within towards this phase."""
        self.phase, begun = phase, time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begun


def synchronous(
    algorithm: Algorithm, workers: Workers, key: Array, state: Any, clock: Clock
) -> tuple[Any, list[Outcome]]:
    """One generation: ask for all of it, try it, tell all of it, learn."""
    k_ask, k_tell, k_learn = jax.random.split(key, 3)
    with clock("breeding"):
        candidates, state = algorithm.ask(k_ask, state, algorithm.generation)
    with clock("acting"):
        outcomes = workers.map(candidates)
    with clock("breeding"):
        state = jax.block_until_ready(algorithm.tell(k_tell, state, outcomes))
    with clock("learning"):
        state = jax.block_until_ready(algorithm.learn(k_learn, state))
    return state, outcomes
