"""AES-RL's strategy: the mean rules and variance rules against their closed forms, and the rank-based one."""

import math
from dataclasses import replace

import jax
import numpy as np
import pytest

from genepool.errors import UserError
from genepool.evolution.asynchronous import (
    AbsoluteBaseline,
    AdaptiveN,
    AsynchronousES,
    FixedN,
    FullMove,
    LinearRange,
    RankES,
    RelativeBaseline,
    SigmoidRange,
    SuccessRule,
)
from genepool.evolution.distribution import Told

KEY = jax.random.key(0)
MU = np.array([1.0, -2.0, 0.5], np.float32)
Z = np.array([2.0, -2.5, 0.5], np.float32)
V = np.array([0.1, 0.2, 0.3], np.float32)


class Says:
    """A mean rule that says what it is told to, whatever the fitness."""

    def __init__(self, p):
        self.p = p

    def __call__(self, z, mu, scale):
        return self.p


def told(*rows):
    """Outcomes as (vector, fitness, fitness of the mean)."""
    vectors, fitness, reference = zip(*rows, strict=True)
    return Told(np.stack(vectors), np.array(fitness, float), np.array(reference, float))


def after(part, *rows, variance=V):
    """The state after these outcomes, from mean MU and this variance."""
    state = replace(part.init(KEY, MU), variance=np.asarray(variance, np.float32))
    return part.tell(KEY, state, told(*rows))


def moved(p, rule, **options):
    """The state after one outcome of which the mean rule says p."""
    options = {"variance_floor": 0.0} | options
    return after(AsynchronousES(mean_rule=Says(p), variance_rule=rule, **options), (Z, 0.0, 0.0))


# -- how far the mean moves

DIFFERENCES = (-1000, 0, 1000, 2000, 10_000)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (LinearRange(), (0, 0, 0.5, 1, 1)),
        (SigmoidRange(), (0.3775, 0.5, 0.6225, 0.7311, 0.9933)),
        (RelativeBaseline(), (0.3333, 0.5, 0.6, 0.6667, 0.8571)),
        (FullMove(), (0, 0, 1, 1, 1)),
    ],
    ids=lambda part: type(part).__name__ if not isinstance(part, tuple) else "",
)
def test_a_mean_rule_gives_the_values_of_the_authors_code_wherever_the_mean_stands(rule, expected):
    for mu in (0.0, -700.0, 5000.0):
        found = [rule(mu + difference, mu, 2000.0) for difference in DIFFERENCES]
        np.testing.assert_allclose(found, expected, atol=5e-5)


@pytest.mark.parametrize(
    ("z", "mu", "p"), [(6000, 5000, 0.5333), (12_000, 11_000, 0.5185), (4000, 5000, 0.4615), (4000, 12_000, 0.30)]
)
def test_the_absolute_rule_gives_the_values_of_the_authors_code(z, mu, p):
    np.testing.assert_allclose(AbsoluteBaseline()(z, mu, 2000.0), p, atol=5e-5)


def test_worse_individuals_attract_under_the_baseline_rules_of_the_code():
    np.testing.assert_allclose(RelativeBaseline()(-1000.0, 0.0, 2000.0), 1 / 3)
    assert RelativeBaseline()(-2000.0, 0.0, 2000.0) == RelativeBaseline()(-9000.0, 0.0, 2000.0) == 0.0


def test_the_linear_rule_moves_away_from_worse_individuals_by_p_minus():
    rule = LinearRange(p_plus=0.8, p_minus=0.5)
    np.testing.assert_allclose([rule(d, 0.0, 2000.0) for d in (-9000, -1000, 1000, 9000)], [-0.5, -0.25, 0.4, 0.8])


def test_the_printed_sigmoid_leaves_out_worse_individuals_or_weighs_them_with_p_minus():
    printed = SigmoidRange(signed=True)
    np.testing.assert_allclose(
        [printed(d, 0.0, 2000.0) for d in DIFFERENCES], (0, 0, 0.6225, 0.7311, 0.9933), atol=5e-5
    )
    np.testing.assert_allclose(SigmoidRange(signed=True, p_minus=0.1)(-1000.0, 0.0, 2000.0), 0.03775, atol=5e-6)


@pytest.mark.parametrize("difference", [-1e300, -1e7, 1e7, 1e300])
def test_the_sigmoid_survives_any_difference(difference):
    assert SigmoidRange()(difference, 0.0, 48.0) == float(difference > 0)


def test_the_absolute_rule_is_guarded_where_the_mean_is_not_above_the_baseline():
    rule = AbsoluteBaseline()
    assert rule(-2500.0, -3000.0, 2000.0) == 1.0  # both below it: a full move to what is better
    assert rule(-1999.0, -2001.0, 2000.0) == 1.0  # the code has 0 here, next to its pole
    assert rule(-3000.0, -2500.0, 2000.0) == 0.0
    assert rule(-2000.0, -2000.0, 2000.0) == 0.0  # 0/0 in the equation
    assert rule(-1000.0, -2000.0, 2000.0) == 1.0  # exactly on it
    assert rule(-2500.0, 0.0, 2000.0) == 0.0  # an individual below it never attracts


def test_the_printed_absolute_rule_may_be_negative_and_has_no_pole_left():
    rule = AbsoluteBaseline(printed=True)
    np.testing.assert_allclose(rule(6000, 5000, 2000.0), 0.5333, atol=5e-5)
    np.testing.assert_allclose(rule(-3000.0, 3000.0, 2000.0), -0.25)  # -1000 / (5000 - 1000)
    assert rule(-3000.0, -1000.0, 2000.0) == 0.0  # the pole: f(z) + f(mu) = 2 f_b
    assert rule(-3000.0, -1001.0, 2000.0) == 1.0  # beside it the clips
    assert rule(-3000.0, -999.0, 2000.0) == -1.0


def test_the_printed_relative_rule_moves_away_below_its_baseline_and_stops_at_the_cut_off():
    rule = RelativeBaseline(printed=True, p_minus=1.0)
    np.testing.assert_allclose(
        [rule(d, 0.0, 2000.0) for d in DIFFERENCES], (0.3333, 0.5, 0.6, 0.6667, 0.8571), atol=5e-5
    )
    np.testing.assert_allclose(rule(-2500.0, 0.0, 2000.0), -500 / 1500)  # between f_rb - f_b and f_rb
    assert rule(-3999.0, 0.0, 2000.0) == -1.0  # just above the pole, clipped
    assert rule(-4000.0, 0.0, 2000.0) == 0.0  # the pole itself
    assert rule(-4001.0, 0.0, 2000.0) == 0.0  # and beyond
    np.testing.assert_allclose(RelativeBaseline(True, p_minus=0.3)(-2500.0, 0.0, 2000.0), -0.1)
    assert RelativeBaseline(printed=True)(-2500.0, 0.0, 2000.0) == 0.0  # p- = 0 by default, as the code


def test_a_mean_rule_with_p_one_is_the_one_plus_one_es():
    """What is better is taken over whole, what is not leaves the mean: the same states, outcome after outcome."""
    rng = np.random.default_rng(0)
    rows = [(rng.normal(size=3).astype(np.float32), *rng.normal(size=2)) for _ in range(50)]
    steep, full = LinearRange(p_minus=0.0), FullMove()
    one, other = (after(AsynchronousES(mean_rule=rule, scale=1e-12), *rows) for rule in (steep, full))
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.variance, other.variance)
    best = [vector for vector, fitness, reference in rows if fitness > reference][-1]
    np.testing.assert_array_equal(other.mean, best)


@pytest.mark.parametrize("p", [0.0, 1e-4, 0.5, 1.0, -0.3])
def test_the_mean_moves_by_p_of_the_way_and_away_where_p_is_negative(p):
    np.testing.assert_allclose(moved(p, FixedN()).mean, MU + p * (Z - MU), rtol=1e-6)


# -- what becomes of the variance


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
    p, mu_after = 0.3, MU + 0.3 * (Z - MU)
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

WORSE, BETTER = (MU, 0.0, 1.0), (MU, 2.0, 1.0)
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


def test_told_one_by_one_equals_told_together():
    rng = np.random.default_rng(1)
    rows = [(rng.normal(size=3).astype(np.float32), *rng.normal(size=2)) for _ in range(12)]
    part = AsynchronousES(scale=1.0)
    one_by_one = part.init(KEY, MU)
    for row in rows:
        one_by_one = part.tell(KEY, one_by_one, told(row))
    together = part.tell(KEY, part.init(KEY, MU), told(*rows))
    jax.tree.map(np.testing.assert_array_equal, one_by_one, together)


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
def test_what_is_not_a_number_is_passed_over(part, row):
    if isinstance(part, RankES) and math.isfinite(row[1]) and np.isfinite(row[0]).all():
        return  # it compares with nothing
    good = [(Z, 1.0, 0.0), (MU + 0.1, 2.0, 1.5)]
    jax.tree.map(
        np.testing.assert_array_equal,
        part.tell(KEY, part.init(KEY, MU), told(good[0], row, good[1])),
        part.tell(KEY, part.init(KEY, MU), told(*good)),
    )


@pytest.mark.parametrize("options", [{"scale": 0.0}, {"initial_variance": -1.0}, {"population": 0}])
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(UserError):
        AsynchronousES(**options)


# -- the rank-based strategy

LAMBDA = np.array([0.42954, 0.26337, 0.16617, 0.09720, 0.04371])  # of five elites


@pytest.fixture(scope="module")
def tried():
    """Twenty-five vectors around MU, with a fitness that is its number permuted."""
    rng = np.random.default_rng(3)
    return rng.normal(MU, 0.1, (25, 3)).astype(np.float32), rng.permutation(25).astype(float)


def ranked(part, tried, n):
    return part.tell(KEY, part.init(KEY, MU), Told(tried[0][:n], tried[1][:n]))


def test_nothing_moves_before_the_archive_is_full(tried):
    part = RankES()
    before = ranked(part, tried, 9)
    np.testing.assert_array_equal(before.mean, MU)
    np.testing.assert_array_equal(before.variance, part.init(KEY, MU).variance)
    assert float(before.epsilon) == 1e-3
    assert not np.array_equal(ranked(part, tried, 10).mean, MU)


@pytest.mark.parametrize("eta", [None, 0.3])
def test_the_rank_based_update_is_cems_with_a_step_of_one_nth(tried, eta):
    state, vectors, fitness = ranked(RankES(eta=eta), tried, 10), *tried
    elites = vectors[np.argsort(-fitness[:10])[:5]]
    epsilon = 0.9**0.1 * 1e-3 + (1 - 0.9**0.1) * 1e-5
    np.testing.assert_allclose(state.mean, MU + (eta or 0.1) * (LAMBDA @ elites - MU), atol=1e-5)
    np.testing.assert_allclose(state.variance, LAMBDA @ (elites - MU) ** 2 / 5 + epsilon, rtol=1e-3)


def test_epsilon_decays_by_a_tenth_for_every_population_told(tried):
    vectors, fitness = (np.concatenate([column] * 3) for column in tried)
    series = [float(ranked(RankES(), (vectors, fitness), n).epsilon) - 1e-5 for n in (10, 20, 30)]
    np.testing.assert_allclose(series[1] / series[0], 0.9, rtol=1e-6)
    np.testing.assert_allclose(series[2] / series[1], 0.9, rtol=1e-6)


def test_the_oldest_is_replaced_however_good_it_was(tried):
    archive = ranked(RankES(), tried, 25).archive
    assert set(archive.fitness) == set(tried[1][15:25])


def test_under_the_other_rule_the_worst_is_replaced_by_what_is_better_and_by_nothing_else(tried):
    part = RankES(replaces="worst")
    full = ranked(part, tried, 10)
    worst, low = int(np.argmin(full.archive.fitness)), float(full.archive.fitness.min())
    refused = part.tell(KEY, full, Told(tried[0][10:11], np.array([low - 1.0])))
    np.testing.assert_array_equal(refused.archive.fitness, full.archive.fitness)
    taken = part.tell(KEY, full, Told(tried[0][10:11], np.array([low + 0.5])))
    assert taken.archive.fitness[worst] == low + 0.5
    np.testing.assert_array_equal(taken.archive.vectors[worst], tried[0][10])
    assert set(ranked(part, tried, 25).archive.fitness) == set(range(15, 25))  # only the ten best live on
