"""One training run of a plan: its process, how far it is, and what it has cost."""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

PROGRAM = (sys.executable, "-m", "genepool.cli")
NOTE = 30.0  # seconds between two notes of what a process has cost so far
TAIL = 2**20  # bytes, more than a record has
DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


class Job(NamedTuple):
    """A training run."""

    name: str
    preset: str
    task: str
    frames: int
    seed: int
    options: tuple[str, ...] = ()

    @property
    def kind(self) -> tuple[Any, ...]:
        """Jobs of one kind train at the same pace."""
        return self.preset, self.task, self.options


def progress(job: Job, runs: Path) -> tuple[int, float]:
    """Frames and seconds trained so far, from the last complete record."""
    metrics = runs / job.name / "metrics.jsonl"
    if not metrics.exists():
        return 0, 0.0
    with metrics.open("rb") as file:
        file.seek(max(0, metrics.stat().st_size - TAIL))
        whole = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
    record = json.loads(whole[-1]) if whole else {"frames": 0, "wall": 0.0}
    return record["frames"], record["wall"]


def session_seconds(session: int) -> float:
    """CPU seconds of a session's processes and of the children they waited for; 0 without /proc."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def cpu_seconds(job: Job, runs: Path) -> float | None:
    """CPU seconds of all processes that have trained the run, with their helpers; None if no note was kept."""
    account = runs / f"{job.name}.cost"
    if not account.exists():
        return None
    whole = [line.split() for line in account.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return sum({begun: float(seconds) for begun, seconds in whole}.values())  # the last note of each process


class Trainer:
    """A process that trains a run. A file next to the run folder notes its cost, a line each time."""

    def __init__(self, job: Job, runs: Path, process: subprocess.Popen):
        self.process = process
        self.account = runs / f"{job.name}.cost"
        self.begun = time.time_ns()  # its name in the file
        self.noted = time.monotonic()
        self.seconds = 0.0
        self.signals = 0  # stop signals sent so far

    def ended(self) -> bool:
        """Whether the process is over. Call it often: it also notes the cost."""
        if self.process.returncode is not None:
            return True
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if pid:
            self.process.returncode = os.waitstatus_to_exitcode(status)
            self._note(usage.ru_utime + usage.ru_stime)
        elif time.monotonic() - self.noted > NOTE:
            self._note(session_seconds(self.process.pid))
        return bool(pid)

    def tell(self, number: signal.Signals) -> None:
        """Send the process a signal. `Popen.send_signal` would lose the cost of a process that has just ended."""
        if self.process.returncode is None:
            os.kill(self.process.pid, number)

    def _note(self, seconds: float) -> None:
        """Keep the larger number: at the end, only helpers that were waited for are counted."""
        self.seconds = max(self.seconds, seconds)
        self.noted = time.monotonic()
        with self.account.open("a") as file:
            file.write(f"{self.begun} {self.seconds:.2f}\n")


def start(job: Job, runs: Path, core: int | None) -> Trainer | None:
    """Start the process that trains the run or resumes it; None if another process trains it."""
    runs.mkdir(parents=True, exist_ok=True)
    folder = runs / job.name
    with (runs / f"{job.name}.lock").open("a") as lock, (runs / f"{job.name}.log").open("a") as log:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        if (folder / "config.json").exists():
            words = ["resume", str(folder)]
        else:
            shutil.rmtree(
                folder, ignore_errors=True
            )  # the process was killed while it made the folder: nothing is in it yet
            words = ["train", job.preset, job.task, "--frames", str(job.frames), "--seed", str(job.seed)]
            words += ["--run", str(folder), *job.options]
        process = subprocess.Popen(
            [*PROGRAM, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            pass_fds=(lock.fileno(),),  # the lock is held until the process ends
            start_new_session=True,  # Ctrl-C reaches this process only, which then signals once
            preexec_fn=partial(_settle, core),
        )
        return Trainer(job, runs, process)


def _settle(core: int | None) -> None:
    """In the new process: use one core, and stop cleanly when the runner is killed."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGTERM)
