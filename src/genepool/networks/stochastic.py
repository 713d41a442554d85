"""Policies that draw their actions: the Gaussian and the categorical of PPO, A2C and GPO, as callable pytrees.

A policy gives a distribution, `Normal` or `Categorical`. Probability, KL and entropy are methods of the distribution:
the network is computed once for all of them.
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
from genepool.trees import host_random, map_leaves

MIN_LOG_STD = float(np.log(1e-6))


class Normal(NamedTuple):
    """Independent normal distributions, one for each number of an action."""

    mean: Array  # [..., |A|]
    log_std: Array  # [|A|], the same in all states

    def take(self, rows: Array | slice) -> "Normal":
        """The distributions of these rows of a batch."""
        return Normal(self.mean[rows], self.log_std)

    def log_prob(self, action: Array) -> Array:
        """log pi(a|s) = -sum [ (a - m)^2 / (2 s^2) + log s + log(2 pi) / 2 ]."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z**2 - self.log_std - 0.5 * np.log(2.0 * np.pi), axis=-1)

    def kl(self, other: "Normal | Categorical") -> Array:
        """KL(self || other) = sum [ log(s'/s) + (s^2 + (m - m')^2) / (2 s'^2) - 1/2 ]. Both are of one kind."""
        assert isinstance(other, Normal)
        spread = jnp.exp(2.0 * (self.log_std - other.log_std))
        apart = (self.mean - other.mean) ** 2 * jnp.exp(-2.0 * other.log_std)
        return jnp.sum(other.log_std - self.log_std + 0.5 * (spread + apart) - 0.5, axis=-1)

    def entropy(self) -> Array:
        """sum [ log s + log(2 pi e) / 2 ]."""
        return jnp.sum(jnp.broadcast_to(self.log_std, self.mean.shape) + 0.5 * np.log(2.0 * np.pi * np.e), axis=-1)


class Categorical(NamedTuple):
    """One of several actions. An action is a row of numbers, of which the largest decides (`Spaces.to_environment`)."""

    logits: Array  # [..., |A|]

    def take(self, rows: Array | slice) -> "Categorical":
        """The distributions of these rows of a batch."""
        return Categorical(self.logits[rows])

    def log_prob(self, action: Array) -> Array:
        """log pi(a|s) of the action with the largest number; of equals the first."""
        chosen = jnp.argmax(action, axis=-1)
        return jnp.take_along_axis(jax.nn.log_softmax(self.logits), chosen[..., None], axis=-1)[..., 0]

    def kl(self, other: "Normal | Categorical") -> Array:
        """KL(self || other). Both are of one kind."""
        assert isinstance(other, Categorical)
        own = jax.nn.log_softmax(self.logits)
        others = jax.nn.log_softmax(other.logits)
        return jnp.sum(jnp.exp(own) * (own - others), axis=-1)

    def entropy(self) -> Array:
        """-sum p log p."""
        own = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(own) * own, axis=-1)


class Scale(eqx.Module):
    """Mean, variance and count of all rows so far (Chan et al. 1979)."""

    mean: Array
    variance: Array
    count: Array

    def __call__(self, x: Array) -> Array:
        """(x - mean) / std, clipped to [-10, 10]. No gradient passes through mean and std."""
        mean, variance = jax.lax.stop_gradient((self.mean, self.variance))
        return jnp.clip((x - mean) * jax.lax.rsqrt(variance + 1e-8), -10.0, 10.0)

    def updated(self, rows: Array) -> "Scale":
        """The scale after these rows, [n, ...]."""
        n = rows.shape[0]
        difference = jnp.mean(rows, axis=0) - self.mean
        count = self.count + n
        squares = self.variance * self.count + jnp.var(rows, axis=0) * n
        variance = (squares + difference**2 * self.count * n / count) / count
        return Scale(self.mean + difference * n / count, variance, count)


def new_scale(size: int | tuple[int, ...]) -> Scale:
    """The scale before any row. Its count is so small that the first rows decide."""
    return Scale(jnp.zeros(size), jnp.ones(size), jnp.full((), 1e-4))


class StochasticPolicy(eqx.Module):
    """A plain network that gives the distribution of actions. Without noise it takes the likeliest action.

    The distribution is Gaussian with a learnt std that is the same in all states (GPO), or categorical if actions are
    discrete.
    """

    hidden: tuple[Linear, ...]
    output: Linear
    log_std: Array | None  # none: the outputs are logits
    scale: Scale | None  # of observations, if they are normalised
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
        rng = host_random(key)
        sizes = (observation_size, *hidden)
        self.hidden = tuple(Linear(rng, fan_in, fan_out, "xavier") for fan_in, fan_out in pairwise(sizes))
        output = Linear(rng, sizes[-1], action_size, "xavier")
        self.output = map_leaves(lambda leaf: output_scale * leaf, output)
        self.log_std = None if discrete else jnp.zeros(action_size)
        self.scale = new_scale(observation_size) if normalise else None
        self.activation = activation

    def __call__(self, s: Array) -> Array:
        """The likeliest action. For discrete actions these are the logits, of which the largest decides."""
        return self.distribution(s)[0]

    def distribution(self, s: Array) -> Normal | Categorical:
        """pi(.|s)."""
        s = s if self.scale is None else self.scale(s)
        for layer in self.hidden:
            s = ACTIVATIONS[self.activation](layer(s))
        y = self.output(s)
        return Categorical(y) if self.log_std is None else Normal(y, jnp.maximum(self.log_std, MIN_LOG_STD))

    def explore(self, s: Array, noise: Array) -> Array:
        """The action of a draw of `draw_noise`: m + s z, or by Gumbel's trick the largest of logits + noise.

        A draw may be wider than an action: an expert uses the last number to choose a parent.
        """
        found = self.distribution(s)
        own = noise[..., : found[0].shape[-1]]
        return found.logits + own if isinstance(found, Categorical) else found.mean + jnp.exp(found.log_std) * own

    @property
    def sizes(self) -> tuple[int, ...]:
        """Observation size, hidden sizes, action size."""
        return sizes_of((*self.hidden, self.output))


def draw_noise(rng: np.random.Generator, shape: tuple[int, ...], discrete: bool) -> np.ndarray:
    """The random numbers that actions are drawn by: standard normal, or Gumbel for discrete actions."""
    return (rng.gumbel(size=shape) if discrete else rng.standard_normal(shape)).astype(np.float32)
