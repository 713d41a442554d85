"""Runs a list of training runs on a Ray cluster, one core each."""

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.runs.jobs import Job, progress, start
from benchmarks.runs.runner import TELL, say
from benchmarks.runs.tables import keep, tables


def on_a_node(job: Job, runs: Path) -> tuple[str, str]:
    """Train a run on the node that calls this, and return its tables."""
    while progress(job, runs)[0] < job.frames:
        trainer = start(job, runs, None)
        if trainer is None:  # another runner trains it
            time.sleep(1.0)
            continue
        try:
            while not trainer.ended():
                time.sleep(1.0)  # Ray can cancel between two sleeps
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

    The nodes need this repository too. If they share the folder of the runs, any node resumes a run that was cut short.
    """
    import ray

    from genepool.workers.named import worker_count
    from genepool.workers.ray import cluster

    count = worker_count(workers)
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # a shell may have set both to be ignored, and Ray's workers inherit that
        signal.signal(number, signal.default_int_handler)
    cluster.join(ray, address) if address else cluster.start(ray, count)
    task = ray.remote(num_cpus=1)(on_a_node)
    failed = 0
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
        say("stopping: the runs finish their generation and save")
        for reference in out:
            ray.cancel(reference)
        ray.wait(list(out), num_returns=len(out), timeout=600.0)
        return 130
    finally:
        ray.shutdown()
    return 1 if failed else 0
