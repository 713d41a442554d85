"""CEM: the cross-entropy method over the actor's weights (CEM-RL; AES-RL Eq. 1 and 2).

Individuals are flat vectors here. Results may be told in any portions. The mean moves once the results of a whole
population were told.
"""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jax import Array

from genepool.errors import UserError
from genepool.evolution.distribution.shared import (
    Results,
    ResultsArchive,
    check_size,
    completed,
    empty_archive,
    hand_out,
    log_weights,
    ranked,
)
from genepool.parts import part
from genepool.trees import host_random


def mirrored(rng: np.random.Generator, rows: int, dimension: int) -> np.ndarray:
    """Standard normal rows. The second half is the negated first half, unless the number of rows is odd."""
    if rows % 2:
        return rng.standard_normal((rows, dimension), np.float32)
    half = rng.standard_normal((rows // 2, dimension), np.float32)
    return np.concatenate([half, -half])


class CEMState(eqx.Module):
    """Mean and diagonal variance, the sample that is being handed out, and its results so far."""

    mean: np.ndarray
    variance: np.ndarray
    epsilon: np.ndarray
    sample: np.ndarray  # [N, d]
    handed: np.ndarray  # rows of the sample that were handed out
    archive: ResultsArchive
    elite: np.ndarray  # the best vector of the last generation


@part
class CEM:
    """The cross-entropy method with diagonal covariance and mirrored samples, as CEM-RL has it."""

    needs_reference: ClassVar[bool] = False  # whether an outcome is compared with the fitness of the mean
    takes_lessons: ClassVar[bool] = True  # whether it accepts individuals that took a lesson
    has_upcoming: ClassVar[bool] = True  # whether its state has a `sample` that is handed out row by row

    population: int = 10  # N: individuals per generation
    initial_variance: float = 1e-3  # sigma_init, which both codes use as a variance
    epsilon: float = 1e-3  # is added to the variance; its first value
    final_epsilon: float = 1e-5  # the value that epsilon decays to
    epsilon_decay: float = 0.95  # tau_epsilon, of epsilon, per generation; AES-RL's code has 0.90
    antithetic: bool = True  # the second half of a sample mirrors the first
    divide_by_elites: bool = True  # the factor 1/K in the variance: in both codes, in neither paper's equation
    elitism: bool = False  # the last row of a sample is the best vector of the sample before

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
        """The state with a new sample, of which no row was handed out."""
        rng = host_random(key)
        shape = (self.population, state.mean.size)
        noise = mirrored(rng, *shape) if self.antithetic else rng.standard_normal(shape, np.float32)
        return replace(state, sample=state.mean + np.sqrt(state.variance) * noise, handed=np.zeros((), np.int64))

    def ask(self, key: Array, state: CEMState, n: int) -> tuple[np.ndarray, CEMState]:
        """The next n rows of the sample. If it is used up before all its results are told, another is drawn."""
        return hand_out(state, n, lambda k: self._sampled(jax.random.fold_in(key, k), state))

    def tell(self, key: Array, state: CEMState, results: Results) -> CEMState:
        """Keep the results. With those of a whole population, move.

        mu' = sum lambda_i z_i, v' = sum lambda_i (z_i - mu)^2 / K + epsilon.
        """
        populations, archive = completed(state.archive, results)
        state = replace(state, archive=archive)
        for k, (vectors, fitness) in enumerate(populations):
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
