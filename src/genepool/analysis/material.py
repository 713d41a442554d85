"""What a checkpoint gives to the operator study: a population, and the crossovers and mutations it can be bred by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from genepool import trees
from genepool.algorithms.gpo import GPO, GPOState
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.evolution.crossover import Distillation, RowCopy
from genepool.evolution.genetic import cross
from genepool.evolution.imitation import ParameterSpace, StateSpace
from genepool.evolution.mutation import Gaussian, Proximal
from genepool.networks import deterministic
from genepool.runs import checkpoint
from genepool.runs.folder import Folder
from genepool.runs.training import rebuild_algorithm
from genepool.types import Individual
from genepool.workers.local import LocalWorkers

Couples = Sequence[tuple[int, int]]  # parents by their places in the population


class Material(NamedTuple):
    """What there is to study."""

    individuals: list[Individual]
    crossovers: dict[str, Callable[[Sequence[Array], Couples], list[Any]]]  # keys and couples to a child of each
    mutations: dict[str, Any]  # operators
    missing: str  # what cannot be studied, and why; empty if everything can
    task: Task
    facts: dict[str, Any]  # whose population it is: preset, task, engine, seed, generation, frames


@dataclass(frozen=True)
class OneByOne:
    """A crossover that needs nothing but the parents, and a critic perhaps. Of two children it has the first."""

    operator: Any
    individuals: list[Individual]
    critic: Callable | None = None

    def __call__(self, keys: Sequence[Array], couples: Couples) -> list[Any]:
        """A child of each couple."""
        return [jax.tree.map(np.asarray, self._child(key, *couple)) for key, couple in zip(keys, couples, strict=True)]

    def _child(self, key: Array, i: int, j: int) -> Any:
        x, y = self.individuals[i], self.individuals[j]
        if isinstance(self.operator, ParameterSpace):
            return self.operator.child(key, x.actor, y.actor)
        return cross(self.operator, key, x, y, self.critic)[0].actor


@dataclass(frozen=True)
class Imitated:
    """GPO's crossover in the space of states, as its own loop carries it out: experts and students play for it."""

    algorithm: GPO
    state: GPOState

    def __call__(self, keys: Sequence[Array], couples: Couples) -> list[Any]:
        """A child of each couple, a population of them at a time."""
        m = self.algorithm.population
        chunks = [couples[begin : begin + m] for begin in range(0, len(couples), m)]
        bred = [self._bred(keys[k * m], np.resize(chunk, (m, 2))) for k, chunk in enumerate(chunks)]
        return [
            trees.take(policies, k) for policies, chunk in zip(bred, chunks, strict=True) for k in range(len(chunk))
        ]

    def frames(self, n: int) -> int:
        """What is played to make n children."""
        m = self.algorithm.population
        return -(-n // m) * m * sum(self.algorithm.crossover.frames)

    def _bred(self, key: Array, couples: np.ndarray) -> Any:
        """The policies of the next population, if these were the couples that were selected."""
        algorithm, learner = self.algorithm, self.state.learner
        done, collected = learner.bred, learner.bred * len(algorithm.crossover.frames)
        genetics = replace(learner.genetics, couples=couples)
        learner = replace(learner, genetics=genetics, selected=done + 1, fitted=done, imitated=collected)
        archive = jax.tree.map(np.copy, self.state.archive)  # it is written in place
        state = replace(self.state, learner=learner, archive=archive, collected=collected)
        workers, turn = LocalWorkers(algorithm.task), 0
        try:
            while state.learner.bred == done:
                k_learn, k_ask, k_tell = jax.random.split(jax.random.fold_in(key, turn), 3)
                state, turn = algorithm.learn(k_learn, state), turn + 1
                if wanted := algorithm.further(state):
                    candidates, state = algorithm.ask(k_ask, state, wanted)
                    state = algorithm.tell(k_tell, state, workers.map(candidates))
        finally:
            workers.close()
        return state.learner.members.policy


def load(run: str | Path, task: Any = None) -> Material:
    """The population of a run's newest checkpoint and what to breed it by. Nothing in the folder is changed."""
    folder = Folder(run)
    config = folder.config
    algorithm = rebuild_algorithm(config, task)
    if not folder.checkpoints:
        raise UserError(f"{folder.path} has no checkpoint yet: train it further, or give another run folder")
    key = jax.random.key(config["seed"])
    state, facts = checkpoint.load(folder.checkpoints[-1], algorithm.init(key))
    state = replace(state, roll=state.roll.lose())
    individuals = population(algorithm, state, key)
    if len(individuals) < 2:
        raise UserError(f"{folder.path} has no population to breed from: give a run that evolves one")
    operators = _of_gpo if isinstance(algorithm, GPO) else _of_erl
    known = {name: config[name] for name in ("preset", "task", "engine", "seed")}
    known |= {"generation": facts["generation"], "frames": facts["frames"]}
    return Material(individuals, *operators(algorithm, state, individuals), algorithm.task, known)


def population(algorithm: Any, state: Any, key: Array) -> list[Individual]:
    """The individuals that a state holds, or, of a strategy that holds none, those it would try next, before any lesson."""
    if isinstance(algorithm, GPO):
        return [Individual(trees.take(state.learner.members.policy, k), None) for k in range(algorithm.population)]
    brood = getattr(state, "brood", None)
    if brood is not None:
        tried = ~np.isnan(brood.fitness)  # in a steady state, places may still be free
        return [trees.take(brood.members, slot) for slot in np.flatnonzero(tried)]
    if not hasattr(state, "strategy"):
        return []
    asked = [c for c in algorithm.ask(key, state, algorithm.generation)[0] if c.purpose == "fitness"]
    # a member of ESAC is a seed, and acts only once its step is taken
    moved = lambda c: c.lesson(c.individual.actor) if getattr(c.lesson, "brief", False) else c.individual.actor
    return [Individual(deterministic(moved(candidate)), None) for candidate in asked]


def _of_erl(algorithm: Any, state: Any, individuals: list[Individual]) -> tuple[dict, dict, str]:
    """PDERL's four operators, those of the run as it has them, and what of them its population cannot be bred by."""
    own = getattr(algorithm, "evolver", None)
    parts = [getattr(own, name, None) for name in ("crossover", "mutation")]
    chosen = lambda usual: next((part for part in parts if type(part) is type(usual)), usual)
    crossovers = {"row copy": OneByOne(chosen(RowCopy()), individuals)}
    mutations = {"Gaussian": chosen(Gaussian())}
    if individuals[0].memory is None:
        return crossovers, mutations, "the run keeps no genetic memories: no distillation, no proximal mutation"
    mutations = {"proximal": chosen(Proximal())} | mutations
    if algorithm.learner is None:
        return crossovers, mutations, "the run has no critic: no distillation"
    critic = algorithm.learner.critic(state.learner)
    return {"distillation": OneByOne(chosen(Distillation()), individuals, critic)} | crossovers, mutations, ""


def _of_gpo(algorithm: GPO, state: GPOState, individuals: list[Individual]) -> tuple[dict, dict, str]:
    """GPO's two crossovers. Its mutation is learning, which makes no child."""
    other = algorithm.crossover if isinstance(algorithm.crossover, ParameterSpace) else ParameterSpace()
    crossovers = {"parameter space": OneByOne(other, individuals)}
    if not isinstance(algorithm.crossover, StateSpace) or state.archive is None:
        return crossovers, {}, "the run keeps no trajectories for it: no crossover in the space of states"
    archive = state.archive
    rows = algorithm.batch * int(state.learner.iterations - state.learner.bred * algorithm.iterations)
    if not rows:
        return crossovers, {}, "the round has just begun: no crossover in the space of states"
    # what the last population played counts for nobody
    archive.returns[:, rows:], archive.first[:, rows:] = -np.inf, False
    return {"state space": Imitated(algorithm, state)} | crossovers, {}, ""
