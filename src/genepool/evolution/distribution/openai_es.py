"""OpenAI-ES (Salimans et al. 2017), and ESAC's strategy (Suri et al. 2020), which is OpenAI-ES with more options.

OpenAI-ES estimates a gradient from mirrored noise and returns that are shaped by rank. ESAC also crosses the best
members with the mother, tunes sigma, and tries members around the learner's actor.
"""

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool import trees
from genepool.errors import UserError, check_at_least
from genepool.evolution.distribution.hindsight import cross_with_mother
from genepool.evolution.distribution.mirrored import Perturbation, centred_ranks, cosine, weighted_sum
from genepool.evolution.distribution.tuning import AutomaticMutationTuning, LinearTuning
from genepool.evolution.genetic.crossover import ElementCopy, RowCopy
from genepool.optimiser import Adam, AdamState, adam_init
from genepool.parts import part
from genepool.protocols import Actor, Critic
from genepool.types import Candidate, Individual, Outcome

KINDS = ("winner", "mother", "learner")  # the vector that a member is around; a winner's is its child with the mother


class OpenAIESState(eqx.Module):
    """The mother, the vectors that members are around, and the results of this generation so far."""

    template: Actor  # for its structure and shapes alone
    mother: Array  # theta_es
    optimiser: AdamState
    children: np.ndarray  # [w, d]: winners of the last generation, crossed with the mother
    newcomer: np.ndarray  # [d]: the clone of the learner that was injected last
    injected_now: np.ndarray  # whether that clone has pairs in this generation
    sigma: np.ndarray
    bound: np.ndarray  # whether sigma's last change was clipped
    cosine: np.ndarray  # between the gradient from all members and that from the mother's own pairs
    champion: np.ndarray  # the best member of the last generation
    best: np.ndarray  # [w, d]: the best members of this generation so far
    best_returns: np.ndarray  # [w]
    best_order: np.ndarray  # [w]: their indices into `rows`
    rows: np.ndarray  # [2n, 4]: seed, scale, kind and return of every outcome of this generation
    count: np.ndarray  # rows that are in use
    last_returns: np.ndarray  # [2n]: returns of the last generation; NaN before there was one
    seed: np.ndarray  # seed of this generation's first direction
    handed: np.ndarray  # members that were handed out in this generation
    generation: np.ndarray  # t: finished generations


@part
class OpenAIES:
    """Pairs theta +- sigma epsilon around the winners' children, the mother and the learner. All move the mother."""

    word: ClassVar[str] = "openai-es"
    needs_critic: ClassVar[bool] = False
    takes_lessons: ClassVar[bool] = False  # after a lesson a pair is not mirrored, so the gradient would be wrong
    has_upcoming: ClassVar[bool] = False

    pairs: int = 50  # n: mirrored pairs in a generation
    sigma: float = 5e-3  # sigma: the first mutation rate
    rate: float = 5e-3  # a_es: learning rate of the mother
    winners: float = 0.4  # e: winners as a share of n; the next generation has a pair around each one's child
    injected: int = 4  # k: pairs around the learner's actor, if there is a learner
    crossover: RowCopy | ElementCopy | None = field(default_factory=RowCopy)  # of a winner with the mother
    tuning: AutomaticMutationTuning | LinearTuning | None = field(default_factory=AutomaticMutationTuning)  # of sigma
    # when sigma is tuned: after a learner's phase (paper), or at intervals
    tuned: Literal["phase", "interval"] = "phase"
    interval: int = 20_000  # nominal steps between two tunings, if sigma is tuned at intervals
    optimiser: Literal["adam", "plain"] = "adam"  # of the mother: Adam (code), or plain ascent (paper)
    # the members whose returns move the mother: all (paper), or her own pairs
    members: Literal["all", "mother"] = "all"

    def __post_init__(self):
        check_at_least(1, self, "pairs", "interval")
        check_at_least(0, self, "injected")
        for name in ("sigma", "rate"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} of the evolution strategy must be above 0, not {getattr(self, name)}")
        if not 0 <= self.winners <= 1:
            raise UserError(f"winners is a share of the pairs: it must lie between 0 and 1, not {self.winners}")
        if self.selected + self.injected > self.pairs:
            raise UserError(
                "winners and injected learners must not be more than the pairs: "
                f"{self.selected} + {self.injected} > {self.pairs}; take fewer of them, or more pairs"
            )
        # The mother is the centre of the search. Pairs around winners' children and the learner leave fewer around her.
        if self.members == "mother" and self._around_mother == 0:
            raise UserError(
                "only pairs around the mother are to move her, and there is none: take fewer winners, fewer injected "
                "learners, or --evolver.members all"
            )

    @property
    def population(self) -> int:
        """2n members in a generation."""
        return 2 * self.pairs

    @property
    def selected(self) -> int:
        """w = int(n e): the number of winners."""
        return int(self.pairs * self.winners + 1e-9)

    @property
    def _around_mother(self) -> int:
        return self.pairs - self.injected - (self.selected if self.crossover else 0)

    def init(self, key: Array, new_individual: Callable[[int], Individual]) -> OpenAIESState:
        """A strategy around a new actor. In the first generation the mother stands for every winner's child."""
        template = jax.tree.map(np.asarray, new_individual(0).actor)
        mother = jnp.asarray(trees.flat(template))
        zero = np.zeros((), np.int64)
        best = np.zeros((max(1, self.selected), mother.size), np.float32)
        state = OpenAIESState(
            template=template,
            mother=mother,
            optimiser=adam_init(mother),
            children=np.tile(np.asarray(mother), (self.selected if self.crossover else 0, 1)),
            newcomer=np.zeros(mother.size, np.float32),
            injected_now=np.asarray(False),
            sigma=np.asarray(self.sigma),
            bound=np.asarray(False),
            cosine=np.asarray(np.nan),
            champion=np.asarray(mother),
            best=best,
            best_returns=np.full(len(best), -np.inf),
            best_order=np.zeros(len(best), np.int64),
            rows=np.zeros((self.population, 4)),
            count=zero,
            last_returns=np.full(self.population, np.nan),
            seed=zero,
            handed=zero,
            generation=zero,
        )
        return _with_new_directions(key, state)

    def ask(
        self, key: Array, state: OpenAIESState, places: Sequence[int], critic: Critic | None = None
    ) -> tuple[list[Candidate], OpenAIESState]:
        """A member for each place. The two members of a pair follow each other.

        Places beyond a generation get further pairs around the same vectors. Members around the same vector carry the
        same actor object, so that it can be sent once.
        """
        actors: dict[tuple[str, int], Actor] = {}
        candidates: list[Candidate] = []
        for number, place in enumerate(places, int(state.handed)):
            pair, minus = divmod(number, 2)
            slot = pair % self.pairs
            kind = self._kind(state, slot)
            base = (kind, slot if kind == "winner" else 0)
            if base not in actors:
                vector = {"mother": state.mother, "learner": state.newcomer}.get(kind)
                vector = state.children[slot] if vector is None else np.asarray(vector)
                actors[base] = trees.unflat(vector, state.template)
            sigma = float(state.sigma)
            candidates.append(
                Candidate(
                    Individual(actors[base], None),
                    perturbation=Perturbation(int(state.seed) + pair, -sigma if minus else sigma),
                    origin="learning" if kind == "learner" else "evolution",
                    kind=kind,
                    place=place,
                    operators=(kind,),
                )
            )
        return candidates, replace(state, handed=state.handed + len(candidates))

    def _kind(self, state: OpenAIESState, slot: int) -> str:
        if self.crossover and slot < self.selected:
            return "winner"
        return "learner" if state.injected_now and slot >= self.pairs - self.injected else "mother"

    def inject(self, state: OpenAIESState, newcomer: Individual) -> OpenAIESState:
        """The state in which the last pairs of this generation are around the clone of the learner."""
        return replace(state, newcomer=trees.flat(newcomer.actor), injected_now=np.asarray(self.injected > 0))

    def tell(
        self, key: Array, state: OpenAIESState, outcomes: Sequence[Outcome], critic: Critic | None = None
    ) -> OpenAIESState:
        """Record the outcomes in order. When a generation is complete, end it and begin the next."""
        outcomes = list(outcomes)
        ended = 0
        while outcomes:
            room = self.population - int(state.count)
            state = self._recorded(state, outcomes[:room])
            outcomes = outcomes[room:]
            if int(state.count) == self.population:
                state = self._end_generation(jax.random.fold_in(key, ended) if ended else key, state)
                ended += 1
        return state

    def _recorded(self, state: OpenAIESState, outcomes: Sequence[Outcome]) -> OpenAIESState:
        """The state with the members' returns, and with those members that are among the best so far."""
        rows = state.rows.copy()
        count = int(state.count)
        best, returns, order = state.best.copy(), state.best_returns.copy(), state.best_order.copy()
        for outcome in outcomes:
            perturbation = outcome.candidate.perturbation
            assert isinstance(perturbation, Perturbation)  # `ask` gave it
            fitness = outcome.fitness
            rows[count] = perturbation.seed, perturbation.scale, KINDS.index(outcome.candidate.kind), fitness
            worst = np.lexsort((-order, returns))[0]  # of equal returns, the latest
            if fitness > returns[worst]:
                best[worst] = trees.flat(outcome.individual.actor)
                returns[worst] = fitness
                order[worst] = count
            count += 1
        return replace(state, rows=rows, count=np.asarray(count), best=best, best_returns=returns, best_order=order)

    def _end_generation(self, key: Array, state: OpenAIESState) -> OpenAIESState:
        """Move the mother, cross the winners with her, draw new directions. Algorithm 1, lines 9-11, 26 and 27."""
        k_cross, k_seed = jax.random.split(key)
        returns = state.rows[:, 3].copy()
        from_all, from_own = self._gradients(state, centred_ranks(returns))  # 9
        mother, optimiser = self._moved(state, from_all if self.members == "all" else from_own)  # 11
        first = np.lexsort((state.best_order, -state.best_returns))[0]
        state = replace(
            state,
            mother=mother,
            optimiser=optimiser,
            children=self._children(k_cross, state, mother),  # 10, 26
            injected_now=np.asarray(False),
            cosine=np.asarray(cosine(from_all, from_own)),
            champion=state.best[first] if np.isfinite(state.best_returns[first]) else state.champion,
            best_returns=np.full(len(state.best), -np.inf),
            count=np.zeros((), np.int64),
            last_returns=returns,
            generation=state.generation + 1,
        )
        return _with_new_directions(k_seed, state)  # 27

    def _gradients(self, state: OpenAIESState, shaped: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """G = 1 / n sum F~ epsilon / sigma: over all members, and over the mother's own pairs."""
        seeds = state.rows[:, 0].astype(np.int64)
        slopes = shaped / state.rows[:, 1]
        own = state.rows[:, 2] == KINDS.index("mother")
        from_all = weighted_sum(seeds, slopes, state.mother.size) / np.float32(self.pairs)
        if own.all():
            return from_all, from_all
        from_own = weighted_sum(seeds[own], slopes[own], state.mother.size)
        return from_all, from_own / np.float32(max(1.0, own.sum() / 2.0))

    def _moved(self, state: OpenAIESState, gradient: np.ndarray) -> tuple[Array, AdamState]:
        if self.optimiser == "adam":
            return _climb(self.rate, state.mother, gradient, state.optimiser)
        return state.mother + self.rate * gradient, state.optimiser

    def _children(self, key: Array, state: OpenAIESState, mother: Array) -> np.ndarray:
        """Each winner crossed with the mother after her step. The mother stands for a missing winner."""
        if not len(state.children):
            return state.children
        winners = np.where(np.isfinite(state.best_returns)[:, None], state.best, np.asarray(mother))
        return np.asarray(cross_with_mother(self.crossover, key, winners, mother, state.template))

    def tunes_now(self, phase: bool, nominal: int, horizon: int) -> bool:
        """Whether sigma is tuned after this generation: after the learner's phase, or when an interval is over.

        A generation has `horizon` nominal steps. The run had `nominal` of them by the end of this generation.
        """
        if self.tuned == "phase":
            return phase
        return nominal // self.interval > (nominal - horizon) // self.interval

    def tune(self, state: OpenAIESState) -> OpenAIESState:
        """The state with sigma tuned by the returns of the generation that ended last. Algorithm 1, line 24."""
        if not self.tuning:
            return state
        returns = state.last_returns
        sigma, bound = self.tuning.step(float(state.sigma), returns, centred_ranks(returns), self.pairs, self.rate)
        return replace(state, sigma=np.asarray(sigma), bound=np.asarray(bound))

    def mother(self, state: OpenAIESState) -> Actor:
        """The mother's actor."""
        return trees.unflat(np.asarray(state.mother), state.template)

    def champion(self, state: OpenAIESState) -> Actor:
        """The actor of the best member of the last generation. Without winners, the mother."""
        return trees.unflat(state.champion, state.template) if self.selected else self.mother(state)

    def report(self, state: OpenAIESState, outcomes: Sequence[Outcome] = ()) -> dict[str, Any]:
        """Sigma, whether it was clipped, and the cosine between the two gradients, for the record."""
        cosine = float(state.cosine) if np.isfinite(state.cosine) else None
        return {"sigma": float(state.sigma), "clip_bound": bool(state.bound), "cosine": cosine}


def _with_new_directions(key: Array, state: OpenAIESState) -> OpenAIESState:
    """The state with the directions of a new generation, of which none was handed out."""
    seed = np.asarray(trees.host_random(key).integers(2**52), np.int64)
    return replace(state, seed=seed, handed=np.zeros((), np.int64))


@partial(jax.jit, static_argnums=0)
def _climb(rate: float, mother: Array, gradient: Array, optimiser: AdamState) -> tuple[Array, AdamState]:
    return Adam(rate).step(mother, -gradient, optimiser)
