"""Critics: ERL's, which has a branch for states and one for actions, and the plain networks of TD3, SAC and PPO."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import equinox as eqx
from jax import Array

from genepool.networks.actors import Actor
from genepool.networks.kernels import elu, matmul
from genepool.networks.layers import ACTIVATIONS, Activation, Initial, Linear, NormalisedLinear
from genepool.trees import host_random, map_leaves

N = TypeVar("N", bound="Actor | BranchedCritic | QNetwork")


class BranchedCritic(eqx.Module):
    """Q(s, a): an ELU branch for states, one for actions, then an ELU layer on both (ERL, PDERL: 200 + 200, 300).

    The matrix of that pooled layer is kept in two halves, one for each branch: the actor's gradient needs only the
    action's half.
    """

    state: Linear
    action: Linear
    pooled: NormalisedLinear  # with the state's half of the matrix
    pooled_action: Array  # the action's half
    output: Linear

    def __init__(self, key: Array, observation_size: int, action_size: int, branch: int = 200, pooled: int = 300):
        rng = host_random(key)
        self.state = Linear(rng, observation_size, branch)
        self.action = Linear(rng, action_size, branch)
        # drawn as one layer on both branches, then its matrix is split
        both = NormalisedLinear(rng, 2 * branch, pooled)
        self.pooled = eqx.tree_at(lambda layer: layer.weight, both, both.weight[:branch])
        self.pooled_action = both.weight[branch:]
        self.output = Linear(rng, pooled, 1)

    def __call__(self, s: Array, a: Array) -> Array:
        """The value of action a in state s."""
        of_state = matmul(elu(self.state(s)), self.pooled.weight)
        of_action = matmul(elu(self.action(a)), self.pooled_action)
        return self.output(elu(self.pooled.normalise(of_state + of_action)))[..., 0]


class QNetwork(eqx.Module):
    """Q(s, a) of TD3, CEM-RL and AES-RL: a plain network on the concatenated state and action (400-300, leaky ReLU).

    The first matrix is kept in two halves: the actor's gradient needs only the action's half.
    """

    first: Linear  # with the state's half of the matrix
    first_action: Array  # the action's half
    hidden: tuple[Linear, ...]
    output: Linear
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        key: Array,
        observation_size: int,
        action_size: int,
        hidden: Sequence[int] = (400, 300),
        activation: Activation = "leaky_relu",
        initial: Initial = "fan_in",
    ):
        rng = host_random(key)
        # drawn as one layer on state and action, then its matrix is split
        both = Linear(rng, observation_size + action_size, hidden[0], initial)
        self.first = eqx.tree_at(lambda layer: layer.weight, both, both.weight[:observation_size])
        self.first_action = both.weight[observation_size:]
        self.hidden = tuple(Linear(rng, fan_in, fan_out, initial) for fan_in, fan_out in pairwise(hidden))
        self.output = Linear(rng, hidden[-1], 1, initial)
        self.activation = activation

    def __call__(self, s: Array, a: Array) -> Array:
        """The value of action a in state s."""
        act = ACTIVATIONS[self.activation]
        x = act(self.first(s) + matmul(a, self.first_action))
        for layer in self.hidden:
            x = act(layer(x))
        return self.output(x)[..., 0]


class VNetwork(eqx.Module):
    """V(s): a plain network on the state."""

    hidden: tuple[Linear, ...]
    output: Linear
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        key: Array,
        observation_size: int,
        hidden: Sequence[int] = (256, 256),
        activation: Activation = "relu",
        initial: Initial = "fan_in",
    ):
        rng = host_random(key)
        sizes = (observation_size, *hidden)
        self.hidden = tuple(Linear(rng, fan_in, fan_out, initial) for fan_in, fan_out in pairwise(sizes))
        self.output = Linear(rng, sizes[-1], 1, initial)
        self.activation = activation

    def __call__(self, s: Array) -> Array:
        """The value of state s."""
        for layer in self.hidden:
            s = ACTIVATIONS[self.activation](layer(s))
        return self.output(s)[..., 0]


def shrink_output(network: N, factor: float = 0.1) -> N:
    """The network with its output layer scaled down, as in ERL the learner's networks begin, not the population's."""
    smaller = map_leaves(lambda leaf: factor * leaf, network.output)
    return eqx.tree_at(lambda n: n.output, network, smaller)
