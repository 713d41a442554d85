"""What this process may use of the machine, and how JAX does."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

# Whoever calls a program runs it. Else a thread of JAX's own would, and to wake it takes longer than ten small actors need
# for their actions: 83 us in place of 41 on two cores. It comes too late where JAX was used before genepool was imported.
jax.config.update("jax_cpu_enable_async_dispatch", False)


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(do: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """What is done with each, a core for each: they are independent, so the bits are those of one after the other."""
    if cores() == 1 or len(items) < 2:
        return [jax.block_until_ready(do(item)) for item in items]
    with ThreadPoolExecutor(min(cores(), len(items))) as pool:
        return list(pool.map(lambda item: jax.block_until_ready(do(item)), items))
