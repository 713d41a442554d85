"""A crowd: the actors of a batch of episodes, each asked for its action in every step, by XLA or by Numba, whichever is quicker."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool.xla import EIGEN, WIDE, is_tall

CAPACITY = 64  # episodes that a core plays at once; of more, one batch after the other
LANES = (*range(1, 9), 10, 12, 16, 24, 32, 48, CAPACITY)  # sizes that programs are compiled for


class Crowd:
    """The actors of a batch of episodes, asked for their actions together, however differently they are built."""

    def __init__(
        self, actors: Sequence[Any], noises: Sequence[np.ndarray | None], observation_size: int, action_size: int
    ):
        widths = [action_size if noise is None else noise.shape[-1] for noise in noises]
        kinds: dict[Any, list[int]] = {}
        for k, actor in enumerate(actors):
            leaves, structure = jax.tree.flatten(actor)
            shapes = tuple(np.shape(leaf) for leaf in leaves)
            kinds.setdefault((structure, shapes, widths[k]), []).append(k)
        self._groups = [
            Group(structure, episodes, actors, noises, (observation_size, width))
            for (structure, _, width), episodes in kinds.items()
        ]
        self._action_size = action_size

    def act(self, observations: np.ndarray, live: np.ndarray, t: int) -> np.ndarray:
        """The actions of the live episodes' players in step t, [len(live), |A|], within [-1, 1]."""
        actions = np.empty((len(live), self._action_size), np.float32)
        for group in self._groups:
            group.act(observations, live, t, actions)
        return actions


class Group:
    """Those of a crowd that are built alike. Each episode has a lane: a row of every array that they act by together."""

    def __init__(
        self,
        structure: Any,
        episodes: Sequence[int],
        actors: Sequence[Any],
        noises: Sequence[np.ndarray | None],
        sizes: tuple[int, int],
    ):
        self._structure, self._sizes = structure, sizes
        self._leaves = {k: jax.tree.leaves(actors[k]) for k in episodes}
        self._noises = {k: noises[k] for k in episodes if noises[k] is not None}
        self._lanes: list[int] = []
        self._live: np.ndarray | None = None

    def act(self, observations: np.ndarray, live: np.ndarray, t: int, actions: np.ndarray) -> None:
        """Write the actions of its live episodes' players in step t where they stand among all that are live."""
        if live is not self._live:  # who plays changes seldom
            self._follow(live)
        if not self._playing:
            return
        self._inputs[: len(self._lanes), : self._sizes[0]] = observations[self._seen]
        for lane, noise in self._noise:
            self._inputs[lane, self._sizes[0] :] = noise[t]
        actions[self._places] = self._act(self._inputs)[self._taken]

    def _follow(self, live: np.ndarray) -> None:
        """Take note of who is live. When half the lanes are of no use, the rest move to fewer."""
        places = {k: place for place, k in enumerate(live.tolist()) if k in self._leaves}
        self._live, self._playing = live, bool(places)
        if not places:
            return
        if not self._lanes or 2 * len(places) <= len(self._lanes):
            self._lanes = list(places)
            self._seen = index(self._lanes)
            n, self._act = lanes_for(self._structure, [self._leaves[k] for k in self._lanes], self._sizes[0])
            self._inputs = np.zeros((n, sum(self._sizes)), np.float32)  # observation, then noise
        playing = self._noises.keys() & places.keys()
        self._noise = [(lane, self._noises[k]) for lane, k in enumerate(self._lanes) if k in playing]
        self._places = index(list(places.values()))
        self._taken = index([lane for lane, k in enumerate(self._lanes) if k in places])


def index(rising: list[int]) -> slice | np.ndarray:
    """What picks these rows of an array: a slice if none between them is left out, for it costs a third."""
    first, end = rising[0], rising[-1] + 1
    return slice(first, end) if end - first == len(rising) else np.array(rising)


def lanes_for(
    structure: Any, leaves: Sequence[Sequence[np.ndarray]], observation_size: int
) -> tuple[int, Callable[[np.ndarray], np.ndarray]]:
    """Lanes for actors that are built alike, given by their leaves: how many, and what makes their actions of their inputs.

    On the host, by Numba, where matrices are wide and the actors' class says how (`host_batch`): of a ReLU layer it reads half of what XLA
    does, and a call of XLA's costs more than all else there is to do. By XLA else: of the many steps of small actors it makes a few.
    """
    columns = list(zip(*leaves, strict=True))
    shapes = tuple(np.shape(column[0]) for column in columns)
    kind = type(jax.tree.unflatten(structure, leaves[0]))
    if any(map(_is_wide, shapes)) and "together" in vars(kind):  # not a parent's, which may act in another way
        explore = jax.tree.unflatten(structure, [_stacked(column, len(leaves)) for column in columns]).host_batch()
        return len(leaves), lambda rows: explore(rows[:, :observation_size], rows[:, observation_size:])
    n, program = next(n for n in LANES if n >= len(leaves)), _program(structure, shapes, observation_size)
    weights = jax.device_put([_lanes(column, n) for column in columns])
    return n, lambda rows: np.asarray(program(rows, weights))


def _is_wide(shape: tuple[int, ...]) -> bool:
    return 4 * math.prod(shape) >= WIDE


def _stacked(leaves: Sequence[np.ndarray], n: int, turned: bool = False) -> np.ndarray:
    """A leaf of n actors, zero where there is none. It begins where JAX takes it as it is, without a copy."""
    own = np.shape(leaves[0])
    shape = (n, *(own[::-1] if turned else own))
    memory = np.zeros(math.prod(shape) + 16, np.float32)
    begin = -memory.ctypes.data % 64 // 4
    whole = memory[begin : begin + math.prod(shape)].reshape(shape)
    for lane, leaf in enumerate(leaves):
        whole[lane] = np.transpose(leaf) if turned else leaf
    return whole


def _lanes(leaves: Sequence[np.ndarray], n: int) -> np.ndarray | list[np.ndarray]:
    """A stacked leaf as a program takes it: tall matrices turned. Wide ones are given one by one, and so is all that one actor has:
    of a matrix that is cut out of an array XLA would make another product, with other bits than for many.
    """
    whole = _stacked(leaves, n, turned=is_tall(np.shape(leaves[0])))
    return list(whole) if n == 1 or _is_wide(whole.shape[1:]) else whole


def _upright(lanes: Array | list[Array]) -> Array | list[Array]:
    """Turned leaves as an actor has them."""
    return [leaf.T for leaf in lanes] if isinstance(lanes, list) else jnp.swapaxes(lanes, 1, 2)


@lru_cache(maxsize=32)
def _program(structure: Any, shapes: tuple[tuple[int, ...], ...], observation_size: int) -> Any:
    """The actions of all lanes, of their inputs and the leaves of their actors, as `_lanes` gives them.

    A lane's bits depend on nothing but what is in it: products are made lane by lane, all else number by number. That
    is so of XLA's own kernels, on one thread; those of its library YNN sum in an order that depends on the size of all.
    """

    def one(row: Array, *leaves: Array) -> Array:
        return jax.tree.unflatten(structure, leaves).explore(row[:observation_size], row[observation_size:])

    def all_lanes(rows: Array, leaves: list[Array | list[Array]]) -> Array:
        upright = [_upright(leaf) if is_tall(shape) else leaf for leaf, shape in zip(leaves, shapes, strict=True)]
        return jax.vmap(one)(rows, *(jnp.stack(leaf) if isinstance(leaf, list) else leaf for leaf in upright))

    options = {
        **EIGEN,
        "xla_cpu_multi_thread_eigen": False,
        "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",  # one kernel after the other, all in this thread
    }
    return jax.jit(all_lanes, compiler_options=options)
