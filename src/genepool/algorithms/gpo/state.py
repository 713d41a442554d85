"""What changes while GPO trains: the population, its place in Algorithm 1, and what was played last."""

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum

import equinox as eqx
import numpy as np

from genepool import trees
from genepool.algorithms.gpo.genetics import CrossoverData, CrossoverState
from genepool.algorithms.in_flight import InFlight, new_in_flight
from genepool.learning.ppo import Member, Report
from genepool.learning.returns import Batch

SCORES = 10  # iterations whose mean return decides which member is the champion


class Phase(IntEnum):
    """What `learn` does next. A round of Algorithm 1 goes through these phases in this order."""

    MUTATE = 0  # line 3, once for every batch of the population
    SELECT = 1  # line 4
    START_CROSSOVER = 2  # lines 6 to 9: the experts are made, or children that need none
    IMITATE = 3  # lines 6 to 9: the students learn, once for every collection of states

    @property
    def needs_play(self) -> bool:
        """Whether each member must play a candidate before `learn` can go on."""
        return self in (Phase.MUTATE, Phase.IMITATE)

    @property
    def record_name(self) -> str:
        """The name under which records count the seconds of this phase."""
        return {Phase.MUTATE: "learning", Phase.SELECT: "selecting"}.get(self, "crossover")


class GPOLearner(eqx.Module):
    """The population and its place in Algorithm 1. `learn` writes it and nothing else.

    A collection is one candidate of each member: a batch of each policy, or states of each couple's expert or student.
    """

    members: Member  # [m]
    shares_with: np.ndarray  # [m, m]: whether policy i learns from the rows of j (S_i), fixed for the round
    crossover: CrossoverState | None  # none: the population has no children
    reports: np.ndarray  # [m, ...]: of each member's last update
    phase: np.ndarray  # a `Phase`
    round: np.ndarray  # rounds that ended with a crossover
    iteration: np.ndarray  # mutations so far in this round
    imitation: np.ndarray  # collections of states used so far in this crossover
    collections: np.ndarray  # collections used so far in all phases

    @property
    def imitates(self) -> bool:
        """Whether experts and students play now, rather than the population."""
        return bool(self.phase == Phase.IMITATE)

    @property
    def are_children(self) -> bool:
        """Whether the members were just bred and have not been mutated since."""
        return bool(self.round > 0 and self.iteration == 0)

    @property
    def breeding(self) -> CrossoverState:
        """The crossover's state, of a population that has children."""
        assert self.crossover is not None
        return self.crossover

    def entering(self, phase: Phase) -> "GPOLearner":
        """The learner at the beginning of this phase."""
        return replace(self, phase=np.asarray(phase, np.int64))


class GPOState(eqx.Module):
    """Everything that training changes. `ask` and `tell` never write `learner`."""

    learner: GPOLearner
    batch: Batch  # [m, B, ...]: what was played last
    crossover_data: CrossoverData | None
    scores: np.ndarray  # [m, SCORES]: mean returns of the latest iterations of the round, NaN where there are fewer
    numbers: np.ndarray  # [m]: the candidates that last played for each policy
    in_flight: InFlight

    @property
    def breeding_data(self) -> CrossoverData:
        """What was played for the crossover, of a population that has children."""
        assert self.crossover_data is not None
        return self.crossover_data

    @property
    def is_ready(self) -> bool:
        """Whether what the phase needs was played."""
        population = len(self.numbers)
        collections = int(self.in_flight.told_count) // population
        return not Phase(int(self.learner.phase)).needs_play or bool(collections > self.learner.collections)

    def mean_scores(self) -> np.ndarray:
        """[m]: the mean over each policy's latest iterations; minus infinity if it has played none."""
        known = [row[~np.isnan(row)] for row in self.scores]
        return np.array([np.mean(row) if np.isfinite(row).any() else -np.inf for row in known])


def new_state(
    members: Sequence[Member],
    batch_size: int,
    observation_size: int,
    action_size: int,
    crossover: CrossoverState | None,
    data: CrossoverData | None,
) -> GPOState:
    """A population at the beginning of its first round."""
    m = len(members)
    zero = np.zeros((), np.int64)
    widths = ((observation_size,), (action_size,), (), (observation_size,), (), (), ())
    learner = GPOLearner(
        members=trees.stack(members),
        shares_with=np.eye(m, dtype=bool),
        crossover=crossover,
        reports=np.zeros((m, len(Report._fields)), np.float32),
        phase=np.asarray(Phase.MUTATE, np.int64),
        round=zero,
        iteration=zero,
        imitation=zero,
        collections=zero,
    )
    return GPOState(
        learner=learner,
        batch=Batch(*(np.zeros((m, batch_size, *width), np.float32) for width in widths)),
        crossover_data=data,
        scores=np.full((m, SCORES), np.nan),
        numbers=np.full(m, -1, np.int64),
        in_flight=new_in_flight(m),
    )
