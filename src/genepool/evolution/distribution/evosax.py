"""Evosax: any evolution strategy of the library evosax that searches around a mean."""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

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
)
from genepool.parts import part


class EvosaxState(eqx.Module):
    """The state of evosax's strategy, the sample that is being handed out, and its results so far."""

    inner: Any  # evosax's own state
    mean: np.ndarray
    sample: np.ndarray  # [N, d]
    handed: np.ndarray  # rows of the sample that were handed out
    archive: ResultsArchive


@part
class Evosax:
    """An ask-and-tell strategy of evosax, by the name of its class. evosax minimises; we maximise."""

    needs_reference: ClassVar[bool] = False  # whether an outcome is compared with the fitness of the mean
    has_upcoming: ClassVar[bool] = True  # whether its state has a `sample` that is handed out row by row

    strategy: str = "Sep_CMA_ES"  # its class in evosax.algorithms, such as CMA_ES, Open_ES, SNES, PGPE
    population: int = 10  # individuals per generation
    std: float = 0.0316  # of the first sample; the square root of CEM's initial variance
    rate: float = 0.01  # Adam's learning rate, for strategies that climb an estimated gradient

    def __post_init__(self):
        check_size(self.population)
        if self.std <= 0 or self.rate <= 0:
            raise UserError(f"std is {self.std} and rate {self.rate}: both must be above 0")
        _compiled(self, 2)

    @property
    def takes_lessons(self) -> bool:
        """Whether it accepts individuals that took a lesson.

        A strategy that climbs an estimated gradient does not: after a lesson the vector is no sample of the strategy's
        distribution, so the estimate is wrong.
        """
        return "optimizer" not in inspect.signature(getattr(_algorithms(), self.strategy)).parameters

    @staticmethod
    def named(name: str) -> "Evosax | None":
        """The strategy by a name such as sep-cma-es; None if evosax has none of that name."""
        wanted = name.replace("-", "_").lower()
        found = [kind for kind in dir(_algorithms()) if kind.lower() == wanted]
        return Evosax(found[0]) if found else None

    def init(self, key: Array, mean: np.ndarray) -> EvosaxState:
        """The strategy around this mean, and its first sample."""
        k_init, k_sample = jax.random.split(key)
        inner = _host(_compiled(self, mean.size).init(k_init, mean))
        zero = np.zeros((), np.int64)
        archive = empty_archive(self.population, mean.size)
        return self._sampled(k_sample, EvosaxState(inner, mean, archive.vectors, zero, archive))

    def _sampled(self, key: Array, state: EvosaxState) -> EvosaxState:
        """The state with a new sample, of which no row was handed out."""
        sample, inner = _host(_compiled(self, state.mean.size).ask(key, state.inner))
        return replace(state, inner=inner, sample=sample, handed=np.zeros((), np.int64))

    def ask(self, key: Array, state: EvosaxState, n: int) -> tuple[np.ndarray, EvosaxState]:
        """The next n rows of the sample. If it is used up before all its results are told, another is drawn."""
        return hand_out(state, n, lambda k: self._sampled(jax.random.fold_in(key, k), state))

    def tell(self, key: Array, state: EvosaxState, results: Results) -> EvosaxState:
        """Keep the results. With those of a whole population, move. A fitness that is not finite is the worst."""
        populations, archive = completed(state.archive, results)
        state = replace(state, archive=archive)
        for k, (vectors, fitness) in enumerate(populations):
            finite = np.isfinite(fitness)
            if finite.any():
                loss = -np.where(finite, fitness, fitness[finite].min()).astype(np.float32)
                vectors = np.where(np.isfinite(vectors), vectors, state.mean)
                tell = _compiled(self, state.mean.size).tell
                inner = _host(tell(jax.random.fold_in(key, 2 * k), vectors, loss, state.inner))
                state = replace(state, inner=inner, mean=inner.mean)
            state = self._sampled(jax.random.fold_in(key, 2 * k + 1), state)
        return state

    def mean(self, state: EvosaxState) -> np.ndarray:
        """The strategy's mean."""
        return state.mean

    def report(self, state: EvosaxState) -> dict[str, Any]:
        """Nothing."""
        return {}


class _Compiled(NamedTuple):
    init: Callable[[Array, np.ndarray], Any]
    ask: Callable[[Array, Any], tuple[Array, Any]]
    tell: Callable[[Array, np.ndarray, np.ndarray, Any], Any]


def _host(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)


def _algorithms() -> ModuleType:
    try:
        return importlib.import_module("evosax.algorithms")
    except ImportError:
        raise UserError("evosax is not installed: pip install 'genepool[evosax]'") from None


@lru_cache(maxsize=8)
def _compiled(settings: Evosax, dimension: int) -> _Compiled:
    """The strategy's functions for vectors of this length."""
    kind = getattr(_algorithms(), settings.strategy, None)
    optax = importlib.import_module("optax")
    if not isinstance(kind, type) or not hasattr(kind, "init"):
        raise UserError(
            f"evosax has no strategy {settings.strategy!r}: take one of its list of algorithms, such as Sep_CMA_ES"
        )
    options: dict[str, Any] = {"population_size": settings.population, "solution": np.zeros(dimension, np.float32)}
    names = inspect.signature(kind).parameters
    if "optimizer" in names:
        options["optimizer"] = optax.adam(settings.rate)
    if "std_schedule" in names:
        options["std_schedule"] = optax.constant_schedule(settings.std)
    if "mean" not in inspect.signature(kind.init).parameters:
        raise UserError(
            f"evosax's {settings.strategy} has no mean to search around: take one that has, such as Sep_CMA_ES"
        )
    try:
        strategy = kind(**options)
    except (AssertionError, TypeError, ValueError) as error:
        raise UserError(
            f"evosax's {settings.strategy} cannot be made with {settings.population} individuals: {error}"
        ) from None
    params = strategy.default_params
    if hasattr(params, "std_init"):
        params = params.replace(std_init=settings.std)
    return _with_params(strategy, params)


def _with_params(strategy: Any, params: Any) -> _Compiled:
    def init(key: Array, mean: Array) -> Any:
        return strategy.init(key, mean, params)

    def ask(key: Array, state: Any) -> tuple[Array, Any]:
        return strategy.ask(key, state, params)

    def tell(key: Array, vectors: Array, loss: Array, state: Any) -> Any:
        return strategy.tell(key, vectors, loss, state, params)[0]

    return _Compiled(jax.jit(init), jax.jit(ask), jax.jit(tell))
