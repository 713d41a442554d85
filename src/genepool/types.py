"""The nouns: transitions, individuals, populations, and what travels between an algorithm and its workers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

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


class Lesson(Protocol):
    """Gradient steps that an individual takes before it acts."""

    steps: Any  # how many

    def __call__(self, actor: Any) -> Any:
        """The actor after them."""
        ...


@dataclass(frozen=True)
class Candidate:
    """Something to try. It carries all its randomness, so it plays the same anywhere and beside any other."""

    individual: Individual
    seeds: tuple[int, ...] = ()  # one per episode, or per stream of episodes
    noise: np.ndarray | None = None  # of an exploring candidate: [steps, width], or [seeds, steps, width], each its own
    # actor -> actor: what makes it of the actor it carries. Many are made of the same one, which is sent once for all of them
    perturbation: Callable[[Any], Any] | None = None
    lesson: Lesson | None = None  # what it learns before it acts
    reference: Callable[[Array], Array] | None = None  # an actor played beside it, for its fitness alone
    reference_episodes: int = 0  # fresh episodes of the reference that the evolver wants
    reference_seeds: tuple[int, ...] = ()  # one for each of them
    reference_known: tuple[float, ...] = ()  # what the same reference earned before
    credited: np.ndarray | None = None  # the weights that the evolver is told of, where they are not the actor's
    purpose: str = "fitness"  # the ledger's account: fitness, exploration, champion test, ...
    origin: str = "evolution"  # or "learning": a clone of the learner (PDERL Table 2 follows these)
    kind: str = ""  # what it is to its evolver, where that has members of several kinds
    place: int = -1  # in its evolver's own sequence
    number: int = -1  # in order of asking
    version: int = 0  # how many outcomes had been accepted when it was asked for
    parents: tuple[int, ...] = ()  # the numbers of the candidates it was bred from
    operators: tuple[str, ...] = ()  # what was done to them, for the reader
    # of each stream: episodes are played one after the other until so many; none: one whole episode each
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What came of a candidate. Its transitions are those of its episodes in order, one after the other."""

    candidate: Candidate
    individual: Individual
    # undiscounted, one per episode; truncated streams count only if no episode of theirs finished
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


class LearningResult(NamedTuple):
    """What came of learning behind evolution: the learner's new state."""

    learner: Any
