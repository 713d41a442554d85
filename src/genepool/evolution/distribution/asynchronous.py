"""AES-RL (Lee et al. 2020): an evolution strategy that moves with every single outcome.

A mean rule (Eq. 5 to 10) decides how far the mean moves towards an individual (Eq. 4). A variance rule (Eq. 12, or the
one-fifth success rule) decides how the variance changes (Eq. 11). Any two of them go together (Table 2).
`RankES` is the asynchronous rank-based strategy that the paper compares with.
"""

import math
from dataclasses import field, replace
from typing import Any, ClassVar, Literal

import equinox as eqx
import numpy as np
from jax import Array

from genepool.errors import UserError
from genepool.evolution.distribution.cem import KNOWN, Archive, Results, check_size, empty_archive, log_weights, ranked
from genepool.parts import part
from genepool.trees import host_random


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
    """Eq. 8: p = p_sg / (1 + exp(-(f(z) - f(mu)) / r)). The authors' code has no p_sg: worse individuals attract too."""

    signed: bool = False  # the printed equation: p_sg is p+ for a better individual, p- for another
    p_plus: float = 1.0  # p+: weight of a better individual, where signed
    p_minus: float = 0.0  # p-: weight of a worse one, where signed

    def __call__(self, z: float, mu: float, scale: float) -> float:
        """How far the mean moves towards an individual of fitness z."""
        sign = 1.0 if not self.signed else self.p_plus if z > mu else self.p_minus
        x = (z - mu) / scale
        return sign * (1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x)))


@part
class AbsoluteBaseline:
    """Eq. 9: p = (f(z) - f_b) / ((f(mu) - f_b) + (f(z) - f_b)), with f_b = -scale.

    In [0, 1] and 0 below the baseline, as in the authors' code. The equation has its pole where the mean itself is not
    above the baseline: there p is 1 for a better individual, else 0.
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
    """Eq. 10: the same with a baseline below the mean: p = (d + f_b) / (d + 2 f_b) with d = f(z) - f(mu), f_b the scale."""

    printed: bool = False  # the printed equation: below the baseline the mean moves away, by p-
    p_plus: float = 1.0  # p+: weight above the baseline, where printed
    p_minus: float = 0.0  # p-: weight below it, where printed

    def __call__(self, z: float, mu: float, scale: float) -> float:
        """How far the mean moves towards an individual of fitness z."""
        above = z - mu + scale  # f(z) - f_rb
        if self.printed:
            if above <= -scale:
                return 0.0  # at the pole and beyond it
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
    """Eq. 12: the same with n = max((1 - p) / p, n_min). At n_min = 1 and p > 1/2 nothing of the old variance is left."""

    n_min: float = 1.0  # the smallest n; the paper and the authors' code have 1

    def n(self, p: float) -> float:
        """Over how many individuals the variance is averaged."""
        return max((1.0 - p) / p, self.n_min)

    def __call__(self, v: np.ndarray, deviation: np.ndarray, p: float, window: np.ndarray) -> np.ndarray:
        """The variance after an individual that deviates from the mean by this much."""
        return v + ((1.0 - p) * deviation**2 - v) / self.n(p) if p > 0.0 else v


@part
class SuccessRule:
    """The one-fifth rule: if more than a fifth of the last individuals were better, the variance grows, else it shrinks."""

    goal: float = 0.2  # the share of successes to keep
    factor: float = 0.99  # the variance is multiplied by it, or divided
    window: int = 10  # how many of the last individuals count
    frozen: bool = False  # as the authors' code: the first individuals count for ever

    def __call__(self, v: np.ndarray, deviation: np.ndarray, p: float, window: np.ndarray) -> np.ndarray:
        """The variance after the outcomes in the window, oldest first, NaN where there are fewer."""
        if np.isnan(window).any():
            return v
        return v / np.float32(self.factor) if window.mean() > self.goal else v * np.float32(self.factor)


class AsynchronousState(eqx.Module):
    """Mean and diagonal variance, and whether the last individuals were better than the mean."""

    mean: np.ndarray
    variance: np.ndarray
    window: np.ndarray  # oldest first, NaN where there are fewer
    p: np.ndarray  # of the last outcome


@part
class AsynchronousES:
    """Eq. 4 and 11: mu' = (1 - p) mu + p z, and the variance follows. Results are told in any order."""

    needs_reference: ClassVar[bool] = True  # whether an outcome is compared with the fitness of the mean
    takes_lessons: ClassVar[bool] = True  # whether an individual that learnt before it was tried may be told
    has_upcoming: ClassVar[bool] = False  # whether its state has `sample`, rows that are handed out in order

    mean_rule: FullMove | LinearRange | SigmoidRange | AbsoluteBaseline | RelativeBaseline = field(
        default_factory=RelativeBaseline
    )  # how far the mean moves
    variance_rule: FixedN | AdaptiveN | SuccessRule = field(default_factory=AdaptiveN)  # how the variance changes
    scale: float = 2000.0  # r, f_b: the difference in fitness that counts as large on the task
    initial_variance: float = 1e-3  # sigma_init, a variance
    variance_floor: float = 1e-5  # no variance falls below it
    variance_cap: float = math.inf  # no variance rises above it
    smallest_p: float = 1e-3  # below it, the variance is left as it is
    population: int = 10  # candidates between two records, whose frames are a lesson's steps
    reference_episodes: int = 5  # of the mean beside every individual
    reference_cache: bool = False  # count episodes of the same mean that are known already

    def __post_init__(self):
        check_size(self.population, 1)
        if not 0.0 <= self.variance_floor <= self.variance_cap or self.initial_variance < 0:
            raise UserError("the variance floor is 0 or more and at most the cap, the initial variance 0 or more")
        if not self.scale > 0:
            raise UserError(f"scale is {self.scale}: it is a difference in fitness, above 0")
        if not 1 <= self.reference_episodes <= KNOWN:
            raise UserError(f"reference_episodes is {self.reference_episodes}: it must lie between 1 and {KNOWN}")

    def init(self, key: Array, mean: np.ndarray) -> AsynchronousState:
        """A distribution around this mean."""
        window = np.full(getattr(self.variance_rule, "window", 1), np.nan)
        variance = np.full_like(mean, self.initial_variance)
        return AsynchronousState(mean, variance, window, np.zeros(()))

    def ask(self, key: Array, state: AsynchronousState, n: int) -> tuple[np.ndarray, AsynchronousState]:
        """z = mu + sqrt(v) xi."""
        noise = host_random(key).standard_normal((n, state.mean.size), np.float32)
        return state.mean + np.sqrt(state.variance) * noise, state

    def tell(self, key: Array, state: AsynchronousState, results: Results) -> AsynchronousState:
        """Move towards each in turn, as far as the rules say. What is not a number is passed over."""
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
        """How the variance stands, for the record."""
        v = state.variance
        return {
            "variance": float(np.median(v)),
            "variance_mean": float(v.mean()),
            "variance_at_floor": float(np.mean(v <= self.variance_floor)),
        }


class RankState(eqx.Module):
    """Mean, diagonal variance, and the latest individuals."""

    mean: np.ndarray
    variance: np.ndarray
    epsilon: np.ndarray
    archive: Archive  # a ring, whose count goes on beyond its size


@part
class RankES:
    """The rank-based asynchronous strategy (after Glasmachers 2013): CEM's update on the last N, after every outcome."""

    needs_reference: ClassVar[bool] = False  # whether an outcome is compared with the fitness of the mean
    takes_lessons: ClassVar[bool] = True  # whether an individual that learnt before it was tried may be told
    has_upcoming: ClassVar[bool] = False  # whether its state has `sample`, rows that are handed out in order

    population: int = 10  # N: individuals in the archive
    replaces: Literal["oldest", "worst"] = "oldest"  # which one a new one replaces; the worst only if it is better
    eta: float | None = None  # how far the mean moves towards the elites' mean; none: 1/N, as the authors' code
    initial_variance: float = 1e-3  # sigma_init, a variance
    epsilon: float = 1e-3  # what is added to the variance at first
    final_epsilon: float = 1e-5  # and what that decays to
    epsilon_decay: float = 0.90  # per N individuals

    def __post_init__(self):
        check_size(self.population)

    def init(self, key: Array, mean: np.ndarray) -> RankState:
        """A distribution around this mean, and an empty archive."""
        variance = np.full_like(mean, self.initial_variance)
        archive = empty_archive(self.population, mean.size)
        return RankState(mean, variance, np.asarray(self.epsilon), archive)

    def ask(self, key: Array, state: RankState, n: int) -> tuple[np.ndarray, RankState]:
        """z = mu + sqrt(v) xi."""
        noise = host_random(key).standard_normal((n, state.mean.size), np.float32)
        return state.mean + np.sqrt(state.variance) * noise, state

    def tell(self, key: Array, state: RankState, results: Results) -> RankState:
        """Put each into the archive. Once that is full, move after each. What is not a number is passed over."""
        for z, fitness in zip(results.vectors, results.fitness, strict=True):
            if math.isfinite(fitness) and np.isfinite(z).all():
                state = self._moved(state, z, float(fitness))
        return state

    def _moved(self, state: RankState, z: np.ndarray, fitness: float) -> RankState:
        vectors = state.archive.vectors.copy()
        values = state.archive.fitness.copy()
        count = int(state.archive.count)
        at = count % self.population
        if self.replaces == "worst" and count >= self.population:
            at = int(np.argmin(values))
        if self.replaces == "oldest" or count < self.population or fitness > values[at]:
            vectors[at] = z
            values[at] = fitness
        state = replace(state, archive=Archive(vectors, values, np.asarray(count + 1)))
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
