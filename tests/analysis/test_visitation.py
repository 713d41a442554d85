"""Where policies spend their time: densities with known divergences."""

import math

import numpy as np
import pytest

from genepool.analysis.operators.visitation import FLOOR, divergence, embed, first_two, on_window, window
from genepool.errors import UserError

A = np.zeros(2), np.array([1.0, 1.0])  # means and stds of two Gaussians
B = np.array([1.0, -0.5]), np.array([1.5, 0.8])


def drawn(gaussian, n=2_000, seed=0):
    mean, std = gaussian
    return mean + std * np.random.default_rng(seed).standard_normal((n, 2))


def known(p, q):
    """KL of two Gaussians whose dimensions are independent."""
    m, s = p
    n, t = q
    return float(np.sum(np.log(t / s) + (s**2 + (m - n) ** 2) / (2 * t**2) - 0.5))


@pytest.mark.parametrize(("p", "q"), [(A, B), (B, A)])
def test_the_divergence_of_two_gaussians_is_the_known_one_within_a_tenth(p, q):
    assert divergence(drawn(p), drawn(q, seed=1)) == pytest.approx(known(p, q), rel=0.1)


def test_the_scale_of_the_states_does_not_matter():
    p = drawn(A)
    q = drawn(B, seed=1)
    scale = np.array([1e3, 1e-3])
    assert divergence(p * scale, q * scale) == pytest.approx(divergence(p, q), rel=1e-6)


def test_a_policy_does_not_diverge_from_itself_and_hardly_from_its_other_episodes():
    assert divergence(drawn(A), drawn(A)) == 0.0
    assert 0.0 < divergence(drawn(A), drawn(A, seed=1)) < 0.03  # with 2,000 states


def test_policies_that_never_meet_diverge_by_a_number_that_the_floor_bounds():
    assert 20.0 < divergence(drawn(A), drawn(A, seed=1) + 1e3) < -math.log(FLOOR)


def test_a_policy_that_stands_still_has_a_density_too():
    still = np.ones((50, 2))
    assert divergence(still, still) == 0.0
    assert math.isfinite(divergence(drawn(A), still))
    assert math.isfinite(divergence(still, drawn(A)))


def test_a_window_holds_almost_all_of_a_density():
    points = drawn(B)
    x, y = window([points])
    area = (x[0, 1] - x[0, 0]) * (y[1, 0] - y[0, 0])
    assert np.sum(on_window(points, (x, y), points.std(axis=0))) * area == pytest.approx(1.0, abs=0.03)


def test_principal_components_are_the_directions_in_which_states_differ():
    rng = np.random.default_rng(0)
    states = {name: rng.standard_normal((30, 5)) for name in ("x", "y")}
    for rows in states.values():
        rows[:, 2:] = rows[:, :1]  # four of five numbers are the same
    points = embed(states, "pca")
    assert [len(rows) for rows in points.values()] == [30, 30]
    first = np.concatenate(list(states.values()))[:, 0]
    assert abs(np.corrcoef(np.concatenate(list(points.values()))[:, 0], first)[0, 1]) > 0.99


def test_t_sne_keeps_neighbours_together():
    rng = np.random.default_rng(0)
    points = embed({"x": rng.standard_normal((40, 4)), "y": 30.0 + rng.standard_normal((40, 4))}, "tsne", seed=0)
    apart = np.linalg.norm(points["x"].mean(axis=0) - points["y"].mean(axis=0))
    assert apart > 2 * max(points["x"].std(), points["y"].std())


def test_states_of_one_number_have_no_plane():
    with pytest.raises(UserError, match="no plane"):
        first_two(np.zeros((5, 1)))
