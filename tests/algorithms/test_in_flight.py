"""Candidates in flight: they are numbered; lost ones are issued again, doubled results are accepted once."""

from itertools import count, repeat
from types import SimpleNamespace

import numpy as np
import pytest

import genepool
from genepool.algorithms.in_flight import SPAN, Asked, draw_seeds, new_in_flight


def outcomes(*numbers, version=0):
    return [SimpleNamespace(candidate=SimpleNamespace(number=number, version=version)) for number in numbers]


def numbers_of(kept):
    return [outcome.candidate.number for outcome in kept]


def issued(register, n, kind=1, first_place=0):
    """The next n, new ones all of one kind with places in order; and the register with them out."""
    asked = register.upcoming(n, zip(repeat(kind), count(first_place)))
    return asked, register.issue(asked)


def numbers_issued(register, n):
    asked, register = issued(register, n)
    return [one.number for one in asked], register


def test_candidates_are_numbered_in_the_order_of_asking():
    register = new_in_flight(8)
    found = []
    for n in (3, 1, 0, 2):
        numbers, register = numbers_issued(register, n)
        found += numbers
    assert found == list(range(6))
    assert (int(register.asked), int(register.told_count)) == (6, 0)


def test_to_ask_who_is_next_issues_nothing():
    register = new_in_flight(8)
    once, twice = (register.upcoming(3, zip(repeat(1), count())) for _ in range(2))
    assert once == twice == [Asked(0, 1, 0, False), Asked(1, 1, 1, False), Asked(2, 1, 2, False)]
    assert int(register.asked) == 0


def test_only_a_part_of_those_upcoming_may_be_issued():
    register = new_in_flight(8)
    register = register.issue(register.upcoming(5, zip(repeat(1), count()))[:2])
    assert int(register.asked) == 2
    assert numbers_issued(register, 2)[0] == [2, 3]


def test_a_register_is_never_changed_in_place():
    register = new_in_flight(8)
    asked, out = issued(register, 4, kind=3)
    accepted = out.accept(outcomes(*range(4)))[1]
    lost = out.forget_workers()
    assert len(asked) == 4
    assert not register.out.any()
    assert (register.place == -1).all()
    assert out.out[:4].tolist() == [3, 3, 3, 3]
    assert out.place[:5].tolist() == [0, 1, 2, 3, -1]
    assert accepted.out[:4].tolist() == [0, 0, 0, 0]
    assert lost.out[:4].tolist() == [-3, -3, -3, -3]


def test_outcomes_are_kept_in_order_of_asking_and_each_once():
    register = issued(new_in_flight(8), 5)[1]
    kept, register = register.accept(outcomes(3, 1, 3))
    assert numbers_of(kept) == [1, 3]
    again, register = register.accept(outcomes(1, 0, 3))
    assert numbers_of(again) == [0]
    assert int(register.told_count) == 3


def test_a_doubled_outcome_is_accepted_once_whether_it_comes_at_once_or_later():
    register = issued(new_in_flight(8), 2)[1]
    first = outcomes(0)[0]
    second = outcomes(0)[0]
    kept, register = register.accept([first, second])
    assert len(kept) == 1
    assert not register.accept([second])[0]
    assert int(register.told_count) == 1


def test_what_was_never_asked_for_is_not_accepted():
    register = issued(new_in_flight(8), 2)[1]
    kept, after = register.accept(outcomes(2, 700))
    assert not kept
    assert int(after.told_count) == 0


def test_only_those_that_are_out_are_lost_and_they_are_issued_again_first_as_what_they_were():
    register = new_in_flight(8)
    kinds = [(1, 0), (2, 7), (1, 1), (1, 2), (3, -1), (1, 3)]
    register = register.issue(register.upcoming(6, iter(kinds)))
    register = register.accept(outcomes(0, 2, 3))[1].forget_workers()
    assert np.flatnonzero(register.out).tolist() == [1, 4, 5]
    asked, register = issued(register, 2)
    assert asked == [Asked(1, 2, 7, True), Asked(4, 3, -1, True)]
    asked, register = issued(register, 3, kind=1, first_place=4)
    assert asked == [Asked(5, 1, 3, True), Asked(6, 1, 4, False), Asked(7, 1, 5, False)]
    assert numbers_of(register.accept(outcomes(1, 4, 5, 6, 7))[0]) == [1, 4, 5, 6, 7]


def test_lost_ones_take_nothing_from_the_sequence_of_new_ones():
    register = issued(new_in_flight(8), 3)[1].forget_workers()
    places = count(3)
    register.upcoming(3, zip(repeat(1), places))
    assert next(places) == 3


def test_losing_twice_is_losing_once():
    register = issued(new_in_flight(8), 3)[1]
    once = register.forget_workers()
    np.testing.assert_array_equal(once.forget_workers().out, once.out)


def test_one_that_was_thought_lost_may_still_come_back_and_is_accepted_once():
    register = issued(new_in_flight(8), 2)[1]
    kept, register = register.forget_workers().accept(outcomes(0))
    assert numbers_of(kept) == [0]
    assert numbers_issued(register, 2)[0] == [1, 2]


def test_the_ring_wraps_around_and_an_outcome_from_before_it_is_refused():
    register = new_in_flight(8)
    asked = 0
    assert register.span == SPAN
    while asked < SPAN + 10:
        numbers, register = numbers_issued(register, 64)
        _, register = register.accept(outcomes(*numbers))
        asked += 64
    (number,), register = numbers_issued(register, 1)
    assert number == asked
    assert not register.accept(outcomes(number - SPAN))[0]  # it has the same entry
    assert numbers_of(register.accept(outcomes(number))[0]) == [number]
    assert numbers_issued(register.forget_workers(), 2)[0] == [number, number + 1]
    assert int(register.asked) == asked + 1


@pytest.mark.parametrize("generation", [1, 2_048, 2_049, 4_200, 10_000])
def test_there_is_room_for_two_generations(generation):
    register = new_in_flight(generation)
    assert register.span >= max(SPAN, 2 * generation)
    for first in (0, generation):  # the second is asked for while the first is out
        numbers, register = numbers_issued(register, generation)
        assert numbers == list(range(first, first + generation))
    assert numbers_of(register.accept(outcomes(*range(2 * generation)))[0]) == list(range(2 * generation))


def test_all_outcomes_of_a_generation_of_2100_pairs_are_accepted():
    numbers, register = numbers_issued(new_in_flight(4_200), 4_200)
    kept, register = register.accept(outcomes(*reversed(numbers)))
    assert numbers_of(kept) == list(range(4_200))
    assert int(register.told_count) == 4_200


def test_all_of_a_large_generation_that_were_lost_are_issued_again():
    register = issued(new_in_flight(4_200), 4_200, kind=2)[1].forget_workers()
    asked, register = issued(register, 4_200)
    assert asked == [Asked(number, 2, number, True) for number in range(4_200)]
    assert len(register.accept(outcomes(*range(4_200)))[0]) == 4_200


def test_to_ask_for_more_than_the_span_is_refused_in_one_line():
    register = new_in_flight(8)
    assert len(register.upcoming(SPAN, repeat((1, -1)))) == SPAN
    with pytest.raises(genepool.UserError, match=r"4,096 candidates .* not 4,097") as refusal:
        register.upcoming(SPAN + 1, repeat((1, -1)))
    assert len(str(refusal.value).splitlines()) == 1


def test_a_candidate_never_takes_the_entry_of_one_that_is_out():
    register = issued(new_in_flight(8), SPAN)[1]
    assert not register.upcoming(1, repeat((1, -1)))  # number 4096 has the entry of number 0
    register = register.accept(outcomes(0, 1, 3))[1]
    assert numbers_issued(register, 5)[0] == [SPAN, SPAN + 1]  # number 2 is still out


def test_staleness_counts_the_others_that_were_accepted_since_a_candidate_was_asked_for():
    register = issued(new_in_flight(8), 4)[1].accept(outcomes(2, 0))[1]
    register = issued(register, 1)[1]
    later = [*outcomes(1, 3), *outcomes(4, version=2)]
    assert register.accept(later)[1].staleness(later) == [2, 3, 2]


def test_seeds_are_drawn_one_per_episode():
    seeds = draw_seeds(np.random.default_rng(0), 5)
    assert len(set(seeds)) == 5
    assert all(type(seed) is int and 0 <= seed < 2**31 for seed in seeds)
    assert draw_seeds(np.random.default_rng(0), 0) == ()
