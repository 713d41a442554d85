"""How this process has XLA work, and how another process gets the same settings."""

import os
import sys
from typing import Any

import jax

# Whoever calls a program runs it. Else a thread of JAX's own would, and to wake it takes longer than ten small actors need
# for their actions: 83 us in place of 41 on two cores. It comes too late where JAX was used before genepool was imported.
jax.config.update("jax_cpu_enable_async_dispatch", False)

# For `jax.jit`'s compiler_options: matrix products by Eigen, not by XLA's library YNN. A DDPG update takes a fifth less on two cores
# and 4 % less on one, TD3's 5 and 7 %; SAC's, which is of larger batches, a tenth and 3 % more. GPO's and a distillation take as long.
EIGEN = {"xla_cpu_experimental_ynn_fusion_type": ""}

WIDE = 2**18  # bytes of a matrix that no core keeps in its own caches: to fetch it takes longer than to multiply by it


def is_tall(shape: tuple[int, ...]) -> bool:
    """Whether it is a matrix of fewer columns than rows, but not of one column. XLA's product of a row with it takes up to fifteen
    times as long as with one that lies in memory column by column.
    """
    return len(shape) == 2 and shape[0] > shape[1] > 1


def process_settings() -> dict[str, Any]:
    """What another process must have in common with this one, so that it finds the user's modules and gets the same bits."""
    environment = {"JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS") or "cpu"}
    if "XLA_FLAGS" in os.environ:
        environment["XLA_FLAGS"] = os.environ["XLA_FLAGS"]
    config = {"jax_platforms": environment["JAX_PLATFORMS"], "jax_enable_x64": jax.config.jax_enable_x64}
    path = [os.path.abspath(entry) for entry in sys.path]
    return {"path": path, "environment": environment, "jax": config}


def apply_settings(process_settings: dict[str, Any]) -> None:
    """Take over the settings of the process that sent them. Call it before JAX is used."""
    sys.path += [path for path in process_settings["path"] if path not in sys.path]
    os.environ.pop("XLA_FLAGS", None)
    os.environ.update(process_settings["environment"])
    for name, value in process_settings["jax"].items():
        jax.config.update(name, value)
