"""Driving a run from the command line: what a person sees, and how it is stopped."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from genepool.errors import UserError


def drive(run: Any) -> int:
    """Train to the end with a display; stop cleanly on Ctrl-C or SIGTERM; then say what came of it."""
    from rich.console import Console

    from genepool.runs.display import Display, test_score

    console = Console(highlight=False)
    received = []

    def on_signal(number: int, _: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)
        run.stop()
        if not console.is_terminal:
            console.print("stopping after this generation; Ctrl-C again stops at once")

    _introduce(run, console)
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with Display(run, console) as show:
            for record in run:
                show(record)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if run.done:
        last = run.folder.records[-1]
        who = "champion" if "champion_test" in last else "learner"
        console.print(f"{who}: {test_score(last):.1f} (mean of {len(last[f'{who}_test'])} test episodes)")
        console.print(f"run folder: {run.folder.path}", soft_wrap=True)
        _draw([run.folder], run.folder.curve_file, console)
        return 0
    console.print(
        f"stopped after generation {run.generation}; go on with: genepool resume {run.folder.path}", soft_wrap=True
    )
    return 128 + received[0] if received else 0


def _introduce(run: Any, console: Any) -> None:
    """Who trains on what, and the settings that the paper gives for the task."""
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


def _draw(folders: Sequence[Any], path: Path, console: Any) -> None:
    from genepool.analysis.curves import draw

    try:
        draw(folders, path)
        console.print(f"learning curve: {path}", soft_wrap=True)
    except UserError as error:
        console.print(f"no learning curve: {error}", soft_wrap=True)
