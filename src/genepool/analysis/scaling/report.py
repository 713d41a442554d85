"""The worker-scaling study as a table and as a figure, beside the published minutes where the task has them."""

from collections.abc import Sequence
from pathlib import Path

from genepool.analysis.report.curves import COLOURS
from genepool.analysis.scaling.simulate import Row, published
from genepool.errors import UserError

HEAD = (
    "system",
    "schedule",
    "workers",
    "minutes",
    "published",
    "idle",
    "staleness",
    "(most)",
    "critic",
    "lessons",
    "speed-up",
    "efficiency",
)


def table(rows: Sequence[Row], task: str = "") -> str:
    """The rows as aligned text: minutes per million frames, shares, tells late, critic steps per frame."""
    known = published(task)
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
                f"{row.lessons:.0%}" + "*" * too_soon(row, rows),
                f"{row.speed_up:.1f}",
                f"{row.efficiency:.2f}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            text.ljust(width) if k < 2 else text.rjust(width)
            for k, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    if any(too_soon(row, rows) for row in rows):
        lines.append(
            "* so many are asked for in the warm-up that fewer take lessons: the speed is no longer that of AES-RL"
        )
    return "\n".join(lines)


def too_soon(row: Row, rows: Sequence[Row]) -> bool:
    """Whether the run is over before lessons have their share: nine tenths of what they have on other workers."""
    return row.lessons < 0.9 * max(other.lessons for other in rows if other.schedule == row.schedule)


def draw(rows: Sequence[Row], path: Path, task: str = "") -> None:
    """Draw minutes, idle share, staleness and critic steps per frame against workers, a line for each schedule."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("figures need matplotlib: pip install 'genepool[analysis]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(10, 7.5), layout="constrained", sharex=True)
    values = {
        "minutes per million frames": lambda row: row.minutes,
        "idle share of the workers' time": lambda row: row.idle,
        "critic steps per frame": lambda row: row.critic_per_frame,
        "staleness: tells between ask and tell, mean": lambda row: row.staleness,
    }
    schedules = list(dict.fromkeys((row.system, row.schedule) for row in rows))
    most = max(row.workers for row in rows)
    for axes, (label, value) in zip(panels.flat, values.items(), strict=True):
        for colour, (system, schedule) in zip(COLOURS, schedules, strict=False):
            mine = [row for row in rows if (row.system, row.schedule) == (system, schedule)]
            if schedule == "serial":
                axes.axhline(value(mine[0]), color=colour, linestyle="--", label=f"{system}, {schedule}")
                continue
            axes.plot(
                [row.workers for row in mine],
                [value(row) for row in mine],
                "o-",
                color=colour,
                markersize=4,
                label=f"{system}, {schedule}",
            )
        axes.set_xscale("log", base=2)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    minutes, idle, critic, staleness = panels.flat
    minutes.set_yscale("log")
    minutes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    minutes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    staleness.set_yscale("symlog", linthresh=1.0)
    staleness.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    idle.set_ylim(-0.03, 1.03)
    for axes in (critic, staleness):
        axes.set_ylim(bottom=0.0)
    for k, ((_, count), value) in enumerate(published(task).items()):
        minutes.plot(count, value, "kx", markersize=8, label="published, AES-RL Table 1" if k == 0 else None)
    soon = [row.workers for row in rows if too_soon(row, rows)]
    if soon:
        for axes in panels.flat:
            axes.axvspan(min(soon), most, color="grey", alpha=0.12, linewidth=0)
        note = "grey: AES-RL is over before lessons have their share"
        critic.annotate(note, (0.99, 0.97), xycoords="axes fraction", ha="right", va="top", fontsize=8, color="grey")
    for axes in panels[1]:
        axes.set_xlabel("workers")
    minutes.legend(frameon=False, fontsize=8)
    figure.suptitle(f"{task}, simulated clock".lstrip(", "))
    figure.savefig(path, dpi=130)
    plt.close(figure)
