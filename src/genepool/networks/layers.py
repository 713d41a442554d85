"""Layers with array leaves only, and activations. Entry k along the last axis of every leaf belongs to unit k of the layer.

An operator may therefore move a unit whole. Layers take one state or a batch of them.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool.networks.kernels import elu, layer_norm, leaky_relu, matmul

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu, "leaky_relu": leaky_relu, "elu": elu}
HOST_ACTIVATIONS = {  # of NumPy's arrays
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "leaky_relu": lambda x: np.maximum(x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0.0)) - 1.0),
}
Activation = Literal["tanh", "relu", "leaky_relu", "elu"]
Initial = Literal["fan_in", "xavier"]


def _affine(layer: "Linear | NormalisedLinear") -> Callable[[np.ndarray], np.ndarray]:
    """What makes x W + b of several layers on the host, a state for each: all have a leading axis."""
    from genepool.networks.row_product import affine  # here, for it takes a second that only those wait who need it

    w, b = layer.weight, layer.bias

    def values(x: np.ndarray) -> np.ndarray:
        y = np.empty(b.shape, np.float32)
        affine(x, w, b, y)
        return y

    return values


class Linear(eqx.Module):
    """y = x W + b, with W and b drawn from U(-1/sqrt(fan_in), 1/sqrt(fan_in)), or as Xavier has it and without bias."""

    weight: Array  # [in, out]
    bias: Array  # [out]

    def __init__(self, rng: np.random.Generator, fan_in: int, fan_out: int, initial: Initial = "fan_in"):
        xavier = initial == "xavier"
        limit = (6.0 / (fan_in + fan_out)) ** 0.5 if xavier else fan_in**-0.5
        # drawn on the host: compiling a generator for every shape would take longer than a short training run
        uniform = lambda *shape: jnp.asarray(rng.uniform(-1.0, 1.0, shape) * limit, jnp.float32)
        self.weight, self.bias = uniform(fan_in, fan_out), jnp.zeros(fan_out) if xavier else uniform(fan_out)

    def __call__(self, x: Array) -> Array:
        """The units' values."""
        return matmul(x, self.weight) + self.bias

    def host_batch(self) -> Callable[[np.ndarray], np.ndarray]:
        """The same on the host, of several layers with a state for each: all have a leading axis."""
        return _affine(self)


class NormalisedLinear(eqx.Module):
    """A linear layer followed by ERL's layer norm: gain (y - mean) / (std + 1e-6) + shift, with the unbiased std."""

    weight: Array  # [in, out]
    bias: Array
    gain: Array
    shift: Array

    def __init__(self, rng: np.random.Generator, fan_in: int, fan_out: int, initial: Initial = "fan_in"):
        linear = Linear(rng, fan_in, fan_out, initial)
        self.weight, self.bias = linear.weight, linear.bias
        self.gain, self.shift = jnp.ones(fan_out), jnp.zeros(fan_out)

    def __call__(self, x: Array) -> Array:
        """The units' values."""
        return self.normalise(matmul(x, self.weight))

    def host_batch(self) -> Callable[[np.ndarray], np.ndarray]:
        """The same on the host, of several layers with a state for each: all have a leading axis."""
        linear, gain, shift, n = _affine(self), self.gain, self.shift, self.bias.shape[-1]

        def values(x: np.ndarray) -> np.ndarray:
            y = linear(x)
            y -= y.mean(axis=1, keepdims=True)
            std = np.sqrt(np.maximum(np.vecdot(y, y) / (n - 1), 1e-20))
            return gain * (y / (std[:, None] + 1e-6)) + shift

        return values

    def normalise(self, y: Array) -> Array:
        """Bias and layer norm, of a product that was already taken."""
        return layer_norm(y + self.bias, self.gain, self.shift)


def sizes_of(layers: Sequence[Linear | NormalisedLinear]) -> tuple[int, ...]:
    """What goes into the first layer, and the units of each."""
    return (layers[0].weight.shape[-2], *(layer.weight.shape[-1] for layer in layers))
