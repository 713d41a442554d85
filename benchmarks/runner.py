"""Runs a list of training runs, each a process of its own, some at a time; survives being killed and repeats nothing.

A run holds a lock for as long as its process lives, whoever started it: two runners never train the same run, and one that is
started after another was killed waits for what that one left behind.
"""

import csv
import ctypes
import fcntl
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

PROGRAM = (sys.executable, "-m", "genepool.cli")
COLUMNS = ("frames", "true_frames", "training_frames", "wall_seconds", "who", "returns")
TELL = 60.0  # seconds between two lines about how far it is
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
        """What its pace depends on."""
        return self.preset, self.task, self.options


def progress(job: Job, runs: Path) -> tuple[int, float]:
    """Frames and seconds trained so far, of the last whole record."""
    metrics = runs / job.name / "metrics.jsonl"
    if not metrics.exists():
        return 0, 0.0
    with metrics.open("rb") as file:
        file.seek(max(0, metrics.stat().st_size - TAIL))
        whole = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
    record = json.loads(whole[-1]) if whole else {"frames": 0, "wall": 0.0}
    return record["frames"], record["wall"]


def session_seconds(session: int) -> float:
    """CPU seconds of the processes of a session and of the children that they waited for; 0 where the system does not say."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def cpu_seconds(job: Job, runs: Path) -> float | None:
    """CPU seconds of all processes that have trained the run, with their helpers; none where nobody noted them."""
    account = runs / f"{job.name}.cost"
    if not account.exists():
        return None
    whole = [line.split() for line in account.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return sum({begun: float(seconds) for begun, seconds in whole}.values())  # the last note of each process


class Trainer:
    """A process that trains a run. It notes what the process costs in a file beside the run, a line each time."""

    def __init__(self, job: Job, runs: Path, process: subprocess.Popen):
        self.process = process
        self.account = runs / f"{job.name}.cost"
        self.begun = time.time_ns()  # its name in the file
        self.noted = time.monotonic()
        self.seconds = 0.0
        self.heard = 0  # how often it was asked to stop

    def ended(self) -> bool:
        """Whether the process is over. It is to be asked often: the cost is noted meanwhile, and at the end."""
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
        """Send the process a signal. `Popen` would forget the cost of one that is just over."""
        if self.process.returncode is None:
            os.kill(self.process.pid, number)

    def _note(self, seconds: float) -> None:
        """At the end only helpers that were waited for are counted, so the larger number is the right one."""
        self.seconds = max(self.seconds, seconds)
        self.noted = time.monotonic()
        with self.account.open("a") as file:
            file.write(f"{self.begun} {self.seconds:.2f}\n")


def start(job: Job, runs: Path, core: int | None) -> Trainer | None:
    """The process that trains the run or goes on with it, or nothing if another one is at it."""
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
            shutil.rmtree(folder, ignore_errors=True)  # killed while it was made: nothing is in it yet
            words = ["train", job.preset, job.task, "--frames", str(job.frames), "--seed", str(job.seed)]
            words += ["--run", str(folder), *job.options]
        process = subprocess.Popen(
            [*PROGRAM, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            pass_fds=(lock.fileno(),),  # held until the process ends
            start_new_session=True,  # Ctrl-C reaches us alone, and we tell it once
            preexec_fn=partial(_settle, core),
        )
        return Trainer(job, runs, process)


def _settle(core: int | None) -> None:
    """In the new process: keep to one core, and stop cleanly when the runner is killed."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGTERM)


class Runner:
    """Some runs at a time, each on a core of its own."""

    def __init__(self, jobs: Sequence[Job], runs: Path, results: Path, at_once: int):
        self.jobs = list(dict.fromkeys(jobs))  # a plan may name a run early and again in its own row
        self.runs = runs
        self.results = results
        cores = sorted(os.sched_getaffinity(0))
        self.cores = [cores[k % len(cores)] for k in range(at_once)]
        self.waiting = [job for job in self.jobs if not self.done(job)]
        self.running: dict[int, tuple[Job, Trainer]] = {}  # by place
        self.failed: list[Job] = []
        self.stopped = 0  # how often it was asked to stop

    def done(self, job: Job) -> bool:
        """Whether all its frames are trained."""
        return progress(job, self.runs)[0] >= job.frames

    def stop(self, *_: Any) -> None:
        """Have the runs finish their generation and save; asked again, stop at once."""
        self.stopped += 1

    def go(self) -> int:
        """Until nothing is left; the exit code."""
        before = {number: signal.signal(number, self.stop) for number in (signal.SIGINT, signal.SIGTERM)}
        told = -TELL
        try:
            while self.running or (self.waiting and not self.stopped):
                self._begin()
                if time.monotonic() - told > TELL:
                    say(self.summary())
                    told = time.monotonic()
                time.sleep(0.2)
                self._pass_on()
                self._end()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        say(self.summary())
        return 130 if self.stopped else 1 if self.failed else 0

    def _pass_on(self) -> None:
        """Tell every run that it is to stop, once for each time that we were told."""
        for job, trainer in self.running.values():
            if trainer.heard < self.stopped:
                say(f"{job.name}: {'saves itself' if self.stopped == 1 else 'stops at once'}")
                trainer.tell(signal.SIGTERM if self.stopped == 1 else signal.SIGINT)
                trainer.heard = self.stopped

    def _begin(self) -> None:
        """Start runs in the places that are free. One that another runner is at is asked for again later."""
        for place, core in enumerate(self.cores):
            for job in () if self.stopped or place in self.running else tuple(self.waiting):
                if self.done(job):  # by another runner
                    self.waiting.remove(job)
                elif trainer := start(job, self.runs, core):
                    self.waiting.remove(job)
                    self.running[place] = job, trainer
                    say(f"{job.name}: {'goes on' if progress(job, self.runs)[0] else 'begins'} on core {core}")
                    break

    def _end(self) -> None:
        """Take note of the runs that ended."""
        for place, (job, trainer) in tuple(self.running.items()):
            if not trainer.ended():
                continue
            del self.running[place]
            if self.done(job):
                collect(job, self.runs, self.results)
                say(f"{job.name}: done in {duration(progress(job, self.runs)[1])}")
            elif self.stopped:
                say(f"{job.name}: saved at {progress(job, self.runs)[0]:,} frames")
            else:
                self.failed.append(job)
                say(f"{job.name}: FAILED, see {self.runs / job.name}.log")

    def summary(self) -> str:
        """What runs, what is done, and how long the rest will take at the pace that is known."""
        paces: dict[Any, list[float]] = {}
        at = {job: progress(job, self.runs) for job in self.jobs}
        for job, (frames, wall) in at.items():
            if frames:
                paces.setdefault(job.kind, []).append(wall / frames)
        known = [fmean(found) for found in paces.values()]
        left = [job for job in self.jobs if at[job][0] < job.frames and job not in self.failed]
        pace = lambda job: fmean(paces[job.kind]) if job.kind in paces else fmean(known)
        seconds = sum((job.frames - at[job][0]) * pace(job) for job in left) / len(self.cores) if known else None
        running = ", ".join(f"{job.name} {100 * at[job][0] // job.frames} %" for job, _ in self.running.values())
        counts = f"{sum(frames >= job.frames for job, (frames, _) in at.items())} of {len(self.jobs)} done"
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"{counts}{failed}; running: {running or 'nothing'}; about {duration(seconds)} left"


def duration(seconds: float | None) -> str:
    """Seconds as h:mm:ss."""
    return "?" if seconds is None else str(timedelta(seconds=int(seconds)))


def say(line: str) -> None:
    """A line with the time, at once."""
    print(time.strftime("%H:%M:%S"), line, flush=True)


def work(jobs: Sequence[Job], runs: Path, results: Path, at_once: int) -> int:
    """Run the jobs on this machine; the exit code."""
    return Runner(jobs, runs, results, at_once).go()


def collect(job: Job, runs: Path, results: Path) -> None:
    """Write the tests and the configuration of a run to results/, if it is finished."""
    if progress(job, runs)[0] >= job.frames:
        keep(job, results, *tables(job, runs))


def keep(job: Job, results: Path, curve: str, config: str) -> None:
    """Write the tables of a run, each whole or not at all."""
    folder = results / job.name
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("curve.csv", curve), ("config.json", config)):
        (folder / f"{name}.tmp").write_text(text)
        (folder / f"{name}.tmp").replace(folder / name)


def tables(job: Job, runs: Path) -> tuple[str, str]:
    """A run's tests as CSV, a row for each policy that was tested; and its configuration without what is of this machine.

    `frames` are the paper's, `true_frames` all that were played, `training_frames` those without the tests. With the
    configuration goes what the run cost: seconds by the clock on the wall, and CPU seconds of its own processes, which are
    comparable though cores are shared.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for line in (runs / job.name / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        tests = {name: value for name, value in record.items() if name.endswith("_test") and value}
        training = sum(frames for purpose, frames in record["ledger"].items() if not purpose.endswith(" test"))
        for name, returns in tests.items():
            facts = (
                record["frames"],
                record["true_frames"],
                training,
                round(record["wall"], 1),
                name.removesuffix("_test"),
            )
            writer.writerow([*facts, " ".join(f"{value:.2f}" for value in returns)])
    config = json.loads((runs / job.name / "config.json").read_text())
    words = shlex.split(config["command"])[1:]
    place = words.index("--run") if "--run" in words else len(words)
    config["command"] = shlex.join(["genepool", *words[:place], *words[place + 2 :]])
    cpu = cpu_seconds(job, runs)
    config["cost"] = {"wall_seconds": round(progress(job, runs)[1], 1), "cpu_seconds": cpu and round(cpu, 1)}
    return file.getvalue(), json.dumps(config, indent=2) + "\n"


def on_a_node(job: Job, runs: Path) -> tuple[str, str]:
    """Train a run wherever this is called, and bring its tables."""
    while progress(job, runs)[0] < job.frames:
        trainer = start(job, runs, None)
        if trainer is None:  # another runner is at it
            time.sleep(1.0)
            continue
        try:
            while not trainer.ended():
                time.sleep(1.0)  # Ray's way of cancelling is heard between two of them
        except BaseException:
            trainer.tell(signal.SIGTERM)
            while not trainer.ended():
                time.sleep(0.2)
            raise
        if progress(job, runs)[0] < job.frames:
            raise RuntimeError((runs / f"{job.name}.log").read_text()[-2000:])
    return tables(job, runs)


def spread(jobs: Sequence[Job], runs: Path, results: Path, workers: str, address: str | None) -> int:
    """Run the jobs as tasks of a Ray cluster, one core each; the exit code.

    The nodes need this repository too. Where they share the folder of the runs, one that was cut short goes on on any of them.
    """
    import ray

    from genepool.workers.named import worker_count
    from genepool.workers.ray import cluster

    count = worker_count(workers)
    for number in (signal.SIGINT, signal.SIGTERM):  # first, for a shell may have us and Ray's workers ignore them
        signal.signal(number, signal.default_int_handler)
    cluster.join(ray, address) if address else cluster.start(ray, count)
    task, failed = ray.remote(num_cpus=1)(on_a_node), 0
    left = [job for job in jobs if progress(job, runs)[0] < job.frames]
    out: dict[Any, Job] = {}
    try:
        while left or out:
            while left and len(out) < count:
                out[task.remote(left[0], runs)] = left[0]
                say(f"{left.pop(0).name}: begins")
            ready, _ = ray.wait(list(out), timeout=TELL)
            for reference in ready:
                job = out.pop(reference)
                try:
                    curve, config = ray.get(reference)
                except ray.exceptions.RayError as error:
                    failed += 1
                    say(f"{job.name}: FAILED, {str(error).strip().splitlines()[-1]}")
                    continue
                keep(job, results, curve, config)
                say(f"{job.name}: done")
            say(f"{len(jobs) - len(left) - len(out) - failed} of {len(jobs)} done, {len(out)} running")
    except KeyboardInterrupt:
        say("stopping: the runs save themselves")
        for reference in out:
            ray.cancel(reference)
        ray.wait(list(out), num_returns=len(out), timeout=600.0)
        return 130
    finally:
        ray.shutdown()
    return 1 if failed else 0
