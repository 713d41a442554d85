"""Makes an evolver of a strategy: the strategy searches over flat vectors, the evolver hands out actors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import Array

from genepool import trees
from genepool.errors import UserError
from genepool.evolution.distribution.shared import MAX_MEAN_RETURNS, Results
from genepool.protocols import Actor, Critic, Evolver, Strategy
from genepool.types import Candidate, Individual, Outcome

LOGGED = 256  # candidates whose comparison with the mean is kept for the record
EVOLVER = ("init", "ask", "tell", "inject", "champion", "report")
STRATEGY = ("init", "ask", "tell", "mean", "report")


class VectorEvolverState(eqx.Module):
    """The strategy's state, the last newcomer, and returns of the mean."""

    strategy_state: Any
    template: Actor  # for its structure and shapes alone
    newcomer: np.ndarray  # [d]: the vector that was injected last
    newcomer_waits: np.ndarray  # whether the newcomer is still to be handed out
    mean_returns: np.ndarray  # [MAX_MEAN_RETURNS]: of the current mean, newest first; the unused rest is NaN
    log: np.ndarray  # [LOGGED, 2] by candidate number: p, fitness of the mean


@dataclass(frozen=True)
class VectorEvolver:
    """A strategy as an evolver. A strategy of the user's own may omit the flags."""

    strategy: Strategy[Any]

    @property
    def population(self) -> int:
        """Candidates in a generation."""
        return self.strategy.population

    @property
    def needs_critic(self) -> bool:
        """A strategy never uses the critic."""
        return False

    @property
    def takes_lessons(self) -> bool:
        """Whether the strategy accepts individuals that took a lesson."""
        return getattr(self.strategy, "takes_lessons", True)

    @property
    def has_upcoming(self) -> bool:
        """Whether `upcoming` knows the next candidates."""
        return getattr(self.strategy, "has_upcoming", False)

    @property
    def needs_reference(self) -> bool:
        """Whether each outcome is compared with the fitness of the mean."""
        return getattr(self.strategy, "needs_reference", False)

    def init(self, key: Array, new_individual: Callable[[int], Individual]) -> VectorEvolverState:
        """A distribution around the first new individual."""
        actor = new_individual(0).actor
        vector = trees.flat(actor)
        return VectorEvolverState(
            strategy_state=self.strategy.init(key, vector),
            template=jax.tree.map(np.asarray, actor),
            newcomer=np.zeros_like(vector),
            newcomer_waits=np.asarray(False),
            mean_returns=np.full(MAX_MEAN_RETURNS, np.nan),
            log=np.full((LOGGED, 2), np.nan),
        )

    def ask(
        self, key: Array, state: VectorEvolverState, places: Sequence[int], critic: Critic | None
    ) -> tuple[list[Candidate], VectorEvolverState]:
        """A candidate for each place. A newcomer that waits takes the place of the first vector."""
        if not len(places):
            return [], state
        vectors, strategy_state = self.strategy.ask(key, state.strategy_state, len(places))
        actors = [trees.unflat(vector, state.template) for vector in vectors]
        candidates = [Candidate(Individual(a, None), place=p) for a, p in zip(actors, places, strict=True)]
        if state.newcomer_waits:
            newcomer = trees.unflat(state.newcomer, state.template)
            candidates[0] = replace(candidates[0], individual=Individual(newcomer, None), origin="learning")
        if self.needs_reference:
            reference = self._reference(state)
            candidates = [replace(candidate, **reference) for candidate in candidates]
        return candidates, replace(state, strategy_state=strategy_state, newcomer_waits=np.asarray(False))

    def _reference(self, state: VectorEvolverState) -> dict[str, Any]:
        """The fields of a candidate that have the current mean played with it."""
        cached = getattr(self.strategy, "reference_cache", False)
        known = tuple(_without_nan(state.mean_returns).tolist()) if cached else ()
        episodes = max(0, getattr(self.strategy, "reference_episodes", 1) - len(known))
        return {"reference": self.champion(state), "reference_known": known, "reference_episodes": episodes}

    def tell(
        self, key: Array, state: VectorEvolverState, outcomes: Sequence[Outcome], critic: Critic | None
    ) -> VectorEvolverState:
        """The state after these outcomes. If they are compared with the mean: one by one, as each may move it."""
        if not outcomes:
            return state
        if self.needs_reference:
            for k, outcome in enumerate(outcomes):
                state = self._compared(jax.random.fold_in(key, k), state, outcome)
            return state
        vectors = np.stack([_vector(outcome) for outcome in outcomes])
        results = Results(vectors, np.array([outcome.fitness for outcome in outcomes]))
        return replace(state, strategy_state=self.strategy.tell(key, state.strategy_state, results))

    def _compared(self, key: Array, state: VectorEvolverState, outcome: Outcome) -> VectorEvolverState:
        """The state after one outcome, which is compared with the fitness of the mean that was played with it."""
        candidate = outcome.candidate
        reference = float(np.mean(candidate.reference_known + outcome.reference_returns))
        results = Results(_vector(outcome)[None], np.array([outcome.fitness]), np.array([reference]))
        strategy_state = self.strategy.tell(key, state.strategy_state, results)
        log = state.log.copy()
        log[candidate.number % LOGGED] = float(getattr(strategy_state, "p", np.nan)), reference
        mean = self.strategy.mean(state.strategy_state)
        returns = state.mean_returns
        if not np.array_equal(self.strategy.mean(strategy_state), mean):
            returns = np.full(MAX_MEAN_RETURNS, np.nan)
        elif np.array_equal(trees.flat(candidate.reference), mean):  # else they are returns of an older mean
            latest = np.append(outcome.reference_returns, _without_nan(returns))[:MAX_MEAN_RETURNS]
            returns = np.append(latest, np.full(MAX_MEAN_RETURNS - len(latest), np.nan))
        return replace(state, strategy_state=strategy_state, mean_returns=returns, log=log)

    def inject(self, state: VectorEvolverState, newcomer: Individual) -> VectorEvolverState:
        """The state that hands out this newcomer next."""
        return replace(state, newcomer=trees.flat(newcomer.actor), newcomer_waits=np.asarray(True))

    def champion(self, state: VectorEvolverState) -> Actor:
        """The actor of the mean."""
        return trees.unflat(self.strategy.mean(state.strategy_state), state.template)

    def upcoming(self, state: VectorEvolverState, n: int) -> list[Actor]:
        """The actors of the first n rows of the sample that is being handed out."""
        return [trees.unflat(vector, state.template) for vector in state.strategy_state.sample[:n]]

    def report(self, state: VectorEvolverState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """The strategy's report. If outcomes are compared with the mean: also p and the mean's fitness for each."""
        report: dict[str, Any] = {}
        if self.needs_reference:
            numbers = [outcome.candidate.number for outcome in outcomes if outcome.candidate.purpose == "fitness"]
            rows = [state.log[number % LOGGED].tolist() for number in numbers]
            report = {"p": [row[0] for row in rows], "mean_fitness": [row[1] for row in rows]}
        return report | self.strategy.report(state.strategy_state)


def adapted(evolver: Any) -> Evolver[Any]:
    """The part itself if it is an evolver. If it is a strategy, the evolver made of it. Anything else is refused."""
    is_strategy = hasattr(evolver, "mean") and not hasattr(evolver, "inject")
    methods = STRATEGY if is_strategy else EVOLVER
    missing = [f"method {name!r}" for name in methods if not callable(getattr(evolver, name, None))]
    missing += ["field 'population'"] if not hasattr(evolver, "population") else []
    if missing:
        raise UserError(
            f"{type(evolver).__name__} is no evolver: it has no {missing[0]}. "
            "genepool.protocols lists what an Evolver has, and what a Strategy has"
        )
    return VectorEvolver(evolver) if is_strategy else evolver


def _vector(outcome: Outcome) -> np.ndarray:
    """The weights that the outcome's fitness belongs to."""
    credited = outcome.candidate.credited
    return trees.flat(outcome.individual.actor) if credited is None else credited


def _without_nan(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]
