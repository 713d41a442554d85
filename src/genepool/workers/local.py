"""Local workers: the episodes of a generation, played in this process and in worker processes of this machine."""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jax import Array

from genepool.acting.batch import CAPACITY
from genepool.acting.episodes import Rollout, RolloutResult, play, returns
from genepool.cores import last_cache, map_on_cores
from genepool.environments.task import Task
from genepool.protocols import Engine
from genepool.types import Candidate, Individual, LearningResult, Outcome, Transitions
from genepool.workers import processes

# Bytes of weights in a batch: half of a core's share of the last cache. The weights are read in every step, so more
# would come from memory; smaller batches spend most of their time in Python.
MAX_BATCH_BYTES = 32 * 2**20
BATCH_BYTES = min(max(last_cache() // 2, 8 * 2**20), MAX_BATCH_BYTES)

Player = Callable[[list[Rollout]], list[RolloutResult] | None]  # plays a batch; None if its process is lost


class LocalWorkers:
    """Plays candidates on one task, in this process and, unless `alone`, in worker processes too.

    An outcome depends on its candidate only: not on the other candidates, nor on the process that plays it.

    To the asynchronous schedule this is one worker, and learning is done when it is asked for: the serial loop.
    """

    name = "local"
    learning = False

    def __init__(self, task: Task, alone: bool = False):
        self.task = task
        self._alone = alone
        self._free_engines: list[Engine] = []
        self._submitted: deque[Candidate] = deque()
        self._learning_results: deque[LearningResult] = deque()

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Play all candidates, after their perturbations and lessons. The outcomes are in the candidates' order."""
        individuals = individuals_to_play(candidates)
        rollouts: list[Rollout] = []
        for candidate, individual in zip(candidates, individuals, strict=True):
            rollouts += own_rollouts(candidate, individual)
            if candidate.reference is not None:
                rollouts += [Rollout(candidate.reference, None, seed) for seed in candidate.reference_seeds]
        results = iter(self._play(rollouts))
        outcomes: list[Outcome] = []
        for candidate, individual in zip(candidates, individuals, strict=True):
            own = [next(results) for _ in candidate.seeds]
            reference = [next(results) for _ in candidate.reference_seeds]
            outcomes.append(_outcome(candidate, individual, own, reference))
        return outcomes

    def _play(self, rollouts: list[Rollout]) -> list[RolloutResult]:
        """Play the rollouts in several batches at once: one here, and one in each worker process."""
        if not rollouts:
            return []
        cores = 1 if self._alone else self.task.threads
        count = process_count(cores, len(rollouts))
        batches = split_into_batches(rollouts, count)
        helpers = processes.pool.acquire(count - 1)
        begun = time.perf_counter()
        try:
            here = partial(self._play_here, max(1, cores // count))
            results = play_at_once(batches, here, [partial(helper.play, self.task) for helper in helpers])
        finally:
            processes.pool.release(helpers)
        if len(helpers) < count - 1:
            processes.pool.report_missing(count - 1, time.perf_counter() - begun)
        return [result for batch in results for result in batch]

    def _play_here(self, threads: int, batch: list[Rollout]) -> list[RolloutResult]:
        engine = self._free_engines.pop() if self._free_engines else self.task.open()
        try:
            return play(self.task, engine, threads, batch)
        finally:
            self._free_engines.append(engine)

    @property
    def idle(self) -> int:
        """1 while no candidate is submitted."""
        return 1 - len(self._submitted)

    @property
    def busy(self) -> int:
        """1 while a candidate is submitted."""
        return len(self._submitted)

    def submit(self, candidate: Candidate) -> None:
        """Keep the candidate; `next` plays it."""
        self._submitted.append(candidate)

    def learn_in_background(self, learn: Callable[[Array, Any], Any], key: Array, state: Any, steps: int) -> None:
        """Learn at once, in the foreground; `next` returns the result."""
        self._learning_results.append(LearningResult(jax.block_until_ready(learn(key, state).learner)))

    def next(self, wait: bool) -> Outcome | LearningResult | None:
        """The result of learning, or the outcome of the submitted candidate."""
        if self._learning_results:
            return self._learning_results.popleft()
        return self.map([self._submitted.popleft()])[0] if wait and self._submitted else None

    def close(self) -> None:
        """Free the environments."""
        while self._free_engines:
            self._free_engines.pop().close()


def process_count(cores: int, episodes: int) -> int:
    """Processes that play so many episodes: at most sqrt(episodes), as smaller batches are all overhead."""
    return min(cores, math.isqrt(episodes))


def individuals_to_play(candidates: Sequence[Candidate]) -> list[Individual]:
    """The candidates' individuals, first perturbed, then after their lessons. All cores share the work."""

    def changed(candidate: Candidate) -> Individual:
        actor = candidate.individual.actor
        if candidate.perturbation is not None:
            actor = candidate.perturbation(actor)
        if candidate.lesson is not None:
            actor = candidate.lesson(actor)
        return candidate.individual._replace(actor=actor)

    if all(candidate.perturbation is None and candidate.lesson is None for candidate in candidates):
        return [candidate.individual for candidate in candidates]
    return map_on_cores(changed, candidates)


def own_rollouts(candidate: Candidate, individual: Individual) -> list[Rollout]:
    """The rollouts of a candidate itself, without those of its reference."""
    steps = candidate.steps or (0,) * len(candidate.seeds)
    noise = candidate.noise
    noises = list(noise) if noise is not None and noise.ndim == 3 else [noise] * len(candidate.seeds)
    return [Rollout(individual.actor, *rest) for rest in zip(noises, candidate.seeds, steps, strict=True)]


def split_into_batches(rollouts: list[Rollout], count: int) -> list[list[Rollout]]:
    """The rollouts in order, in batches of about the same size, whose number is a multiple of `count`."""
    heaviest = max(sum(4 * np.size(leaf) for leaf in jax.tree.leaves(rollout.actor)) for rollout in rollouts)
    largest = min(max(BATCH_BYTES // heaviest, 1), CAPACITY)
    batches = min(count * -(-len(rollouts) // (largest * count)), len(rollouts))
    borders = [len(rollouts) * k // batches for k in range(batches + 1)]
    return [rollouts[begin:end] for begin, end in pairwise(borders)]


def play_at_once(batches: list[list[Rollout]], here: Player, elsewhere: Sequence[Player]) -> list[list[RolloutResult]]:
    """The results of each batch. A player that is free takes the largest batch left, so that all end together."""
    waiting = deque(sorted(enumerate(batches), key=lambda numbered: -len(numbered[1])))
    results: list[list[RolloutResult]] = [[] for _ in batches]

    def work(player: Player) -> None:
        while waiting:
            try:
                k, batch = waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                found = player(batch)
            except BaseException:  # Ctrl-C, or an episode that failed: the others stop too
                waiting.clear()
                raise
            if found is None:  # its process is lost
                waiting.append((k, batch))
                return
            results[k] = found

    with ThreadPoolExecutor(1 + len(elsewhere)) as threads:
        futures = [threads.submit(work, player) for player in elsewhere]
        work(here)
    for future in futures:
        future.result()
    work(here)  # batches of lost processes
    return results


def _outcome(
    candidate: Candidate, individual: Individual, own: Sequence[RolloutResult], reference: Sequence[RolloutResult]
) -> Outcome:
    columns = zip(*(result.transitions for result in own), strict=True)
    rows = Transitions(*(np.concatenate(column) for column in columns))
    frames = sum(sum(result.lengths) for result in reference)
    lengths = tuple(length for result in own for length in result.lengths)
    return Outcome(candidate, individual, returns(own), rows, returns(reference), frames, lengths)
