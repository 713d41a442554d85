"""A Ray worker: a process that tries candidates."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from genepool.errors import UserError
from genepool.workers.local import LocalWorkers, individuals_to_play
from genepool.workers.ray.jobs import Reply
from genepool.workers.ray.wire import Receiver, dumps, loads
from genepool.xla import apply_settings


class RayWorker:
    """Makes the individuals that are to play, then plays them. It keeps the latest version of what candidates share."""

    def __init__(self, settings: dict[str, Any], task: bytes, get: Callable[[Any], Any]):
        apply_settings(settings)
        self._workers = LocalWorkers(loads(task), alone=True)
        self._receiver = Receiver(get)

    def greet(self) -> int:
        """Say that this worker has started, by its process id."""
        return os.getpid()

    def play(self, packed: list[tuple[bytes, dict[str, list[Any]]]]) -> list[Reply] | str:
        """Try packed candidates in one batch: a reply for each, or the message of an environment's error."""
        begun = time.perf_counter()
        candidates = [self._receiver.unpack(message, references) for message, references in packed]
        unpacked = time.perf_counter()
        # one call each, so that they do not run in threads: a worker has one core
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
        seconds = (end - begun, learnt - unpacked, end - learnt)
        return [
            Reply(
                None if candidate.lesson is None else dumps(individual.actor),
                outcome.returns,
                outcome.transitions,
                (outcome.reference_returns, outcome.reference_frames),
                seconds,
                outcome.lengths,
            )
            for candidate, individual, outcome in zip(candidates, individuals, outcomes, strict=True)
        ]
