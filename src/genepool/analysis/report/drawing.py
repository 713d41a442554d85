"""What all figures have in common: panels, colours, axes, and the table behind each of them."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from genepool.analysis.records.history import History
from genepool.analysis.records.systems import SystemRuns
from genepool.analysis.report.curves import COLOURS, blank

DPI = 150
DASHES = ("-", "--", ":", "-.")
POINTS = 200  # of a curve over several runs
FRAMES = "frames, as the paper counts them"


class Drawing(NamedTuple):
    """A figure and the table that it was drawn from."""

    name: str  # of its files
    title: str
    caption: str
    figure: Any
    header: tuple[str, ...]
    rows: Sequence[tuple]

    def png(self) -> bytes:
        """The picture."""
        buffer = io.BytesIO()
        small_titles(self.figure)
        self.figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
        return buffer.getvalue()

    def write_table(self, path: Path) -> None:
        """The table as CSV."""
        write_csv(path, [self.header, *([_cell(value) for value in row] for row in self.rows)])


def write_csv(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    """Write the rows, of which the first is the header."""
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def _cell(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else f"{value:.6g}"
    return value


def panels(
    count: int, columns: int = 2, width: float = 4.8, height: float = 3.4, names: bool = False
) -> tuple[Any, list[Any]]:
    """A figure with so many panels, and their axes. `names`: the vertical axes have words as labels, not numbers."""
    columns = min(columns, count)
    rows = -(-count // columns)
    # the length of words must be measured, which is slow; for numbers the margins are known
    figure = blank(max(columns * width, 6.0), rows * height, "constrained" if names else None)
    if not names:
        _set_margins(figure, rows, columns)
    found = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in found[count:]:
        axes.set_visible(False)
    for axes in found[:count]:
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
        axes.locator_params(nbins=6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.xaxis.label.set_size(9)
        axes.yaxis.label.set_size(9)
    return figure, found[:count]


def _set_margins(figure: Any, rows: int, columns: int) -> None:
    """Leave room, in inches, for labels and numbers to the left of each panel and below it, and for its title."""
    left = 0.75
    below = 0.5
    above = 0.32
    right = 0.12
    width, height = figure.get_size_inches()
    across = (width - right) / columns - left
    down = height / rows - above - below
    edges = {"left": left / width, "right": 1 - right / width, "bottom": below / height, "top": 1 - above / height}
    figure.subplots_adjust(**edges, wspace=left / across, hspace=(above + below) / down)


def small_titles(figure: Any) -> None:
    """Give the panels' titles their size, which setting a title resets."""
    for axes in figure.axes:
        axes.title.set_size(10)


def count_frames(axes: Any, label: str = FRAMES) -> None:
    """Name the axis of frames, and write 200k and 1M on it."""
    from matplotlib.ticker import EngFormatter

    axes.set_xlabel(label)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def count_generations(axes: Any) -> None:
    """Name the axis of generations, which are whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("generation")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def legend_below(figure: Any, axes: Sequence[Any], columns: int = 3) -> None:
    """One legend for all panels, below them, every label once."""
    handles = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        longest = max(map(len, handles))
        columns = max(1, min(columns, len(handles), int(figure.get_figwidth() * 12 / (longest + 6))))
        legend(figure, list(handles.values()), list(handles), columns)


def legend(figure: Any, handles: list[Any], labels: list[str], columns: int) -> None:
    """A legend below the panels. The figure grows by its height."""
    height = figure.get_figheight()
    edges = figure.subplotpars
    constrained = figure.get_layout_engine()
    more = 0.1 + 0.19 * -(-len(labels) // columns)
    figure.set_figheight(height + more)
    if not constrained:
        below = edges.bottom * height + more
        above = (1 - edges.top) * height
        figure.subplots_adjust(bottom=below / (height + more), top=1 - above / (height + more))
    where = "outside lower center" if constrained else "lower center"
    figure.legend(handles, labels, loc=where, ncols=columns, frameon=False, fontsize=8)


def thinned(*columns: np.ndarray) -> list[tuple[float, ...]]:
    """The rows of some columns, evenly thinned to about POINTS rows."""
    step = 1 + len(columns[0]) // POINTS
    return list(zip(*(column[::step].tolist() for column in columns), strict=True))


def colour(index: int) -> str:
    """The colour of a system by its index, safe for the colour-blind."""
    return COLOURS[index % len(COLOURS)]


def dash(index: int) -> str:
    """The line style of a system by its index: another one after the last colour."""
    return DASHES[index // len(COLOURS) % len(DASHES)]


def shared_curve(runs: Sequence[History], x: str) -> tuple[np.ndarray, np.ndarray] | None:
    """A grid of `x` that all runs reach, and their smoothed scores there, [runs, points].

    `x` is frames, true_frames or wall.
    """
    columns = [getattr(run, x)[run.score.at] for run in runs]
    if not columns or any(not len(column) or np.isnan(column).any() for column in columns):
        return None
    low = max(column[0] for column in columns)
    high = min(column[-1] for column in columns)
    if high < low:
        return None
    grid = np.linspace(low, high, POINTS) if high > low else np.array([high])
    return grid, np.stack([np.interp(grid, at, run.smoothed()) for at, run in zip(columns, runs, strict=True)])


def scored_by(systems: Sequence[SystemRuns]) -> str:
    """Whose returns are drawn, as the label of an axis."""
    who = dict.fromkeys(run.scored for system in systems for run in system.runs)
    episodes = sorted({run.score.episodes for system in systems for run in system.runs})
    if set(who) == {"fittest"}:
        return "best fitness (no tests on record)"
    return f"test return of {' or '.join(who)}, {' or '.join(map(str, episodes))} episodes"
