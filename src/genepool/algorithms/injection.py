"""Injection: ERL, PERL, DERL and PDERL (Khadka and Tumer 2018; Bodnar et al. 2020), with any evolver and any learner.

A population evolves by the returns of its episodes. One learner learns from all transitions. Every omega generations a
clone of the learner joins the population. The four systems differ in their operators only.
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
from genepool.errors import check_at_least
from genepool.evolution.distribution.adapter import adapted
from genepool.evolution.genetic.generational import GenerationalGA
from genepool.learning.ddpg import DDPG
from genepool.learning.lessons import check_replay
from genepool.networks import Activation, Initial
from genepool.parts import part
from genepool.protocols import Actor, Evolver
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
    sync_period: int = 10  # omega: generations between two clones of the learner in the population
    memory: int = 8_000  # kappa: transitions in a genetic memory
    replay: int = 1_000_000  # transitions in the learner's replay
    hidden: tuple[int, ...] = (128, 128)  # units of the actor's hidden layers
    layer_norm: bool = True  # of the actor's hidden layers
    activation: Activation = "tanh"  # of the actor's hidden layers
    initial: Initial = "fan_in"  # how the actor's weights are drawn
    updates_per_frame: float = 1.0  # gradient steps of the learner per counted frame
    schedule: Literal["synchronous", "asynchronous"] = "synchronous"  # asynchronous: do not wait for whole generations
    test_episodes: int = 5  # fresh episodes in each test of champion and learner; never counted as training
    test_every: int = 1  # generations between two tests; the last is always tested
    preset: str = "injection"  # the name of this system

    def __post_init__(self):
        choices.check_evolver("injection", self.evolver)
        choices.check_learner("injection", self.learner)
        adapted(self.evolver)  # which refuses a part that is no evolver
        check_at_least(1, self, "trials", "sync_period", "memory", "replay", "test_episodes", "test_every")
        choices.check_network(self)
        check_at_least(0, self, "updates_per_frame")
        check_replay(self.learner, self.replay)

    @property
    def _evolver(self) -> Evolver[Any]:
        return adapted(self.evolver)

    @property
    def generation_size(self) -> int:
        """Candidates in a generation: the population, and one episode of the learner's exploration."""
        return self._evolver.population + 1

    def settings(self) -> dict[str, Any]:
        """What the papers give per task."""
        mutation = getattr(self.evolver, "mutation", None)
        own = {"elite fraction": getattr(self.evolver, "elite_fraction", None), "trials": self.trials}
        return choices.known(own | {"sync period": self.sync_period, "sigma": getattr(mutation, "sigma", None)})

    def init(self, key: Array) -> InjectionState:
        """A new population with empty memories, and a new learner."""
        k_members, k_actor, k_learner = jax.random.split(key, 3)
        keys = jax.random.split(k_members, self._evolver.population)
        empty = buffer.empty(self.memory, *choices.sizes_of(self.task))

        def new_individual(k: int) -> Individual:
            return Individual(choices.new_actor(keys[k], self.task, self), empty)

        return InjectionState(
            evolver=self._evolver.init(k_members, new_individual),
            learner=self.learner.init(k_learner, choices.new_actor(k_actor, self.task, self)),
            experience=experience.new_experience(self.task, self.replay, self.memory),
            in_flight=new_in_flight(self.generation_size),
        )

    def ask(self, key: Array, state: InjectionState, n: int) -> tuple[list[Candidate], InjectionState]:
        """The next n to try. The last of every generation is the learner's exploration, the others are members.

        Fewer than n if the population waits for outcomes, or if the learner is to be cloned in between.
        """
        k_seeds, k_noise, k_breed = jax.random.split(key, 3)
        asked = self._up_to_cloning(state.in_flight.upcoming(n, map(self._new, count(int(state.in_flight.asked)))))
        evolver = state.evolver
        if asked and self._clones(asked[0].number):
            evolver = self._evolver.inject(evolver, state.experience.clone(self.learner.actor(state.learner)))
        places = [one.place for one in asked if one.kind == MEMBER]
        members, evolver = self._evolver.ask(k_breed, evolver, places, self.learner.critic(state.learner))
        asked = experience.available(asked, members)
        if not asked:
            return [], state
        rng = trees.host_random(k_seeds)
        candidates: list[Candidate] = []
        for one in asked:
            if one.kind == MEMBER:
                candidate = experience.with_seeds(members.pop(0), rng, self.trials)
            else:
                horizon = self.task.horizon
                candidate = state.experience.exploration(k_noise, self.learner, state.learner, horizon, rng)
            candidates.append(state.in_flight.label(candidate, one))
        return candidates, replace(state, evolver=evolver, in_flight=state.in_flight.issue(asked))

    def _new(self, number: int) -> tuple[int, int]:
        """What the candidate of this number is: a member and its place, or the learner's exploration."""
        generation, slot = divmod(number, self.generation_size)
        population = self.generation_size - 1
        return (MEMBER, generation * population + slot) if slot < population else (EXPLORING, -1)

    def _clones(self, number: int) -> bool:
        """Whether the learner is cloned before this candidate: "synchronisation", every omega generations."""
        generation, slot = divmod(number, self.generation_size)
        return slot == 0 and generation > 0 and generation % self.sync_period == 0

    def _up_to_cloning(self, asked: list[Asked]) -> list[Asked]:
        """Those before the next cloning of the learner. A cloning before the first of them does not count."""
        later = [k for k, one in enumerate(asked) if k and self._clones(one.number)]
        return asked[: later[0]] if later else asked

    def tell(self, key: Array, state: InjectionState, outcomes: Sequence[Outcome]) -> InjectionState:
        """All transitions go to the replay, and a member's to its own memory; then the population breeds."""
        outcomes, in_flight = state.in_flight.accept(outcomes)
        collected = state.experience.collected(outcomes, outcomes, self.learner.warmup, self.updates_per_frame)
        members = experience.of_purpose(outcomes, "fitness")
        evolver = state.evolver
        if members:
            evolver = self._evolver.tell(key, evolver, members, self.learner.critic(state.learner))
        return InjectionState(evolver, state.learner, collected, in_flight)

    learn = experience.learn
    steps_owed = experience.steps_owed
    learning_phase = experience.learning_phase
    still_to_ask = experience.nothing_more
    forget_workers = forget_workers

    def champion(self, state: InjectionState) -> Actor:
        """The fittest of the last generation."""
        return self._evolver.champion(state.evolver)

    def policies(self, state: InjectionState) -> dict[str, Actor]:
        """The champion, and the learner's actor without noise."""
        return {"champion": self.champion(state), "learner": self.learner.actor(state.learner)}

    def report(self, state: InjectionState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """What became of the learner's clones, and the learner's losses."""
        report = self._evolver.report(state.evolver, experience.of_purpose(outcomes, "fitness"))
        if self.schedule == "asynchronous":
            report["staleness"] = state.in_flight.staleness(outcomes)
        return report | self.learner.report(state.learner)
