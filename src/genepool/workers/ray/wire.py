"""How candidates are sent: each as bytes, and the arrays that they share as blocks that are stored once.

A candidate's message holds its actor, seeds and noise. The large arrays of its lesson and its reference (critics, the
ring of states, the mean) are sent as references. Of a new version only the blocks that changed are stored and fetched.
With a perturbation, as in an evolution strategy, many candidates have the same actor: its arrays are references too.
The memory and the credited weights are not sent, as only breeding needs them.
"""

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool.types import Candidate, Individual
from genepool.workers.ray.jobs import Reference

SHARED = 16_384  # bytes: larger arrays are sent as references
BLOCK = 4 << 20  # bytes of a block


@dataclass
class Version:
    """One version of a shared array: its blocks, and their references (at the receiver: their ids)."""

    array: Array | np.ndarray | None  # None until it is put together at the receiver
    references: list[Reference]
    blocks: list[np.ndarray]


class Sender:
    """Packs candidates. It keeps the latest version of every shared array, under its path in the candidate."""

    def __init__(self, put: Callable[[np.ndarray], Reference], get: Callable[[Reference], np.ndarray]):
        self._put = put
        self._get = get
        self._latest: dict[str, Version] = {}

    def pack(self, candidate: Candidate) -> tuple[bytes, dict[str, list[Reference]]]:
        """The candidate's message, and the references of its shared arrays by name."""
        shared = {"lesson": candidate.lesson, "reference": candidate.reference}
        if candidate.perturbation is not None:  # many candidates have the same actor
            shared["actor"] = candidate.individual.actor
        names: dict[int, str] = {}
        references: dict[str, list[Reference]] = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(shared):
            if isinstance(leaf, Array | np.ndarray) and not _is_key(leaf) and leaf.nbytes >= SHARED:
                name = jax.tree_util.keystr(path)
                names[id(leaf)] = name
                references[name] = self._stored(name, leaf)
        sent = replace(candidate, individual=Individual(candidate.individual.actor, None), credited=None)
        return dumps(sent, names), references

    def _stored(self, name: str, array: Array | np.ndarray) -> list[Reference]:
        latest = self._latest.get(name, Version(None, [], []))
        if array is latest.array and isinstance(array, Array):  # a NumPy array may have changed since
            return latest.references
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        references: list[Reference] = []
        blocks: list[np.ndarray] = []
        for k, block in enumerate(data[begin : begin + BLOCK] for begin in range(0, data.size, BLOCK)):
            if k < len(latest.blocks) and np.array_equal(latest.blocks[k], block):
                references.append(latest.references[k])
                blocks.append(latest.blocks[k])
            elif blocks and np.array_equal(blocks[-1], block):  # zeros of a ring that is not full yet
                references.append(references[-1])
                blocks.append(blocks[-1])
            else:
                references.append(self._put(block))
                blocks.append(self._get(references[-1]))  # a view of the store, not a copy
        self._latest[name] = Version(array, references, blocks)
        return references


class Receiver:
    """Unpacks candidates. It keeps the latest version of every shared array, and fetches only new blocks."""

    def __init__(self, get: Callable[[list[Reference]], list[np.ndarray]]):
        self._get = get
        self._latest: dict[str, Version] = {}

    def unpack(self, message: bytes, references: dict[str, list[Reference]]) -> Candidate:
        """The candidate that was packed."""
        for name, blocks in references.items():
            self._fetch(name, blocks)
        return loads(message, self._array)

    def _fetch(self, name: str, references: list[Reference]) -> None:
        ids = [reference.hex() for reference in references]
        latest = self._latest.get(name, Version(None, [], []))
        if ids != latest.references:
            known = dict(zip(latest.references, latest.blocks, strict=True))
            missing = {id: reference for id, reference in zip(ids, references, strict=True) if id not in known}
            known |= zip(missing, self._get(list(missing.values())), strict=True)
            self._latest[name] = Version(None, ids, [known[id] for id in ids])

    def _array(self, name: str, dtype: np.dtype, shape: tuple[int, ...], of_jax: bool) -> Array | np.ndarray:
        version = self._latest[name]
        if version.array is None:
            data = version.blocks[0] if len(version.blocks) == 1 else np.concatenate(version.blocks)
            array = data.view(dtype).reshape(shape)
            version.array = jnp.asarray(array) if of_jax else array
        return version.array


class Pickler(cloudpickle.Pickler):
    """Writes JAX arrays as NumPy arrays, and leaves out arrays that have a name."""

    def __init__(self, file: io.BytesIO, names: dict[int, str]):
        super().__init__(file, protocol=5)
        self._names = names

    def persistent_id(self, obj: Any) -> tuple[Any, ...] | None:
        """Of an array that is left out: its name, dtype and shape, and whether it is a JAX array."""
        name = self._names.get(id(obj))
        return None if name is None else (name, obj.dtype, obj.shape, isinstance(obj, Array))

    def reducer_override(self, obj: Any) -> Any:
        """How a JAX array is rebuilt."""
        if not isinstance(obj, Array):
            return super().reducer_override(obj)
        if _is_key(obj):
            implementation = str(jax.random.key_impl(obj))
            return partial(jax.random.wrap_key_data, impl=implementation), (np.asarray(jax.random.key_data(obj)),)
        return jnp.asarray, (np.asarray(obj),)


class Unpickler(pickle.Unpickler):
    """Reads what `Pickler` wrote; `find` returns the arrays that it left out."""

    def __init__(self, file: io.BytesIO, find: Callable[..., Array | np.ndarray | None]):
        super().__init__(file)
        self._find = find

    def persistent_load(self, pid: tuple[Any, ...]) -> Any:
        """An array that was left out."""
        return self._find(*pid)


def dumps(value: object, names: dict[int, str] | None = None) -> bytes:
    """The value in bytes, without the arrays whose ids have names."""
    file = io.BytesIO()
    Pickler(file, names or {}).dump(value)
    return file.getvalue()


def _nothing(*_: object) -> None:
    """Finds no array."""


def loads(data: bytes, find: Callable[..., Array | np.ndarray | None] = _nothing) -> Any:
    """The value that `dumps` wrote."""
    return Unpickler(io.BytesIO(data), find).load()


def _is_key(array: Array | np.ndarray) -> bool:
    return jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
