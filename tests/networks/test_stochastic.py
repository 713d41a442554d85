"""Gaussian and categorical policies: probabilities, KL and its direction, and the scale of observations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genepool.networks.stochastic import Categorical, Normal, StochasticPolicy, draw_noise, new_scale


@pytest.fixture(scope="module")
def pair():
    rng = np.random.default_rng(0)

    def make():
        return Normal(rng.normal(size=3).astype(np.float32), rng.normal(scale=0.4, size=3).astype(np.float32))

    return make(), make()


def test_the_density_of_a_normal_policy_integrates_to_one():
    one = Normal(jnp.array([0.3]), jnp.array([-0.5]))
    grid = np.linspace(-8.0, 8.0, 4001, dtype=np.float32)[:, None]
    assert np.exp(one.log_prob(grid)).sum() * (grid[1, 0] - grid[0, 0]) == pytest.approx(1.0, abs=1e-4)


def test_the_closed_form_of_the_kl_is_its_monte_carlo_estimate_in_the_direction_that_is_named(pair):
    p, q = pair
    draws = p.mean + np.exp(p.log_std) * np.random.default_rng(1).normal(size=(200_000, 3)).astype(np.float32)
    estimate = float(np.mean(p.log_prob(draws) - q.log_prob(draws)))
    assert float(p.kl(q)) == pytest.approx(estimate, rel=0.02)  # 200,000 draws
    assert abs(float(p.kl(q)) - float(q.kl(p))) > 0.1  # so the direction could be told


def test_categorical_kl_entropy_and_probability_are_their_sums():
    p = Categorical(jnp.array([0.2, -1.0, 0.5]))
    q = Categorical(jnp.array([0.0, 0.3, -0.4]))
    a, b = (np.exp(d.logits) / np.exp(d.logits).sum() for d in (p, q))
    assert float(p.kl(q)) == pytest.approx(float(np.sum(a * np.log(a / b))), abs=1e-6)
    assert float(p.entropy()) == pytest.approx(float(-np.sum(a * np.log(a))), abs=1e-6)
    assert float(p.log_prob(jnp.array([-1.0, 3.0, 2.0]))) == pytest.approx(float(np.log(a[1])), abs=1e-6)


def test_the_entropy_of_a_normal_policy_is_minus_its_mean_log_probability(pair):
    p = pair[0]
    draws = p.mean + np.exp(p.log_std) * np.random.default_rng(2).normal(size=(200_000, 3)).astype(np.float32)
    assert float(p.entropy()) == pytest.approx(-float(np.mean(p.log_prob(draws))), abs=0.01)


@pytest.mark.parametrize("discrete", [False, True])
def test_exploring_draws_from_the_distribution_that_is_named(discrete):
    policy = StochasticPolicy(jax.random.key(0), 4, 3, (8,), discrete)
    s = jnp.array([0.1, -0.4, 0.9, 0.2])
    n = 20_000
    noise = draw_noise(np.random.default_rng(0), (n, 3), discrete)
    actions = np.asarray(jax.vmap(lambda z: policy.explore(s, z))(noise))
    found = policy.distribution(s)
    if discrete:
        shares = np.bincount(actions.argmax(axis=1), minlength=3) / n
        assert shares == pytest.approx(np.asarray(jax.nn.softmax(found.logits)), abs=0.015)
    else:
        assert actions.mean(axis=0) == pytest.approx(np.asarray(found.mean), abs=0.03)
        assert actions.std(axis=0) == pytest.approx(np.exp(np.asarray(found.log_std)), abs=0.03)


def test_without_noise_the_likeliest_action_is_taken():
    policy = StochasticPolicy(jax.random.key(0), 4, 3, (8,))
    s = jnp.ones(4)
    assert np.array_equal(policy(s), policy.explore(s, jnp.zeros(3)))


def test_a_scale_updated_in_parts_has_the_mean_and_variance_of_all():
    rows = np.random.default_rng(0).normal(3.0, 2.0, size=(500, 2)).astype(np.float32)
    scale = new_scale(2)
    for part in np.split(rows, [10, 200, 201]):
        scale = scale.updated(jnp.asarray(part))
    assert np.asarray(scale.mean) == pytest.approx(rows.mean(axis=0), abs=1e-3)
    assert np.asarray(scale.variance) == pytest.approx(rows.var(axis=0), rel=1e-3)


def test_nothing_is_learnt_through_the_scale_of_observations():
    policy = StochasticPolicy(jax.random.key(0), 4, 2, (8,), normalise=True)
    gradient = jax.grad(lambda p: jnp.sum(p(jnp.ones(4)) ** 2))(policy)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient.scale))
    assert np.any(gradient.output.weight)
