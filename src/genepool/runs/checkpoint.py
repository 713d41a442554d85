"""Pytrees of arrays as files: safetensors for the arrays, JSON for the facts about them, and never a pickle.

A file is written completely or not at all. It holds a digest of its contents, so that a damaged file is refused.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from genepool.buffer import Buffer
from genepool.errors import UserError


def save(path: Path, tree: Any, facts: dict[str, Any]) -> None:
    """Write the tree and the facts to a temporary file, sync it, then rename it."""
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in _named(_trimmed(tree)).items()}
    # one entry: safetensors writes several in no fixed order, and the same run must give the same file
    metadata = {"genepool": json.dumps({"facts": facts, "digest": _digest(arrays, facts)})}
    temporary = path.with_name(path.name + ".tmp")
    try:
        safetensors.numpy.save_file(arrays, temporary, metadata)
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(
            f"cannot write {path} ({_line(error)}): make room, then resume; the older files are still there"
        ) from None


def load(path: Path, like: Any) -> tuple[Any, dict[str, Any]]:
    """The tree and the facts of a file. `like` is a tree of the same structure that holds arrays or their shapes."""
    arrays, facts = read(path)
    expected = _named(like)
    if arrays.keys() != expected.keys():
        odd = sorted(arrays.keys() ^ expected.keys())[0]
        raise UserError(
            f"{path} belongs to another configuration ({odd} is in only one of them): resume it in its own run folder"
        )
    leaves = [_fitted(path, name, arrays[name], shape) for name, shape in expected.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves), facts


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays by name and the facts of a file. Refused if its digest is wrong."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dictionary
    except FileNotFoundError:
        raise UserError(f"there is no file {path}: `genepool runs` shows what is there") from None
    except (safetensors.SafetensorError, OSError, ValueError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged or no genepool file ({_line(error)}): use another copy of it") from None
    if "genepool" not in metadata:
        raise UserError(f"{path} was not written by genepool: give a run folder or a file from one")
    try:
        entry = json.loads(metadata["genepool"])
        intact = entry["digest"] == _digest(arrays, entry["facts"])
    except (ValueError, KeyError, TypeError):
        intact = False
    if not intact:
        raise UserError(f"{path} is damaged (its digest is wrong): use another copy of it")
    return arrays, entry["facts"]


def sync(path: Path) -> None:
    """Wait until the file or the folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot sync a folder
            os.fsync(handle)
    finally:
        os.close(handle)


def _named(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by their paths."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _trimmed(tree: Any) -> Any:
    """The tree, its rings without the rows that were never written."""

    def trim(node: Any) -> Any:
        if not isinstance(node, Buffer) or node.size.ndim:
            return node
        return Buffer(jax.tree.map(lambda leaf: np.asarray(leaf)[: int(node.size)], node.data), node.size, node.cursor)

    return jax.tree.map(trim, tree, is_leaf=lambda node: isinstance(node, Buffer))


def _fitted(path: Path, name: str, array: np.ndarray, like: Any) -> Any:
    """The array in the shape of `like`. A ring that was trimmed gets its empty rows back."""
    shorter = 0 < array.ndim == like.ndim and array.shape[1:] == like.shape[1:] and len(array) <= like.shape[0]
    if (array.shape != like.shape and not shorter) or array.dtype != like.dtype:
        raise UserError(
            f"{path} belongs to another configuration ({name} is {array.shape}, not {like.shape}): "
            "resume it in its own run folder"
        )
    if array.shape != like.shape:
        array = np.concatenate([array, np.zeros((like.shape[0] - len(array), *array.shape[1:]), array.dtype)])
    return array if isinstance(like, np.ndarray) else jnp.asarray(array)


def _digest(arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> str:
    digest = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.asarray(arrays[name], order="C").reshape(-1).view(np.uint8))
    return digest.hexdigest()


def _line(error: Exception) -> str:
    """The first line of an error's message."""
    return str(error).strip().splitlines()[0][:100] if str(error).strip() else type(error).__name__
