"""Policies that draw their actions: the Gaussian and the categorical of PPO, A2C and GPO, as callable pytrees.

What they are a distribution by, the mean and log std or the logits, is what their functions are given: it is computed once.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool.networks import ACTIVATIONS, Activation, Linear, sizes_of
from genepool.trees import host_random

MIN_LOG_STD = float(np.log(1e-6))


class Normal(NamedTuple):
    """Independent normal distributions, one for each number of an action."""

    mean: Array
    log_std: Array

    def log_prob(self, action: Array) -> Array:
        """log pi(a|s) = -sum [ (a - m)^2 / (2 s^2) + log s + log(2 pi) / 2 ]."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z**2 - self.log_std - 0.5 * np.log(2.0 * np.pi), axis=-1)

    def kl(self, other: "Normal") -> Array:
        """KL(self || other) = sum [ log(s'/s) + (s^2 + (m - m')^2) / (2 s'^2) - 1/2 ]."""
        spread = jnp.exp(2.0 * (self.log_std - other.log_std))
        apart = (self.mean - other.mean) ** 2 * jnp.exp(-2.0 * other.log_std)
        return jnp.sum(other.log_std - self.log_std + 0.5 * (spread + apart) - 0.5, axis=-1)

    def entropy(self) -> Array:
        """sum [ log s + log(2 pi e) / 2 ]."""
        return jnp.sum(jnp.broadcast_to(self.log_std, self.mean.shape) + 0.5 * np.log(2.0 * np.pi * np.e), axis=-1)


class Categorical(NamedTuple):
    """One of several actions. An action is the row of numbers whose largest decides (see `Spaces.to_environment`)."""

    logits: Array

    def log_prob(self, action: Array) -> Array:
        """log pi(a|s) of the action whose number is the largest; of equals the first."""
        chosen = jnp.argmax(action, axis=-1)
        return jnp.take_along_axis(jax.nn.log_softmax(self.logits), chosen[..., None], axis=-1)[..., 0]

    def kl(self, other: "Categorical") -> Array:
        """KL(self || other)."""
        own, others = jax.nn.log_softmax(self.logits), jax.nn.log_softmax(other.logits)
        return jnp.sum(jnp.exp(own) * (own - others), axis=-1)

    def entropy(self) -> Array:
        """-sum p log p."""
        own = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(own) * own, axis=-1)


class Scale(eqx.Module):
    """Mean and variance of the numbers seen so far, and how many those were (Chan et al. 1979)."""

    mean: Array
    variance: Array
    count: Array

    def __call__(self, x: Array) -> Array:
        """(x - mean) / std, within [-10, 10]. Nothing is learnt through it."""
        mean, variance = jax.lax.stop_gradient((self.mean, self.variance))
        return jnp.clip((x - mean) * jax.lax.rsqrt(variance + 1e-8), -10.0, 10.0)

    def seen(self, rows: Array) -> "Scale":
        """The scale after these rows, [n, ...]."""
        n, apart = rows.shape[0], jnp.mean(rows, axis=0) - self.mean
        count = self.count + n
        among = self.variance * self.count + jnp.var(rows, axis=0) * n
        return Scale(self.mean + apart * n / count, (among + apart**2 * self.count * n / count) / count, count)


def new_scale(size: int | tuple[int, ...]) -> Scale:
    """Nothing seen; the first rows decide."""
    return Scale(jnp.zeros(size), jnp.ones(size), jnp.full((), 1e-4))


class StochasticPolicy(eqx.Module):
    """A plain network that says how its actions are distributed: Gaussian with a std of its own, the same in all states (GPO), or
    categorical where actions are discrete. Without noise it takes the likeliest action.
    """

    hidden: tuple[Linear, ...]
    output: Linear
    log_std: Array | None  # none: the outputs are logits
    scale: Scale | None  # of observations, where they are normalised
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        key: Array,
        observation_size: int,
        action_size: int,
        hidden: Sequence[int] = (64, 64),
        discrete: bool = False,
        normalise: bool = False,
        activation: Activation = "tanh",
        output_scale: float = 1.0,
    ):
        rng, sizes = host_random(key), (observation_size, *hidden)
        self.hidden = tuple(Linear(rng, fan_in, fan_out, "xavier") for fan_in, fan_out in pairwise(sizes))
        output = Linear(rng, sizes[-1], action_size, "xavier")
        self.output = jax.tree.map(lambda leaf: output_scale * leaf, output)
        self.log_std = None if discrete else jnp.zeros(action_size)
        self.scale = new_scale(observation_size) if normalise else None
        self.activation = activation

    def __call__(self, s: Array) -> Array:
        """The likeliest action; of discrete ones, the logits, whose largest decides."""
        return self.distribution(s)[0]

    def distribution(self, s: Array) -> Normal | Categorical:
        """pi(.|s)."""
        s = s if self.scale is None else self.scale(s)
        for layer in self.hidden:
            s = ACTIVATIONS[self.activation](layer(s))
        y = self.output(s)
        return Categorical(y) if self.log_std is None else Normal(y, jnp.maximum(self.log_std, MIN_LOG_STD))

    def explore(self, s: Array, noise: Array) -> Array:
        """The action of a draw of `draw_noise`: m + s z, or by Gumbel's trick the largest of logits + noise. Further numbers of
        the draw are others' (an expert's).
        """
        found = self.distribution(s)
        own = noise[..., : found[0].shape[-1]]
        return found.logits + own if self.log_std is None else found.mean + jnp.exp(found.log_std) * own

    @property
    def sizes(self) -> tuple[int, ...]:
        """Observation size, hidden sizes, action size."""
        return sizes_of((*self.hidden, self.output))


def draw_noise(rng: np.random.Generator, shape: tuple[int, ...], discrete: bool) -> np.ndarray:
    """What actions are drawn by: standard normal numbers, or Gumbel's."""
    return (rng.gumbel(size=shape) if discrete else rng.standard_normal(shape)).astype(np.float32)
