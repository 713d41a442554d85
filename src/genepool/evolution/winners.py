"""The evolution strategy of ESAC (Suri et al. 2020): mirrored noise, rank shaping, winners that cross with the mother in hindsight.

With no crossover, no tuning and nobody injected it is OpenAI-ES (Salimans et al. 2017), the baseline of the same paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool import trees
from genepool.errors import UserError
from genepool.evolution.crossover import ElementCopy, RowCopy
from genepool.evolution.tuning import AMT, LinearTuning
from genepool.machine import each
from genepool.optimiser import Adam, AdamState, adam_init
from genepool.types import Candidate, Individual, Outcome

CHILD, MOTHER, LEARNER = range(3)  # whom a member was made from
BASES = ("winner", "mother", "learner")


def direction(seed: int, size: int) -> np.ndarray:
    """epsilon ~ N(0, I), which its seed stands for wherever it is needed."""
    return np.random.Generator(np.random.SFC64(seed)).standard_normal(size, np.float32)


@dataclass(frozen=True)
class Perturbation:
    """theta + scale epsilon: all that a member is besides the vector it was made from. Of a pair, one's scale is negative."""

    brief: ClassVar[bool] = (
        True  # on a cluster its actor goes as a reference, and the result stays there: it is taken again
    )

    seed: int
    scale: float  # sigma, which travels with every member

    def __call__(self, actor: Any) -> Any:
        """The actor, moved."""
        vector = trees.flat(actor)
        return trees.unflat(vector + np.float32(self.scale) * direction(self.seed, vector.size), actor)


def centred_ranks(returns: np.ndarray) -> np.ndarray:
    """F~ = (rank - 1) / (N - 1) - 1/2, rank 1 for the least; equals share their mean rank, what is no number is least."""
    returns = np.where(np.isnan(returns), -np.inf, returns)
    _, places, counts = np.unique(returns, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2.0
    return (ranks[places] - 1.0) / (len(returns) - 1.0) - 0.5


class WinnersState(eqx.Module):
    """The mother, what her members are made from, and what was told of this generation."""

    mother: Array  # theta_es
    optimiser: AdamState
    children: np.ndarray  # [w, d]: winners of the last generation, crossed with the mother
    sigma: np.ndarray
    bound: np.ndarray  # whether the clip bound when sigma was tuned last
    cosine: np.ndarray  # between the step of all members and that of the mother's alone
    champion: np.ndarray  # the best member of the last generation
    best: np.ndarray  # [w, d]: the best members of this generation so far
    best_returns: np.ndarray  # [w]
    best_order: np.ndarray  # [w]: when each was told
    told: np.ndarray  # [2n, 4]: seed, scale, base and return of every member that was told
    count: np.ndarray  # how many of them were
    seed: np.ndarray  # of this generation's directions
    handed: np.ndarray  # members handed out in this generation
    generation: np.ndarray  # t, generations that are over


@dataclass(frozen=True)
class WinnersES:
    """Pairs theta +- sigma epsilon around the winners' children, the mother and the learner; all of them move the mother."""

    pairs: int = 50  # n: mirrored pairs in a generation
    sigma: float = 5e-3  # sigma: mutation rate at first
    rate: float = 5e-3  # a_es: learning rate of the mother
    winners: float = 0.4  # e: winners as a share of n; their children come first in the next generation
    injected: int = 4  # k: pairs around the learner's actor, where there is a learner
    crossover: RowCopy | ElementCopy | None = field(default_factory=RowCopy)  # of a winner with the mother
    tuning: AMT | LinearTuning | None = field(default_factory=AMT)  # of sigma
    tuned: Literal["phase", "interval"] = "phase"  # with every phase of the learner (paper), or at intervals (code)
    interval: int = 20_000  # nominal steps between two tunings, where it is at intervals
    optimiser: Literal["adam", "plain"] = "adam"  # of the mother: Adam (code), or plain ascent (paper)
    members: Literal["all", "mother"] = "all"  # whose directions move the mother: everyone's (paper), or her own pairs'

    def __post_init__(self):
        if self.pairs < 1 or self.sigma <= 0 or self.rate <= 0:
            raise UserError("the strategy needs a pair or more, a sigma and a rate above 0")
        if not 0 <= self.winners <= 1 or self.injected < 0 or self.selected + self.injected > self.pairs:
            raise UserError("winners and injected learners together must not be more than the pairs")
        if self.members == "mother" and self._around_mother == 0:
            raise UserError("no pair is around the mother: take fewer winners, or --evolver.members all")

    @property
    def population(self) -> int:
        """2n members in a generation."""
        return 2 * self.pairs

    @property
    def selected(self) -> int:
        """w = int(n e), the winners."""
        return int(self.pairs * self.winners + 1e-9)

    @property
    def _around_mother(self) -> int:
        return self.pairs - self.injected - (self.selected if self.crossover else 0)

    def init(self, key: Array, mother: np.ndarray) -> WinnersState:
        """A strategy around this vector. At first all winners are the mother herself."""
        mother = jnp.asarray(mother)
        children = np.tile(np.asarray(mother), (self.selected if self.crossover else 0, 1))
        best = np.zeros((max(1, self.selected), mother.size), np.float32)
        state = WinnersState(
            mother=mother,
            optimiser=adam_init(mother),
            children=children,
            sigma=np.asarray(self.sigma),
            bound=np.asarray(False),
            cosine=np.asarray(np.nan),
            champion=np.asarray(mother),
            best=best,
            best_returns=np.full(len(best), -np.inf),
            best_order=np.zeros(len(best), np.int64),
            told=np.zeros((self.population, 4)),
            count=np.zeros((), np.int64),
            seed=np.zeros((), np.int64),
            handed=np.zeros((), np.int64),
            generation=np.zeros((), np.int64),
        )
        return _renewed(key, state)

    def ask(self, state: WinnersState, n: int, like: Any, learner: Any) -> tuple[list[Candidate], WinnersState]:
        """The next n members, a pair side by side; of more than a generation, further pairs around the same vectors."""
        mother, members = trees.unflat(np.asarray(state.mother), like), []
        for place in range(int(state.handed), int(state.handed) + n):
            pair, minus = divmod(place, 2)
            base = self._base(pair % self.pairs, learner)
            actor = mother if base == MOTHER else learner
            if base == CHILD:
                actor = trees.unflat(state.children[pair % self.pairs], like)
            sigma = float(state.sigma)
            step = Perturbation(int(state.seed) + pair, -sigma if minus else sigma)
            origin = "learning" if base == LEARNER else "evolution"
            members.append(Candidate(Individual(actor, None), lesson=step, origin=origin, operators=(BASES[base],)))
        return members, replace(state, handed=state.handed + n)

    def _base(self, pair: int, learner: Any) -> int:
        if self.crossover and pair < self.selected:
            return CHILD
        return LEARNER if learner is not None and pair >= self.pairs - self.injected else MOTHER

    def tell(self, state: WinnersState, outcomes: Sequence[Outcome]) -> WinnersState:
        """Note the members' returns, and keep those that are among the best so far."""
        told, best, returns = state.told.copy(), state.best.copy(), state.best_returns.copy()
        order, count = state.best_order.copy(), int(state.count)
        for outcome in outcomes:
            candidate, fitness = outcome.candidate, outcome.fitness
            base = BASES.index(candidate.operators[0])
            told[count] = candidate.lesson.seed, candidate.lesson.scale, base, fitness
            worst = np.lexsort((-order, returns))[0]  # of equals, the one that was told last
            if fitness > returns[worst]:
                best[worst], returns[worst], order[worst] = trees.flat(outcome.individual.actor), fitness, count
            count += 1
        told_now = {"told": told, "best": best, "best_returns": returns, "best_order": order}
        return replace(state, count=np.asarray(count), **told_now)

    def whole(self, state: WinnersState) -> bool:
        """Whether a generation has been told."""
        return int(state.count) == self.population

    def close(self, key: Array, state: WinnersState, like: Any, horizon: int, phase: bool) -> WinnersState:
        """End a generation: the mother moves, sigma is tuned, the winners cross with the mother. Algorithm 1, 9-11 and 24-27."""
        k_cross, k_seed = jax.random.split(key)
        raw = state.told[:, 3]
        shaped = centred_ranks(raw)  # 9
        everyone, own = self._steps(state, shaped)
        cosine = _cosine(everyone, own)
        gradient = everyone if self.members == "all" else own
        if self.optimiser == "adam":
            mother, optimiser = _climb(self.rate, state.mother, gradient, state.optimiser)
        else:
            mother, optimiser = state.mother + self.rate * gradient, state.optimiser  # 11
        generation = state.generation + 1
        nominal = int(generation) * horizon
        sigma, bound = float(state.sigma), bool(state.bound)
        due = phase if self.tuned == "phase" else nominal // self.interval > (nominal - horizon) // self.interval
        if self.tuning and due:
            sigma, bound = self.tuning.step(sigma, raw, shaped, self.pairs, self.rate)  # 24
        children = state.children
        if len(children):
            winners = np.where(np.isfinite(state.best_returns)[:, None], state.best, np.asarray(mother))  # 10
            children = np.asarray(_crossed(self.crossover, k_cross, winners, mother, like))  # 26
        first = np.lexsort((state.best_order, -state.best_returns))[0]
        champion = state.best[first] if np.isfinite(state.best_returns[first]) else state.champion
        state = replace(
            state,
            mother=mother,
            optimiser=optimiser,
            children=children,
            sigma=np.asarray(sigma),
            bound=np.asarray(bound),
            cosine=np.asarray(cosine),
            champion=champion,
            best_returns=np.full(len(state.best), -np.inf),
            count=np.zeros((), np.int64),
            generation=generation,
        )
        return _renewed(k_seed, state)  # 27

    def _steps(self, state: WinnersState, shaped: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """G = 1 / n sum F~ epsilon / sigma, over everyone and over the mother's own pairs."""
        seeds, scales, bases = state.told[:, 0].astype(np.int64), state.told[:, 1], state.told[:, 2]
        slopes, own = shaped / scales, bases == MOTHER
        everyone = _summed(seeds, slopes, state.mother.size) / np.float32(self.pairs)
        if own.all():
            return everyone, everyone
        alone = _summed(seeds[own], slopes[own], state.mother.size)
        return everyone, alone / np.float32(max(1.0, own.sum() / 2.0))

    def report(self, state: WinnersState) -> dict[str, Any]:
        """Sigma, and what is worth watching of the step, for the record."""
        cosine = float(state.cosine)
        return {
            "sigma": float(state.sigma),
            "clip_bound": bool(state.bound),
            "cosine": cosine if np.isfinite(cosine) else None,
        }


def _renewed(key: Array, state: WinnersState) -> WinnersState:
    """The state with directions of a new generation, none of them handed out."""
    seed = np.asarray(trees.host_random(key).integers(2**52), np.int64)
    return replace(state, seed=seed, handed=np.zeros((), np.int64))


def _summed(seeds: np.ndarray, slopes: np.ndarray, size: int) -> np.ndarray:
    """Sum of slope times direction. A pair's slopes meet first; who adds up which part depends on no number of cores."""
    names, places = np.unique(seeds, return_inverse=True)
    weights = np.bincount(places, slopes).astype(np.float32)

    def part(begin: int) -> np.ndarray:
        total = np.zeros(size, np.float32)
        for k in range(begin, min(begin + 8, len(names))):
            total += weights[k] * direction(int(names[k]), size)
        return total

    return sum(each(part, range(0, len(names), 8)), np.zeros(size, np.float32))


def _cosine(x: np.ndarray, y: np.ndarray) -> float:
    """Of the angle between them; NaN where one is zero."""
    lengths = np.linalg.norm(x) * np.linalg.norm(y)
    return float(x @ y / lengths) if lengths > 0 else float("nan")


@partial(jax.jit, static_argnums=0)
def _climb(rate: float, mother: Array, gradient: Array, optimiser: AdamState) -> tuple[Array, AdamState]:
    return Adam(rate).step(mother, -gradient, optimiser)


@partial(jax.jit, static_argnums=0)
def _crossed(crossover: Any, key: Array, winners: Array, mother: Array, like: Any) -> Array:
    """The mother with parts of each winner, [w, d]."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def tree(vector: Array) -> Individual:
        parts = zip(jnp.split(vector, ends), leaves, strict=True)
        return Individual(jax.tree.unflatten(structure, [part.reshape(leaf.shape) for part, leaf in parts]), None)

    def child(key: Array, winner: Array) -> Array:
        crossed = crossover(key, tree(winner), tree(mother))[1]
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(crossed.actor)])

    return jax.vmap(child)(jax.random.split(key, len(winners)), winners)
