"""Scores over seeds: learning curves, the same against all frames and the clock, and final scores beside the papers'."""

from collections.abc import Sequence

import numpy as np

from genepool.analysis.records.statistics import interquartile_mean, interval
from genepool.analysis.records.systems import Group, System
from genepool.analysis.report.curves import WINDOW
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
from genepool.analysis.verify import published

FEW = "The interval of two seeds is their range; one of five covers the true mean in about 85 % of cases, not in 95 %."
SMOOTH = f"Each run is the mean of its last {WINDOW} tests; faint lines are the seeds."


def learning_curves(group: Group) -> Drawing | None:
    """The mean and the interquartile mean over seeds, with bootstrap intervals (PDERL Figures 4 and 10)."""
    systems = [system for system in group.systems if any(len(run.score.at) for run in system.runs)]
    if not systems:
        return None
    several = any(len(system.counted) >= 4 for system in systems)
    statistics = ("mean", "interquartile mean") if several else ("mean",)
    figure, found = panels(len(statistics), width=5.2 if several else 7.5, height=3.9)
    rows = []
    for system in systems:
        place = system.place
        for run in system.runs:
            for axes in found:
                line = {"color": colour(place), "linestyle": dash(place), "alpha": 0.25, "linewidth": 0.7}
                axes.plot(run.frames[run.score.at], run.smoothed(), **line)
        shared = shared_curve(system.counted, "frames")
        if shared is None:
            continue
        grid, curves = shared
        values = {"mean": curves.mean(axis=0), "interquartile mean": interquartile_mean(curves, axis=0)}
        ends = {name: interval(curves, name) for name in values}
        for axes, name in zip(found, statistics, strict=True):
            dots = {"marker": "o"} if len(grid) == 1 else {"linestyle": dash(place)}
            axes.plot(grid, values[name], color=colour(place), linewidth=1.8, label=named(system), **dots)
            axes.fill_between(grid, *ends[name], color=colour(place), alpha=0.18, linewidth=0)
        columns = (grid, values["mean"], *ends["mean"], values["interquartile mean"], *ends["interquartile mean"])
        rows += [(system.label, len(curves), *row) for row in zip(*map(np.ndarray.tolist, columns), strict=True)]
    for axes, name in zip(found, statistics, strict=True):
        count_frames(axes)
        axes.set_ylabel(scored_by(systems))
        axes.set_title(f"{name} over seeds, 95 % bootstrap interval")
    legend_below(figure, found)
    few = "" if several else " Of fewer than four seeds the interquartile mean is the mean, so it is not drawn apart."
    return Drawing(
        "learning-curves",
        "Learning curves",
        f"{SMOOTH} Bold: over the frames that all seeds of a system have reached. {FEW}{few} {_caution(systems)}".strip(),
        figure,
        ("system", "seeds", "frames", "mean", "mean_low", "mean_high", "iqm", "iqm_low", "iqm_high"),
        rows,
    )


def clocks(group: Group) -> Drawing | None:
    """The mean over seeds against every frame that was played and against the clock (AES-RL Figure 3)."""
    axis = {"true_frames": "all frames played, tests and references too", "wall": "wall-clock minutes"}
    figure, found = panels(2, width=5.2, height=3.7)
    rows = []
    for system in group.systems:
        place = system.place
        for axes, x in zip(found, axis, strict=True):
            shared = shared_curve(system.counted, x)
            if shared is None:
                continue
            grid, curves = shared
            scale = 1 / 60 if x == "wall" else 1.0
            axes.plot(grid * scale, curves.mean(axis=0), dash(place), color=colour(place), label=named(system))
            axes.fill_between(grid * scale, *interval(curves), color=colour(place), alpha=0.18, linewidth=0)
            rows += [(system.label, axis[x], *row) for row in zip(grid * scale, curves.mean(axis=0), strict=True)]
    if not rows:
        return None
    count_frames(found[0], axis["true_frames"])
    found[1].set_xlabel(axis["wall"])
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


def finals(group: Group) -> Drawing | None:
    """Final scores of all seeds, their mean and interval, and the papers' numbers (PDERL Table 1, AES-RL Tables 2, 3)."""
    systems = [system for system in group.systems if np.isfinite([run.final() for run in system.counted]).any()]
    if not systems:
        return None
    papers = [published.beside(system) for system in systems]
    lines = sum(1 + len(found) for found in papers)
    figure, (axes,) = panels(1, width=8.5, height=1.3 + 0.42 * lines, names=True)
    rows, names, y = [], [], 0
    for system, found in zip(systems, papers, strict=True):
        place = system.place
        scores = final_scores(system)
        low, high = interval(scores)
        axes.plot(scores, np.full(len(scores), y), "o", color=colour(place), alpha=0.45, markersize=5)
        axes.plot([low, high], [y, y], "-", color=colour(place), linewidth=3, alpha=0.8)
        axes.plot(scores.mean(), y, "D", color=colour(place), markersize=7, markeredgecolor="white")
        names.append(named(system))
        rows.append(
            (system.label, "ours", len(scores), scores.mean(), scores.std(ddof=1) if len(scores) > 1 else np.nan)
        )
        y += 1
        for number in found:
            axes.errorbar(number.value, y, xerr=number.spread, fmt="x", color="#555555", capsize=3, markersize=6)
            names.append(f"{number.source}, {number.task}")
            rows.append((system.label, number.source, number.seeds or "", number.value, number.spread or ""))
            y += 1
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel(scored_by(systems))
    axes.set_title(f"Final scores on {group.name}")
    return Drawing(
        "final-scores",
        "Final scores",
        f"Dots: the mean of each seed's last {WINDOW} tests. Diamond and bar: their mean and its 95 % bootstrap interval. "
        "Crosses: the papers' means with their spread, on the papers' versions of the task; the table says what to mind. "
        + _caution(systems),
        figure,
        ("system", "source", "seeds", "mean", "spread"),
        rows,
    )


def final_scores(system: System) -> np.ndarray:
    """The final score of each seed that counts."""
    scores = np.array([run.final() for run in system.counted])
    return scores[np.isfinite(scores)]


def named(system: System) -> str:
    """Its label and its seeds."""
    return f"{system.label}, {system.seeds}"


def _caution(systems: Sequence[System]) -> str:
    """What the reader ought to know of runs that do not end together."""
    said = []
    going = [run for system in systems for run in system.runs if not run.finished]
    if going:
        counted = sum(not run.finished for system in systems for run in system.counted)
        said.append(
            f"{len(going)} of {sum(len(system.runs) for system in systems)} runs not finished, of which {counted} count."
        )
    ends = sorted({int(run.frames[-1]) for system in systems for run in system.counted})
    if ends[-1] > 1.2 * ends[0]:
        said.append(f"The runs end at different frames, from {ends[0]:,} to {ends[-1]:,}: final scores are of those.")
    if len({run.scored for system in systems for run in system.runs}) > 1:
        said.append("Systems are scored by different policies, see the table.")
    return " ".join(said)
