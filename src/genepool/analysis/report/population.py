"""The population: the fitness of all individuals, who drives progress, and each policy of a population of learners."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from genepool.analysis.records.history import FATES, History
from genepool.analysis.records.statistics import WINDOW, moving_average
from genepool.analysis.records.systems import SystemRuns, TaskRuns
from genepool.analysis.report.curves import COLOURS
from genepool.analysis.report.drawing import (
    Drawing,
    colour,
    count_frames,
    count_generations,
    legend,
    legend_below,
    panels,
    thinned,
)

BINS = 120  # of generations, at most
RATES = 100  # points of the mean rates
MEASURES = ("won, %", "ahead by")  # of the learner's individuals
FATE_COLOURS = dict(zip(FATES, (COLOURS[2], COLOURS[4], COLOURS[1]), strict=True))


def population(group: TaskRuns) -> Drawing | None:
    """The fitness of all individuals over generations, pooled over the seeds of a system."""
    systems = [system for system in group.systems if any(run.fitness.size for run in system.runs)]
    if not systems:
        return None
    figure, found = panels(len(systems), columns=3, width=4.0, height=3.3)
    rows = []
    for axes, system in zip(found, systems, strict=True):
        binned = _fitness_quantiles(system.runs)
        if binned:
            middle, quantiles = binned
            _draw_quantiles(axes, middle, quantiles, colour(system.colour_index))
            axes.set(ylabel="fitness: mean return of its episodes", title=_head(system))
            count_generations(axes)
            rows += [(system.label, *row) for row in zip(middle, *quantiles, strict=True)]
    _legend_of_quantiles(figure)
    return Drawing(
        "population",
        "The whole population",
        "The fitness of all individuals in each generation, pooled over the seeds, as far as each goes. "
        "Fitness is what selection saw, few noisy episodes; it is not a test.",
        figure,
        ("system", "generation", "lowest", "quarter", "median", "three_quarters", "highest"),
        rows,
    )


def _fitness_quantiles(runs: Sequence[History]) -> tuple[list[float], np.ndarray] | None:
    """The middle of each bin of generations, and its fitness: lowest, quarter, median, three quarters, highest."""
    longest = max(len(run.fitness) for run in runs)
    edges = np.unique(np.linspace(0, longest, min(BINS, longest) + 1).astype(int))
    middle = []
    quantiles = []
    for begin, end in pairwise(edges):
        fitness = np.concatenate([run.fitness[begin:end].ravel() for run in runs])
        fitness = fitness[np.isfinite(fitness)]
        if len(fitness):
            middle.append((begin + 1 + end) / 2)
            quantiles.append(np.percentile(fitness, [0, 25, 50, 75, 100]))
    return (middle, np.array(quantiles).T) if middle else None


def _draw_quantiles(axes: Any, middle: list[float], quantiles: np.ndarray, shade: str) -> None:
    low, lower, median, upper, high = quantiles
    axes.fill_between(middle, low, high, color=shade, alpha=0.15, linewidth=0)
    axes.fill_between(middle, lower, upper, color=shade, alpha=0.35, linewidth=0)
    axes.plot(middle, median, color=shade, linewidth=1.5)
    axes.plot(middle, high, color="black", linewidth=0.8)


def _legend_of_quantiles(figure: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shades = {"all": 0.15, "the middle half": 0.5, "the median": 1.0}
    handles = [Patch(color="#777777", alpha=alpha, label=name) for name, alpha in shades.items()]
    handles.append(Line2D([], [], color="black", linewidth=0.8, label="the fittest"))
    legend(figure, handles, [handle.get_label() for handle in handles], 4)


def clone_rates(run: History) -> np.ndarray:
    """[G, 3]: of the learner's clones so far, the percentages that became elite, were selected, were discarded."""
    total = run.fates.sum(axis=1, keepdims=True)
    return np.where(total > 0, 100.0 * run.fates / np.maximum(total, 1), np.nan)


def clones(group: TaskRuns) -> Drawing | None:
    """What becomes of the learner's clones, against frames (PDERL Figure 11)."""
    systems = [system for system in group.systems if runs_with_clones(system.counted)]
    if not systems:
        return None
    figure, found = panels(len(systems), columns=3, width=4.0, height=3.3)
    rows = []
    for axes, system in zip(found, systems, strict=True):
        for run in runs_with_clones(system.runs):
            rates = clone_rates(run)
            begun = run.fates.sum(axis=1) > 0
            for k, fate in enumerate(FATES):
                smooth = moving_average(rates[begun, k])
                axes.plot(run.frames[begun], smooth, color=FATE_COLOURS[fate], alpha=0.3, linewidth=0.7)
                rows += [(system.label, run.name, fate, *row) for row in thinned(run.frames[begun], smooth)]
        grid, mean = _mean_rates(runs_with_clones(system.counted))
        for k, fate in enumerate(FATES):
            axes.plot(grid, mean[:, k], color=FATE_COLOURS[fate], linewidth=1.8, label=fate)
        axes.set(ylabel="clones of the learner so far, %", title=_head(system), ylim=(-3, 103))
        count_frames(axes)
    legend_below(figure, found)
    return Drawing(
        "clones",
        "Who drives progress: the learner's clones",
        "Of the clones of the learner that joined the population until then, the share that became elite, was selected "
        "as a parent, or was discarded. As the authors have it: the ratio so far, then the mean of the last "
        f"{WINDOW} generations. Faint: seeds; bold: their mean.",
        figure,
        ("system", "run", "fate", "frames", "percent"),
        rows,
    )


def runs_with_clones(runs: Sequence[History]) -> list[History]:
    """The runs that had a clone at all."""
    return [run for run in runs if run.fates is not None and run.fates[-1].sum() > 0]


def _mean_rates(runs: list[History]) -> tuple[np.ndarray, np.ndarray]:
    """A grid of frames, and the mean rates over the runs there, [points, 3]."""
    begun = [run.fates.sum(axis=1) > 0 for run in runs]
    low = max(run.frames[own][0] for run, own in zip(runs, begun, strict=True))
    high = max(low, min(run.frames[-1] for run in runs))
    grid = np.linspace(low, high, RATES)
    curves = []
    for run, own in zip(runs, begun, strict=True):
        rates = clone_rates(run)
        curves.append([np.interp(grid, run.frames[own], moving_average(rates[own, k])) for k in range(len(FATES))])
    return grid, np.mean(curves, axis=0).T


def origins(group: TaskRuns) -> Drawing | None:
    """If the learner is not cloned: how its individuals fare against the others, and how often one is the fittest."""
    systems = [system for system in group.systems if any(_has_both_kinds(run) for run in system.runs)]
    if not systems:
        return None
    figure, found = panels(2, width=5.2, height=3.5)
    rows = []
    for system in systems:
        for run in filter(_has_both_kinds, system.runs):
            at, won, ahead = _contest(run)
            curves = (100 * moving_average(won), moving_average(ahead))
            for axes, values, name in zip(found, curves, MEASURES, strict=True):
                look = {"color": colour(system.colour_index), "linewidth": 1.1, "alpha": 0.8}
                axes.plot(run.frames[at], values, label=system.label, **look)
                rows += [(system.label, run.name, name, *row) for row in thinned(run.frames[at], values)]
    found[0].set_ylabel("generations won by the learner's, %")
    found[0].set_ylim(-3, 103)
    found[1].set_ylabel("mean fitness, the learner's less others")
    found[1].axhline(0.0, color="grey", linewidth=0.8)
    for axes in found:
        count_frames(axes)
    legend_below(figure, found)
    return Drawing(
        "origins",
        "Who drives progress: the learner's individuals and the others",
        "Individuals that had a lesson, or that the learner made, against all others, over the generations in which "
        f"both were tried; mean of the last {WINDOW} such generations, a line for each seed. "
        "On the left how often the fittest was one of the learner's.",
        figure,
        ("system", "run", "measure", "frames", "value"),
        rows,
    )


def _has_both_kinds(run: History) -> bool:
    tried = run.candidates
    by_learner = (tried.by_learner & tried.for_fitness).any()
    return bool(run.fates is None and by_learner and (~tried.by_learner & tried.for_fitness).any())


def _contest(run: History) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Generations with both kinds, whether the learner's won, and by how much its mean is above the others'."""
    tried = run.candidates
    size = len(run.frames)
    total = np.zeros((2, size))
    count = np.zeros((2, size))
    best = np.full((2, size), -np.inf)
    for k, kind in enumerate((tried.by_learner, ~tried.by_learner)):
        chosen = kind & tried.for_fitness & np.isfinite(tried.fitness)
        at = tried.at[chosen]
        fitness = tried.fitness[chosen]
        np.add.at(total[k], at, fitness)
        np.add.at(count[k], at, 1)
        np.maximum.at(best[k], at, fitness)
    at = np.flatnonzero((count > 0).all(axis=0))
    mean = total[:, at] / count[:, at]
    return at, (best[0, at] > best[1, at]).astype(float), mean[0] - mean[1]


def policies(group: TaskRuns) -> Drawing | None:
    """The final return of each policy of a population of learners, best first (GPO Figure 6)."""
    family = [system for system in group.systems if system.preset in ("gpo", "single")]
    systems = [system for system in family if system.runs[0].fitness.shape[1] > 1]
    if not systems:
        return None
    figure, (axes,) = panels(1, width=7.5, height=3.6)
    width = 0.8 / len(systems)
    rows = []
    for k, system in enumerate(systems):
        last = [np.nanmean(run.fitness[-WINDOW:], axis=0) for run in system.counted]
        last = np.array([np.sort(own)[::-1] for own in last if len(own) == len(last[0])])
        mean = last.mean(axis=0)
        ranks = np.arange(1, len(mean) + 1)
        error = last.std(axis=0, ddof=1) / np.sqrt(len(last)) if len(last) > 1 else None
        look = {"color": colour(system.colour_index), "label": system.legend}
        axes.bar(ranks + (k - (len(systems) - 1) / 2) * width, mean, width, yerr=error, **look)
        rows += [(system.label, len(last), *row) for row in zip(ranks, mean, strict=True)]
    axes.set(xlabel="policy of the population, best first", ylabel="final mean return", xticks=ranks)
    legend_below(figure, [axes])
    return Drawing(
        "policies",
        "Every policy of the population",
        f"Mean return of each policy in the last {WINDOW} iterations, with its noise, sorted within each run, "
        "then the mean over seeds with its standard error.",
        figure,
        ("system", "seeds", "rank", "mean"),
        rows,
    )


def _head(system: SystemRuns) -> str:
    return f"{system.label}, {len(system.runs)} seed{'s' * (len(system.runs) > 1)}"
