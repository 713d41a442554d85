"""Actors: deterministic policies of all systems, and SAC's squashed Gaussian."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool.networks.layers import (
    ACTIVATIONS,
    HOST_ACTIVATIONS,
    Activation,
    Initial,
    Linear,
    NormalisedLinear,
    sizes_of,
)
from genepool.trees import host_random


class Actor(eqx.Module):
    """mu(s): hidden layers, then a tanh output in [-1, 1]^|A|.

    ERL and PDERL use 128-128 with layer norm, CEM-RL and AES-RL 400-300 without. All of them use tanh units.
    """

    hidden: tuple[NormalisedLinear | Linear, ...]
    output: Linear
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        key: Array,
        observation_size: int,
        action_size: int,
        hidden: Sequence[int] = (128, 128),
        layer_norm: bool = True,
        activation: Activation = "tanh",
        initial: Initial = "fan_in",
    ):
        rng = host_random(key)
        sizes = (observation_size, *hidden)
        layer = NormalisedLinear if layer_norm else Linear
        self.hidden = tuple(layer(rng, fan_in, fan_out, initial) for fan_in, fan_out in pairwise(sizes))
        self.output = Linear(rng, sizes[-1], action_size, initial)
        self.activation = activation

    def __call__(self, s: Array) -> Array:
        """The action."""
        return jnp.tanh(self.output(self.features(s)))

    def features(self, s: Array) -> Array:
        """The units of the last hidden layer."""
        for layer in self.hidden:
            s = ACTIVATIONS[self.activation](layer(s))
        return s

    def explore(self, s: Array, noise: Array) -> Array:
        """The action with noise, kept within [-1, 1]."""
        return jnp.clip(self(s) + noise, -1.0, 1.0)

    def host_batch(self) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """`explore` without JAX, for n actors stacked in this one: row k of the states and noise is for actor k."""
        # methods are looked up once, for on a module that takes longer than a small product in NumPy
        hidden = [layer.host_batch() for layer in self.hidden]
        output = self.output.host_batch()
        activation = HOST_ACTIVATIONS[self.activation]

        def explore(s: np.ndarray, noise: np.ndarray) -> np.ndarray:
            with np.errstate(all="ignore"):  # no warnings of values that are not finite, as in XLA
                for layer in hidden:
                    s = activation(layer(s))
                return np.clip(np.tanh(output(s)) + noise, -1.0, 1.0)

        return explore

    @property
    def sizes(self) -> tuple[int, ...]:
        """Observation size, hidden sizes, action size."""
        return sizes_of((*self.hidden, self.output))

    @property
    def layer_norm(self) -> bool:
        """Whether the hidden layers are normalised."""
        return isinstance(self.hidden[0], NormalisedLinear)


class SquashedGaussian(eqx.Module):
    """SAC's policy: a = tanh(u), u ~ N(m(s), e^l(s)) with l within [-20, 2]. m is an actor's output before its tanh.

    Without noise the policy is that actor.
    """

    mean: Actor
    spread: Linear  # l, from the actor's last hidden layer

    def __init__(self, key: Array, mean: Actor, initial: Initial = "xavier"):
        self.mean = mean
        self.spread = Linear(host_random(key), mean.sizes[-2], mean.sizes[-1], initial)

    def __call__(self, s: Array) -> Array:
        """The action without noise."""
        return self.mean(s)

    def explore(self, s: Array, noise: Array) -> Array:
        """The action of a standard normal draw."""
        u, _ = self._draw(s, noise)
        return jnp.tanh(u)

    def sample(self, s: Array, noise: Array) -> tuple[Array, Array]:
        """The action a of a standard normal draw, and log pi(a|s) = sum [log N(u; m, e^l) - log(1 - tanh(u)^2)]."""
        u, log_std = self._draw(s, noise)
        log_slope = 2.0 * (jnp.log(2.0) - u - jax.nn.softplus(-2.0 * u))  # log(1 - tanh(u)^2), finite for any u
        log_pi = jnp.sum(-0.5 * noise**2 - log_std - 0.5 * jnp.log(2.0 * jnp.pi) - log_slope, axis=-1)
        return jnp.tanh(u), log_pi

    def _draw(self, s: Array, noise: Array) -> tuple[Array, Array]:
        x = self.mean.features(s)
        log_std = jnp.clip(self.spread(x), -20.0, 2.0)
        return self.mean.output(x) + jnp.exp(log_std) * noise, log_std

    @property
    def sizes(self) -> tuple[int, ...]:
        """Observation size, hidden sizes, action size."""
        return self.mean.sizes


def deterministic(policy: Actor | SquashedGaussian) -> Actor:
    """The policy without its noise."""
    return policy.mean if isinstance(policy, SquashedGaussian) else policy
