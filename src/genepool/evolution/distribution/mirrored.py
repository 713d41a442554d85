"""Mirrored noise of an evolution strategy, and the gradient estimated from it (Salimans et al. 2017; Suri et al. 2020)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from genepool import trees
from genepool.cores import map_on_cores


def direction(seed: int, size: int) -> np.ndarray:
    """epsilon ~ N(0, I), which its seed determines."""
    return np.random.Generator(np.random.SFC64(seed)).standard_normal(size, np.float32)


@dataclass(frozen=True)
class Perturbation:
    """theta + scale epsilon: what makes a member of the vector it carries. Of a pair, the second has a negative scale."""

    seed: int
    scale: float  # sigma at the time of asking

    def __call__(self, actor: Any) -> Any:
        """The actor, moved."""
        vector = trees.flat(actor)
        return trees.unflat(vector + np.float32(self.scale) * direction(self.seed, vector.size), actor)


def centred_ranks(returns: np.ndarray) -> np.ndarray:
    """F~ = (rank - 1) / (N - 1) - 1/2, rank 1 for the least; equals share their mean rank, NaN is least."""
    returns = np.where(np.isnan(returns), -np.inf, returns)
    _, places, counts = np.unique(returns, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2.0
    return (ranks[places] - 1.0) / (len(returns) - 1.0) - 0.5


def weighted_sum(seeds: np.ndarray, slopes: np.ndarray, size: int) -> np.ndarray:
    """Sum of slope times direction. A pair's slopes are added first; the order of sums is the same on any number of cores."""
    names, places = np.unique(seeds, return_inverse=True)
    weights = np.bincount(places, slopes).astype(np.float32)

    def partial_sum(begin: int) -> np.ndarray:
        total = np.zeros(size, np.float32)
        for k in range(begin, min(begin + 8, len(names))):
            total += weights[k] * direction(int(names[k]), size)
        return total

    return sum(map_on_cores(partial_sum, range(0, len(names), 8)), np.zeros(size, np.float32))


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    """Of the angle between them; NaN where one is zero."""
    lengths = np.linalg.norm(x) * np.linalg.norm(y)
    return float(x @ y / lengths) if lengths > 0 else float("nan")
