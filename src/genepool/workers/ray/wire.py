"""What crosses the wire: a candidate in bytes, and what candidates share in blocks that are stored once.

Actor, seeds and noise go with the candidate. The arrays of its lesson and its reference (critics, the ring of states, the
mean) go as references; of a new version only the blocks that changed are stored and fetched. Where there is a perturbation,
as in an evolution strategy, many candidates are made of the same actor: its arrays go as references too. What only breeding
needs, the memory and the weights that are credited, is not sent.
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

SHARED = 16_384  # bytes from which an array goes as references
BLOCK = 4 << 20  # bytes of a block


@dataclass
class Version:
    """An array that candidates share, as it is stored: an object or its bytes, and a reference or id per block."""

    array: Any
    references: list[Any]
    blocks: list[np.ndarray]


class Sender:
    """Packs candidates. It knows the latest version of every array by its place in them."""

    def __init__(self, put: Callable[[np.ndarray], Any], get: Callable[[Any], np.ndarray]):
        self._put, self._get = put, get
        self._latest: dict[str, Version] = {}

    def pack(self, candidate: Candidate) -> tuple[bytes, dict[str, list[Any]]]:
        """The candidate as it is now, and the references that go along."""
        shared = {"lesson": candidate.lesson, "reference": candidate.reference}
        if candidate.perturbation is not None:  # many are made of the same actor
            shared["actor"] = candidate.individual.actor
        names, references = {}, {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(shared):
            if isinstance(leaf, Array | np.ndarray) and not _is_key(leaf) and leaf.nbytes >= SHARED:
                name = names[id(leaf)] = jax.tree_util.keystr(path)
                references[name] = self._stored(name, leaf)
        sent = replace(candidate, individual=Individual(candidate.individual.actor, None), credited=None)
        return dumps(sent, names), references

    def _stored(self, name: str, array: Any) -> list[Any]:
        latest = self._latest.get(name, Version(None, [], []))
        if array is latest.array and isinstance(array, Array):  # NumPy's may have been written since
            return latest.references
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        references, blocks = [], []
        for k, block in enumerate(data[begin : begin + BLOCK] for begin in range(0, data.size, BLOCK)):
            if k < len(latest.blocks) and np.array_equal(latest.blocks[k], block):
                references.append(latest.references[k])
                blocks.append(latest.blocks[k])
            elif blocks and np.array_equal(blocks[-1], block):  # as where a ring is not filled yet
                references.append(references[-1])
                blocks.append(blocks[-1])
            else:
                references.append(self._put(block))
                blocks.append(self._get(references[-1]))  # not a copy: where it is stored
        self._latest[name] = Version(array, references, blocks)
        return references


class Receiver:
    """Unpacks candidates. It keeps the latest version of every array, and fetches the blocks that it has not."""

    def __init__(self, get: Callable[[list[Any]], list[np.ndarray]]):
        self._get = get
        self._latest: dict[str, Version] = {}

    def unpack(self, message: bytes, references: dict[str, list[Any]]) -> Candidate:
        """The candidate that `pack` was given."""
        for name, blocks in references.items():
            self._fetch(name, blocks)
        return loads(message, self._array)

    def _fetch(self, name: str, references: list[Any]) -> None:
        ids = [reference.hex() for reference in references]
        latest = self._latest.get(name, Version(None, [], []))
        if ids != latest.references:
            had = dict(zip(latest.references, latest.blocks, strict=True))
            missing = {id: reference for id, reference in zip(ids, references, strict=True) if id not in had}
            had |= zip(missing, self._get(list(missing.values())), strict=True)
            self._latest[name] = Version(None, ids, [had[id] for id in ids])

    def _array(self, name: str, kind: Any, shape: tuple[int, ...], of_jax: bool) -> Any:
        version = self._latest[name]
        if version.array is None:
            data = version.blocks[0] if len(version.blocks) == 1 else np.concatenate(version.blocks)
            array = data.view(kind).reshape(shape)
            version.array = jnp.asarray(array) if of_jax else array
        return version.array


class Pickler(cloudpickle.Pickler):
    """Writes JAX's arrays as NumPy's, and leaves out those that have a name."""

    def __init__(self, file: io.BytesIO, names: dict[int, str]):
        super().__init__(file, protocol=5)
        self._names = names

    def persistent_id(self, thing: Any) -> tuple[Any, ...] | None:
        """Name, type and shape of an array that is left out, and whether it is one of JAX's."""
        name = self._names.get(id(thing))
        return None if name is None else (name, thing.dtype, thing.shape, isinstance(thing, Array))

    def reducer_override(self, thing: Any) -> Any:
        """How an array of JAX's is made again."""
        if not isinstance(thing, Array):
            return super().reducer_override(thing)
        if _is_key(thing):
            kind = str(jax.random.key_impl(thing))
            return partial(jax.random.wrap_key_data, impl=kind), (np.asarray(jax.random.key_data(thing)),)
        return jnp.asarray, (np.asarray(thing),)


class Unpickler(pickle.Unpickler):
    """Reads what `Pickler` wrote; `find` gives what it left out."""

    def __init__(self, file: io.BytesIO, find: Callable[..., Any]):
        super().__init__(file)
        self._find = find

    def persistent_load(self, which: tuple[Any, ...]) -> Any:
        """What was left out."""
        return self._find(*which)


def dumps(thing: Any, names: dict[int, str] | None = None) -> bytes:
    """A copy of it in bytes, without the arrays whose ids have names."""
    file = io.BytesIO()
    Pickler(file, names or {}).dump(thing)
    return file.getvalue()


def loads(data: bytes, find: Callable[..., Any] = lambda *which: None) -> Any:
    """What `dumps` was given."""
    return Unpickler(io.BytesIO(data), find).load()


def _is_key(array: Any) -> bool:
    return jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
