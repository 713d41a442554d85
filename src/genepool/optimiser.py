"""Adam (Kingma and Ba 2015) for compiled loops on a CPU: optax's arithmetic in fewer, faster passes over the weights.

With optax a DDPG update took 3 to 5 % longer where it was measured (one AVX2 machine, one thread).
"""

from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class AdamState(NamedTuple):
    """First and second moments, and steps so far."""

    m: Any
    v: Any
    t: Array


def adam_init(weights: Any) -> AdamState:
    """No step taken."""
    zeros = jax.tree.map(jnp.zeros_like, weights)
    return AdamState(zeros, zeros, jnp.zeros((), jnp.int32))


@dataclass(frozen=True)
class Adam:
    """w <- w - rate m^ / (sqrt(v^) + 1e-8), of gradients whose global norm is clipped."""

    rate: float
    clip: float | None = None

    def step(self, weights: Any, gradient: Any, state: AdamState) -> tuple[Any, AdamState]:
        """The weights after one step."""
        scale = 1.0 if self.clip is None else self.clip / jnp.maximum(global_norm(gradient), self.clip)
        t = state.t + 1
        m_scale, v_scale = 1.0 / (1.0 - 0.9**t), 1.0 / (1.0 - 0.999**t)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * (scale * g), state.m, gradient)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * (scale * g) ** 2, state.v, gradient)
        move = lambda w, m, v: w - self.rate * (m * m_scale) / (jnp.sqrt(v * v_scale) + 1e-8)
        return jax.tree.map(move, weights, m, v), AdamState(m, v, t)


def global_norm(tree: Any) -> Array:
    """The root of the sum of all squares: down at most 32 rows first, then as a product, for XLA vectorises no other sums."""
    columns = [jnp.sum(leaf.reshape(gcd(leaf.size, 32), -1) ** 2, axis=0) for leaf in jax.tree.leaves(tree)]
    total = jax.lax.optimization_barrier(jnp.concatenate(columns))
    return jnp.sqrt((jnp.ones((2, total.size)) @ total)[0])  # with one row XLA would make it a plain sum again
