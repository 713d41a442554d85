"""Whether two checkouts of genepool train the same bits: the first records of small runs of every preset.

    python -m benchmarks.same_bits --old PATH [--new PATH] [--only PATTERN ...] [--keep DIR]

Both sides run on this machine with this Python, by the command line, which changes least. Two runs are the same if all
lines of metrics.jsonl are the same, except for times, and all arrays of champion.safetensors. The new side is this
checkout unless `--new` names another. With `--keep` the runs stay in DIR, and the old side's are reused while its
source is the same. On Ray only synchronous runs are compared: asynchronous ones depend on which worker finishes first.

Exit code 1: a case differs, fails, or does not show what it must, such as a lesson.
"""

import argparse
import contextlib
import fnmatch
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.same_bits_cases import CASES, Case

HERE = Path(__file__).resolve().parents[1]
SERVER = HERE / "benchmarks" / "same_bits_server.py"
CLOCKED = ("seconds", "wall", "moments")  # the keys of a record that hold times
FEWEST = 3  # records that a case must have at least
VERSIONS = ("jax", "jaxlib", "numpy", "numba", "equinox", "mujoco", "envpool", "gymnasium", "evosax", "ray")


def shown(records: Sequence[dict[str, Any]]) -> set[str]:
    """Words for what these records hold: operators, purposes, gradient steps, phases, clones, couples, references."""
    candidates = [candidate for record in records for candidate in record["candidates"]]
    words = {word for one in candidates for word in (*one["operators"], one["purpose"])}
    words |= {word.title().replace(" ", "") for word in words}  # "row copy" is RowCopy
    words |= {"reference"} if any("reference" in one for one in candidates) else set()
    return words | {name for name in ("updates", "phases", "clone", "couples") if any(r.get(name) for r in records)}


class Side:
    """One of the two checkouts, and the process that trains with it."""

    def __init__(self, checkout: Path, folder: Path, reuse: bool):
        self.checkout = checkout
        self.folder = folder
        self.reuse = reuse
        self._process: subprocess.Popen | None = None
        files = sorted((checkout / "src").rglob("*.py"))
        if not files:
            sys.exit(f"{checkout} is no checkout of genepool: it has no src")
        versions = {package.name: package.version for package in metadata.distributions() if package.name in VERSIONS}
        digest = hashlib.sha256(json.dumps(versions, sort_keys=True).encode())
        for file in files:
            digest.update(str(file.relative_to(checkout)).encode() + file.read_bytes())
        self._source = digest.hexdigest()

    def run(self, name: str, case: Case) -> tuple[Path, str, str]:
        """The run folder of a case, how long it took, and the error if there was one."""
        folder = self.folder / re.sub(r"\W+", "-", name)
        mark = folder.with_suffix(".json")  # written last: only complete runs have one
        identity = json.dumps({"source": self._source, "case": asdict(case)})
        if self.reuse and mark.exists() and mark.read_text() == identity:
            return folder, "kept", ""
        mark.unlink(missing_ok=True)
        begun = time.perf_counter()
        code = 2
        for options in filter(None, (case.options, case.other_spelling)):
            if code == 2:  # the spelling was refused
                shutil.rmtree(folder, ignore_errors=True)
                code = self._call(case.commands(options, folder), folder.with_suffix(".log"))
        seconds = f"{time.perf_counter() - begun:.1f} s"
        if code:
            self.close()  # after a failure the next case starts in a new process
            return folder, seconds, f"exit code {code}, see {folder.with_suffix('.log')}"
        mark.write_text(identity)
        return folder, seconds, ""

    def _call(self, commands: list[list[str]], log: Path) -> int:
        if self._process is None:
            self._process = self._start()
        print(json.dumps({"commands": commands, "log": str(log)}), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        return int(answer) if answer else self._process.wait() or 1

    def _start(self) -> subprocess.Popen:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join(
            str(part) for part in (self.checkout / "src", HERE / "tests")
        )  # tests: the user's own tasks
        environment = {"JAX_PLATFORMS": "cpu"} | os.environ | {"PYTHONPATH": path}
        command = [sys.executable, "-P", str(SERVER), str(self.checkout)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(command, cwd=self.folder, env=environment, text=True, **pipes)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
            self._process.kill()
            self._process.stdout.close()
            self._process = None


def first_difference(old: Path, new: Path) -> str:
    """The first record and key in which two runs differ, else the first array of the champions; empty if none does."""
    sides = read(old), read(new)
    for number, (one, other) in enumerate(zip(*sides, strict=False), 1):
        for key, *values in unlike(one, other):
            return f"record {number}, {key}: {values[0]} | {values[1]}"
    if len(sides[0]) != len(sides[1]):
        return f"records: {len(sides[0])} | {len(sides[1])}"
    champions = [arrays(folder / "champion.safetensors") for folder in (old, new)]
    for key, *values in unlike(*champions):
        return f"champion, {key}: {values[0]} | {values[1]}"
    return ""


def read(folder: Path) -> list[dict[str, Any]]:
    """The records of a run without their times."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key not in CLOCKED} for record in records]


def arrays(file: Path) -> dict[str, Any]:
    """The arrays of a file as types and exact numbers."""
    import safetensors.numpy

    found = sorted(safetensors.numpy.load_file(file).items())
    return {name: {"dtype": str(array.dtype), "values": array.tolist()} for name, array in found}


def unlike(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, str, str]]:
    """Where two values differ: the key and both values as JSON, which keeps every bit of a number."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old | new:
            yield from unlike(old.get(name, "nothing"), new.get(name, "nothing"), f"{key}.{name}".strip("."))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for k, pair in enumerate(zip(old, new, strict=True)):
            yield from unlike(*pair, f"{key}.{k}")
    elif _exact(old) != _exact(new):
        yield key, json.dumps(old), json.dumps(new)


def _exact(value: Any) -> str:
    """As JSON; 1 and 1.0 are the same."""
    return json.dumps(float(value) if type(value) is int else value)


def verdict(name: str, case: Case, old: Side, new: Side) -> tuple[str, bool]:
    """A line of the table, and whether the case passes."""
    line = [f"{name:34}"]
    folders: list[Path] = []
    problem = ""
    for label, side in (("old", old), ("new", new)):
        folder, took, failed = side.run(name, case)
        folders.append(folder)
        line.append(f"{took:>7}")
        problem = problem or (f"{label} failed: {failed}" if failed else "")
    if not problem:
        records = read(folders[0])
        missing = set(case.shows.split()) - shown(records)
        missing |= {f"{FEWEST} records"} if len(records) < FEWEST else set()
        line.append(f"{len(records)} records")
        found = first_difference(*folders)
        problem = f"differs: {found}" if found else f"does not show {', '.join(sorted(missing))}" if missing else ""
    return "  ".join([*line, problem or "same"]), not problem


def main() -> int:
    """Run both sides of the chosen cases; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_bits", description=__doc__.partition("\n")[0])
    parser.add_argument("--old", type=Path, metavar="PATH", help="the checkout to compare with")
    parser.add_argument("--new", type=Path, metavar="PATH", default=HERE, help="the other checkout; default: this one")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="only these cases: 'pderl*'")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs here, and use the old side's again")
    options = parser.parse_args()
    wanted = [name for name in CASES if any(fnmatch.fnmatch(name, pattern) for pattern in options.only)]
    if options.old is None or not wanted:
        parser.error("--old is needed" if wanted else f"no case matches. The cases are {'; '.join(CASES)}")
    begun = time.perf_counter()
    bad = 0
    with tempfile.TemporaryDirectory() as passing, contextlib.ExitStack() as closing:
        folder = (options.keep or Path(passing)).resolve()
        old = Side(options.old.resolve(), folder / "old", reuse=True)
        new = Side(options.new.resolve(), folder / "new", reuse=False)
        closing.callback(old.close)
        closing.callback(new.close)
        print(f"{'case':34}  {'old':>7}  {'new':>7}")
        for name in wanted:
            line, passed = verdict(name, CASES[name], old, new)
            bad += not passed
            print(line, flush=True)
    print(f"{len(wanted)} cases, {bad or 'none'} not the same, {time.perf_counter() - begun:.0f} s")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
