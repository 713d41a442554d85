"""Exploration noise. It is drawn before the episode, so that it travels with the candidate."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from genepool.parts import part


@part
class OrnsteinUhlenbeck:
    """x <- x + theta (0 - x) + sigma N(0, I); the noise is scale x. As in ERL, episodes do not reset it."""

    theta: float = 0.15  # theta: pull towards zero
    sigma: float = 0.2  # sigma: std of the change in a step
    scale: float = 0.3  # factor of the noise; its stationary std is about 0.114

    def draw(self, key: Array, last: Array, steps: int) -> Array:
        """`steps` rows of noise that continue from the row `last`."""
        return _ornstein_uhlenbeck(self, key, last, steps)


@partial(jax.jit, static_argnums=(0, 3))
def _ornstein_uhlenbeck(process: OrnsteinUhlenbeck, key: Array, last: Array, steps: int) -> Array:
    kicks = process.scale * process.sigma * jax.random.normal(key, (steps, *last.shape))

    def step(noise: Array, kick: Array) -> tuple[Array, Array]:
        noise = noise + process.theta * (0.0 - noise) + kick
        return noise, noise

    return jax.lax.scan(step, jnp.asarray(last), kicks)[1]


@part
class GaussianNoise:
    """Independent noise N(0, scale^2) on every action (TD3)."""

    scale: float = 0.1  # sigma: std, as a share of half the action range

    def draw(self, key: Array, last: Array, steps: int) -> Array:
        """`steps` rows of noise."""
        return self.scale * jax.random.normal(key, (steps, *last.shape))
