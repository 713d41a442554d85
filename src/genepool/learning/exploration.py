"""Exploration noise, drawn before the episode so that it travels with the candidate."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from genepool.parts import part


@part
class OrnsteinUhlenbeck:
    """x <- x + theta (0 - x) + sigma N(0, I); the noise is scale x. As in ERL it is never reset between episodes."""

    theta: float = 0.15  # theta: pull towards zero
    sigma: float = 0.2  # sigma: std of each step's kick
    scale: float = 0.3  # size of the noise; its lasting std is about 0.114

    def draw(self, key: Array, last: Array, steps: int) -> Array:
        """`steps` rows of noise that follow the row `last`."""
        return _ornstein_uhlenbeck(self, key, last, steps)


@partial(jax.jit, static_argnums=(0, 3))
def _ornstein_uhlenbeck(process: OrnsteinUhlenbeck, key: Array, last: Array, steps: int) -> Array:
    kicks = process.scale * process.sigma * jax.random.normal(key, (steps, *last.shape))
    follow = lambda noise, kick: (noise + process.theta * (0.0 - noise) + kick,) * 2
    return jax.lax.scan(follow, jnp.asarray(last), kicks)[1]


@part
class GaussianNoise:
    """N(0, scale^2) on every action, each step's its own (TD3)."""

    scale: float = 0.1  # sigma: std, as a share of half the action range

    def draw(self, key: Array, last: Array, steps: int) -> Array:
        """`steps` rows of noise."""
        return self.scale * jax.random.normal(key, (steps, *last.shape))
