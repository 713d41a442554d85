"""Crossover: two parents become children. RowCopy (ERL), ElementCopy (ESAC) and Distillation (PDERL, Algorithm 1)."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array

from genepool import buffer
from genepool.errors import UserError
from genepool.networks import Linear, NormalisedLinear
from genepool.optimiser import Adam, adam_init
from genepool.parts import part
from genepool.types import Individual


@part
class RowCopy:
    """ERL's "n-point" crossover: rows of weights are copied from one parent to the other; two children.

    Differs: the papers describe segments that keep nodes whole; ERL's and PDERL's code copies single rows, and
    biases and layer norms apart from them ("rows"). "units" moves a node whole, row, bias and norm; "segments" is the
    n-point crossover of the text: the units between two of `points` cuts come from the other parent.
    A child keeps the memory of the parent it was cloned from.
    """

    moves: Literal["rows", "units", "segments"] = "rows"  # what is copied together
    points: int = 2  # n, the cuts per layer of "segments"
    children: ClassVar[int] = 2
    needs_critic: ClassVar[bool] = False

    def __call__(self, key: Array, x: Individual, y: Individual, critic: Any = None) -> tuple[Individual, Individual]:
        """Two children, x and y with units of each other."""
        together = (lambda n: False) if self.moves == "rows" else (lambda n: isinstance(n, Linear | NormalisedLinear))
        groups, structure = jax.tree.flatten(x.actor, is_leaf=together)
        others = jax.tree.leaves(y.actor, is_leaf=together)
        keys = jax.random.split(key, len(groups))
        pairs = [self._cross(k, a, b) for k, a, b in zip(keys, groups, others, strict=True)]
        first, second = (jax.tree.unflatten(structure, column) for column in zip(*pairs, strict=True))
        return Individual(first, x.memory), Individual(second, y.memory)

    def _cross(self, key: Array, a: Any, b: Any) -> tuple[Any, Any]:
        first = jax.tree.leaves(a)[0]
        units = first.shape[-1]
        from_b, from_a = self._rows(key, units, most=2 * units if first.ndim == 2 else units)
        swap = lambda mask: lambda mine, theirs: jnp.where(mask, theirs, mine)  # along the last axis: unit by unit
        return jax.tree.map(swap(from_b), a, b), jax.tree.map(swap(from_a), b, a)

    def _rows(self, key: Array, n: int, most: int) -> tuple[Array, Array]:
        """Which rows the first child takes from the second parent, and the second child from the first."""
        k_count, k_rows, k_coins = jax.random.split(key, 3)
        if self.moves == "segments":
            cuts = jax.random.randint(k_rows, (self.points,), 0, n + 1)
            inside = jnp.sum(jnp.arange(n)[:, None] >= cuts, axis=1) % 2 == 1
            return inside, inside
        # The code copies one row at a time, K times. The first hit makes both children equal there, so that later
        # hits on the same row change nothing: the touched rows and one coin for each say it all.
        count = jax.random.randint(k_count, (), 0, most)
        picks = jax.random.randint(k_rows, (most,), 0, n)
        touched = jnp.zeros(n, bool).at[picks].max(jnp.arange(most) < count)
        heads = jax.random.bernoulli(k_coins, shape=(n,))
        return touched & heads, touched & ~heads


@part
class ElementCopy:
    """Elements of the weight vectors change places at random, two children: ESAC's crossover to the letter of its text."""

    share: float = 0.5  # of the elements that do
    children: ClassVar[int] = 2
    needs_critic: ClassVar[bool] = False

    def __post_init__(self):
        if not 0 <= self.share <= 1:
            raise UserError("the share of elements to exchange lies between 0 and 1")

    def __call__(self, key: Array, x: Individual, y: Individual, critic: Any = None) -> tuple[Individual, Individual]:
        """Two children, x and y with elements of each other."""
        leaves, structure = jax.tree.flatten(x.actor)
        keys = jax.random.split(key, len(leaves))
        masks = [jax.random.bernoulli(k, self.share, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
        swapped = lambda a, b: jax.tree.map(
            lambda m, mine, theirs: jnp.where(m, theirs, mine), jax.tree.unflatten(structure, masks), a, b
        )
        return Individual(swapped(x.actor, y.actor), x.memory), Individual(swapped(y.actor, x.actor), y.memory)


def imitation_targets(x: Individual, y: Individual, critic: Callable[[Array, Array], Array], states: Array) -> Array:
    """The action of whichever parent the critic prefers in each state; a tie, or a critic gone NaN, prefers y."""
    a_x, a_y = x.actor(states), y.actor(states)
    q_x, q_y = critic(states, a_x), critic(states, a_y)
    return jnp.where((q_x > q_y)[:, None], a_x, a_y)


@part
class Distillation:
    """PDERL Algorithm 1: the child imitates whichever parent the critic prefers in each state; one child.

    x is the fitter parent. L = sum_i ||mu_z(s_i) - t(s_i)||^2 + (1/N_C) sum_i ||mu_z(s_i)||^2, t the preferred action.
    Parents and critic stand still, so t is computed once for the whole memory and the rest is regression.
    Differs: Adam, as the paper's text says, where its box says SGD; batches are drawn with replacement.
    """

    epochs: int = 12  # epochs over the child's memory (Table 3)
    batch_size: int = 128  # N_C, states per step
    learning_rate: float = 1e-3  # of the child's Adam, fresh for each child
    child_starts_from: Literal["random", "worse", "better"] = "random"  # the parent whose weights the child begins with
    l2_over: Literal["batch", "elements"] = "batch"  # what the L2 term averages over; "elements" is the authors' code
    children: ClassVar[int] = 1
    needs_critic: ClassVar[bool] = True

    def __post_init__(self):
        if self.batch_size < 1 or self.epochs < 0:
            raise UserError("distillation needs a batch of 1 or more and no negative epochs")

    def __call__(self, key: Array, x: Individual, y: Individual, critic: Callable) -> tuple[Individual]:
        """The child of x, the fitter, and y."""
        k_memory, k_start, k_batches = jax.random.split(key, 3)
        memory = buffer.inherit(k_memory, x.memory, y.memory)  # 1-3
        states = memory.data.observation
        targets = imitation_targets(x, y, critic, states)
        from_x = {"better": True, "worse": False, "random": jax.random.bernoulli(k_start)}[self.child_starts_from]
        child = jax.tree.map(lambda a, b: jnp.where(from_x, a, b), x.actor, y.actor)  # 4
        adam = Adam(self.learning_rate)

        def step(i, carry):
            child, optimiser = carry
            places = buffer.sample(jax.random.fold_in(k_batches, i), memory, (self.batch_size,))  # 7
            gradient = jax.grad(self.loss)(child, states[places], targets[places])
            return adam.step(child, gradient, optimiser)  # 8

        child, _ = jax.lax.fori_loop(0, self.steps(memory.size), step, (child, adam_init(child)))  # 5-10
        return (Individual(child, memory),)

    def loss(self, mu: Callable, states: Array, targets: Array) -> Array:
        """L(C), the distance to the targets and the L2 term that keeps the output tanh from saturating."""
        actions = mu(states)
        l2 = jnp.sum(actions**2) / (len(states) if self.l2_over == "batch" else actions.size)
        return jnp.sum((actions - targets) ** 2) + l2

    def steps(self, size: Array) -> Array:
        """Gradient steps for a memory of this size: epochs x floor(size / N_C), 744 at 8000."""
        return self.epochs * (size // jnp.clip(size, 1, self.batch_size))
