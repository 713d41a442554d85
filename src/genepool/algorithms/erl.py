"""Evolutionary reinforcement learning: ERL (Khadka and Tumer 2018), PERL, DERL and PDERL (Bodnar et al. 2020), and DDPG alone.

A population is evolved on the return of its episodes while one learner is trained on everybody's transitions; every
omega generations a clone of the learner joins the population. The four systems differ in their operators only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

import equinox as eqx
import jax
import numpy as np
import tyro
from jax import Array

from genepool import buffer, trees
from genepool.algorithms.roll import Roll, draw_seeds, new_roll
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.evolution.crossover import Distillation
from genepool.evolution.genetic import FATES, Brood, Generational
from genepool.evolution.steady import Pool, SteadyState
from genepool.learning.ddpg import DDPG
from genepool.learning.lessons import check_replay
from genepool.learning.sac import SAC
from genepool.learning.td3 import TD3
from genepool.networks import Activation, Actor, Initial
from genepool.types import Candidate, Individual, Outcome


class ERLState(eqx.Module):
    """Everything that training changes. `ask` and `tell` never write `learner`; `learn` writes nothing else."""

    brood: Brood | Pool | None
    learner: Any
    replay: buffer.Buffer | None
    memory: buffer.Buffer | None  # the learner's own genetic memory: its exploring episodes
    noise: np.ndarray  # the last row of exploration noise, from which the next episode's goes on
    owed: np.ndarray  # gradient steps that ought to have been taken by now
    roll: Roll


@dataclass(frozen=True)
class ERL:
    """The ERL loop. Without an evolver it is the learner alone; without a learner, the genetic algorithm alone."""

    task: Annotated[Task, tyro.conf.arg(name="")]
    evolver: Annotated[Generational | SteadyState | None, tyro.conf.arg(name="")] = field(default_factory=Generational)
    learner: DDPG | TD3 | SAC | None = field(default_factory=DDPG)
    trials: int = 1  # xi: episodes per individual, whose mean return is its fitness
    sync_period: int = 10  # omega: generations between two clonings of the learner into the population
    memory: int = 8_000  # kappa: transitions in a genetic memory
    replay: int = 1_000_000  # transitions in the learner's replay
    hidden: tuple[int, ...] = (128, 128)  # units of the actor's hidden layers
    layer_norm: bool = True  # of the actor's hidden layers
    activation: Activation = "tanh"  # of the actor's hidden layers
    initial: Initial = "fan_in"  # how the actor's weights are drawn
    updates_per_frame: float = 1.0  # gradient steps of the learner per counted frame
    test_episodes: int = 5  # fresh episodes in each test of champion and learner; never counted as training
    test_every: int = 1  # generations between two tests; the last is always tested

    def __post_init__(self):
        if self.evolver is None and self.learner is None:
            raise UserError("nothing to train: give an evolver, a learner or both")
        if self.learner is None and isinstance(self.evolver.crossover, Distillation):
            raise UserError("Distillation asks the learner's critic: give a learner, or use RowCopy")

        counts = ("trials", "sync_period", "memory", "replay", "test_episodes", "test_every")
        small = [name for name in counts if getattr(self, name) < 1]
        if not self.hidden or min(self.hidden) < 1:
            raise UserError("hidden needs the units of one layer or more, each 1 or more")
        if small or self.updates_per_frame < 0:
            raise UserError(
                f"{(small or ['updates_per_frame'])[0].replace('_', ' ')} is too small: it must be 1 or more"
            )
        if self.learner is not None:
            check_replay(self.learner, self.replay)

    @property
    def schedule(self) -> str:
        """Synchronous, but for an evolver that needs no generations."""
        return "asynchronous" if isinstance(self.evolver, SteadyState) else "synchronous"

    def scheduled(self, schedule: str) -> "ERL":
        """The same on this schedule: a population is bred by generations, or one child at a time."""
        evolver = self.evolver
        if evolver is None or schedule == self.schedule:
            return self
        wanted = Generational if schedule == "synchronous" else SteadyState
        shared = {f.name for f in fields(wanted)} & {f.name for f in fields(evolver)}
        return replace(self, evolver=wanted(**{name: getattr(evolver, name) for name in shared}))

    def settings(self) -> dict[str, Any]:
        """What papers give per task, for the reader."""
        if self.evolver is None:
            return {}
        sigma = getattr(self.evolver.mutation, "sigma", None)
        own = {"elite fraction": self.evolver.elite_fraction, "trials": self.trials, "sync period": self.sync_period}
        return own | ({} if sigma is None else {"sigma": sigma})

    @property
    def generation(self) -> int:
        """Candidates in a generation: the population, and one episode of the learner's exploration."""
        return (self.evolver.population if self.evolver else 0) + bool(self.learner)

    def init(self, key: Array) -> ERLState:
        """A new population with empty memories, and a new learner."""
        k_members, k_actor, k_learner = jax.random.split(key, 3)
        sizes = self.task.observation_size, self.task.action_size
        new_actor = lambda k: Actor(k, *sizes, self.hidden, self.layer_norm, self.activation, self.initial)
        brood = learner = replay = memory = None
        if self.evolver:
            empty = buffer.empty(self.memory, *sizes)
            keys = jax.random.split(k_members, self.evolver.population)
            brood = self.evolver.init(trees.stack([Individual(new_actor(k), empty) for k in keys]))
        if self.learner:
            learner = self.learner.init(k_learner, new_actor(k_actor))
            replay, memory = buffer.empty(self.replay, *sizes), buffer.empty(self.memory, *sizes)
        owed, noise = np.zeros((), np.int64), np.zeros(sizes[1], np.float32)
        return ERLState(brood, learner, replay, memory, noise, owed, new_roll())

    def ask(self, key: Array, state: ERLState, n: int) -> tuple[list[Candidate], ERLState]:
        """The next n to try. Once every omega generations, first, the learner is cloned into the population.

        In every generation the last is the learner's exploration; the others are the population's.
        """
        k_seeds, k_noise, k_breed = jax.random.split(key, 3)
        rng = trees.host_random(k_seeds)
        numbers, roll = state.roll.call(n)
        brood, actor = state.brood, self.learner.actor(state.learner) if self.learner else None
        population = self.evolver.population if self.evolver else 0
        rounds = [divmod(number, self.generation) for number in numbers]
        if (
            any(g > 0 and g % self.sync_period == 0 and place == 0 for g, place in rounds)
            and self.learner
            and population
        ):
            brood = self.evolver.inject(brood, Individual(actor, state.memory))
        orders = [g * population + place for g, place in rounds if place < population]
        bred = []
        if orders:
            critic = self.learner.critic(state.learner) if self.learner else None
            bred, brood = self.evolver.ask(k_breed, brood, orders, critic)
        candidates = []
        for number, (_, place) in zip(numbers, rounds, strict=True):
            if place < population:
                candidate = replace(bred.pop(0), seeds=draw_seeds(rng, self.trials))
            else:
                seen, horizon = int(state.replay.size), self.task.horizon
                explorer, noise = self.learner.explore(k_noise, state.learner, state.noise, horizon, seen)
                candidate = Candidate(
                    Individual(explorer, None), draw_seeds(rng, 1), noise, purpose="exploration", origin="learning"
                )
            candidates.append(replace(candidate, number=number, version=int(roll.told)))
        return candidates, replace(state, brood=brood, roll=roll)

    def tell(self, key: Array, state: ERLState, outcomes: Sequence[Outcome]) -> ERLState:
        """Everybody's transitions go to the replay, each one's also to its own memory; then the population breeds.

        The replay is written in place: the state that was given must not be used again.
        """
        outcomes, roll = state.roll.accept(outcomes)
        brood, replay, memory, noise, owed = state.brood, state.replay, state.memory, state.noise, state.owed
        explored = [o for o in outcomes if o.candidate.purpose == "exploration"]
        if self.learner:
            for outcome in outcomes:
                replay = buffer.record(replay, outcome.transitions)
            for outcome in explored:
                memory, noise = buffer.record(memory, outcome.transitions), outcome.candidate.noise[outcome.frames - 1]
            if int(replay.size) > self.learner.warmup:
                owed = owed + int(self.updates_per_frame * sum(o.frames for o in outcomes))
        bred = [o for o in outcomes if o.candidate.purpose == "fitness"]
        if bred:
            critic = self.learner.critic(state.learner) if self.learner else None
            brood = self.evolver.tell(key, brood, bred, critic)
        return ERLState(brood, state.learner, replay, memory, noise, owed, roll)

    def due(self, state: ERLState) -> int:
        """As many gradient steps as there were frames, once the replay holds enough to begin with."""
        return int(state.owed) - int(state.learner.updates) if self.learner else 0

    def stage(self, state: Any) -> str:
        """It has one: learning."""
        return "learning"

    def further(self, state: ERLState) -> int:
        """Nothing: a generation is asked for at once."""
        return 0

    def learn(self, key: Array, state: ERLState) -> ERLState:
        """Take the gradient steps that are due."""
        steps = self.due(state)
        if not steps:
            return state
        return replace(state, learner=self.learner.update(key, state.learner, state.replay, steps))

    def policies(self, state: ERLState) -> dict[str, Actor]:
        """What is worth testing: the fittest of the last generation, and the learner's actor without noise."""
        champion = {"champion": state.brood.champion} if state.brood is not None else {}
        return champion | ({"learner": self.learner.actor(state.learner)} if self.learner else {})

    def report(self, state: ERLState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """What a record of the generation says besides its outcomes."""
        report: dict[str, Any] = {}
        if self.schedule == "asynchronous":
            before = int(state.roll.told) - len(outcomes)
            report["staleness"] = [before + k - o.candidate.version for k, o in enumerate(outcomes)]
        if state.brood is not None and self.learner:
            fate, fates = int(state.brood.fate), state.brood.fates.tolist()
            report["clone"] = FATES[fate] if fate >= 0 else None
            report["clones"] = dict(zip(FATES, fates, strict=True))
        if self.learner:
            report |= self.learner.report(state.learner)
        return report
