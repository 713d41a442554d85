"""AES-RL's strategy: the variance rules against their closed forms, asking and telling."""

import math
from dataclasses import replace

import jax
import numpy as np
import pytest

from genepool.errors import UserError
from genepool.evolution.distribution.asynchronous import (
    AdaptiveN,
    AsynchronousES,
    FixedN,
    FullMove,
    LinearRange,
    SuccessRule,
)
from genepool.evolution.distribution.rank import RankES
from genepool.evolution.distribution.shared import Results

KEY = jax.random.key(0)
MU = np.array([1.0, -2.0, 0.5], np.float32)
Z = np.array([2.0, -2.5, 0.5], np.float32)
V = np.array([0.1, 0.2, 0.3], np.float32)


class Says:
    """A mean rule that always returns p."""

    def __init__(self, p):
        self.p = p

    def __call__(self, z, mu, scale):
        return self.p


def results(*rows):
    """Results of rows (vector, fitness, fitness of the mean)."""
    vectors, fitness, reference = zip(*rows, strict=True)
    return Results(np.stack(vectors), np.array(fitness, float), np.array(reference, float))


def after(part, *rows, variance=V):
    """The state after these outcomes, from mean MU and this variance."""
    state = replace(part.init(KEY, MU), variance=np.asarray(variance, np.float32))
    return part.tell(KEY, state, results(*rows))


def moved(p, rule, **options):
    """The state after one outcome of which the mean rule says p."""
    options = {"variance_floor": 0.0} | options
    return after(AsynchronousES(mean_rule=Says(p), variance_rule=rule, **options), (Z, 0.0, 0.0))


# -- how far the mean moves


def test_a_mean_rule_with_p_one_is_the_one_plus_one_es():
    """A better individual becomes the mean, any other leaves it. Both rules give the same states."""
    rng = np.random.default_rng(0)
    rows = [(rng.normal(size=3).astype(np.float32), *rng.normal(size=2)) for _ in range(50)]
    steep = LinearRange(p_minus=0.0)
    full = FullMove()
    one, other = (after(AsynchronousES(mean_rule=rule, scale=1e-12), *rows) for rule in (steep, full))
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.variance, other.variance)
    best = [vector for vector, fitness, reference in rows if fitness > reference][-1]
    np.testing.assert_array_equal(other.mean, best)


@pytest.mark.parametrize("p", [0.0, 1e-4, 0.5, 1.0, -0.3])
def test_the_mean_moves_by_p_of_the_way_and_away_where_p_is_negative(p):
    np.testing.assert_allclose(moved(p, FixedN()).mean, MU + p * (Z - MU), rtol=1e-6)


# -- the variance rules


@pytest.mark.parametrize("p", [0.5, 0.25, 0.05, 1.0])
def test_the_fixed_rule_has_its_closed_form_element_by_element(p):
    expected = (1 - 1 / 10) * V + (1 - p) / 10 * (Z - MU) ** 2
    np.testing.assert_allclose(moved(p, FixedN(10)).variance, expected, rtol=1e-5)


@pytest.mark.parametrize("p", [0.05, 0.25, 0.499])
def test_the_adaptive_rule_has_its_closed_form_below_one_half(p):
    expected = (1 - 2 * p) / (1 - p) * V + p * (Z - MU) ** 2
    np.testing.assert_allclose(moved(p, AdaptiveN()).variance, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("p", [0.5, 0.75, 1.0])
def test_the_adaptive_rule_discards_the_old_variance_from_one_half_on(p):
    np.testing.assert_allclose(moved(p, AdaptiveN()).variance, (1 - p) * (Z - MU) ** 2, atol=1e-6)
    np.testing.assert_array_equal(moved(1.0, AdaptiveN(), variance_floor=1e-5).variance, np.full(3, 1e-5, np.float32))


@pytest.mark.parametrize("rule", [FixedN(), AdaptiveN()], ids=["fixed", "adaptive"])
@pytest.mark.parametrize("p", [0.0, 1e-4, 9.99e-4, -0.3, -1.0])
def test_a_p_that_is_small_or_negative_leaves_the_variance_alone(rule, p):
    np.testing.assert_array_equal(moved(p, rule).variance, V)


def test_equation_11_and_its_closed_form_are_the_same():
    p = 0.3
    mu_after = MU + 0.3 * (Z - MU)
    n = (1 - p) / p
    np.testing.assert_allclose(
        moved(p, AdaptiveN()).variance, V + ((Z - MU) * (Z - mu_after) - V) / n, rtol=1e-5, atol=1e-7
    )


def test_n_min_keeps_a_share_of_the_old_variance():
    found = moved(0.9, AdaptiveN(n_min=4.0)).variance
    np.testing.assert_allclose(found, 0.75 * V + 0.1 / 4 * (Z - MU) ** 2, rtol=1e-5)
    np.testing.assert_array_equal(moved(0.1, AdaptiveN(n_min=4.0)).variance, moved(0.1, AdaptiveN()).variance)  # n = 9


def test_no_variance_falls_below_the_floor_or_rises_above_the_cap():
    found = moved(0.5, AdaptiveN(), variance_floor=0.2, variance_cap=0.4).variance
    np.testing.assert_allclose(found, [0.4, 0.2, 0.2], rtol=1e-6)  # 0.5, 0.125, 0
    assert found.dtype == np.float32
    with pytest.raises(UserError, match="at most the cap"):
        AsynchronousES(variance_floor=1.0, variance_cap=0.5)


# -- the one-fifth rule

WORSE = (MU, 0.0, 1.0)
BETTER = (MU, 2.0, 1.0)
ONE_FIFTH = AsynchronousES(mean_rule=FullMove(), variance_rule=SuccessRule(), variance_floor=0.0)


def test_nothing_happens_to_the_variance_before_ten_outcomes():
    np.testing.assert_array_equal(after(ONE_FIFTH, *[BETTER] * 9).variance, V)
    np.testing.assert_allclose(after(ONE_FIFTH, *[BETTER] * 10).variance, V / 0.99, rtol=1e-6)


def test_the_variance_grows_only_above_one_fifth():
    np.testing.assert_allclose(after(ONE_FIFTH, *[WORSE] * 8, *[BETTER] * 2).variance, V * 0.99, rtol=1e-6)
    np.testing.assert_allclose(after(ONE_FIFTH, *[WORSE] * 7, *[BETTER] * 3).variance, V / 0.99, rtol=1e-6)


def test_the_window_of_successes_slides():
    found = after(ONE_FIFTH, *[WORSE] * 10, *[BETTER] * 20).variance  # shrinks at 10, 11 and 12 outcomes, then grows
    np.testing.assert_allclose(found, V * 0.99**3 / 0.99**18, rtol=1e-4)


def test_the_frozen_window_of_the_authors_code_does_not():
    frozen = replace(ONE_FIFTH, variance_rule=SuccessRule(frozen=True))
    found = after(frozen, *[WORSE] * 10, *[BETTER] * 200, variance=np.full(3, 1e-3)).variance
    np.testing.assert_allclose(found, 1e-3 * 0.99**201, rtol=1e-4)
    np.testing.assert_allclose(found, 1.3e-4, rtol=0.03)  # as the authors' class, executed


def test_an_equal_individual_is_no_success():
    np.testing.assert_allclose(after(ONE_FIFTH, *[(MU, 1.0, 1.0)] * 10).variance, V * 0.99, rtol=1e-6)


def test_the_success_rule_adapts_while_the_mean_stays():
    found = after(replace(ONE_FIFTH, mean_rule=Says(0.0)), *[WORSE] * 10)
    np.testing.assert_allclose(found.variance, V * 0.99, rtol=1e-6)


# -- asking and telling


def test_individuals_are_drawn_with_the_mean_and_the_variance_of_every_coordinate():
    part = AsynchronousES()
    state = replace(part.init(KEY, MU), variance=V)
    sample, same = part.ask(KEY, state, 20_000)
    assert same is state
    np.testing.assert_allclose(sample.mean(axis=0), MU, atol=0.015)  # about 4 standard errors
    np.testing.assert_allclose(sample.var(axis=0), V, rtol=0.05)
    np.testing.assert_array_equal(part.init(KEY, MU).variance, np.full(3, 1e-3, np.float32))


def test_results_told_one_by_one_equal_results_told_at_once():
    rng = np.random.default_rng(1)
    rows = [(rng.normal(size=3).astype(np.float32), *rng.normal(size=2)) for _ in range(12)]
    part = AsynchronousES(scale=1.0)
    one_by_one = part.init(KEY, MU)
    for row in rows:
        one_by_one = part.tell(KEY, one_by_one, results(row))
    at_once = part.tell(KEY, part.init(KEY, MU), results(*rows))
    jax.tree.map(np.testing.assert_array_equal, one_by_one, at_once)


@pytest.mark.parametrize(
    "row",
    [
        (Z, math.nan, 0.0),
        (Z, math.inf, 0.0),
        (Z, -math.inf, 0.0),
        (Z, 1.0, math.nan),
        (Z, 1.0, -math.inf),
        (np.array([0.0, np.nan, 0.0], np.float32), 1.0, 0.0),
        (np.array([0.0, np.inf, 0.0], np.float32), 1.0, 0.0),
    ],
)
@pytest.mark.parametrize("part", [AsynchronousES(scale=1.0), ONE_FIFTH, RankES(population=2)], ids=["", "1/5", "rank"])
def test_results_that_are_not_finite_are_skipped(part, row):
    if isinstance(part, RankES) and math.isfinite(row[1]) and np.isfinite(row[0]).all():
        return  # RankES uses no reference
    good = [(Z, 1.0, 0.0), (MU + 0.1, 2.0, 1.5)]
    jax.tree.map(
        np.testing.assert_array_equal,
        part.tell(KEY, part.init(KEY, MU), results(good[0], row, good[1])),
        part.tell(KEY, part.init(KEY, MU), results(*good)),
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scale": 0.0}, "scale is 0.0"),
        ({"initial_variance": -1.0}, "the initial variance 0 or more"),
        ({"population": 0}, "population is 0: a strategy needs 1 individual or more"),
        ({"reference_episodes": 0}, "reference_episodes is 0: it must lie between 1 and 64"),
        ({"reference_episodes": 65}, "reference_episodes is 65: it must lie between 1 and 64"),
    ],
)
def test_invalid_settings_are_refused_by_name(options, said):
    with pytest.raises(UserError, match=said):
        AsynchronousES(**options)
    with pytest.raises(UserError, match="population is 1: a strategy needs 2"):
        RankES(population=1)


def test_a_part_remembers_which_fields_were_given():
    assert AsynchronousES(FullMove(), scale=1.0).given == {"mean_rule", "scale"}
    assert SuccessRule().given == frozenset()
