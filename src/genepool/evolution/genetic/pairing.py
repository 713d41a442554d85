"""Pairing: which parents have children, and in which slots. At random (ERL), or those with the best mating scores (PDERL)."""

from typing import NamedTuple

import numpy as np
from jax import Array

from genepool.evolution.genetic.selection import Mating, Survival, distances
from genepool.types import Population


class Slots(NamedTuple):
    """The slots of the next generation, before children and mutations are put in."""

    source: np.ndarray  # [N]: the slot in which each slot's individual was tried
    copies: list[int]  # they hold the untouched copies of elites, the champion's first; the originals may mutate
    winners: list[int]  # they hold winners of tournaments
    free: list[int]  # for children


class Match(NamedTuple):
    """Two parents, by the slots they were tried in, and the slots that their children go to."""

    x: int
    y: int
    slots: tuple[int, ...]


def with_copies(chosen: Survival, population: int) -> Slots:
    """The slots after selection: every elite is copied to a free slot, or to a winner's where none is free."""
    slots = Slots(np.arange(population), [], list(chosen.winners), list(chosen.free))
    for elite in chosen.elites:
        slots.copies.append(slots.free.pop(0) if slots.free else slots.winners.pop())
        slots.source[slots.copies[-1]] = elite
    return slots


def pairs_at_random(rng: np.random.Generator, slots: Slots) -> list[Match]:
    """ERL: an elite's copy and a tournament winner, drawn at random for every two free slots.

    One free slot that is left over takes a winner as it is: this is written to `slots.source`.
    """
    source, copies, winners, free = slots
    # as ERL: where a slot is left over, one of them is written a second time
    free = [*free, int(rng.choice(free))] if len(free) % 2 else free
    matches = []
    for i, j in zip(free[::2], free[1::2], strict=True):
        x, y = int(source[rng.choice(copies)]), int(source[rng.choice(winners or copies)])
        if i == j:
            source[i] = y  # a slot paired with itself takes the winner as it is
        else:
            matches.append(Match(x, y, (i, j)))
    return matches


def pairs_by_score(
    rng: np.random.Generator, key: Array, mating: Mating, tried: Population, slots: Slots, generation: int, stale: bool
) -> list[Match]:
    """PDERL: a child of one of the best pairs for every free slot. `stale`: a copy is scored as what it overwrote."""
    source, copies, winners, free = slots
    fitness = tried.fitness if stale else tried.fitness[source]
    parents = winners + copies  # of an elite that is there twice, the original is kept
    if mating.self_pairs:
        parents += [int(rng.choice(winners))] if len(winners) % 2 else []
    else:
        parents = [parents[k] for k in np.sort(np.unique(source[parents], return_index=True)[1])]
    distance = None
    if mating.weight(generation) < 1.0:
        distance = distances(key, tried.members, mating)[np.ix_(source, source)]
    pairs = mating.pairs(rng, parents, fitness, distance, len(free), generation)
    return [Match(int(source[x]), int(source[y]), (slot,)) for (x, y), slot in zip(pairs, free, strict=True)]
