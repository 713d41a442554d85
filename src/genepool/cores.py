"""The cores and caches that this process may use."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import jax

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """The number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def last_cache(processor: Path = Path("/sys/devices/system/cpu/cpu0")) -> int:
    """Bytes of the last cache for each core, if its cores share it evenly; 0 where the system does not say."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        last = max(processor.glob("cache/index*"), key=lambda cache: int((cache / "level").read_text()))
        sharers = (last / "shared_cpu_map").read_text().replace(",", "")
        return 1024 * int((last / "size").read_text().strip().removesuffix("K")) // int(sharers, 16).bit_count()
    return 0


def map_on_cores(do: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`do(item)` for each item, one core each. The items are independent, so the bits are those of a loop."""

    def done(item: Item) -> Result:
        return jax.block_until_ready(do(item))

    if cores() == 1 or len(items) < 2:
        return [done(item) for item in items]
    with ThreadPoolExecutor(min(cores(), len(items))) as pool:
        return list(pool.map(done, items))
