"""Layers whose leaves are arrays, and activations. Layers take one state or a batch of them.

Entry k along the last axis of every leaf belongs to unit k of the layer, so an operator can copy a complete unit.
"""

from collections.abc import Callable, Sequence
from typing import Literal, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool.networks.kernels import elu, layer_norm, leaky_relu, matmul

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "leaky_relu": leaky_relu,
    "elu": elu,
}
HOST_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # for NumPy arrays
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "leaky_relu": lambda x: np.maximum(x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0.0)) - 1.0),
}
Activation = Literal["tanh", "relu", "leaky_relu", "elu"]
Initial = Literal["fan_in", "xavier"]


def _affine(layer: "Linear | NormalisedLinear") -> Callable[[np.ndarray], np.ndarray]:
    """A function that computes x_k W_k + b_k for each of n layers, without JAX.

    `layer` holds all n, stacked: its weight is [n, in, out], its bias [n, out]. The function takes x as [n, in].
    """
    from genepool.networks.row_product import affine  # compiled by Numba: slow to import, and few runs need it

    w, b = cast(tuple[np.ndarray, np.ndarray], (layer.weight, layer.bias))  # NumPy's, where actors play in batches

    def values(x: np.ndarray) -> np.ndarray:
        y = np.empty(b.shape, np.float32)
        affine(x, w, b, y)
        return y

    return values


class Linear(eqx.Module):
    """y = x W + b. W and b are drawn from U(-1/sqrt(fan_in), 1/sqrt(fan_in)), or W by Xavier's rule with b = 0."""

    weight: Array  # [in, out]
    bias: Array  # [out]

    def __init__(self, rng: np.random.Generator, fan_in: int, fan_out: int, initial: Initial = "fan_in"):
        xavier = initial == "xavier"
        limit = (6.0 / (fan_in + fan_out)) ** 0.5 if xavier else fan_in**-0.5

        def uniform(*shape: int) -> Array:
            # drawn on the host: compiling a generator for every shape would take longer than a short training run
            return jnp.asarray(rng.uniform(-1.0, 1.0, shape) * limit, jnp.float32)

        self.weight = uniform(fan_in, fan_out)
        self.bias = jnp.zeros(fan_out) if xavier else uniform(fan_out)

    def __call__(self, x: Array) -> Array:
        """The units' values."""
        return matmul(x, self.weight) + self.bias

    def host_batch(self) -> Callable[[np.ndarray], np.ndarray]:
        """A function that does `__call__` without JAX, for n layers stacked in this one: row k of x is for layer k."""
        return _affine(self)


class NormalisedLinear(eqx.Module):
    """A linear layer followed by ERL's layer norm: gain (y - mean) / (std + 1e-6) + shift, with the unbiased std."""

    weight: Array  # [in, out]
    bias: Array
    gain: Array
    shift: Array

    def __init__(self, rng: np.random.Generator, fan_in: int, fan_out: int, initial: Initial = "fan_in"):
        linear = Linear(rng, fan_in, fan_out, initial)
        self.weight = linear.weight
        self.bias = linear.bias
        self.gain = jnp.ones(fan_out)
        self.shift = jnp.zeros(fan_out)

    def __call__(self, x: Array) -> Array:
        """The units' values."""
        return self.normalise(matmul(x, self.weight))

    def host_batch(self) -> Callable[[np.ndarray], np.ndarray]:
        """A function that does `__call__` without JAX, for n layers stacked in this one: row k of x is for layer k."""
        linear = _affine(self)
        gain = self.gain  # read once here: `values` is called often, and reading from a module is slow
        shift = self.shift
        n = self.bias.shape[-1]

        def values(x: np.ndarray) -> np.ndarray:
            y = linear(x)
            y -= y.mean(axis=1, keepdims=True)
            std = np.sqrt(np.maximum(np.vecdot(y, y) / (n - 1), 1e-20))
            return gain * (y / (std[:, None] + 1e-6)) + shift

        return values

    def normalise(self, y: Array) -> Array:
        """Bias and layer norm of y = x W."""
        return layer_norm(y + self.bias, self.gain, self.shift)


def sizes_of(layers: Sequence[Linear | NormalisedLinear]) -> tuple[int, ...]:
    """The inputs of the first layer, then the units of each layer."""
    return (layers[0].weight.shape[-2], *(layer.weight.shape[-1] for layer in layers))
