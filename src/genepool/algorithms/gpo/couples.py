"""Couples: who has children with whom (GPO, 3.1)."""

from itertools import combinations

import numpy as np

from genepool.errors import UserError
from genepool.parts import part


@part
class Fittest:
    """The best m of all couples by f = (1 - c) (R_x + R_y) + c KL(x, y), where c falls from c_0 to 0 over the rounds.

    The two terms are standardised over the couples before they are mixed, and the KL is the mean of both directions. The
    paper's experiments have c = 0.
    """

    diversity: float = 0.0  # c_0: what the difference of two policies counts in the first round

    def __post_init__(self):
        if not 0.0 <= self.diversity <= 1.0:
            raise UserError("diversity lies between 0 and 1")

    def __call__(self, returns: np.ndarray, kl: np.ndarray, left: float) -> np.ndarray:
        """Couples [m, 2], the best first; of `left`, the share of the rounds that is still to come."""
        couples = all_couples(len(returns))
        x, y = couples.T
        c = self.diversity * left
        score = returns[x] + returns[y]
        if c:
            score = (1.0 - c) * _standard(score) + c * _standard((kl[x, y] + kl[y, x]) / 2.0)
        order = np.argsort(-score, kind="stable")
        return np.resize(
            couples[order], (len(returns), 2)
        )  # two policies have one couple, as often as there are children


def all_couples(m: int) -> np.ndarray:
    """All unordered couples of m, [m (m - 1) / 2, 2]."""
    return np.array(list(combinations(range(m), 2)))


def random_couples(rng: np.random.Generator, m: int) -> np.ndarray:
    """m couples of all there are, none twice where there are enough."""
    couples = all_couples(m)
    return np.resize(couples[rng.permutation(len(couples))], (m, 2))


def _standard(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / (values.std() + 1e-8)
