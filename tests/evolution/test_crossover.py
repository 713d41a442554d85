"""RowCopy (ERL) and Distillation (PDERL, Algorithm 1). A unit is an entry along the last axis of a layer's leaves."""

from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genepool.evolution.genetic.crossover import Distillation, RowCopy, imitation_targets
from genepool.networks import shrink_output

equal = partial(jax.tree.map, np.testing.assert_array_equal)
leaves = jax.tree.leaves
MOVES = [RowCopy("rows"), RowCopy("units"), RowCopy("segments", points=3)]
each_move = pytest.mark.parametrize("part", MOVES, ids=lambda part: part.moves)


@pytest.fixture(scope="module")
def crossed(individual):
    """The first and second children of 3000 crossings of the same two parents, and the parents."""
    x = individual(1, hidden=(128,))
    y = individual(2, hidden=(128,))
    y = y._replace(actor=jax.tree.map(lambda leaf: leaf + 3.0, y.actor))  # fresh norms would be equal

    @cache
    def cross(part):
        children = jax.jit(lambda keys: jax.lax.map(lambda key: part(key, x, y), keys))
        return *jax.tree.map(np.asarray, children(jax.random.split(jax.random.key(0), 3000))), x, y

    return cross


def heritage(first, second, x, y):
    """Of both children, the units that are wholly from x and wholly from y, as trees of [crossing, unit]."""

    def all_from(child, parent):
        return (child == np.asarray(parent)).reshape(len(child), -1, child.shape[-1]).all(axis=1)

    return [[jax.tree.map(all_from, child.actor, parent.actor) for parent in (x, y)] for child in (first, second)]


@each_move
def test_each_unit_of_a_child_comes_whole_from_a_parent(crossed, part):
    for from_x, from_y in heritage(*crossed(part)):
        assert all((a ^ b).all() for a, b in zip(leaves(from_x), leaves(from_y), strict=True))


@each_move
def test_a_child_keeps_the_memory_of_the_parent_it_was_cloned_from(crossed, part):
    first, second, x, y = crossed(part)
    for child, parent in ((first, x), (second, y)):
        equal(child.memory, jax.tree.map(lambda leaf: np.broadcast_to(leaf, (3000, *leaf.shape)), parent.memory))


def test_rows_touch_56_percent_of_the_units_of_matrices_and_37_percent_of_the_entries_of_vectors(crossed):
    (_, first), (_, second) = heritage(*crossed(RowCopy()))

    def missed(n, most):
        # K < most copies miss a unit with (1 - 1/n)^K
        return np.mean((1 - 1 / n) ** np.arange(most))

    np.testing.assert_allclose([1 - missed(128, 256), 1 - missed(128, 128)], [0.56, 0.37], atol=0.01)
    for a, b, leaf in zip(leaves(first), leaves(second), leaves(crossed(RowCopy())[0].actor), strict=True):
        n = leaf.shape[-1]
        expected = 1 - missed(n, 2 * n if leaf.ndim == 3 else n)
        np.testing.assert_allclose(np.mean(a == b), expected, atol=0.025)  # 4.5 standard errors of 3000 draws


def test_a_touched_row_is_the_same_in_both_children_and_either_parent_s_alike(crossed):
    (_, first), (_, second) = heritage(*crossed(RowCopy()))
    for a, b in zip(leaves(first), leaves(second), strict=True):
        assert not (a & ~b).any()  # copied, never exchanged
        np.testing.assert_allclose(np.mean(a[a == b]), 0.5, atol=0.03)


def test_rows_move_weights_biases_and_norms_apart(crossed):
    (_, first), _ = heritage(*crossed(RowCopy()))
    layer = first.hidden[0]
    for a, b in ((layer.weight, layer.bias), (layer.bias, layer.gain), (layer.gain, layer.shift)):
        assert abs(np.corrcoef((a - a.mean(axis=1, keepdims=True)).ravel(), b.ravel())[0, 1]) < 0.02


@pytest.mark.parametrize("part", MOVES[1:], ids=lambda part: part.moves)
def test_units_and_segments_move_a_unit_whole(crossed, part):
    for _, from_y in heritage(*crossed(part)):
        for layer in (*from_y.hidden, from_y.output):
            for leaf in leaves(layer):
                np.testing.assert_array_equal(leaf, layer.weight)
            assert 0.2 < layer.weight.mean() < 0.8


def test_segments_lie_between_the_cuts_and_are_exchanged(crossed):
    (_, first), (_, second) = heritage(*crossed(MOVES[2]))
    for a, b in zip(leaves(first), leaves(second), strict=True):
        np.testing.assert_array_equal(a, ~b)
        assert (a[:, 1:] != a[:, :-1]).sum(axis=1).max() <= 3
    assert (first.output.bias[:, 0] != first.output.bias[:, 1]).any()


class Fan(eqx.Module):
    """A critic that prefers the actions of one actor. With `liking` 0 it has no preference; with NaN it is broken."""

    favourite: Any
    liking: Any = 1.0

    def __call__(self, s, a):
        return -self.liking * jnp.sum((a - self.favourite(s)) ** 2, axis=-1)


@partial(jax.jit, static_argnums=0)
def distil(part, key, x, y, critic):
    return part(key, x, y, critic)[0]


@pytest.fixture
def parents(individual):
    """Two parents that act differently, with memories of this many rows."""

    def make(n=600):

        def louder(x):
            return x._replace(actor=shrink_output(x.actor, 3.0))

        return louder(individual(1, n, 600)), louder(individual(2, n, 600))

    return make


act = jax.jit(lambda actor, states: actor(states))
KEY = jax.random.key(0)
FROM_X, FROM_Y = (Distillation(epochs=300, child_starts_from=start) for start in ("better", "worse"))


def difference(child, parent):
    """The mean difference of their actions in the states that the child remembers."""
    states = child.memory.data.observation
    return np.mean(np.abs(act(child.actor, states) - act(parent.actor, states))[: int(child.memory.size)])


def test_a_child_of_identical_parents_acts_like_them(parents):
    x, _ = parents()
    assert difference(distil(FROM_X, KEY, x, x, Fan(x.actor)), x) < 0.03  # the L2 term takes one part in 128


@pytest.mark.parametrize(("part", "better"), [(FROM_X, 1), (FROM_Y, 0)])
def test_a_child_imitates_the_parent_that_the_critic_prefers_everywhere(parents, part, better):
    favourite = parents()[better]
    start = parents()[1 - better]
    child = distil(part, KEY, *parents(), Fan(favourite.actor))
    assert difference(child, start) > 0.2
    assert difference(child, favourite) < 0.05


def test_targets_are_the_actions_of_the_parent_with_the_higher_value(parents):
    x, y = parents()
    states = x.memory.data.observation

    def critic(s, a):
        return jnp.sum(jnp.sin(7 * s[..., :2]) * a, axis=-1)

    targets = imitation_targets(x, y, critic, states)
    a_x = act(x.actor, states)
    a_y = act(y.actor, states)
    values = np.stack([critic(states, a_x), critic(states, a_y)])
    naive = [(a_x, a_y)[np.argmax(q)][k] for k, q in enumerate(values.T)]
    np.testing.assert_allclose(targets, naive, atol=1e-5)
    assert 0.2 < np.mean(values[0] > values[1]) < 0.8  # both are imitated


@pytest.mark.parametrize("liking", [0.0, np.nan], ids=["tie", "nan"])
def test_where_the_critic_is_indifferent_or_broken_the_second_parent_is_imitated(parents, liking):
    x, y = parents()
    child = distil(FROM_X, KEY, x, y, Fan(x.actor, liking))
    assert all(np.isfinite(leaf).all() for leaf in leaves(child.actor))
    assert difference(child, y) < 0.05


def test_a_full_memory_is_distilled_in_744_steps():
    sizes = [8000, 300, 128, 100, 1, 0]
    assert [int(Distillation().steps(size)) for size in sizes] == [744, 24, 12, 12, 12, 0]


def test_a_distilled_child_remembers_the_latest_half_of_both_parents(parents):
    (x, _) = parents(700)
    (_, y) = parents(200)
    memory = distil(FROM_X, KEY, x, y, Fan(x.actor)).memory
    rewards = np.asarray(memory.data.reward)[: int(memory.size)]
    assert sorted(rewards.tolist()) == [*range(1400, 1700), *range(2000, 2200)]


@pytest.mark.parametrize(("part", "start"), [(FROM_X, 0), (FROM_Y, 1)])
def test_a_child_with_nothing_to_remember_is_the_parent_it_starts_from(parents, part, start):
    x, y = parents(0)
    equal(distil(part, KEY, x, y, Fan(x.actor)).actor, (x, y)[start].actor)


def test_a_child_starts_from_either_parent_with_equal_chance_and_takes_all_of_it(parents):
    x, y = parents(0)
    start = jax.jit(lambda keys: jax.lax.map(lambda key: Distillation()(key, x, y, Fan(x.actor))[0].actor, keys))
    children = start(jax.random.split(KEY, 1000))
    from_x, from_y = (
        np.stack(
            [(c == p).reshape(1000, -1).all(axis=1) for c, p in zip(leaves(children), leaves(parent), strict=True)]
        )
        for parent in (x.actor, y.actor)
    )
    chosen = from_x[0]
    assert 0.43 < chosen.mean() < 0.57  # 4.5 standard errors
    assert from_x[:, chosen].all()
    assert from_y[:, ~chosen].all()


def test_the_loss_is_that_of_algorithm_1_and_averages_its_l2_term_as_asked():
    actions = jnp.array([[1.0, 0.0], [0.5, 0.5], [0.0, 2.0]])
    targets = jnp.array([[0.0, 0.0], [0.5, 0.0], [0.0, 1.0]])

    def loss(over):
        return float(Distillation(l2_over=over).loss(lambda s: actions, jnp.zeros((3, 4)), targets))

    # squared distances 1, 0.25 and 1; squared actions 1, 0.5 and 4 over 3 states of 2 dimensions
    np.testing.assert_allclose(loss("batch"), 2.25 + 5.5 / 3, rtol=1e-6)
    np.testing.assert_allclose(loss("elements"), 2.25 + 5.5 / 6, rtol=1e-6)
