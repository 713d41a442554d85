"""Ancestry: the ancestors of a champion, and what each operator did to the fitness of children."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from genepool.analysis.records.history import Candidates


@dataclass(frozen=True)
class Lineage:
    """The champion's ancestors and the links between them. Candidates are named by their indices."""

    champion: int
    ancestors: np.ndarray  # [A] with the champion, oldest first
    links: np.ndarray  # [L, 2]: parent, child
    line: np.ndarray  # from the champion back, always to the fitter parent

    def steps(self, candidates: Candidates) -> Counter[str]:
        """How the members of the line were made, and how often."""
        return Counter(candidates.makers[maker] for maker in candidates.maker[self.line])


def champion_of(candidates: Candidates) -> int | None:
    """The fittest of the last generation."""
    tried = np.flatnonzero(candidates.for_fitness)
    if not len(tried):
        return None
    last = tried[candidates.at[tried] == candidates.at[tried].max()]
    return int(last[np.argmax(np.nan_to_num(candidates.fitness[last], nan=-np.inf))])


def parents_of(candidates: Candidates) -> np.ndarray:
    """[C, 2]: the indices of each candidate's parents. -1 for none, and for one not recorded before its child."""
    order = np.argsort(candidates.number, kind="stable")
    numbers = candidates.number[order]
    nearest = np.minimum(np.searchsorted(numbers, candidates.parents), len(numbers) - 1)
    indices = np.where(numbers[nearest] == candidates.parents, order[nearest], -1)
    return np.where(indices < np.arange(len(numbers))[:, None], indices, -1)


def lineage(candidates: Candidates) -> Lineage | None:
    """The champion's ancestry. None if no candidate has parents, as in an evolution strategy."""
    champion = champion_of(candidates)
    if champion is None or not (candidates.parents >= 0).any():
        return None
    parents = parents_of(candidates)
    pairs = parents.tolist()
    is_ancestor = [False] * (len(pairs) + 1)  # the last entry is for a parent of -1
    is_ancestor[champion] = True
    for child in range(champion, -1, -1):
        if is_ancestor[child]:
            for parent in pairs[child]:
                is_ancestor[parent] = True
    ancestors = np.flatnonzero(is_ancestor[:-1])
    links = np.stack([parents[ancestors], np.stack([ancestors, ancestors], axis=1)], axis=2).reshape(-1, 2)
    links = np.unique(links[links[:, 0] >= 0], axis=0)
    line = [champion]
    while known := [parent for parent in pairs[line[-1]] if parent >= 0]:
        line.append(max(known, key=lambda parent: candidates.fitness[parent]))
    return Lineage(champion, ancestors, links, np.array(line))


@dataclass(frozen=True)
class Effect:
    """What one way of making children did to their fitness."""

    maker: str
    before: np.ndarray  # fitness of the fitter parent, or of the strategy's mean
    after: np.ndarray  # the child's own

    @property
    def gain(self) -> np.ndarray:
        """By how much each child is fitter."""
        return self.after - self.before

    @property
    def better(self) -> float:
        """The share of children that are fitter."""
        return float(np.mean(self.gain > 0))


def effects(candidates: Candidates) -> list[Effect]:
    """The fitness of parents and children for each way of making children, the most frequent first."""
    if not len(candidates.number):
        return []
    parents = parents_of(candidates)
    of_parents = np.where(parents >= 0, candidates.fitness[parents], -np.inf)
    before = of_parents.max(axis=1)
    before = np.where(np.isfinite(before), before, candidates.reference)
    comparable = candidates.for_fitness & np.isfinite(before) & np.isfinite(candidates.fitness)
    found = []
    for maker in candidates.makers:
        chosen = comparable & candidates.made_by(maker)
        if chosen.any():
            found.append(Effect(maker, before[chosen], candidates.fitness[chosen]))
    return sorted(found, key=lambda effect: -len(effect.before))
