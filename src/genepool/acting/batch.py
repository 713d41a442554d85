"""The actors of many episodes, asked for their actions as one batch: by XLA or, where it is quicker, by Numba."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import PyTreeDef

from genepool.protocols import Actor
from genepool.xla import EIGEN, WIDE, is_tall

Shapes = tuple[tuple[int, ...], ...]  # of an actor's leaves

CAPACITY = 64  # the most episodes in a batch
BATCH_SIZES = (*range(1, 9), 10, 12, 16, 24, 32, 48, CAPACITY)  # numbers of rows that programs are compiled for


class ActorBatch:
    """Many actors evaluated as one batch. They may differ in architecture."""

    def __init__(
        self, actors: Sequence[Actor], noises: Sequence[np.ndarray | None], observation_size: int, action_size: int
    ):
        widths = [action_size if noise is None else noise.shape[-1] for noise in noises]
        episodes_by_shape: dict[tuple[PyTreeDef, Shapes, int], list[int]] = {}
        for k, actor in enumerate(actors):
            leaves, structure = jax.tree.flatten(actor)
            shapes = tuple(np.shape(leaf) for leaf in leaves)
            episodes_by_shape.setdefault((structure, shapes, widths[k]), []).append(k)
        self._parts = [
            SameShapeActors(structure, episodes, actors, noises, (observation_size, width))
            for (structure, _, width), episodes in episodes_by_shape.items()
        ]
        self._action_size = action_size

    def act(self, observations: np.ndarray, live: np.ndarray, t: int) -> np.ndarray:
        """The actions of the live episodes' actors in step t, [len(live), |A|], within [-1, 1]."""
        actions = np.empty((len(live), self._action_size), np.float32)
        for part in self._parts:
            part.act(observations, live, t, actions)
        return actions


class SameShapeActors:
    """The actors of a batch that have the same shape. Each episode has a row of the arrays that they share."""

    def __init__(
        self,
        structure: PyTreeDef,
        episodes: Sequence[int],
        actors: Sequence[Actor],
        noises: Sequence[np.ndarray | None],
        sizes: tuple[int, int],
    ):
        """`structure` is the actors' tree structure. `sizes` are the widths of an observation and of its noise.

        `episodes` are the indices of these actors and noises among those of the whole batch.
        """
        self._structure = structure
        self._observation_size, self._noise_size = sizes
        self._leaves = {k: jax.tree.leaves(actors[k]) for k in episodes}
        self._noises = {k: noise for k in episodes if (noise := noises[k]) is not None}
        self._episodes: list[int] = []  # the episode of each row
        self._live: np.ndarray | None = None  # the live episodes of the last step

    def act(self, observations: np.ndarray, live: np.ndarray, t: int, actions: np.ndarray) -> None:
        """Write the actions of step t into the rows of `actions` that belong to these actors.

        `observations` has a row for each episode, `actions` only for each live one.
        """
        if live is not self._live:  # the caller makes a new array when an episode ends, so not often
            self._update_rows(live)
        if not self._any_live:
            return
        self._inputs[: len(self._episodes), : self._observation_size] = observations[self._observed]
        for row, noise in self._row_noises:
            self._inputs[row, self._observation_size :] = noise[t]
        actions[self._places] = self._evaluate(self._inputs)[self._live_rows]

    def _update_rows(self, live: np.ndarray) -> None:
        """Note which rows are live. Once half of them are not, the live ones move to a smaller batch."""
        places = {k: place for place, k in enumerate(live.tolist()) if k in self._leaves}
        self._live = live
        self._any_live = bool(places)
        if not places:
            return
        if not self._episodes or 2 * len(places) <= len(self._episodes):
            self._episodes = list(places)
            self._observed = index(self._episodes)  # the rows of `observations`
            leaves = [self._leaves[k] for k in self._episodes]
            size, self._evaluate = batch_function(self._structure, leaves, self._observation_size)
            self._inputs = np.zeros((size, self._observation_size + self._noise_size), np.float32)
        noisy = self._noises.keys() & places.keys()
        self._row_noises = [(row, self._noises[k]) for row, k in enumerate(self._episodes) if k in noisy]
        self._places = index(list(places.values()))  # the rows of `actions`
        self._live_rows = index([row for row, k in enumerate(self._episodes) if k in places])


def index(rising: list[int]) -> slice | np.ndarray:
    """The index that picks these rows: a slice if they have no gaps, as slices are quicker."""
    first = rising[0]
    end = rising[-1] + 1
    return slice(first, end) if end - first == len(rising) else np.array(rising)


def batch_function(
    structure: PyTreeDef, leaves: Sequence[Sequence[np.ndarray]], observation_size: int
) -> tuple[int, Callable[[np.ndarray], np.ndarray]]:
    """The size of a batch for these actors of the same shape, and the function from its inputs to its actions.

    Each row of the inputs is an observation and its noise. Numba computes the actions where matrices are wide and the
    actors' class defines `host_batch`: it skips the weights of inputs that a ReLU made zero, and a call costs less than
    one of XLA. Else XLA computes them: it merges the many small operations of small actors into a few.
    """
    columns = list(zip(*leaves, strict=True))
    shapes = tuple(np.shape(column[0]) for column in columns)
    actor_class = type(jax.tree.unflatten(structure, leaves[0]))
    # only the class's own `host_batch`: a subclass may act in another way than its parent
    if any(map(_is_wide, shapes)) and "host_batch" in vars(actor_class):
        explore = jax.tree.unflatten(structure, [_stacked(column, len(leaves)) for column in columns]).host_batch()
        return len(leaves), lambda inputs: explore(inputs[:, :observation_size], inputs[:, observation_size:])
    size = next(size for size in BATCH_SIZES if size >= len(leaves))
    program = _program(structure, shapes, observation_size)
    weights = jax.device_put([_program_input(column, size) for column in columns])
    return size, lambda inputs: np.asarray(program(inputs, weights))


def _is_wide(shape: tuple[int, ...]) -> bool:
    return 4 * math.prod(shape) >= WIDE


def _stacked(leaves: Sequence[np.ndarray], size: int, transposed: bool = False) -> np.ndarray:
    """One leaf of all actors, [size, ...], zero in rows without an actor. It is aligned, so JAX needs no copy of it."""
    shape = np.shape(leaves[0])
    shape = (size, *(shape[::-1] if transposed else shape))
    memory = np.zeros(math.prod(shape) + 16, np.float32)
    begin = -memory.ctypes.data % 64 // 4
    stack = memory[begin : begin + math.prod(shape)].reshape(shape)
    for row, leaf in enumerate(leaves):
        stack[row] = np.transpose(leaf) if transposed else leaf
    return stack


def _program_input(leaves: Sequence[np.ndarray], size: int) -> np.ndarray | list[np.ndarray]:
    """A stacked leaf as `_program` takes it: tall matrices are transposed, and wide ones are a list of matrices.

    All leaves of a single actor are lists too: XLA computes a product with a matrix that is cut out of an array in
    another way, with other bits than in a larger batch.
    """
    stack = _stacked(leaves, size, transposed=is_tall(np.shape(leaves[0])))
    return list(stack) if size == 1 or _is_wide(stack.shape[1:]) else stack


def _transposed_back(leaf: Array | list[Array]) -> Array | list[Array]:
    """A tall matrix of each actor as the actor has it."""
    return [matrix.T for matrix in leaf] if isinstance(leaf, list) else jnp.swapaxes(leaf, 1, 2)


@lru_cache(maxsize=32)
def _program(structure: PyTreeDef, shapes: Shapes, observation_size: int) -> Callable[..., Array]:
    """The compiled actions of all rows, from their inputs and their actors' leaves as `_program_input` gives them.

    The bits of a row depend on that row alone: products are computed row by row, all else number by number. That is so
    with XLA's own kernels on one thread. Kernels of its library YNN sum in an order that depends on the batch's size.
    """

    def act(row: Array, *leaves: Array) -> Array:
        return jax.tree.unflatten(structure, leaves).explore(row[:observation_size], row[observation_size:])

    def act_all(inputs: Array, leaves: list[Array | list[Array]]) -> Array:
        originals = [
            _transposed_back(leaf) if is_tall(shape) else leaf for leaf, shape in zip(leaves, shapes, strict=True)
        ]
        stacks = (jnp.stack(leaf) if isinstance(leaf, list) else leaf for leaf in originals)
        return jax.vmap(act)(inputs, *stacks)

    options = {
        **EIGEN,
        "xla_cpu_multi_thread_eigen": False,
        "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",  # one kernel after the other, in this thread
    }
    return jax.jit(act_all, compiler_options=options)
