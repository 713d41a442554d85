"""The ring of transitions: what it keeps, what it gives back, and what a child inherits."""

import jax
import numpy as np
import pytest

from genepool import buffer, trees
from genepool.types import Transitions


def contents(ring, n=None):
    """The newest rows of a ring, newest last."""
    places, real = buffer.latest(ring, n or ring.capacity)
    return Transitions(*(np.asarray(leaf)[np.asarray(places)[np.asarray(real)][::-1]] for leaf in ring.data))


def test_at_the_edge_the_oldest_rows_are_overwritten_first(memory, rows):
    ring = buffer.record(memory(5, 4), rows(3, first=4))
    np.testing.assert_array_equal(ring.data.reward, [5, 6, 2, 3, 4])
    assert (int(ring.size), int(ring.cursor)) == (5, 2)


def test_the_latest_rows_are_counted_backwards_around_the_edge(memory, rows):
    ring = buffer.record(memory(5, 4), rows(3, first=4))
    places, real = buffer.latest(ring, 4)
    np.testing.assert_array_equal(ring.data.reward[places], [6, 5, 4, 3])
    assert real.all()


def test_of_fewer_rows_than_asked_for_only_the_filled_ones_are_real(memory):
    places, real = buffer.latest(memory(5, 3), 5)
    np.testing.assert_array_equal(places[:3], [2, 1, 0])
    np.testing.assert_array_equal(real, [True, True, True, False, False])


@pytest.mark.parametrize("before", [0, 3, 5, 8])
def test_of_more_rows_than_fit_only_the_latest_are_kept(memory, rows, before):
    ring = buffer.record(memory(5, before), rows(13, first=before))
    jax.tree.map(
        np.testing.assert_array_equal, contents(ring), Transitions(*(leaf[-5:] for leaf in rows(13, first=before)))
    )


def test_recording_equals_a_list_that_forgets_its_oldest_rows(rows):
    rng = np.random.default_rng(0)
    capacity = 7
    n = 3
    first = 0
    rings = trees.stack([buffer.empty(capacity, 3, 2)] * n)
    alone = buffer.empty(capacity, 3, 2)
    lists = [[] for _ in range(n)]
    for _ in range(40):
        episodes = [rows(int(rng.integers(0, 17)), first + 100 * k) for k in range(n)]
        first += 1000
        rings = buffer.record_each(rings, episodes)
        alone = buffer.record(alone, episodes[0])
        for k, episode in enumerate(episodes):
            lists[k] = (lists[k] + list(zip(*episode, strict=True)))[-capacity:]
            ring = trees.take(rings, k)
            assert int(ring.size) == len(lists[k])
            for column, leaf in zip(zip(*lists[k], strict=True), contents(ring), strict=True):
                np.testing.assert_array_equal(leaf, column)
        jax.tree.map(np.testing.assert_array_equal, alone, trees.take(rings, 0))


@pytest.mark.parametrize("sizes", [(1, 1023, 1024, 1025), (1400, 10, 200)])
def test_padding_never_leaks_into_the_ring(sizes):
    ring = buffer.empty(1500, 3, 2)  # larger than the padding of a short episode
    for n in sizes:
        ring = buffer.record(ring, Transitions(*(np.ones((n, *leaf.shape[1:]), np.float32) for leaf in ring.data)))
    for leaf in ring.data:
        assert (leaf[: int(ring.size)] == 1).all()
        assert (leaf[int(ring.size) :] == 0).all()


def test_samples_are_uniform_over_the_filled_rows_and_come_from_no_other(memory):
    places = np.asarray(buffer.sample(jax.random.key(0), memory(10, 6), (300, 200)))
    counts = np.bincount(places.ravel(), minlength=10)
    assert (counts[6:] == 0).all()
    np.testing.assert_allclose(counts[:6] / 60_000, 1 / 6, atol=0.007)  # 4.5 standard errors


def test_distinct_samples_are_uniform_and_never_repeat(memory):
    draw = jax.jit(jax.vmap(lambda key, ring: buffer.sample_distinct(key, ring, 8), (0, None)))
    places, real = map(np.asarray, draw(jax.random.split(jax.random.key(0), 4000), memory(32, 20)))
    assert real.all()
    assert all(len(set(draw)) == 8 for draw in places.tolist())
    counts = np.bincount(places.ravel(), minlength=32)
    assert (counts[20:] == 0).all()
    np.testing.assert_allclose(counts[:20] / 4000, 8 / 20, atol=0.035)  # 4.5 standard errors


def test_a_distinct_sample_of_a_short_memory_is_all_of_it(memory):
    places, real = map(np.asarray, buffer.sample_distinct(jax.random.key(0), memory(32, 5), 8))
    assert sorted(places[real]) == [0, 1, 2, 3, 4]
    assert len(buffer.sample_distinct(jax.random.key(0), memory(4, 9), 8)[0]) == 4


@pytest.mark.parametrize("capacity", [8, 9])
@pytest.mark.parametrize(("n_x", "n_y"), [(20, 20), (4, 7), (3, 20), (20, 1), (0, 2), (0, 0)])
def test_a_child_remembers_the_latest_half_of_both_parents(memory, capacity, n_x, n_y):
    x = memory(capacity, n_x)
    y = memory(capacity, n_y, first=100)
    child = buffer.inherit(jax.random.key(1), x, y)
    halves = [contents(x, capacity // 2), contents(y, capacity // 2)]
    expected = {row[2].item(): row for half in halves for row in zip(*half, strict=True)}  # by reward, the row's number
    inherited = list(zip(*contents(child), strict=True))
    assert sorted(row[2].item() for row in inherited) == sorted(expected)
    for row in inherited:  # each row is inherited as it was
        jax.tree.map(np.testing.assert_array_equal, row, expected[row[2].item()])


def test_a_child_goes_on_where_its_inheritance_ends(memory, rows):
    child = buffer.inherit(jax.random.key(1), memory(9, 20), memory(9, 2, first=100))
    inherited = set(np.asarray(contents(child).reward).tolist())
    child = buffer.record(child, rows(3, first=500))
    assert set(contents(child).reward.tolist()) == inherited | {500, 501, 502}
    assert contents(child, 3).reward.tolist() == [500, 501, 502]


def test_an_inherited_memory_is_shuffled(memory):
    x = memory(8, 20)
    y = memory(8, 20, first=100)
    draw = jax.jit(jax.vmap(lambda key: buffer.inherit(key, x, y).data.reward))
    rewards = np.asarray(draw(jax.random.split(jax.random.key(0), 4000)))
    for reward in (16, 17, 18, 19, 116, 117, 118, 119):
        np.testing.assert_allclose((rewards == reward).mean(axis=0), 1 / 8, atol=0.024)  # 4.5 standard errors
