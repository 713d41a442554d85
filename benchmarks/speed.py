"""The speed benchmark: every figure with a limit measured in the same run, as a table and as JSON.

    python -m benchmarks.speed [--json FILE] [--quick]

Each part runs in a process of its own, for threads must be set before NumPy and JAX are imported. A part by itself:
`python -m benchmarks.speed --part update --threads 1`. What the parts measure is in `benchmarks/parts/`.
"""

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

CORES = len(os.sched_getaffinity(0))
PACKAGES = ("genepool", "jax", "jaxlib", "numba", "numpy", "equinox", "optax", "envpool", "gymnasium", "mujoco")


def main() -> None:
    """Measure one part, or all of them one after the other."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description="genepool's speed against its limits"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON here and not below the table")
    parser.add_argument("--quick", action="store_true", help="one short round: whether it runs, not how fast")
    parser.add_argument("--part", help="measure this part only, in this process, and print its rows as JSON")
    parser.add_argument("--threads", type=int, default=CORES, help="of the part")
    options = parser.parse_args()
    if options.part:
        prepare(options.threads)
        parts = importlib.import_module("benchmarks.parts")  # not before: it imports JAX
        print(json.dumps(parts.PARTS[options.part](options.threads, options.quick)))
        return
    report = {"facts": facts(), "quick": options.quick, "rows": []}
    for part, threads in plan(options.quick):
        print(f"measuring {part}, threads {threads}", file=sys.stderr)
        report["rows"] += [summary(row) for row in in_a_process(part, threads, options.quick)]
    show(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    else:
        print(json.dumps(report, indent=1))


def plan(quick: bool) -> list[tuple[str, int]]:
    """The parts and their threads: one and two, where there are two cores and time for both."""
    counts = [1, 2] if CORES > 1 and not quick else [1]
    both = [
        (part, threads) for part in ("update", "acting", "population", "iteration", "teaching") for threads in counts
    ]
    rest = [(part, CORES) for part in ("generation", "cluster", "memory", "startup")]
    return [*both, ("distillation", 1), *rest]


def prepare(threads: int) -> None:
    """Bind this process to so many cores, with one thread on each."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    os.environ["JAX_PLATFORMS"] = "cpu"  # the limits are a processor's


def in_a_process(part: str, threads: int, quick: bool) -> list[dict[str, Any]]:
    """The rows of a part, measured in a new process."""
    command = [sys.executable, "-m", "benchmarks.speed", "--part", part, "--threads", str(threads)]
    answer = subprocess.run(command + ["--quick"] * quick, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(answer.stdout.splitlines()[-1])


def summary(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its figures: medians over the rounds, their ratio, the ratio of the best rounds, and the verdict."""
    rounds, limits, target = row["rounds"], row["limit_rounds"], row["target"]
    measured, limit = median(rounds), median(limits)
    figures = {"measured": measured, "limit": limit, "ratio": measured / limit, "min_ratio": min(rounds) / min(limits)}
    met = None if target is None else figures[row["target_is_of"]] <= target
    return {"name": row["name"], **figures, "target": target, "met": met, **row}


def facts() -> dict[str, Any]:
    """What the figures depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    found = {package.name: package.version for package in metadata.distributions()}
    return {
        "date": time.strftime("%Y-%m-%d %H:%M %z"),
        "processor": models[0] if models else platform.machine(),
        "cores": CORES,
        "load": round(os.getloadavg()[0], 2),  # of the last minute, before anything was measured
        "versions": {"python": platform.python_version()} | {name: found[name] for name in PACKAGES if name in found},
    }


def show(report: dict[str, Any]) -> None:
    """Print the facts and the table."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 170)
    about, versions = report["facts"], report["facts"]["versions"]
    console.print(f"{about['date']}  {about['processor']}, {about['cores']} cores, load {about['load']} before")
    console.print("  ".join(f"{name} {number}" for name, number in versions.items()))
    if report["quick"]:
        console.print("a quick run: one short round, its figures show nothing about speed")
    columns = ("", "measured", "limit", "ratio", "min/min", "target", "met", "the limit is")
    table = Table(*columns, box=None, header_style="dim")
    for row in report["rows"]:
        values = [f"{row[name]:.4g} {row['unit']}" for name in ("measured", "limit")]
        ratios = [f"{row[name]:.3g}" for name in ("ratio", "min_ratio")]
        table.add_row(row["name"], *values, *ratios, *verdict(row), row["limit_is"])
    console.print(table)


def verdict(row: dict[str, Any]) -> tuple[str, str]:
    """A row's target, with x where it is one of the ratio, and whether it is met."""
    if row["target"] is None:
        return "", ""
    unit = "x" if row["target_is_of"] == "ratio" else row["unit"]
    return f"{row['target']:g} {unit}", "yes" if row["met"] else "[red]no[/]"


if __name__ == "__main__":
    main()
