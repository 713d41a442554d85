"""Selection of survivors (ERL), and of the pairs that have children (PDERL, "Parent selection mechanism")."""

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from operator import getitem
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool import buffer
from genepool.parts import part
from genepool.protocols import Actor
from genepool.types import Individual


class Survival(NamedTuple):
    """The slots of a population by what happens to them. Slots in `free` are overwritten; the others are kept."""

    elites: list[int]  # the fittest, best first
    winners: list[int]  # of the tournaments, without duplicates; an elite may be one
    free: list[int]  # all other slots, shuffled: for copies of elites and for children


def survival(rng: np.random.Generator, fitness: np.ndarray, elites: int, tournament: int = 3) -> Survival:
    """Elitism and tournament selection: N - e tournaments, each won by the best of `tournament` draws."""
    ranked = np.argsort(-np.nan_to_num(fitness, nan=-np.inf), kind="stable")
    draws = rng.integers(len(ranked), size=(len(ranked) - elites, tournament)).min(axis=1)
    winners = [int(slot) for slot in ranked[np.unique(draws)]]
    top = [int(slot) for slot in ranked[:elites]]
    free = [slot for slot in range(len(ranked)) if slot not in winners and slot not in top]
    return Survival(top, winners, [int(slot) for slot in rng.permutation(free)])


@part
class Mating:
    """Which pairs have a child: those with the best mating score m (PDERL, "Parent selection mechanism").

    Greedy: m = f(x) + f(y). Distance-based: m = E_x ||mu_x - mu_y||^2 + E_y ||mu_x - mu_y||^2. A weight mixes the two.
    It may be annealed, as the paper's supplement proposes: distance early, greedy late. Scores that are mixed are first
    scaled to [0, 1] over the generation's pairs.
    """

    greedy: float = 1.0  # weight of the greedy score in the first generation: 1 is greedy, 0 distance-based
    greedy_at_end: float | None = None  # the last weight, if it is annealed; none: the weight stays
    anneal_over: int = 100  # generations of annealing
    pick: Literal["best", "rank", "softmax"] = "best"  # best pairs first, or drawn by rank or by softmax of the score
    self_pairs: bool = False  # as the authors' code: a slot with itself, or an elite's copy with its original, may pair
    distance_actions: Literal["policy", "stored"] = "policy"  # compare policies, or (authors' code) with stored actions
    batch_size: int = 256  # states per parent that the distance is measured on

    def weight(self, generation: int) -> float:
        """The greedy score's weight in this generation."""
        end = self.greedy if self.greedy_at_end is None else self.greedy_at_end
        return self.greedy + (end - self.greedy) * min(1.0, generation / max(1, self.anneal_over))

    def pairs(
        self,
        rng: np.random.Generator,
        slots: Sequence[int],
        fitness: np.ndarray,
        distance: np.ndarray | None,
        n: int,
        generation: int,
    ) -> list[tuple[int, int]]:
        """The `n` pairs of `slots` that have a child, the fitter parent first. `distance` is [N, N], or unused."""
        all_pairs = list(combinations(slots, 2)) or [(slots[0], slots[0])]
        scores = np.array([fitness[i] + fitness[j] for i, j in all_pairs])
        w = self.weight(generation)
        if w < 1.0:
            assert distance is not None
            distant = np.array([distance[i, j] for i, j in all_pairs])
            scores = distant if w == 0.0 else w * _scaled(scores) + (1.0 - w) * _scaled(distant)
        order = np.argsort(-scores, kind="stable")
        if self.pick != "best":
            rank = np.empty(len(order))
            rank[order] = np.arange(len(order), 0, -1)
            odds = rank if self.pick == "rank" else np.exp(4.0 * _scaled(scores))
            order = rng.choice(len(all_pairs), size=n, p=odds / odds.sum())
        # if there are fewer pairs than children, the best pairs are used again
        chosen = [all_pairs[order[k % len(order)]] for k in range(n)]
        return [(i, j) if fitness[i] >= fitness[j] else (j, i) for i, j in chosen]


def _scaled(values: np.ndarray) -> np.ndarray:
    """The values, scaled to [0, 1]."""
    spread = np.ptp(values)
    return (values - values.min()) / spread if spread > 0 else np.zeros_like(values)


def distances(key: Array, members: Individual, mating: Mating) -> np.ndarray:
    """d(x, y) for all pairs of members, on states of both memories: PDERL, "Distance based".

    Differs: the authors' code draws from the latest 1000 rows and compares with the actions that are stored there. They
    may be an ancestor's, or a learner's with noise. `distance_actions="stored"` does the same.
    """
    return np.asarray(_distances(mating, jax.random.split(key, len(members.memory.size)), members))


@partial(jax.jit, static_argnums=0)
def _distances(mating: Mating, keys: Array, members: Individual) -> Array:
    """d [N, N]: the mean squared distance of x's actions from y's on states of y's memory, plus that on x's memory."""
    rows, real = jax.vmap(partial(_draw, mating))(keys, members.memory)
    states = jax.vmap(getitem)(members.memory.data.observation, rows)
    acts = jax.vmap(jax.vmap(_act, (None, 0)), (0, None))(members.actor, states)  # [policy, memory, ...]
    if mating.distance_actions == "stored":
        own = jax.vmap(getitem)(members.memory.data.action, rows)
    else:
        own = acts[jnp.arange(len(keys)), jnp.arange(len(keys))]  # each policy's actions on its own memory
    square = jnp.sum((acts - own) ** 2, axis=-1)
    mean = jnp.sum(square * real, axis=-1) / jnp.maximum(jnp.sum(real, axis=-1), 1)
    return mean + mean.T


def _act(mu: Actor, s: Array) -> Array:
    return mu(s)


def _draw(mating: Mating, key: Array, memory: buffer.Buffer) -> tuple[Array, Array]:
    """Indices of states in a memory, and which of them are real."""
    if mating.distance_actions == "policy":
        return buffer.sample_distinct(key, memory, mating.batch_size)
    newest = min(1000, memory.capacity)
    chosen = jax.random.randint(key, (mating.batch_size,), 0, jnp.clip(memory.size, 1, newest))
    return buffer.latest(memory, newest)[0][chosen], jnp.full(mating.batch_size, memory.size > 0)
