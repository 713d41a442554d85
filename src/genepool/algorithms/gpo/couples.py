"""Couples: which policies have a child together (GPO, 3.1)."""

from itertools import combinations

import numpy as np

from genepool.errors import UserError
from genepool.parts import part


@part
class Fittest:
    """The best m couples by f = (1 - c) (R_x + R_y) + c KL(x, y), where c falls from c_0 to 0 over the rounds.

    Both terms are standardised over the couples before they are mixed. The KL is the mean of both directions. The
    paper's experiments have c = 0.
    """

    diversity: float = 0.0  # c_0: the weight of the difference of two policies in the first round

    def __post_init__(self):
        if not 0.0 <= self.diversity <= 1.0:
            raise UserError(f"diversity is {self.diversity}: give a number from 0 to 1")

    def __call__(self, returns: np.ndarray, kl: np.ndarray, left: float) -> np.ndarray:
        """Couples [m, 2], the best first. `left` is the share of the rounds that is still to come.

        Two policies make one couple, which is repeated.
        """
        couples = all_couples(len(returns))
        x, y = couples.T
        c = self.diversity * left
        score = returns[x] + returns[y]
        if c:
            score = (1.0 - c) * _standard(score) + c * _standard((kl[x, y] + kl[y, x]) / 2.0)
        order = np.argsort(-score, kind="stable")
        return np.resize(couples[order], (len(returns), 2))


def all_couples(m: int) -> np.ndarray:
    """All unordered couples of m, [m (m - 1) / 2, 2]."""
    return np.array(list(combinations(range(m), 2)))


def random_couples(rng: np.random.Generator, m: int) -> np.ndarray:
    """m couples drawn from all. None is drawn twice, unless there are fewer than m."""
    couples = all_couples(m)
    return np.resize(couples[rng.permutation(len(couples))], (m, 2))


def _standard(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / (values.std() + 1e-8)
