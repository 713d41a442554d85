"""Mutation: a parent becomes a child. Gaussian (ERL) and Proximal (PDERL, Algorithm 2)."""

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from genepool import buffer
from genepool.errors import check_at_least
from genepool.parts import part
from genepool.protocols import Actor
from genepool.types import Individual


@part
class Gaussian:
    """ERL's mutation of weight matrices: noise relative to the weight on a few weights. Rarely it is huge, or a reset.

    Differs: the PDERL paper calls it additive noise on a fraction of the weights. We follow ERL's code.
    """

    fraction: float = 0.1  # of a matrix's weights, the largest share that is changed; the mean share is lower
    strength: float = 0.1  # std of the usual change, relative to the weight
    super_strength: float = 10.0  # std of the rare change, relative to the weight
    super_probability: float = 0.05
    reset_probability: float = 0.05  # the weight becomes N(0, 1)

    def __call__(self, key: Array, x: Individual) -> Individual:
        """The child of x."""
        leaves, structure = jax.tree.flatten(x.actor)
        keys = jax.random.split(key, len(leaves))
        mutated = [self._matrix(k, leaf) if leaf.ndim == 2 else leaf for k, leaf in zip(keys, leaves, strict=True)]
        return Individual(jax.tree.unflatten(structure, mutated), x.memory)

    def _matrix(self, key: Array, weights: Array) -> Array:
        k_chance, k_count, k_picks, k_hits = jax.random.split(key, 4)
        u, v = jax.random.uniform(k_chance, (2,))
        chosen = u < 2.0 * v  # the matrix mutates with probability 3/4
        most = max(1, math.ceil(self.fraction * weights.size))
        count = jax.random.randint(k_count, (), 0, most)
        picks = jax.random.randint(k_picks, (most,), 0, weights.size)  # with replacement: a weight may be hit again
        real = (jnp.arange(most) < count) & chosen
        hits = jnp.zeros(weights.size, jnp.int32).at[picks].add(real).reshape(weights.shape)

        def hit_once(carry: tuple[int | Array, Array]) -> tuple[int | Array, Array]:
            times, w = carry
            k_kind, k_noise = jax.random.split(jax.random.fold_in(k_hits, times))
            kind = jax.random.uniform(k_kind, w.shape)
            noise = jax.random.normal(k_noise, w.shape)
            huge = kind < self.super_probability
            reset = ~huge & (kind < self.super_probability + self.reset_probability)
            new = w + noise * jnp.abs(w) * jnp.where(huge, self.super_strength, self.strength)
            new = jnp.clip(jnp.where(reset, noise, new), -1e6, 1e6)
            return times + 1, jnp.where(hits > times, new, w)

        return jax.lax.while_loop(lambda carry: jnp.any(hits > carry[0]), hit_once, (0, weights))[1]


def sensitivity(actor: Actor, states: Array, real: Array, reduce: str = "sum") -> Any:
    """How much each weight moves the actions: s = sqrt(sum_k (sum_i grad mu(s_i)_k)^2), PDERL Eq. 1.

    `real` masks the rows of `states` that count. reduce="sum" is Eq. 1 (SM-G-SUM of Lehman et al. 2018).
    "mean" divides by the number of states and multiplies by 256, so that a short memory does not mean larger mutations.
    "abs" sums |grad| over the states (SM-G-ABS), so that opposite signs do not cancel.
    """
    if reduce == "abs":

        def add_state(total: Any, row: tuple[Array, Array]) -> tuple[Any, None]:
            s, weight = row

            def add(t: Array, g: Array) -> Array:
                return t + weight * jnp.abs(g)

            return jax.tree.map(add, total, _slopes(actor, s)), None

        zeros = jax.tree.map(jnp.zeros_like, _slopes(actor, states[0]))
        slopes = jax.lax.scan(add_state, zeros, (states, real.astype(jnp.float32)))[0]
    else:

        def total_actions(mu: Actor) -> Array:
            return real.astype(jnp.float32) @ mu(states)

        slopes = jax.jacrev(total_actions)(actor)
    scale = 256.0 / jnp.maximum(jnp.sum(real), 1) if reduce == "mean" else 1.0

    def over_actions(g: Array) -> Array:
        return scale * jnp.sqrt(jnp.sum(g**2, axis=0))

    return jax.tree.map(over_actions, slopes)


def _slopes(actor: Actor, state: Array) -> Any:
    """The gradients of the actions in one state, by weight."""

    def actions(mu: Actor) -> Array:
        return mu(state)

    return jax.jacrev(actions)(actor)


@part
class Proximal:
    """PDERL Algorithm 2: theta + x / s with x ~ N(0, sigma^2), so that the child acts much like its parent.

    Differs: like the authors' code, sigma is a standard deviation, and only weight matrices mutate. Like theirs, s is
    at least 0.01, and s = 0 counts as 1; otherwise the weights of a dead unit would become infinite.
    """

    sigma: float = 0.1  # sigma, the mutation magnitude (Table 4)
    batch_size: int = 256  # N_M, states that the sensitivity is measured on
    reduce: Literal["sum", "mean", "abs"] = "sum"  # how the states' gradients are combined; "sum" is Eq. 1
    floor: float = 0.01  # the least sensitivity
    biases: bool = False  # whether biases and layer norms mutate too
    delta_clip: float | None = None  # the largest change of a weight; none: no limit
    sigma_noise: float = 0.0  # std of noise on sigma, which is drawn for each child

    def __post_init__(self):
        check_at_least(1, self, "batch_size")

    def __call__(self, key: Array, x: Individual) -> Individual:
        """The child of x."""
        k_states, k_sigma, k_noise = jax.random.split(key, 3)
        rows, real = buffer.sample_distinct(k_states, x.memory, self.batch_size)  # 2
        s = sensitivity(x.actor, x.memory.data.observation[rows], real, self.reduce)  # 3
        s = jax.tree.map(self._floored, s)
        sigma = self.sigma + self.sigma_noise * jax.random.normal(k_sigma)
        weights, unravel = ravel_pytree(x.actor)
        noise = unravel(sigma * jax.random.normal(k_noise, weights.shape))
        return Individual(jax.tree.map(self._mutated, x.actor, noise, s), x.memory)  # 1, 4

    def _floored(self, s: Array) -> Array:
        return jnp.where(s == 0.0, 1.0, jnp.maximum(s, self.floor))

    def _mutated(self, w: Array, noise: Array, s: Array) -> Array:
        if w.ndim < 2 and not self.biases:
            return w
        delta = noise / s
        return w + (delta if self.delta_clip is None else jnp.clip(delta, -self.delta_clip, self.delta_clip))
