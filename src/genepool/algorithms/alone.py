"""An evolver alone (CEM, OpenAI-ES, a genetic algorithm), or a learner alone (DDPG, TD3, SAC): what hybrids are compared with."""

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
    learn,
    learning_phase,
    new_experience,
    nothing_more,
    served,
    steps_owed,
    with_seeds,
)
from genepool.algorithms.in_flight import EXPLORING, MEMBER, InFlight, forget_workers, new_in_flight
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.evolution.distribution.adapter import adapted
from genepool.evolution.distribution.cem import CEM
from genepool.evolution.distribution.openai_es import OpenAIES
from genepool.learning.lessons import check_replay
from genepool.learning.td3 import TD3
from genepool.networks import Activation, Initial
from genepool.parts import part
from genepool.protocols import Evolver
from genepool.types import Candidate, Individual, Outcome


class EvolverAloneState(eqx.Module):
    """Everything that training changes. There is no learner."""

    evolver: Any
    in_flight: InFlight
    learner: None = None


@part
class EvolverAlone:
    """An evolver and nothing else: its individuals are tried, and it is told what they earned."""

    budget: ClassVar[float] = 1e6

    task: Task
    evolver: choices.AnyEvolver = field(default_factory=CEM)
    trials: int = 1  # episodes per individual, whose mean return is its fitness
    memory: int = 8_000  # transitions in a genetic memory, where the evolver keeps some
    hidden: tuple[int, ...] = (400, 300)  # units of the actor's hidden layers
    layer_norm: bool = False  # of the actor's hidden layers
    activation: Activation = "tanh"  # of the actor's hidden layers
    initial: Initial = "fan_in"  # how its weights are drawn
    schedule: Literal["synchronous", "asynchronous"] = "synchronous"  # whether generations are awaited
    test_episodes: int = 10  # fresh episodes in each test of the champion; never counted as training
    test_every: int = 1  # generations between two tests; the last is always tested
    preset: str = "alone"  # the name of this system

    def __post_init__(self):
        choices.check_evolver("an evolver alone", self.evolver)
        choices.check_counts(self, "trials", "memory", "test_episodes", "test_every")
        choices.check_network(self)
        if self._evolver.needs_critic:
            raise UserError("distillation asks a learner's critic, and there is none here: take --crossover row-copy")

    @property
    def _evolver(self) -> Evolver[Any]:
        return adapted(self.evolver)

    @property
    def generation(self) -> int:
        """Candidates in a generation."""
        return self._evolver.population

    def settings(self) -> dict[str, Any]:
        """What the reader wants to know first."""
        own = {name: getattr(self.evolver, name, None) for name in ("population", "pairs", "sigma", "rate")}
        return choices.known(own)

    def init(self, key: Array) -> EvolverAloneState:
        """A new evolver."""
        k_members, k_evolver = jax.random.split(key)
        keys = jax.random.split(k_members, self.generation)
        shape = self.hidden, self.layer_norm, self.activation, self.initial
        empty = buffer.empty(self.memory, *choices.sizes_of(self.task))
        new = lambda k: Individual(choices.new_actor(keys[k], self.task, shape), empty)
        return EvolverAloneState(self._evolver.init(k_evolver, new), new_in_flight(self.generation))

    def ask(self, key: Array, state: EvolverAloneState, n: int) -> tuple[list[Candidate], EvolverAloneState]:
        """The next n individuals; fewer where the evolver waits for outcomes."""
        k_seeds, k_members = jax.random.split(key)
        asked = state.in_flight.upcoming(n, zip(repeat(MEMBER), count(int(state.in_flight.asked))))
        members, evolver = self._evolver.ask(k_members, state.evolver, [one.place for one in asked], None)
        asked, rng, candidates = served(asked, members), trees.host_random(k_seeds), []
        for one, member in zip(asked, members, strict=True):
            own = {"number": one.number, "place": one.place, "version": int(state.in_flight.told_count)}
            candidates.append(replace(with_seeds(member, rng, self.trials), **own))
        return candidates, EvolverAloneState(evolver, state.in_flight.issue(asked)) if asked else state

    def tell(self, key: Array, state: EvolverAloneState, outcomes: Sequence[Outcome]) -> EvolverAloneState:
        """The evolver is told what its individuals earned."""
        outcomes, in_flight = state.in_flight.accept(outcomes)
        evolver, ended = state.evolver, 0
        while outcomes:
            room = self._room(evolver, len(outcomes))
            k_tell = jax.random.fold_in(key, ended) if ended else key
            evolver, outcomes = self._told(k_tell, evolver, outcomes[:room]), outcomes[room:]
            ended += 1
        return EvolverAloneState(evolver, in_flight)

    def _room(self, evolver: Any, left: int) -> int:
        """How many outcomes are told at once: of OpenAI-ES a generation at most, for its sigma may be tuned after each."""
        return self.generation - int(evolver.count) if isinstance(self.evolver, OpenAIES) else left

    def _told(self, key: Array, evolver: Any, outcomes: Sequence[Outcome]) -> Any:
        before, evolver = evolver, self._evolver.tell(key, evolver, outcomes, None)
        if not isinstance(self.evolver, OpenAIES) or evolver.generation == before.generation:
            return evolver
        nominal = int(evolver.generation) * self.task.horizon
        return self.evolver.tune(evolver) if self.evolver.tunes_now(False, nominal, self.task.horizon) else evolver

    def learn(self, key: Array, state: EvolverAloneState) -> EvolverAloneState:
        """Nothing: there is no learner."""
        return state

    steps_owed = nothing_more
    learning_phase = learning_phase
    still_to_ask = nothing_more
    forget_workers = forget_workers

    def champion(self, state: EvolverAloneState) -> Any:
        """The mean of a search distribution, the mother of OpenAI-ES, the fittest of a genetic algorithm."""
        return self._evolver.champion(state.evolver)

    def policies(self, state: EvolverAloneState) -> dict[str, Any]:
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
    """A learner and nothing else: an episode, then as many gradient steps as it had frames."""

    budget: ClassVar[float] = 1e6
    generation: ClassVar[int] = 1  # an episode

    task: Task
    learner: choices.AnyLearner = field(default_factory=TD3)
    replay: int = 1_000_000  # transitions in the replay
    hidden: tuple[int, ...] = (128, 128)  # units of the actor's hidden layers
    layer_norm: bool = True  # of the actor's hidden layers
    activation: Activation = "tanh"  # of the actor's hidden layers
    initial: Initial = "fan_in"  # how the actor's weights are drawn
    updates_per_frame: float = 1.0  # gradient steps per frame
    schedule: Literal["synchronous", "asynchronous"] = "synchronous"  # an episode, then its steps; or side by side
    test_episodes: int = 5  # fresh episodes in each test; never counted as training
    test_every: int = 10  # episodes between two tests; the last is always tested
    preset: str = "alone"  # the name of this system

    def __post_init__(self):
        choices.check_learner("a learner alone", self.learner)
        choices.check_counts(self, "replay", "test_episodes", "test_every")
        choices.check_network(self)
        choices.check_not_negative(self, "updates_per_frame")
        check_replay(self.learner, self.replay)

    def settings(self) -> dict[str, Any]:
        """There are none that a paper gives per task."""
        return {}

    def init(self, key: Array) -> LearnerAloneState:
        """A new learner."""
        _, k_actor, k_learner = jax.random.split(key, 3)
        shape = self.hidden, self.layer_norm, self.activation, self.initial
        learner = self.learner.init(k_learner, choices.new_actor(k_actor, self.task, shape))
        return LearnerAloneState(learner, new_experience(self.task, self.replay, 1), new_in_flight(1))

    def ask(self, key: Array, state: LearnerAloneState, n: int) -> tuple[list[Candidate], LearnerAloneState]:
        """The next n episodes of the learner, with its noise."""
        k_seeds, k_noise = jax.random.split(key)
        asked, rng = state.in_flight.upcoming(n, repeat((EXPLORING, -1))), trees.host_random(k_seeds)
        candidates = []
        for one in asked:
            candidate = state.experience.exploration(k_noise, self.learner, state.learner, self.task.horizon, rng)
            candidates.append(replace(candidate, number=one.number, version=int(state.in_flight.told_count)))
        return candidates, replace(state, in_flight=state.in_flight.issue(asked))

    def tell(self, key: Array, state: LearnerAloneState, outcomes: Sequence[Outcome]) -> LearnerAloneState:
        """The transitions go to the replay."""
        outcomes, in_flight = state.in_flight.accept(outcomes)
        rate = self.updates_per_frame
        experience = state.experience.collected(outcomes, outcomes, self.learner.warmup, rate)
        return replace(state, experience=experience, in_flight=in_flight)

    learn = learn
    steps_owed = steps_owed
    learning_phase = learning_phase
    still_to_ask = nothing_more
    forget_workers = forget_workers

    def champion(self, state: LearnerAloneState) -> Any:
        """The learner's actor, without noise."""
        return self.learner.actor(state.learner)

    def policies(self, state: LearnerAloneState) -> dict[str, Any]:
        """The learner's actor."""
        return {"learner": self.champion(state)}

    def report(self, state: LearnerAloneState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """Losses and gradient steps."""
        lags = {"staleness": state.in_flight.staleness(outcomes)} if self.schedule == "asynchronous" else {}
        return self.learner.report(state.learner) | lags
