"""The genetic algorithm of ERL and PDERL: Generational breeds a whole population at a time."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool import buffer, trees
from genepool.errors import UserError
from genepool.evolution.crossover import Distillation, ElementCopy, RowCopy
from genepool.evolution.mutation import Gaussian, Proximal
from genepool.evolution.selection import Mating, distances, survival
from genepool.machine import each
from genepool.types import Candidate, Individual, Outcome, Population

FATES = ("elite", "selected", "discarded")


class Brood(eqx.Module):
    """The state of `Generational`: the individuals to be tried next, and what is known of the slots they sit in."""

    members: Individual  # [N, ...]
    elite: np.ndarray  # [N] bool: untouched copies of elites
    clone: np.ndarray  # [N] bool: clones of the learner
    parents: np.ndarray  # [N, 2]: numbers of candidates, -1 for none
    crossed: np.ndarray  # [N] bool
    mutated: np.ndarray  # [N] bool
    # of the generation that was tried last
    champion: Callable
    top: np.ndarray  # the slot that the champion's untouched copy was put in
    fitness: np.ndarray  # [N]
    fate: np.ndarray  # what became of the learner's clone, an index into FATES, -1 if there was none
    # since the beginning
    fates: np.ndarray  # [3]: clones of the learner by what became of them
    generation: np.ndarray


class Match(NamedTuple):
    """Two parents, by the slots they were tried in, and the slots that their children go to."""

    x: int
    y: int
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Generational:
    """A generation in, a generation out: elitism, tournaments, crossover, mutation (ERL; PDERL changes the operators).

    With a crossover of two children (`RowCopy`), copies of elites mate with tournament winners at random, as in ERL; with
    one of one child (`Distillation`), the pairs with the best mating scores do, as in PDERL.
    """

    population: int = 10  # k: individuals
    elite_fraction: float = 0.1  # psi: the share that is kept untouched; at least one is
    tournament: int = 3  # individuals drawn for each tournament
    mutation_probability: float = 0.9  # of everyone but the untouched elites
    crossover: RowCopy | ElementCopy | Distillation = field(default_factory=RowCopy)  # two parents' children
    mutation: Gaussian | Proximal = field(default_factory=Gaussian)  # one parent's child
    mating: Mating = field(default_factory=Mating)  # who mates, where the crossover has one child
    stale_elite_fitness: bool = False  # as the authors' code: an elite's copy is scored as the one it replaced
    # where the learner's clone goes; the last two are PDERL's and ERL's code, by the fitness before breeding
    sync_slot: Literal["worst_non_elite", "worst_but_champion", "worst"] = "worst_non_elite"

    def __post_init__(self):
        if self.population < 2 or self.tournament < 1:
            raise UserError("a population needs 2 individuals or more, a tournament 1 or more")
        if not (0.0 <= self.elite_fraction <= 0.5 and 0.0 <= self.mutation_probability <= 1.0):
            raise UserError("the elite fraction is a share up to 0.5, the mutation probability one up to 1")

    @property
    def elites(self) -> int:
        """How many are kept untouched: e = max(1, floor(psi N))."""
        return max(1, int(self.elite_fraction * self.population + 1e-9))

    def init(self, members: Individual) -> Brood:
        """The first generation, untried."""
        n = self.population
        no, zero, nobody = np.zeros(n, bool), np.zeros((), np.int32), np.full((n, 2), -1, np.int32)
        first = trees.take(members.actor, 0)
        return Brood(
            members, no, no, nobody, no, no, first, zero, np.full(n, np.nan), zero - 1, np.zeros(3, np.int32), zero
        )

    def ask(
        self, key: Array, brood: Brood, orders: Sequence[int], critic: Callable | None
    ) -> tuple[list[Candidate], Brood]:
        """Every member, with its ancestry."""
        if len(orders) != self.population:
            raise UserError(
                "Generational breeds whole generations, which only the synchronous schedule asks for: take --evolver steady-state"
            )

        def candidate(slot: int) -> Candidate:
            done = ((self.crossover, brood.crossed[slot]), (self.mutation, brood.mutated[slot]))
            return Candidate(
                trees.take(brood.members, slot),
                origin="learning" if brood.clone[slot] else "evolution",
                parents=tuple(int(parent) for parent in brood.parents[slot] if parent >= 0),
                operators=("elite",) if brood.elite[slot] else tuple(name(operator) for operator, was in done if was),
            )

        return [candidate(slot) for slot in range(self.population)], brood

    def tell(self, key: Array, brood: Brood, outcomes: Sequence[Outcome], critic: Callable | None) -> Brood:
        """The next generation, bred from the outcomes of the last one in order of slot."""
        if len(outcomes) != self.population:
            raise ValueError(
                f"Generational needs all {self.population} outcomes of a generation at once, not {len(outcomes)}"
            )
        k_select, k_distance, k_cross, k_mutate = jax.random.split(key, 4)
        rng = trees.host_random(k_select)
        told = experienced(outcomes)
        chosen = survival(rng, told.fitness, self.elites, self.tournament)

        source = np.arange(self.population)  # whose individual each slot holds
        winners, free = list(chosen.winners), list(chosen.free)
        copies = []  # slots of the untouched elites; the originals stay where they are and may mutate
        for elite in chosen.elites:
            copies.append(free.pop(0) if free else winners.pop())
            source[copies[-1]] = elite
        if self.crossover.children == 2:
            matches = self._at_random(rng, source, copies, winners, free)
        else:
            matches = self._by_score(rng, k_distance, told, source, copies, winners, free, int(brood.generation))
        members, crossed, parents = self._cross(k_cross, told.members, source, matches, critic)
        elite = np.isin(np.arange(self.population), copies)
        mutated = (rng.random(self.population) < self.mutation_probability) & ~elite
        members = mutate(self.mutation, jax.random.split(k_mutate, self.population), members, mutated)

        numbers = np.array([outcome.candidate.number for outcome in outcomes] + [-1], np.int32)
        clones = [slot for slot, outcome in enumerate(outcomes) if outcome.candidate.origin == "learning"]
        fates = [0 if slot in chosen.elites else 1 if slot in chosen.winners else 2 for slot in clones]
        return Brood(
            members,
            elite=elite,
            clone=np.zeros(self.population, bool),
            parents=numbers[parents],
            crossed=crossed,
            mutated=mutated,
            champion=trees.take(told.members.actor, chosen.elites[0]),
            top=np.asarray(copies[0], np.int32),
            fitness=told.fitness,
            fate=np.asarray(fates[-1] if fates else -1, np.int32),
            fates=brood.fates + np.bincount(fates, minlength=3).astype(np.int32),
            generation=brood.generation + np.int32(1),
        )

    def _at_random(self, rng, source, copies, winners, free) -> list[Match]:
        """ERL: an elite's copy and a tournament winner, drawn at random for every two free slots."""
        # as ERL: where a slot is left over, one of them is written a second time
        slots = [*free, int(rng.choice(free))] if len(free) % 2 else free
        matches = []
        for i, j in zip(slots[::2], slots[1::2], strict=True):
            x, y = int(source[rng.choice(copies)]), int(source[rng.choice(winners or copies)])
            if i == j:
                source[i] = y  # a slot paired with itself takes the winner as it is
            else:
                matches.append(Match(x, y, (i, j)))
        return matches

    def _by_score(self, rng, key, told, source, copies, winners, free, generation) -> list[Match]:
        """PDERL: a child of one of the best pairs for every free slot."""
        fitness = told.fitness if self.stale_elite_fitness else told.fitness[source]
        slots = winners + copies  # of an elite that is there twice, the original is kept
        if self.mating.self_pairs:
            slots += [int(rng.choice(winners))] if len(winners) % 2 else []
        else:
            slots = [slots[k] for k in np.sort(np.unique(source[slots], return_index=True)[1])]
        distance = None
        if self.mating.weight(generation) < 1.0:
            distance = distances(key, told.members, self.mating)[np.ix_(source, source)]
        pairs = self.mating.pairs(rng, slots, fitness, distance, len(free), generation)
        return [Match(int(source[x]), int(source[y]), (slot,)) for (x, y), slot in zip(pairs, free, strict=True)]

    def _cross(self, key, tried, source, matches, critic) -> tuple[Individual, np.ndarray, np.ndarray]:
        """The members with the children in their slots, which slots those are, and the slots of everyone's parents."""
        members = [trees.take(tried, slot) for slot in source]
        crossed, parents = np.zeros(len(source), bool), np.stack([source, np.full(len(source), -1)], axis=1)

        def mate(n: int) -> tuple[Individual, ...]:
            x, y = (trees.take(tried, parent) for parent in (matches[n].x, matches[n].y))
            return cross(self.crossover, jax.random.fold_in(key, n), x, y, critic)

        broods = each(mate, range(len(matches)))
        for match, children in zip(matches, broods, strict=True):
            for slot, child in zip(match.slots, children, strict=True):
                members[slot], crossed[slot], parents[slot] = child, True, (match.x, match.y)
        return trees.stack(members), crossed, parents

    def inject(self, brood: Brood, newcomer: Individual) -> Brood:
        """The brood with a clone of the learner in one slot: "synchronisation", once every omega generations."""
        slot = int(np.argmin(np.where(brood.elite & (self.sync_slot == "worst_non_elite"), np.inf, brood.fitness)))
        if self.sync_slot == "worst_but_champion" and slot == brood.top:
            slot = (slot + 1) % self.population
        at = np.arange(self.population) == slot
        members = [newcomer if at[k] else trees.take(brood.members, k) for k in range(self.population)]
        changed = lambda b: (b.members, b.elite, b.clone, b.parents, b.crossed, b.mutated)
        parents = np.where(at[:, None], -1, brood.parents)
        new = (trees.stack(members), brood.elite & ~at, at, parents, brood.crossed & ~at, brood.mutated & ~at)
        return eqx.tree_at(changed, brood, new)


def experienced(outcomes: Sequence[Outcome]) -> Population:
    """The individuals of the outcomes, each with what it just lived through in its memory."""
    members = trees.stack([outcome.individual for outcome in outcomes])
    memory = buffer.record_each(members.memory, [outcome.transitions for outcome in outcomes])
    return Population(Individual(members.actor, memory), np.array([outcome.fitness for outcome in outcomes]))


def name(part: Any) -> str:
    """An operator's class as words: "row copy"."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(part).__name__).lower()


@partial(jax.jit, static_argnums=0)
def cross(
    crossover: Callable, key: Array, x: Individual, y: Individual, critic: Callable | None
) -> tuple[Individual, ...]:
    """The children of x and y."""
    return crossover(key, x, y, critic)


@partial(jax.jit, static_argnums=0)
def mutate(mutation: Callable, keys: Array, members: Individual, chosen: Array) -> Individual:
    """The members, those chosen mutated."""
    return trees.where(jnp.asarray(chosen), jax.vmap(mutation)(keys, members), members)
