"""Training to the end: `genepool.train`, with a display, and how a run is stopped."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from genepool.analysis.report.curves import draw
from genepool.errors import UserError
from genepool.protocols import Algorithm, Workers
from genepool.runs.display import Display, test_score
from genepool.runs.training import Run, start


def train(
    algorithm: Algorithm,
    frames: float | None = None,
    seed: int = 0,
    run: str | Path | None = None,
    workers: Workers | str = "local",
    tensorboard: bool = False,
    address: str | None = None,
    display: bool = True,
) -> Run:
    """Train to the end, and return the finished run. Its `champion` is the policy, its `folder` holds everything.

    `frames` are counted as the paper counts them. None: the algorithm's budget. A display shows the progress. Ctrl-C
    ends the generation, saves, and is then raised; `genepool.resume` goes on. To follow a run generation by
    generation, use `genepool.start`.
    """
    started = start(algorithm, frames, seed, run, workers, tensorboard, address)
    if follow(started, Console(highlight=False, quiet=not display)) and not started.done:
        raise KeyboardInterrupt(f"stopped: genepool.resume({str(started.folder.path)!r}) goes on")
    return started


def follow(run: Run, console: Console | None = None) -> int:
    """Train with a display until the end, Ctrl-C or SIGTERM, and print the result. Returns the exit code."""
    console = console or Console(highlight=False)
    _introduce(run, console)
    with _signals(run, console) as received, Display(run, console) as show:
        for record in run:
            show(record)
    if run.done:
        last = run.folder.records[-1]
        name = "champion" if "champion_test" in last else "learner"
        console.print(f"{name}: {test_score(last):.1f} (mean of {len(last[f'{name}_test'])} test episodes)")
        console.print(f"run folder: {run.folder.path}", soft_wrap=True)
        _draw(run, console)
        return 0
    console.print(
        f"stopped after generation {run.generation}; go on with: genepool resume {run.folder.path}", soft_wrap=True
    )
    return 128 + received[0] if received else 0


@contextmanager
def _signals(run: Run, console: Console) -> Iterator[list[int]]:
    """The signals received so far. The first one stops the run after its generation, a second Ctrl-C at once."""
    received: list[int] = []

    def on_signal(number: int, _: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)
        run.stop()
        if not console.is_terminal:  # on a terminal the display shows that the run is stopping
            console.print("stopping after this generation; Ctrl-C again stops at once")

    is_main = threading.current_thread() is threading.main_thread()  # only this thread may handle signals
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM) if is_main}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _introduce(run: Run, console: Console) -> None:
    """Print what trains on which task, and the settings that the paper gives for the task."""
    algorithm = run.algorithm
    versions = run.folder.config["versions"]
    names = dict.fromkeys((algorithm.task.engine, "mujoco"))
    engine = ", ".join(f"{name} {versions[name]}" for name in names if name in versions)
    console.print(
        f"{run.preset} on {algorithm.task.id} ({engine}), seed {run.seed}, {run.frames_wanted:,} frames", soft_wrap=True
    )
    settings = ", ".join(f"{name} {value}" for name, value in algorithm.settings().items())
    if settings:
        console.print(settings, soft_wrap=True)
    if run.where != "local" or algorithm.schedule == "asynchronous":
        console.print(f"{algorithm.schedule} schedule, workers {run.where}", soft_wrap=True)
    if run.generation:
        console.print(f"going on after generation {run.generation}", soft_wrap=True)


def _draw(run: Run, console: Console) -> None:
    """Draw the learning curve, or say why there is none."""
    try:
        draw([run.folder], run.folder.curve_file)
        console.print(f"learning curve: {run.folder.curve_file}", soft_wrap=True)
    except UserError as error:
        console.print(f"no learning curve: {error}", soft_wrap=True)
