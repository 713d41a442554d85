"""The roll: numbers in order of asking, the lost asked again, the doubled told once."""

from types import SimpleNamespace

import numpy as np

from genepool.algorithms.roll import SPAN, draw_seeds, new_roll


def outcomes(*numbers):
    return [SimpleNamespace(candidate=SimpleNamespace(number=number)) for number in numbers]


def numbers_of(kept):
    return [outcome.candidate.number for outcome in kept]


def test_candidates_are_numbered_in_the_order_of_asking():
    roll, called = new_roll(), []
    for n in (3, 1, 0, 2):
        numbers, roll = roll.call(n)
        called += numbers
    assert called == list(range(6))
    assert (int(roll.asked), int(roll.told)) == (6, 0)


def test_a_roll_is_never_changed_in_place():
    roll = new_roll()
    numbers, called = roll.call(4)
    told = called.accept(outcomes(*numbers))[1]
    lost, marked = called.lose(), called.mark(2, 3)
    assert not roll.out.any()
    assert called.out[:4].tolist() == [1, 1, 1, 1]
    assert told.out[:4].tolist() == [0, 0, 0, 0]
    assert lost.out[:4].tolist() == [-1, -1, -1, -1]
    assert marked.out[:4].tolist() == [1, 1, 3, 1]


def test_outcomes_are_kept_in_order_of_asking_and_each_once():
    _, roll = new_roll().call(5)
    kept, roll = roll.accept(outcomes(3, 1, 3))
    assert numbers_of(kept) == [1, 3]
    again, roll = roll.accept(outcomes(1, 0, 3))
    assert numbers_of(again) == [0]
    assert int(roll.told) == 3


def test_what_was_never_asked_for_is_not_told():
    _, roll = new_roll().call(2)
    kept, after = roll.accept(outcomes(2, 700))
    assert not kept
    assert int(after.told) == 0


def test_only_those_that_are_out_are_lost_and_they_are_asked_again_first_with_their_numbers():
    _, roll = new_roll().call(6)
    roll = roll.mark(1, 2).mark(4, 3).accept(outcomes(0, 2, 3))[1].lose()
    assert np.flatnonzero(roll.out).tolist() == [1, 4, 5]
    assert [roll.kind(number) for number in (0, 1, 4, 5)] == [0, 2, 3, 1]  # what each was out as is still known
    numbers, roll = roll.call(2)
    assert numbers == [1, 4]
    numbers, roll = roll.call(3)
    assert numbers == [5, 6, 7]
    assert numbers_of(roll.accept(outcomes(1, 4, 5, 6, 7))[0]) == [1, 4, 5, 6, 7]


def test_losing_twice_is_losing_once():
    _, roll = new_roll().call(3)
    np.testing.assert_array_equal(roll.lose().lose().out, roll.lose().out)


def test_one_that_was_thought_lost_may_still_come_back_and_is_told_once():
    _, roll = new_roll().call(2)
    kept, roll = roll.lose().accept(outcomes(0))
    assert numbers_of(kept) == [0]
    numbers, roll = roll.call(2)
    assert numbers == [1, 2]


def test_the_span_wraps_around_and_an_outcome_from_before_it_is_refused():
    roll, asked = new_roll(), 0
    while asked < SPAN + 10:
        numbers, roll = roll.call(64)
        _, roll = roll.accept(outcomes(*numbers))
        asked += 64
    (number,), roll = roll.call(1)
    assert number == asked
    assert not roll.accept(outcomes(number - SPAN))[0]  # it has the same place
    assert numbers_of(roll.accept(outcomes(number))[0]) == [number]
    assert roll.lose().call(2)[0] == [number, number + 1]
    assert int(roll.asked) == asked + 1


def test_seeds_are_drawn_one_per_episode():
    seeds = draw_seeds(np.random.default_rng(0), 5)
    assert len(set(seeds)) == 5
    assert all(type(seed) is int and 0 <= seed < 2**31 for seed in seeds)
    assert draw_seeds(np.random.default_rng(0), 0) == ()
