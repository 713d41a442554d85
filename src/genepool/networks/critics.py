"""Critics: ERL's, with a branch for states and one for actions, and the plainer ones of TD3 and SAC."""

from collections.abc import Sequence
from itertools import pairwise

import equinox as eqx
import jax
from jax import Array

from genepool.networks.actors import Actor
from genepool.networks.kernels import elu, matmul
from genepool.networks.layers import ACTIVATIONS, Activation, Initial, Linear, NormalisedLinear
from genepool.trees import host_random


class BranchedCritic(eqx.Module):
    """Q(s, a): one ELU branch for each input, joined by a normalised ELU layer (ERL, PDERL: 200 + 200, then 300).

    The joining matrix is kept in two halves, one for each branch: the actor's gradient needs only the action's.
    """

    state: Linear
    action: Linear
    joint: NormalisedLinear
    joint_action: Array
    output: Linear

    def __init__(self, key: Array, observation_size: int, action_size: int, branch: int = 200, joint: int = 300):
        rng = host_random(key)
        self.state = Linear(rng, observation_size, branch)
        self.action = Linear(rng, action_size, branch)
        whole = NormalisedLinear(rng, 2 * branch, joint)
        self.joint = eqx.tree_at(lambda layer: layer.weight, whole, whole.weight[:branch])
        self.joint_action = whole.weight[branch:]
        self.output = Linear(rng, joint, 1)

    def __call__(self, s: Array, a: Array) -> Array:
        """The value of action a in state s."""
        joined = matmul(elu(self.state(s)), self.joint.weight) + matmul(elu(self.action(a)), self.joint_action)
        return self.output(elu(self.joint.normalise(joined)))[..., 0]


class QNetwork(eqx.Module):
    """Q(s, a) of TD3, CEM-RL and AES-RL: a plain network on state and action together (400-300, leaky ReLU).

    The first matrix is kept in two halves: the actor's gradient needs only the action's.
    """

    first: Linear
    first_action: Array
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
        whole = Linear(rng, observation_size + action_size, hidden[0], initial)
        self.first = eqx.tree_at(lambda layer: layer.weight, whole, whole.weight[:observation_size])
        self.first_action = whole.weight[observation_size:]
        self.hidden = tuple(Linear(rng, fan_in, fan_out, initial) for fan_in, fan_out in pairwise(hidden))
        self.output, self.activation = Linear(rng, hidden[-1], 1, initial), activation

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
        rng, sizes = host_random(key), (observation_size, *hidden)
        self.hidden = tuple(Linear(rng, fan_in, fan_out, initial) for fan_in, fan_out in pairwise(sizes))
        self.output, self.activation = Linear(rng, sizes[-1], 1, initial), activation

    def __call__(self, s: Array) -> Array:
        """The value of state s."""
        for layer in self.hidden:
            s = ACTIVATIONS[self.activation](layer(s))
        return self.output(s)[..., 0]


def shrink_output(network: Actor | BranchedCritic | QNetwork, factor: float = 0.1) -> Actor | BranchedCritic | QNetwork:
    """The network with its output layer scaled down: ERL begins the learner's networks near zero, not the population's."""
    smaller = jax.tree.map(lambda leaf: factor * leaf, network.output)
    return eqx.tree_at(lambda n: n.output, network, smaller)
