"""What a checkpoint gives to the operator study: a population, and the crossovers and mutations it can be bred by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from genepool import trees
from genepool.algorithms.alone import LearnerAlone
from genepool.algorithms.gpo.imitation import ParameterSpace, StateSpace
from genepool.algorithms.gpo.loop import GPO, GPOState
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.evolution.genetic.crossover import Distillation, RowCopy
from genepool.evolution.genetic.generational import GenerationalGA
from genepool.evolution.genetic.mutation import Gaussian, Proximal
from genepool.evolution.genetic.shared import cross
from genepool.evolution.genetic.steady_state import SteadyStateGA
from genepool.networks import deterministic
from genepool.runs import checkpoint
from genepool.runs.folder import Folder
from genepool.runs.rebuilding import check_resumable, rebuild_algorithm
from genepool.types import Candidate, Individual
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
                if wanted := algorithm.still_to_ask(state):
                    candidates, state = algorithm.ask(k_ask, state, wanted)
                    state = algorithm.tell(k_tell, state, workers.map(candidates))
        finally:
            workers.close()
        return state.learner.members.policy


def load(run: str | Path, task: Any = None, parts: Sequence[type] = ()) -> Material:
    """The population of a run's newest checkpoint and what to breed it by. Nothing in the folder is changed."""
    folder = Folder(run)
    config = folder.config
    check_resumable(folder.path, config)
    algorithm = rebuild_algorithm(config, task, parts)
    if not folder.checkpoints:
        raise UserError(f"{folder.path} has no checkpoint yet: train it further, or give another run folder")
    key = jax.random.key(config["seed"])
    state, facts = checkpoint.load(folder.checkpoints[-1], algorithm.init(key))
    state = algorithm.forget_workers(state)
    individuals = population(algorithm, state, key)
    if len(individuals) < 2:
        raise UserError(f"{folder.path} has no population to breed from: give a run that evolves one")
    operators = _of_gpo if isinstance(algorithm, GPO) else _of_evolver
    known = {name: config[name] for name in ("preset", "task", "engine", "seed")}
    known |= {"generation": facts["generation"], "frames": facts["frames"]}
    return Material(individuals, *operators(algorithm, state, individuals), algorithm.task, known)


def population(algorithm: Any, state: Any, key: Array) -> list[Individual]:
    """The individuals that a state holds, or, of a strategy that holds none, those it would try next, before any lesson."""
    if isinstance(algorithm, GPO):
        return [Individual(trees.take(state.learner.members.policy, k), None) for k in range(algorithm.population)]
    if isinstance(algorithm, LearnerAlone):
        return []
    if isinstance(algorithm.evolver, GenerationalGA):
        return [trees.take(state.evolver.members, slot) for slot in range(algorithm.evolver.population)]
    if isinstance(algorithm.evolver, SteadyStateGA):
        tried = ~np.isnan(state.evolver.fitness)  # slots may still be free
        return [trees.take(state.evolver.members, slot) for slot in np.flatnonzero(tried)]
    asked = [c for c in algorithm.ask(key, state, algorithm.generation)[0] if c.purpose == "fitness"]
    return [Individual(deterministic(_perturbed(candidate)), None) for candidate in asked]


def _perturbed(candidate: Candidate) -> Any:
    """The actor that a candidate stands for, before any lesson."""
    actor, perturbation = candidate.individual.actor, candidate.perturbation
    return perturbation(actor) if perturbation is not None else actor


def _of_evolver(algorithm: Any, state: Any, individuals: list[Individual]) -> tuple[dict, dict, str]:
    """PDERL's four operators, those of the run as it has them, and what of them its population cannot be bred by."""
    parts = [getattr(algorithm.evolver, name, None) for name in ("crossover", "mutation")]
    chosen = lambda usual: next((part for part in parts if type(part) is type(usual)), usual)
    crossovers = {"row copy": OneByOne(chosen(RowCopy()), individuals)}
    mutations = {"Gaussian": chosen(Gaussian())}
    if individuals[0].memory is None:
        return crossovers, mutations, "the run keeps no genetic memories: no distillation, no proximal mutation"
    mutations = {"proximal": chosen(Proximal())} | mutations
    if not hasattr(algorithm, "learner"):
        return crossovers, mutations, "the run has no critic: no distillation"
    critic = algorithm.learner.critic(getattr(state.learner, "inner", state.learner))
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
