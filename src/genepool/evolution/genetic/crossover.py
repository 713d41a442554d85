"""Crossover: two parents become children. RowCopy (ERL), ElementCopy (ESAC) and Distillation (PDERL, Algorithm 1)."""

from functools import partial
from typing import ClassVar, Literal, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from genepool import buffer
from genepool.errors import UserError, check_at_least
from genepool.networks import Linear, NormalisedLinear
from genepool.optimiser import Adam, AdamState, adam_init
from genepool.parts import part
from genepool.protocols import Actor, Critic
from genepool.types import Individual

T = TypeVar("T")


@part
class RowCopy:
    """ERL's "n-point" crossover: two children, the parents with rows of weights copied from each other.

    Differs: the papers describe segments of whole nodes. ERL's and PDERL's code copies single rows, and copies biases
    and layer norms independently of them ("rows"). "units" copies a whole node: its row, bias and norm. "segments" is
    the n-point crossover of the text: the units between two of `points` cuts come from the other parent.
    A child keeps the memory of the parent that it is a copy of.
    """

    moves: Literal["rows", "units", "segments"] = "rows"  # what is copied as one
    points: int = 2  # n, the cuts per layer of "segments"
    children: ClassVar[int] = 2
    needs_critic: ClassVar[bool] = False

    def __call__(
        self, key: Array, x: Individual, y: Individual, critic: Critic | None = None
    ) -> tuple[Individual, Individual]:
        """Two children: x with units of y, and y with units of x."""
        own, structure = jax.tree.flatten(x.actor, is_leaf=self._is_crossed_as_one)
        others = jax.tree.leaves(y.actor, is_leaf=self._is_crossed_as_one)
        keys = jax.random.split(key, len(own))
        pairs = [self._cross(k, a, b) for k, a, b in zip(keys, own, others, strict=True)]
        first, second = (jax.tree.unflatten(structure, column) for column in zip(*pairs, strict=True))
        return Individual(first, x.memory), Individual(second, y.memory)

    def _is_crossed_as_one(self, node: object) -> bool:
        return self.moves != "rows" and isinstance(node, Linear | NormalisedLinear)

    def _cross(self, key: Array, a: T, b: T) -> tuple[T, T]:
        """Two children of one array, or of one layer."""
        first = jax.tree.leaves(a)[0]
        units = first.shape[-1]
        from_b, from_a = self._rows(key, units, most=2 * units if first.ndim == 2 else units)
        return _mixed(from_b, a, b), _mixed(from_a, b, a)

    def _rows(self, key: Array, n: int, most: int) -> tuple[Array, Array]:
        """Which rows the first child takes from the second parent, and the second child from the first."""
        k_count, k_rows, k_coins = jax.random.split(key, 3)
        if self.moves == "segments":
            cuts = jax.random.randint(k_rows, (self.points,), 0, n + 1)
            inside = jnp.sum(jnp.arange(n)[:, None] >= cuts, axis=1) % 2 == 1
            return inside, inside
        # The code copies one row at a time, K times. The first hit on a row makes both children equal there, so later
        # hits on it change nothing. The touched rows and one coin for each are therefore enough.
        count = jax.random.randint(k_count, (), 0, most)
        picks = jax.random.randint(k_rows, (most,), 0, n)
        touched = jnp.zeros(n, bool).at[picks].max(jnp.arange(most) < count)
        heads = jax.random.bernoulli(k_coins, shape=(n,))
        return touched & heads, touched & ~heads


def _mixed(mask: Array, own: T, other: T) -> T:
    """A layer with the units of `mask` from the other parent. Units lie along the last axis."""
    return jax.tree.map(partial(jnp.where, mask), other, own)


@part
class ElementCopy:
    """The crossover of ESAC's text: two children, the parents with random weights exchanged."""

    share: float = 0.5  # of the weights that are exchanged
    children: ClassVar[int] = 2
    needs_critic: ClassVar[bool] = False

    def __post_init__(self):
        if not 0 <= self.share <= 1:
            raise UserError(f"share is {self.share}: the share of weights to exchange must lie between 0 and 1")

    def __call__(
        self, key: Array, x: Individual, y: Individual, critic: Critic | None = None
    ) -> tuple[Individual, Individual]:
        """Two children: x with weights of y, and y with weights of x."""
        leaves, structure = jax.tree.flatten(x.actor)
        keys = jax.random.split(key, len(leaves))
        masks = [jax.random.bernoulli(k, self.share, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
        mask = jax.tree.unflatten(structure, masks)
        first = jax.tree.map(jnp.where, mask, y.actor, x.actor)
        second = jax.tree.map(jnp.where, mask, x.actor, y.actor)
        return Individual(first, x.memory), Individual(second, y.memory)


def imitation_targets(x: Individual, y: Individual, critic: Critic, states: Array) -> Array:
    """In each state, the action of the parent that the critic prefers. A tie or a NaN prefers y."""
    a_x = x.actor(states)
    a_y = y.actor(states)
    q_x = critic(states, a_x)
    q_y = critic(states, a_y)
    return jnp.where((q_x > q_y)[:, None], a_x, a_y)


@part
class Distillation:
    """PDERL Algorithm 1: one child, which in each state imitates the parent that the critic prefers.

    x is the fitter parent. L = sum_i ||mu_z(s_i) - t(s_i)||^2 + (1/N_C) sum_i ||mu_z(s_i)||^2, t the preferred action.
    Parents and critic are fixed, so t is computed once for the whole memory.
    Differs: Adam, as in the paper's text; its box says SGD. Batches are drawn with replacement.
    """

    epochs: int = 12  # epochs over the child's memory (Table 3)
    batch_size: int = 128  # N_C, states per step
    learning_rate: float = 1e-3  # of the child's Adam, fresh for each child
    child_starts_from: Literal["random", "worse", "better"] = "random"  # the parent whose weights the child begins with
    l2_over: Literal["batch", "elements"] = "batch"  # the L2 term is a mean over these; "elements" is the authors' code
    children: ClassVar[int] = 1
    needs_critic: ClassVar[bool] = True

    def __post_init__(self):
        check_at_least(1, self, "batch_size")
        check_at_least(0, self, "epochs")

    def __call__(self, key: Array, x: Individual, y: Individual, critic: Critic | None) -> tuple[Individual]:
        """The child of x, the fitter, and y."""
        assert critic is not None  # `needs_critic` says so
        k_memory, k_start, k_batches = jax.random.split(key, 3)
        memory = buffer.inherit(k_memory, x.memory, y.memory)  # 1-3
        states = memory.data.observation
        targets = imitation_targets(x, y, critic, states)
        from_x = {"better": True, "worse": False, "random": jax.random.bernoulli(k_start)}[self.child_starts_from]
        child = jax.tree.map(partial(jnp.where, from_x), x.actor, y.actor)  # 4
        adam = Adam(self.learning_rate)

        def step(i: int | Array, carry: tuple[Actor, AdamState]) -> tuple[Actor, AdamState]:
            child, optimiser = carry
            rows = buffer.sample(jax.random.fold_in(k_batches, i), memory, (self.batch_size,))  # 7
            gradient = jax.grad(self.loss)(child, states[rows], targets[rows])
            return adam.step(child, gradient, optimiser)  # 8

        child, _ = jax.lax.fori_loop(0, self.steps(memory.size), step, (child, adam_init(child)))  # 5-10
        return (Individual(child, memory),)

    def loss(self, mu: Actor, states: Array, targets: Array) -> Array:
        """L(C): the distance to the targets, and an L2 term that keeps the output tanh from saturating."""
        actions = mu(states)
        l2 = jnp.sum(actions**2) / (len(states) if self.l2_over == "batch" else actions.size)
        return jnp.sum((actions - targets) ** 2) + l2

    def steps(self, size: Array) -> Array:
        """Gradient steps for a memory of this size: epochs x floor(size / N_C), 744 at 8000."""
        return self.epochs * (size // jnp.clip(size, 1, self.batch_size))
