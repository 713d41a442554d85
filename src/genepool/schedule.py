"""Schedules: when to ask, tell and learn. They know no algorithm by name."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import jax
from jax import Array

from genepool.types import Candidate, Learnt, Outcome


class Algorithm(Protocol):
    """What to try, what to make of it, and how to learn from it."""

    generation: int  # candidates that the synchronous schedule asks for at once
    schedule: str  # the one it is meant for

    def init(self, key: Array) -> Any:
        """A new state."""

    def ask(self, key: Array, state: Any, n: int) -> tuple[list[Candidate], Any]:
        """What to try; nothing while the learner has to catch up first."""

    def tell(self, key: Array, state: Any, outcomes: Sequence[Outcome]) -> Any:
        """What to make of it."""

    def learn(self, key: Array, state: Any) -> Any:
        """How to learn from it. Writes `state.learner` and nothing else."""

    def due(self, state: Any) -> int:
        """How many gradient steps `learn` would take now."""

    def stage(self, state: Any) -> str:
        """What `learn` would do now, as the phase that its seconds are counted under."""

    def further(self, state: Any) -> int:
        """How many more candidates belong to the generation, once it was told and learnt from; mostly none."""


class Workers(Protocol):
    """Where candidates are tried, and where learning goes on meanwhile.

    Candidates that are submitted, and the learning, come back by `next` in the order in which they are done.
    """

    idle: int  # how many more candidates could be at work
    busy: int  # how many are
    studying: bool  # whether learning is under way, or done and not handed out yet

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Try them all; their outcomes, in the same order."""

    def submit(self, candidate: Candidate) -> None:
        """Have it tried."""

    def study(self, learn: Callable[[Array, Any], Any], key: Array, state: Any, steps: int) -> None:
        """Have `learn(key, state)` done, which takes `steps` gradient steps."""

    def next(self, wait: bool) -> Outcome | Learnt | None:
        """What is done and was not handed out yet; if there is nothing, wait for it or say None.

        Of candidates nothing is at work, and nothing is learnt: None at once.
        """


class Clock:
    """Seconds spent in each phase, the phase that is on now, and in asynchronous runs what happened in which order and when."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self.events: list[str] = []
        self.moments: list[float] = []  # of the events, as `time.perf_counter` has it
        self.phase = ""

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Count the seconds spent within towards this phase."""
        self.phase, begun = phase, time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begun

    def note(self, event: str) -> None:
        """Take note that something happened now."""
        self.events.append(event)
        self.moments.append(time.perf_counter())

    def clear(self) -> None:
        """Begin a new count."""
        self.seconds, self.events, self.moments = {}, [], []


def synchronous(
    algorithm: Algorithm, workers: Workers, key: Array, state: Any, clock: Clock, frames: float = math.inf
) -> tuple[Any, list[Outcome]]:
    """One generation: ask for all of it, try it, tell all of it, learn; and again, while the algorithm wants further ones."""
    outcomes: list[Outcome] = []
    wanted = algorithm.generation
    while wanted:
        first = not outcomes
        k_ask, k_tell, k_learn = jax.random.split(key if first else jax.random.fold_in(key, len(outcomes)), 3)
        with clock("breeding"):
            candidates, state = algorithm.ask(k_ask, state, wanted)
        with clock("acting" if first else "exploring"):  # once anything was told, the state before it is gone
            played = workers.map(candidates)
        with clock("breeding"):
            state = jax.block_until_ready(algorithm.tell(k_tell, state, played))
        studied = 0
        clock.seconds.setdefault("learning", 0.0)  # also where there is nothing to learn yet
        while steps := algorithm.due(state):
            with clock(algorithm.stage(state)):
                workers.study(algorithm.learn, jax.random.fold_in(k_learn, studied), state, steps)
                state = replace(state, learner=workers.next(wait=True).state.learner)
                studied += 1
        outcomes += played
        wanted = algorithm.further(state)
    return state, outcomes


def asynchronous(
    algorithm: Algorithm, workers: Workers, key: Array, state: Any, clock: Clock, frames: float = math.inf
) -> tuple[Any, list[Outcome]]:
    """As many tells as a generation has candidates, or all that are out once `frames` more have been played.

    What is done first is told first, an idle worker gets the next candidate at once, and learning goes on behind.
    With one worker in this process it is the serial loop: ask, try, tell, learn.
    """
    k_ask, k_tell, k_learn = jax.random.split(key, 3)
    outcomes: list[Outcome] = []
    asked = studied = 0
    while True:
        steps = 0 if workers.studying else algorithm.due(state)
        if steps:
            with clock(algorithm.stage(state)):
                workers.study(algorithm.learn, jax.random.fold_in(k_learn, studied), state, steps)
                studied += 1
        spent = sum(outcome.frames for outcome in outcomes) >= frames
        over = spent or len(outcomes) >= algorithm.generation
        with clock("acting"):
            done = workers.next(wait=workers.busy > 0 if spent else not over and not workers.idle)
        if done is None and over:
            return state, outcomes
        if done is None:
            with clock("breeding"):
                candidates, state = algorithm.ask(jax.random.fold_in(k_ask, asked), state, 1)
                for candidate in candidates:
                    asked += 1
                    clock.note(f"ask {candidate.number}")
                    workers.submit(candidate)
            if candidates:
                continue
            with clock("acting"):
                done = workers.next(wait=True)
        with clock("breeding"):
            if isinstance(done, Learnt):
                state = replace(state, learner=done.state.learner)
                clock.note("learnt")
            else:
                state = jax.block_until_ready(algorithm.tell(jax.random.fold_in(k_tell, len(outcomes)), state, [done]))
                outcomes.append(done)
                clock.note(f"tell {done.candidate.number}")


SCHEDULES = {"synchronous": synchronous, "asynchronous": asynchronous}
