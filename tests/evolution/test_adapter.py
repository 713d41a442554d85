"""Strategies over flat vectors as evolvers: candidates, outcomes, and the remembered returns of the mean."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from genepool import trees
from genepool.evolution.distribution.adapter import adapted
from genepool.evolution.distribution.asynchronous import AsynchronousES, FullMove
from genepool.evolution.distribution.cem import CEM
from genepool.evolution.distribution.evosax import Evosax
from genepool.evolution.distribution.rank import RankES
from genepool.evolution.distribution.shared import MAX_MEAN_RETURNS, Results
from genepool.networks import Actor
from genepool.types import Individual, Outcome, Transitions

KEY = jax.random.key(0)
ROWS = Transitions(*(np.zeros((3, 1), np.float32) for _ in range(5)))
NAMES = ("CEM", "AsynchronousES", "RankES", "Sep_CMA_ES")
WITH_UPCOMING = ("CEM", "Sep_CMA_ES")  # those whose next candidates are known


def new_individual(k):
    """A small actor that its number determines."""
    return Individual(Actor(jax.random.key(k), 3, 2, (4,)), None)


def made(name, **options):
    """The evolver made of a strategy, and its first state."""
    if name == "Sep_CMA_ES":
        pytest.importorskip("evosax")
    kinds = {"CEM": CEM, "AsynchronousES": AsynchronousES, "RankES": RankES, "Sep_CMA_ES": Evosax}
    evolver = adapted(kinds[name](**options))
    return evolver, evolver.init(KEY, new_individual)


def equal(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def vector(candidate):
    return trees.flat(candidate.individual.actor)


def outcome(candidate, number, fitness=None, mean_fitness=0.0):
    """The outcome of a candidate. Its fitness is its number if not given; all episodes of the mean return the same."""
    reference_returns = (mean_fitness,) * candidate.reference_episodes
    candidate = replace(candidate, number=number)
    return Outcome(
        candidate, candidate.individual, (float(number if fitness is None else fitness),), ROWS, reference_returns
    )


def tried(evolver, state, n=10):
    """The outcomes of the next n candidates, and the state after asking."""
    candidates, state = evolver.ask(KEY, state, range(n), None)
    return [outcome(candidate, k) for k, candidate in enumerate(candidates)], state


@pytest.mark.parametrize("name", NAMES)
def test_told_in_portions_it_reaches_the_same_state_as_told_at_once(name):
    evolver, state = made(name)
    outcomes, state = tried(evolver, state)
    at_once = evolver.tell(KEY, state, outcomes, None)
    begin = 0
    for n in (3, 1, 6):
        state = evolver.tell(KEY, state, outcomes[begin : begin + n], None)
        begin += n
    equal(state, at_once)
    assert not np.array_equal(evolver.strategy.mean(state.strategy_state), trees.flat(new_individual(0).actor))
    assert evolver.tell(KEY, state, [], None) is state


@pytest.mark.parametrize("name", NAMES)
def test_a_strategy_is_told_the_vectors_that_were_tried(name):
    evolver, state = made(name)
    outcomes, state = tried(evolver, state)
    vectors = np.stack([vector(o.candidate) for o in outcomes])
    results = Results(vectors, np.arange(10.0), np.zeros(10))
    after = evolver.tell(KEY, state, outcomes, None)
    equal(after.strategy_state, evolver.strategy.tell(KEY, state.strategy_state, results))


@pytest.mark.parametrize("name", NAMES)
def test_the_first_candidates_are_those_of_the_strategy_itself(name):
    evolver, state = made(name)
    strategy = evolver.strategy
    vectors, _ = strategy.ask(KEY, strategy.init(KEY, trees.flat(new_individual(0).actor)), 7)
    candidates, _ = evolver.ask(KEY, state, range(7), None)
    np.testing.assert_array_equal([vector(candidate) for candidate in candidates], vectors)
    assert [candidate.place for candidate in candidates] == list(range(7))
    assert {(candidate.origin, candidate.purpose) for candidate in candidates} == {("evolution", "fitness")}
    none, same = evolver.ask(KEY, state, [], None)
    assert none == []
    assert same is state


@pytest.mark.parametrize("name", NAMES)
def test_a_newcomer_is_handed_out_once_and_told_with_its_vector(name):
    evolver, state = made(name)
    newcomer = new_individual(7)
    plain, _ = evolver.ask(KEY, state, range(4), None)
    candidates, after = evolver.ask(KEY, evolver.inject(state, newcomer), range(4), None)
    equal(candidates[0].individual.actor, jax.tree.map(np.asarray, newcomer.actor))
    assert [candidate.origin for candidate in candidates] == ["learning", "evolution", "evolution", "evolution"]
    for one, other in zip(candidates[1:], plain[1:], strict=True):  # the newcomer takes the place of the first row
        equal(one.individual, other.individual)
    again, _ = evolver.ask(KEY, after, range(4), None)
    assert {candidate.origin for candidate in again} == {"evolution"}
    after_telling = evolver.tell(KEY, after, [outcome(candidates[0], 0, fitness=5.0)], None)
    results = Results(trees.flat(newcomer.actor)[None], np.array([5.0]), np.zeros(1))
    equal(after_telling.strategy_state, evolver.strategy.tell(KEY, after.strategy_state, results))


@pytest.mark.parametrize("name", NAMES)
def test_the_champion_is_the_mean(name):
    evolver, state = made(name)
    equal(evolver.champion(state), jax.tree.map(np.asarray, new_individual(0).actor))
    outcomes, state = tried(evolver, state)
    state = evolver.tell(KEY, state, outcomes, None)
    np.testing.assert_array_equal(trees.flat(evolver.champion(state)), evolver.strategy.mean(state.strategy_state))


@pytest.mark.parametrize("name", WITH_UPCOMING)
def test_asked_one_by_one_it_hands_out_the_same_as_at_once(name):
    evolver, state = made(name)
    at_once, after = evolver.ask(KEY, state, range(10), None)
    one_by_one = []
    for place in range(10):
        candidates, state = evolver.ask(jax.random.fold_in(KEY, place), state, [place], None)
        one_by_one += candidates
    np.testing.assert_array_equal([vector(c) for c in one_by_one], [vector(c) for c in at_once])
    assert [candidate.place for candidate in one_by_one] == [candidate.place for candidate in at_once]
    equal(state, after)


@pytest.mark.parametrize("name", WITH_UPCOMING)
def test_upcoming_says_which_candidates_come_next(name):
    evolver, state = made(name)
    assert evolver.has_upcoming
    upcoming = evolver.upcoming(state, 4)
    candidates, _ = evolver.ask(KEY, state, range(4), None)
    for actor, candidate in zip(upcoming, candidates, strict=True):
        equal(actor, candidate.individual.actor)


@pytest.mark.parametrize("name", NAMES)
def test_weights_that_are_not_finite_are_skipped(name):
    evolver, state = made(name)
    outcomes, state = tried(evolver, state)
    wild = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), outcomes[9].individual.actor)
    outcomes[9] = replace(outcomes[9], individual=Individual(wild, None))
    state = evolver.tell(KEY, state, outcomes, None)
    assert np.isfinite(trees.flat(evolver.champion(state))).all()


def test_the_fitness_is_credited_to_the_credited_weights():
    evolver, state = made("CEM")
    outcomes, state = tried(evolver, state)
    plain = evolver.tell(KEY, state, outcomes, None)
    random = new_individual(3)  # a random player that was tried in the place of each
    credited = [replace(o.candidate, individual=random, credited=vector(o.candidate)) for o in outcomes]
    other = [outcome(candidate, k) for k, candidate in enumerate(credited)]
    equal(evolver.tell(KEY, state, other, None), plain)


# -- the mean, played with the candidates


def compared(**options):
    """AES-RL's strategy. The mean moves to every better individual, and otherwise stays."""
    return made("AsynchronousES", mean_rule=FullMove(), **options)


def test_only_a_strategy_that_needs_references_asks_for_them():
    evolver, state = compared(reference_episodes=3)
    candidates, _ = evolver.ask(KEY, state, range(2), None)
    for candidate in candidates:
        equal(candidate.reference, evolver.champion(state))
        assert (candidate.reference_episodes, candidate.reference_known) == (3, ())
    evolver, state = made("CEM")
    assert evolver.ask(KEY, state, [0], None)[0][0].reference is None


def test_returns_of_the_mean_are_reused_while_it_does_not_move():
    evolver, state = compared(reference_episodes=3, reference_cache=True)
    first, state = evolver.ask(KEY, state, [0], None)
    state = evolver.tell(KEY, state, [outcome(first[0], 0, fitness=-1.0, mean_fitness=2.0)], None)
    second, state = evolver.ask(KEY, state, [1], None)
    assert (second[0].reference_episodes, second[0].reference_known) == (0, (2.0, 2.0, 2.0))
    better = evolver.tell(KEY, state, [outcome(second[0], 1, fitness=3.0)], None)  # the mean moves
    assert np.isnan(better.mean_returns).all()
    assert better.log[1].tolist() == [1.0, 2.0]
    third, _ = evolver.ask(KEY, better, [2], None)
    assert (third[0].reference_episodes, third[0].reference_known) == (3, ())


def test_returns_of_an_older_mean_are_not_remembered():
    evolver, state = compared(reference_cache=True)
    candidates, state = evolver.ask(KEY, state, range(2), None)
    state = evolver.tell(KEY, state, [outcome(candidates[0], 0, fitness=1.0)], None)  # the mean moves
    state = evolver.tell(
        KEY, state, [outcome(candidates[1], 1, fitness=-1.0)], None
    )  # this one was compared with the old mean
    assert np.isnan(state.mean_returns).all()


def test_only_the_newest_returns_of_the_mean_are_remembered():
    evolver, state = compared(reference_episodes=40)
    for k in range(3):
        candidates, state = evolver.ask(KEY, state, [k], None)
        assert (candidates[0].reference_episodes, candidates[0].reference_known) == (40, ())  # the cache is off
        state = evolver.tell(KEY, state, [outcome(candidates[0], k, fitness=-9.0, mean_fitness=float(k))], None)
    np.testing.assert_array_equal(state.mean_returns, [2.0] * 40 + [1.0] * (MAX_MEAN_RETURNS - 40))


def test_a_record_says_p_and_the_mean_s_fitness_of_every_individual_in_order():
    evolver, state = compared()
    candidates, state = evolver.ask(KEY, state, range(3), None)
    random = replace(candidates[2], purpose="warm-up")
    outcomes = [outcome(candidates[0], 300, -1.0, 2.0), outcome(candidates[1], 301, 4.0, 3.0), outcome(random, 302)]
    report = evolver.report(evolver.tell(KEY, state, outcomes, None), outcomes[::-1])
    assert report["p"] == [1.0, 0.0]
    assert report["mean_fitness"] == [3.0, 2.0]
    assert "variance_at_floor" in report
    evolver, state = made("CEM")
    assert set(evolver.report(state, outcomes)) == {"variance", "epsilon"}


# -- evolvers, strategies, and what is neither


class Walk:
    """The smallest strategy: without any of the flags."""

    population = 2

    def init(self, key, mean):
        return mean

    def ask(self, key, state, n):
        return state + np.ones((n, 1), np.float32), state

    def tell(self, key, state, results):
        return results.vectors[np.argmax(results.fitness)]

    def mean(self, state):
        return state

    def report(self, state):
        return {}


def test_a_user_s_strategy_may_omit_the_flags():
    evolver = adapted(Walk())
    flags = (evolver.population, evolver.needs_critic, evolver.takes_lessons, evolver.has_upcoming)
    assert flags == (2, False, True, False)
    state = evolver.init(KEY, new_individual)
    outcomes, state = tried(evolver, state, 2)
    state = evolver.tell(KEY, state, outcomes, None)
    np.testing.assert_allclose(trees.flat(evolver.champion(state)), trees.flat(new_individual(0).actor) + 1)


@pytest.mark.parametrize(
    ("name", "flags"),
    [("CEM", (True, True)), ("AsynchronousES", (True, False)), ("RankES", (True, False)), ("Sep_CMA_ES", (True, True))],
)
def test_an_evolver_has_the_flags_of_its_strategy(name, flags):
    evolver, state = made(name)
    assert (evolver.takes_lessons, evolver.has_upcoming) == flags
    assert (evolver.population, evolver.needs_critic) == (10, False)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(state))
