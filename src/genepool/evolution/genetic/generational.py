"""GenerationalGA: the genetic algorithm of ERL and PDERL, which makes a new population from each tried one."""

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import numpy as np
from jax import Array

from genepool import trees
from genepool.cores import map_on_cores
from genepool.evolution.genetic.crossover import Distillation, ElementCopy, RowCopy
from genepool.evolution.genetic.mutation import Gaussian, Proximal
from genepool.evolution.genetic.pairing import Match, pairs_at_random, pairs_by_score, with_copies
from genepool.evolution.genetic.selection import Mating, survival
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
from genepool.types import Candidate, Individual, Outcome, Population


class GenerationalGAState(eqx.Module):
    """The individuals of the current generation by slot, their ancestry, and their outcomes so far."""

    members: Individual  # [N, ...]: in a slot that was tried, the individual as it came back
    elite: np.ndarray  # [N] bool: untouched copies of elites
    clone: np.ndarray  # [N] bool: clones of the learner
    parents: np.ndarray  # [N, 2]: candidate numbers of the parents, -1 for none
    crossed: np.ndarray  # [N] bool: made by crossover
    mutated: np.ndarray  # [N] bool
    # the outcomes of this generation so far
    tried: np.ndarray  # [N] bool
    tried_fitness: np.ndarray  # [N]: NaN if the slot was not tried yet
    number: np.ndarray  # [N]: candidate number of each slot, -1 if it was not tried yet
    from_learner: np.ndarray  # [N] bool: a clone of the learner was tried in this slot
    # the generation before
    champion: Actor
    top: np.ndarray  # the slot of the champion's untouched copy
    fitness: np.ndarray  # [N]
    fate: np.ndarray  # fate of the learner's clone: an index into FATES, -1 if there was none
    # the whole run
    fates: np.ndarray  # [3]: how many clones of the learner had each fate
    generation: np.ndarray


@part
class GenerationalGA:
    """Elitism, tournaments, crossover and mutation make a generation from the one before (ERL, PDERL).

    If the crossover makes two children (`RowCopy`), copies of elites are paired with tournament winners at random, as
    in ERL. If it makes one (`Distillation`), the pairs with the best mating scores have children, as in PDERL.
    Place p is slot p mod N of generation p // N. A generation is made once the one before was tried completely.
    """

    population: int = 10  # k: individuals
    elite_fraction: float = 0.1  # psi: the share of elites, which are kept untouched; at least one is
    tournament: int = 3  # individuals drawn for each tournament
    mutation_probability: float = 0.9  # of every individual except the untouched elites
    crossover: RowCopy | ElementCopy | Distillation = field(default_factory=RowCopy)  # makes children of two parents
    mutation: Gaussian | Proximal = field(default_factory=Gaussian)  # makes a child of one parent
    mating: Mating = field(default_factory=Mating)  # which pairs have a child, if the crossover makes one child
    stale_elite_fitness: bool = False  # as the authors' code: an elite's copy has the fitness of the one it replaced
    # the slot of the learner's clone, by the last generation's fitness; the last two are PDERL's and ERL's code
    sync_slot: Literal["worst_non_elite", "worst_but_champion", "worst"] = "worst_non_elite"
    takes_lessons: ClassVar[bool] = True
    has_upcoming: ClassVar[bool] = True

    def __post_init__(self):
        check_sizes(self.population, self.tournament)
        check_share("elite_fraction", self.elite_fraction, most=0.5)
        check_share("mutation_probability", self.mutation_probability)

    @property
    def needs_critic(self) -> bool:
        """Whether the crossover needs the critic."""
        return getattr(self.crossover, "needs_critic", False)

    @property
    def elites(self) -> int:
        """How many elites are kept untouched: e = max(1, floor(psi N))."""
        return elite_count(self.elite_fraction, self.population)

    def init(self, key: Array, new_individual: Callable[[int], Individual]) -> GenerationalGAState:
        """The first generation, of which none was tried."""
        n = self.population
        members = trees.stack([new_individual(k) for k in range(n)])
        none = np.zeros(n, bool)
        zero = np.zeros((), np.int32)
        return GenerationalGAState(
            members,
            elite=none,
            clone=none,
            parents=np.full((n, 2), -1, np.int32),
            crossed=none,
            mutated=none,
            **_untried(n),
            champion=trees.take(members.actor, 0),
            top=zero,
            fitness=np.full(n, np.nan),
            fate=zero - 1,
            fates=np.zeros(len(FATES), np.int32),
            generation=zero,
        )

    def ask(
        self, key: Array, state: GenerationalGAState, places: Sequence[int], critic: Critic | None
    ) -> tuple[list[Candidate], GenerationalGAState]:
        """The members of these places, up to the first place of a later generation.

        The key and the critic are not used: `tell` made the members when it got the last outcome of a generation.
        """
        current = int(state.generation)
        candidates: list[Candidate] = []
        for place in places:
            generation, slot = divmod(place, self.population)
            if generation > current:
                break  # that generation needs outcomes that were not told yet
            if generation < current or state.tried[slot]:
                raise ValueError(f"place {place} was tried already: generation {current} is being tried")
            candidates.append(self._candidate(state, slot))
        return candidates, state

    def _candidate(self, state: GenerationalGAState, slot: int) -> Candidate:
        done = ((self.crossover, state.crossed[slot]), (self.mutation, state.mutated[slot]))
        return Candidate(
            trees.take(state.members, slot),
            origin="learning" if state.clone[slot] else "evolution",
            parents=tuple(int(parent) for parent in state.parents[slot] if parent >= 0),
            operators=("elite",)
            if state.elite[slot]
            else tuple(operator_name(operator) for operator, was in done if was),
        )

    def upcoming(self, state: GenerationalGAState, n: int) -> list[Actor]:
        """The actors of the first n members that were not tried yet, as NumPy views."""
        return [trees.take(state.members.actor, slot) for slot in np.flatnonzero(~state.tried)[:n]]

    def tell(
        self, key: Array, state: GenerationalGAState, outcomes: Sequence[Outcome], critic: Critic | None
    ) -> GenerationalGAState:
        """The state with these outcomes. The last one of a generation makes the next generation, with this key."""
        if not outcomes:
            return state
        state = self._with_outcomes(state, outcomes)
        return self._next_generation(key, state, critic) if state.tried.all() else state

    def _with_outcomes(self, state: GenerationalGAState, outcomes: Sequence[Outcome]) -> GenerationalGAState:
        """Put each individual back into its slot, with its new memory."""
        outcomes = sorted(outcomes, key=lambda outcome: outcome.candidate.place)
        places = [outcome.candidate.place for outcome in outcomes]
        slots = [place % self.population for place in places]
        if any(place // self.population != state.generation for place in places):
            raise ValueError(f"generation {state.generation} is being tried, but places {places} were told")
        if len(set(slots)) < len(slots) or state.tried[slots].any():
            raise ValueError(f"an outcome was told twice: slots {np.flatnonzero(state.tried)} were tried, now {slots}")
        returned = with_new_memory(outcomes)
        all_slots = len(outcomes) == self.population
        return replace(
            state,
            members=returned.members if all_slots else with_rows(state.members, slots, returned.members),
            tried=with_rows(state.tried, slots, True),
            tried_fitness=with_rows(state.tried_fitness, slots, returned.fitness),
            number=with_rows(state.number, slots, [o.candidate.number for o in outcomes]),
            from_learner=with_rows(state.from_learner, slots, [o.candidate.origin == "learning" for o in outcomes]),
        )

    def _next_generation(self, key: Array, state: GenerationalGAState, critic: Critic | None) -> GenerationalGAState:
        k_select, k_distance, k_cross, k_mutate = jax.random.split(key, 4)
        rng = trees.host_random(k_select)
        tried = Population(state.members, state.tried_fitness)
        chosen = survival(rng, tried.fitness, self.elites, self.tournament)
        slots = with_copies(chosen, self.population)
        if self.crossover.children == 2:
            matches = pairs_at_random(rng, slots)
        else:
            generation = int(state.generation)
            stale = self.stale_elite_fitness
            matches = pairs_by_score(rng, k_distance, self.mating, tried, slots, generation, stale)
        members, crossed, parents = self._cross(k_cross, tried.members, slots.source, matches, critic)
        elite = np.isin(np.arange(self.population), slots.copies)
        mutated = (rng.random(self.population) < self.mutation_probability) & ~elite
        members = mutate(self.mutation, jax.random.split(k_mutate, self.population), members, mutated)

        clones = np.flatnonzero(state.from_learner)
        fates = [
            ELITE if slot in chosen.elites else SELECTED if slot in chosen.winners else DISCARDED for slot in clones
        ]
        return GenerationalGAState(
            members,
            elite=elite,
            clone=np.zeros(self.population, bool),
            parents=np.append(state.number, np.int32(-1))[parents],
            crossed=crossed,
            mutated=mutated,
            **_untried(self.population),
            champion=trees.take(tried.members.actor, chosen.elites[0]),
            top=np.asarray(slots.copies[0], np.int32),
            fitness=tried.fitness,
            fate=np.asarray(fates[-1] if fates else -1, np.int32),
            fates=state.fates + np.bincount(fates, minlength=len(FATES)).astype(np.int32),
            generation=state.generation + np.int32(1),
        )

    def _cross(
        self, key: Array, tried: Individual, source: np.ndarray, matches: Sequence[Match], critic: Critic | None
    ) -> tuple[Individual, np.ndarray, np.ndarray]:
        """The members after crossover, which of them are children, and the slots of all parents."""
        members = [trees.take(tried, slot) for slot in source]
        crossed = np.zeros(len(source), bool)
        parents = np.stack([source, np.full(len(source), -1)], axis=1)

        def children_of(n: int) -> tuple[Individual, ...]:
            x = trees.take(tried, matches[n].x)
            y = trees.take(tried, matches[n].y)
            return cross(self.crossover, jax.random.fold_in(key, n), x, y, critic)

        for match, children in zip(matches, map_on_cores(children_of, range(len(matches))), strict=True):
            for slot, child in zip(match.slots, children, strict=True):
                members[slot] = child
                crossed[slot] = True
                parents[slot] = (match.x, match.y)
        return trees.stack(members), crossed, parents

    def inject(self, state: GenerationalGAState, newcomer: Individual) -> GenerationalGAState:
        """The state with a clone of the learner in one slot ("synchronisation", once every omega generations).

        A generation has at most one clone: if it has one, nothing changes.
        """
        if state.clone.any():
            return state
        slot = self._clone_slot(state)
        at = np.arange(self.population) == slot
        return replace(
            state,
            members=with_rows(state.members, [slot], trees.stack([newcomer])),
            elite=state.elite & ~at,
            clone=state.clone | at,
            parents=np.where(at[:, None], np.int32(-1), state.parents),
            crossed=state.crossed & ~at,
            mutated=state.mutated & ~at,
        )

    def _clone_slot(self, state: GenerationalGAState) -> int:
        """The slot that `sync_slot` says. If it was tried already, the worst slot that was not."""
        slot = int(np.argmin(np.where(state.elite & (self.sync_slot == "worst_non_elite"), np.inf, state.fitness)))
        if self.sync_slot == "worst_but_champion" and slot == state.top:
            slot = (slot + 1) % self.population
        if not state.tried[slot]:
            return slot
        slots = np.arange(self.population)
        spared_by = {"worst_non_elite": state.elite, "worst_but_champion": slots == state.top}
        spared = spared_by.get(self.sync_slot, np.zeros(self.population, bool))
        fitness = np.nan_to_num(state.fitness, nan=-np.inf)
        order = np.lexsort((fitness, spared, state.tried))  # the last key counts first
        return int(order[0])

    def champion(self, state: GenerationalGAState) -> Actor:
        """The actor of the fittest of the last generation. In the first generation, the first actor."""
        return state.champion

    def report(self, state: GenerationalGAState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """The fate of the learner's last clone, and how many clones had each fate."""
        return fates_report(state.fate, state.fates)


def _untried(population: int) -> dict[str, np.ndarray]:
    """The fields of a generation of which nothing was tried."""
    none = np.zeros(population, bool)
    numbers = np.full(population, -1, np.int32)
    return {"tried": none, "tried_fitness": np.full(population, np.nan), "number": numbers, "from_learner": none}
