"""GenerationalGA: outcomes in any portions and any order, and places that wait for them."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from tiny_ga import KEY, QUICK, Mean, equal, first_generation, play, started

from genepool import trees
from genepool.evolution.genetic.selection import Mating
from genepool.types import Individual


@pytest.fixture(scope="module")
def first(individual):
    return first_generation(individual)


@pytest.fixture(scope="module")
def played(rows):
    return partial(play, rows)


def portions(outcomes, order, ends):
    """The outcomes in this order, cut at these ends."""
    return [[outcomes[k] for k in part] for part in np.split(np.array(order), ends)]


@pytest.mark.parametrize(
    ("order", "ends"),
    [
        (range(10), range(1, 10)),
        (range(9, -1, -1), []),
        ([3, 0, 4, 2, 9, 1, 8, 7, 5, 6], [2, 3, 7]),
        ([9, 0, 4, 2, 3, 1, 8, 7, 5, 6], range(1, 10)),
    ],
    ids=["one by one", "backwards", "in portions", "one by one in disorder"],
)
@pytest.mark.parametrize("children", [1, 2])
def test_outcomes_in_any_portions_and_any_order_leave_the_same_state(first, individual, played, order, ends, children):
    evolver = replace(QUICK, crossover=Mean(children), mating=Mating(greedy=0.5, batch_size=4))
    at_once = evolver.inject(started(evolver, first), individual(77, n=6, capacity=8, hidden=(4,)))
    in_parts = at_once
    for generation in range(3):
        fitness = np.random.default_rng(generation).permutation(10) + 0.5
        key = jax.random.key(generation)
        fitness[4] = np.nan if generation == 1 else fitness[4]
        outcomes = played(evolver, at_once, fitness, 11 * generation)
        at_once = evolver.tell(key, at_once, outcomes, None)
        for n, part in enumerate(portions(outcomes, order, ends)):
            before = in_parts
            # only the key of the tell that completes the generation counts
            last = sum(in_parts.tried) + len(part) == 10
            in_parts = evolver.tell(key if last else jax.random.key(1000 + n), in_parts, part, None)
            assert int(in_parts.generation) == int(before.generation) + last
        equal(in_parts, at_once)


def test_a_run_that_is_killed_in_the_middle_of_a_generation_goes_on_equal(first, played):
    state = started(QUICK, first)
    state = QUICK.tell(KEY, state, played(QUICK, state, range(10)), None)
    outcomes = played(QUICK, state, np.sin(np.arange(10.0)), 100)
    state = QUICK.tell(KEY, state, [outcomes[k] for k in (7, 2, 4)], None)
    leaves, structure = jax.tree.flatten(state)
    read = jax.tree.unflatten(structure, [np.array(leaf) for leaf in leaves])
    rest = [outcomes[k] for k in (9, 8, 6, 5, 3, 1, 0)]
    again, _ = QUICK.ask(KEY, read, [o.candidate.place for o in rest], None)  # those that were out, issued again
    for candidate, outcome in zip(again, rest, strict=True):
        equal(candidate.individual, outcome.individual)
    on, resumed = (QUICK.tell(jax.random.key(5), s, rest[:3], None) for s in (state, read))
    equal(resumed, on)
    equal(*(QUICK.tell(jax.random.key(6), s, rest[3:], None) for s in (resumed, on)))


def test_a_place_of_a_later_generation_waits_for_outcomes(first, played):
    state = started(QUICK, first)
    candidates, after = QUICK.ask(KEY, state, range(7, 13), None)
    assert len(candidates) == 3
    assert after is state
    assert QUICK.ask(KEY, state, range(10, 20), None)[0] == []
    outcomes = played(QUICK, state, range(10))
    state = QUICK.tell(KEY, state, outcomes[1:], None)
    assert QUICK.ask(KEY, state, [10], None)[0] == []
    assert len(QUICK.ask(KEY, QUICK.tell(KEY, state, outcomes[:1], None), range(10, 20), None)[0]) == 10


def test_places_that_cannot_be_out_are_refused(first, played):
    state = started(QUICK, first)
    outcomes = played(QUICK, state, range(10))
    part = QUICK.tell(KEY, state, outcomes[:4], None)
    complete = QUICK.tell(KEY, state, outcomes, None)
    for state_after, place in ((part, 3), (complete, 3)):
        with pytest.raises(ValueError, match="place 3 was tried already"):
            QUICK.ask(KEY, state_after, [place], None)
    with pytest.raises(ValueError, match="told twice"):
        QUICK.tell(KEY, part, outcomes[3:4], None)
    with pytest.raises(ValueError, match="told twice"):
        QUICK.tell(KEY, state, outcomes[:1] * 2, None)
    with pytest.raises(ValueError, match="generation 1 is being tried"):
        QUICK.tell(KEY, complete, outcomes[:1], None)


def test_no_outcomes_change_nothing(first):
    state = started(QUICK, first)
    assert QUICK.tell(KEY, state, [], None) is state


def test_an_individual_comes_back_to_its_slot_as_it_is_after_its_lesson(first, played):
    state = started(QUICK, first)
    outcome = played(QUICK, state, range(10))[6]
    learnt = jax.tree.map(lambda leaf: leaf + 0.5, outcome.individual.actor)
    outcome = replace(outcome, individual=Individual(learnt, outcome.individual.memory))
    after = QUICK.tell(KEY, state, [outcome], None)
    equal(trees.take(after.members.actor, 6), learnt)
    assert np.asarray(after.members.memory.size).tolist() == [0] * 6 + [3] + [0] * 3
    for k in (0, 5, 7, 9):
        equal(trees.take(after.members, k), trees.take(first, k))


def test_upcoming_are_the_first_members_that_were_not_tried(first, played):
    state = started(QUICK, first)
    equal(QUICK.upcoming(state, 3), [trees.take(first.actor, k) for k in (0, 1, 2)])
    outcomes = played(QUICK, state, range(10))
    state = QUICK.tell(KEY, state, [outcomes[k] for k in (1, 2, 5)], None)
    equal(QUICK.upcoming(state, 4), [trees.take(first.actor, k) for k in (0, 3, 4, 6)])
    assert len(QUICK.upcoming(state, 99)) == 7
