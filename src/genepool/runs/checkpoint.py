"""Pytrees of arrays as files: safetensors for the arrays, JSON for the facts beside them, and never a pickle.

A file appears whole or not at all, and carries a digest of everything in it, so that a damaged one is refused.
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
    """Write the tree and the facts: to a temporary file, synced, then renamed."""
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in _named(_trimmed(tree)).items()}
    # one entry, for safetensors writes several in an order of its own and the same run is to give the same file
    metadata = {"genepool": json.dumps({"facts": facts, "digest": _digest(arrays, facts)})}
    temporary = path.with_name(path.name + ".tmp")
    try:
        safetensors.numpy.save_file(arrays, temporary, metadata)
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(
            f"cannot write {path} ({_line(error)}): make room, then resume; what was there before still is"
        ) from None


def load(path: Path, like: Any) -> tuple[Any, dict[str, Any]]:
    """The tree and the facts of a file. `like` is a tree of the same structure, of arrays or of their shapes."""
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
    """The arrays by name and the facts of a file, once its digest is found right."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no dictionary
    except FileNotFoundError:
        raise UserError(f"there is no file {path}: `genepool runs` shows what is there") from None
    except (safetensors.SafetensorError, OSError, ValueError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged or no genepool file ({_line(error)}): use another copy of it") from None
    if "genepool" not in metadata:
        raise UserError(f"{path} was not written by genepool: give a run folder or a file from one")
    try:
        entry = json.loads(metadata["genepool"])
        whole = entry["digest"] == _digest(arrays, entry["facts"])
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise UserError(f"{path} is damaged (its digest is wrong): use another copy of it")
    return arrays, entry["facts"]


def sync(path: Path) -> None:
    """Have the file or the folder on disk before going on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot sync a folder
            os.fsync(handle)
    finally:
        os.close(handle)


def _named(tree: Any) -> dict[str, Any]:
    rows = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in rows}


def _trimmed(tree: Any) -> Any:
    """The tree with the rows of its rings that were never written left out."""

    def trim(node):
        if not isinstance(node, Buffer) or node.size.ndim:
            return node
        return Buffer(jax.tree.map(lambda leaf: np.asarray(leaf)[: int(node.size)], node.data), node.size, node.cursor)

    return jax.tree.map(trim, tree, is_leaf=lambda node: isinstance(node, Buffer))


def _fitted(path: Path, name: str, array: np.ndarray, like: Any) -> Any:
    shorter = 0 < array.ndim == like.ndim and array.shape[1:] == like.shape[1:] and len(array) <= like.shape[0]
    if (array.shape != like.shape and not shorter) or array.dtype != like.dtype:
        raise UserError(
            f"{path} belongs to another configuration ({name} is {array.shape}, not {like.shape}): resume it in its own run folder"
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
    return str(error).strip().splitlines()[0][:100] if str(error).strip() else type(error).__name__
