"""Schedules: when to ask, tell and learn. They know no algorithm by name."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
from jax import Array

from genepool.protocols import Algorithm, Workers
from genepool.types import LearningResult, Outcome

NOTHING_TO_DO = "the algorithm asks for no candidate, although none is at work and no learning is owed: it cannot go on"


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


def generation(
    algorithm: Algorithm,
    workers: Workers,
    key: Array,
    state: Any,
    clock: Clock | None = None,
    frames: float = math.inf,
) -> tuple[Any, list[Outcome]]:
    """One generation on the algorithm's own schedule: the new state, and the outcomes in the order in which they were told.

    For a training loop of your own:

        workers = genepool.LocalWorkers(algorithm.task)
        k_init, key = jax.random.split(jax.random.key(0))
        state = algorithm.init(k_init)
        for g in range(100):
            state, outcomes = genepool.generation(algorithm, workers, jax.random.fold_in(key, g), state)

    Give a new key each time. The state that was given must not be used again. A clock counts the seconds of each phase.
    An asynchronous algorithm stops asking once `frames` more have been played.
    """
    return SCHEDULES[algorithm.schedule](algorithm, workers, key, state, clock or Clock(), frames)


def synchronous(
    algorithm: Algorithm, workers: Workers, key: Array, state: Any, clock: Clock, frames: float = math.inf
) -> tuple[Any, list[Outcome]]:
    """One generation: ask for all of it, try it, tell all of it, learn. Repeat while the algorithm has still to ask."""
    outcomes: list[Outcome] = []
    wanted = algorithm.generation
    learn_count = 0  # since the last tell
    while wanted:
        first = not outcomes
        k_ask, k_tell, k_learn = jax.random.split(key if first else jax.random.fold_in(key, len(outcomes)), 3)
        with clock("breeding"):
            candidates, state = algorithm.ask(k_ask, state, wanted)
        if candidates:
            with clock("acting" if first else "exploring"):  # once anything was told, the state before it is gone
                played = workers.map(candidates)
            with clock("breeding"):
                state = jax.block_until_ready(algorithm.tell(k_tell, state, played))
            outcomes += played
        elif not algorithm.steps_owed(state):
            raise RuntimeError(NOTHING_TO_DO)
        clock.seconds.setdefault("learning", 0.0)  # also where there is nothing to learn yet
        while steps := algorithm.steps_owed(state):
            with clock(algorithm.learning_phase(state)):
                workers.learn_in_background(algorithm.learn, jax.random.fold_in(k_learn, learn_count), state, steps)
                state = replace(state, learner=workers.next(wait=True).learner)
                learn_count += 1
        if candidates:  # else ask again, now that the learner has caught up
            wanted = algorithm.still_to_ask(state)
            learn_count = 0
    return state, outcomes


def asynchronous(
    algorithm: Algorithm, workers: Workers, key: Array, state: Any, clock: Clock, frames: float = math.inf
) -> tuple[Any, list[Outcome]]:
    """As many tells as a generation has candidates, or all that are out once `frames` more have been played.

    Results are told in the order in which they are done. An idle worker gets a candidate at once; where the algorithm has
    none, it is asked again after the next result. With one worker in this process it is the serial loop: ask, try, tell, learn.
    """
    k_ask, k_tell, k_learn = jax.random.split(key, 3)
    outcomes: list[Outcome] = []
    asked = learn_count = 0
    while True:
        if not workers.learning and (steps := algorithm.steps_owed(state)):
            with clock(algorithm.learning_phase(state)):
                workers.learn_in_background(algorithm.learn, jax.random.fold_in(k_learn, learn_count), state, steps)
                learn_count += 1
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


SCHEDULES = {"synchronous": synchronous, "asynchronous": asynchronous}
