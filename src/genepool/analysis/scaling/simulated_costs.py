"""Stand-ins that ask, tell and learn like CEM-RL and AES-RL but have no networks: for studies of time alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jax import Array

from genepool.parts import part
from genepool.types import Candidate, Individual, Outcome, Transitions

NOBODY = Individual(None, None)


@dataclass(frozen=True)
class Lesson:
    """A lesson of which only the length matters."""

    steps: int

    def __call__(self, actor: Any) -> Any:
        """The actor as it is."""
        return actor


@dataclass(frozen=True)
class Tally:
    """The state of a stand-in: counts."""

    learner: int = 0  # critic steps taken
    owed: int = 0  # critic steps that ought to have been taken by now
    asked: int = 0
    told: int = 0
    frames: int = 0
    lessons: int = 0  # candidates asked for with a lesson, and without one since the warm-up ended
    plays: int = 0
    taught: int = 0  # candidates told that had a lesson
    lag: int = 0  # tells between ask and tell, summed over the candidates that were told
    most_lag: int = 0
    recent: tuple[int, ...] = ()  # lengths of the last ten episodes, of a generation of CEM-RL


@part
class StandIn:
    """What CEM-RL and AES-RL have in common here: all outcomes are counted."""

    start: float = 10_000  # frames of the warm-up, without lessons and learning
    window: int = 10  # episodes whose steps are a lesson's length: N, and S_10 of AES-RL

    def init(self, key: Array) -> Tally:
        """Nothing was done yet."""
        return Tally()

    def tell(self, key: Array, state: Tally, outcomes: Sequence[Outcome]) -> Tally:
        """Count them. Outcomes told together add no lag to each other."""
        lags = [state.told - outcome.candidate.version for outcome in outcomes]
        lengths = [outcome.frames for outcome in outcomes]
        frames = state.frames + sum(lengths)
        return replace(
            state,
            owed=state.owed + sum(lengths) if frames > self.start else state.owed,
            told=state.told + len(outcomes),
            frames=frames,
            taught=state.taught + sum(outcome.candidate.lesson is not None for outcome in outcomes),
            lag=state.lag + sum(lags),
            most_lag=max(state.most_lag, *lags),
            recent=(*state.recent, *lengths)[-self.window :],
        )

    def learning_phase(self, state: Tally) -> str:
        """It has one: learning."""
        return "learning"

    def still_to_ask(self, state: Tally) -> int:
        """None: a generation is asked for at once."""
        return 0

    def steps_owed(self, state: Tally) -> int:
        """Each stand-in has its own rule."""
        raise NotImplementedError

    def learn(self, key: Array, state: Tally) -> Tally:
        """The critic's steps, counted."""
        return replace(state, learner=state.learner + self.steps_owed(state))


@part
class PretendedCEMRL(StandIn):
    """CEM-RL: ten at a time, after the warm-up half of them with lessons of S_prev steps after S_prev of the critic."""

    schedule: ClassVar[str] = "synchronous"

    generation: int = 10  # N
    pupils: int = 5  # n_grad: the first of each generation

    def ask(self, key: Array, state: Tally, n: int) -> tuple[list[Candidate], Tally]:
        """A generation."""
        lesson = Lesson(sum(state.recent)) if state.frames > self.start else None
        candidates = [
            Candidate(
                NOBODY, (0,), lesson=lesson if k < self.pupils else None, number=state.asked + k, version=state.told
            )
            for k in range(n)
        ]
        return candidates, replace(state, asked=state.asked + n)

    def steps_owed(self, state: Tally) -> int:
        """As many critic steps as the generation had frames."""
        return state.owed - state.learner


@part
class PretendedAESRL(StandIn):
    """AES-RL: after the warm-up half of the candidates have lessons of S_10 steps (Eq. 3); all have a reference."""

    schedule: ClassVar[str] = "asynchronous"

    generation: int = 100  # tells in a round; nothing depends on it
    references: int = 5  # episodes of the mean beside each candidate
    share: float = 0.5  # p_desired: of the candidates with lessons
    gain: float = 50.0  # K
    chunk: int = 1_000  # critic steps at a time

    def ask(self, key: Array, state: Tally, n: int) -> tuple[list[Candidate], Tally]:
        """One by one, each with a lesson or without as population control has it."""
        candidates = []
        for _ in range(n):
            lesson = None
            if state.frames >= self.start:
                taught, untaught = state.lessons + 1, state.plays + 1
                p = -self.gain * (taught / (taught + untaught) - self.share) + 0.5  # Eq. 3
                if np.random.default_rng(state.asked).random() <= p:
                    lesson = Lesson(sum(state.recent))
                    state = replace(state, lessons=state.lessons + 1)
                else:
                    state = replace(state, plays=state.plays + 1)
            seeds = (0,) * self.references
            candidates.append(
                Candidate(NOBODY, (0,), lesson=lesson, reference_seeds=seeds, number=state.asked, version=state.told)
            )
            state = replace(state, asked=state.asked + 1)
        return candidates, state

    def steps_owed(self, state: Tally) -> int:
        """A chunk, as long as there are no more critic steps than frames."""
        return self.chunk if self.start <= state.frames >= state.learner + self.chunk else 0


class PretendedWorkers:
    """Inner workers that play nothing: the lengths of a candidate's episodes are drawn by its number."""

    name = "pretended"

    def __init__(self, lengths: Sequence[int]):
        self.lengths = np.asarray(lengths)

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Outcomes with as many frames as were drawn, and nothing in them."""
        return [self._outcome(candidate) for candidate in candidates]

    def _outcome(self, candidate: Candidate) -> Outcome:
        own, reference = len(candidate.seeds), len(candidate.reference_seeds)
        rng = np.random.default_rng((1, 1 + candidate.number))
        drawn = self.lengths[rng.integers(len(self.lengths), size=own + reference)]
        reward = np.broadcast_to(np.float32(0.0), int(drawn[:own].sum()))  # of that length, but without memory
        rows = Transitions(None, None, reward, None, None)
        return Outcome(candidate, NOBODY, (0.0,) * own, rows, (0.0,) * reference, int(drawn[own:].sum()))

    def close(self) -> None:
        """There is nothing to free."""
