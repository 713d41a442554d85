"""The genetic algorithm without generations: SteadyState, for asynchronous PDERL.

PDERL's authors hoped for a distributed version and left it open. The replacement rule is ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import equinox as eqx
import jax
import numpy as np
from jax import Array

from genepool import trees
from genepool.errors import UserError
from genepool.evolution.crossover import Distillation, ElementCopy, RowCopy
from genepool.evolution.genetic import cross, experienced, mutate, name
from genepool.evolution.mutation import Gaussian, Proximal
from genepool.types import Candidate, Individual, Outcome


class Pool(eqx.Module):
    """The state of `SteadyState`: who lives, the first individuals, and the learner's clone if one waits to be tried."""

    first: Individual  # [N, ...]: untried, handed out in order
    members: Individual  # [N, ...]
    fitness: np.ndarray  # [N], NaN where nobody lives yet
    number: np.ndarray  # [N]: the candidate that each was tried as
    clone: Individual
    waiting: np.ndarray  # whether the clone waits
    fate: np.ndarray  # what became of the learner's last clone, an index into FATES, -1 if there was none
    fates: np.ndarray  # [3]: clones of the learner by what became of them

    @property
    def champion(self) -> Callable:
        """The actor of the fittest; while nobody was tried, the first."""
        return trees.take(self.members.actor, int(np.argmax(np.nan_to_num(self.fitness, nan=-np.inf))))


@dataclass(frozen=True)
class SteadyState:
    """One child at a time: tournament winners mate, their child is tried, and takes the place of the worst."""

    population: int = 10  # k: individuals
    elite_fraction: float = 0.1  # psi: the share whose rank a clone must reach to count as elite
    tournament: int = 3  # individuals drawn for each tournament
    crossover_probability: float = 0.5  # of a child; the others have one parent
    mutation_probability: float = 0.9  # of a child
    crossover: RowCopy | ElementCopy | Distillation = field(
        default_factory=RowCopy
    )  # two parents' children; the first one lives
    mutation: Gaussian | Proximal = field(default_factory=Gaussian)  # one parent's child

    def __post_init__(self):
        if self.population < 2 or self.tournament < 1:
            raise UserError("a population needs 2 individuals or more, a tournament 1 or more")
        shares = (self.elite_fraction, self.crossover_probability, self.mutation_probability)
        if not all(0.0 <= share <= 1.0 for share in shares):
            raise UserError("the elite fraction and the probabilities of crossover and mutation lie between 0 and 1")

    def init(self, members: Individual) -> Pool:
        """The first individuals, untried."""
        n, zero = self.population, np.zeros((), np.int32)
        clone = jax.tree.map(np.asarray, trees.take(members, 0))
        nobody, no = np.full(n, -1, np.int64), np.zeros((), bool)
        return Pool(members, members, np.full(n, np.nan), nobody, clone, no, zero - 1, np.zeros(3, np.int32))

    def ask(
        self, key: Array, pool: Pool, orders: Sequence[int], critic: Callable | None
    ) -> tuple[list[Candidate], Pool]:
        """The learner's clone if one waits; a first individual, by its order; or else a child."""
        candidates = []
        for k, order in enumerate(orders):
            if pool.waiting:
                candidates.append(Candidate(pool.clone, origin="learning"))
                pool = replace(pool, waiting=np.zeros((), bool))
            elif order < self.population:
                candidates.append(Candidate(trees.take(pool.first, order)))
            else:
                candidates.append(self._child(jax.random.fold_in(key, k), pool, critic))
        return candidates, pool

    def _child(self, key: Array, pool: Pool, critic: Callable | None) -> Candidate:
        k_choice, k_cross, k_mutate = jax.random.split(key, 3)
        rng = trees.host_random(k_choice)
        alive = np.flatnonzero(~np.isnan(pool.fitness))
        # more workers than individuals: nobody came back yet, and any of the first may be a parent
        among, fitness = (
            (alive, pool.fitness) if len(alive) else (np.arange(self.population), np.zeros(self.population))
        )

        def winner(drawn: np.ndarray) -> int:
            return int(drawn[np.argmax(fitness[drawn])])

        x = winner(rng.choice(among, self.tournament))
        parents, operators, child = [x], [], trees.take(pool.members, x)
        others = among[among != x]
        if len(others) and rng.random() < self.crossover_probability:
            parents.append(winner(rng.choice(others, self.tournament)))
            child = cross(self.crossover, k_cross, child, trees.take(pool.members, parents[1]), critic)[0]
            operators.append(name(self.crossover))
        if rng.random() < self.mutation_probability:
            child = trees.take(mutate(self.mutation, k_mutate[None], trees.stack([child]), np.ones(1, bool)), 0)
            operators.append(name(self.mutation))
        numbers = tuple(int(pool.number[p]) for p in parents if pool.number[p] >= 0)
        return Candidate(jax.tree.map(np.asarray, child), parents=numbers, operators=tuple(operators))

    def tell(self, key: Array, pool: Pool, outcomes: Sequence[Outcome], critic: Callable | None) -> Pool:
        """Whoever was tried takes a free place, or else the place of the worst."""
        for outcome in outcomes:
            if not np.isfinite(outcome.fitness):
                continue
            free = np.flatnonzero(np.isnan(pool.fitness))
            # the worst is replaced even by a worse child: fitness is noisy, and a lucky score would never leave
            at = int(free[0]) if len(free) else int(np.argmin(pool.fitness))
            pool = self._placed(pool, at, outcome)
        return pool

    def _placed(self, pool: Pool, at: int, outcome: Outcome) -> Pool:
        told = experienced([outcome])
        members = [trees.take(pool.members, slot) for slot in range(self.population)]
        members[at] = trees.take(told.members, 0)
        fitness, number = pool.fitness.copy(), pool.number.copy()
        fitness[at], number[at] = outcome.fitness, outcome.candidate.number
        pool = replace(pool, members=trees.stack(members), fitness=fitness, number=number)
        if outcome.candidate.origin != "learning":
            return pool
        better = int(np.sum(fitness > outcome.fitness))
        elites, alive = max(1, int(self.elite_fraction * self.population + 1e-9)), int(np.sum(~np.isnan(fitness)))
        fate = 0 if better < elites else 2 if better == alive - 1 else 1
        return replace(
            pool, fate=np.asarray(fate, np.int32), fates=pool.fates + (np.arange(3) == fate).astype(np.int32)
        )

    def inject(self, pool: Pool, newcomer: Individual) -> Pool:
        """The pool with a clone of the learner waiting to be tried next."""
        return replace(pool, clone=jax.tree.map(np.asarray, newcomer), waiting=np.ones((), bool))
