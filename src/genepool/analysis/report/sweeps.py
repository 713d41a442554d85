"""What a part or a setting adds: shares of the best system's score, and scores against the one setting that varies."""

from collections.abc import Iterator

import numpy as np

from genepool.analysis.records.statistics import interval
from genepool.analysis.records.systems import SystemRuns, TaskRuns
from genepool.analysis.report.drawing import Drawing, colour, panels
from genepool.analysis.report.scores import final_scores

GPO_FAMILY = ("gpo", "single", "joint", "ppo", "a2c")  # GPO's Figure 5 shows them as shares of the best


def shares(group: TaskRuns) -> Drawing | None:
    """The final scores of GPO's family as shares of its best (GPO Figure 5)."""
    systems = [system for system in group.systems if system.preset in GPO_FAMILY]
    scores = [final_scores(system) for system in systems]
    if len(systems) < 2:
        return None
    best = max(range(len(systems)), key=lambda k: scores[k].mean())
    unit = scores[best].mean()
    if not unit > 0:
        return None
    figure, (axes,) = panels(1, width=8.5, height=1.2 + 0.4 * len(systems), names=True)
    rows = []
    for y, (system, own) in enumerate(zip(systems, scores, strict=True)):
        low, high = interval(own / unit)
        axes.barh(y, own.mean() / unit, color=colour(system.colour_index))
        axes.plot([low, high], [y, y], color="black", linewidth=1.5)
        rows.append((system.label, len(own), own.mean() / unit, low, high))
    axes.set_yticks(range(len(systems)), [system.legend for system in systems])
    axes.invert_yaxis()
    axes.set_xlabel(f"final score as a share of that of {systems[best].label}")
    return Drawing(
        "shares",
        "What each part adds",
        "Mean final score over seeds with its 95 % bootstrap interval, divided by the mean of "
        f"{systems[best].label}, the best here.",
        figure,
        ("system", "seeds", "share", "low", "high"),
        rows,
    )


def sweeps(group: TaskRuns) -> Drawing | None:
    """Final score and seconds a generation against the one number in which a preset's systems differ."""
    found = list(_swept(group))
    if not found:
        return None
    figure, axes = panels(2 * len(found), width=5.0, height=3.4)
    rows = []
    for k, (preset, setting, points) in enumerate(found):
        score = axes[2 * k]
        time = axes[2 * k + 1]
        values = [value for value, _ in points]
        shade = colour(points[0][1].colour_index)
        means = [final_scores(system).mean() for _, system in points]
        ends = np.array([interval(final_scores(system)) for _, system in points])
        seconds = [np.mean([run.wall[-1] / len(run.wall) for run in system.counted]) for _, system in points]
        score.plot(values, means, "o-", color=shade)
        score.fill_between(values, ends[:, 0], ends[:, 1], color=shade, alpha=0.2, linewidth=0)
        score.set_ylabel("final score, mean over seeds")
        time.plot(values, seconds, "o-", color=shade)
        time.set_ylabel("seconds a generation")
        for one in (score, time):
            one.set_xlabel(setting)
            one.set_title(preset)
            if min(values) > 0 and max(values) / min(values) > 20:
                one.set_xscale("log")
        counts = [len(system.counted) for _, system in points]
        rows += [(preset, setting, *row) for row in zip(values, counts, means, *ends.T, seconds, strict=True)]
    return Drawing(
        "sweeps",
        "What a setting does",
        "Runs of one preset that differ in one number and their seeds only. Band: 95 % bootstrap interval.",
        figure,
        ("preset", "setting", "value", "seeds", "mean", "low", "high", "seconds_per_generation"),
        rows,
    )


def _swept(group: TaskRuns) -> Iterator[tuple[str, str, list[tuple[float, SystemRuns]]]]:
    """Presets with three systems or more that differ in one number.

    Yields the preset, the setting with that number, and (value, system) in order of the value.
    """
    for preset in dict.fromkeys(system.preset for system in group.systems):
        systems = [system for system in group.systems if system.preset == preset and len(final_scores(system))]
        varied = {setting for system in systems for setting in system.settings}
        if len(systems) < 3 or len(varied) != 1:
            continue
        (setting,) = varied
        try:
            values = [float(system.settings[setting].removeprefix("ray:")) for system in systems]
        except ValueError:
            continue
        yield preset, setting, sorted(zip(values, systems, strict=True), key=lambda point: point[0])
