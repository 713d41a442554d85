"""A comparison of two groups of runs as text and as a figure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from genepool.analysis.records.comparison import NAMES, Comparison, Side
from genepool.analysis.records.statistics import (
    ALPHA,
    WINDOW,
    bootstrap,
    interquartile_mean,
    interval,
    mean_improvement,
)
from genepool.analysis.report.drawing import DPI, colour, count_frames, legend_below, panels, shared_curve, small_titles
from genepool.analysis.report.tables import aligned, between, number

HEAD = ("", "seeds", "mean", "std", "median", "IQM", "95 % interval of the IQM")


def as_text(comparisons: Sequence[Comparison]) -> str:
    """The comparisons as text."""
    lines = []
    for one in comparisons:
        found = one.found
        n, m = (len(side.scores) for side in one.sides)
        lines += [
            f"{one.task}, at {one.frames:,} frames; a run's score is the mean of its last {WINDOW} tests by then",
            "",
            *aligned([HEAD, *(_cells(name, side) for name, side in zip(NAMES, one.sides, strict=True))], left=1),
            "",
            f"A - B   {number(found.difference)}{_interval(found.difference_interval)}, difference of the means",
            f"P(A>B)  {found.improvement:.2f}{_interval(found.improvement_interval)}, that a run of A beats one of B",
            f"p       {found.p:.2g}, Mann-Whitney, two-sided; "
            f"{n} against {m} seeds cannot have less than {found.smallest_p:.2g}",
            "",
            one.verdict,
            *(f"Mind: {caution}." for caution in one.cautions),
            "",
        ]
    if len(comparisons) > 1:
        lines += _over_tasks(comparisons)
    return "\n".join(lines).rstrip()


def _cells(name: str, side: Side) -> tuple[str, ...]:
    """The row of a side."""
    scores = side.scores
    return (
        f"{name}  {side.name}",
        str(len(scores)),
        number(scores.mean()),
        number(scores.std(ddof=1)) if len(scores) > 1 else "",
        number(float(np.median(scores))),
        number(float(interquartile_mean(scores))),
        between(*interval(scores, "interquartile mean")),
    )


def _interval(ends: tuple[float, float]) -> str:
    return "" if np.isnan(ends[0]) else f" (95 % interval {between(*ends)})"


def _over_tasks(comparisons: Sequence[Comparison]) -> list[str]:
    """rliable's probability of improvement over all tasks. Runs are drawn anew within each task."""
    pairs = [side.scores for one in comparisons for side in one.sides]
    ends = bootstrap(mean_improvement, *pairs) if min(map(len, pairs)) > 1 else (np.nan, np.nan)
    value = float(mean_improvement(*pairs))
    count = len(comparisons)
    return [
        f"Over {count} tasks: P(A>B) {value:.2f}{_interval(tuple(map(float, ends)))}, the mean of the tasks'.",
        f"{count} tests were made: of {count} systems that do not differ, "
        f"{ALPHA * count:.2g} would be found to, on average.",
    ]


def draw(comparisons: Sequence[Comparison], path: Path) -> None:
    """For each task both learning curves, and the scores that were compared."""
    figure, axes = panels(2 * len(comparisons), width=5.0, height=3.3)
    for row, one in enumerate(comparisons):
        _curves(axes[2 * row], one)
        _scores(axes[2 * row + 1], one)
    legend_below(figure, axes)
    small_titles(figure)
    figure.savefig(path, dpi=DPI)


def _curves(axes: Any, one: Comparison) -> None:
    """Each run's learning curve, and the mean of each side."""
    for k, side in enumerate(one.sides):
        for run in side.runs:
            axes.plot(run.frames[run.score.at], run.smoothed(), color=colour(k), alpha=0.25, linewidth=0.7)
        if shared := shared_curve(side.runs, "frames"):
            grid, values = shared
            label = f"{NAMES[k]}: {side.name}, {len(side.runs)} seed{'s' * (len(side.runs) > 1)}"
            dot = "o" if len(grid) == 1 else None
            axes.plot(grid, values.mean(axis=0), marker=dot, color=colour(k), linewidth=1.8, label=label)
            axes.fill_between(grid, *interval(values), color=colour(k), alpha=0.18, linewidth=0)
    axes.axvline(one.frames, color="grey", linewidth=0.8, linestyle=":")
    axes.set(ylabel=f"test return, mean of last {WINDOW} tests", title=one.task)
    count_frames(axes)


def _scores(axes: Any, one: Comparison) -> None:
    """The score of each run, and each side's mean with its interval."""
    for k, side in enumerate(one.sides):
        low, high = interval(side.scores)
        axes.plot([low, high], [k, k], color=colour(k), linewidth=3, alpha=0.8)
        axes.plot(side.scores, np.full(len(side.scores), k), "o", color=colour(k), alpha=0.5)
        axes.plot(side.scores.mean(), k, "D", color=colour(k), markeredgecolor="white", markersize=8)
    axes.set(yticks=[0, 1], yticklabels=list(NAMES), ylim=(1.6, -0.6))
    axes.set_xlabel("score of each seed, mean and 95 % interval")
    axes.set_title(f"at {one.frames:,} frames: p = {one.found.p:.2g}")
