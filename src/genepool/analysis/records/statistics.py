"""Scores over seeds, as Agarwal et al. 2021 (rliable) recommend: interquartile means, bootstrap intervals, P(X > Y).

With few seeds, the percentile bootstrap covers the true mean less often than it says (see `bootstrap`), and a test of
two runs against two finds nothing (see `smallest_p`).
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

WINDOW = 10  # tests, in the authors' moving average
RESAMPLES = 2_000
CONFIDENCE = 0.95
ALPHA = 0.05  # a difference with a smaller p is reported as one
EXACT = 20_000  # up to so many arrangements, all are tried


def moving_average(values: Sequence[float], window: int = WINDOW) -> np.ndarray:
    """The mean of each value and up to `window` - 1 before it. ERL's and PDERL's authors report their last 10 so."""
    total = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - window)
    return (total[ends] - total[starts]) / (ends - starts)


def interquartile_mean(scores: np.ndarray, axis: int | None = None) -> np.ndarray:
    """The mean of the middle half: a quarter, rounded down, is cut off at each end. Below four scores, the mean."""
    from scipy.stats import trim_mean

    return trim_mean(scores, 0.25, axis=axis)


def bootstrap(
    statistic: Callable[..., np.ndarray],
    *strata: np.ndarray,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """The percentile interval of `statistic` when the runs of each stratum are drawn anew, with replacement.

    A stratum, [runs, ...], is one system on one task, and its runs are drawn from itself alone. `statistic` takes one
    array for each stratum and reduces their `axis`. For the mean of normal scores, intervals that say 95 % covered it
    in 94 % of the cases with 30 runs, in 90 % with 10 and in 85 % with 5; a test repeats it.
    """
    from scipy import stats

    found = stats.bootstrap(
        [np.asarray(stratum) for stratum in strata],
        statistic,
        n_resamples=resamples,
        vectorized=True,
        axis=0,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return found.confidence_interval.low, found.confidence_interval.high


def interval(scores: Sequence[float] | np.ndarray, statistic: str = "mean") -> tuple[np.ndarray, np.ndarray]:
    """The bootstrap interval of the mean or the interquartile mean over runs, [runs, ...]. NaN for a single run."""
    scores = np.asarray(scores, float)
    if len(scores) < 2:
        return np.full(scores.shape[1:], np.nan), np.full(scores.shape[1:], np.nan)
    return bootstrap(np.mean if statistic == "mean" else interquartile_mean, scores)


def probability_of_improvement(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
    """P(X > Y): the share of pairs in which x is larger, ties counting one half. Over the runs along `axis`."""
    x = np.moveaxis(np.asarray(x), axis, -1)[..., :, None]
    y = np.moveaxis(np.asarray(y), axis, -1)[..., None, :]
    return np.mean((x > y) + 0.5 * (x == y), axis=(-2, -1))


def mean_improvement(*pairs: np.ndarray, axis: int = -1) -> np.ndarray:
    """rliable's P(X > Y) over tasks: the mean of each task's. `pairs` are x and y of each task in turn."""
    tasks = zip(pairs[::2], pairs[1::2], strict=True)
    return np.mean([probability_of_improvement(x, y, axis) for x, y in tasks], axis=0)


def difference_of_means(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
    """The mean of x less the mean of y, over the runs along `axis`."""
    return np.mean(x, axis=axis) - np.mean(y, axis=axis)


def smallest_p(n: int, m: int) -> float:
    """The smallest two-sided p of n against m runs: all of one above all of the other, 2 / C(n + m, n)."""
    return min(1.0, 2.0 / math.comb(n + m, n))


def seeds_needed(alpha: float = ALPHA) -> int:
    """How many runs on each side a test needs before its p can fall below alpha."""
    return next(n for n in range(1, 100) if smallest_p(n, n) < alpha)


def rank_test(x: Sequence[float], y: Sequence[float]) -> float:
    """The two-sided p of the Mann-Whitney test. Exact, except for many runs and for a single run among ties."""
    from scipy.stats import PermutationMethod, mannwhitneyu

    few = math.comb(len(x) + len(y), len(x)) <= EXACT
    tied = len({*x, *y}) < len(x) + len(y)
    method = "exact" if few and not tied else "asymptotic"
    if few and tied and min(len(x), len(y)) > 1:
        method = PermutationMethod(n_resamples=EXACT)  # tries all arrangements
    return float(mannwhitneyu(x, y, alternative="two-sided", method=method).pvalue)


class Difference(NamedTuple):
    """How the scores x and y of two groups of runs differ. Intervals are NaN if a side has one run."""

    difference: float  # of the means, x - y
    difference_interval: tuple[float, float]
    improvement: float  # P(X > Y)
    improvement_interval: tuple[float, float]
    p: float
    smallest_p: float


def differ(x: Sequence[float], y: Sequence[float]) -> Difference:
    """The difference of two groups of scores."""
    x = np.asarray(x, float)
    y = np.asarray(y, float)
    means = (np.nan, np.nan)
    improvement = (np.nan, np.nan)
    if min(len(x), len(y)) > 1:
        means = bootstrap(difference_of_means, x, y)
        improvement = bootstrap(probability_of_improvement, x, y)
    return Difference(
        float(x.mean() - y.mean()),
        tuple(map(float, means)),
        float(probability_of_improvement(x, y)),
        tuple(map(float, improvement)),
        rank_test(x, y),
        smallest_p(len(x), len(y)),
    )


def verdict(found: Difference, n: int, m: int, x: str, y: str) -> str:
    """In a sentence or two: what the scores of x and y show, and what they cannot show."""
    if found.smallest_p >= ALPHA:
        return (
            f"{n} against {m} seeds cannot decide: whatever they score, no p can fall below {found.smallest_p:.2g}. "
            f"Train {seeds_needed()} or more of each."
        )
    better, other = (x, y) if found.improvement >= 0.5 else (y, x)
    low, high = found.difference_interval
    if found.p < ALPHA:
        doubt = "" if low > 0 or high < 0 else " But the interval of the difference of the means contains 0."
        return f"{better} scores higher than {other} (p = {found.p:.2g}, {n} against {m} seeds).{doubt}"
    return (
        f"No difference is shown (p = {found.p:.2g}, {n} against {m} seeds), which is not to say that there is none: "
        f"the means may differ by anything from {low:.4g} to {high:.4g}."
    )
