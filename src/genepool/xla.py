"""XLA's settings in this process, and how another process gets the same settings."""

import os
import sys
from typing import Any, cast

import jax

# Run compiled programs on the calling thread. Small actors take less time than to wake a thread of JAX's own.
# This has no effect if JAX was used before genepool was imported.
jax.config.update("jax_cpu_enable_async_dispatch", False)

# For `jax.jit`'s compiler_options: matrix products by Eigen, not by XLA's library YNN. Gradient steps are quicker.
EIGEN = {"xla_cpu_experimental_ynn_fusion_type": ""}

WIDE = 2**18  # bytes of a matrix too large for a core's own caches: reading it takes longer than multiplying by it


def is_tall(shape: tuple[int, ...]) -> bool:
    """Whether a matrix has fewer columns than rows, but more than one.

    XLA multiplies a row by such a matrix much more slowly than by its transpose.
    """
    return len(shape) == 2 and shape[0] > shape[1] > 1


def _has_x64() -> bool:
    return cast(Any, jax.config).jax_enable_x64  # JAX adds its settings to the class when it is imported


def process_settings() -> dict[str, Any]:
    """What another process needs to import the user's modules and to compute the same bits as this one."""
    environment = {"JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS") or "cpu"}
    if "XLA_FLAGS" in os.environ:
        environment["XLA_FLAGS"] = os.environ["XLA_FLAGS"]
    config = {"jax_platforms": environment["JAX_PLATFORMS"], "jax_enable_x64": _has_x64()}
    path = [os.path.abspath(entry) for entry in sys.path]
    return {"path": path, "environment": environment, "jax": config}


def apply_settings(settings: dict[str, Any]) -> None:
    """Apply the `process_settings` of another process. Call it before JAX is used."""
    sys.path += [path for path in settings["path"] if path not in sys.path]
    os.environ.pop("XLA_FLAGS", None)
    os.environ.update(settings["environment"])
    for name, value in settings["jax"].items():
        jax.config.update(name, value)
