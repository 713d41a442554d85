"""Sharing: a policy learns from the samples of similar policies too (GPO, 3.2)."""

import numpy as np

from genepool.errors import UserError
from genepool.parts import part


@part
class Sharing:
    """S_i = { j : KL(pi_i || pi_j) < eps }, with i itself: the policies whose rows i learns from (GPO, equation 5)."""

    kl: float = 0.35  # eps_kl: at that KL about half of another's samples are effective
    normalise: bool = False  # divide by the size of S_i; the paper has the plain sum
    max_ratio: float | None = 2.0  # largest weight of another's sample; the paper sets no limit

    def __post_init__(self):
        if self.kl < 0:
            raise UserError(f"the KL within which policies share is {self.kl}: give 0 or more")
        if self.max_ratio is not None and self.max_ratio <= 0:
            raise UserError(f"max ratio is {self.max_ratio}: give a number above 0, or none")

    def shares_with(self, kl: np.ndarray) -> np.ndarray:
        """[m, m]: whether j is in S_i, given KL(pi_i || pi_j). It need not be symmetric."""
        return (kl < self.kl) | np.eye(len(kl), dtype=bool)
