"""Gaussian (ERL) and Proximal (PDERL, Algorithm 2)."""

from functools import partial

import equinox as eqx
import jax
import numpy as np
import pytest

from genepool import buffer
from genepool.evolution.genetic.mutation import Gaussian, Proximal, sensitivity
from genepool.networks import Actor, Linear
from genepool.types import Individual, Transitions

KEY = jax.random.key(0)
equal = partial(jax.tree.map, np.testing.assert_array_equal)
leaves = jax.tree.leaves


def drawn(network):
    """The network with every leaf drawn from N(0, 1)."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), network)


# Gaussian mutation


@pytest.fixture(scope="module")
def family(memory):
    """A parent of HalfCheetah's sizes, and 500 of its children."""
    x = Individual(drawn(Actor(KEY, 17, 6)), memory(4, 3))
    children = jax.jit(lambda keys: jax.lax.map(lambda key: Gaussian()(key, x), keys))(jax.random.split(KEY, 500))
    return x, jax.tree.map(np.asarray, children)


def matrices(family):
    """For each weight matrix, [child, ...]: which weights differ from the parent's."""
    x, children = family
    return [z != w for z, w in zip(leaves(children.actor), leaves(x.actor), strict=True) if w.ndim == 2]


def test_gaussian_mutation_changes_weight_matrices_only_and_keeps_the_memory(family):
    x, children = family
    for before, after in zip(leaves(x.actor), leaves(children.actor), strict=True):
        assert (after != before).any() == (before.ndim == 2)
    equal(children.memory, jax.tree.map(lambda leaf: np.broadcast_to(leaf, (500, *leaf.shape)), x.memory))


def test_three_matrices_in_four_mutate_each_for_itself(family):
    mutated = np.stack([matrix.any(axis=(1, 2)) for matrix in matrices(family)])  # [matrix, child]
    np.testing.assert_allclose(mutated.mean(), 0.75, atol=0.045)  # 4 standard errors
    np.testing.assert_allclose(np.corrcoef(mutated) - np.eye(3), 0.0, atol=0.18)


def test_about_one_weight_in_28_changes(family):
    expected = 0.75 * (1 - (1 - np.exp(-0.1)) / 0.1)  # K < n / 10 hits miss a weight with exp(-K / n)
    np.testing.assert_allclose(expected, 0.036, atol=5e-4)
    shares = [matrix.mean(axis=(1, 2)) for matrix in matrices(family)]
    sizes = [matrix[0].size for matrix in matrices(family)]
    assert sizes == [17 * 128, 128 * 128, 128 * 6]
    np.testing.assert_allclose(np.mean(shares[1]), expected, atol=0.006)  # 4.5 standard errors
    np.testing.assert_allclose(np.average(np.mean(shares, axis=1), weights=sizes), expected, atol=0.006)
    assert 0.08 < np.max(shares[1]) <= 0.1  # at most the fraction


FRACTION = 0.05


@partial(jax.jit, static_argnums=4)
def relatives(value, strength, super_probability, reset_probability, n=300):
    """Children of a matrix of 64 x 64 equal weights."""
    part = Gaussian(FRACTION, strength, 10.0, super_probability, reset_probability)
    x = Individual((jax.numpy.full((64, 64), value),), None)
    return jax.lax.map(lambda key: part(key, x).actor[0], jax.random.split(KEY, n))


@pytest.mark.parametrize("strength", [0.1, 0.5])
@pytest.mark.parametrize("weight", [2.0, -0.01])
def test_the_usual_change_is_relative_to_the_weight_and_hits_no_more_than_the_fraction(weight, strength):
    change = np.asarray(relatives(weight, strength, 0.0, 0.0)) / weight - 1
    assert 0.8 * FRACTION < (change != 0).mean(axis=(1, 2)).max() <= FRACTION
    hit = change[change != 0]
    # one in fifty is hit twice, which adds to the variance
    assert 0.98 * strength < hit.std() < 1.04 * strength
    np.testing.assert_allclose(np.mean(np.abs(hit) < strength), 0.683, atol=0.02)  # as of a normal variable


def test_a_weight_of_zero_is_left_alone_by_the_usual_change():
    assert (np.asarray(relatives(0.0, 0.1, 0.0, 0.0)) == 0).all()


def test_a_rare_change_is_huge_and_a_reset_forgets_the_weight():

    def hits(*chances):
        return (w := np.asarray(relatives(100.0, 0.1, *chances)))[w != 100.0]

    np.testing.assert_allclose(np.median(np.abs(hits(1.0, 0.0) / 100 - 1)), 10 * 0.6745, rtol=0.05)  # normal quartile
    np.testing.assert_allclose(hits(0.0, 1.0).std(), 1.0, atol=0.03)
    mixed = hits(0.05, 0.05)
    np.testing.assert_allclose(np.mean(np.abs(mixed) < 5), 0.05, atol=0.01)  # resets
    np.testing.assert_allclose(np.mean(np.abs(mixed - 100) > 200), 0.05 * 0.84, atol=0.01)  # huge ones beyond 0.2 std


# Proximal mutation


@pytest.fixture(scope="module")
def parent(memory):
    return Individual(drawn(Actor(KEY, 3, 2, (8,))), memory(8, 6))


def proximal(x, sigma=0.1, clip=np.inf, biases=False):
    return compiled(x, sigma, clip, biases)


compiled = jax.jit(
    lambda x, sigma, clip, biases: Proximal(sigma, delta_clip=clip, biases=biases)(KEY, x), static_argnums=3
)


@partial(jax.jit, static_argnums=3)
def sensitivities(actor, states, real, reduce):
    return sensitivity(actor, states, real, reduce)


def naive(actor, states, join):
    """The double sum over actions k and states i, one gradient at a time."""
    gradient = jax.jit(jax.grad(lambda mu, s, k: mu(s)[k]))
    slopes = [[leaves(gradient(actor, s, k)) for s in states] for k in range(2)]
    joined = [[np.sum(join(np.stack(leaf)), axis=0) for leaf in zip(*of_action, strict=True)] for of_action in slopes]
    return [np.sqrt(sum(np.square(leaf) for leaf in of_leaf)) for of_leaf in zip(*joined, strict=True)]


@pytest.mark.parametrize(("reduce", "join"), [("sum", np.asarray), ("abs", np.abs)])
def test_sensitivity_equals_the_double_sum_of_equation_1(parent, rows, reduce, join):
    states = rows(32).observation
    real = np.arange(32) % 4 == 1
    ours = sensitivities(parent.actor, states, real, reduce)
    for s, expected in zip(leaves(ours), naive(parent.actor, states[real], join), strict=True):
        np.testing.assert_allclose(s, expected, rtol=1e-3, atol=1e-5)


def test_the_mean_sensitivity_does_not_depend_on_the_number_of_states(parent, rows):
    states = np.tile(rows(4).observation, (8, 1))
    few, many = (leaves(sensitivities(parent.actor, states, np.arange(32) < n, "mean")) for n in (4, 32))
    summed = leaves(sensitivities(parent.actor, states, np.ones(32, bool), "sum"))
    for s_few, s_many, s_sum in zip(few, many, summed, strict=True):
        np.testing.assert_allclose(s_few, s_many, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(s_many, s_sum * 256 / 32, rtol=1e-3, atol=1e-3)  # equal to the sum at 256 states


def linear(states, units=3000):
    """A linear policy s W + b that remembers these states: the sensitivity of row j of W is |sum_i s_ij|."""
    states = np.asarray(states, np.float32)
    n, size = states.shape
    layer = jax.tree.map(lambda leaf: 0 * leaf, Linear(np.random.default_rng(0), size, units))
    rest = np.zeros((n, units), np.float32), np.zeros(n, np.float32), states, np.zeros(n, np.float32)
    return Individual(layer, buffer.record(buffer.empty(4, size, units), Transitions(states, *rest)))


plain = jax.jit(Proximal(0.1))


def test_proximal_mutation_with_unit_sensitivity_is_gaussian():
    noise = plain(KEY, linear([[1.0, -1.0, 1.0, 1.0]])).actor.weight
    np.testing.assert_allclose(np.mean(noise), 0.0, atol=0.004)  # 4.5 standard errors
    np.testing.assert_allclose(np.std(noise), 0.1, rtol=0.03)
    np.testing.assert_allclose([np.mean(np.abs(noise) < 0.1 * z) for z in (1, 2)], [0.683, 0.954], atol=0.02)


def test_noise_is_divided_by_the_sensitivity_by_its_floor_or_by_one_for_a_dead_weight():
    noise = plain(KEY, linear([[3.0, 1e-3, 0.0, 1.0], [1.0, 1e-3, 0.0, -3.0]])).actor.weight
    np.testing.assert_allclose(np.std(noise, axis=1), 0.1 / np.array([4.0, 0.01, 1.0, 2.0]), rtol=0.06)


def test_without_sigma_the_child_is_the_parent(parent):
    equal(proximal(parent, sigma=0.0), parent)


def test_rows_of_the_memory_that_are_not_filled_do_not_count(parent):
    observations = np.array(parent.memory.data.observation)
    observations[6:] = 0.3
    stained = eqx.tree_at(lambda x: x.memory.data.observation, parent, observations)
    equal(proximal(stained).actor, proximal(parent).actor)


@pytest.mark.parametrize("biases", [False, True])
def test_biases_and_norms_mutate_only_when_asked_and_the_memory_is_kept_whole(parent, biases):
    child = proximal(parent, biases=biases)
    for before, after in zip(leaves(parent.actor), leaves(child.actor), strict=True):
        moved = np.asarray(before) != np.asarray(after)
        assert moved.all() if before.ndim == 2 or biases else not moved.any()
    equal(child.memory, parent.memory)


def test_no_weight_moves_further_than_the_clip(parent):
    free = proximal(parent).actor
    clipped = proximal(parent, clip=0.05).actor
    for w, unclipped, moved in zip(leaves(parent.actor), leaves(free), leaves(clipped), strict=True):
        np.testing.assert_allclose(moved - w, np.clip(unclipped - w, -0.05, 0.05), atol=1e-6)
    assert np.max(np.abs(free.output.weight - parent.actor.output.weight)) > 0.05
