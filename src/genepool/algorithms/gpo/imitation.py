"""Crossover in the space of states (GPO, 3.3.1): a child imitates now one parent, now the other; and its baselines.

First a binary policy learns in which states each parent earned its best returns; then the child learns by DAgger from the
expert that follows it.
"""

from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool import trees
from genepool.errors import UserError
from genepool.networks import VNetwork
from genepool.networks.stochastic import Scale, StochasticPolicy
from genepool.optimiser import Adam, AdamState, adam_init
from genepool.parts import part

Choice = Literal["sample", "argmax", "soft"]


class Selector(eqx.Module):
    """pi_S: how likely the first parent is to be followed in a state. Of a softmax over two, the logit of one suffices."""

    network: VNetwork
    scale: Scale | None

    def __call__(self, s: Array) -> Array:
        """The logit of the first parent."""
        return self.network(s if self.scale is None else self.scale(s))


class Expert(eqx.Module):
    """pi_H: chooses a parent by the selector in every state and acts as that one does."""

    selector: Selector
    x: StochasticPolicy
    y: StochasticPolicy
    choice: Choice = eqx.field(static=True)

    def explore(self, s: Array, noise: Array) -> Array:
        """The chosen parent's action. The last number of the noise, uniform, decides whom to follow."""
        chosen = self._follows_x(jax.nn.sigmoid(self.selector(s)), noise[..., -1])
        return jnp.where(chosen[..., None], self.x.explore(s, noise), self.y.explore(s, noise))

    def share(self, s: Array, uniform: Array) -> Array:
        """How much of the first parent the expert is in a state: all or nothing, or its probability."""
        p_x = jax.nn.sigmoid(self.selector(s))
        return p_x if self.choice == "soft" else self._follows_x(p_x, uniform).astype(jnp.float32)

    def _follows_x(self, p_x: Array, uniform: Array) -> Array:
        return p_x > (0.5 if self.choice == "argmax" else uniform)


class Student(eqx.Module):
    """A child that still learns."""

    policy: StochasticPolicy
    optimiser: AdamState


class Played(NamedTuple):
    """What parents played: states, the return of the trajectory that each is in, and where trajectories begin."""

    observation: np.ndarray  # [n, |S|]
    returns: np.ndarray  # [n]
    first: np.ndarray  # [n] bool


@part
class StateSpace:
    """GPO's crossover. pi_S minimises -E w log[ p_x 1(s in T_x) + (1 - p_x) 1(s in T_y) ] on the best 60 % of both parents'
    trajectories; the child minimises E KL(pi_c || pi_H) (equation 2) on expert's, then also its own states.
    """

    kept: float = 0.6  # share of the trajectories, best first, that pi_S learns from
    iterations: int = 8  # latest iterations of a round whose trajectories those are; the paper may mean all
    selector_hidden: tuple[int, ...] = (32, 32)  # units of pi_S
    selector_epochs: int = 100  # of pi_S
    expert_frames: int = 5_000  # transitions of the expert
    dagger: int = 10  # DAgger iterations
    student_frames: int = 500  # transitions of the student before each of them
    expert_alone: bool = (
        False  # whether the first iteration has the expert's states alone (3.3.1; the appendix: the student's too)
    )
    epochs: int = 10  # over all states collected, in a DAgger iteration
    batch_size: int = 64  # states per gradient step, of pi_S and of the child
    rate: float = 5e-4  # Adam's learning rate, of pi_S and of the child
    choice: Choice = (
        "sample"  # whom the expert follows: drawn from pi_S, the likelier, or for the child's loss both by their shares
    )
    child_starts_from: Literal["random", "stronger"] = "random"  # new weights, or the stronger parent's

    def __post_init__(self):
        counts = ("iterations", "selector_epochs", "expert_frames", "dagger", "student_frames", "epochs", "batch_size")
        small = [name for name in counts if getattr(self, name) < 1]
        if small or not 0.0 < self.kept <= 1.0:
            raise UserError(
                f"{small[0].replace('_', ' ')} is too small: it must be 1 or more"
                if small
                else "kept lies between 0 and 1"
            )

    @property
    def frames(self) -> tuple[int, ...]:
        """Transitions to be collected for a child: the expert's, then the student's, one time after the other."""
        return (self.expert_frames, *(self.student_frames,) * (self.dagger - self.expert_alone))

    def select(self, key: Array, x: Played, y: Played, scale: Scale | None) -> Selector:
        """pi_S, fitted to what both parents played."""
        of_x = np.concatenate([np.ones(len(x.returns), np.float32), np.zeros(len(y.returns), np.float32)])
        both = Played(*(np.concatenate(columns) for columns in zip(x, y, strict=True)))
        bar, weight = worthy(both, self.kept)
        rows = np.flatnonzero(both.returns >= bar)
        rng = trees.host_random(key)
        selector = Selector(VNetwork(key, x.observation.shape[1], self.selector_hidden, "tanh", "xavier"), scale)
        batches, steps = shuffled(rng, rows, self.selector_epochs, self.batch_size, len(of_x))
        return _selected(self.rate, selector, both.observation, of_x, weight, batches, steps)

    def student(self, key: Array, stronger: StochasticPolicy) -> Student:
        """A child before its first lesson. It sees the world as its stronger parent does."""
        policy = stronger
        if self.child_starts_from == "random":
            size, *hidden, actions = stronger.sizes
            fresh = StochasticPolicy(key, size, actions, hidden, stronger.log_std is None, False, stronger.activation)
            policy = eqx.tree_at(lambda p: p.scale, fresh, stronger.scale, is_leaf=lambda leaf: leaf is None)
        return Student(policy, adam_init(policy))

    def imitate(
        self, key: Array, student: Student, expert: Expert, states: np.ndarray, uniform: np.ndarray, count: int
    ) -> tuple[Student, Array]:
        """The student after its epochs on the first `count` states, and its last loss. `uniform` decides the parent of each."""
        batches, steps = shuffled(trees.host_random(key), np.arange(count), self.epochs, self.batch_size, len(states))
        return _imitated(self.rate, student, expert, states, uniform, batches, steps)


@part
class ParameterSpace:
    """The crossover that GPO is compared with (its Figures 1 and 3): weights of either parent, by a coin."""

    granularity: Literal["weight", "unit", "layer"] = "weight"  # what one coin decides
    frames = ()

    def child(self, key: Array, x: StochasticPolicy, y: StochasticPolicy) -> StochasticPolicy:
        """Every weight, unit or layer from one of the parents."""
        rng = trees.host_random(key)

        def layer(a: Any, b: Any) -> Any:
            units = {"weight": None, "unit": (a.bias.shape[-1],), "layer": ()}[self.granularity]
            coins = None if units is None else rng.random(units) < 0.5
            mix = lambda u, v: np.where(rng.random(np.shape(u)) < 0.5 if coins is None else coins, u, v)
            return jax.tree.map(mix, a, b)

        hidden = tuple(layer(a, b) for a, b in zip(x.hidden, y.hidden, strict=True))
        child = eqx.tree_at(lambda p: (p.hidden, p.output), x, (hidden, layer(x.output, y.output)))
        if x.log_std is None:
            return child
        coins = rng.random(() if self.granularity == "layer" else x.log_std.shape) < 0.5
        return eqx.tree_at(lambda p: p.log_std, child, np.where(coins, x.log_std, y.log_std))


def worthy(played: Played, kept: float) -> tuple[float, np.ndarray]:
    """The return that the best share of trajectories have at least, and every row's weight: its return, from 0 for the
    least of those to the best, with mean 1 over their rows.
    """
    best = np.sort(played.returns[played.first])[::-1]
    bar = float(best[max(1, round(kept * len(best))) - 1])
    rows = played.returns >= bar
    span = float(best[0]) - bar
    weight = (played.returns - bar) / span if span > 0.0 else np.ones(len(rows))
    weight = np.where(rows, weight, 0.0)
    return bar, (weight / weight[rows].mean()).astype(np.float32)


def shuffled(
    rng: np.random.Generator, rows: np.ndarray, epochs: int, batch_size: int, capacity: int
) -> tuple[np.ndarray, int]:
    """Minibatches of epochs over the rows, [room for `capacity` rows, batch_size], and how many there are. A last minibatch is
    filled up from the beginning of its epoch.
    """
    each, room = -(-len(rows) // batch_size), -(-capacity // batch_size)
    batches = np.zeros((epochs * room, batch_size), np.int32)
    for epoch in range(epochs):
        batches[epoch * each : (epoch + 1) * each] = np.resize(rng.permutation(rows), (each, batch_size))
    return batches, epochs * each


@partial(jax.jit, static_argnums=0)
def _selected(
    rate: float, selector: Selector, states: Array, of_x: Array, weight: Array, batches: Array, steps: Array
) -> Selector:
    adam = Adam(rate)

    def loss(network: VNetwork, rows: Array) -> Array:
        logit = eqx.tree_at(lambda s: s.network, selector, network)(states[rows])
        return jnp.mean(
            weight[rows] * (jax.nn.softplus(-logit) * of_x[rows] + jax.nn.softplus(logit) * (1 - of_x[rows]))
        )

    step = lambda k, carry: adam.step(carry[0], jax.grad(loss)(carry[0], batches[k]), carry[1])
    network, _ = jax.lax.fori_loop(0, steps, step, (selector.network, adam_init(selector.network)))
    return Selector(network, selector.scale)


@partial(jax.jit, static_argnums=0)
def _imitated(
    rate: float, student: Student, expert: Expert, states: Array, uniform: Array, batches: Array, steps: Array
) -> tuple[Student, Array]:
    adam = Adam(rate)
    # parents and selector are frozen: what they say of every state is computed once
    share, of_x, of_y = expert.share(states, uniform), expert.x.distribution(states), expert.y.distribution(states)
    at = lambda found, rows: type(found)(*(part[rows] if part.ndim > 1 else part for part in found))

    def loss(policy: StochasticPolicy, rows: Array) -> Array:
        own, p = policy.distribution(states[rows]), share[rows]
        return jnp.mean(p * own.kl(at(of_x, rows)) + (1.0 - p) * own.kl(at(of_y, rows)))  # equation 2: the child first

    def step(k: Array, carry: tuple[Any, Any, Array]) -> tuple[Any, Any, Array]:
        value, gradient = jax.value_and_grad(loss)(carry[0], batches[k])
        return *adam.step(carry[0], gradient, carry[1]), value

    begun = (student.policy, student.optimiser, jnp.zeros(()))
    policy, state, value = jax.lax.fori_loop(0, steps, step, begun)
    return Student(policy, state), value
