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


def host_random(key: Array) -> np.random.Generator:
    """A NumPy generator that a JAX key determines, for the index logic that runs on the host."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
