"""Parts: the memory of a replay, and how long the command line takes to start."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax

from benchmarks.parts.measuring import ALGORITHM, SIZES, Row, row, seconds
from genepool import buffer


def memory(threads: int, quick: bool) -> list[Row]:
    """The memory of a full replay: the bytes of its arrays, which are written in place and never copied."""
    capacity = ALGORITHM.replay
    width = 2 * SIZES[0] + SIZES[1] + 2
    arrays = sum(leaf.nbytes for leaf in jax.tree.leaves(buffer.empty(capacity, *SIZES)))
    limit_is = f"{capacity:,} rows of {width} float32"
    return [row("replay", "MB", [arrays / 1e6], [4 * capacity * width / 1e6], limit_is, target=1.2)]


def startup(threads: int, quick: bool) -> list[Row]:
    """`genepool --help`. The limit is an interpreter that does nothing."""
    commands = ([Path(sys.executable).with_name("genepool"), "--help"], [sys.executable, "-c", "pass"])

    def run(command: list[Any]) -> float:
        return seconds(lambda: subprocess.check_output(command))

    ours, bare = zip(*[[run(command) for command in commands] for _ in range(1 if quick else 5)], strict=True)
    target = {"target": 1.0, "target_is_of": "measured"}
    return [row(f"genepool --help, at best {min(ours):.3f}", "s", ours, bare, "python -c pass", **target)]
