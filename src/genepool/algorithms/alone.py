"""An evolver alone (CEM, OpenAI-ES, a genetic algorithm), or a learner alone (DDPG, TD3, SAC): the baselines."""

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import count, repeat
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
from jax import Array

from genepool import buffer, trees
from genepool.algorithms import choices
from genepool.algorithms.experience import (
    Experience,
    available,
    learn,
    learning_phase,
    new_experience,
    nothing_more,
    steps_owed,
    with_seeds,
)
from genepool.algorithms.in_flight import EXPLORING, MEMBER, InFlight, forget_workers, new_in_flight
from genepool.environments.task import Task
from genepool.errors import UserError, check_at_least
from genepool.evolution.distribution.adapter import adapted
from genepool.evolution.distribution.cem import CEM
from genepool.evolution.distribution.openai_es import OpenAIES
from genepool.learning.lessons import check_replay
from genepool.learning.td3 import TD3
from genepool.networks import Activation, Initial
from genepool.parts import part
from genepool.protocols import Actor, Evolver
from genepool.types import Candidate, Individual, Outcome


class EvolverAloneState(eqx.Module):
    """Everything that training changes. There is no learner."""

    evolver: Any
    in_flight: InFlight
    learner: None = None


@part
class EvolverAlone:
    """An evolver and no learner: its individuals are tried, and it is told their fitness."""

    budget: ClassVar[float] = 1e6

    task: Task
    evolver: choices.AnyEvolver = field(default_factory=CEM)
    trials: int = 1  # episodes per individual, whose mean return is its fitness
    memory: int = 8_000  # transitions in a genetic memory, where the evolver keeps some
    hidden: tuple[int, ...] = (400, 300)  # units of the actor's hidden layers
    layer_norm: bool = False  # of the actor's hidden layers
    activation: Activation = "tanh"  # of the actor's hidden layers
    initial: Initial = "fan_in"  # how its weights are drawn
    schedule: Literal["synchronous", "asynchronous"] = "synchronous"  # asynchronous: do not wait for whole generations
    test_episodes: int = 10  # fresh episodes in each test of the champion; never counted as training
    test_every: int = 1  # generations between two tests; the last is always tested
    preset: str = "alone"  # the name of this system

    def __post_init__(self):
        choices.check_evolver("an evolver alone", self.evolver)
        check_at_least(1, self, "trials", "memory", "test_episodes", "test_every")
        choices.check_network(self)
        if self._evolver.needs_critic:
            raise UserError("distillation needs a learner's critic, and there is none here: take --crossover row-copy")

    @property
    def _evolver(self) -> Evolver[Any]:
        return adapted(self.evolver)

    @property
    def generation_size(self) -> int:
        """Candidates in a generation."""
        return self._evolver.population

    def settings(self) -> dict[str, Any]:
        """The settings that a reader wants to know first."""
        own = {name: getattr(self.evolver, name, None) for name in ("population", "pairs", "sigma", "rate")}
        return choices.known(own)

    def init(self, key: Array) -> EvolverAloneState:
        """A new evolver."""
        k_members, k_evolver = jax.random.split(key)
        keys = jax.random.split(k_members, self.generation_size)
        empty = buffer.empty(self.memory, *choices.sizes_of(self.task))

        def new_individual(k: int) -> Individual:
            return Individual(choices.new_actor(keys[k], self.task, self), empty)

        return EvolverAloneState(self._evolver.init(k_evolver, new_individual), new_in_flight(self.generation_size))

    def ask(self, key: Array, state: EvolverAloneState, n: int) -> tuple[list[Candidate], EvolverAloneState]:
        """The next n individuals; fewer if the evolver waits for outcomes."""
        k_seeds, k_members = jax.random.split(key)
        asked = state.in_flight.upcoming(n, zip(repeat(MEMBER), count(int(state.in_flight.asked))))
        members, evolver = self._evolver.ask(k_members, state.evolver, [one.place for one in asked], None)
        asked = available(asked, members)
        if not asked:
            return [], state
        rng = trees.host_random(k_seeds)
        members = [with_seeds(member, rng, self.trials) for member in members]
        candidates = [state.in_flight.label(member, one) for member, one in zip(members, asked, strict=True)]
        return candidates, EvolverAloneState(evolver, state.in_flight.issue(asked))

    def tell(self, key: Array, state: EvolverAloneState, outcomes: Sequence[Outcome]) -> EvolverAloneState:
        """The evolver is told the fitness of its individuals."""
        outcomes, in_flight = state.in_flight.accept(outcomes)
        evolver = state.evolver
        portions = 0
        while outcomes:
            room = self._room(evolver, len(outcomes))
            k_tell = jax.random.fold_in(key, portions) if portions else key
            evolver = self._tell_portion(k_tell, evolver, outcomes[:room])
            outcomes = outcomes[room:]
            portions += 1
        return EvolverAloneState(evolver, in_flight)

    def _room(self, evolver: Any, left: int) -> int:
        """How many of these outcomes are told next. OpenAI-ES ends its generation first, to tune sigma."""
        return self.generation_size - int(evolver.count) if isinstance(self.evolver, OpenAIES) else left

    def _tell_portion(self, key: Array, before: Any, outcomes: Sequence[Outcome]) -> Any:
        """The evolver's state after these outcomes. OpenAI-ES may tune its sigma at the end of a generation."""
        evolver = self._evolver.tell(key, before, outcomes, None)
        if not isinstance(self.evolver, OpenAIES) or evolver.generation == before.generation:
            return evolver
        horizon = self.task.horizon
        return choices.tune_if_due(self.evolver, evolver, False, int(evolver.generation) * horizon, horizon)

    def learn(self, key: Array, state: EvolverAloneState) -> EvolverAloneState:
        """Nothing: there is no learner."""
        return state

    steps_owed = nothing_more
    learning_phase = learning_phase
    still_to_ask = nothing_more
    forget_workers = forget_workers

    def champion(self, state: EvolverAloneState) -> Actor:
        """The mean of a search distribution, the mother of OpenAI-ES, or the fittest of a genetic algorithm."""
        return self._evolver.champion(state.evolver)

    def policies(self, state: EvolverAloneState) -> dict[str, Actor]:
        """The champion."""
        return {"champion": self.champion(state)}

    def report(self, state: EvolverAloneState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """What the evolver reports."""
        report = self._evolver.report(state.evolver, outcomes)
        lags = {"staleness": state.in_flight.staleness(outcomes)} if self.schedule == "asynchronous" else {}
        return {name: value for name, value in report.items() if name not in ("clone", "clones")} | lags


class LearnerAloneState(eqx.Module):
    """Everything that training changes."""

    learner: Any
    experience: Experience
    in_flight: InFlight


@part
class LearnerAlone:
    """A learner and no population: an episode, then as many gradient steps as it had frames."""

    budget: ClassVar[float] = 1e6
    generation_size: ClassVar[int] = 1  # an episode

    task: Task
    learner: choices.AnyLearner = field(default_factory=TD3)
    replay: int = 1_000_000  # transitions in the replay
    hidden: tuple[int, ...] = (128, 128)  # units of the actor's hidden layers
    layer_norm: bool = True  # of the actor's hidden layers
    activation: Activation = "tanh"  # of the actor's hidden layers
    initial: Initial = "fan_in"  # how the actor's weights are drawn
    updates_per_frame: float = 1.0  # gradient steps per frame
    schedule: Literal["synchronous", "asynchronous"] = "synchronous"  # an episode, then its steps; or both at once
    test_episodes: int = 5  # fresh episodes in each test; never counted as training
    test_every: int = 10  # episodes between two tests; the last is always tested
    preset: str = "alone"  # the name of this system

    def __post_init__(self):
        choices.check_learner("a learner alone", self.learner)
        check_at_least(1, self, "replay", "test_episodes", "test_every")
        choices.check_network(self)
        check_at_least(0, self, "updates_per_frame")
        check_replay(self.learner, self.replay)

    def settings(self) -> dict[str, Any]:
        """None: no paper gives any per task."""
        return {}

    def init(self, key: Array) -> LearnerAloneState:
        """A new learner."""
        _, k_actor, k_learner = jax.random.split(key, 3)
        learner = self.learner.init(k_learner, choices.new_actor(k_actor, self.task, self))
        return LearnerAloneState(learner, new_experience(self.task, self.replay, 1), new_in_flight(1))

    def ask(self, key: Array, state: LearnerAloneState, n: int) -> tuple[list[Candidate], LearnerAloneState]:
        """The next n episodes of the learner, with its noise."""
        k_seeds, k_noise = jax.random.split(key)
        asked = state.in_flight.upcoming(n, repeat((EXPLORING, -1)))
        rng = trees.host_random(k_seeds)
        candidates: list[Candidate] = []
        for one in asked:
            candidate = state.experience.exploration(k_noise, self.learner, state.learner, self.task.horizon, rng)
            candidates.append(state.in_flight.label(candidate, one))
        return candidates, replace(state, in_flight=state.in_flight.issue(asked))

    def tell(self, key: Array, state: LearnerAloneState, outcomes: Sequence[Outcome]) -> LearnerAloneState:
        """The transitions go to the replay."""
        outcomes, in_flight = state.in_flight.accept(outcomes)
        experience = state.experience.collected(outcomes, outcomes, self.learner.warmup, self.updates_per_frame)
        return replace(state, experience=experience, in_flight=in_flight)

    learn = learn
    steps_owed = steps_owed
    learning_phase = learning_phase
    still_to_ask = nothing_more
    forget_workers = forget_workers

    def champion(self, state: LearnerAloneState) -> Actor:
        """The learner's actor, without noise."""
        return self.learner.actor(state.learner)

    def policies(self, state: LearnerAloneState) -> dict[str, Actor]:
        """The learner's actor."""
        return {"learner": self.champion(state)}

    def report(self, state: LearnerAloneState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """Losses and gradient steps."""
        lags = {"staleness": state.in_flight.staleness(outcomes)} if self.schedule == "asynchronous" else {}
        return self.learner.report(state.learner) | lags
