"""Lessons: CEM-RL (Pourchot and Sigaud 2019) and AES-RL (Lee et al. 2020), with any evolver and any teacher.

An evolver hands out individuals. Some of them take a lesson before they are tried: gradient steps against a frozen
critic. All transitions train the critic. The schedule decides whether the evolver is told of whole generations (CEM-RL,
P-CEM-RL) or of every outcome as it comes (AES-RL).
"""

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import count, repeat
from typing import Any, ClassVar, Literal, cast

import equinox as eqx
import jax
import numpy as np
from jax import Array

from genepool import buffer, networks, trees
from genepool.algorithms import choices, experience
from genepool.algorithms.experience import Experience
from genepool.algorithms.in_flight import Asked, InFlight, draw_seeds, forget_workers, new_in_flight
from genepool.algorithms.teaching import Controlled, FirstHalf, LearnerWithTeachers, expects_warmup, random_play
from genepool.environments.task import Task
from genepool.errors import UserError, check_at_least
from genepool.evolution.distribution.adapter import VectorEvolver, adapted
from genepool.evolution.distribution.cem import CEM
from genepool.learning.td3 import TD3
from genepool.networks import Activation, SquashedGaussian, deterministic
from genepool.parts import part
from genepool.protocols import Actor, Evolver, Foresight, Teacher
from genepool.types import Candidate, Individual, Outcome

UNCOUNTED = 1  # the kinds of candidates: before the first lesson, without a lesson, with one
WITHOUT_LESSON = 2
WITH_LESSON = 3


class LessonsState(eqx.Module):
    """Everything that training changes."""

    evolver: Any
    learner: LearnerWithTeachers
    experience: Experience
    frames: np.ndarray  # of all outcomes so far
    members: np.ndarray  # individuals asked for so far
    lengths: np.ndarray  # [N]: frames of the last N outcomes, oldest first; 0 if there were fewer
    counts: np.ndarray  # [2]: individuals with and without a lesson, both counted from 1 (Eq. 3)
    in_flight: InFlight


@part
class Lessons:
    """The coupling of CEM-RL and AES-RL. Its fields decide which of the two it is."""

    budget: ClassVar[float] = 1e6

    task: Task
    evolver: choices.AnyEvolver = field(default_factory=CEM)  # what proposes the individuals
    learner: choices.AnyLearner = field(default_factory=TD3)  # the teacher
    lessons: FirstHalf | Controlled = field(default_factory=FirstHalf)  # which individuals take a lesson
    trials: int = 1  # episodes per individual, whose mean return is its fitness
    warmup: int = 10_000  # frames before the critic begins to learn
    random_warmup: bool = False  # until then actions are random and not told; else the evolver goes on alone
    warmup_told: bool = False  # as the authors' code: the return of random actions is told as an individual's own
    catch_up: bool = False  # the critic takes steps for the warm-up's frames too
    critic_head_start: int = 0  # critic steps before the first lesson
    min_utd: float = 0.0  # asking pauses while critic steps < this share x steps owed
    # whose value the critics learn: that of each individual that takes a lesson next (CEM-RL), or the mean's (AES-RL);
    # none: the individuals' if the evolver knows who comes next
    target_policy: Literal["individual", "mean"] | None = None
    # the critic of a lesson: after the individual's own block of steps (CEM-RL), or the newest (P-CEM-RL's code)
    lesson_critic: Literal["own_block", "newest"] = "own_block"
    critic_chunk: int = 1_000  # the most critic steps for one and the same mean
    memory: int = 8_000  # transitions in a genetic memory, where the evolver keeps some
    replay: int = 1_000_000  # transitions in the replay
    hidden: tuple[int, ...] = (400, 300)  # units of the actor's hidden layers
    layer_norm: bool = False  # of the actor's hidden layers
    activation: Activation = "tanh"  # of the actor's hidden layers
    schedule: Literal["synchronous", "asynchronous"] = "synchronous"  # asynchronous: do not wait for whole generations
    test_episodes: int = 10  # fresh episodes in each test of the champion; never counted as training
    test_every: int = 1  # generations between two tests; the last is always tested
    preset: str = "lessons"  # the name of this system

    def __post_init__(self):
        choices.check_evolver("lessons", self.evolver)
        choices.check_learner("lessons", self.learner, Teacher)
        choices.check_takes_lessons(self._evolver)
        check_at_least(1, self, "trials", "memory", "replay", "critic_chunk", "test_episodes", "test_every")
        check_at_least(0, self, "warmup", "critic_head_start")
        choices.check_network(self)
        if not 0.0 <= self.min_utd <= 1.0:
            raise UserError(f"min utd is {self.min_utd}: it is a share between 0 and 1")
        if self.target_policy == "individual" and not self._evolver.has_upcoming:
            raise UserError("this evolver does not know who comes next: take --target-policy mean")
        if self.warmup_told and not isinstance(self._evolver, VectorEvolver):
            raise UserError("only a search distribution can be told of random actions: leave warmup told out")

    @property
    def _evolver(self) -> Evolver[Any]:
        return adapted(self.evolver)

    @property
    def _learner(self) -> Teacher[Any]:
        return self.learner

    @property
    def generation_size(self) -> int:
        """Candidates in a generation, or between two records."""
        return self._evolver.population

    @property
    def _follows_individuals(self) -> bool:
        """Whether the critics learn the values of individuals, not the mean's."""
        return self._evolver.has_upcoming and self.target_policy != "mean"

    @property
    def _teachers(self) -> int:
        """How many critics are kept for lessons."""
        own_block = self._follows_individuals and self.lesson_critic == "own_block"
        return min(self.lessons.taught, self.generation_size) if own_block else 1

    def settings(self) -> dict[str, Any]:
        """What the paper gives per task."""
        own = {"scale": getattr(self.evolver, "scale", None), "share of lessons": getattr(self.lessons, "share", None)}
        return choices.known(own | {"batch": getattr(self.learner, "batch_size", None)})

    def init(self, key: Array) -> LessonsState:
        """An evolver that begins with the learner's own new actor, and a new learner."""
        k_actor, k_evolver, k_learner = jax.random.split(key, 3)
        empty = buffer.empty(self.memory, *choices.sizes_of(self.task))

        def new_individual(k: int) -> Individual:
            own = jax.random.fold_in(k_actor, 1 + k) if k else k_actor
            return Individual(self._learner.individual(own, choices.new_actor(own, self.task, self)), empty)

        inner = self._learner.init(k_learner, new_individual(0).actor)
        zero = np.zeros((), np.int64)
        return LessonsState(
            evolver=self._evolver.init(k_evolver, new_individual),
            learner=LearnerWithTeachers(inner, (self._learner.teacher(inner),) * self._teachers),
            experience=experience.new_experience(self.task, self.replay, 1),
            frames=zero,
            members=zero,
            lengths=np.zeros(self.generation_size, np.int64),
            counts=np.ones(2, np.int64),
            in_flight=new_in_flight(self.generation_size),
        )

    def ask(self, key: Array, state: LessonsState, n: int) -> tuple[list[Candidate], LessonsState]:
        """The next n to try: random play during the warm-up, individuals with and without lessons after it."""
        if state.learner.updates < self.min_utd * state.experience.owed:
            return [], state
        k_sample, k_rest = jax.random.split(key)
        asked, warming = self._upcoming(state, n)
        members, evolver = self._ask_members(k_sample, state, [one.place for one in asked if one.place >= 0])
        asked = experience.available(asked, members)
        if not asked:
            return [], state
        counts = state.counts - sum(map(_count, asked))  # a candidate that was lost is counted again below
        issued: list[Asked] = []
        candidates: list[Candidate] = []
        for k, one in enumerate(asked):
            k_lesson, k_seeds = jax.random.split(jax.random.fold_in(k_rest, k))
            rng = trees.host_random(k_seeds)
            member = members.pop(0) if one.place >= 0 else None
            kind = UNCOUNTED
            if warming:
                candidate = random_play(k_lesson, rng, self._champion(state), self.task.horizon, self.trials, member)
            else:
                assert member is not None  # only random play may have none
                candidate = replace(member, seeds=draw_seeds(rng, self.trials))
                kind = self._kind(rng, state, one.number % self.generation_size, counts)
                if kind == WITH_LESSON:
                    candidate = self._with_lesson(k_lesson, state, candidate, one.number % self.generation_size)
            issued.append(one._replace(kind=kind))
            counts = counts + _count(issued[-1])
            candidate = replace(candidate, reference_seeds=draw_seeds(rng, candidate.reference_episodes))
            candidates.append(state.in_flight.label(candidate, one))
        asked_for = np.asarray(max(int(state.members), *(1 + one.place for one in issued)))
        in_flight = state.in_flight.issue(issued)
        return candidates, replace(state, evolver=evolver, counts=counts, members=asked_for, in_flight=in_flight)

    def _upcoming(self, state: LessonsState, n: int) -> tuple[list[Asked], bool]:
        """The next n, and whether they act at random. Random play is of no member, unless the evolver is told of it."""
        asked = state.in_flight.upcoming(n, repeat((UNCOUNTED, -1)))
        lost = sum(one.again for one in asked)
        warming = self.random_warmup and expects_warmup(state, lost, self.warmup, self.task.horizon)
        if not warming or self.warmup_told:
            new = count(int(state.members))
            asked = [one if one.place >= 0 else one._replace(place=next(new)) for one in asked]
        return asked, warming

    def _ask_members(self, key: Array, state: LessonsState, places: list[int]) -> tuple[list[Candidate], Any]:
        critic = self.learner.critic(state.learner.inner)
        return self._evolver.ask(key, state.evolver, places, critic) if places else ([], state.evolver)

    def _kind(self, rng: np.random.Generator, state: LessonsState, place: int, counts: np.ndarray) -> int:
        """Whether the member takes a lesson. Members are not counted before the critic has its head start."""
        if not (state.experience.owed > 0 and state.learner.updates >= max(1, self.critic_head_start)):
            return UNCOUNTED
        return WITH_LESSON if rng.random() <= self.lessons.chance(place, *counts) > 0.0 else WITHOUT_LESSON

    def _with_lesson(self, key: Array, state: LessonsState, member: Candidate, place: int) -> Candidate:
        """The member with a lesson, of as many steps as the last generation had frames.

        In CEM-RL that is S_prev, in AES-RL the sum of the last ten lengths.
        """
        lesson = state.learner.lesson(self.learner, key, place, state.experience.replay, state.lengths.sum())
        return replace(member, lesson=lesson, operators=(*member.operators, "lesson"), origin="learning")

    def tell(self, key: Array, state: LessonsState, outcomes: Sequence[Outcome]) -> LessonsState:
        """All transitions go to the replay; then the evolver is told of the individuals."""
        outcomes, in_flight = state.in_flight.accept(outcomes)
        if not outcomes:
            return state
        collected = state.experience.collected(outcomes, (), 0, 0.0)
        frames = sum(outcome.frames for outcome in outcomes)
        lengths = np.append(state.lengths, [outcome.frames for outcome in outcomes])[-self.generation_size :]
        members = outcomes if self.warmup_told else experience.of_purpose(outcomes, "fitness")
        evolver = state.evolver
        if members:
            evolver = self._evolver.tell(key, evolver, members, self.learner.critic(state.learner.inner))
        state = replace(state, evolver=evolver, frames=state.frames + frames, lengths=lengths, in_flight=in_flight)
        return replace(state, experience=replace(collected, owed=self._owed(state, frames)))

    def _owed(self, state: LessonsState, frames: int) -> np.ndarray:
        """One critic step per frame, rounded down to a multiple of the individuals whose values are learnt.

        CEM-RL's code rounds down in every generation; here it happens in every call of `tell`.
        """
        if state.frames <= self.warmup:
            return state.experience.owed
        blocks = self.lessons.taught if self._follows_individuals else 1
        return state.frames if self.catch_up else state.experience.owed + blocks * (frames // blocks)

    def steps_owed(self, state: LessonsState) -> int:
        """The critic steps of the next `learn`; at most `critic_chunk` for one and the same mean."""
        steps = int(state.experience.owed) - int(state.learner.updates)
        return steps if self._follows_individuals else min(steps, self.critic_chunk)

    def learn(self, key: Array, state: LessonsState) -> LessonsState:
        """The critic steps owed, in a block for each policy whose value is learnt."""
        steps = self.steps_owed(state)
        if not steps:
            return state
        policies = [self._evolver.champion(state.evolver)]
        if self._follows_individuals:
            policies = cast(Foresight[Any], self._evolver).upcoming(state.evolver, self.lessons.taught)
        replay = state.experience.replay
        return replace(state, learner=state.learner.learn(self.learner, key, policies, replay, steps, self._teachers))

    learning_phase = experience.learning_phase
    still_to_ask = experience.nothing_more
    forget_workers = forget_workers

    def champion(self, state: LessonsState) -> Actor:
        """The mean, whose score both papers report; of a genetic algorithm the fittest."""
        return deterministic(self._champion(state))

    def _champion(self, state: LessonsState) -> networks.Actor | SquashedGaussian:
        """The evolver's champion, which is of the kind that `init` gave the evolver."""
        return cast(networks.Actor | SquashedGaussian, self._evolver.champion(state.evolver))

    def policies(self, state: LessonsState) -> dict[str, Actor]:
        """The champion."""
        return {"champion": self.champion(state)}

    def report(self, state: LessonsState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """The staleness of results, how many had a lesson so far, and the reports of evolver and learner."""
        lags = zip(outcomes, state.in_flight.staleness(outcomes), strict=True)
        # outcomes that are told in one call add no staleness to each other
        one_by_one = self.schedule == "asynchronous" or getattr(self._evolver, "needs_reference", False)
        lags = [lag if one_by_one else 0 for outcome, lag in lags if outcome.candidate.purpose == "fitness"]
        with_lesson, without = (int(count) - 1 for count in state.counts)
        report = {"staleness": lags, "taught": with_lesson, "untaught": without}
        report |= self._evolver.report(state.evolver, outcomes)
        return report | self.learner.report(state.learner.inner)


def _count(one: Asked) -> np.ndarray:
    """What a candidate adds to the counts of individuals with and without a lesson."""
    return np.array([one.kind == WITH_LESSON, one.kind == WITHOUT_LESSON], np.int64)
