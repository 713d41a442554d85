"""The operator study: children of both crossovers and both mutations, bred from a run's own population and played.

It is that of PDERL's Figures 5 to 9, for any run that has a checkpoint. What is compared is a `Family`, policies by name, so
that the children of another paper's operators (GPO's Figure 3) are compared by the same functions.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from genepool import trees
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.evolution.crossover import Distillation, RowCopy
from genepool.evolution.genetic import cross, mutate
from genepool.evolution.mutation import Gaussian, Proximal
from genepool.networks import deterministic
from genepool.runs import checkpoint
from genepool.runs.evaluation import episode_seeds
from genepool.runs.folder import Folder
from genepool.runs.training import rebuild_algorithm
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


class Material(NamedTuple):
    """What a checkpoint gives to study."""

    individuals: list[Individual]
    critic: Callable | None
    crossovers: dict[str, Any]  # the run's own operator where it has it, else with its paper's settings
    mutations: dict[str, Any]
    missing: str  # what cannot be studied, and why; empty if everything can
    task: Task
    facts: dict[str, Any]  # whose population it is: preset, task, engine, seed, generation, frames


def load(run: str | Path, task: Any = None) -> Material:
    """The population, memories, critic and operators of a run's newest checkpoint. Nothing in the folder is changed."""
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
    own = getattr(algorithm, "evolver", None)
    crossovers = {"distillation": Distillation(), "row copy": RowCopy()}
    mutations = {"proximal": Proximal(), "Gaussian": Gaussian()}
    for kinds, part in ((crossovers, getattr(own, "crossover", None)), (mutations, getattr(own, "mutation", None))):
        kinds |= {name: part for name, usual in kinds.items() if type(part) is type(usual)}
    critic, missing = None, ""
    if individuals[0].memory is None:
        missing = f"a {config['preset']} run keeps no genetic memories: distillation and proximal mutation are left out"
        del crossovers["distillation"], mutations["proximal"]
    elif algorithm.learner is None:
        missing = "the run has no critic: distillation is left out"
        del crossovers["distillation"]
    else:
        critic = algorithm.learner.critic(state.learner)
    known = {name: config[name] for name in ("preset", "task", "engine", "seed")}
    known |= {"generation": facts["generation"], "frames": facts["frames"]}
    return Material(individuals, critic, crossovers, mutations, missing, algorithm.task, known)


def population(algorithm: Any, state: Any, key: Array) -> list[Individual]:
    """The individuals that a state holds, or, of a strategy that holds none, those it would try next, before any lesson."""
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


def crossings(key: Array, material: Material, fitness: dict[int, float], n: int) -> list[Family]:
    """`n` pairs drawn at random, and of each a child by every crossover; parent 1 is the fitter (Figures 5 and 6).

    Parents are whoever has a fitness, by place. Of the two children of a row copy it is the first, which is parent 1 with
    rows of parent 2.
    """
    k_pairs, k_cross = jax.random.split(key)
    pairs = list(combinations(sorted(fitness), 2))
    families = []
    for k, drawn in enumerate(_drawn(k_pairs, len(pairs), n)):
        i, j = sorted(pairs[drawn], key=lambda place: -fitness[place])
        x, y = material.individuals[i], material.individuals[j]
        k_child = jax.random.fold_in(k_cross, k)
        children = {
            name: jax.tree.map(np.asarray, cross(operator, k_child, x, y, material.critic)[0].actor)
            for name, operator in material.crossovers.items()
        }
        families.append(Family(f"{i} and {j}", {"parent 1": x.actor, "parent 2": y.actor} | children))
    return families


def mutations(key: Array, material: Material, places: Sequence[int], n: int) -> list[Family]:
    """`n` parents drawn at random from these places, and of each a child by every mutation (Figures 7 and 8)."""
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
