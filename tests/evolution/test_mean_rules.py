"""AES-RL's mean rules, which say how far an individual moves the mean, against the equations and the authors' code."""

import numpy as np
import pytest

from genepool.evolution.distribution.asynchronous import (
    AbsoluteBaseline,
    FullMove,
    LinearRange,
    RelativeBaseline,
    SigmoidRange,
)

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
    assert rule(-3000.0, -1001.0, 2000.0) == 1.0  # next to the pole p is clipped
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
