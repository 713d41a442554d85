"""A Ray worker: a process that tries candidates."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from genepool.errors import UserError
from genepool.workers.local import LocalWorkers, individuals_to_play
from genepool.workers.ray.jobs import Reference, Reply
from genepool.workers.ray.wire import Receiver, dumps, loads
from genepool.xla import apply_settings


class RayWorker:
    """Makes the individuals that are to play, then plays them. It keeps the latest version of what candidates share."""

    def __init__(self, settings: dict[str, Any], task: bytes, get: Callable[[list[Reference]], list[np.ndarray]]):
        apply_settings(settings)
        self._workers = LocalWorkers(loads(task), alone=True)
        self._receiver = Receiver(get)

    def greet(self) -> int:
        """Say that this worker has started, by its process id."""
        return os.getpid()

    def play(self, packed: list[tuple[bytes, dict[str, list[Reference]]]]) -> list[Reply] | str:
        """Perturb and teach packed candidates, then play all in one batch.

        Returns a reply for each, or the message of an environment's error.
        """
        begun = time.perf_counter()
        candidates = [self._receiver.unpack(message, references) for message, references in packed]
        unpacked = time.perf_counter()
        # one call for each candidate: a call with several would start threads, but a worker has one core
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
        seconds = (end - begun, learnt - unpacked, end - learnt)  # in all, learning, acting
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
