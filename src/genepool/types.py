"""The nouns: transitions, individuals, populations, and what travels between an algorithm and its workers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax import Array


class Transitions(NamedTuple):
    """Rows (s, a, r, s', d). `terminated` is 1 where the task ended the episode, 0 where only the clock did."""

    observation: Array
    action: Array
    reward: Array
    next_observation: Array
    terminated: Array


class Individual(NamedTuple):
    """A policy and its genetic memory: its own and its ancestors' latest transitions (PDERL, "The genetic memory")."""

    actor: Callable[[Array], Array]  # a callable pytree: actor(observation) -> action in [-1, 1]^|A|
    memory: Any  # a Buffer


class Population(NamedTuple):
    """Individuals with a leading axis, and the fitness of each."""

    members: Individual  # [N, ...]
    fitness: np.ndarray  # [N]


@dataclass(frozen=True)
class Candidate:
    """Something to try. It carries all its randomness, so it plays the same anywhere and beside anyone."""

    individual: Individual
    seeds: tuple[int, ...] = ()  # one per episode, or per stream of episodes
    noise: np.ndarray | None = None  # of an exploring candidate: [steps, width], or [seeds, steps, width], each its own
    lesson: Callable[[Any], Any] | None = None  # actor -> actor: what it learns before it acts
    reference: Callable[[Array], Array] | None = None  # an actor played beside it, for its fitness alone
    reference_seeds: tuple[int, ...] = ()  # one per episode of the reference
    reference_known: tuple[float, ...] = ()  # what the same reference brought before
    purpose: str = "fitness"  # the ledger's account: fitness, exploration, champion test, ...
    origin: str = "evolution"  # or "learning": a clone of the learner (PDERL Table 2 follows these)
    number: int = -1  # in order of asking
    version: int = 0  # how many outcomes had been told when it was asked for
    parents: tuple[int, ...] = ()  # the numbers of the candidates it was bred from
    operators: tuple[str, ...] = ()  # what was done to them
    # of each stream: episodes are played one after the other until so many; none: one whole episode each
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What came of a candidate. Its transitions are those of its episodes in order, one after the other."""

    candidate: Candidate
    individual: Individual
    # undiscounted, one per episode; one that its stream's end cut short only where there is no other
    returns: tuple[float, ...]
    transitions: Transitions  # [frames, ...]
    reference_returns: tuple[float, ...] = ()
    reference_frames: int = 0
    lengths: tuple[int, ...] = ()  # of the episodes that the transitions are of, in order

    @property
    def fitness(self) -> float:
        """The mean undiscounted return."""
        return sum(self.returns) / len(self.returns)

    @property
    def frames(self) -> int:
        """Environment steps played."""
        return len(self.transitions.reward)


class Learnt(NamedTuple):
    """What came of learning behind evolution: a state of which only `learner` counts."""

    state: Any
