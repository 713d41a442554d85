"""AES-RL (Lee et al. 2020): an evolution strategy that is updated by every single outcome.

A mean rule (Eq. 5 to 10) decides how far the mean moves towards an individual (Eq. 4). A variance rule (Eq. 12, or the
one-fifth success rule) decides how the variance changes (Eq. 11). Any mean rule works with any variance rule (Table 2).
"""

import math
from dataclasses import field
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jax import Array

from genepool.errors import UserError
from genepool.evolution.distribution.shared import MAX_MEAN_RETURNS, Results, check_size, normal_sample
from genepool.parts import part


@part
class FullMove:
    """Eq. 5, (1+1)-ES: p = 1 if f(z) > f(mu), else 0."""

    def __call__(self, z: float, mu: float, scale: float) -> float:
        """How far the mean moves towards an individual of fitness z."""
        return 1.0 if z > mu else 0.0


@part
class LinearRange:
    """Eq. 6 and 7: p = p_sg clip((f(z) - f(mu)) / r, -1, 1), where r is the scale."""

    p_plus: float = 1.0  # p+: weight of a better individual
    p_minus: float = 0.0  # p-: weight of a worse one, from which the mean moves away

    def __call__(self, z: float, mu: float, scale: float) -> float:
        """How far the mean moves towards an individual of fitness z."""
        sign = self.p_plus if z > mu else self.p_minus
        return sign * min(1.0, max(-1.0, (z - mu) / scale))


@part
class SigmoidRange:
    """Eq. 8: p = p_sg / (1 + exp(-(f(z) - f(mu)) / r)).

    Differs: the authors' code has no p_sg, so worse individuals attract the mean too.
    """

    signed: bool = False  # the printed equation: p_sg is p+ for a better individual, else p-
    p_plus: float = 1.0  # p+: weight of a better individual, if signed
    p_minus: float = 0.0  # p-: weight of a worse one, if signed

    def __call__(self, z: float, mu: float, scale: float) -> float:
        """How far the mean moves towards an individual of fitness z."""
        sign = 1.0 if not self.signed else self.p_plus if z > mu else self.p_minus
        x = (z - mu) / scale
        return sign * (1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x)))


@part
class AbsoluteBaseline:
    """Eq. 9: p = (f(z) - f_b) / ((f(mu) - f_b) + (f(z) - f_b)), with f_b = -scale.

    Like the authors' code, p lies in [0, 1] and is 0 below the baseline. The equation has a pole if the mean is not
    above the baseline. In that case p is 1 for a better individual, else 0.
    """

    printed: bool = False  # the printed equation, in [-1, 1]

    def __call__(self, z: float, mu: float, scale: float) -> float:
        """How far the mean moves towards an individual of fitness z."""
        above = z + scale  # f(z) - f_b
        mean_above = mu + scale
        if self.printed:
            total = above + mean_above
            return min(1.0, max(-1.0, above / total)) if total else 0.0
        if mean_above <= 0.0:
            return 1.0 if z > mu else 0.0
        return min(1.0, above / (above + mean_above)) if above > 0.0 else 0.0


@part
class RelativeBaseline:
    """Eq. 10: Eq. 9 with a baseline below the mean: p = (d + f_b) / (d + 2 f_b), d = f(z) - f(mu), f_b = scale."""

    printed: bool = False  # the printed equation: below the baseline the mean moves away, by p-
    p_plus: float = 1.0  # p+: weight above the baseline, if printed
    p_minus: float = 0.0  # p-: weight below it, if printed

    def __call__(self, z: float, mu: float, scale: float) -> float:
        """How far the mean moves towards an individual of fitness z."""
        above = z - mu + scale  # f(z) - f_rb
        if self.printed:
            if above <= -scale:
                return 0.0  # the pole of the equation lies at -scale
            sign = self.p_plus if above > 0.0 else self.p_minus
            return sign * min(1.0, max(-1.0, above / (scale + above)))
        return above / (above + scale) if above > 0.0 else 0.0


@part
class FixedN:
    """Eq. 11 with a fixed n: v' = v + ((z - mu)(z - mu') - v) / n, with (z - mu') = (1 - p)(z - mu)."""

    n: float = 10.0  # over how many individuals the variance is averaged

    def __call__(self, v: np.ndarray, deviation: np.ndarray, p: float, window: np.ndarray) -> np.ndarray:
        """The variance after an individual that deviates from the mean by this much."""
        return v + ((1.0 - p) * deviation**2 - v) / self.n


@part
class AdaptiveN:
    """Eq. 12: Eq. 11 with n = max((1 - p) / p, n_min). If n_min = 1 and p > 1/2, the old variance is discarded."""

    n_min: float = 1.0  # the smallest n; the paper and the authors' code have 1

    def n(self, p: float) -> float:
        """Over how many individuals the variance is averaged."""
        return max((1.0 - p) / p, self.n_min)

    def __call__(self, v: np.ndarray, deviation: np.ndarray, p: float, window: np.ndarray) -> np.ndarray:
        """The variance after an individual that deviates from the mean by this much."""
        return v + ((1.0 - p) * deviation**2 - v) / self.n(p) if p > 0.0 else v


@part
class SuccessRule:
    """The one-fifth rule: the variance grows if more than a fifth of the last individuals were better than the mean.

    Otherwise it shrinks.
    """

    goal: float = 0.2  # the share of successes to keep
    factor: float = 0.99  # the variance is multiplied or divided by it
    window: int = 10  # how many of the last individuals count
    frozen: bool = False  # as the authors' code: only the first individuals ever count

    def __call__(self, v: np.ndarray, deviation: np.ndarray, p: float, window: np.ndarray) -> np.ndarray:
        """The variance after the successes in the window: oldest first, NaN while there are too few."""
        if np.isnan(window).any():
            return v
        return v / np.float32(self.factor) if window.mean() > self.goal else v * np.float32(self.factor)


class AsynchronousState(eqx.Module):
    """Mean and diagonal variance, and whether the last individuals were better than the mean."""

    mean: np.ndarray
    variance: np.ndarray
    window: np.ndarray  # 1 for a success, else 0; oldest first, NaN while there are too few
    p: np.ndarray  # the mean rule's p of the last outcome


@part
class AsynchronousES:
    """Eq. 4 and 11: mu' = (1 - p) mu + p z, and the variance is updated. Results may be told in any order."""

    needs_reference: ClassVar[bool] = True  # whether an outcome is compared with the fitness of the mean
    takes_lessons: ClassVar[bool] = True  # whether it accepts individuals that took a lesson
    has_upcoming: ClassVar[bool] = False  # whether its state has a `sample` that is handed out row by row

    mean_rule: FullMove | LinearRange | SigmoidRange | AbsoluteBaseline | RelativeBaseline = field(
        default_factory=RelativeBaseline
    )  # how far the mean moves
    variance_rule: FixedN | AdaptiveN | SuccessRule = field(default_factory=AdaptiveN)  # how the variance changes
    scale: float = 2000.0  # r, f_b: a difference in fitness that is large on the task
    initial_variance: float = 1e-3  # sigma_init, a variance
    variance_floor: float = 1e-5  # no variance falls below it
    variance_cap: float = math.inf  # no variance rises above it
    smallest_p: float = 1e-3  # below it, the variance stays
    population: int = 10  # candidates between two records; their frames are the steps of a lesson
    reference_episodes: int = 5  # episodes of the mean that are played with every individual
    reference_cache: bool = False  # use earlier returns of the mean again while it is unchanged

    def __post_init__(self):
        check_size(self.population, 1)
        if not 0.0 <= self.variance_floor <= self.variance_cap or self.initial_variance < 0:
            raise UserError("the variance floor is 0 or more and at most the cap, the initial variance 0 or more")
        if not self.scale > 0:
            raise UserError(f"scale is {self.scale}: it is a difference in fitness, above 0")
        if not 1 <= self.reference_episodes <= MAX_MEAN_RETURNS:
            raise UserError(
                f"reference_episodes is {self.reference_episodes}: it must lie between 1 and {MAX_MEAN_RETURNS}"
            )

    def init(self, key: Array, mean: np.ndarray) -> AsynchronousState:
        """A distribution around this mean."""
        window = np.full(getattr(self.variance_rule, "window", 1), np.nan)
        variance = np.full_like(mean, self.initial_variance)
        return AsynchronousState(mean, variance, window, np.zeros(()))

    def ask(self, key: Array, state: AsynchronousState, n: int) -> tuple[np.ndarray, AsynchronousState]:
        """z = mu + sqrt(v) xi."""
        return normal_sample(key, state.mean, state.variance, n), state

    def tell(self, key: Array, state: AsynchronousState, results: Results) -> AsynchronousState:
        """Apply both rules to each result in turn. A result that is not finite is skipped."""
        assert results.reference is not None  # `needs_reference` says so
        for z, fitness, reference in zip(results.vectors, results.fitness, results.reference, strict=True):
            if math.isfinite(fitness) and math.isfinite(reference) and np.isfinite(z).all():
                state = self._moved(state, z, float(fitness), float(reference))
        return state

    def _moved(self, state: AsynchronousState, z: np.ndarray, fitness: float, reference: float) -> AsynchronousState:
        p = self.mean_rule(fitness, reference, self.scale)
        window = state.window
        rule = self.variance_rule
        if not (getattr(rule, "frozen", False) and not np.isnan(window).any()):
            window = np.append(window[1:], float(fitness > reference))
        mean = np.float32(1.0 - p) * state.mean + np.float32(p) * z  # Eq. 4
        variance = state.variance
        if p >= self.smallest_p or isinstance(rule, SuccessRule):
            variance = rule(variance, z - state.mean, p, window)  # Eq. 11
        variance = np.clip(variance, self.variance_floor, self.variance_cap).astype(np.float32)
        return AsynchronousState(mean, variance, window, np.asarray(p))

    def mean(self, state: AsynchronousState) -> np.ndarray:
        """mu."""
        return state.mean

    def report(self, state: AsynchronousState) -> dict[str, Any]:
        """The variance, for the record."""
        v = state.variance
        return {
            "variance": float(np.median(v)),
            "variance_mean": float(v.mean()),
            "variance_at_floor": float(np.mean(v <= self.variance_floor)),
        }
