"""Schedules: when to ask, tell and learn, for any algorithm."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar

import jax
from jax import Array

from genepool.protocols import Algorithm, Workers
from genepool.types import LearningResult, Outcome

NOTHING_TO_DO = "the algorithm asks for no candidate, although none is at work and no learning is owed: it cannot go on"


class State(Protocol):
    """The state of an algorithm, a dataclass. Of an algorithm that never learns the learner is None."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    learner: Any


S = TypeVar("S", bound=State)


class Clock:
    """Seconds spent in each phase, and the current phase. In asynchronous runs also events in order, and when."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self.events: list[str] = []
        self.moments: list[float] = []  # of the events, by `time.perf_counter`
        self.phase = ""

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the seconds spent within to this phase."""
        self.phase = phase
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begun

    def note(self, event: str) -> None:
        """Note that this event happened now."""
        self.events.append(event)
        self.moments.append(time.perf_counter())

    def clear(self) -> None:
        """Forget all seconds and events."""
        self.seconds = {}
        self.events = []
        self.moments = []


def generation(
    algorithm: Algorithm[S],
    workers: Workers,
    key: Array,
    state: S,
    clock: Clock | None = None,
    frames: float = math.inf,
) -> tuple[S, list[Outcome]]:
    """One generation on the algorithm's own schedule: the new state, and the outcomes in the order of telling.

    For a training loop of your own:

        workers = genepool.LocalWorkers(algorithm.task)
        k_init, key = jax.random.split(jax.random.key(0))
        state = algorithm.init(k_init)
        for g in range(100):
            state, outcomes = genepool.generation(algorithm, workers, jax.random.fold_in(key, g), state)

    Give a new key each time. Do not use the old state again. A clock counts the seconds of each phase.
    An asynchronous algorithm stops asking once `frames` more frames have been played.
    """
    return SCHEDULES[algorithm.schedule](algorithm, workers, key, state, clock or Clock(), frames)


def synchronous(
    algorithm: Algorithm[S], workers: Workers, key: Array, state: S, clock: Clock, frames: float = math.inf
) -> tuple[S, list[Outcome]]:
    """One generation: ask for all candidates, try them, tell all outcomes, learn. Repeat if it needs more.

    A generation is always played to its end: only the asynchronous schedule heeds `frames`.
    """
    outcomes: list[Outcome] = []
    wanted = algorithm.generation_size
    learn_calls = 0  # since the last outcomes were told
    while wanted:
        first = not outcomes
        # a run interrupted in "acting" saves its state; in "exploring" it cannot, for outcomes have changed the replay
        phase = "acting" if first else "exploring"
        k_ask, k_tell, k_learn = jax.random.split(key if first else jax.random.fold_in(key, len(outcomes)), 3)
        with clock("breeding"):
            candidates, state = algorithm.ask(k_ask, state, wanted)
        if candidates:
            with clock(phase):
                new = workers.map(candidates)
            with clock("breeding"):
                state = jax.block_until_ready(algorithm.tell(k_tell, state, new))
            outcomes += new
        elif not algorithm.steps_owed(state):
            raise RuntimeError(NOTHING_TO_DO)
        clock.seconds.setdefault("learning", 0.0)  # every record has it, even if nothing was learnt
        while steps := algorithm.steps_owed(state):
            with clock(algorithm.learning_phase(state)):
                workers.learn_in_background(algorithm.learn, jax.random.fold_in(k_learn, learn_calls), state, steps)
                learnt = workers.next(wait=True)
                assert isinstance(learnt, LearningResult)  # nothing else is at work
                state = replace(state, learner=learnt.learner)
                learn_calls += 1
        if candidates:  # else ask again: now the learner has taken the steps owed
            wanted = algorithm.still_to_ask(state)
            learn_calls = 0
    return state, outcomes


def asynchronous(
    algorithm: Algorithm[S], workers: Workers, key: Array, state: S, clock: Clock, frames: float = math.inf
) -> tuple[S, list[Outcome]]:
    """As many tells as a generation has candidates. Once `frames` more frames are played, tell all that is out instead.

    Outcomes are told in the order in which they are done. An idle worker gets a candidate at once. Where the algorithm
    has none, it is asked again after the next outcome. With one worker in this process this is the serial loop: ask,
    try, tell, learn.
    """
    k_ask, k_tell, k_learn = jax.random.split(key, 3)
    outcomes: list[Outcome] = []
    asked = 0
    learn_calls = 0
    while True:
        if not workers.learning and (steps := algorithm.steps_owed(state)):
            with clock(algorithm.learning_phase(state)):
                workers.learn_in_background(algorithm.learn, jax.random.fold_in(k_learn, learn_calls), state, steps)
                learn_calls += 1
        spent = sum(outcome.frames for outcome in outcomes) >= frames
        complete = spent or len(outcomes) >= algorithm.generation_size
        with clock("acting"):
            done = workers.next(wait=workers.busy > 0 if spent else not complete and not workers.idle)
        if done is None and complete:
            return state, outcomes
        if done is None:
            submitted, state = _submit_next(algorithm, workers, jax.random.fold_in(k_ask, asked), state, clock)
            asked += submitted
            if submitted:
                continue
            with clock("acting"):
                done = workers.next(wait=True)
        if done is None:  # nothing is under way
            if algorithm.steps_owed(state):
                continue
            raise RuntimeError(NOTHING_TO_DO)
        with clock("breeding"):
            if isinstance(done, LearningResult):
                state = replace(state, learner=done.learner)
                clock.note("learnt")
            else:
                state = jax.block_until_ready(algorithm.tell(jax.random.fold_in(k_tell, len(outcomes)), state, [done]))
                outcomes.append(done)
                clock.note(f"tell {done.candidate.number}")


def _submit_next(algorithm: Algorithm[S], workers: Workers, key: Array, state: S, clock: Clock) -> tuple[int, S]:
    """Ask for one candidate and submit it. How many were submitted (0 if the algorithm has none), and the state."""
    with clock("breeding"):
        candidates, state = algorithm.ask(key, state, 1)
        for candidate in candidates:
            clock.note(f"ask {candidate.number}")
            workers.submit(candidate)
    return len(candidates), state


SCHEDULES = {"synchronous": synchronous, "asynchronous": asynchronous}
