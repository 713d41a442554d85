"""The run folder: config.json, metrics.jsonl, checkpoints, champion.safetensors, curve.png."""

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from statistics import fmean
from typing import Any

from genepool.errors import UserError

CONFIG_NAME = "config.json"
METRICS_NAME = "metrics.jsonl"
KEPT = 2  # checkpoints
CLOCKED = ("seconds", "wall", "moments")  # the keys of a record that hold times; all others depend on the seed alone


class Folder:
    """A run on disk. Every file in it is complete."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.config_file = self.path / CONFIG_NAME
        self.metrics_file = self.path / METRICS_NAME
        self.champion_file = self.path / "champion.safetensors"
        self.curve_file = self.path / "curve.png"

    def check_new(self) -> None:
        """Refuse a folder that holds anything."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            hint = f"go on with `genepool resume {self.path}`" if self.config_file.exists() else "choose another"
            raise UserError(f"{self.path} exists and is not empty: {hint}, or give another --run DIR")

    def create(self, config: dict[str, Any]) -> None:
        """Make the folder, which must not hold anything yet."""
        self.check_new()
        try:
            (self.path / "checkpoints").mkdir(parents=True)
            self._write(self.config_file, json.dumps(config, indent=2) + "\n")
            self.metrics_file.touch()
        except OSError as error:
            raise UserError(f"cannot make the run folder {self.path}: {error.strerror}") from None

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that the run was started with."""
        if not self.path.is_dir():
            raise UserError(f"there is no run folder {self.path}: `genepool runs` shows what is there")
        try:
            config = json.loads(self.config_file.read_text())
            _ = config["algorithm"]
            return config
        except FileNotFoundError:
            raise UserError(
                f"{self.path} is no run folder (it has no config.json): `genepool runs` shows what is there"
            ) from None
        except (ValueError, KeyError, TypeError, OSError):
            raise UserError(f"{self.config_file} is damaged: restore it, or start a new run") from None

    def extend(self, frames: int) -> None:
        """Give the run another number of frames to train for."""
        self._write(self.config_file, json.dumps(self.config | {"frames": frames}, indent=2) + "\n")

    @property
    def records(self) -> list[dict[str, Any]]:
        """One record per generation, without a last line that a crash cut short."""
        return list(self.each_record())

    def each_record(self) -> Iterator[dict[str, Any]]:
        """The records one at a time: those of a long run take much memory."""
        if not self.metrics_file.exists():
            return
        with self.metrics_file.open("rb") as file:
            for line in file:
                try:
                    if line.endswith(b"\n"):  # else a crash cut the last line short
                        yield json.loads(line)
                except ValueError:
                    raise UserError(f"{self.metrics_file} is damaged: restore it, or start a new run") from None

    @property
    def trained(self) -> int:
        """Frames of the last record."""
        return (self.records or [{"frames": 0}])[-1]["frames"]

    def append(self, record: dict[str, Any]) -> None:
        """Add a generation's record."""
        with self.metrics_file.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def keep_records(self, count: int) -> None:
        """Drop the records after the checkpoint: those generations are trained again."""
        lines = self.metrics_file.read_text().splitlines(keepends=True) if self.metrics_file.exists() else []
        complete = [line for line in lines if line.endswith("\n")]
        if len(complete) < count:
            raise UserError(
                f"{self.metrics_file} has {len(complete)} of the checkpoint's {count} records: restore it to resume"
            )
        if len(lines) != count:
            self._write(self.metrics_file, "".join(complete[:count]))

    @property
    def checkpoints(self) -> list[Path]:
        """The checkpoints in the folder, oldest first."""
        return sorted((self.path / "checkpoints").glob("*.safetensors"))

    def save_checkpoint(self, generation: int, state: Any, facts: dict[str, Any]) -> None:
        """Write the complete state, and keep the last two."""
        from genepool.runs import checkpoint

        checkpoint.sync(self.metrics_file)
        checkpoint.save(self.path / "checkpoints" / f"{generation:08d}.safetensors", state, facts)
        for old in self.checkpoints[:-KEPT]:
            old.unlink()

    def load_checkpoint(self, like: Any) -> tuple[Any, dict[str, Any]] | None:
        """The newest state and its facts; None if the run has no checkpoint."""
        from genepool.runs import checkpoint

        for unfinished in self.path.rglob("*.tmp"):  # left by a run that was killed
            unfinished.unlink()
        if not self.checkpoints:
            return None
        *older, newest = self.checkpoints
        try:
            return checkpoint.load(newest, like)
        except UserError as error:
            hint = f"; to go on from the one before it, {older[-1].name}, move this one away" if older else ""
            raise UserError(f"{error}{hint}") from None

    def _write(self, path: Path, text: str) -> None:
        from genepool.runs import checkpoint

        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(text)
        checkpoint.sync(temporary)
        temporary.replace(path)
        checkpoint.sync(path.parent)


def summary(folder: Folder) -> tuple[str, ...]:
    """A run in a row: preset, task, seed, frames, frames wanted, and the last tests of champion and learner."""
    try:
        config = folder.config
        records = folder.records
    except UserError:
        return ("damaged", "", "", "", "", "", "")
    tests = []
    for who in ("champion", "learner"):
        returns = next((record[f"{who}_test"] for record in reversed(records) if record.get(f"{who}_test")), None)
        tests.append(f"{fmean(returns):.1f}" if returns else "")
    frames = records[-1]["frames"] if records else 0
    return config["preset"], config["task"], str(config["seed"]), f"{frames:,}", f"{config['frames']:,}", *tests


def file_name(text: str) -> str:
    """The text with a dash for every character that a file's name should not have."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text)


def default_path(preset: str, task: str, seed: int) -> Path:
    """runs/<preset>-<task>-s<seed>-<time> under the current folder."""
    return Path("runs") / f"{preset}-{file_name(task)}-s{seed}-{time.strftime('%Y%m%d-%H%M%S')}"


def circumstances(task_versions: dict[str, str]) -> dict[str, Any]:
    """What the run's results depend on besides its configuration: versions, machine, commit, XLA's flags."""
    from genepool.cores import cores  # here, because it imports JAX, which a reader of records does not need

    versions = {"python": platform.python_version()} | task_versions
    versions |= {name: metadata.version(name) for name in ("genepool", "jax", "jaxlib", "equinox", "numpy", "numba")}
    return {
        "versions": versions,
        "git_commit": _commit(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "machine": {
            "cores": cores(),
            "processor": platform.machine(),
            "system": platform.system(),
        },
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _commit() -> str | None:
    """The commit of the working folder; None without git or outside a repository."""
    if not shutil.which("git"):
        return None
    answer = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None if answer.returncode == 0 else None
