"""Phases: ESAC (Suri et al. 2020, Algorithm 1), with any evolver and any learner.

Every g generations, with a probability that falls, the learner plays episodes of its own and learns from them; its actor
is among the members of every generation.
"""

import math
from collections.abc import Sequence
from dataclasses import field, replace
from itertools import chain, count, repeat
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import numpy as np
from jax import Array

from genepool import buffer, trees
from genepool.algorithms import choices, experience
from genepool.algorithms.experience import Experience
from genepool.algorithms.in_flight import EXPLORING, MEMBER, InFlight, forget_workers, new_in_flight
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.evolution.distribution.adapter import adapted
from genepool.evolution.distribution.openai_es import OpenAIES
from genepool.learning.lessons import check_replay
from genepool.learning.sac import SAC
from genepool.networks import Activation, Initial
from genepool.parts import part
from genepool.protocols import Evolver
from genepool.types import Candidate, Individual, Outcome


class PhasesState(eqx.Module):
    """Everything that training changes."""

    evolver: Any
    learner: Any
    experience: Experience
    episodes: np.ndarray  # of the learner's phase, still to be played
    phases: np.ndarray  # of the learner, so far
    members: np.ndarray  # members asked for so far
    told: np.ndarray  # members of this generation whose outcomes were told
    generation: np.ndarray  # t, generations that are over
    best: np.ndarray  # the best return of this generation so far
    maxima: np.ndarray  # [100]: that of each of the last generations, NaN where there are fewer
    in_flight: InFlight


@part
class Phases:
    """The coupling of ESAC: the learner plays and learns at drawn times, and sits among the members."""

    budget: ClassVar[float] = 1e6

    task: Task
    evolver: choices.AnyEvolver = field(default_factory=OpenAIES)  # what moves with the members' returns
    learner: choices.AnyLearner = field(default_factory=lambda: SAC(critics="value"))  # what plays in phases
    sac_episodes: int = 5  # E: episodes of the learner in a phase
    gradient_interval: int = 5  # g: generations between two chances of a phase
    final_chance: float = 0.1  # p_sac falls from 1 to this
    chance_decay: float = 1.2e6  # nominal steps in which what is above it falls to 1/e
    learns_after: Literal["episode", "phase"] = "episode"  # each of the learner's episodes, or all of a phase (paper)
    share_experience: bool = False  # the population's transitions go to the replay too, as ERL's do
    trials: int = 1  # episodes per member, whose mean return is its fitness
    memory: int = 8_000  # transitions in a genetic memory, where the evolver keeps some
    replay: int = 1_000_000  # transitions in the learner's replay
    hidden: tuple[int, ...] = (512, 512)  # units of the actor's hidden layers
    layer_norm: bool = False  # of the actor's hidden layers
    activation: Activation = "relu"  # of the actor's hidden layers
    initial: Initial = "xavier"  # how its weights are drawn
    updates_per_frame: float = 1.0  # gradient steps of the learner per frame of its own
    schedule: Literal["synchronous", "asynchronous"] = "synchronous"  # whether generations are awaited
    test_episodes: int = 10  # fresh episodes in each test; never counted as training
    test_every: int = 10  # generations between two tests; the last is always tested
    preset: str = "phases"  # the name of this system

    def __post_init__(self):
        choices.check_evolver("phases", self.evolver)
        choices.check_learner("phases", self.learner)
        _ = self._evolver
        counts = ("sac_episodes", "gradient_interval", "trials", "memory", "replay", "test_episodes", "test_every")
        choices.check_counts(self, *counts)
        choices.check_network(self)
        choices.check_not_negative(self, "updates_per_frame")
        if not 0 <= self.final_chance <= 1:
            raise UserError(f"final chance is {self.final_chance}: it is a probability between 0 and 1")
        if self.chance_decay <= 0:
            raise UserError(f"chance decay is {self.chance_decay}: it must be more than 0 steps")
        check_replay(self.learner, self.replay)

    @property
    def _evolver(self) -> Evolver[Any]:
        return adapted(self.evolver)

    @property
    def generation(self) -> int:
        """Members in a generation."""
        return self._evolver.population

    def settings(self) -> dict[str, Any]:
        """What the paper gives per task."""
        own = {name: getattr(self.evolver, name, None) for name in ("pairs", "sigma", "rate")}
        return choices.known(own | {"SAC episodes": self.sac_episodes})

    def init(self, key: Array) -> PhasesState:
        """A new evolver, and a learner with an actor of its own."""
        k_members, k_evolver, k_actor, k_learner = jax.random.split(key, 4)
        shape = self.hidden, self.layer_norm, self.activation, self.initial
        empty = buffer.empty(self.memory, *choices.sizes_of(self.task))

        def new_individual(k: int) -> Individual:
            own = jax.random.fold_in(k_members, k) if k else k_members
            return Individual(choices.new_actor(own, self.task, shape), empty)

        zero = np.zeros((), np.int64)
        return PhasesState(
            evolver=self._evolver.init(k_evolver, new_individual),
            learner=self.learner.init(k_learner, choices.new_actor(k_actor, self.task, shape)),
            experience=experience.new_experience(self.task, self.replay, self.memory),
            episodes=zero,
            phases=zero,
            members=zero,
            told=zero,
            generation=zero,
            best=np.asarray(-np.inf),
            maxima=np.full(100, np.nan),
            in_flight=new_in_flight(self.generation + self.sac_episodes),
        )

    def chance(self, nominal: int) -> float:
        """p_sac(T) = 0.1 + 0.9 exp(-T / 1.2e6), of the nominal steps T. The formula is the code's; the paper has none."""
        return self.final_chance + (1.0 - self.final_chance) * math.exp(-nominal / self.chance_decay)

    def nominal(self, state: PhasesState) -> int:
        """T, the steps that the paper counts: one episode's time limit per generation, however many are played."""
        return int(state.generation) * self.task.horizon

    def ask(self, key: Array, state: PhasesState, n: int) -> tuple[list[Candidate], PhasesState]:
        """The next n to try: the learner's episodes while a phase is on, else members of the population."""
        k_seeds, k_noise, k_members = jax.random.split(key, 3)
        exploring = repeat((EXPLORING, -1), int(state.episodes))
        new = chain(exploring, ((MEMBER, place) for place in count(int(state.members))))
        asked = state.in_flight.upcoming(n, new)
        members, evolver = self._members(k_members, state, [one.place for one in asked if one.kind == MEMBER])
        asked = experience.served(asked, members)
        if not asked:
            return [], state
        in_flight, rng, candidates = state.in_flight.issue(asked), trees.host_random(k_seeds), []
        for k, one in enumerate(asked):
            if one.kind == MEMBER:
                candidate = experience.with_seeds(members.pop(0), rng, self.trials)
            else:
                # the authors' code acts at random for the first nominal steps, not for the first of the learner's own
                own, seen = (self.learner, state.learner, self.task.horizon, rng), self.nominal(state)
                candidate = state.experience.exploration(jax.random.fold_in(k_noise, k), *own, seen=seen)
            version = int(in_flight.told_count)
            candidates.append(replace(candidate, number=one.number, place=one.place, version=version))
        fresh = [one.kind for one in asked if not one.again]
        left, asked_for = state.episodes - fresh.count(EXPLORING), state.members + fresh.count(MEMBER)
        return candidates, replace(state, evolver=evolver, in_flight=in_flight, episodes=left, members=asked_for)

    def _members(self, key: Array, state: PhasesState, places: list[int]) -> tuple[list[Candidate], Any]:
        """Members in these places. At the beginning of each generation the learner's clone joins them."""
        evolver, actor = state.evolver, self.learner.actor(state.learner)
        if any(place % self.generation == 0 for place in places):
            evolver = self._evolver.inject(evolver, state.experience.clone(actor))
        return self._evolver.ask(key, evolver, places, self.learner.critic(state.learner)) if places else ([], evolver)

    def tell(self, key: Array, state: PhasesState, outcomes: Sequence[Outcome]) -> PhasesState:
        """The learner's episodes go to its replay; the members' outcomes go to the evolver, generation by generation."""
        outcomes, in_flight = state.in_flight.accept(outcomes)
        explored, members = experience.of_purpose(outcomes, "exploration"), experience.of_purpose(outcomes, "fitness")
        recorded, rate = outcomes if self.share_experience else explored, self.updates_per_frame
        collected = state.experience.collected(recorded, explored, self.learner.warmup, rate)
        state = replace(state, experience=collected, in_flight=in_flight)
        while members:
            room = self.generation - int(state.told)
            portion, members = members[:room], members[room:]
            state = self._told(jax.random.fold_in(key, len(members)), state, portion)
        return state

    def _told(self, key: Array, state: PhasesState, members: list[Outcome]) -> PhasesState:
        """These outcomes; where they complete a generation, whether the learner has a phase now is drawn."""
        k_chance, k_tell = jax.random.split(key)
        evolver = self._evolver.tell(k_tell, state.evolver, members, self.learner.critic(state.learner))
        best = np.fmax(state.best, np.fmax.reduce([outcome.fitness for outcome in members]))
        told = state.told + len(members)
        if told < self.generation:
            return replace(state, evolver=evolver, best=best, told=told)
        generation, horizon = int(state.generation) + 1, self.task.horizon
        drawn = trees.host_random(k_chance).random() < self.chance(generation * horizon)  # 12
        phase = drawn and generation % self.gradient_interval == 0
        return replace(
            state,
            evolver=self._tuned(evolver, generation * horizon, phase),
            episodes=state.episodes + self.sac_episodes * phase,
            phases=state.phases + phase,
            told=state.told * 0,
            generation=state.generation + 1,
            best=np.asarray(-np.inf),
            maxima=np.append(state.maxima[1:], best if np.isfinite(best) else np.nan),
        )

    def _tuned(self, evolver: Any, nominal: int, phase: bool) -> Any:
        """ESAC tunes sigma with every phase, or at intervals of nominal steps."""
        own = self.evolver
        tunes = isinstance(own, OpenAIES) and own.tunes_now(phase, nominal, self.task.horizon)
        return own.tune(evolver) if tunes else evolver  # 24

    learn = experience.learn  # 18-23
    steps_owed = experience.steps_owed
    learning_phase = experience.learning_phase
    forget_workers = forget_workers

    def still_to_ask(self, state: PhasesState) -> int:
        """The learner's episodes of a phase: one, then learning, then the next; or all of them before it learns."""
        left = int(state.episodes)
        return min(1, left) if self.learns_after == "episode" else left

    def champion(self, state: PhasesState) -> Any:
        """The evolver's: of ESAC the best of the last generation, which is played anew when it is tested."""
        return self._evolver.champion(state.evolver)

    def policies(self, state: PhasesState) -> dict[str, Any]:
        """The champion, ESAC's mother, and the learner's actor."""
        mother = {"mother": self.evolver.mother(state.evolver)} if isinstance(self.evolver, OpenAIES) else {}
        return {"champion": self.champion(state), **mother, "learner": self.learner.actor(state.learner)}

    def report(self, state: PhasesState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """The paper's own count and score, the phases so far, and what evolver and learner report."""
        maxima = state.maxima[~np.isnan(state.maxima)]
        report = {
            "nominal_steps": self.nominal(state),
            "pop_max_ma100": float(maxima.mean()) if len(maxima) else None,
            "phases": int(state.phases),
        }
        if self.schedule == "asynchronous":
            report["staleness"] = state.in_flight.staleness(outcomes)
        members = experience.of_purpose(outcomes, "fitness")
        return report | self._evolver.report(state.evolver, members) | self.learner.report(state.learner)
