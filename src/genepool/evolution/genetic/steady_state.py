"""SteadyStateGA: a genetic algorithm without generations, for asynchronous PDERL.

PDERL's authors suggest a distributed version but do not define it. The replacement rule is ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jax import Array

from genepool import trees
from genepool.evolution.genetic.crossover import Distillation, ElementCopy, RowCopy
from genepool.evolution.genetic.mutation import Gaussian, Proximal
from genepool.evolution.genetic.shared import (
    DISCARDED,
    ELITE,
    FATES,
    SELECTED,
    check_share,
    check_sizes,
    cross,
    elite_count,
    fates_report,
    mutate,
    operator_name,
    with_new_memory,
    with_rows,
)
from genepool.parts import part
from genepool.protocols import Actor, Critic
from genepool.types import Candidate, Individual, Outcome


class SteadyStateGAState(eqx.Module):
    """The population, the initial individuals, and the learner's clone if one waits to be tried."""

    first: Individual  # [N, ...]: the initial individuals, which are handed out in order
    members: Individual  # [N, ...]
    fitness: np.ndarray  # [N]: NaN if the slot is free
    number: np.ndarray  # [N]: the candidate number of each member
    clone: Individual
    waiting: np.ndarray  # whether the clone waits to be tried
    fate: np.ndarray  # fate of the learner's last clone: an index into FATES, -1 if there was none
    fates: np.ndarray  # [3]: how many clones of the learner had each fate


@part
class SteadyStateGA:
    """One child at a time. Tournament winners have a child. It is tried, and then replaces the worst individual."""

    population: int = 10  # k: individuals
    elite_fraction: float = 0.1  # psi: a clone counts as elite if it ranks within this share
    tournament: int = 3  # individuals drawn for each tournament
    crossover_probability: float = 0.5  # that a child has two parents
    mutation_probability: float = 0.9  # that a child is mutated
    # makes children of two parents; only the first is tried
    crossover: RowCopy | ElementCopy | Distillation = field(default_factory=RowCopy)
    mutation: Gaussian | Proximal = field(default_factory=Gaussian)  # makes a child of one parent
    takes_lessons: ClassVar[bool] = True
    has_upcoming: ClassVar[bool] = False  # a child is bred when it is asked for

    def __post_init__(self):
        check_sizes(self.population, self.tournament)
        for share in ("elite_fraction", "crossover_probability", "mutation_probability"):
            check_share(share, getattr(self, share))

    @property
    def needs_critic(self) -> bool:
        """Whether the crossover needs the critic."""
        return getattr(self.crossover, "needs_critic", False)

    def init(self, key: Array, new_individual: Callable[[int], Individual]) -> SteadyStateGAState:
        """The initial individuals, of which none was tried."""
        n = self.population
        first = trees.stack([new_individual(k) for k in range(n)])
        return SteadyStateGAState(
            first=first,
            members=first,
            fitness=np.full(n, np.nan),
            number=np.full(n, -1, np.int64),
            clone=jax.tree.map(np.asarray, trees.take(first, 0)),
            waiting=np.zeros((), bool),
            fate=np.full((), -1, np.int32),
            fates=np.zeros(len(FATES), np.int32),
        )

    def ask(
        self, key: Array, state: SteadyStateGAState, places: Sequence[int], critic: Critic | None
    ) -> tuple[list[Candidate], SteadyStateGAState]:
        """For each place: the learner's clone if one waits, else the initial individual of this place, else a child."""
        candidates: list[Candidate] = []
        for k, place in enumerate(places):
            if state.waiting:
                candidates.append(Candidate(state.clone, origin="learning"))
                state = replace(state, waiting=np.zeros((), bool))
            elif place < self.population:
                candidates.append(Candidate(trees.take(state.first, place)))
            else:
                candidates.append(self._child(jax.random.fold_in(key, k), state, critic))
        return candidates, state

    def _child(self, key: Array, state: SteadyStateGAState, critic: Critic | None) -> Candidate:
        k_choice, k_cross, k_mutate = jax.random.split(key, 3)
        rng = trees.host_random(k_choice)
        eligible = np.flatnonzero(~np.isnan(state.fitness))
        fitness = state.fitness
        if not len(eligible):  # none was tried yet, which happens with more workers than individuals
            eligible = np.arange(self.population)
            fitness = np.zeros(self.population)

        def winner(drawn: np.ndarray) -> int:
            return int(drawn[np.argmax(fitness[drawn])])

        x = winner(rng.choice(eligible, self.tournament))
        parents = [x]
        operators: list[str] = []
        child = trees.take(state.members, x)
        others = eligible[eligible != x]
        if len(others) and rng.random() < self.crossover_probability:
            parents.append(winner(rng.choice(others, self.tournament)))
            child = cross(self.crossover, k_cross, child, trees.take(state.members, parents[1]), critic)[0]
            operators.append(operator_name(self.crossover))
        if rng.random() < self.mutation_probability:
            child = trees.take(mutate(self.mutation, k_mutate[None], trees.stack([child]), np.ones(1, bool)), 0)
            operators.append(operator_name(self.mutation))
        numbers = tuple(int(state.number[p]) for p in parents if state.number[p] >= 0)
        return Candidate(jax.tree.map(np.asarray, child), parents=numbers, operators=tuple(operators))

    def tell(
        self, key: Array, state: SteadyStateGAState, outcomes: Sequence[Outcome], critic: Critic | None
    ) -> SteadyStateGAState:
        """Put each individual that was tried into a free slot, or if none is free, into the slot of the worst."""
        for outcome in outcomes:
            if not np.isfinite(outcome.fitness):
                continue
            free = np.flatnonzero(np.isnan(state.fitness))
            # the worst is replaced even by a worse child: fitness is noisy, and a lucky score would stay for ever
            slot = int(free[0]) if len(free) else int(np.argmin(state.fitness))
            state = self._placed(state, slot, outcome)
        return state

    def _placed(self, state: SteadyStateGAState, slot: int, outcome: Outcome) -> SteadyStateGAState:
        fitness = with_rows(state.fitness, [slot], outcome.fitness)
        state = replace(
            state,
            members=with_rows(state.members, [slot], with_new_memory([outcome]).members),
            fitness=fitness,
            number=with_rows(state.number, [slot], outcome.candidate.number),
        )
        if outcome.candidate.origin != "learning":
            return state
        better = int(np.sum(fitness > outcome.fitness))
        size = int(np.sum(~np.isnan(fitness)))
        elites = elite_count(self.elite_fraction, self.population)
        fate = ELITE if better < elites else DISCARDED if better == size - 1 else SELECTED
        fates = state.fates + (np.arange(len(FATES)) == fate).astype(np.int32)
        return replace(state, fate=np.asarray(fate, np.int32), fates=fates)

    def inject(self, state: SteadyStateGAState, newcomer: Individual) -> SteadyStateGAState:
        """The state in which a clone of the learner waits to be tried next."""
        return replace(state, clone=jax.tree.map(np.asarray, newcomer), waiting=np.ones((), bool))

    def champion(self, state: SteadyStateGAState) -> Actor:
        """The actor of the fittest. While none was tried, the first individual's."""
        return trees.take(state.members.actor, int(np.argmax(np.nan_to_num(state.fitness, nan=-np.inf))))

    def report(self, state: SteadyStateGAState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """The fate of the learner's last clone, and how many clones had each fate."""
        return fates_report(state.fate, state.fates)
