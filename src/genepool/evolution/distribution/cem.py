"""Search distributions over the actor's weights: CEM (CEM-RL; AES-RL Eq. 1 and 2).

Individuals are flat vectors here. Results are told in any portions. The mean moves when those of a whole population
have been told.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax import Array

from genepool.errors import UserError
from genepool.parts import part
from genepool.trees import host_random

KNOWN = 64  # returns of one and the same mean that are remembered


class Results(NamedTuple):
    """Vectors that were tried and their fitness. Where the strategy needs it, the fitness of the mean as well."""

    vectors: np.ndarray  # [n, d]
    fitness: np.ndarray  # [n]
    reference: np.ndarray | None = None  # [n]


class Archive(eqx.Module):
    """Vectors that were tried and are not used yet, and their fitness."""

    vectors: np.ndarray  # [N, d]
    fitness: np.ndarray  # [N]
    count: np.ndarray


def empty_archive(size: int, dimension: int) -> Archive:
    """No vector was tried yet."""
    return Archive(np.zeros((size, dimension), np.float32), np.full(size, np.nan), np.zeros((), np.int64))


def completed(archive: Archive, results: Results) -> tuple[list[tuple[np.ndarray, np.ndarray]], Archive]:
    """The whole populations that these results complete, and the archive with the rest of them.

    A vector that is not all numbers, after a lesson that diverged, has no fitness.
    """
    whole = []
    size = len(archive.fitness)
    count = int(archive.count)
    vectors = archive.vectors.copy()
    fitness = archive.fitness.copy()
    for vector, value in zip(results.vectors, results.fitness, strict=True):
        vectors[count] = vector
        fitness[count] = value if np.isfinite(vector).all() else np.nan
        count += 1
        if count == size:
            whole.append((vectors.copy(), fitness.copy()))
            count = 0
    return whole, Archive(vectors, fitness, np.asarray(count))


def ranked(fitness: np.ndarray, elites: int) -> np.ndarray:
    """The places of the best, best first; what is not a number is never among them."""
    finite = np.flatnonzero(np.isfinite(fitness))
    return finite[np.argsort(-fitness[finite], kind="stable")][:elites]


def log_weights(elites: int) -> np.ndarray:
    """lambda_i = log((1 + K) / i) / sum_j log((1 + K) / j), i = 1 for the best."""
    weights = np.log((1.0 + elites) / np.arange(1, elites + 1))
    return weights / weights.sum()


def mirrored(rng: np.random.Generator, rows: int, dimension: int) -> np.ndarray:
    """Standard normal rows of which the second half mirrors the first; none does if their number is odd."""
    if rows % 2:
        return rng.standard_normal((rows, dimension), np.float32)
    half = rng.standard_normal((rows // 2, dimension), np.float32)
    return np.concatenate([half, -half])


def hand_out(state: Any, n: int, resampled: Callable[[int], Any]) -> tuple[np.ndarray, Any]:
    """The next n rows of the state's sample, and the state after that. Where a sample is used up, another is drawn."""
    rows = []
    for k in range(n):
        if int(state.handed) == len(state.sample):
            state = resampled(k)
        rows.append(state.sample[int(state.handed)])
        state = replace(state, handed=state.handed + 1)
    return np.stack(rows), state


class CEMState(eqx.Module):
    """Mean and diagonal variance, the sample that is being handed out, and its results so far."""

    mean: np.ndarray
    variance: np.ndarray
    epsilon: np.ndarray
    sample: np.ndarray  # [N, d]
    handed: np.ndarray
    archive: Archive
    elite: np.ndarray  # the best of the last generation


def check_size(population: int, least: int = 2) -> None:
    """Refuse a population that is too small for a strategy."""
    if population < least:
        needed = "1 individual" if least == 1 else f"{least} individuals"
        raise UserError(f"population is {population}: a strategy needs {needed} or more")


@part
class CEM:
    """The cross-entropy method with diagonal covariance and mirrored samples, as CEM-RL has it."""

    needs_reference: ClassVar[bool] = False  # whether an outcome is compared with the fitness of the mean
    takes_lessons: ClassVar[bool] = True  # whether an individual that learnt before it was tried may be told
    has_upcoming: ClassVar[bool] = True  # whether its state has `sample`, rows that are handed out in order

    population: int = 10  # N: individuals per generation
    initial_variance: float = 1e-3  # sigma_init, which both codes use as a variance
    epsilon: float = 1e-3  # what is added to the variance at first
    final_epsilon: float = 1e-5  # and what that decays to
    epsilon_decay: float = 0.95  # tau_epsilon, per generation; AES-RL's code has 0.90
    antithetic: bool = True  # the second half of a sample mirrors the first
    divide_by_elites: bool = True  # the factor 1/K in the variance, in both codes and in neither paper's equation
    elitism: bool = False  # the last of a sample is the best of the one before

    def __post_init__(self):
        check_size(self.population)
        if min(self.initial_variance, self.epsilon, self.final_epsilon) < 0 or not 0 <= self.epsilon_decay <= 1:
            raise UserError("variances and epsilons are 0 or more, the decay lies between 0 and 1")

    @property
    def elites(self) -> int:
        """K: how many of a generation move the mean."""
        return self.population // 2

    def init(self, key: Array, mean: np.ndarray) -> CEMState:
        """A distribution around this mean, and its first sample."""
        variance = np.full_like(mean, self.initial_variance)
        zero = np.zeros((), np.int64)
        epsilon = np.asarray(self.epsilon)
        archive = empty_archive(self.population, mean.size)
        state = CEMState(mean, variance, epsilon, archive.vectors, zero, archive, mean)
        return self._sampled(key, state)

    def _sampled(self, key: Array, state: CEMState) -> CEMState:
        """The state with a new sample, none of it handed out."""
        rng = host_random(key)
        shape = (self.population, state.mean.size)
        noise = mirrored(rng, *shape) if self.antithetic else rng.standard_normal(shape, np.float32)
        return replace(state, sample=state.mean + np.sqrt(state.variance) * noise, handed=np.zeros((), np.int64))

    def ask(self, key: Array, state: CEMState, n: int) -> tuple[np.ndarray, CEMState]:
        """The next n of the sample. Where it is used up before all its results are told, another sample is drawn."""
        return hand_out(state, n, lambda k: self._sampled(jax.random.fold_in(key, k), state))

    def tell(self, key: Array, state: CEMState, results: Results) -> CEMState:
        """With the results of a whole population: mu' = sum lambda_i z_i, v' = sum lambda_i (z_i - mu)^2 / K + epsilon."""
        whole, archive = completed(state.archive, results)
        state = replace(state, archive=archive)
        for k, (vectors, fitness) in enumerate(whole):
            state = self._moved(jax.random.fold_in(key, k), state, vectors, fitness)
        return state

    def _moved(self, key: Array, state: CEMState, vectors: np.ndarray, fitness: np.ndarray) -> CEMState:
        best = ranked(fitness, self.elites)
        epsilon = self.epsilon_decay * state.epsilon + (1.0 - self.epsilon_decay) * self.final_epsilon
        if len(best):
            weights = log_weights(len(best)).astype(np.float32)
            divisor = len(best) if self.divide_by_elites else 1
            mean = weights @ vectors[best]  # Eq. 1
            variance = weights @ (vectors[best] - state.mean) ** 2 / divisor + np.float32(epsilon)  # Eq. 2
            state = replace(state, mean=mean, variance=variance, elite=vectors[best[0]])
        state = self._sampled(key, replace(state, epsilon=np.asarray(epsilon)))
        if self.elitism:
            state.sample[-1] = state.elite
        return state

    def mean(self, state: CEMState) -> np.ndarray:
        """mu."""
        return state.mean

    def report(self, state: CEMState) -> dict[str, Any]:
        """The spread of the distribution, for the record."""
        return {"variance": float(np.median(state.variance)), "epsilon": float(state.epsilon)}
