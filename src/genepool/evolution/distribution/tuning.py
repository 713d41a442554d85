"""Tuning of sigma: Automatic Mutation Tuning (ESAC 5.2, Appendix A), and a linear schedule as its baseline."""

from typing import ClassVar, Literal

import numpy as np

from genepool.errors import UserError
from genepool.parts import part


def huber(x: float, y: float) -> float:
    """h(x, y) = (x - y)^2 / 2 where |x - y| < 1, else |x - y| - 1/2 (ESAC Eq. 4)."""
    distance = abs(x - y)
    return 0.5 * distance**2 if distance < 1.0 else distance - 0.5


@part
class AutomaticMutationTuning:
    """sigma' = sigma + clip(a_es / (n sigma) h(R_max, R_avg), 0, zeta), ESAC Eq. 6.

    Sigma only grows. On raw returns the clip is almost always active, so sigma is a line with slope zeta.
    Differs: the authors' code uses the shaped returns, whose h is always 1/8.
    """

    word: ClassVar[str] = "amt"

    clip: float = 1e-4  # zeta; useful from 1e-6 to 1e-2
    sees: Literal["raw", "ranked"] = "raw"  # the raw returns (paper), or those shaped by rank (code)

    def __post_init__(self):
        if not self.clip > 0:
            raise UserError(f"clip is {self.clip}: it must be above 0; without tuning, take --tuning none")

    def step(self, sigma: float, raw: np.ndarray, shaped: np.ndarray, pairs: int, rate: float) -> tuple[float, bool]:
        """The next sigma, and whether the change was clipped."""
        returns = raw[np.isfinite(raw)] if self.sees == "raw" else shaped
        if not len(returns):
            return sigma, False
        wish = rate / (pairs * sigma) * huber(float(returns.max()), float(returns.mean()))  # Eq. 5
        return sigma + min(wish, self.clip), wish > self.clip


@part
class LinearTuning:
    """sigma' = sigma + slope, whatever the returns: a baseline for automatic tuning."""

    slope: float = 1e-4  # growth of sigma per tuning

    def step(self, sigma: float, raw: np.ndarray, shaped: np.ndarray, pairs: int, rate: float) -> tuple[float, bool]:
        """The next sigma; nothing is clipped."""
        return sigma + self.slope, False
