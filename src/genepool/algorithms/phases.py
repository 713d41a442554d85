"""Phases: ESAC (Suri et al. 2020, Algorithm 1), with any evolver and any learner.

Every g generations, with a probability that falls, the learner plays episodes of its own and learns from them. Its
actor is a member of every generation. Numbers in the margin are lines of Algorithm 1.
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
from genepool.errors import UserError, check_at_least
from genepool.evolution.distribution.adapter import adapted
from genepool.evolution.distribution.openai_es import OpenAIES
from genepool.learning.lessons import check_replay
from genepool.learning.sac import SAC
from genepool.networks import Activation, Initial
from genepool.parts import part
from genepool.protocols import Actor, Evolver
from genepool.types import Candidate, Individual, Outcome


class PhasesState(eqx.Module):
    """Everything that training changes."""

    evolver: Any
    learner: Any
    experience: Experience
    episodes: np.ndarray  # episodes of the learner's phase that are still to be asked for
    phases: np.ndarray  # phases of the learner so far
    members: np.ndarray  # members asked for so far
    told_count: np.ndarray  # members of this generation that the evolver was told of
    generation: np.ndarray  # t: generations that are complete
    best: np.ndarray  # the best fitness of this generation so far
    maxima: np.ndarray  # the best fitness of each of the last 100 generations, NaN if there were fewer
    in_flight: InFlight


@part
class Phases:
    """The coupling of ESAC: the learner plays and learns at drawn times, and its actor is one of the members."""

    budget: ClassVar[float] = 1e6

    task: Task
    evolver: choices.AnyEvolver = field(default_factory=OpenAIES)  # what moves with the members' returns
    learner: choices.AnyLearner = field(default_factory=lambda: SAC(critics="value"))  # what plays in phases
    sac_episodes: int = 5  # E: episodes of the learner in a phase
    gradient_interval: int = 5  # g: generations between two chances of a phase
    final_chance: float = 0.1  # p_sac falls from 1 to this
    chance_decay: float = 1.2e6  # nominal steps in which p_sac - final_chance falls to 1/e
    learns_after: Literal["episode", "phase"] = "episode"  # each of the learner's episodes, or all of a phase (paper)
    share_experience: bool = False  # the population's transitions go to the replay too, as in ERL
    trials: int = 1  # episodes per member, whose mean return is its fitness
    memory: int = 8_000  # transitions in a genetic memory, where the evolver keeps some
    replay: int = 1_000_000  # transitions in the learner's replay
    hidden: tuple[int, ...] = (512, 512)  # units of the actor's hidden layers
    layer_norm: bool = False  # of the actor's hidden layers
    activation: Activation = "relu"  # of the actor's hidden layers
    initial: Initial = "xavier"  # how its weights are drawn
    updates_per_frame: float = 1.0  # gradient steps of the learner per frame of its own
    schedule: Literal["synchronous", "asynchronous"] = "synchronous"  # asynchronous: do not wait for whole generations
    test_episodes: int = 10  # fresh episodes in each test; never counted as training
    test_every: int = 10  # generations between two tests; the last is always tested
    preset: str = "phases"  # the name of this system

    def __post_init__(self):
        choices.check_evolver("phases", self.evolver)
        choices.check_learner("phases", self.learner)
        adapted(self.evolver)  # which refuses a part that is no evolver
        check_at_least(1, self, "sac_episodes", "gradient_interval", "trials", "memory", "replay")
        check_at_least(1, self, "test_episodes", "test_every")
        check_at_least(0, self, "updates_per_frame")
        choices.check_network(self)
        if not 0 <= self.final_chance <= 1:
            raise UserError(f"final chance is {self.final_chance}: it is a probability between 0 and 1")
        if self.chance_decay <= 0:
            raise UserError(f"chance decay is {self.chance_decay}: it must be more than 0 steps")
        check_replay(self.learner, self.replay)

    @property
    def _evolver(self) -> Evolver[Any]:
        return adapted(self.evolver)

    @property
    def generation_size(self) -> int:
        """Members in a generation."""
        return self._evolver.population

    def settings(self) -> dict[str, Any]:
        """What the paper gives per task."""
        own = {name: getattr(self.evolver, name, None) for name in ("pairs", "sigma", "rate")}
        return choices.known(own | {"SAC episodes": self.sac_episodes})

    def init(self, key: Array) -> PhasesState:
        """A new evolver, and a learner with an actor of its own."""
        k_members, k_evolver, k_actor, k_learner = jax.random.split(key, 4)
        empty = buffer.empty(self.memory, *choices.sizes_of(self.task))

        def new_individual(k: int) -> Individual:
            own = jax.random.fold_in(k_members, k) if k else k_members  # individual 0 uses the key itself
            return Individual(choices.new_actor(own, self.task, self), empty)

        zero = np.zeros((), np.int64)
        return PhasesState(
            evolver=self._evolver.init(k_evolver, new_individual),
            learner=self.learner.init(k_learner, choices.new_actor(k_actor, self.task, self)),
            experience=experience.new_experience(self.task, self.replay, self.memory),
            episodes=zero,
            phases=zero,
            members=zero,
            told_count=zero,
            generation=zero,
            best=np.asarray(-np.inf),
            maxima=np.full(100, np.nan),  # no generation is complete yet
            in_flight=new_in_flight(self.generation_size + self.sac_episodes),
        )

    def chance(self, nominal: int) -> float:
        """p_sac(T) = 0.1 + 0.9 exp(-T / 1.2e6) after T nominal steps. The formula is the code's; the paper has none."""
        return self.final_chance + (1.0 - self.final_chance) * math.exp(-nominal / self.chance_decay)

    def nominal(self, state: PhasesState) -> int:
        """T, the steps as the paper counts them: the time limit of one episode for every generation."""
        return int(state.generation) * self.task.horizon

    def ask(self, key: Array, state: PhasesState, n: int) -> tuple[list[Candidate], PhasesState]:
        """The next n to try: the learner's episodes while a phase is on, else members of the population."""
        k_seeds, k_noise, k_members = jax.random.split(key, 3)
        exploring = repeat((EXPLORING, -1), int(state.episodes))  # 13-17
        new_members = zip(repeat(MEMBER), count(int(state.members)))  # 5-8
        asked = state.in_flight.upcoming(n, chain(exploring, new_members))
        places = [one.place for one in asked if one.kind == MEMBER]
        members, evolver = self._ask_members(k_members, state, places)
        asked = experience.available(asked, members)
        if not asked:
            return [], state
        rng = trees.host_random(k_seeds)
        candidates: list[Candidate] = []
        for k, one in enumerate(asked):
            if one.kind == MEMBER:
                candidate = experience.with_seeds(members.pop(0), rng, self.trials)
            else:
                candidate = self._episode(jax.random.fold_in(k_noise, k), state, rng)
            candidates.append(state.in_flight.label(candidate, one))
        new_kinds = [one.kind for one in asked if not one.again]
        return candidates, replace(
            state,
            evolver=evolver,
            in_flight=state.in_flight.issue(asked),
            episodes=state.episodes - new_kinds.count(EXPLORING),
            members=state.members + new_kinds.count(MEMBER),
        )

    def _ask_members(self, key: Array, state: PhasesState, places: list[int]) -> tuple[list[Candidate], Any]:
        """Members in these places. The learner's clone joins them at the beginning of each generation."""
        if not places:
            return [], state.evolver
        evolver = state.evolver
        if any(place % self.generation_size == 0 for place in places):
            evolver = self._evolver.inject(evolver, state.experience.clone(self.learner.actor(state.learner)))
        return self._evolver.ask(key, evolver, places, self.learner.critic(state.learner))

    def _episode(self, key: Array, state: PhasesState, rng: np.random.Generator) -> Candidate:
        """An episode of the learner. As in the authors' code, its first actions are random by nominal steps."""
        steps = self.nominal(state)
        return state.experience.exploration(key, self.learner, state.learner, self.task.horizon, rng, steps)

    def tell(self, key: Array, state: PhasesState, outcomes: Sequence[Outcome]) -> PhasesState:
        """The learner's episodes go to its replay. Members go to the evolver, generation by generation."""
        outcomes, in_flight = state.in_flight.accept(outcomes)
        explored = experience.of_purpose(outcomes, "exploration")
        members = experience.of_purpose(outcomes, "fitness")
        recorded = outcomes if self.share_experience else explored
        collected = state.experience.collected(recorded, explored, self.learner.warmup, self.updates_per_frame)  # 16
        state = replace(state, experience=collected, in_flight=in_flight)
        while members:
            room = self.generation_size - int(state.told_count)
            portion = members[:room]
            members = members[room:]
            k_chance, k_tell = jax.random.split(jax.random.fold_in(key, len(members)))
            state = self._tell_members(k_tell, state, portion)  # 9-11
            if state.told_count == self.generation_size:
                state = self._end_generation(k_chance, state)
        return state

    def _tell_members(self, key: Array, state: PhasesState, members: list[Outcome]) -> PhasesState:
        """The evolver is told of these members, which are of one generation."""
        evolver = self._evolver.tell(key, state.evolver, members, self.learner.critic(state.learner))
        best = np.fmax(state.best, np.fmax.reduce([outcome.fitness for outcome in members]))
        return replace(state, evolver=evolver, best=best, told_count=state.told_count + len(members))

    def _end_generation(self, key: Array, state: PhasesState) -> PhasesState:
        """The generation is complete: whether the learner has a phase now is drawn, and sigma may be tuned."""
        generation = int(state.generation) + 1
        nominal = generation * self.task.horizon
        drawn = trees.host_random(key).random() < self.chance(nominal)  # 12
        phase = drawn and generation % self.gradient_interval == 0
        best = state.best if np.isfinite(state.best) else np.nan
        return replace(
            state,
            evolver=choices.tune_if_due(self.evolver, state.evolver, phase, nominal, self.task.horizon),  # 24
            episodes=state.episodes + self.sac_episodes * phase,
            phases=state.phases + phase,
            told_count=state.told_count * 0,
            generation=state.generation + 1,
            best=np.asarray(-np.inf),
            maxima=np.append(state.maxima[1:], best),
        )

    learn = experience.learn  # 18-23
    steps_owed = experience.steps_owed
    learning_phase = experience.learning_phase
    forget_workers = forget_workers

    def still_to_ask(self, state: PhasesState) -> int:
        """The learner's episodes: one if it learns after each, else all that its phase still has."""
        left = int(state.episodes)
        return min(1, left) if self.learns_after == "episode" else left

    def champion(self, state: PhasesState) -> Actor:
        """The evolver's champion; in ESAC the best of the last generation, which is tested on fresh episodes."""
        return self._evolver.champion(state.evolver)

    def policies(self, state: PhasesState) -> dict[str, Actor]:
        """The champion, ESAC's mother, and the learner's actor."""
        mother = {"mother": self.evolver.mother(state.evolver)} if isinstance(self.evolver, OpenAIES) else {}
        return {"champion": self.champion(state), **mother, "learner": self.learner.actor(state.learner)}

    def report(self, state: PhasesState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """The paper's count of steps and its score, the phases so far, and the reports of evolver and learner."""
        maxima = state.maxima[~np.isnan(state.maxima)]
        report: dict[str, Any] = {
            "nominal_steps": self.nominal(state),
            "pop_max_ma100": float(maxima.mean()) if len(maxima) else None,
            "phases": int(state.phases),
        }
        if self.schedule == "asynchronous":
            report["staleness"] = state.in_flight.staleness(outcomes)
        members = experience.of_purpose(outcomes, "fitness")
        return report | self._evolver.report(state.evolver, members) | self.learner.report(state.learner)
