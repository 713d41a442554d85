"""Evolutionary reinforcement learning: ERL (Khadka and Tumer 2018), PERL, DERL and PDERL (Bodnar et al. 2020), and DDPG alone.

A population is evolved on the return of its episodes while one learner is trained on everybody's transitions; every
omega generations a clone of the learner joins the population. The four systems differ in their operators only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import equinox as eqx
import jax
import numpy as np
import tyro
from jax import Array

from genepool import buffer, trees
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.evolution.crossover import Distillation
from genepool.evolution.genetic import FATES, Brood, Generational
from genepool.learning.ddpg import DDPG
from genepool.networks import Actor
from genepool.types import Candidate, Individual, Outcome


class ERLState(eqx.Module):
    """Everything that training changes. `ask` and `tell` never write `learner`; `learn` writes nothing else."""

    brood: Brood | None
    learner: Any
    replay: buffer.Buffer | None
    memory: buffer.Buffer | None  # the learner's own genetic memory: its exploring episodes
    noise: np.ndarray  # the last row of exploration noise, from which the next episode's goes on
    owed: np.ndarray  # gradient steps that the next `learn` takes
    asked: np.ndarray  # candidates so far
    generation: np.ndarray


@dataclass(frozen=True)
class ERL:
    """The ERL loop. Without an evolver it is the learner alone; without a learner, the genetic algorithm alone."""

    task: Annotated[Task, tyro.conf.arg(name="")]
    evolver: Annotated[Generational | None, tyro.conf.arg(name="")] = field(default_factory=Generational)
    learner: DDPG | None = field(default_factory=DDPG)
    trials: int = 1  # xi: episodes per individual, whose mean return is its fitness
    sync_period: int = 10  # omega: generations between two clonings of the learner into the population
    memory: int = 8_000  # kappa: transitions in a genetic memory
    replay: int = 1_000_000  # transitions in the learner's replay
    hidden: tuple[int, ...] = (128, 128)  # units of the actor's hidden layers
    updates_per_frame: float = 1.0  # gradient steps of the learner per counted frame
    test_episodes: int = 5  # fresh episodes in each test of champion and learner; never counted as training
    test_every: int = 1  # generations between two tests

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

    @property
    def generation(self) -> int:
        """Candidates in a generation: the population, and one episode of the learner's exploration."""
        return (self.evolver.population if self.evolver else 0) + bool(self.learner)

    def init(self, key: Array) -> ERLState:
        """A new population with empty memories, and a new learner."""
        k_members, k_actor, k_learner = jax.random.split(key, 3)
        sizes = self.task.observation_size, self.task.action_size
        new_actor = lambda k: Actor(k, *sizes, self.hidden)
        brood = learner = replay = memory = None
        if self.evolver:
            empty = buffer.empty(self.memory, *sizes)
            keys = jax.random.split(k_members, self.evolver.population)
            brood = self.evolver.init(trees.stack([Individual(new_actor(k), empty) for k in keys]))
        if self.learner:
            learner = self.learner.init(k_learner, new_actor(k_actor))
            replay, memory = buffer.empty(self.replay, *sizes), buffer.empty(self.memory, *sizes)
        zero = np.zeros((), np.int64)
        return ERLState(brood, learner, replay, memory, np.zeros(sizes[1], np.float32), zero, zero, zero)

    def ask(self, key: Array, state: ERLState, n: int) -> tuple[list[Candidate], ERLState]:
        """A whole generation to try. First, once every omega generations, the learner is cloned into the population."""
        if n != self.generation:
            raise ValueError(f"this algorithm asks for whole generations of {self.generation}, not for {n}")
        k_seeds, k_noise = jax.random.split(key)
        rng = trees.host_random(k_seeds)
        candidates, brood = [], state.brood
        if brood is not None:
            if self.learner and state.generation > 0 and state.generation % self.sync_period == 0:
                brood = self.evolver.inject(brood, Individual(self.learner.actor(state.learner), state.memory))
            candidates += [replace(c, seeds=draw_seeds(rng, self.trials)) for c in self.evolver.ask(brood)]
        if self.learner:
            explorer = Individual(self.learner.actor(state.learner), None)
            noise = np.asarray(self.learner.noise.draw(k_noise, state.noise, self.task.horizon))
            candidates.append(Candidate(explorer, draw_seeds(rng, 1), noise, "exploration", "learning"))
        numbered = [replace(c, number=int(state.asked) + k) for k, c in enumerate(candidates)]
        return numbered, replace(state, brood=brood, asked=state.asked + len(candidates))

    def tell(self, key: Array, state: ERLState, outcomes: Sequence[Outcome]) -> ERLState:
        """Everybody's transitions go to the replay, each one's also to its own memory; then the population breeds.

        The replay is written in place: the state that was given must not be used again.
        """
        outcomes = sorted(outcomes, key=lambda outcome: outcome.candidate.number)
        brood, replay, memory, noise = state.brood, state.replay, state.memory, state.noise
        explored = [o for o in outcomes if o.candidate.purpose == "exploration"]
        if self.learner:
            for outcome in outcomes:
                replay = buffer.record(replay, outcome.transitions)
            for outcome in explored:
                memory, noise = buffer.record(memory, outcome.transitions), outcome.candidate.noise[outcome.frames - 1]
        if brood is not None:
            critic = self.learner.critic(state.learner) if self.learner else None
            brood = self.evolver.tell(key, brood, [o for o in outcomes if o.candidate.purpose == "fitness"], critic)
        owed = np.asarray(int(self.updates_per_frame * sum(o.frames for o in outcomes)))
        return ERLState(brood, state.learner, replay, memory, noise, owed, state.asked, state.generation + 1)

    def learn(self, key: Array, state: ERLState) -> ERLState:
        """As many gradient steps as the last generation had frames, once the replay holds enough to begin with."""
        if self.learner is None or int(state.replay.size) <= self.learner.warmup:
            return state
        return replace(state, learner=self.learner.update(key, state.learner, state.replay, int(state.owed)))

    def policies(self, state: ERLState) -> dict[str, Actor]:
        """What is worth testing: the fittest of the last generation, and the learner's actor without noise."""
        champion = {"champion": state.brood.champion} if state.brood is not None else {}
        return champion | ({"learner": self.learner.actor(state.learner)} if self.learner else {})

    def report(self, state: ERLState) -> dict[str, Any]:
        """What a record of the generation says besides its outcomes."""
        report = {}
        if state.brood is not None and self.learner:
            fate, fates = int(state.brood.fate), state.brood.fates.tolist()
            report["clone"] = FATES[fate] if fate >= 0 else None
            report["clones"] = dict(zip(FATES, fates, strict=True))
        if self.learner:
            report |= self.learner.report(state.learner)
        return report


def draw_seeds(rng: np.random.Generator, n: int) -> tuple[int, ...]:
    """Environment seeds, one per episode."""
    return tuple(int(seed) for seed in rng.integers(2**31 - 1, size=n))
