"""Simulated CEM-RL and AES-RL: they ask, tell and learn like the real ones but only count, for studies of time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jax import Array

from genepool.parts import part
from genepool.types import Candidate, Individual, Outcome, Transitions

NO_INDIVIDUAL = Individual(None, None)


@dataclass(frozen=True)
class SimulatedLesson:
    """A lesson of which only the length matters."""

    steps: int

    def __call__(self, actor: Any) -> Any:
        """The actor as it is."""
        return actor


@dataclass(frozen=True)
class SimulatedState:
    """The state of a simulated algorithm: counts."""

    learner: int = 0  # critic steps taken
    owed: int = 0  # critic steps that ought to have been taken by now
    asked: int = 0
    told_count: int = 0
    frames: int = 0
    lessons: int = 0  # candidates asked for with a lesson
    plays: int = 0  # candidates asked for without a lesson since the warm-up ended
    accepted_lessons: int = 0  # candidates told that had a lesson
    lag: int = 0  # tells between ask and tell, summed over the candidates that were told
    most_lag: int = 0
    recent: tuple[int, ...] = ()  # lengths of the last ten episodes, of a generation of CEM-RL


@part
class SimulatedAlgorithm:
    """What both simulated algorithms share: they count outcomes."""

    start: float = 10_000  # frames of the warm-up, without lessons and learning
    window: int = 10  # episodes whose steps are a lesson's length: N, and S_10 of AES-RL

    def init(self, key: Array) -> SimulatedState:
        """All counts are 0."""
        return SimulatedState()

    def tell(self, key: Array, state: SimulatedState, outcomes: Sequence[Outcome]) -> SimulatedState:
        """Count the outcomes. Outcomes that are told together add no lag to each other."""
        lags = [state.told_count - outcome.candidate.version for outcome in outcomes]
        lengths = [outcome.frames for outcome in outcomes]
        frames = state.frames + sum(lengths)
        return replace(
            state,
            owed=state.owed + sum(lengths) if frames > self.start else state.owed,
            told_count=state.told_count + len(outcomes),
            frames=frames,
            accepted_lessons=state.accepted_lessons + sum(one.candidate.lesson is not None for one in outcomes),
            lag=state.lag + sum(lags),
            most_lag=max(state.most_lag, *lags),
            recent=(*state.recent, *lengths)[-self.window :],
        )

    def learning_phase(self, state: SimulatedState) -> str:
        """There is one phase."""
        return "learning"

    def still_to_ask(self, state: SimulatedState) -> int:
        """Always 0: a generation is asked for at once."""
        return 0

    def steps_owed(self, state: SimulatedState) -> int:
        """Each simulated algorithm has its own rule."""
        raise NotImplementedError

    def learn(self, key: Array, state: SimulatedState) -> SimulatedState:
        """Count the critic's steps."""
        return replace(state, learner=state.learner + self.steps_owed(state))


@part
class SimulatedCEMRL(SimulatedAlgorithm):
    """CEM-RL: ten at a time. After the warm-up, half of them have lessons of S_prev steps after S_prev critic steps."""

    schedule: ClassVar[str] = "synchronous"

    generation_size: int = 10  # N
    pupils: int = 5  # n_grad: the first of each generation

    def ask(self, key: Array, state: SimulatedState, n: int) -> tuple[list[Candidate], SimulatedState]:
        """A generation: the first `pupils` of it with lessons."""
        lesson = SimulatedLesson(sum(state.recent)) if state.frames > self.start else None
        candidates = [
            Candidate(
                NO_INDIVIDUAL,
                (0,),
                lesson=lesson if k < self.pupils else None,
                number=state.asked + k,
                version=state.told_count,
            )
            for k in range(n)
        ]
        return candidates, replace(state, asked=state.asked + n)

    def steps_owed(self, state: SimulatedState) -> int:
        """As many critic steps as the generation had frames."""
        return state.owed - state.learner


@part
class SimulatedAESRL(SimulatedAlgorithm):
    """AES-RL: after the warm-up half of the candidates have lessons of S_10 steps (Eq. 3); all have a reference."""

    schedule: ClassVar[str] = "asynchronous"

    generation_size: int = 100  # tells in a generation; the simulated times do not depend on it
    references: int = 5  # episodes of the mean for each candidate
    share: float = 0.5  # p_desired: of the candidates with lessons
    gain: float = 50.0  # K
    chunk: int = 1_000  # critic steps at a time

    def ask(self, key: Array, state: SimulatedState, n: int) -> tuple[list[Candidate], SimulatedState]:
        """One by one. Population control decides which have a lesson."""
        candidates = []
        for _ in range(n):
            lesson = None
            if state.frames >= self.start:
                lessons = state.lessons + 1
                plays = state.plays + 1
                p = -self.gain * (lessons / (lessons + plays) - self.share) + 0.5  # Eq. 3
                if np.random.default_rng(state.asked).random() <= p:
                    lesson = SimulatedLesson(sum(state.recent))
                    state = replace(state, lessons=state.lessons + 1)
                else:
                    state = replace(state, plays=state.plays + 1)
            seeds = (0,) * self.references
            candidates.append(
                Candidate(
                    NO_INDIVIDUAL,
                    (0,),
                    lesson=lesson,
                    reference_seeds=seeds,
                    number=state.asked,
                    version=state.told_count,
                )
            )
            state = replace(state, asked=state.asked + 1)
        return candidates, state

    def steps_owed(self, state: SimulatedState) -> int:
        """A chunk, as long as there are no more critic steps than frames."""
        return self.chunk if self.start <= state.frames >= state.learner + self.chunk else 0


class SimulatedWorkers:
    """Workers that play nothing: the lengths of a candidate's episodes are drawn by its number."""

    name = "simulated"

    def __init__(self, lengths: Sequence[int]):
        self.lengths = np.asarray(lengths)

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Outcomes with as many frames as were drawn, and empty otherwise."""
        return [self._outcome(candidate) for candidate in candidates]

    def _outcome(self, candidate: Candidate) -> Outcome:
        own = len(candidate.seeds)
        reference = len(candidate.reference_seeds)
        rng = np.random.default_rng((1, 1 + candidate.number))
        drawn = self.lengths[rng.integers(len(self.lengths), size=own + reference)]
        reward = np.broadcast_to(np.float32(0.0), int(drawn[:own].sum()))  # of that length, but it takes no memory
        rows = Transitions(None, None, reward, None, None)
        return Outcome(candidate, NO_INDIVIDUAL, (0.0,) * own, rows, (0.0,) * reference, int(drawn[own:].sum()))

    def close(self) -> None:
        """Nothing to free."""
