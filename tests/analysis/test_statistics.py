"""Statistics over seeds: against known distributions, known answers and rliable's definitions."""

import itertools

import numpy as np
import pytest
import scipy.stats

from genepool.analysis.records.statistics import (
    bootstrap,
    differ,
    difference_of_means,
    interquartile_mean,
    interval,
    mean_improvement,
    probability_of_improvement,
    rank_test,
    seeds_needed,
    smallest_p,
    verdict,
)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 11, 16])
def test_the_interquartile_mean_is_the_mean_of_the_middle_half(n):
    scores = np.random.default_rng(n).normal(size=n)
    cut = n // 4
    assert interquartile_mean(scores) == pytest.approx(np.sort(scores)[cut : n - cut].mean())


def test_the_interquartile_mean_is_rliables_over_runs_and_tasks():
    scores = np.random.default_rng(0).gamma(2.0, size=(5, 7))  # runs, tasks
    assert interquartile_mean(scores) == scipy.stats.trim_mean(scores, proportiontocut=0.25, axis=None)
    assert interquartile_mean([0, 1, 2, 3, 4, 5, 6, 1000]) == 3.5


@pytest.mark.parametrize(("runs", "covered"), [(30, 0.94), (10, 0.90), (5, 0.85)])
def test_a_95_percent_interval_covers_the_true_mean_about_as_often_as_stated(runs, covered):
    # 1,000 experiments: the share is within 0.03 of what `bootstrap` states, four standard errors
    rng = np.random.default_rng(0)
    hits = 0
    for experiment in range(1_000):
        scores = rng.normal(3.0, 2.0, runs)
        low, high = bootstrap(np.mean, scores, resamples=500, seed=experiment)
        hits += low <= 3.0 <= high
    assert hits / 1_000 == pytest.approx(covered, abs=0.03)


def test_more_seeds_make_a_narrower_interval():
    scores = np.random.default_rng(1).normal(size=64)
    widths = [np.subtract(*interval(scores[:n])[::-1]) for n in (8, 16, 64)]
    assert widths[0] > widths[1] > widths[2] > 0


def test_one_seed_has_no_interval():
    assert np.isnan(interval([3.0])).all()
    assert np.isnan(interval(np.ones((1, 4)))).shape == (2, 4)


def test_the_runs_of_a_stratum_are_drawn_from_itself_alone():
    low, high = bootstrap(difference_of_means, np.full(5, 100.0), np.zeros(7))
    assert low == high == 100.0


def test_an_interval_is_the_same_every_time_and_lies_within_the_scores():
    scores = np.random.default_rng(2).normal(size=(6, 3))
    low, high = interval(scores, "interquartile mean")
    assert np.array_equal(interval(scores, "interquartile mean"), (low, high))
    assert (scores.min(axis=0) <= low).all()
    assert (low < high).all()
    assert (high <= scores.max(axis=0)).all()


def test_the_probability_of_improvement_counts_pairs_and_halves_ties():
    assert probability_of_improvement([3, 4], [1, 2]) == 1.0
    assert probability_of_improvement([1, 2], [1, 2]) == 0.5
    assert probability_of_improvement([1, 5], [2, 3, 4, 5]) == pytest.approx((0 + 3.5) / 8)
    rng = np.random.default_rng(3)
    x = rng.normal(size=9)
    y = rng.normal(size=5)
    assert probability_of_improvement(x, y) + probability_of_improvement(y, x) == pytest.approx(1.0)
    assert probability_of_improvement(x, y) == pytest.approx(scipy.stats.mannwhitneyu(x, y).statistic / 45)


def test_over_tasks_the_probability_is_the_mean_of_the_tasks_and_not_of_all_runs_mixed():
    easy = np.array([1000.0, 1001.0]), np.array([900.0, 901.0])  # x always wins
    hard = np.array([1.0]), np.array([2.0])  # and never
    assert mean_improvement(*easy, *hard) == 0.5


@pytest.mark.parametrize(("n", "m"), [*itertools.product(range(1, 6), repeat=2)])
def test_the_smallest_p_is_that_of_groups_wholly_apart(n, m):
    assert rank_test(np.arange(n) + 100.0, np.arange(m)) == pytest.approx(smallest_p(n, m))


def test_four_seeds_against_four_are_the_fewest_that_can_decide():
    assert seeds_needed() == 4
    assert smallest_p(3, 3) == pytest.approx(0.1)
    assert smallest_p(4, 4) == pytest.approx(2 / 70)


def test_of_groups_that_do_not_differ_few_are_found_to_differ():
    rng = np.random.default_rng(4)
    found = [rank_test(rng.normal(size=4), rng.normal(size=5)) < 0.05 for _ in range(150)]
    assert np.mean(found) <= 0.05 + 0.04  # two standard errors


def test_tied_scores_have_an_exact_p():
    # of the 20 ways to deal 1 1 1 2 2 2 in threes, only two are as far apart as this one
    assert rank_test([2, 2, 2], [1, 1, 1]) == pytest.approx(2 / 20)
    assert rank_test([1, 1], [1, 1]) == 1.0


def test_the_verdict_says_when_there_are_too_few_seeds_to_decide():
    said = verdict(differ([10, 11], [1, 2]), 2, 2, "pderl", "erl")
    assert said.startswith("2 against 2 seeds cannot decide")
    assert "0.33" in said
    assert "4 or more" in said


def test_the_verdict_names_the_better_and_never_proves_a_tie():
    rng = np.random.default_rng(5)
    worse = rng.normal(0, 1, 6)
    better = rng.normal(9, 1, 6)
    assert verdict(differ(worse, better), 6, 6, "erl", "pderl").startswith("pderl scores higher than erl (p = 0.0022")
    same = verdict(differ(worse, rng.normal(0, 1, 6)), 6, 6, "erl", "pderl")
    assert same.startswith("No difference is shown")
    assert "not to say that there is none" in same
