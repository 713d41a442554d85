"""The networks of ERL and PDERL against their formulas written naively."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genepool.networks import Actor, BranchedCritic, Linear, NormalisedLinear, elu, matmul, shrink_output

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def uniform(shape, seed=1):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, shape).astype(np.float32)


def randomised(network):
    """The network with every leaf drawn from U(-1, 1), so that gains and shifts matter too."""
    leaves, structure = jax.tree.flatten(network)
    return jax.tree.unflatten(structure, [uniform(leaf.shape, 2 + k) for k, leaf in enumerate(leaves)])


def layer_norm(layer, y):
    """Written naively: the unbiased deviation, the epsilon added to it and not to the variance."""
    y = np.asarray(y, float) + layer.bias
    return layer.gain * (y - y.mean()) / (y.std(ddof=1) + 1e-6) + layer.shift


def naive_elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def test_the_networks_have_as_many_parameters_as_the_authors():
    def count(network):
        return sum(leaf.size for leaf in jax.tree.leaves(network(KEY, 17, 6)))

    assert count(Actor) == 20_102
    assert count(BranchedCritic) == 126_201


def test_layer_norm_equals_the_naive_formula():
    layer = randomised(NormalisedLinear(RNG, 5, 128))
    x = uniform((5,))
    np.testing.assert_allclose(layer(x), layer_norm(layer, x @ layer.weight), atol=1e-5)


def test_layer_norm_adds_its_epsilon_to_the_deviation():
    layer = eqx.tree_at(lambda layer: layer.bias, randomised(NormalisedLinear(RNG, 1, 4)), np.zeros(4, np.float32))
    y = np.array([1.0, 2.0, 3.0, 4.0], np.float32) * 1e-6  # deviation as small as the epsilon
    np.testing.assert_allclose(layer.normalise(y), layer_norm(layer, y), atol=1e-5)


def test_layer_norm_of_equal_entries_has_a_finite_gradient():
    layer = randomised(NormalisedLinear(RNG, 1, 4))
    slope = jax.jit(jax.grad(lambda y: layer.normalise(y)[0]))(-layer.bias)
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("layer", [Linear, NormalisedLinear])
def test_weights_begin_uniform_within_the_root_of_fan_in(layer):
    fresh = layer(RNG, 25, 4000)
    bound = 1 / 5
    for leaf in (fresh.weight, fresh.bias):
        assert 0.99 * bound < np.max(np.abs(leaf)) <= bound
        np.testing.assert_allclose(np.std(leaf), bound / np.sqrt(3), rtol=0.03)
    if layer is NormalisedLinear:
        assert (fresh.gain == 1).all()
        assert (fresh.shift == 0).all()


@pytest.mark.parametrize("network", [Actor, BranchedCritic])
def test_shrinking_scales_the_output_layer_and_nothing_else(network):
    before = randomised(network(KEY, 4, 2))
    after = shrink_output(before)
    np.testing.assert_allclose(after.output.weight, 0.1 * before.output.weight, rtol=1e-6)
    np.testing.assert_allclose(after.output.bias, 0.1 * before.output.bias, rtol=1e-6)
    changed = jax.tree.map(lambda a, b: bool((a != b).any()), before, after)
    assert sum(jax.tree.leaves(changed)) == 2


def test_a_batch_gives_the_same_as_its_states_one_by_one():
    s = uniform((4, 6, 5))
    a = uniform((4, 6, 3), 9)
    for network, inputs in (
        (randomised(Actor(KEY, 5, 3, (16, 16))), (s,)),
        (randomised(BranchedCritic(KEY, 5, 3)), (s, a)),
    ):
        one = jax.jit(lambda *inputs, network=network: network(*inputs))
        batch = one(*inputs)
        for k in np.ndindex(4, 6):
            np.testing.assert_allclose(batch[k], one(*(x[k] for x in inputs)), atol=1e-5, rtol=1e-5)


def test_the_actor_equals_its_formula():
    actor = randomised(Actor(KEY, 5, 3, (16, 8)))
    s = uniform((5,))
    h = np.tanh(layer_norm(actor.hidden[0], s @ actor.hidden[0].weight))
    h = np.tanh(layer_norm(actor.hidden[1], h @ actor.hidden[1].weight))
    expected = np.tanh(h @ actor.output.weight + actor.output.bias)
    np.testing.assert_allclose(actor(s), expected, atol=1e-5)
    assert actor.sizes == (5, 16, 8, 3)


def test_an_exploring_actor_keeps_its_noisy_actions_within_bounds():
    actor = randomised(Actor(KEY, 5, 3, (16, 8)))
    s = uniform((5,))
    noise = np.array([5.0, -5.0, 0.01])
    np.testing.assert_allclose(actor.explore(s, noise), np.clip(actor(s) + noise, -1, 1), atol=1e-6)


def test_the_critic_equals_the_concatenated_formula():
    critic = randomised(BranchedCritic(KEY, 5, 3))
    s = uniform((5,))
    a = uniform((3,), 9)
    branches = [naive_elu(x @ branch.weight + branch.bias) for x, branch in ((s, critic.state), (a, critic.action))]
    weight = np.concatenate([critic.pooled.weight, critic.pooled_action])
    assert weight.shape == (400, 300)
    y = layer_norm(critic.pooled, np.concatenate(branches) @ weight)
    expected = naive_elu(y) @ critic.output.weight + critic.output.bias
    np.testing.assert_allclose(critic(s, a), expected[0], rtol=1e-4, atol=1e-4)


def test_the_halves_of_the_pooled_matrix_begin_as_one_layer_of_400_inputs():
    fresh = BranchedCritic(KEY, 5, 3)
    for half in (fresh.pooled.weight, fresh.pooled_action):
        assert 0.99 / 20 < np.max(np.abs(half)) <= 1 / 20


@pytest.mark.parametrize("shape", [(4,), (6, 4), (2, 3, 4)])
def test_the_gradient_of_our_product_is_that_of_the_plain_one(shape):
    x = uniform(shape)
    w = uniform((4, 3), 2)
    for ours, plain in zip(*(slopes(product)(x, w) for product in (matmul, jnp.matmul)), strict=True):
        np.testing.assert_allclose(ours, plain, atol=1e-5)


def test_the_gradient_of_a_stack_of_products_is_that_of_each():
    x = uniform((5, 6, 4))
    w = uniform((5, 4, 3), 2)
    for ours, plain in zip(*(jax.vmap(slopes(product))(x, w) for product in (matmul, jnp.matmul)), strict=True):
        np.testing.assert_allclose(ours, plain, atol=1e-5)


def slopes(product):
    return jax.jit(jax.grad(lambda x, w: jnp.sum(jnp.sin(product(x, w))), (0, 1)))


def test_our_elu_and_its_gradient_are_those_of_jax():
    x = np.array([-100.0, -5.0, -1e-3, -1e-7, 0.0, 1e-7, 0.3, 90.0, 1e4], np.float32)

    def both(f):
        return jax.jit(jax.vmap(jax.value_and_grad(f)))(x)

    np.testing.assert_allclose(both(elu), both(jax.nn.elu), atol=1e-6)
