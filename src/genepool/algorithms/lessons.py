"""Lessons: CEM-RL (Pourchot and Sigaud 2019) and AES-RL (Lee et al. 2020), with any evolver and any teacher.

An evolver hands out individuals; some of them take a lesson, gradient steps against a frozen critic, before they are
tried; all transitions train the critic. Whether generations are awaited (CEM-RL, P-CEM-RL) or every outcome is told as
it comes (AES-RL) is up to the schedule.
"""

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import count, repeat
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import numpy as np
from jax import Array

from genepool import buffer, trees
from genepool.algorithms import choices, experience
from genepool.algorithms.experience import Experience
from genepool.algorithms.in_flight import Asked, InFlight, draw_seeds, forget_workers, new_in_flight
from genepool.algorithms.teaching import Controlled, FirstHalf, LearnerWithTeachers, random_play
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.evolution.distribution.adapter import VectorEvolver, adapted
from genepool.evolution.distribution.cem import CEM
from genepool.learning.td3 import TD3
from genepool.networks import Activation, deterministic
from genepool.parts import part
from genepool.protocols import Evolver, Teacher
from genepool.types import Candidate, Individual, Outcome

WARMING, PLAIN, TAUGHT = 1, 2, 3  # what a candidate is out as


class LessonsState(eqx.Module):
    """Everything that training changes."""

    evolver: Any
    learner: LearnerWithTeachers
    experience: Experience
    frames: np.ndarray
    members: np.ndarray  # individuals asked for so far
    lengths: np.ndarray  # [N]: frames of the last individuals, oldest first
    counts: np.ndarray  # [2]: individuals with and without a lesson, both from 1 (Eq. 3)
    in_flight: InFlight


@part
class Lessons:
    """The coupling of CEM-RL and AES-RL; which of the two it is, its fields say."""

    budget: ClassVar[float] = 1e6

    task: Task
    evolver: choices.AnyEvolver = field(default_factory=CEM)  # what the individuals come from
    learner: choices.AnyLearner = field(default_factory=TD3)  # the teacher
    lessons: FirstHalf | Controlled = field(default_factory=FirstHalf)  # which individuals take a lesson
    trials: int = 1  # episodes per individual, whose mean return is its fitness
    warmup: int = 10_000  # frames before the critic begins to learn
    random_warmup: bool = False  # till then actions are random and not told; else the evolver goes on alone
    warmup_told: bool = False  # as the authors' code: what random actions earn is told as an individual's own
    catch_up: bool = False  # the critic then takes steps for the warm-up's frames too
    critic_head_start: int = 0  # critic steps before the first lesson
    min_utd: float = 0.0  # asking pauses while critic steps < this share x steps owed
    # whose value the critics learn: the individuals that take the next lessons, one after the other (CEM-RL), or the
    # mean's (AES-RL); none: the individuals' where the evolver knows who comes next
    target_policy: Literal["individual", "mean"] | None = None
    # the critic of a lesson: as it stood after the individual's own block (CEM-RL), or the newest (P-CEM-RL's code)
    lesson_critic: Literal["own_block", "newest"] = "own_block"
    critic_chunk: int = 1_000  # the most critic steps for one and the same mean
    memory: int = 8_000  # transitions in a genetic memory, where the evolver keeps some
    replay: int = 1_000_000  # transitions in the replay
    hidden: tuple[int, ...] = (400, 300)  # units of the actor's hidden layers
    layer_norm: bool = False  # of the actor's hidden layers
    activation: Activation = "tanh"  # of the actor's hidden layers
    schedule: Literal["synchronous", "asynchronous"] = "synchronous"  # whether generations are awaited
    test_episodes: int = 10  # fresh episodes in each test of the champion; never counted as training
    test_every: int = 1  # generations between two tests; the last is always tested
    preset: str = "lessons"  # the name of this system

    def __post_init__(self):
        choices.check_evolver("lessons", self.evolver)
        choices.check_learner("lessons", self.learner, Teacher)
        choices.check_takes_lessons(self._evolver)
        choices.check_counts(self, "trials", "memory", "replay", "critic_chunk", "test_episodes", "test_every")
        choices.check_network(self)
        choices.check_not_negative(self, "warmup", "critic_head_start")
        if not 0.0 <= self.min_utd <= 1.0:
            raise UserError(f"min utd is {self.min_utd}: it is a share between 0 and 1")
        if self.target_policy == "individual" and not self._evolver.has_upcoming:
            raise UserError("this evolver does not know who comes next: take --target-policy mean")
        if self.warmup_told and not isinstance(self._evolver, VectorEvolver):
            raise UserError(
                "random actions can be told as the weights of a search distribution only: leave warmup told out"
            )

    @property
    def _evolver(self) -> Evolver[Any]:
        return adapted(self.evolver)

    @property
    def generation(self) -> int:
        """Candidates in a generation, or between two records."""
        return self._evolver.population

    @property
    def _follows_individuals(self) -> bool:
        return self._evolver.has_upcoming and self.target_policy != "mean"

    @property
    def _teachers(self) -> int:
        """Critics that are kept for lessons."""
        own = self._follows_individuals and self.lesson_critic == "own_block"
        return min(self.lessons.taught, self.generation) if own else 1

    def settings(self) -> dict[str, Any]:
        """What the paper gives per task."""
        own = {"scale": getattr(self.evolver, "scale", None), "share taught": getattr(self.lessons, "share", None)}
        return choices.known(own | {"batch": getattr(self.learner, "batch_size", None)})

    def init(self, key: Array) -> LessonsState:
        """An evolver that begins with the learner's own new actor, and a new learner."""
        k_actor, k_evolver, k_learner = jax.random.split(key, 3)
        shape = self.hidden, self.layer_norm, self.activation
        empty = buffer.empty(self.memory, *choices.sizes_of(self.task))

        def new_individual(k: int) -> Individual:
            own = jax.random.fold_in(k_actor, 1 + k) if k else k_actor
            return Individual(self.learner.individual(own, choices.new_actor(own, self.task, shape)), empty)

        inner = self.learner.init(k_learner, new_individual(0).actor)
        zero = np.zeros((), np.int64)
        return LessonsState(
            evolver=self._evolver.init(k_evolver, new_individual),
            learner=LearnerWithTeachers(inner, (self.learner.teacher(inner),) * self._teachers),
            experience=experience.new_experience(self.task, self.replay, 1),
            frames=zero,
            members=zero,
            lengths=np.zeros(self.generation, np.int64),
            counts=np.ones(2, np.int64),
            in_flight=new_in_flight(self.generation),
        )

    def ask(self, key: Array, state: LessonsState, n: int) -> tuple[list[Candidate], LessonsState]:
        """The next n to try: random play during the warm-up, individuals with and without lessons after it."""
        if state.learner.updates < self.min_utd * state.experience.owed:
            return [], state
        k_sample, k_rest = jax.random.split(key)
        asked = state.in_flight.upcoming(n, repeat((WARMING, -1)))
        warming, new = self._warms(state, asked), count(int(state.members))
        if not warming or self.warmup_told:
            asked = [one if one.place >= 0 else one._replace(place=next(new)) for one in asked]
        places, critic = [one.place for one in asked if one.place >= 0], self.learner.critic(state.learner.inner)
        members, evolver = self._evolver.ask(k_sample, state.evolver, places, critic) if places else ([], state.evolver)
        asked = experience.served(asked, members)
        if not asked:
            return [], state
        counts, issued, candidates = state.counts.copy(), [], []
        for one in asked:  # a candidate that was lost counts once
            counts -= [one.kind == TAUGHT, one.kind == PLAIN]
        for k, one in enumerate(asked):
            k_lesson, k_seeds = jax.random.split(jax.random.fold_in(k_rest, k))
            rng, member = trees.host_random(k_seeds), members.pop(0) if one.place >= 0 else None
            if warming:
                champion = self._evolver.champion(state.evolver)
                candidate = random_play(k_lesson, rng, champion, self.task.horizon, self.trials, member)
                kind = WARMING
            else:
                member = replace(member, seeds=draw_seeds(rng, self.trials))
                candidate, kind = self._with_lesson(k_lesson, rng, state, member, one.number % self.generation, counts)
            counts += [kind == TAUGHT, kind == PLAIN]
            issued.append(one._replace(kind=kind))
            beside = draw_seeds(rng, candidate.reference_episodes)
            own = {"number": one.number, "place": one.place, "version": int(state.in_flight.told_count)}
            candidates.append(replace(candidate, reference_seeds=beside, **own))
        asked_for = max(int(state.members), *(1 + one.place for one in issued))
        state = replace(state, evolver=evolver, counts=counts, in_flight=state.in_flight.issue(issued))
        return candidates, replace(state, members=np.asarray(asked_for))

    def _warms(self, state: LessonsState, asked: Sequence[Asked]) -> bool:
        """Whether these still act at random, given the frames that those still out will bring."""
        out = int(state.in_flight.asked - state.in_flight.told_count) - sum(one.again for one in asked)
        lengths = state.lengths[state.lengths > 0]
        expected = out * float(lengths.mean() if len(lengths) else self.task.horizon)
        return self.random_warmup and bool(state.frames + expected < self.warmup)

    def _with_lesson(
        self, key: Array, rng: Any, state: LessonsState, member: Candidate, place: int, counts: np.ndarray
    ) -> tuple[Candidate, int]:
        """The member, with a lesson if its turn has come, and as what it is out."""
        if not (state.experience.owed > 0 and state.learner.updates >= max(1, self.critic_head_start)):
            return member, WARMING
        if not rng.random() <= self.lessons.chance(place, *counts) > 0.0:
            return member, PLAIN
        # as many steps as the last generation had frames: CEM-RL's S_prev, AES-RL's sum of the last ten lengths
        lesson = state.learner.lesson(self.learner, key, place, state.experience.replay, state.lengths.sum())
        operators = (*member.operators, "lesson")
        return replace(member, lesson=lesson, operators=operators, origin="learning"), TAUGHT

    def tell(self, key: Array, state: LessonsState, outcomes: Sequence[Outcome]) -> LessonsState:
        """All transitions go to the replay; then the evolver is told of the individuals."""
        outcomes, in_flight = state.in_flight.accept(outcomes)
        if not outcomes:
            return state
        collected, evolver = state.experience.collected(outcomes, (), 0, 0.0), state.evolver
        frames = sum(outcome.frames for outcome in outcomes)
        lengths = np.append(state.lengths, [outcome.frames for outcome in outcomes])[-self.generation :]
        told = outcomes if self.warmup_told else experience.of_purpose(outcomes, "fitness")
        if told:
            evolver = self._evolver.tell(key, evolver, told, self.learner.critic(state.learner.inner))
        state = replace(state, evolver=evolver, frames=state.frames + frames, lengths=lengths, in_flight=in_flight)
        return replace(state, experience=replace(collected, owed=self._owed(state, frames)))

    def _owed(self, state: LessonsState, frames: int) -> np.ndarray:
        """As many critic steps as there are frames, in whole blocks of one for each individual whose value is learnt.

        What is left of each portion that is told is dropped, as CEM-RL's code drops it of each generation.
        """
        if state.frames <= self.warmup:
            return state.experience.owed
        blocks = self.lessons.taught if self._follows_individuals else 1
        return state.frames if self.catch_up else state.experience.owed + blocks * (frames // blocks)

    def steps_owed(self, state: LessonsState) -> int:
        """The critic steps of the next `learn`."""
        steps = int(state.experience.owed) - int(state.learner.updates)
        return steps if self._follows_individuals else min(steps, self.critic_chunk)

    def learn(self, key: Array, state: LessonsState) -> LessonsState:
        """Take the critic steps owed, and have the critics ready for the next lessons."""
        left = self.steps_owed(state)
        if not left:
            return state
        policies, inner, teachers = [self._evolver.champion(state.evolver)], state.learner.inner, []
        if self._follows_individuals:
            policies = self._evolver.upcoming(state.evolver, self.lessons.taught)
        for k, policy in enumerate(policies):
            steps = left // (len(policies) - k)
            left -= steps
            own = jax.random.fold_in(key, k), inner, policy, state.experience.replay, steps
            inner = self.learner.update_critic(*own)
            teachers.append(self.learner.teacher(inner))
        return replace(state, learner=LearnerWithTeachers(inner, tuple(teachers[-self._teachers :])))

    learning_phase = experience.learning_phase
    still_to_ask = experience.nothing_more
    forget_workers = forget_workers

    def champion(self, state: LessonsState) -> Any:
        """The mean, whose score both papers report; of a genetic algorithm the fittest."""
        return deterministic(self._evolver.champion(state.evolver))

    def policies(self, state: LessonsState) -> dict[str, Any]:
        """The champion."""
        return {"champion": self.champion(state)}

    def report(self, state: LessonsState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """Who took lessons, how far results lag behind, and what evolver and learner report."""
        lags = zip(outcomes, state.in_flight.staleness(outcomes), strict=True)
        # outcomes that are told together add no staleness to each other
        in_turn = self.schedule == "asynchronous" or getattr(self._evolver, "needs_reference", False)
        lags = [lag if in_turn else 0 for outcome, lag in lags if outcome.candidate.purpose == "fitness"]
        taught, plain = (int(count) - 1 for count in state.counts)
        report = {"staleness": lags, "taught": taught, "untaught": plain}
        report |= self._evolver.report(state.evolver, outcomes)
        return report | self.learner.report(state.learner.inner)
