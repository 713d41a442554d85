"""Scores over seeds: learning curves, the same against all frames and the clock, and final scores with the papers'."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from genepool.analysis.records.statistics import WINDOW, interquartile_mean, interval
from genepool.analysis.records.systems import SystemRuns, TaskRuns
from genepool.analysis.report.drawing import (
    Drawing,
    colour,
    count_frames,
    dash,
    legend_below,
    panels,
    scored_by,
    shared_curve,
)
from genepool.analysis.verify.published import PublishedNumber, numbers_for

SEVERAL = 4  # seeds from which the interquartile mean is not the mean
DIFFERENT = 1.2  # ratio of the frames at which runs end, from which the caption mentions it
FEW = "The interval of two seeds is their range; one of five covers the true mean in about 85 % of cases, not in 95 %."
SMOOTH = f"Each run is the mean of its last {WINDOW} tests; faint lines are the seeds."
CLOCKS = {"true_frames": "all frames played, tests and references too", "wall": "wall-clock minutes"}


def learning_curves(group: TaskRuns) -> Drawing | None:
    """The mean and the interquartile mean over seeds, with bootstrap intervals (PDERL Figures 4 and 10)."""
    systems = [system for system in group.systems if any(len(run.score.at) for run in system.runs)]
    if not systems:
        return None
    several = any(len(system.counted) >= SEVERAL for system in systems)
    statistics = ("mean", "interquartile mean") if several else ("mean",)
    figure, found = panels(len(statistics), width=5.2 if several else 7.5, height=3.9)
    rows = []
    for system in systems:
        look = {"color": colour(system.colour_index), "linestyle": dash(system.colour_index)}
        for run in system.runs:
            for axes in found:
                axes.plot(run.frames[run.score.at], run.smoothed(), alpha=0.25, linewidth=0.7, **look)
        shared = shared_curve(system.counted, "frames")
        if shared is not None:
            rows += _mean_curves(system, *shared, dict(zip(statistics, found, strict=True)))
    for axes, name in zip(found, statistics, strict=True):
        count_frames(axes)
        axes.set_ylabel(scored_by(systems))
        axes.set_title(f"{name} over seeds, 95 % bootstrap interval")
    legend_below(figure, found)
    few = "" if several else " Of fewer than four seeds the interquartile mean is the mean, so it is not drawn."
    caption = f"{SMOOTH} Bold: over the frames that all seeds of a system have reached. {FEW}{few} {_caution(systems)}"
    return Drawing(
        "learning-curves",
        "Learning curves",
        caption.strip(),
        figure,
        ("system", "seeds", "frames", "mean", "mean_low", "mean_high", "iqm", "iqm_low", "iqm_high"),
        rows,
    )


def _mean_curves(system: SystemRuns, grid: np.ndarray, curves: np.ndarray, axes_of: dict[str, Any]) -> list[tuple]:
    """Draw each statistic of the curves, [runs, points], on its axes; the rows of the table."""
    values = {"mean": curves.mean(axis=0), "interquartile mean": interquartile_mean(curves, axis=0)}
    ends = {name: interval(curves, name) for name in values}
    shade = colour(system.colour_index)
    for name, axes in axes_of.items():
        dots = {"marker": "o"} if len(grid) == 1 else {"linestyle": dash(system.colour_index)}
        axes.plot(grid, values[name], color=shade, linewidth=1.8, label=system.legend, **dots)
        axes.fill_between(grid, *ends[name], color=shade, alpha=0.18, linewidth=0)
    columns = [grid, *(column for name in values for column in (values[name], *ends[name]))]
    return [(system.label, len(curves), *row) for row in zip(*map(np.ndarray.tolist, columns), strict=True)]


def clocks(group: TaskRuns) -> Drawing | None:
    """The mean over seeds against all frames played and against the clock (AES-RL Figure 3)."""
    figure, found = panels(2, width=5.2, height=3.7)
    rows = []
    for system in group.systems:
        shade = colour(system.colour_index)
        for axes, (x, label) in zip(found, CLOCKS.items(), strict=True):
            shared = shared_curve(system.counted, x)
            if shared is None:
                continue
            grid, curves = shared
            at = grid * (1 / 60 if x == "wall" else 1.0)
            axes.plot(at, curves.mean(axis=0), dash(system.colour_index), color=shade, label=system.legend)
            axes.fill_between(at, *interval(curves), color=shade, alpha=0.18, linewidth=0)
            rows += [(system.label, label, *row) for row in zip(at, curves.mean(axis=0), strict=True)]
    if not rows:
        return None
    count_frames(found[0], CLOCKS["true_frames"])
    found[1].set_xlabel(CLOCKS["wall"])
    for axes in found:
        axes.set_ylabel(scored_by(group.systems))
    legend_below(figure, found)
    machines = sorted({f"{run.config['machine']['cores']} cores" for run in group.runs if "machine" in run.config})
    return Drawing(
        "clocks",
        "The same against all frames and against the clock",
        f"Mean over seeds with 95 % bootstrap interval, each run the mean of its last {WINDOW} tests. "
        f"Machines: {', '.join(machines) or 'not recorded'}; what else ran on them is not on record.",
        figure,
        ("system", "axis", "x", "mean"),
        rows,
    )


def finals(group: TaskRuns) -> Drawing | None:
    """Final scores of all seeds, their mean and interval, and the papers' (PDERL Table 1, AES-RL Tables 2, 3)."""
    systems = [system for system in group.systems if np.isfinite([run.final() for run in system.counted]).any()]
    if not systems:
        return None
    papers = [numbers_for(system) for system in systems]
    lines = sum(1 + len(found) for found in papers)
    figure, (axes,) = panels(1, width=8.5, height=1.3 + 0.42 * lines, names=True)
    rows = []
    names: list[str] = []
    for system, found in zip(systems, papers, strict=True):
        rows.append(_draw_seeds(axes, len(names), system))
        names.append(system.legend)
        for number in found:
            rows.append(_draw_number(axes, len(names), system, number))
            names.append(f"{number.source}, {number.task}")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel(scored_by(systems))
    axes.set_title(f"Final scores on {group.name}")
    return Drawing(
        "final-scores",
        "Final scores",
        f"Dots: the mean of each seed's last {WINDOW} tests. Diamond and bar: their mean and its 95 % bootstrap "
        "interval. Crosses: the papers' means with their spread, on the papers' versions of the task; the table says "
        f"what to mind. {_caution(systems)}",
        figure,
        ("system", "source", "seeds", "mean", "spread"),
        rows,
    )


def _draw_seeds(axes: Any, y: int, system: SystemRuns) -> tuple:
    """The final scores of a system's seeds in one line of the figure; its row."""
    scores = final_scores(system)
    shade = colour(system.colour_index)
    low, high = interval(scores)
    axes.plot(scores, np.full(len(scores), y), "o", color=shade, alpha=0.45, markersize=5)
    axes.plot([low, high], [y, y], "-", color=shade, linewidth=3, alpha=0.8)
    axes.plot(scores.mean(), y, "D", color=shade, markersize=7, markeredgecolor="white")
    spread = scores.std(ddof=1) if len(scores) > 1 else np.nan
    return system.label, "ours", len(scores), scores.mean(), spread


def _draw_number(axes: Any, y: int, system: SystemRuns, number: PublishedNumber) -> tuple:
    """A paper's number in one line of the figure; its row."""
    axes.errorbar(number.value, y, xerr=number.spread, fmt="x", color="#555555", capsize=3, markersize=6)
    return system.label, number.source, number.seeds or "", number.value, number.spread or ""


def final_scores(system: SystemRuns) -> np.ndarray:
    """The final score of each seed that counts."""
    scores = np.array([run.final() for run in system.counted])
    return scores[np.isfinite(scores)]


def _caution(systems: Sequence[SystemRuns]) -> str:
    """What the reader must know about runs that end at different frames or are unfinished."""
    sentences = []
    unfinished = [run for system in systems for run in system.runs if not run.finished]
    if unfinished:
        total = sum(len(system.runs) for system in systems)
        counted = sum(not run.finished for system in systems for run in system.counted)
        sentences.append(f"{len(unfinished)} of {total} runs not finished, of which {counted} count.")
    ends = sorted({int(run.frames[-1]) for system in systems for run in system.counted})
    if ends[-1] > DIFFERENT * ends[0]:
        sentences.append(f"The runs end at different frames, {ends[0]:,} to {ends[-1]:,}: final scores are of those.")
    if len({run.scored for system in systems for run in system.runs}) > 1:
        sentences.append("Systems are scored by different policies, see the table.")
    return " ".join(sentences)
