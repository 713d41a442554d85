"""The far side of the wire: a process that tries candidates."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from genepool.errors import UserError
from genepool.types import Transitions
from genepool.workers.local import LocalWorkers, individuals_to_play
from genepool.workers.ray.wire import Receiver, dumps, loads
from genepool.xla import apply_settings


class Played(NamedTuple):
    """What a worker sends back."""

    # after a lesson; none: the actor that was sent, or what its perturbation makes of it, which the receiver computes itself
    actor: bytes | None
    returns: tuple[float, ...]
    transitions: Transitions
    reference: tuple[tuple[float, ...], int]  # returns and frames
    seconds: tuple[float, float, float]
    lengths: tuple[int, ...]


class Player:
    """The worker: makes the individual that is to play, then plays. It keeps the latest version of what candidates share."""

    def __init__(self, process_settings: dict[str, Any], task: bytes, get: Callable[[Any], Any]):
        apply_settings(process_settings)
        self._workers = LocalWorkers(loads(task), alone=True)
        self._receiver = Receiver(get)

    def greet(self) -> int:
        """Say that it is there, by its process."""
        return os.getpid()

    def play(self, parcel: list[tuple[bytes, dict[str, list[Any]]]]) -> list[Played] | str:
        """What comes of candidates that are played side by side, or what was wrong with the environment."""
        begun = time.perf_counter()
        candidates = [self._receiver.unpack(message, references) for message, references in parcel]
        fetched = time.perf_counter()
        # one by one, for it has one core
        individuals = [individuals_to_play([candidate])[0] for candidate in candidates]
        learnt = time.perf_counter()
        ready = [
            replace(candidate, individual=individual, perturbation=None, lesson=None)
            for candidate, individual in zip(candidates, individuals, strict=True)
        ]
        try:
            outcomes = self._workers.map(ready)
        except UserError as error:
            self._workers.close()
            return str(error)
        end = time.perf_counter()
        seconds = end - begun, learnt - fetched, end - learnt
        return [
            Played(
                None if candidate.lesson is None else dumps(individual.actor),
                outcome.returns,
                outcome.transitions,
                (outcome.reference_returns, outcome.reference_frames),
                seconds,
                outcome.lengths,
            )
            for candidate, individual, outcome in zip(candidates, individuals, outcomes, strict=True)
        ]
