"""What the strategies over flat vectors share: results and archives of them, elites and their weights, normal draws."""

from collections.abc import Callable
from dataclasses import Field, replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import equinox as eqx
import numpy as np
from jax import Array

from genepool.errors import UserError
from genepool.trees import host_random

MAX_MEAN_RETURNS = 64  # returns of an unchanged mean that are remembered


class Results(NamedTuple):
    """Vectors that were tried, and their fitness. A strategy that needs it also gets the fitness of the mean."""

    vectors: np.ndarray  # [n, d]
    fitness: np.ndarray  # [n]
    reference: np.ndarray | None = None  # [n]: fitness of the mean that each was compared with


class SampledState(Protocol):
    """The state of a strategy that hands out the rows of a sample: a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def sample(self) -> np.ndarray:
        """The sample, [N, d]."""
        ...

    @property
    def handed(self) -> np.ndarray:
        """How many of its rows were handed out."""
        ...


D = TypeVar("D", bound=SampledState)


class ResultsArchive(eqx.Module):
    """Results that a strategy keeps between two calls of `tell`."""

    vectors: np.ndarray  # [N, d]
    fitness: np.ndarray  # [N]
    count: np.ndarray  # results so far


def empty_archive(size: int, dimension: int) -> ResultsArchive:
    """An archive without results."""
    return ResultsArchive(np.zeros((size, dimension), np.float32), np.full(size, np.nan), np.zeros((), np.int64))


def completed(archive: ResultsArchive, results: Results) -> tuple[list[tuple[np.ndarray, np.ndarray]], ResultsArchive]:
    """The populations that these results complete, and the archive with the remaining results.

    A lesson that diverges leaves a vector that is not finite. The fitness of such a vector becomes NaN.
    """
    populations: list[tuple[np.ndarray, np.ndarray]] = []
    size = len(archive.fitness)
    count = int(archive.count)
    vectors = archive.vectors.copy()
    fitness = archive.fitness.copy()
    for vector, value in zip(results.vectors, results.fitness, strict=True):
        vectors[count] = vector
        fitness[count] = value if np.isfinite(vector).all() else np.nan
        count += 1
        if count == size:
            populations.append((vectors.copy(), fitness.copy()))
            count = 0
    return populations, ResultsArchive(vectors, fitness, np.asarray(count))


def ranked(fitness: np.ndarray, elites: int) -> np.ndarray:
    """The indices of the best, best first. A fitness that is not finite is never among them."""
    finite = np.flatnonzero(np.isfinite(fitness))
    return finite[np.argsort(-fitness[finite], kind="stable")][:elites]


def log_weights(elites: int) -> np.ndarray:
    """lambda_i = log((1 + K) / i) / sum_j log((1 + K) / j), i = 1 for the best."""
    weights = np.log((1.0 + elites) / np.arange(1, elites + 1))
    return weights / weights.sum()


def normal_sample(key: Array, mean: np.ndarray, variance: np.ndarray, n: int) -> np.ndarray:
    """n rows z = mu + sqrt(v) xi with xi ~ N(0, I)."""
    noise = host_random(key).standard_normal((n, mean.size), np.float32)
    return mean + np.sqrt(variance) * noise


def hand_out(state: D, n: int, resampled: Callable[[int], D]) -> tuple[np.ndarray, D]:
    """The next n rows of the state's sample, and the new state. After the last row of a sample, another is drawn."""
    rows: list[np.ndarray] = []
    for k in range(n):
        if int(state.handed) == len(state.sample):
            state = resampled(k)
        rows.append(state.sample[int(state.handed)])
        state = replace(state, handed=state.handed + 1)
    return np.stack(rows), state


def check_size(population: int, least: int = 2) -> None:
    """Refuse a population that is too small for a strategy."""
    if population < least:
        needed = "1 individual" if least == 1 else f"{least} individuals"
        raise UserError(f"population is {population}: a strategy needs {needed} or more")
