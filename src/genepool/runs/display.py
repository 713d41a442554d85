"""What is shown while a run trains: a live panel in a terminal, a line per generation elsewhere."""

import time
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from genepool.runs.training import Run

BLOCKS = "▁▂▃▄▅▆▇█"


class Display:
    """Shows a run. Used as a context: `with Display(run) as show: for record in run: show(record)`."""

    def __init__(self, run: Run, console: Console):
        self.run = run
        self.console = console
        self.scores: list[float] = []
        self.record: dict[str, Any] = {}
        self.begun = time.monotonic()
        self.first_frames = run.frames
        self.live = Live(console=console, get_renderable=self._panel, refresh_per_second=4, transient=False)

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def __call__(self, record: dict[str, Any]) -> None:
        """Take a generation's record. The panel shows it when it next refreshes; without a terminal, print a line."""
        self.record = record
        score = test_score(record)
        if score is not None:
            self.scores.append(score)
        if not self.console.is_terminal:
            self.console.print(
                "  ".join(f"{name} {value}" for name, value in self._facts()), soft_wrap=True, highlight=False
            )

    @property
    def frames_per_second(self) -> float:
        """Counted frames per second since the display began."""
        return (self.run.frames - self.first_frames) / max(time.monotonic() - self.begun, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """How long the rest will take at this pace."""
        pace = self.frames_per_second
        return max(0, self.run.frames_wanted - self.run.frames) / pace if pace > 0 else None

    def _facts(self) -> list[tuple[str, str]]:
        """Names and values to show. True frames include those of tests and of reference episodes."""
        run = self.run
        record = self.record
        fitness = record.get("fitness") or [float("nan")]
        return [
            ("generation", str(run.generation)),
            ("frames", f"{run.frames:,} of {run.frames_wanted:,} (true {sum(run.ledger.values()):,})"),
            ("frames/s", f"{self.frames_per_second:,.0f}"),
            *([("best", f"{max(fitness):.1f}"), ("mean", f"{fmean(fitness):.1f}")] if record.get("fitness") else []),
            *(
                (f"{who} test", _mean(record[f"{who}_test"]))
                for who in ("champion", "mother", "learner")
                if f"{who}_test" in record
            ),
            ("left", duration(self.seconds_left)),
        ]

    def _panel(self) -> Group:
        run = self.run
        title = f"[bold]{run.preset}[/] on [bold]{run.algorithm.task.id}[/], seed {run.seed}  [dim]{run.folder.path}[/]"
        table = Table.grid(padding=(0, 2))
        for name, value in self._facts():
            table.add_row(Text(name, style="dim"), value)
        busy = "stopping after this generation" if run.stopped else run.clock.phase
        table.add_row(Text("now", style="dim"), f"{busy}, {duration(time.monotonic() - self.begun)} so far")
        if self.scores:
            table.add_row(Text("tests", style="dim"), sparkline(self.scores))
        bar = ProgressBar(total=run.frames_wanted, completed=min(run.frames, run.frames_wanted), width=60)
        return Group(Text.from_markup(title), table, bar)


def test_score(record: dict[str, Any]) -> float | None:
    """The mean test return of a generation's champion, or of the learner if there is no champion."""
    returns = record.get("champion_test") or record.get("learner_test")
    return fmean(returns) if returns else None


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """A curve in one line of text."""
    values = list(values)[-width:]
    low = min(values)
    high = max(values)
    step = (high - low) / (len(BLOCKS) - 1) or 1.0
    return f"{''.join(BLOCKS[round((v - low) / step)] for v in values)}  {low:.0f} to {high:.0f}"


def duration(seconds: float | None) -> str:
    """Seconds as h:mm:ss or m:ss."""
    if seconds is None:
        return "?"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _mean(returns: Sequence[float]) -> str:
    return f"{fmean(returns):.1f}"
