"""RankES: CEM's update on the latest results, after every outcome."""

import jax
import numpy as np
import pytest

from genepool.evolution.distribution.rank import RankES
from genepool.evolution.distribution.shared import Results

KEY = jax.random.key(0)
MU = np.array([1.0, -2.0, 0.5], np.float32)
LAMBDA = np.array([0.42954, 0.26337, 0.16617, 0.09720, 0.04371])  # of five elites


@pytest.fixture(scope="module")
def tried():
    """Twenty-five vectors around MU, with a fitness that is its number permuted."""
    rng = np.random.default_rng(3)
    return rng.normal(MU, 0.1, (25, 3)).astype(np.float32), rng.permutation(25).astype(float)


def after(part, tried, n):
    return part.tell(KEY, part.init(KEY, MU), Results(tried[0][:n], tried[1][:n]))


def test_nothing_moves_before_the_archive_is_full(tried):
    part = RankES()
    before = after(part, tried, 9)
    np.testing.assert_array_equal(before.mean, MU)
    np.testing.assert_array_equal(before.variance, part.init(KEY, MU).variance)
    assert float(before.epsilon) == 1e-3
    assert not np.array_equal(after(part, tried, 10).mean, MU)


@pytest.mark.parametrize("eta", [None, 0.3])
def test_the_rank_based_update_is_cems_with_a_step_of_one_nth(tried, eta):
    vectors, fitness = tried
    state = after(RankES(eta=eta), tried, 10)
    elites = vectors[np.argsort(-fitness[:10])[:5]]
    epsilon = 0.9**0.1 * 1e-3 + (1 - 0.9**0.1) * 1e-5
    np.testing.assert_allclose(state.mean, MU + (eta or 0.1) * (LAMBDA @ elites - MU), atol=1e-5)
    np.testing.assert_allclose(state.variance, LAMBDA @ (elites - MU) ** 2 / 5 + epsilon, rtol=1e-3)


def test_epsilon_decays_by_a_tenth_for_every_population_told(tried):
    vectors, fitness = (np.concatenate([column] * 3) for column in tried)
    series = [float(after(RankES(), (vectors, fitness), n).epsilon) - 1e-5 for n in (10, 20, 30)]
    np.testing.assert_allclose(series[1] / series[0], 0.9, rtol=1e-6)
    np.testing.assert_allclose(series[2] / series[1], 0.9, rtol=1e-6)


def test_the_oldest_is_replaced_however_good_it_was(tried):
    archive = after(RankES(), tried, 25).archive
    assert set(archive.fitness) == set(tried[1][15:25])


def test_with_replaces_worst_only_a_better_result_replaces_the_worst(tried):
    part = RankES(replaces="worst")
    full = after(part, tried, 10)
    worst = int(np.argmin(full.archive.fitness))
    low = float(full.archive.fitness.min())
    refused = part.tell(KEY, full, Results(tried[0][10:11], np.array([low - 1.0])))
    np.testing.assert_array_equal(refused.archive.fitness, full.archive.fitness)
    replaced = part.tell(KEY, full, Results(tried[0][10:11], np.array([low + 0.5])))
    assert replaced.archive.fitness[worst] == low + 0.5
    np.testing.assert_array_equal(replaced.archive.vectors[worst], tried[0][10])
    assert set(after(part, tried, 25).archive.fitness) == set(range(15, 25))  # only the ten best are kept
