"""SteadyStateGA: one child at a time, told in any order."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from tiny_ga import KEY, Mean, Shift

from genepool import trees
from genepool.errors import UserError
from genepool.evolution.genetic.crossover import Distillation, RowCopy
from genepool.evolution.genetic.generational import FATES
from genepool.evolution.genetic.steady_state import SteadyStateGA
from genepool.protocols import Evolver
from genepool.types import Outcome

QUICK = SteadyStateGA(population=5, crossover=Mean(), mutation=Shift())


@pytest.fixture(scope="module")
def first(individual):
    """Five first individuals."""
    return trees.stack([individual(k, n=0, capacity=8, hidden=(4,)) for k in range(5)])


@pytest.fixture(scope="module")
def outcome(rows):
    return lambda candidate, fitness: Outcome(candidate, candidate.individual, (float(fitness),), rows(3))


@pytest.fixture
def full(first, outcome):
    """A population of which all five were tried, with fitness 0, 10, 20, 30, 40 and numbers 0 to 4."""
    state = started(QUICK, first)
    candidates, state = ask(QUICK, state, range(5))
    return QUICK.tell(KEY, state, [outcome(c, 10 * c.number) for c in candidates], None)


def started(part, first):
    return part.init(KEY, lambda k: trees.take(first, k))


def ask(part, state, places, seed=0):
    candidates, state = part.ask(jax.random.key(seed), state, list(places), None)
    return [replace(c, number=place, place=place) for c, place in zip(candidates, places, strict=True)], state


def weight(actor):
    return np.asarray(actor.output.weight)


def test_the_first_individuals_are_handed_out_in_order_one_by_one_or_at_once(first):
    state = started(QUICK, first)
    at_once, _ = ask(QUICK, state, range(5))
    for k, candidate in enumerate(at_once):
        np.testing.assert_array_equal(weight(candidate.individual.actor), weight(trees.take(first.actor, k)))
        assert (candidate.parents, candidate.operators, candidate.origin) == ((), (), "evolution")
        (alone,), state = ask(QUICK, state, [k])
        np.testing.assert_array_equal(weight(alone.individual.actor), weight(candidate.individual.actor))


def test_the_first_that_are_tried_take_free_slots_with_their_new_memory(full):
    np.testing.assert_array_equal(full.fitness, [0, 10, 20, 30, 40])
    np.testing.assert_array_equal(full.number, np.arange(5))
    assert np.asarray(full.members.memory.size).tolist() == [3] * 5


def test_the_worst_is_replaced_even_by_a_worse_child(full, outcome):
    (child,), state = ask(QUICK, full, [5])
    state = QUICK.tell(KEY, state, [outcome(child, -100)], None)
    np.testing.assert_array_equal(state.fitness, [-100, 10, 20, 30, 40])
    assert state.number[0] == 5
    np.testing.assert_array_equal(weight(trees.take(state.members.actor, 0)), weight(child.individual.actor))


def test_the_champion_is_never_lost(full, outcome):
    rng = np.random.default_rng(0)
    state = full
    best = 40.0
    for place in range(5, 45):
        (child,), state = ask(QUICK, state, [place], seed=place)
        fitness = float(rng.normal(20, 15))
        state = QUICK.tell(KEY, state, [outcome(child, fitness)], None)
        if fitness > best:
            best = fitness
            kept = weight(child.individual.actor)
            np.testing.assert_array_equal(weight(QUICK.champion(state)), kept)
        assert state.fitness.max() == best
    assert best > 40.0  # some child was better


def test_before_any_was_tried_the_champion_is_the_first(first):
    np.testing.assert_array_equal(weight(QUICK.champion(started(QUICK, first))), weight(trees.take(first.actor, 0)))


def test_what_is_said_to_have_been_done_was_done(full):
    of = dict(enumerate(weight(full.members.actor)))
    found = set()
    part = replace(QUICK, mutation_probability=0.6)
    for seed in range(40):
        (child,), _ = ask(part, full, [5], seed)
        assert set(child.parents) <= set(range(5))
        assert len(set(child.parents)) == len(child.parents) == (2 if "mean" in child.operators else 1)
        expected = np.mean([of[parent] for parent in child.parents], axis=0) + ("shift" in child.operators)
        np.testing.assert_allclose(weight(child.individual.actor), expected, atol=1e-6)
        found.add(child.operators)
    assert found >= {("mean", "shift"), ("shift",), ("mean",)}


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
    np.testing.assert_array_equal(waiting.fitness, full.fitness)  # it replaces none before it was tried
    (clone, other), state = ask(QUICK, waiting, [5, 6])
    assert (clone.origin, clone.parents, clone.operators) == ("learning", (), ())
    np.testing.assert_array_equal(weight(clone.individual.actor), weight(newcomer.actor))
    assert int(clone.individual.memory.size) == 6
    assert other.origin == "evolution"
    assert not state.waiting


@pytest.mark.parametrize(
    ("fitness", "fate"), [(50, "elite"), (40.5, "elite"), (35, "selected"), (15, "selected"), (5, "discarded")]
)
def test_a_clone_s_fate_is_its_rank_in_the_population(full, individual, outcome, fitness, fate):
    (clone,), state = ask(QUICK, QUICK.inject(full, individual(77, n=6, capacity=8, hidden=(4,))), [5])
    state = QUICK.tell(KEY, state, [outcome(clone, fitness)], None)
    assert FATES[int(state.fate)] == fate
    assert dict(zip(FATES, state.fates.tolist(), strict=True))[fate] == state.fates.sum() == 1


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5, 6, 7), (7, 6, 5, 4, 3, 2, 1, 0), (3, 0, 6, 7, 1, 5, 2, 4)])
def test_outcomes_may_be_told_in_any_order(first, outcome, order):
    """Eight candidates of a population of five: in any order the best is kept, and all members were tried."""
    fitness = np.array([3.0, 1, 4, 1.5, 9, 2.6, 5, 3.5])
    candidates, state = ask(QUICK, started(QUICK, first), range(8))
    for k in order:
        state = QUICK.tell(KEY, state, [outcome(candidates[k], fitness[k])], None)
        accepted = ~np.isnan(state.fitness)
        np.testing.assert_array_equal(state.fitness[accepted], fitness[state.number[accepted]])
    assert accepted.all()
    assert state.fitness.max() == 9.0
    np.testing.assert_array_equal(weight(QUICK.champion(state)), weight(candidates[4].individual.actor))
    assert len(set(state.number.tolist())) == 5


def test_with_more_workers_than_individuals_children_of_the_untried_are_bred(first):
    candidates, _ = ask(QUICK, started(QUICK, first), range(9))  # none came back yet
    assert len(candidates) == 9
    assert all(c.parents == () for c in candidates[5:])  # no parent was tried that could be named
    assert len({float(weight(c.individual.actor).sum()) for c in candidates}) > 5


def test_a_fitness_that_is_not_finite_is_skipped(full, outcome):
    (child,), state = ask(QUICK, full, [5])
    for fitness in (np.nan, np.inf, -np.inf):
        after = QUICK.tell(KEY, state, [outcome(child, fitness)], None)
        np.testing.assert_array_equal(after.fitness, full.fitness)


@pytest.mark.parametrize("ends", [range(1, 8), [3], [1, 2, 6]])
def test_outcomes_in_any_portions_leave_the_same_state(first, individual, outcome, ends):
    fitness = np.array([3.0, 1, np.nan, 1.5, 9, 2.6, 5, 3.5])
    start = QUICK.inject(started(QUICK, first), individual(77, n=6, capacity=8, hidden=(4,)))
    candidates, start = ask(QUICK, start, range(8))
    outcomes = [outcome(candidates[k], fitness[k]) for k in range(8)]
    at_once = QUICK.tell(KEY, start, outcomes, None)
    in_parts = start
    for n, part in enumerate(np.split(np.arange(8), ends)):
        in_parts = QUICK.tell(jax.random.key(n), in_parts, [outcomes[k] for k in part], None)
    jax.tree.map(np.testing.assert_array_equal, in_parts, at_once)


def test_a_run_that_is_killed_goes_on_equal(full, individual, outcome):
    waiting = QUICK.inject(full, individual(77, n=6, capacity=8, hidden=(4,)))
    leaves, structure = jax.tree.flatten(waiting)
    read = jax.tree.unflatten(structure, [np.array(leaf) for leaf in leaves])
    ends = []
    for state in (waiting, read):
        candidates, state = ask(QUICK, state, range(5, 9), seed=3)
        ends.append(QUICK.tell(KEY, state, [outcome(c, 7 * c.place % 5) for c in candidates], None))
    jax.tree.map(np.testing.assert_array_equal, *ends)


def test_the_report_names_the_last_fate_and_counts_all(full, individual, outcome):
    assert QUICK.report(full, []) == {"clone": None, "clones": {"elite": 0, "selected": 0, "discarded": 0}}
    (clone,), state = ask(QUICK, QUICK.inject(full, individual(77, n=6, capacity=8, hidden=(4,))), [5])
    state = QUICK.tell(KEY, state, [outcome(clone, 15)], None)
    assert QUICK.report(state, []) == {"clone": "selected", "clones": {"elite": 0, "selected": 1, "discarded": 0}}


def test_it_is_an_evolver_that_needs_a_critic_if_its_crossover_does():
    assert isinstance(QUICK, Evolver)
    assert QUICK.takes_lessons
    assert not QUICK.has_upcoming
    needs = [SteadyStateGA(crossover=crossover).needs_critic for crossover in (Distillation(), RowCopy(), Mean())]
    assert needs == [True, False, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"population": 0}, "population is 0: a genetic algorithm needs 2 individuals or more"),
        ({"tournament": 0}, "tournament is 0: it needs 1 individual or more"),
        ({"crossover_probability": 1.5}, "crossover_probability is 1.5: it must lie between 0 and 1"),
    ],
)
def test_a_refused_setting_is_named_with_its_value(options, message):
    with pytest.raises(UserError) as refused:
        SteadyStateGA(**options)
    assert str(refused.value) == message
