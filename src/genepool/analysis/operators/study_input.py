"""The input of the operator study, from a checkpoint: a population, and the crossovers and mutations to breed it by."""

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
from genepool.algorithms.gpo.state import Phase
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

Couples = Sequence[tuple[int, int]]  # parents by their indices in the population
Operators = tuple[dict[str, Any], dict[str, Any], str]  # `crossovers`, `mutations` and `missing` of a `StudyInput`


class StudyInput(NamedTuple):
    """A population and its operators."""

    individuals: list[Individual]
    crossovers: dict[str, Callable[[Sequence[Array], Couples], list[Any]]]  # from keys and couples to a child of each
    mutations: dict[str, Any]  # operators
    missing: str  # what cannot be studied, and why; empty if everything can
    task: Task
    facts: dict[str, Any]  # whose population it is: preset, task, engine, seed, generation, frames


@dataclass(frozen=True)
class CoupleCrossover:
    """A crossover that needs only the parents, and perhaps a critic. Of two children it makes the first."""

    operator: Any
    individuals: list[Individual]
    critic: Callable | None = None

    def __call__(self, keys: Sequence[Array], couples: Couples) -> list[Any]:
        """A child of each couple."""
        return [jax.tree.map(np.asarray, self._child(key, *couple)) for key, couple in zip(keys, couples, strict=True)]

    def _child(self, key: Array, i: int, j: int) -> Any:
        x = self.individuals[i]
        y = self.individuals[j]
        if isinstance(self.operator, ParameterSpace):
            return self.operator.child(key, x.actor, y.actor)
        return cross(self.operator, key, x, y, self.critic)[0].actor


@dataclass(frozen=True)
class ImitationCrossover:
    """GPO's crossover in the space of states, carried out by its own loop: experts and students play for it."""

    algorithm: GPO
    state: GPOState

    def __call__(self, keys: Sequence[Array], couples: Couples) -> list[Any]:
        """A child of each couple, a population of them at a time."""
        m = self.algorithm.population
        chunks = [couples[begin : begin + m] for begin in range(0, len(couples), m)]
        children = []
        for k, chunk in enumerate(chunks):
            policies = self._children(keys[k * m], np.resize(chunk, (m, 2)))
            children += [trees.take(policies, slot) for slot in range(len(chunk))]
        return children

    def frames(self, n: int) -> int:
        """How many frames are played to make n children."""
        m = self.algorithm.population
        return -(-n // m) * m * sum(self.algorithm.crossover.frames)

    def _children(self, key: Array, couples: np.ndarray) -> Any:
        """The policies of the next population, if these couples were selected."""
        algorithm = self.algorithm
        state = self._after_selection(couples)
        this_round = state.learner.round
        workers = LocalWorkers(algorithm.task)
        turn = 0
        try:
            while state.learner.round == this_round:
                k_learn, k_ask, k_tell = jax.random.split(jax.random.fold_in(key, turn), 3)
                state = algorithm.learn(k_learn, state)
                turn += 1
                if wanted := algorithm.still_to_ask(state):
                    candidates, state = algorithm.ask(k_ask, state, wanted)
                    state = algorithm.tell(k_tell, state, workers.map(candidates))
        finally:
            workers.close()
        return state.learner.members.policy

    def _after_selection(self, couples: np.ndarray) -> GPOState:
        """The state in which the crossover of these couples begins."""
        learner = self.state.learner
        learner = replace(
            learner,
            phase=np.asarray(Phase.START_CROSSOVER, np.int64),
            crossover=replace(learner.crossover, couples=couples),
            collections=np.asarray(int(self.state.in_flight.told_count) // self.algorithm.population, np.int64),
        )
        data = jax.tree.map(np.copy, self.state.crossover_data)  # it is written in place
        return replace(self.state, learner=learner, crossover_data=data)


def load(run: str | Path, task: Any = None, parts: Sequence[type] = ()) -> StudyInput:
    """The population of a run's newest checkpoint and its operators. Nothing in the folder is changed."""
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
    operators = _gpo_operators if isinstance(algorithm, GPO) else _evolver_operators
    known = {name: config[name] for name in ("preset", "task", "engine", "seed")}
    known |= {"generation": facts["generation"], "frames": facts["frames"]}
    return StudyInput(individuals, *operators(algorithm, state, individuals), algorithm.task, known)


def population(algorithm: Any, state: Any, key: Array) -> list[Individual]:
    """The individuals that a state holds. A strategy holds none: those it would try next, before any lesson."""
    if isinstance(algorithm, GPO):
        return [Individual(trees.take(state.learner.members.policy, k), None) for k in range(algorithm.population)]
    if isinstance(algorithm, LearnerAlone):
        return []
    if isinstance(algorithm.evolver, GenerationalGA):
        return [trees.take(state.evolver.members, slot) for slot in range(algorithm.evolver.population)]
    if isinstance(algorithm.evolver, SteadyStateGA):
        tried = ~np.isnan(state.evolver.fitness)  # slots may still be free
        return [trees.take(state.evolver.members, slot) for slot in np.flatnonzero(tried)]
    asked = [c for c in algorithm.ask(key, state, algorithm.generation_size)[0] if c.purpose == "fitness"]
    return [Individual(deterministic(_perturbed(candidate)), None) for candidate in asked]


def _perturbed(candidate: Candidate) -> Any:
    """The actor of a candidate, after its perturbation and before any lesson."""
    actor = candidate.individual.actor
    return candidate.perturbation(actor) if candidate.perturbation is not None else actor


def _evolver_operators(algorithm: Any, state: Any, individuals: list[Individual]) -> Operators:
    """PDERL's four operators, with the run's own settings; and which of them its population cannot be bred by."""
    parts = [getattr(algorithm.evolver, name, None) for name in ("crossover", "mutation")]
    crossovers = {"row copy": CoupleCrossover(_chosen(parts, RowCopy()), individuals)}
    mutations = {"Gaussian": _chosen(parts, Gaussian())}
    if individuals[0].memory is None:
        return crossovers, mutations, "the run keeps no genetic memories: no distillation, no proximal mutation"
    mutations = {"proximal": _chosen(parts, Proximal())} | mutations
    if not hasattr(algorithm, "learner"):
        return crossovers, mutations, "the run has no critic: no distillation"
    critic = algorithm.learner.critic(getattr(state.learner, "inner", state.learner))
    distillation = CoupleCrossover(_chosen(parts, Distillation()), individuals, critic)
    return {"distillation": distillation} | crossovers, mutations, ""


def _chosen(parts: Sequence[Any], usual: Any) -> Any:
    """The part of the same type as `usual`, if there is one."""
    return next((part for part in parts if type(part) is type(usual)), usual)


def _gpo_operators(algorithm: GPO, state: GPOState, individuals: list[Individual]) -> Operators:
    """GPO's two crossovers. Its mutation is learning, which makes no child."""
    other = algorithm.crossover if isinstance(algorithm.crossover, ParameterSpace) else ParameterSpace()
    crossovers = {"parameter space": CoupleCrossover(other, individuals)}
    if not isinstance(algorithm.crossover, StateSpace) or state.crossover_data is None:
        return crossovers, {}, "the run keeps no trajectories for it: no crossover in the space of states"
    rows = algorithm.batch * int(state.learner.iteration)
    if not rows:
        return crossovers, {}, "the round has just begun: no crossover in the space of states"
    played = state.crossover_data.played
    # what the previous population played does not count
    played.returns[:, rows:] = -np.inf
    played.starts[:, rows:] = False
    return {"state space": ImitationCrossover(algorithm, state)} | crossovers, {}, ""
