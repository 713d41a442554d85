"""SAC's policy: its density, its draws, and its actions without noise."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tasks import Reach
from tiny_sac import KEY, new_actor, new_policy

import genepool
from genepool.networks import Linear, QNetwork, deterministic
from genepool.types import Candidate, Individual


def fixed(mean, log_std):
    """A policy of one action that has this mean and log std in every state."""
    policy = jax.tree.map(jnp.zeros_like, new_policy(sizes=(1, 1)))

    def heads(p):
        return (p.mean.output.bias, p.spread.bias)

    return eqx.tree_at(heads, policy, (jnp.array([mean]), jnp.array([log_std])))


def densities(policy, u):
    """Actions tanh(u) and log pi of each, where u = m + e^l noise."""
    m = float(policy.mean.output.bias[0])
    log_std = float(np.clip(policy.spread.bias[0], -20.0, 2.0))
    noise = ((u - m) / math.exp(log_std)).astype(np.float32)[:, None]
    return (np.asarray(x, np.float64) for x in policy.sample(np.zeros((len(u), 1), np.float32), noise))


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.4, -1.0), (-1.0, 0.5), (0.2, -3.0)])
def test_the_density_of_an_action_integrates_to_one(mean, log_std):
    u = mean + math.exp(log_std) * np.linspace(-8.0, 8.0, 20_001)
    a, log_pi = densities(fixed(mean, log_std), u)
    np.testing.assert_allclose(np.trapezoid(np.exp(log_pi), a.ravel()), 1.0, atol=2e-3)


def test_the_density_is_the_normal_s_by_change_of_variables():
    u = np.linspace(-4.0, 4.0, 101)
    a, log_pi = densities(fixed(0.3, -0.5), u)
    expected = stats.norm.logpdf(u, 0.3, math.exp(-0.5)) - np.log(1.0 - np.tanh(u) ** 2)
    np.testing.assert_allclose(a.ravel(), np.tanh(u), atol=1e-6)
    np.testing.assert_allclose(log_pi, expected, rtol=1e-4, atol=1e-4)


def test_the_density_is_finite_where_the_tanh_is_one_and_its_gradient_too():
    u = np.array([-60.0, -20.0, 20.0, 60.0])
    a, log_pi = densities(fixed(0.0, 0.0), u)
    np.testing.assert_array_equal(np.abs(a), 1.0)
    np.testing.assert_allclose(log_pi, stats.norm.logpdf(u) - 2 * (math.log(2.0) - np.abs(u)), rtol=1e-5)
    slope = jax.grad(lambda p: jnp.sum(p.sample(jnp.zeros((4, 1)), u[:, None])[1]))(fixed(0.0, 0.0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


def test_log_stds_are_kept_between_minus_20_and_2():
    noise = np.array([[0.1]], np.float32)

    def draw(log_std):
        return np.asarray(fixed(0.0, log_std).explore(np.zeros((1, 1)), noise))

    np.testing.assert_array_equal(draw(50.0), draw(2.0))
    np.testing.assert_array_equal(draw(-50.0), draw(-20.0))
    assert draw(2.0) > draw(1.0)


def test_the_density_of_several_actions_is_the_product_and_draws_have_it(rows):
    policy = new_policy()
    s = jnp.asarray(rows(1).observation[0])
    noise = np.random.default_rng(0).standard_normal((40_000, 2)).astype(np.float32)
    a, log_pi = jax.vmap(policy.sample, (None, 0))(s, noise)
    np.testing.assert_allclose(a, jax.vmap(policy.explore, (None, 0))(s, noise), atol=1e-6)
    # E[1 / pi(a)] over the draws is the volume of the square, where pi has all of it as its support; 4 standard errors
    inside = np.all(np.abs(a) < 0.9, axis=1)
    weights = np.where(inside, np.exp(-np.asarray(log_pi, np.float64)), 0.0)
    np.testing.assert_allclose(weights.mean(), 1.8**2, atol=4 * weights.std() / 200)


def test_without_noise_it_is_the_actor_it_was_built_around(rows):
    states = rows(20).observation
    policy = new_policy()
    np.testing.assert_array_equal(policy(states), new_actor()(states))
    np.testing.assert_allclose(policy.explore(states, np.zeros((20, 2))), policy(states), atol=1e-6)
    assert deterministic(policy) is policy.mean
    assert deterministic(policy.mean) is policy.mean
    assert policy.sizes == (3, 8, 8, 2)


def test_played_without_noise_it_earns_what_its_actor_earns():
    workers = genepool.LocalWorkers(genepool.sac(Reach).task)
    policy = new_policy(sizes=(1, 1))
    plays = [workers.map([Candidate(Individual(actor, None), (0, 1))])[0] for actor in (policy, policy.mean)]
    np.testing.assert_allclose(plays[0].returns, plays[1].returns, rtol=1e-5)


def test_xavier_s_weights_have_his_limit_and_no_bias():
    layer = Linear(np.random.default_rng(0), 100, 50, "xavier")
    limit = math.sqrt(6 / 150)
    assert not layer.bias.any()
    assert 0.99 * limit < np.abs(layer.weight).max() <= limit
    np.testing.assert_allclose(np.var(layer.weight), limit**2 / 3, rtol=0.05)
    network = QNetwork(KEY, 3, 2, (8, 8), initial="xavier")
    assert not any(layer.bias.any() for layer in (network.first, *network.hidden, network.output))
    assert np.abs(network.first_action).max() <= math.sqrt(6 / 13)
