"""Adam (Kingma and Ba 2015) for compiled loops on a CPU: optax's arithmetic in fewer passes over the weights."""

from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from genepool.trees import map_pairs

W = TypeVar("W")  # weights: a pytree


class AdamState(NamedTuple):
    """The moments of the gradient, and how many steps were taken."""

    m: Any  # first moments
    v: Any  # second moments
    t: Array  # steps so far


def adam_init(weights: Any) -> AdamState:
    """The state before the first step."""
    zeros = jax.tree.map(jnp.zeros_like, weights)
    return AdamState(zeros, zeros, jnp.zeros((), jnp.int32))


@dataclass(frozen=True)
class Adam:
    """w <- w - rate m^ / (sqrt(v^) + 1e-8), where m^ and v^ are the moments corrected for their start at zero."""

    rate: float  # learning rate
    clip: float | None = None  # largest global norm of a gradient; a longer one is scaled down

    def step(self, weights: W, gradient: W, state: AdamState) -> tuple[W, AdamState]:
        """The weights after one step."""
        scale = 1.0 if self.clip is None else self.clip / jnp.maximum(global_norm(gradient), self.clip)
        t = state.t + 1
        m_scale = 1.0 / (1.0 - 0.9**t)
        v_scale = 1.0 / (1.0 - 0.999**t)
        m = map_pairs(lambda m, g: 0.9 * m + 0.1 * (scale * g), state.m, gradient)
        v = map_pairs(lambda v, g: 0.999 * v + 0.001 * (scale * g) ** 2, state.v, gradient)

        def move(w: Array, m: Array, v: Array) -> Array:
            return w - self.rate * (m * m_scale) / (jnp.sqrt(v * v_scale) + 1e-8)

        return jax.tree.map(move, weights, m, v), AdamState(m, v, t)


def global_norm(tree: Any) -> Array:
    """The root of the sum of all squares.

    XLA vectorises sums along columns, and matrix products, but no other sums. So each leaf is summed over at most 32
    rows, and the rest is a product with ones. The barrier keeps XLA from merging the two.
    """
    columns = [jnp.sum(leaf.reshape(gcd(leaf.size, 32), -1) ** 2, axis=0) for leaf in jax.tree.leaves(tree)]
    total = jax.lax.optimization_barrier(jnp.concatenate(columns))
    return jnp.sqrt((jnp.ones((2, total.size)) @ total)[0])  # two rows, for XLA would turn one into a plain sum
