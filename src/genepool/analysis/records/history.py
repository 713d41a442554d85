"""What a run has recorded, as columns."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from genepool.analysis.report.curves import moving_average

FATES = ("elite", "selected", "discarded")
TESTED = ("champion", "learner", "mother")  # whose tests are the run's score, the first that there are
ASK, TELL, LEARNT = 0, 1, 2


class Scores(NamedTuple):
    """Test returns of one policy, the mean of each test's episodes."""

    at: np.ndarray  # [T]: places among the run's records
    returns: np.ndarray  # [T]
    episodes: int  # in each test


class Candidates(NamedTuple):
    """Everyone who was tried, in the order of the records."""

    number: np.ndarray  # [C]
    at: np.ndarray  # [C]: places among the run's records
    fitness: np.ndarray  # [C]: mean returns
    reference: np.ndarray  # [C]: mean returns of the strategy's mean beside them, NaN where it was not played
    parents: np.ndarray  # [C, 2]: numbers, -1 for none
    maker: np.ndarray  # [C]: places among `makers`
    makers: tuple[str, ...]  # what was done to make someone: operators, or where it came from
    bred: np.ndarray  # [C] bool: tried for its fitness; the others explored
    learning: np.ndarray  # [C] bool: of the learner's making

    def made_by(self, maker: str) -> np.ndarray:
        """[C] bool: who was made so."""
        return self.maker == (self.makers.index(maker) if maker in self.makers else -1)


@dataclass(frozen=True)
class History:
    """A run that was read."""

    name: str
    path: Path
    config: dict[str, Any]
    frames: np.ndarray  # [G], as the paper counts them
    true_frames: np.ndarray  # [G]
    wall: np.ndarray  # [G] seconds
    tests: dict[str, Scores]
    fitness: np.ndarray  # [G, N], NaN where a generation has fewer
    fates: np.ndarray | None  # [G, 3]: clones of the learner so far, by what became of them
    scalars: dict[str, np.ndarray]  # [G] each, NaN where a record has none; of lists the mean
    seconds: dict[str, np.ndarray]  # [G] each, by phase
    candidates: Candidates
    events: np.ndarray  # [E, 3]: ASK, TELL or LEARNT, the candidate's number, the place among the records
    moments: np.ndarray  # [E] seconds of the run's wall clock, NaN where a record has none

    @property
    def finished(self) -> bool:
        """Whether the frames that were asked for have been played."""
        return bool(self.frames[-1] >= self.config["frames"])

    @property
    def scored(self) -> str:
        """Whose returns are the run's score: the champion's tests, else the learner's, else the fittest's own."""
        return next((who for who in TESTED if who in self.tests), "fittest")

    @property
    def score(self) -> Scores:
        """The tests that count. Where there are none, the best fitness of each generation stands in for them."""
        if self.scored != "fittest":
            return self.tests[self.scored]
        known = ~np.isnan(self.fitness).all(axis=1)
        return Scores(np.flatnonzero(known), np.nanmax(self.fitness[known], axis=1), 1)

    def smoothed(self, who: str | None = None) -> np.ndarray:
        """[T]: the score, or someone's tests, each the mean of the last ten, as the authors of ERL and PDERL have it."""
        return moving_average((self.tests[who] if who else self.score).returns)

    def final(self, frames: float = np.inf) -> float:
        """The mean of the last ten tests, or of the last ten by then."""
        by_then = np.flatnonzero(self.frames[self.score.at] <= frames)
        return float(self.smoothed()[by_then[-1]]) if len(by_then) else np.nan
