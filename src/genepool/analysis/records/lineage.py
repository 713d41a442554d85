"""Who descends from whom: the ancestors of a champion, and what was done to make each of them."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from genepool.analysis.records.history import Candidates


@dataclass(frozen=True)
class Lineage:
    """The champion's ancestors and their children among them, by places among the candidates."""

    champion: int
    ancestors: np.ndarray  # [A] with the champion, oldest first
    links: np.ndarray  # [L, 2]: parent, child
    line: np.ndarray  # from the champion back, always to the fitter parent

    def steps(self, candidates: Candidates) -> Counter[str]:
        """What was done along the line, and how often."""
        return Counter(candidates.makers[maker] for maker in candidates.maker[self.line])


def champion_of(candidates: Candidates) -> int | None:
    """The fittest of the last generation."""
    bred = np.flatnonzero(candidates.bred)
    if not len(bred):
        return None
    last = bred[candidates.at[bred] == candidates.at[bred].max()]
    return int(last[np.argmax(np.nan_to_num(candidates.fitness[last], nan=-np.inf))])


def parents_of(candidates: Candidates) -> np.ndarray:
    """[C, 2]: the places of everyone's parents, -1 for none, and for those that are not on record before their child."""
    order = np.argsort(candidates.number, kind="stable")
    numbers = candidates.number[order]
    near = np.minimum(np.searchsorted(numbers, candidates.parents), len(numbers) - 1)
    places = np.where(numbers[near] == candidates.parents, order[near], -1)
    return np.where(places < np.arange(len(numbers))[:, None], places, -1)


def lineage(candidates: Candidates) -> Lineage | None:
    """The ancestry of the champion; nothing where nobody has parents, as in an evolution strategy."""
    champion = champion_of(candidates)
    if champion is None or not (candidates.parents >= 0).any():
        return None
    parents = parents_of(candidates)
    pairs = parents.tolist()
    seen = [False] * (len(pairs) + 1)  # the last place is nobody's, for -1 to point to
    seen[champion] = True
    for child in range(champion, -1, -1):
        if seen[child]:
            x, y = pairs[child]
            seen[x] = seen[y] = True
    ancestors = np.flatnonzero(seen[:-1])
    links = np.stack([parents[ancestors], np.stack([ancestors, ancestors], axis=1)], axis=2).reshape(-1, 2)
    links = np.unique(links[links[:, 0] >= 0], axis=0)
    line = [champion]
    while above := [parent for parent in pairs[line[-1]] if parent >= 0]:
        line.append(max(above, key=lambda parent: candidates.fitness[parent]))
    return Lineage(champion, ancestors, links, np.array(line))


@dataclass(frozen=True)
class Effect:
    """What became of those that were made in one way."""

    maker: str
    before: np.ndarray  # fitness of the fitter parent, or of the strategy's mean beside the individual
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
    """Parents' and children's fitness by what was done, those that were made most often first."""
    if not len(candidates.number):
        return []
    parents = parents_of(candidates)
    above = np.where(parents >= 0, candidates.fitness[parents], -np.inf)
    before = above.max(axis=1)
    before = np.where(np.isfinite(before), before, candidates.reference)
    comparable = candidates.bred & np.isfinite(before) & np.isfinite(candidates.fitness)
    found = []
    for maker in candidates.makers:
        mine = comparable & candidates.made_by(maker)
        if mine.any():
            found.append(Effect(maker, before[mine], candidates.fitness[mine]))
    return sorted(found, key=lambda effect: -len(effect.before))
