"""Run a list of training runs, some at a time. A runner that was killed may be started again: it repeats nothing.

A run is locked while its process lives, so two runners never train the same run. A runner that is started after another
one was killed waits for the processes that are left.
"""

import os
import signal
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.runs.jobs import Job, Trainer, progress, start
from benchmarks.runs.tables import collect

TELL = 60.0  # seconds between two lines of progress


class Runner:
    """Some runs at a time, each on a core of its own."""

    def __init__(self, jobs: Sequence[Job], runs: Path, results: Path, at_once: int):
        self.jobs = list(dict.fromkeys(jobs))  # a plan may name a run early and again in its own row
        self.runs = runs
        self.results = results
        cores = sorted(os.sched_getaffinity(0))
        self.cores = [cores[k % len(cores)] for k in range(at_once)]
        self.waiting = [job for job in self.jobs if not self.done(job)]
        self.running: dict[int, tuple[Job, Trainer]] = {}  # by slot
        self.failed: list[Job] = []
        self.stopped = 0  # how often it was asked to stop

    def done(self, job: Job) -> bool:
        """Whether all its frames are trained."""
        return progress(job, self.runs)[0] >= job.frames

    def stop(self, *_: Any) -> None:
        """First call: the runs finish their generation and save. Second call: they stop at once."""
        self.stopped += 1

    def go(self) -> int:
        """Run until nothing is left. The exit code."""
        before = {number: signal.signal(number, self.stop) for number in (signal.SIGINT, signal.SIGTERM)}
        printed = -TELL
        try:
            while self.running or (self.waiting and not self.stopped):
                self._start_runs()
                if time.monotonic() - printed > TELL:
                    say(self.summary())
                    printed = time.monotonic()
                time.sleep(0.2)
                self._send_signals()
                self._handle_ended()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        say(self.summary())
        return 130 if self.stopped else 1 if self.failed else 0

    def _send_signals(self) -> None:
        """Signal every run, once for each signal that this process received."""
        for job, trainer in self.running.values():
            if trainer.signals < self.stopped:
                say(f"{job.name}: {'finishes its generation and saves' if self.stopped == 1 else 'stops at once'}")
                trainer.tell(signal.SIGTERM if self.stopped == 1 else signal.SIGINT)
                trainer.signals = self.stopped

    def _start_runs(self) -> None:
        """Start runs in the free slots. A run that another runner trains is tried again later."""
        for slot, core in enumerate(self.cores):
            for job in () if self.stopped or slot in self.running else tuple(self.waiting):
                if self.done(job):  # by another runner
                    self.waiting.remove(job)
                elif trainer := start(job, self.runs, core):
                    self.waiting.remove(job)
                    self.running[slot] = job, trainer
                    say(f"{job.name}: {'resumes' if progress(job, self.runs)[0] else 'begins'} on core {core}")
                    break

    def _handle_ended(self) -> None:
        """Handle the runs that have ended."""
        for slot, (job, trainer) in tuple(self.running.items()):
            if not trainer.ended():
                continue
            del self.running[slot]
            if self.done(job):
                collect(job, self.runs, self.results)
                say(f"{job.name}: done in {duration(progress(job, self.runs)[1])}")
            elif self.stopped:
                say(f"{job.name}: saved at {progress(job, self.runs)[0]:,} frames")
            else:
                self.failed.append(job)
                say(f"{job.name}: FAILED, see {self.runs / job.name}.log")

    def summary(self) -> str:
        """What runs, what is done, and how long the rest takes at the pace so far."""
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
    """Print a line with the time, unbuffered."""
    print(time.strftime("%H:%M:%S"), line, flush=True)


def work(jobs: Sequence[Job], runs: Path, results: Path, at_once: int) -> int:
    """Run the jobs on this machine; the exit code."""
    return Runner(jobs, runs, results, at_once).go()
