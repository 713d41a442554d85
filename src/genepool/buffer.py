"""A ring buffer of transitions. The replay and every genetic memory are one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool.trees import map_leaves, map_pairs
from genepool.types import Transitions


class Buffer(eqx.Module):
    """A ring of rows, in which the oldest is overwritten first."""

    data: Transitions  # [capacity, ...]
    size: Array  # rows that were written
    cursor: Array  # index of the row that is written next

    @property
    def capacity(self) -> int:
        """How many rows fit."""
        return self.data.reward.shape[-1]


def empty(capacity: int, observation_size: int, action_size: int) -> Buffer:
    """A ring without rows."""

    def zeros(*width: int) -> Array:
        return jnp.asarray(np.zeros((capacity, *width), np.float32))

    data = Transitions(zeros(observation_size), zeros(action_size), zeros(), zeros(observation_size), zeros())
    return Buffer(data, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def add(buffer: Buffer, rows: Transitions, count: Array) -> Buffer:
    """The ring with the first `count` of these rows added."""
    j = jnp.arange(rows.reward.shape[0])
    written = (j < count) & (j >= count - buffer.capacity)  # of more rows than fit, only the latest are kept
    index = jnp.where(written, (buffer.cursor + j) % buffer.capacity, buffer.capacity)  # the capacity: not written
    data = map_pairs(lambda ring, row: ring.at[index].set(row, mode="drop"), buffer.data, rows)
    return Buffer(data, jnp.minimum(buffer.size + count, buffer.capacity), (buffer.cursor + count) % buffer.capacity)


# donated, so that the ring is written in place: else every episode would copy a million rows
_add_in_place = jax.jit(add, donate_argnums=0)
_add_to_each = jax.jit(jax.vmap(add))


def padded(rows: Transitions, length: int) -> Transitions:
    """The rows with zeros appended, so that episodes of different lengths share one compiled program."""

    def pad(leaf: np.ndarray) -> np.ndarray:
        out = np.zeros((length, *leaf.shape[1:]), np.float32)
        out[: len(leaf)] = leaf
        return out

    return Transitions(*map(pad, rows))


def padded_length(count: int) -> int:
    """The least power of two that holds `count` rows, at least 1024."""
    return max(1024, 1 << (count - 1).bit_length())


def record(buffer: Buffer, rows: Transitions) -> Buffer:
    """The ring with these rows added in place. The ring that was given must not be used again."""
    count = len(rows.reward)
    return _add_in_place(buffer, padded(rows, padded_length(count)), count)


def record_each(buffers: Buffer, rows: list[Transitions]) -> Buffer:
    """A stack of rings, each with its own rows added."""
    counts = np.array([len(row.reward) for row in rows])
    length = padded_length(int(counts.max()))
    stacked = Transitions(*(np.stack(leaves) for leaves in zip(*(padded(row, length) for row in rows), strict=True)))
    return _add_to_each(buffers, stacked, counts)


def sample(key: Array, buffer: Buffer, shape: tuple[int, ...]) -> Array:
    """Indices of written rows, drawn uniformly with replacement."""
    return jax.random.randint(key, shape, 0, buffer.size)


def sample_distinct(key: Array, buffer: Buffer, n: int) -> tuple[Array, Array]:
    """Indices of `n` rows drawn without replacement, and which of them are real.

    If fewer rows were written, all of those are drawn, and the other indices are not real.
    """
    written = jnp.arange(buffer.capacity) < buffer.size
    priority = jnp.where(written, jax.random.uniform(key, (buffer.capacity,)), -1.0)
    indices = jax.lax.top_k(priority, min(n, buffer.capacity))[1]
    return indices, jnp.arange(indices.shape[0]) < buffer.size


def latest(buffer: Buffer, n: int) -> tuple[Array, Array]:
    """Indices of the `n` newest rows, newest first, and which of them are real: fewer may have been written."""
    age = jnp.arange(n)
    return (buffer.cursor - 1 - age) % buffer.capacity, age < buffer.size


def _rows_at(data: Transitions, indices: Array) -> Transitions:
    return map_leaves(lambda leaf: leaf[indices], data)


@jax.jit
def inherit(key: Array, x: Buffer, y: Buffer) -> Buffer:
    """A child's memory (PDERL Algorithm 1, 1-3): the latest rows of both parents, shuffled, up to half from each."""
    half = x.capacity // 2
    halves = [(memory.data, *latest(memory, half)) for memory in (x, y)]  # 1-2
    a, b = [_rows_at(data, indices) for data, indices, _ in halves]
    real = jnp.concatenate([real for _, _, real in halves])
    shuffled = jnp.where(real, jax.random.uniform(key, real.shape), 2.0)  # rows that are not real come last
    order = jnp.argsort(shuffled)  # 3
    joined = map_pairs(lambda a, b: jnp.concatenate([a, b])[order], a, b)
    spare = x.capacity - 2 * half
    data = map_leaves(lambda leaf: jnp.pad(leaf, [(0, spare)] + [(0, 0)] * (leaf.ndim - 1)), joined)
    size = jnp.sum(real, dtype=jnp.int32)
    return Buffer(data, size, size % x.capacity)
