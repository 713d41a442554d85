"""Sharing: whose samples a policy learns from beside its own (GPO, 3.2)."""

import numpy as np

from genepool.errors import UserError
from genepool.parts import part


@part
class Sharing:
    """S_i = { j : KL(pi_i || pi_j) < eps }, i among them: whose rows a policy learns from in a round (GPO, equation 5)."""

    kl: float = 0.35  # eps_kl: at that KL about half of another's samples are effective
    normalise: bool = False  # divide by the size of S_i; the paper has the plain sum
    max_ratio: float | None = 2.0  # the most that another's sample may count; the paper sets no limit

    def __post_init__(self):
        if self.kl < 0 or (self.max_ratio is not None and self.max_ratio <= 0):
            raise UserError("the KL within which policies share is 0 or more, and max ratio above 0")

    def near(self, kl: np.ndarray) -> np.ndarray:
        """[m, m]: whether j is in S_i, of KL(pi_i || pi_j). It need not be so the other way round."""
        return (kl < self.kl) | np.eye(len(kl), dtype=bool)
