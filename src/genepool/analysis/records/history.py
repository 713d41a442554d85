"""What a run has recorded, as columns."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from genepool.analysis.records.statistics import moving_average

FATES = ("elite", "selected", "discarded")
TESTED = ("champion", "learner", "mother")  # the first of them that was tested gives the run's score
ASK = 0
TELL = 1
LEARN = 2


class Scores(NamedTuple):
    """Test returns of one policy, the mean of each test's episodes."""

    at: np.ndarray  # [T]: indices of the run's records
    returns: np.ndarray  # [T]
    episodes: int  # in each test


class Candidates(NamedTuple):
    """All candidates that were tried, in the order of the records."""

    number: np.ndarray  # [C]
    at: np.ndarray  # [C]: indices of the run's records
    fitness: np.ndarray  # [C]: mean returns
    reference: np.ndarray  # [C]: mean returns of the strategy's mean, NaN if it was not played
    parents: np.ndarray  # [C, 2]: numbers, -1 for none
    maker: np.ndarray  # [C]: indices of `makers`
    makers: tuple[str, ...]  # how candidates were made: their operators, or where they came from
    for_fitness: np.ndarray  # [C] bool: tried for its fitness; the others explored
    by_learner: np.ndarray  # [C] bool: made by the learner

    def made_by(self, maker: str) -> np.ndarray:
        """[C] bool: the candidates that were made so."""
        return self.maker == (self.makers.index(maker) if maker in self.makers else -1)


@dataclass(frozen=True)
class History:
    """The columns of one run. G is the number of records, N the size of the largest generation."""

    name: str
    path: Path
    config: dict[str, Any]
    frames: np.ndarray  # [G], as the paper counts them
    true_frames: np.ndarray  # [G]
    wall: np.ndarray  # [G] seconds
    tests: dict[str, Scores]
    fitness: np.ndarray  # [G, N], NaN where a generation has fewer
    fates: np.ndarray | None  # [G, 3]: how many clones of the learner had each fate so far
    scalars: dict[str, np.ndarray]  # [G] each, NaN where a record has none; the mean of a list
    seconds: dict[str, np.ndarray]  # [G] each, by phase
    candidates: Candidates
    events: np.ndarray  # [E, 3]: ASK, TELL or LEARN; the candidate's number; the index of the record
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
        """The tests that count. Without tests, the best fitness of each generation replaces them."""
        if self.scored != "fittest":
            return self.tests[self.scored]
        known = ~np.isnan(self.fitness).all(axis=1)
        return Scores(np.flatnonzero(known), np.nanmax(self.fitness[known], axis=1), 1)

    def smoothed(self, who: str | None = None) -> np.ndarray:
        """[T]: the score, or one policy's tests, as the mean of the last ten. ERL's and PDERL's authors do the same."""
        return moving_average((self.tests[who] if who else self.score).returns)

    def final(self, frames: float = np.inf) -> float:
        """The mean of the last ten tests up to these frames. NaN if there is no test yet."""
        by_then = np.flatnonzero(self.frames[self.score.at] <= frames)
        return float(self.smoothed()[by_then[-1]]) if len(by_then) else np.nan
