"""Pytrees with a leading axis: stack, take, where. The little that JAX leaves out."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


def stack(trees: Sequence[Any]) -> Any:
    """Many trees as one with a leading axis. Done on the host: nothing is compiled for each number of trees."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *trees)


def take(tree: Any, index: int) -> Any:
    """Row `index` of every leaf, as a view on the host."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], tree)


def where(mask: Array, chosen: Any, other: Any) -> Any:
    """Row by row, `chosen` where the mask holds, else `other`."""
    pick = lambda a, b: jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b)
    return jax.tree.map(pick, chosen, other)


def flat(tree: Any) -> np.ndarray:
    """All leaves as one vector, layer by layer."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]).astype(np.float32, copy=False)


def unflat(vector: np.ndarray, like: Any) -> Any:
    """The vector as a tree of the same structure and shapes as `like`, of views on the host."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]
    parts = zip(np.split(vector, ends), leaves, strict=True)
    return jax.tree.unflatten(structure, [part.reshape(np.shape(leaf)) for part, leaf in parts])


def host_random(key: Array) -> np.random.Generator:
    """A NumPy generator that a JAX key determines, for the index logic that runs on the host."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
