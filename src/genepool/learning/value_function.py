"""The critic of PPO and A2C: V(s), fitted anew to the returns of each batch (GPO, 3.3.2)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool.networks import Activation, VNetwork
from genepool.optimiser import Adam, AdamState, adam_init
from genepool.parts import part
from genepool.trees import host_random

Orders = np.ndarray | Array | None  # NumPy's outside of compiled functions; None: a step takes all rows


class FittedCritic(eqx.Module):
    """A critic, and the scales of its inputs and outputs on the batch that it was last fitted to."""

    network: VNetwork
    optimiser: AdamState
    inputs: tuple[Array, Array]  # mean and std
    outputs: tuple[Array, Array]

    def __call__(self, s: Array) -> Array:
        """V(s)."""
        return self.outputs[0] + self.outputs[1] * self.network((s - self.inputs[0]) / self.inputs[1])


@part
class Critic:
    """V(s), fitted to the returns of each batch, with inputs and outputs standardised on it (rllab's baseline)."""

    hidden: tuple[int, ...] = (32, 32)  # units of the hidden layers
    activation: Activation = "tanh"  # of the hidden layers
    rate: float = 1e-3  # Adam's learning rate
    epochs: int = 10  # passes over the batch
    minibatches: int = 32  # gradient steps in an epoch

    def init(self, key: Array, observation_size: int) -> FittedCritic:
        """A critic before its first batch."""
        network = VNetwork(key, observation_size, self.hidden, self.activation, "xavier")
        inputs = jnp.zeros(observation_size), jnp.ones(observation_size)
        outputs = jnp.zeros(()), jnp.ones(())
        return FittedCritic(network, adam_init(network), inputs, outputs)

    def fit(self, orders: Orders, fitted: FittedCritic, s: Array, returns: Array) -> tuple[FittedCritic, Array]:
        """The critic after its steps on these returns, and its loss. `orders` are the rows of each step."""
        inputs = _mean_and_std(s)
        outputs = _mean_and_std(returns)
        x = (s - inputs[0]) / inputs[1]
        y = (returns - outputs[0]) / outputs[1]
        adam = Adam(self.rate)

        def loss(network: VNetwork, rows: Array | slice) -> Array:
            return jnp.mean((network(x[rows]) - y[rows]) ** 2)

        def step(k: Array, carry: tuple[VNetwork, AdamState]) -> tuple[VNetwork, AdamState]:
            network, state = carry
            return adam.step(network, jax.grad(loss)(network, rows_of_step(orders, k)), state)

        network, state = jax.lax.fori_loop(0, self.epochs * self.minibatches, step, (fitted.network, fitted.optimiser))
        return FittedCritic(network, state, inputs, outputs), loss(network, slice(None))


def _mean_and_std(x: Array) -> tuple[Array, Array]:
    return jnp.mean(x, axis=0), jnp.std(x, axis=0) + 1e-8


def rows_by_step(key: Array, n: int, epochs: int, minibatches: int) -> np.ndarray | None:
    """The rows of each gradient step, [steps, ...]: parts of a new shuffle in each epoch. None: a step takes all rows.

    NumPy shuffles, for XLA would sort random numbers, which is slow on a CPU.
    """
    if minibatches == 1:
        return None
    orders = host_random(key).permuted(np.tile(np.arange(n, dtype=np.int32), (epochs, 1)), axis=1)
    return orders[:, : n // minibatches * minibatches].reshape(epochs * minibatches, -1)


def rows_of_step(orders: Orders, step: Array) -> Array | slice:
    """The rows of one gradient step of a compiled loop."""
    return slice(None) if orders is None else jnp.asarray(orders)[step]
