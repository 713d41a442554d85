"""Networks as callable pytrees with array leaves only: actors, ERL's critic, and the plainer ones of TD3 and SAC.

They take one state or a batch of them. Entry k along the last axis of every leaf of a layer belongs to its unit k, so
that an operator may move a unit whole.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool.machine import WIDE, is_tall
from genepool.trees import host_random


@jax.custom_vjp
def matmul(x: Array, w: Array) -> Array:
    """x @ w. XLA's x.T @ g is slow on a CPU, so the gradient copies x.T first: about 2 % off a DDPG update."""
    return x @ w if x.ndim > 1 else _row_product(x, w)


@jax.custom_batching.custom_vmap
def _row_product(x: Array, w: Array) -> Array:
    """x @ w of one state. Of many, each with a wide matrix of its own, one by one: XLA would hand out a batch of such products
    to threads whose cores are busy with other players. The bits are the same, of one and of many.
    """
    return x @ w


@_row_product.def_vmap
def _row_products(count: int, batched: list[bool], x: Array, w: Array) -> tuple[Array, bool]:
    product = _product(w.shape[-2:])
    if all(batched) and (count == 1 or w[0].nbytes >= WIDE):
        return jnp.stack([product(x[k], w[k]) for k in range(count)]), True
    return jax.vmap(product, [0 if many else None for many in batched])(x, w), True


def _product(shape: tuple[int, int]) -> Callable[[Array, Array], Array]:
    """x @ w, written so that XLA makes the same of one and of many."""
    if shape[1] == 1:  # it would make a sum of it
        return lambda x, w: (x @ jnp.concatenate([w, w], axis=1))[:1]
    return (lambda x, w: w.T @ x) if is_tall(shape) else jnp.matmul


def _matmul_backward(saved: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, w = saved
    if x.ndim == 1:
        return g @ w.T, jnp.outer(x, g)
    rows, slopes = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
    if x.shape[-1] > g.shape[-1]:
        return g @ w.T, jax.lax.optimization_barrier(jax.lax.optimization_barrier(slopes.T) @ rows).T
    return g @ w.T, jax.lax.optimization_barrier(rows.T) @ slopes


matmul.defvjp(lambda x, w: (x @ w, (x, w)), _matmul_backward)


def _affine(layer: "Linear | NormalisedLinear") -> Callable[[np.ndarray], np.ndarray]:
    """What makes x W + b of several layers on the host, a state for each: all have a leading axis."""
    from genepool.rows import affine  # here, for it takes a second that only those wait who need it

    w, b = layer.weight, layer.bias

    def values(x: np.ndarray) -> np.ndarray:
        y = np.empty(b.shape, np.float32)
        affine(x, w, b, y)
        return y

    return values


@jax.custom_vjp
def elu(x: Array) -> Array:
    """x where it is positive, else exp(x) - 1; the gradient reuses the exponential, so one that overflows does no harm."""
    return jnp.where(x > 0, x, jnp.exp(x) - 1.0)


def _elu_forward(x: Array) -> tuple[Array, Array]:
    y = elu(x)
    return y, y


elu.defvjp(_elu_forward, lambda y, g: (g * jnp.minimum(y + 1.0, 1.0),))


def leaky_relu(x: Array) -> Array:
    """x where it is positive, else 0.01 x."""
    return jnp.maximum(x, 0.01 * x)


ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu, "leaky_relu": leaky_relu, "elu": elu}
HOST_ACTIVATIONS = {  # of NumPy's arrays
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "leaky_relu": lambda x: np.maximum(x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0.0)) - 1.0),
}
Activation = Literal["tanh", "relu", "leaky_relu", "elu"]
Initial = Literal["fan_in", "xavier"]


@jax.custom_vjp
def layer_norm(y: Array, gain: Array, shift: Array) -> Array:
    """gain z + shift, where z = (y - mean) / (std + 1e-6), with the unbiased std over the last axis."""
    return _layer_norm_forward(y, gain, shift)[0]


def _layer_norm_forward(y: Array, gain: Array, shift: Array) -> tuple[Array, tuple[Array, ...]]:
    n = y.shape[-1]
    # XLA does not vectorise sums along rows, so a batch's are products with ones. Not those of one state: the order of
    # a product's additions depends on how many rows there are, so under vmap on who is played beside.
    along = (lambda x: x @ jnp.ones(n)) if y.ndim > 1 else jnp.sum
    centred = y - (along(y) / n)[..., None]
    std = jnp.sqrt(jnp.maximum(along(centred**2) / (n - 1), 1e-20))[..., None]
    z = centred * (1.0 / (std + 1e-6))
    return gain * z + shift, (z, std, gain)


def _layer_norm_backward(saved: tuple[Array, ...], g: Array) -> tuple[Array, Array, Array]:
    z, std, gain = saved
    n, down = z.shape[-1], lambda x: jnp.sum(x.reshape(-1, x.shape[-1]), axis=0)
    g_z = g * z
    mean, slope = (g @ gain / n)[..., None], (g_z @ gain / (n - 1))[..., None]
    return (gain * g - mean) * (1.0 / (std + 1e-6)) - z * (slope / std), down(g_z), down(g)


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


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

    def together(self) -> Callable[[np.ndarray], np.ndarray]:
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

    def together(self) -> Callable[[np.ndarray], np.ndarray]:
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


class Actor(eqx.Module):
    """mu(s): hidden layers, then a tanh output in [-1, 1]^|A|.

    ERL and PDERL have 128-128 with layer norm, CEM-RL and AES-RL 400-300 without; tanh units all of them.
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
        rng, sizes = host_random(key), (observation_size, *hidden)
        layer = NormalisedLinear if layer_norm else Linear
        self.hidden = tuple(layer(rng, fan_in, fan_out, initial) for fan_in, fan_out in pairwise(sizes))
        self.output, self.activation = Linear(rng, sizes[-1], action_size, initial), activation

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

    def together(self) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """`explore` on the host, of several actors with a state for each: all have a leading axis."""
        # asked for once: a module takes longer to say what its method is than NumPy for a small product
        hidden, output = [layer.together() for layer in self.hidden], self.output.together()
        activation = HOST_ACTIVATIONS[self.activation]

        def explore(s: np.ndarray, noise: np.ndarray) -> np.ndarray:
            with np.errstate(all="ignore"):  # as XLA does: what is not finite is found where it does harm
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
    """SAC's policy: a = tanh(u), u ~ N(m(s), e^l(s)) with l within [-20, 2]; m is an actor's before its tanh.

    Without noise it is that actor.
    """

    mean: Actor
    spread: Linear  # l, from the actor's last hidden layer

    def __init__(self, key: Array, mean: Actor, initial: Initial = "xavier"):
        self.mean, self.spread = mean, Linear(host_random(key), *mean.sizes[-2:], initial)

    def __call__(self, s: Array) -> Array:
        """The action without noise."""
        return self.mean(s)

    def explore(self, s: Array, noise: Array) -> Array:
        """The action of a standard normal draw."""
        u, _ = self._drawn(s, noise)
        return jnp.tanh(u)

    def sample(self, s: Array, noise: Array) -> tuple[Array, Array]:
        """The action a of a standard normal draw, and log pi(a|s) = sum [log N(u; m, e^l) - log(1 - tanh(u)^2)]."""
        u, log_std = self._drawn(s, noise)
        slope = 2.0 * (jnp.log(2.0) - u - jax.nn.softplus(-2.0 * u))  # log(1 - tanh(u)^2), also where that is 0
        log_pi = jnp.sum(-0.5 * noise**2 - log_std - 0.5 * jnp.log(2.0 * jnp.pi) - slope, axis=-1)
        return jnp.tanh(u), log_pi

    def _drawn(self, s: Array, noise: Array) -> tuple[Array, Array]:
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


class Critic(eqx.Module):
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


def shrink_output(network: Actor | Critic | QNetwork, factor: float = 0.1) -> Actor | Critic | QNetwork:
    """The network with its output layer scaled down: ERL begins the learner's networks near zero, not the population's."""
    smaller = jax.tree.map(lambda leaf: factor * leaf, network.output)
    return eqx.tree_at(lambda n: n.output, network, smaller)
