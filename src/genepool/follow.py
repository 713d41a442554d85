"""Training to the end: `genepool.train`, what a person sees meanwhile, and how a run is stopped."""

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
    """Train to the end, and return the finished run: its `champion` is the policy, its `folder` holds everything.

    `frames` are counted as the paper counts them; none: the algorithm's own budget. A display shows how far it is. Ctrl-C
    finishes the generation, saves, and is then raised; `genepool.resume` goes on. To follow a run generation by
    generation, take `genepool.start`.
    """
    started = start(algorithm, frames, seed, run, workers, tensorboard, address)
    if follow(started, Console(highlight=False, quiet=not display)) and not started.done:
        raise KeyboardInterrupt(f"stopped: genepool.resume({str(started.folder.path)!r}) goes on")
    return started


def follow(run: Run, console: Console | None = None) -> int:
    """Train to the end with a display; stop cleanly on Ctrl-C or SIGTERM; then say what came of it. The exit code."""
    console = console or Console(highlight=False)
    _introduce(run, console)
    with _signals(run, console) as received, Display(run, console) as show:
        for record in run:
            show(record)
    if run.done:
        last = run.folder.records[-1]
        who = "champion" if "champion_test" in last else "learner"
        console.print(f"{who}: {test_score(last):.1f} (mean of {len(last[f'{who}_test'])} test episodes)")
        console.print(f"run folder: {run.folder.path}", soft_wrap=True)
        _draw(run, console)
        return 0
    console.print(
        f"stopped after generation {run.generation}; go on with: genepool resume {run.folder.path}", soft_wrap=True
    )
    return 128 + received[0] if received else 0


@contextmanager
def _signals(run: Run, console: Console) -> Iterator[list[int]]:
    """Stop after the generation on the first Ctrl-C or SIGTERM, at once on the second; the signals that came."""
    received: list[int] = []

    def on_signal(number: int, _: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)
        run.stop()
        if not console.is_terminal:
            console.print("stopping after this generation; Ctrl-C again stops at once")

    here = threading.current_thread() is threading.main_thread()  # only there may signals be handled
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM) if here}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _introduce(run: Run, console: Console) -> None:
    """What trains on which task, and the settings that the paper gives for the task."""
    algorithm, config = run.algorithm, run.folder.config
    engine = ", ".join(
        f"{name} {config['versions'][name]}"
        for name in dict.fromkeys((algorithm.task.engine, "mujoco"))
        if name in config["versions"]
    )
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
    try:
        draw([run.folder], run.folder.curve_file)
        console.print(f"learning curve: {run.folder.curve_file}", soft_wrap=True)
    except UserError as error:
        console.print(f"no learning curve: {error}", soft_wrap=True)
