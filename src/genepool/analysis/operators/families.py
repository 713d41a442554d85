"""The families of the operator study: parents and their children by every crossover and mutation, and their episodes.

PDERL's Figures 5 to 9 compare children of both its crossovers and both its mutations, GPO's Figure 3 those of its two
crossovers. Policies are always compared by name.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from genepool import trees
from genepool.acting.batch import CAPACITY
from genepool.analysis.operators.study_input import StudyInput
from genepool.environments.task import Task
from genepool.evolution.genetic.shared import mutate
from genepool.runs.evaluation import episode_seeds
from genepool.types import Candidate, Individual, Outcome
from genepool.workers.local import LocalWorkers

STATES = 2_000  # kept of the episodes of a policy, evenly spaced
SIGMAS = (0.01, 0.05, 0.1, 0.2)  # Figure 9's magnitudes, those of the authors' code; its 0 is the parent


class Family(NamedTuple):
    """Policies to be compared, by name. All others are measured by the first."""

    name: str
    policies: dict[str, Any]  # callable pytrees that act


class PolicyEpisodes(NamedTuple):
    """The episodes of one policy: their returns, and the states that it visited."""

    returns: tuple[float, ...]
    states: list[np.ndarray]  # of each episode, [n, |S|]

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(np.mean(self.returns))

    @property
    def all_states(self) -> np.ndarray:
        """The states of all episodes, [n, |S|]."""
        return np.concatenate(self.states)


def crossings(key: Array, study_input: StudyInput, fitness: dict[int, float], n: int) -> list[Family]:
    """`n` pairs drawn at random, and of each a child by every crossover; parent 1 is the fitter (Figures 5 and 6).

    Parents are the individuals in `fitness`, by their indices. Of the two children of a row copy it is the first, which
    is parent 1 with rows of parent 2.
    """
    k_pairs, k_cross = jax.random.split(key)
    pairs = list(combinations(sorted(fitness), 2))
    couples = [tuple(sorted(pairs[k], key=lambda i: -fitness[i])) for k in _draw_indices(k_pairs, len(pairs), n)]
    keys = [jax.random.fold_in(k_cross, k) for k in range(n)]
    children = {name: breed(keys, couples) for name, breed in study_input.crossovers.items()}
    families = []
    for k, (i, j) in enumerate(couples):
        parents = {"parent 1": study_input.individuals[i].actor, "parent 2": study_input.individuals[j].actor}
        families.append(Family(f"{i} and {j}", parents | {name: made[k] for name, made in children.items()}))
    return families


def mutations(key: Array, study_input: StudyInput, indices: Sequence[int], n: int) -> list[Family]:
    """`n` parents drawn at random from these indices, and of each a child by every mutation (Figures 7 and 8)."""
    if not study_input.mutations:
        return []
    return _mutants(key, study_input, indices, n, study_input.mutations)


def magnitudes(
    key: Array, study_input: StudyInput, indices: Sequence[int], n: int, sigmas: Sequence[float] = SIGMAS
) -> list[Family]:
    """The same parents, and of each a child by proximal mutation of every magnitude, in one direction (Figure 9)."""
    proximal = study_input.mutations.get("proximal")
    if proximal is None:
        return []
    return _mutants(
        key, study_input, indices, n, {f"sigma {sigma:g}": replace(proximal, sigma=sigma) for sigma in sigmas}
    )


def _mutants(
    key: Array, study_input: StudyInput, indices: Sequence[int], n: int, operators: dict[str, Any]
) -> list[Family]:
    """Parents drawn at random, and of each a child by every operator."""
    k_parents, k_mutate = jax.random.split(key)
    chosen = [indices[k] for k in _draw_indices(k_parents, len(indices), n)]
    parents = [study_input.individuals[index] for index in chosen]
    stacked = trees.stack(parents)
    keys = jax.random.split(k_mutate, n)
    children = {name: mutate(operator, keys, stacked, np.ones(n, bool)) for name, operator in operators.items()}
    return [
        Family(str(index), {"parent": x.actor} | {name: trees.take(c.actor, k) for name, c in children.items()})
        for k, (index, x) in enumerate(zip(chosen, parents, strict=True))
    ]


def _draw_indices(key: Array, count: int, n: int) -> list[int]:
    """`n` numbers below `count`, none twice before all have been drawn."""
    rng = trees.host_random(key)
    return [int(k) for _ in range(-(-n // count)) for k in rng.permutation(count)][:n]


class PolicyEvaluator:
    """Plays policies without noise, all on the same fresh episodes and each policy only once."""

    def __init__(self, task: Task, episodes: int, seed: int):
        self.task = task
        self.seeds = episode_seeds(seed, episodes)
        self.frames = 0
        self._known: dict[
            int, tuple[Any, PolicyEpisodes]
        ] = {}  # by id; the policy is kept so that its id stays its own

    def evaluate(self, families: Sequence[Family]) -> list[dict[str, PolicyEpisodes]]:
        """The episodes of every policy of every family."""
        policies = {id(p): p for family in families for p in family.policies.values() if id(p) not in self._known}
        self._play(list(policies.values()))
        return [{name: self._known[id(p)][1] for name, p in family.policies.items()} for family in families]

    def _play(self, policies: Sequence[Any]) -> None:
        n = len(self.seeds)
        at_once = max(1, CAPACITY // n)  # the transitions of all would not fit in memory
        workers = LocalWorkers(self.task)
        try:
            for begin in range(0, len(policies), at_once):
                batch = policies[begin : begin + at_once]
                episodes = workers.map(
                    [Candidate(Individual(p, None), (seed,), purpose="study") for p in batch for seed in self.seeds]
                )
                for k, policy in enumerate(batch):
                    self._known[id(policy)] = policy, self._kept(episodes[k * n : (k + 1) * n])
        finally:
            workers.close()

    def _kept(self, episodes: Sequence[Outcome]) -> PolicyEpisodes:
        """The returns of one policy's episodes, and about STATES of their states."""
        frames = sum(episode.frames for episode in episodes)
        self.frames += frames
        states = [np.array(episode.transitions.observation[:: -(-frames // STATES)]) for episode in episodes]
        return PolicyEpisodes(tuple(episode.fitness for episode in episodes), states)
