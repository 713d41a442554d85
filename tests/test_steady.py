"""SteadyState: one child at a time, told in any order."""

from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest
from tasks import Reach

from genepool import trees
from genepool.algorithms.erl import ERL
from genepool.environments.task import find
from genepool.errors import UserError
from genepool.evolution.genetic import FATES
from genepool.evolution.steady import SteadyState
from genepool.schedule import Clock, asynchronous
from genepool.types import Individual, Outcome
from genepool.workers.local import LocalWorkers
from genepool.workers.virtual import Costs, VirtualWorkers

KEY = jax.random.key(0)


@dataclass(frozen=True)
class Shift:
    """A mutation that is seen everywhere and quickly compiled."""

    def __call__(self, key, x):
        return Individual(jax.tree.map(lambda leaf: leaf + 1.0, x.actor), x.memory)


@dataclass(frozen=True)
class Mean:
    """A crossover that is seen everywhere and quickly compiled."""

    children = 1

    def __call__(self, key, x, y, critic):
        return (Individual(jax.tree.map(lambda a, b: (a + b) / 2, x.actor, y.actor), x.memory),)


QUICK = SteadyState(population=5, crossover=Mean(), mutation=Shift())


@pytest.fixture(scope="module")
def first(individual):
    """Five first individuals."""
    return trees.stack([individual(k, n=0, capacity=8, hidden=(4,)) for k in range(5)])


@pytest.fixture(scope="module")
def outcome(rows):
    return lambda candidate, fitness: Outcome(candidate, candidate.individual, (float(fitness),), rows(3))


@pytest.fixture
def full(first, outcome):
    """A pool of which all five were tried, with fitness 0, 10, 20, 30, 40 and numbers 0 to 4."""
    pool = QUICK.init(first)
    candidates, pool = ask(QUICK, pool, range(5))
    return QUICK.tell(KEY, pool, [outcome(c, 10 * c.number) for c in candidates], None)


def ask(part, pool, orders, seed=0):
    candidates, pool = part.ask(jax.random.key(seed), pool, list(orders), None)
    return [replace(c, number=order) for c, order in zip(candidates, orders, strict=True)], pool


def weight(actor):
    return np.asarray(actor.output.weight)


def test_the_first_individuals_are_handed_out_in_order_one_by_one_or_together(first):
    pool = QUICK.init(first)
    together, _ = ask(QUICK, pool, range(5))
    for k, candidate in enumerate(together):
        np.testing.assert_array_equal(weight(candidate.individual.actor), weight(trees.take(first.actor, k)))
        assert (candidate.parents, candidate.operators, candidate.origin) == ((), (), "evolution")
        (alone,), pool = ask(QUICK, pool, [k])
        np.testing.assert_array_equal(weight(alone.individual.actor), weight(candidate.individual.actor))


def test_whoever_is_tried_first_takes_a_free_place_with_what_it_lived_through(full):
    np.testing.assert_array_equal(full.fitness, [0, 10, 20, 30, 40])
    np.testing.assert_array_equal(full.number, np.arange(5))
    assert np.asarray(full.members.memory.size).tolist() == [3] * 5


def test_the_worst_is_replaced_even_by_a_worse_child(full, outcome):
    (child,), pool = ask(QUICK, full, [5])
    pool = QUICK.tell(KEY, pool, [outcome(child, -100)], None)
    np.testing.assert_array_equal(pool.fitness, [-100, 10, 20, 30, 40])
    assert pool.number[0] == 5
    np.testing.assert_array_equal(weight(trees.take(pool.members.actor, 0)), weight(child.individual.actor))


def test_the_champion_is_never_lost(full, outcome):
    rng, pool, best = np.random.default_rng(0), full, 40.0
    for order in range(5, 45):
        (child,), pool = ask(QUICK, pool, [order], seed=order)
        fitness = float(rng.normal(20, 15))
        pool = QUICK.tell(KEY, pool, [outcome(child, fitness)], None)
        if fitness > best:
            best, kept = fitness, weight(child.individual.actor)
            np.testing.assert_array_equal(weight(pool.champion), kept)
        assert pool.fitness.max() == best
    assert best > 40.0  # some child was better


def test_before_anybody_was_tried_the_champion_is_the_first(first):
    np.testing.assert_array_equal(weight(QUICK.init(first).champion), weight(trees.take(first.actor, 0)))


def test_what_is_said_to_have_been_done_was_done(full):
    of = dict(enumerate(weight(full.members.actor)))
    seen = set()
    part = replace(QUICK, mutation_probability=0.6)
    for seed in range(40):
        (child,), _ = ask(part, full, [5], seed)
        assert set(child.parents) <= set(range(5))
        assert len(set(child.parents)) == len(child.parents) == (2 if "mean" in child.operators else 1)
        expected = np.mean([of[parent] for parent in child.parents], axis=0) + ("shift" in child.operators)
        np.testing.assert_allclose(weight(child.individual.actor), expected, atol=1e-6)
        seen.add(child.operators)
    assert seen >= {("mean", "shift"), ("shift",), ("mean",)}


def test_children_are_crossed_and_mutated_as_often_as_the_settings_say(full):
    part = replace(QUICK, crossover_probability=0.3, mutation_probability=0.8)
    drawn = [ask(part, full, [5], seed)[0][0].operators for seed in range(200)]
    np.testing.assert_allclose(
        np.mean(["mean" in operators for operators in drawn]), 0.3, atol=0.1
    )  # 3 standard errors
    np.testing.assert_allclose(np.mean(["shift" in operators for operators in drawn]), 0.8, atol=0.09)


def test_parents_win_tournaments(full):
    """The fittest of five is the first parent if it is among three draws: 1 - 0.8^3 = 0.488."""
    part = replace(QUICK, crossover_probability=0.0)
    parents = [ask(part, full, [5], seed)[0][0].parents[0] for seed in range(200)]
    np.testing.assert_allclose(np.mean(np.array(parents) == 4), 0.488, atol=0.11)  # 3 standard errors
    np.testing.assert_allclose(np.mean(np.array(parents) == 0), 0.008, atol=0.02)


def test_a_clone_waits_and_is_tried_next_and_only_once(full, individual):
    newcomer = individual(77, n=6, capacity=8, hidden=(4,))
    waiting = QUICK.inject(full, newcomer)
    np.testing.assert_array_equal(waiting.fitness, full.fitness)  # it replaces nobody before it was tried
    (clone, other), pool = ask(QUICK, waiting, [5, 6])
    assert (clone.origin, clone.parents, clone.operators) == ("learning", (), ())
    np.testing.assert_array_equal(weight(clone.individual.actor), weight(newcomer.actor))
    assert int(clone.individual.memory.size) == 6
    assert other.origin == "evolution"
    assert not pool.waiting


@pytest.mark.parametrize(
    ("fitness", "fate"), [(50, "elite"), (40.5, "elite"), (35, "selected"), (15, "selected"), (5, "discarded")]
)
def test_a_clone_s_fate_is_its_rank_in_the_pool(full, individual, outcome, fitness, fate):
    (clone,), pool = ask(QUICK, QUICK.inject(full, individual(77, n=6, capacity=8, hidden=(4,))), [5])
    pool = QUICK.tell(KEY, pool, [outcome(clone, fitness)], None)
    assert FATES[int(pool.fate)] == fate
    assert dict(zip(FATES, pool.fates.tolist(), strict=True))[fate] == pool.fates.sum() == 1


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5, 6, 7), (7, 6, 5, 4, 3, 2, 1, 0), (3, 0, 6, 7, 1, 5, 2, 4)])
def test_outcomes_may_be_told_in_any_order(first, outcome, order):
    """Eight are out of a pool of five; whatever the order, the best lives and everyone who lives was told."""
    fitness = np.array([3.0, 1, 4, 1.5, 9, 2.6, 5, 3.5])
    candidates, pool = ask(QUICK, QUICK.init(first), range(8))
    for k in order:
        pool = QUICK.tell(KEY, pool, [outcome(candidates[k], fitness[k])], None)
        told = ~np.isnan(pool.fitness)
        np.testing.assert_array_equal(pool.fitness[told], fitness[pool.number[told]])
    assert told.all()
    assert pool.fitness.max() == 9.0
    np.testing.assert_array_equal(weight(pool.champion), weight(candidates[4].individual.actor))
    assert len(set(pool.number.tolist())) == 5


def test_with_more_workers_than_individuals_children_of_the_untried_are_bred(first):
    candidates, _ = ask(QUICK, QUICK.init(first), range(9))  # nobody came back yet
    assert len(candidates) == 9
    assert all(c.parents == () for c in candidates[5:])  # nobody was tried who could be named
    assert len({float(weight(c.individual.actor).sum()) for c in candidates}) > 5


def test_what_is_not_a_number_is_passed_over(full, outcome):
    (child,), pool = ask(QUICK, full, [5])
    for fitness in (np.nan, np.inf, -np.inf):
        after = QUICK.tell(KEY, pool, [outcome(child, fitness)], None)
        np.testing.assert_array_equal(after.fitness, full.fitness)


@pytest.mark.parametrize("options", [{"population": 1}, {"tournament": 0}, {"crossover_probability": 1.5}])
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(UserError):
        SteadyState(**options)


def test_a_record_says_how_many_outcomes_were_told_since_each_was_asked_for():
    algorithm = ERL(find(Reach), SteadyState(4), learner=None, memory=32, hidden=(4,))
    for count, most in ((1, 0), (3, 2)):
        workers = VirtualWorkers(LocalWorkers(algorithm.task), count, Costs(0.0, 0.0, 1.0))
        state, outcomes = asynchronous(algorithm, workers, KEY, algorithm.init(KEY), Clock())
        staleness = algorithm.report(state, outcomes)["staleness"]
        assert len(staleness) == len(outcomes)
        assert max(staleness) == most
