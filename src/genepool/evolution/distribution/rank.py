"""RankES: the asynchronous rank-based strategy that AES-RL is compared with (Lee et al. 2020, Table 2)."""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import equinox as eqx
import numpy as np
from jax import Array

from genepool.evolution.distribution.shared import (
    Results,
    ResultsArchive,
    check_size,
    empty_archive,
    log_weights,
    normal_sample,
    ranked,
)
from genepool.parts import part


class RankState(eqx.Module):
    """Mean, diagonal variance, and the latest individuals."""

    mean: np.ndarray
    variance: np.ndarray
    epsilon: np.ndarray
    archive: ResultsArchive  # a ring; its count goes on beyond its size


@part
class RankES:
    """After every outcome, CEM's update on the last N results (after Glasmachers 2013)."""

    needs_reference: ClassVar[bool] = False  # whether an outcome is compared with the fitness of the mean
    takes_lessons: ClassVar[bool] = True  # whether it accepts individuals that took a lesson
    has_upcoming: ClassVar[bool] = False  # whether its state has a `sample` that is handed out row by row

    population: int = 10  # N: individuals in the archive
    replaces: Literal["oldest", "worst"] = "oldest"  # what a new result replaces; the worst only if the new is better
    eta: float | None = None  # step of the mean towards the elites' mean; none: 1/N, as the authors' code
    initial_variance: float = 1e-3  # sigma_init, a variance
    epsilon: float = 1e-3  # is added to the variance; its first value
    final_epsilon: float = 1e-5  # the value that epsilon decays to
    epsilon_decay: float = 0.90  # of epsilon, per N individuals

    def __post_init__(self):
        check_size(self.population)

    def init(self, key: Array, mean: np.ndarray) -> RankState:
        """A distribution around this mean, and an empty archive."""
        variance = np.full_like(mean, self.initial_variance)
        archive = empty_archive(self.population, mean.size)
        return RankState(mean, variance, np.asarray(self.epsilon), archive)

    def ask(self, key: Array, state: RankState, n: int) -> tuple[np.ndarray, RankState]:
        """z = mu + sqrt(v) xi."""
        return normal_sample(key, state.mean, state.variance, n), state

    def tell(self, key: Array, state: RankState, results: Results) -> RankState:
        """Put each result into the archive. Once that is full, move after each. What is not finite is skipped."""
        for z, fitness in zip(results.vectors, results.fitness, strict=True):
            if math.isfinite(fitness) and np.isfinite(z).all():
                state = self._moved(state, z, float(fitness))
        return state

    def _moved(self, state: RankState, z: np.ndarray, fitness: float) -> RankState:
        vectors = state.archive.vectors.copy()
        values = state.archive.fitness.copy()
        count = int(state.archive.count)
        index = count % self.population
        if self.replaces == "worst" and count >= self.population:
            index = int(np.argmin(values))
        if self.replaces == "oldest" or count < self.population or fitness > values[index]:
            vectors[index] = z
            values[index] = fitness
        state = replace(state, archive=ResultsArchive(vectors, values, np.asarray(count + 1)))
        if count + 1 < self.population:
            return state
        best = ranked(values, self.population // 2)
        weights = log_weights(len(best)).astype(np.float32)
        decay = self.epsilon_decay ** (1.0 / self.population)
        epsilon = decay * state.epsilon + (1.0 - decay) * self.final_epsilon
        eta = np.float32(1.0 / self.population if self.eta is None else self.eta)
        mean = state.mean + eta * (weights @ vectors[best] - state.mean)
        variance = weights @ (vectors[best] - state.mean) ** 2 / len(best) + np.float32(epsilon)
        return replace(state, mean=mean, variance=variance, epsilon=np.asarray(epsilon))

    def mean(self, state: RankState) -> np.ndarray:
        """mu."""
        return state.mean

    def report(self, state: RankState) -> dict[str, Any]:
        """The spread of the distribution, for the record."""
        return {"variance": float(np.median(state.variance)), "epsilon": float(state.epsilon)}
