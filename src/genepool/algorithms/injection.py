"""Injection: ERL, PERL, DERL and PDERL (Khadka and Tumer 2018; Bodnar et al. 2020), with any evolver and any learner.

A population is evolved on the return of its episodes while one learner learns from all transitions; every omega
generations a clone of the learner joins the population. The four systems differ in their operators only.
"""

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import count
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
from jax import Array

from genepool import buffer, trees
from genepool.algorithms import choices, experience
from genepool.algorithms.experience import Experience
from genepool.algorithms.in_flight import EXPLORING, MEMBER, Asked, InFlight, forget_workers, new_in_flight
from genepool.environments.task import Task
from genepool.evolution.distribution.adapter import adapted
from genepool.evolution.genetic.generational import GenerationalGA
from genepool.learning.ddpg import DDPG
from genepool.learning.lessons import check_replay
from genepool.networks import Activation, Initial
from genepool.parts import part
from genepool.protocols import Evolver
from genepool.types import Candidate, Individual, Outcome


class InjectionState(eqx.Module):
    """Everything that training changes."""

    evolver: Any
    learner: Any
    experience: Experience
    in_flight: InFlight


@part
class Injection:
    """The coupling of ERL: a clone of the learner joins the population every so often."""

    budget: ClassVar[float] = 1e6

    task: Task
    evolver: choices.AnyEvolver = field(default_factory=GenerationalGA)  # what breeds the population
    learner: choices.AnyLearner = field(default_factory=DDPG)  # what learns from all transitions
    trials: int = 1  # xi: episodes per individual, whose mean return is its fitness
    sync_period: int = 10  # omega: generations between two clonings of the learner into the population
    memory: int = 8_000  # kappa: transitions in a genetic memory
    replay: int = 1_000_000  # transitions in the learner's replay
    hidden: tuple[int, ...] = (128, 128)  # units of the actor's hidden layers
    layer_norm: bool = True  # of the actor's hidden layers
    activation: Activation = "tanh"  # of the actor's hidden layers
    initial: Initial = "fan_in"  # how the actor's weights are drawn
    updates_per_frame: float = 1.0  # gradient steps of the learner per counted frame
    schedule: Literal["synchronous", "asynchronous"] = "synchronous"  # whether generations are awaited
    test_episodes: int = 5  # fresh episodes in each test of champion and learner; never counted as training
    test_every: int = 1  # generations between two tests; the last is always tested
    preset: str = "injection"  # the name of this system

    def __post_init__(self):
        choices.check_evolver("injection", self.evolver)
        choices.check_learner("injection", self.learner)
        _ = self._evolver
        choices.check_counts(self, "trials", "sync_period", "memory", "replay", "test_episodes", "test_every")
        choices.check_network(self)
        choices.check_not_negative(self, "updates_per_frame")
        check_replay(self.learner, self.replay)

    @property
    def _evolver(self) -> Evolver[Any]:
        return adapted(self.evolver)

    @property
    def generation(self) -> int:
        """Candidates in a generation: the population, and one episode of the learner's exploration."""
        return self._evolver.population + 1

    def settings(self) -> dict[str, Any]:
        """What the papers give per task."""
        evolver, mutation = self.evolver, getattr(self.evolver, "mutation", None)
        own = {"elite fraction": getattr(evolver, "elite_fraction", None), "trials": self.trials}
        return choices.known(own | {"sync period": self.sync_period, "sigma": getattr(mutation, "sigma", None)})

    def init(self, key: Array) -> InjectionState:
        """A new population with empty memories, and a new learner."""
        k_members, k_actor, k_learner = jax.random.split(key, 3)
        shape = self.hidden, self.layer_norm, self.activation, self.initial
        keys = jax.random.split(k_members, self._evolver.population)
        empty = buffer.empty(self.memory, *choices.sizes_of(self.task))
        evolver = self._evolver.init(
            k_members, lambda k: Individual(choices.new_actor(keys[k], self.task, shape), empty)
        )
        learner = self.learner.init(k_learner, choices.new_actor(k_actor, self.task, shape))
        empty = experience.new_experience(self.task, self.replay, self.memory)
        return InjectionState(evolver, learner, empty, new_in_flight(self.generation))

    def ask(self, key: Array, state: InjectionState, n: int) -> tuple[list[Candidate], InjectionState]:
        """The next n to try; in every generation the last is the learner's exploration, the others are the population's.

        Fewer, where the population waits for outcomes, or up to the next cloning of the learner.
        """
        k_seeds, k_noise, k_breed = jax.random.split(key, 3)
        asked = self._up_to_cloning(state.in_flight.upcoming(n, map(self._new, count(int(state.in_flight.asked)))))
        evolver = state.evolver
        if asked and self._clones(asked[0].number):
            evolver = self._evolver.inject(evolver, state.experience.clone(self.learner.actor(state.learner)))
        places = [one.place for one in asked if one.kind == MEMBER]
        members, bred = self._evolver.ask(k_breed, evolver, places, self.learner.critic(state.learner))
        asked = experience.served(asked, members)
        if not asked:
            return [], state
        in_flight, rng, candidates = state.in_flight.issue(asked), trees.host_random(k_seeds), []
        for one in asked:
            if one.kind == MEMBER:
                candidate = experience.with_seeds(members.pop(0), rng, self.trials)
            else:
                horizon = self.task.horizon
                candidate = state.experience.exploration(k_noise, self.learner, state.learner, horizon, rng)
            version = int(in_flight.told_count)
            candidates.append(replace(candidate, number=one.number, place=one.place, version=version))
        return candidates, replace(state, evolver=bred, in_flight=in_flight)

    def _new(self, number: int) -> tuple[int, int]:
        """What a new candidate is: a member, in its place of the population's sequence, or the learner's exploration."""
        generation, slot = divmod(number, self.generation)
        population = self.generation - 1
        return (MEMBER, generation * population + slot) if slot < population else (EXPLORING, -1)

    def _clones(self, number: int) -> bool:
        """Whether the learner is cloned before this candidate: "synchronisation", every omega generations."""
        generation, slot = divmod(number, self.generation)
        return slot == 0 and generation > 0 and generation % self.sync_period == 0

    def _up_to_cloning(self, asked: list[Asked]) -> list[Asked]:
        later = [k for k, one in enumerate(asked) if k and self._clones(one.number)]
        return asked[: later[0]] if later else asked

    def tell(self, key: Array, state: InjectionState, outcomes: Sequence[Outcome]) -> InjectionState:
        """All transitions go to the replay, each member's also to its own memory; then the population breeds."""
        outcomes, in_flight = state.in_flight.accept(outcomes)
        collected = state.experience.collected(outcomes, outcomes, self.learner.warmup, self.updates_per_frame)
        members, evolver = experience.of_purpose(outcomes, "fitness"), state.evolver
        if members:
            evolver = self._evolver.tell(key, evolver, members, self.learner.critic(state.learner))
        return InjectionState(evolver, state.learner, collected, in_flight)

    learn = experience.learn
    steps_owed = experience.steps_owed
    learning_phase = experience.learning_phase
    still_to_ask = experience.nothing_more
    forget_workers = forget_workers

    def champion(self, state: InjectionState) -> Any:
        """The fittest of the last generation."""
        return self._evolver.champion(state.evolver)

    def policies(self, state: InjectionState) -> dict[str, Any]:
        """The champion, and the learner's actor without noise."""
        return {"champion": self.champion(state), "learner": self.learner.actor(state.learner)}

    def report(self, state: InjectionState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """What became of the learner's clones, and the learner's losses."""
        report = self._evolver.report(state.evolver, experience.of_purpose(outcomes, "fitness"))
        if self.schedule == "asynchronous":
            report["staleness"] = state.in_flight.staleness(outcomes)
        return report | self.learner.report(state.learner)
