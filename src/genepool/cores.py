"""The cores and caches that this process may use."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def last_cache(processor: Path = Path("/sys/devices/system/cpu/cpu0")) -> int:
    """Bytes of the last cache that each of this machine's cores may call its own; none where the system does not say."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        last = max(processor.glob("cache/index*"), key=lambda cache: int((cache / "level").read_text()))
        sharers = (last / "shared_cpu_map").read_text().replace(",", "")
        return 1024 * int((last / "size").read_text().strip().removesuffix("K")) // int(sharers, 16).bit_count()
    return 0


def map_on_cores(do: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """What is done with each, a core for each: they are independent, so the bits are those of one after the other."""
    if cores() == 1 or len(items) < 2:
        return [jax.block_until_ready(do(item)) for item in items]
    with ThreadPoolExecutor(min(cores(), len(items))) as pool:
        return list(pool.map(lambda item: jax.block_until_ready(do(item)), items))
