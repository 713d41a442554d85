"""The worker-scaling study as a table and as a figure, with the published minutes if the task has them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from genepool.analysis.report.curves import COLOURS, DPI, blank
from genepool.analysis.report.tables import aligned
from genepool.analysis.scaling.simulate import ScalingResult, published_minutes

HEAD = ("system", "schedule", "workers", "minutes", "published", "idle", "staleness", "(most)", "critic", "lessons")
HEAD += ("speed-up", "efficiency")
FIGURES = {  # the labels of the panels and the fields that they show
    "minutes per million frames": "minutes",
    "idle share of the workers' time": "idle",
    "critic steps per frame": "critic_per_frame",
    "staleness: tells between ask and tell, mean": "staleness",
}


def table(rows: Sequence[ScalingResult], task: str = "") -> str:
    """The rows as aligned text: minutes per million frames, shares, tells late, critic steps per frame."""
    known = published_minutes(task)
    cells = [HEAD]
    for row in rows:
        minutes = known.get((row.system, row.workers))
        cells.append(
            (
                row.system,
                row.schedule,
                str(row.workers),
                f"{row.minutes:.1f}",
                "" if minutes is None else f"{minutes}",
                f"{row.idle:.0%}",
                f"{row.staleness:.1f}",
                str(row.most_staleness),
                f"{row.critic_per_frame:.2f}",
                f"{row.lessons:.0%}" + "*" * is_too_short(row, rows),
                f"{row.speed_up:.1f}",
                f"{row.efficiency:.2f}",
            )
        )
    lines = aligned(cells, left=2)
    if any(is_too_short(row, rows) for row in rows):
        lines.append(
            "* so many are asked for in the warm-up that fewer take lessons: the speed is no longer that of AES-RL"
        )
    return "\n".join(lines)


def is_too_short(row: ScalingResult, rows: Sequence[ScalingResult]) -> bool:
    """Whether the run ends before lessons have their share: nine tenths of what they have on other workers."""
    return row.lessons < 0.9 * max(other.lessons for other in rows if other.schedule == row.schedule)


def draw(rows: Sequence[ScalingResult], path: Path, task: str = "") -> None:
    """Draw minutes, idle share, staleness and critic steps per frame against workers, a line for each schedule."""
    figure = blank(10, 7.5)
    panels = figure.subplots(2, 2, sharex=True)
    for axes, (label, field) in zip(panels.flat, FIGURES.items(), strict=True):
        _draw_lines(axes, rows, field)
        axes.set_xscale("log", base=2)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    minutes, idle, critic, staleness = panels.flat
    minutes.set_yscale("log")
    staleness.set_yscale("symlog", linthresh=1.0)
    for axis in (minutes.yaxis, minutes.xaxis, staleness.yaxis):
        axis.set_major_formatter("{x:g}")
    idle.set_ylim(-0.03, 1.03)
    for axes in (critic, staleness):
        axes.set_ylim(bottom=0.0)
    for k, ((_, count), value) in enumerate(published_minutes(task).items()):
        minutes.plot(count, value, "kx", markersize=8, label="published, AES-RL Table 1" if k == 0 else None)
    too_short = [row.workers for row in rows if is_too_short(row, rows)]
    if too_short:
        for axes in panels.flat:
            axes.axvspan(min(too_short), max(row.workers for row in rows), color="grey", alpha=0.12, linewidth=0)
        note = "grey: AES-RL is over before lessons have their share"
        critic.annotate(note, (0.99, 0.97), xycoords="axes fraction", ha="right", va="top", fontsize=8, color="grey")
    for axes in panels[1]:
        axes.set_xlabel("workers")
    minutes.legend(frameon=False, fontsize=8)
    figure.suptitle(f"{task}, simulated clock".lstrip(", "))
    figure.savefig(path, dpi=DPI)


def _draw_lines(axes: Any, rows: Sequence[ScalingResult], field: str) -> None:
    """One field of the results against workers, a line for each system and schedule."""
    schedules = list(dict.fromkeys((row.system, row.schedule) for row in rows))
    for colour, (system, schedule) in zip(COLOURS, schedules, strict=False):
        own = [row for row in rows if (row.system, row.schedule) == (system, schedule)]
        values = [getattr(row, field) for row in own]
        look = {"color": colour, "label": f"{system}, {schedule}"}
        if schedule == "serial":
            axes.axhline(values[0], linestyle="--", **look)
        else:
            axes.plot([row.workers for row in own], values, "o-", markersize=4, **look)
