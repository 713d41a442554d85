"""Mirrored noise of an evolution strategy, and the gradient estimated from it.

Salimans et al. 2017; Suri et al. 2020 (ESAC).
"""

from dataclasses import dataclass

import numpy as np

from genepool import trees
from genepool.cores import map_on_cores
from genepool.protocols import Actor


def direction(seed: int, size: int) -> np.ndarray:
    """epsilon ~ N(0, I), determined by its seed."""
    return np.random.Generator(np.random.SFC64(seed)).standard_normal(size, np.float32)


@dataclass(frozen=True)
class Perturbation:
    """theta + scale epsilon: moves an actor to the member that is tried. A pair has the scales sigma and -sigma."""

    seed: int
    scale: float  # sigma at the time of asking

    def __call__(self, actor: Actor) -> Actor:
        """The perturbed actor."""
        vector = trees.flat(actor)
        return trees.unflat(vector + np.float32(self.scale) * direction(self.seed, vector.size), actor)


def centred_ranks(returns: np.ndarray) -> np.ndarray:
    """F~ = (rank - 1) / (N - 1) - 1/2, with rank 1 for the lowest. Ties share their mean rank; NaN is the lowest."""
    returns = np.where(np.isnan(returns), -np.inf, returns)
    _, value_of, counts = np.unique(returns, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2.0
    return (ranks[value_of] - 1.0) / (len(returns) - 1.0) - 0.5


def weighted_sum(seeds: np.ndarray, slopes: np.ndarray, size: int) -> np.ndarray:
    """The sum of slope times direction.

    The slopes of a pair are added first. Sums are taken in the same order on any number of cores.
    """
    own_seeds, pair_of = np.unique(seeds, return_inverse=True)
    weights = np.bincount(pair_of, slopes).astype(np.float32)

    def partial_sum(begin: int) -> np.ndarray:
        total = np.zeros(size, np.float32)
        for k in range(begin, min(begin + 8, len(own_seeds))):
            total += weights[k] * direction(int(own_seeds[k]), size)
        return total

    return sum(map_on_cores(partial_sum, range(0, len(own_seeds), 8)), np.zeros(size, np.float32))


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    """The cosine of the angle between two vectors; NaN if one is zero."""
    lengths = np.linalg.norm(x) * np.linalg.norm(y)
    return float(x @ y / lengths) if lengths > 0 else float("nan")
