"""GPO's crossover in the space of states (3.3.1), and the crossover of weights that it is compared with.

First a binary policy learns in which states each parent earned its best returns. An expert acts in each state as the
parent that the binary policy chooses. Then the child learns from the expert by DAgger.
"""

from functools import partial
from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool import trees
from genepool.errors import UserError, check_at_least
from genepool.networks import Linear, VNetwork
from genepool.networks.stochastic import Scale, StochasticPolicy
from genepool.optimiser import Adam, AdamState, adam_init
from genepool.parts import part

Choice = Literal["sample", "argmax", "soft"]


class Selector(eqx.Module):
    """pi_S: the probability of following the first parent in a state, as the one logit that a choice of two needs."""

    network: VNetwork
    scale: Scale | None

    def __call__(self, s: Array) -> Array:
        """The logit of the first parent."""
        return self.network(s if self.scale is None else self.scale(s))


class Expert(eqx.Module):
    """pi_H: acts in each state as the parent that the selector chooses."""

    selector: Selector
    x: StochasticPolicy
    y: StochasticPolicy
    choice: Choice = eqx.field(static=True)

    def explore(self, s: Array, noise: Array) -> Array:
        """The chosen parent's action. The last number of the noise is uniform and chooses the parent."""
        chosen = self._follows_x(jax.nn.sigmoid(self.selector(s)), noise[..., -1])
        return jnp.where(chosen[..., None], self.x.explore(s, noise), self.y.explore(s, noise))

    def share(self, s: Array, uniform: Array) -> Array:
        """The weight of the first parent in a state: 1 or 0, or its probability if the choice is soft."""
        p_x = jax.nn.sigmoid(self.selector(s))
        return p_x if self.choice == "soft" else self._follows_x(p_x, uniform).astype(jnp.float32)

    def _follows_x(self, p_x: Array, uniform: Array) -> Array:
        return p_x > (0.5 if self.choice == "argmax" else uniform)


class Student(eqx.Module):
    """A child and the optimiser by which it learns."""

    policy: StochasticPolicy
    optimiser: AdamState


class ParentTrajectories(NamedTuple):
    """The states that a parent visited, trajectory after trajectory."""

    observation: np.ndarray  # [n, |S|]
    returns: np.ndarray  # [n]: the return of the trajectory that the state is in
    starts: np.ndarray  # [n] bool: whether a trajectory begins here


@part
class StateSpace:
    """GPO's crossover: the child minimises E KL(pi_c || pi_H) (equation 2) on states of the expert and of its own.

    pi_S minimises -E w log[ p_x 1(s in T_x) + (1 - p_x) 1(s in T_y) ] on the best 60 % of both parents' trajectories.
    """

    kept: float = 0.6  # share of the trajectories, best first, that pi_S learns from
    iterations: int = 8  # latest iterations of a round whose trajectories those are; the paper may mean all
    selector_hidden: tuple[int, ...] = (32, 32)  # units of pi_S
    selector_epochs: int = 100  # of pi_S
    expert_frames: int = 5_000  # transitions of the expert
    dagger: int = 10  # DAgger iterations
    student_frames: int = 500  # transitions of the student before each of them
    # whether the first iteration has the expert's states alone (3.3.1; the appendix: the student's too)
    expert_alone: bool = False
    epochs: int = 10  # over all states collected, in a DAgger iteration
    batch_size: int = 64  # states per gradient step, of pi_S and of the child
    rate: float = 5e-4  # Adam's learning rate, of pi_S and of the child
    # the parent that the expert follows: drawn from pi_S, the likelier, or for the child's loss both by their shares
    choice: Choice = "sample"
    child_starts_from: Literal["random", "stronger"] = "random"  # new weights, or the stronger parent's

    def __post_init__(self):
        counts = ("iterations", "selector_epochs", "expert_frames", "dagger", "student_frames", "epochs", "batch_size")
        check_at_least(1, self, *counts)
        if not 0.0 < self.kept <= 1.0:
            raise UserError(f"kept is {self.kept}: it must be above 0 and at most 1")

    @property
    def frames(self) -> tuple[int, ...]:
        """Transitions of each collection of states for a child, in order: the expert's, then the student's."""
        return (self.expert_frames, *(self.student_frames,) * (self.dagger - self.expert_alone))

    def select(self, key: Array, x: ParentTrajectories, y: ParentTrajectories, scale: Scale | None) -> Selector:
        """pi_S, fitted to the trajectories of both parents."""
        of_x = np.concatenate([np.ones(len(x.returns), np.float32), np.zeros(len(y.returns), np.float32)])
        both = ParentTrajectories(*(np.concatenate(columns) for columns in zip(x, y, strict=True)))
        threshold, weight = top_rows(both, self.kept)
        rows = np.flatnonzero(both.returns >= threshold)
        rng = trees.host_random(key)
        selector = Selector(VNetwork(key, x.observation.shape[1], self.selector_hidden, "tanh", "xavier"), scale)
        batches, steps = shuffled_batches(rng, rows, self.selector_epochs, self.batch_size, len(of_x))
        return _fit_selector(self.rate, selector, both.observation, of_x, weight, batches, steps)

    def student(self, key: Array, stronger: StochasticPolicy) -> Student:
        """A child that has not learnt yet. It scales observations as its stronger parent does."""
        policy = stronger
        if self.child_starts_from == "random":
            size, *hidden, actions = stronger.sizes
            fresh = StochasticPolicy(key, size, actions, hidden, stronger.log_std is None, False, stronger.activation)
            policy = eqx.tree_at(lambda p: p.scale, fresh, stronger.scale, is_leaf=lambda leaf: leaf is None)
        return Student(policy, adam_init(policy))

    def imitate(
        self, key: Array, student: Student, expert: Expert, states: np.ndarray, uniform: np.ndarray, count: int
    ) -> tuple[Student, Array]:
        """The student after its epochs on the first `count` states, and its last loss.

        `uniform` holds a number for each state, which chooses the parent to imitate there.
        """
        rng = trees.host_random(key)
        batches, steps = shuffled_batches(rng, np.arange(count), self.epochs, self.batch_size, len(states))
        return _imitate(self.rate, student, expert, states, uniform, batches, steps)


@part
class ParameterSpace:
    """The crossover that GPO is compared with (its Figures 1 and 3): a coin chooses the parent of each weight."""

    granularity: Literal["weight", "unit", "layer"] = "weight"  # what one coin decides
    frames: ClassVar[tuple[int, ...]] = ()  # nothing is played for a child

    def child(self, key: Array, x: StochasticPolicy, y: StochasticPolicy) -> StochasticPolicy:
        """Every weight, unit or layer from one of the parents."""
        rng = trees.host_random(key)

        def layer(a: Linear, b: Linear) -> Linear:
            units = (a.bias.shape[-1],) if self.granularity == "unit" else ()
            coins = None if self.granularity == "weight" else rng.random(units) < 0.5

            def mix(u: Array, v: Array) -> np.ndarray:
                return np.where(rng.random(np.shape(u)) < 0.5 if coins is None else coins, u, v)

            return jax.tree.map(mix, a, b)

        hidden = tuple(layer(a, b) for a, b in zip(x.hidden, y.hidden, strict=True))
        child = eqx.tree_at(lambda p: (p.hidden, p.output), x, (hidden, layer(x.output, y.output)))
        if x.log_std is None or y.log_std is None:  # both are of one kind
            return child
        coins = rng.random(() if self.granularity == "layer" else x.log_std.shape) < 0.5
        return eqx.tree_at(lambda p: p.log_std, child, np.where(coins, x.log_std, y.log_std))


def top_rows(played: ParentTrajectories, kept: float) -> tuple[float, np.ndarray]:
    """The least return among the best share of trajectories, and the weight of every row.

    The weight of a row grows linearly with its return, from 0 at the least return that is kept. The mean weight over
    the kept rows is 1.
    """
    best = np.sort(played.returns[played.starts])[::-1]
    threshold = float(best[max(1, round(kept * len(best))) - 1])
    rows = played.returns >= threshold
    span = float(best[0]) - threshold
    weight = (played.returns - threshold) / span if span > 0.0 else np.ones(len(rows))
    weight = np.where(rows, weight, 0.0)
    return threshold, (weight / weight[rows].mean()).astype(np.float32)


def shuffled_batches(
    rng: np.random.Generator, rows: np.ndarray, epochs: int, batch_size: int, capacity: int
) -> tuple[np.ndarray, int]:
    """Minibatches of several epochs over the rows, and how many there are.

    The array has the shape [epochs * minibatches of `capacity` rows, batch_size], which does not depend on the number
    of rows: one compiled program serves all. The last minibatch of an epoch repeats the first rows of that epoch.
    """
    in_epoch = -(-len(rows) // batch_size)
    room = -(-capacity // batch_size)
    batches = np.zeros((epochs * room, batch_size), np.int32)
    for epoch in range(epochs):
        order = rng.permutation(rows)
        batches[epoch * in_epoch : (epoch + 1) * in_epoch] = np.resize(order, (in_epoch, batch_size))
    return batches, epochs * in_epoch


@partial(jax.jit, static_argnums=0)
def _fit_selector(
    rate: float, selector: Selector, states: Array, of_x: Array, weight: Array, batches: Array, steps: Array
) -> Selector:
    adam = Adam(rate)

    def loss(network: VNetwork, rows: Array) -> Array:
        logit = eqx.tree_at(lambda s: s.network, selector, network)(states[rows])
        log_loss = jax.nn.softplus(-logit) * of_x[rows] + jax.nn.softplus(logit) * (1 - of_x[rows])
        return jnp.mean(weight[rows] * log_loss)

    def step(k: Array, carry: tuple[VNetwork, AdamState]) -> tuple[VNetwork, AdamState]:
        network, state = carry
        return adam.step(network, jax.grad(loss)(network, batches[k]), state)

    network, _ = jax.lax.fori_loop(0, steps, step, (selector.network, adam_init(selector.network)))
    return Selector(network, selector.scale)


@partial(jax.jit, static_argnums=0)
def _imitate(
    rate: float, student: Student, expert: Expert, states: Array, uniform: Array, batches: Array, steps: Array
) -> tuple[Student, Array]:
    adam = Adam(rate)
    # parents and selector do not change: their answer in every state is computed once
    share = expert.share(states, uniform)
    of_x = expert.x.distribution(states)
    of_y = expert.y.distribution(states)

    def loss(policy: StochasticPolicy, rows: Array) -> Array:
        child = policy.distribution(states[rows])
        p = share[rows]
        return jnp.mean(p * child.kl(of_x.take(rows)) + (1.0 - p) * child.kl(of_y.take(rows)))  # equation 2

    def step(k: Array, carry: tuple[StochasticPolicy, AdamState, Array]) -> tuple[StochasticPolicy, AdamState, Array]:
        value, gradient = jax.value_and_grad(loss)(carry[0], batches[k])
        return *adam.step(carry[0], gradient, carry[1]), value

    begun = (student.policy, student.optimiser, jnp.zeros(()))
    policy, state, value = jax.lax.fori_loop(0, steps, step, begun)
    return Student(policy, state), value
