"""The families of the operator study: parents and their children by every crossover and mutation, bred and played.

PDERL's Figures 5 to 9 compare children of both its crossovers and both its mutations, GPO's Figure 3 those of its two
crossovers. What is compared is always policies by name.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from genepool import trees
from genepool.analysis.operators.study_input import Material
from genepool.environments.task import Task
from genepool.evolution.genetic.generational import mutate
from genepool.runs.evaluation import episode_seeds
from genepool.types import Candidate, Individual, Outcome
from genepool.workers.local import CAPACITY, LocalWorkers

STATES = 2_000  # kept of the episodes of a policy, evenly spaced
SIGMAS = (0.01, 0.05, 0.1, 0.2)  # Figure 9's magnitudes, those of the authors' code; its 0 is the parent


class Family(NamedTuple):
    """Policies to be compared, by name. The first is the one that all others are measured by."""

    name: str
    policies: dict[str, Any]  # callable pytrees that act


class Played(NamedTuple):
    """What a policy brought on the study's episodes, and states that it was in."""

    returns: tuple[float, ...]
    states: list[np.ndarray]  # of each episode, [n, |S|]

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(np.mean(self.returns))


def crossings(key: Array, material: Material, fitness: dict[int, float], n: int) -> list[Family]:
    """`n` pairs drawn at random, and of each a child by every crossover; parent 1 is the fitter (Figures 5 and 6).

    Parents are whoever has a fitness, by place. Of the two children of a row copy it is the first, which is parent 1 with
    rows of parent 2.
    """
    k_pairs, k_cross = jax.random.split(key)
    pairs = list(combinations(sorted(fitness), 2))
    couples = [tuple(sorted(pairs[k], key=lambda place: -fitness[place])) for k in _drawn(k_pairs, len(pairs), n)]
    keys = [jax.random.fold_in(k_cross, k) for k in range(n)]
    children = {name: breed(keys, couples) for name, breed in material.crossovers.items()}
    actor = lambda place: material.individuals[place].actor
    return [
        Family(
            f"{i} and {j}",
            {"parent 1": actor(i), "parent 2": actor(j)} | {name: made[k] for name, made in children.items()},
        )
        for k, (i, j) in enumerate(couples)
    ]


def mutations(key: Array, material: Material, places: Sequence[int], n: int) -> list[Family]:
    """`n` parents drawn at random from these places, and of each a child by every mutation (Figures 7 and 8)."""
    if not material.mutations:
        return []
    return _mutants(key, material, places, n, material.mutations)


def magnitudes(
    key: Array, material: Material, places: Sequence[int], n: int, sigmas: Sequence[float] = SIGMAS
) -> list[Family]:
    """The same parents, and of each a child by proximal mutation of every magnitude, in one direction (Figure 9)."""
    proximal = material.mutations.get("proximal")
    if proximal is None:
        return []
    return _mutants(key, material, places, n, {f"sigma {sigma:g}": replace(proximal, sigma=sigma) for sigma in sigmas})


def _mutants(key: Array, material: Material, places: Sequence[int], n: int, operators: dict[str, Any]) -> list[Family]:
    k_parents, k_mutate = jax.random.split(key)
    chosen = [places[drawn] for drawn in _drawn(k_parents, len(places), n)]
    parents = [material.individuals[place] for place in chosen]
    together, keys = trees.stack(parents), jax.random.split(k_mutate, n)
    children = {name: mutate(operator, keys, together, np.ones(n, bool)) for name, operator in operators.items()}
    return [
        Family(str(place), {"parent": x.actor} | {name: trees.take(c.actor, k) for name, c in children.items()})
        for k, (place, x) in enumerate(zip(chosen, parents, strict=True))
    ]


def _drawn(key: Array, among: int, n: int) -> list[int]:
    """`n` numbers below `among`, none twice before all have been drawn."""
    rng = trees.host_random(key)
    return [int(k) for _ in range(-(-n // among)) for k in rng.permutation(among)][:n]


class Stage:
    """Plays policies without noise, every one of them on the same fresh episodes and only once."""

    def __init__(self, task: Task, episodes: int, seed: int):
        self.task, self.seeds = task, episode_seeds(seed, episodes)
        self.frames = 0
        self._known: dict[int, tuple[Any, Played]] = {}  # by identity, with the policy so that it stays the same

    def play(self, families: Sequence[Family]) -> list[dict[str, Played]]:
        """What every policy of every family brought."""
        wanted = {id(p): p for family in families for p in family.policies.values() if id(p) not in self._known}
        together = max(1, CAPACITY // len(self.seeds))  # few at a time: the transitions of all would not fit in memory
        workers, policies, n = LocalWorkers(self.task), list(wanted.values()), len(self.seeds)
        try:
            for begin in range(0, len(policies), together):
                batch = policies[begin : begin + together]
                episodes = workers.map(
                    [Candidate(Individual(p, None), (seed,), purpose="study") for p in batch for seed in self.seeds]
                )
                for k, policy in enumerate(batch):
                    self._known[id(policy)] = policy, self._kept(episodes[k * n : (k + 1) * n])
        finally:
            workers.close()
        return [{name: self._known[id(p)][1] for name, p in family.policies.items()} for family in families]

    def _kept(self, episodes: Sequence[Outcome]) -> Played:
        frames = sum(episode.frames for episode in episodes)
        self.frames += frames
        states = [np.array(episode.transitions.observation[:: -(-frames // STATES)]) for episode in episodes]
        return Played(tuple(episode.fitness for episode in episodes), states)
