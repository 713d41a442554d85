"""Pairing: the parents, and the slots of their children. At random (ERL), or by the best mating scores (PDERL)."""

from typing import NamedTuple

import numpy as np
from jax import Array

from genepool.evolution.genetic.selection import Mating, Survival, distances
from genepool.types import Population


class Slots(NamedTuple):
    """The slots of the next generation, before crossover and mutation."""

    source: np.ndarray  # [N]: the slot in which each slot's individual was tried
    copies: list[int]  # slots of the untouched copies of elites, the champion's first; the originals may mutate
    winners: list[int]  # slots of tournament winners
    free: list[int]  # slots for children


class Match(NamedTuple):
    """The slots of two parents in the last generation, and the slots of their children in the next."""

    x: int
    y: int
    slots: tuple[int, ...]


def with_copies(chosen: Survival, population: int) -> Slots:
    """The slots after selection. Each elite is copied to a free slot, or if none is free, to a winner's slot."""
    slots = Slots(np.arange(population), [], list(chosen.winners), list(chosen.free))
    for elite in chosen.elites:
        slots.copies.append(slots.free.pop(0) if slots.free else slots.winners.pop())
        slots.source[slots.copies[-1]] = elite
    return slots


def pairs_at_random(rng: np.random.Generator, slots: Slots) -> list[Match]:
    """ERL: for every two free slots, a copy of an elite and a tournament winner, both drawn at random.

    If one free slot remains, it gets an unchanged winner, which is written to `slots.source`.
    """
    source, copies, winners, free = slots
    # as in ERL's code: of an odd number of free slots, one is used twice
    free = [*free, int(rng.choice(free))] if len(free) % 2 else free
    matches = []
    for i, j in zip(free[::2], free[1::2], strict=True):
        x = int(source[rng.choice(copies)])
        y = int(source[rng.choice(winners or copies)])
        if i == j:
            source[i] = y  # a slot paired with itself gets the unchanged winner
        else:
            matches.append(Match(x, y, (i, j)))
    return matches


def pairs_by_score(
    rng: np.random.Generator, key: Array, mating: Mating, tried: Population, slots: Slots, generation: int, stale: bool
) -> list[Match]:
    """PDERL: for every free slot, a child of one of the best pairs.

    If `stale`, the copy of an elite has the fitness of the individual that it overwrote.
    """
    source, copies, winners, free = slots
    fitness = tried.fitness if stale else tried.fitness[source]
    parents = winners + copies  # winners first: of an elite that is in both, the original is kept
    if mating.self_pairs:
        parents += [int(rng.choice(winners))] if len(winners) % 2 else []
    else:
        parents = [parents[k] for k in np.sort(np.unique(source[parents], return_index=True)[1])]
    distance = None
    if mating.weight(generation) < 1.0:
        distance = distances(key, tried.members, mating)[np.ix_(source, source)]
    pairs = mating.pairs(rng, parents, fitness, distance, len(free), generation)
    return [Match(int(source[x]), int(source[y]), (slot,)) for (x, y), slot in zip(pairs, free, strict=True)]
