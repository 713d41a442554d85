"""Transitions, individuals, populations, and the candidates and outcomes between an algorithm and its workers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from jax import Array

Column = Any  # an array with a row for each transition: NumPy's in an outcome, JAX's in a ring


class Transitions(NamedTuple):
    """Rows (s, a, r, s', d). `terminated` is 1 if the task ended the episode, 0 if only the time limit did."""

    observation: Column
    action: Column
    reward: Column
    next_observation: Column
    terminated: Column


class Individual(NamedTuple):
    """A policy and its genetic memory: the latest transitions of itself and its ancestors (PDERL)."""

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
    """An individual to try. It carries all its randomness, so its outcome does not depend on where it is played."""

    individual: Individual
    seeds: tuple[int, ...] = ()  # one per episode, or per stream of episodes
    noise: np.ndarray | None = None  # exploration noise: [steps, width], or [seeds, steps, width], one for each seed
    # actor -> actor, applied to the actor above. Many candidates share that actor, which is sent to a worker once
    perturbation: Callable[[Any], Any] | None = None
    lesson: Lesson | None = None  # what it learns before it acts
    reference: Callable[[Array], Array] | None = None  # an actor whose fitness the candidate's is compared with
    reference_episodes: int = 0  # fresh episodes of the reference that the evolver wants
    reference_seeds: tuple[int, ...] = ()  # one for each of them
    reference_known: tuple[float, ...] = ()  # earlier returns of the same reference
    credited: np.ndarray | None = None  # the weights that the evolver is told, if they are not the actor's
    purpose: str = "fitness"  # the ledger's account: fitness, exploration, champion test, ...
    origin: str = "evolution"  # or "learning": a clone of the learner (PDERL Table 2 follows these)
    kind: str = ""  # for evolvers that have members of several kinds
    place: int = -1  # in its evolver's own sequence
    number: int = -1  # in order of asking
    version: int = 0  # how many outcomes had been accepted when it was asked for
    parents: tuple[int, ...] = ()  # the numbers of the candidates it was bred from
    operators: tuple[str, ...] = ()  # the operators that made it, for the record
    # of each stream: episodes are played one after the other for so many steps; empty: one complete episode each
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The result of a candidate. Its transitions are those of its episodes, one after the other."""

    candidate: Candidate
    individual: Individual
    # undiscounted, one per episode; truncated episodes of a stream count only if none of its episodes finished
    returns: tuple[float, ...]
    transitions: Transitions  # [frames, ...]
    reference_returns: tuple[float, ...] = ()
    reference_frames: int = 0
    lengths: tuple[int, ...] = ()  # of the episodes, in order of the transitions

    @property
    def fitness(self) -> float:
        """The mean undiscounted return."""
        return sum(self.returns) / len(self.returns)

    @property
    def frames(self) -> int:
        """Environment steps played."""
        return len(self.transitions.reward)


class LearningResult(NamedTuple):
    """The result of learning in the background: the learner's new state."""

    learner: Any
