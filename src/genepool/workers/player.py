"""The far side of the wire: a process that tries one candidate after the other."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from genepool.errors import UserError
from genepool.machine import adopt
from genepool.types import Transitions
from genepool.workers.local import LocalWorkers, taught
from genepool.workers.wire import Receiver, dumps, loads


class Played(NamedTuple):
    """What a worker sends back."""

    actor: bytes | None  # after a lesson that is not quicker taken again
    returns: tuple[float, ...]
    transitions: Transitions
    reference: tuple[tuple[float, ...], int]  # returns and frames
    seconds: tuple[float, float, float]
    lengths: tuple[int, ...]


class Player:
    """The worker: learns the lesson if there is one, then acts. It keeps the latest version of what candidates share."""

    def __init__(self, surroundings: dict[str, Any], task: bytes, get: Callable[[Any], Any]):
        adopt(surroundings)
        self._workers = LocalWorkers(loads(task), alone=True)
        self._receiver = Receiver(get)

    def greet(self) -> int:
        """Say that it is there, by its process."""
        return os.getpid()

    def play(self, message: bytes, references: dict[str, list[Any]]) -> Played | str:
        """What comes of a candidate, or what was wrong with the environment."""
        begun = time.perf_counter()
        candidate = self._receiver.unpack(message, references)
        fetched = time.perf_counter()
        individual = taught([candidate])[0]
        learnt = time.perf_counter()
        try:
            outcome = self._workers.map([replace(candidate, individual=individual, lesson=None)])[0]
        except UserError as error:
            self._workers.close()
            return str(error)
        end = time.perf_counter()
        return Played(
            dumps(individual.actor) if candidate.lesson and not getattr(candidate.lesson, "brief", False) else None,
            outcome.returns,
            outcome.transitions,
            (outcome.reference_returns, outcome.reference_frames),
            (time.perf_counter() - begun, learnt - fetched, end - learnt),
            outcome.lengths,
        )
