"""Small functions on pytrees that JAX leaves out: stack, take, where, flat vectors, and random numbers on the host."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

T = TypeVar("T")  # a pytree


def map_leaves(f: Callable[[Array], Any], tree: T) -> T:
    """The tree with f of every leaf: `jax.tree.map` with its type."""
    return jax.tree.map(f, tree)


def map_pairs(f: Callable[[Array, Array], Array], tree: T, other: T) -> T:
    """A tree with f of every leaf and the other tree's: `jax.tree.map` with its type."""
    return jax.tree.map(f, tree, other)


def stack(trees: Sequence[T]) -> T:
    """Many trees as one with a leading axis. Done on the host, so that no new number of trees is compiled for."""

    def stacked(*leaves: Array) -> Array:
        return jnp.asarray(np.stack(leaves))

    return jax.tree.map(stacked, *trees)


def take(tree: T, index: int) -> T:
    """Row `index` of every leaf, as a view on the host."""
    return map_leaves(lambda leaf: np.asarray(leaf)[index], tree)


def where(mask: Array, chosen: T, other: T) -> T:
    """Row by row, `chosen` if the mask is true there, else `other`."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b)

    return map_pairs(pick, chosen, other)


def flat(tree: Any) -> np.ndarray:
    """All leaves as one vector, layer by layer."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]).astype(np.float32, copy=False)


def unflat(vector: np.ndarray, like: T) -> T:
    """The vector as a tree with the structure and shapes of `like`. Its leaves are views on the host."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]
    parts = zip(np.split(vector, ends), leaves, strict=True)
    return jax.tree.unflatten(structure, [part.reshape(np.shape(leaf)) for part, leaf in parts])


def host_random(key: Array) -> np.random.Generator:
    """A NumPy generator that is seeded by a JAX key, for random numbers that are drawn on the host."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
