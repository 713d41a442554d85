"""Automatic Mutation Tuning (ESAC 5.2, Appendix A): the Huber distance, the clip, raw and ranked returns."""

import numpy as np
import pytest

from genepool.errors import UserError
from genepool.evolution.distribution.mirrored import centred_ranks
from genepool.evolution.distribution.tuning import AutomaticMutationTuning, huber
from genepool.parts import words


def test_the_huber_distance_is_a_parabola_that_goes_on_as_a_line():
    assert huber(3.0, 2.5) == 0.125
    assert huber(0.0, 1.0) == 0.5
    assert huber(5.0, 1.0) == 3.5


def test_a_clipped_sigma_grows_on_a_line():
    sigma = 5e-3
    part = AutomaticMutationTuning()
    returns = np.array([100.0, 0.0])
    for j in range(1, 51):
        sigma, bound = part.step(sigma, returns, returns, 50, 5e-3)
        assert bound
        assert sigma == pytest.approx(5e-3 + j * 1e-4)


def test_an_unclipped_sigma_is_the_first_times_the_product_of_lambda():
    """Appendix A: Lambda_t = 1 + a_es / (n sigma_t^2) h_t."""
    rng = np.random.default_rng(0)
    part = AutomaticMutationTuning(clip=1e9)
    rate = 5e-3
    n = 50
    first = sigma = 5e-3
    product = 1.0
    for _ in range(20):
        returns = rng.normal(size=100)
        product *= 1.0 + rate / (n * sigma**2) * huber(returns.max(), returns.mean())
        sigma, bound = part.step(sigma, returns, returns, n, rate)
        assert not bound
        assert sigma == pytest.approx(first * product)


@pytest.mark.parametrize(
    ("n", "rate", "sigma", "step"), [(10, 5e-3, 5e-3, 1e-4), (50, 1e-2, 1e-2, 1e-4), (50, 1e-4, 5e-3, 5e-5)]
)
def test_of_shaped_returns_the_huber_distance_is_always_an_eighth(n, rate, sigma, step):
    returns = np.random.default_rng(0).normal(size=2 * n)
    new, _ = AutomaticMutationTuning(sees="ranked").step(sigma, returns, centred_ranks(returns), n, rate)
    assert new - sigma == pytest.approx(step, rel=0.01)


def test_the_tuning_still_goes_by_the_name_amt():
    assert words(AutomaticMutationTuning) == "amt"


def test_a_clip_of_nothing_is_refused_in_one_line():
    with pytest.raises(UserError, match="above 0; without tuning, take --tuning none"):
        AutomaticMutationTuning(clip=0.0)
