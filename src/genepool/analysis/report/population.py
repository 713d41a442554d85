"""The population: the fitness of everyone, who drives progress, and each policy of a population of learners."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from genepool.analysis.records.history import FATES, History
from genepool.analysis.records.systems import Group, System
from genepool.analysis.report.curves import COLOURS, WINDOW, moving_average
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

BINS = 120  # of generations, in a picture of many
NAMES = ("won, %", "ahead by")  # what is measured of the taught
FATE_COLOURS = dict(zip(FATES, (COLOURS[2], COLOURS[4], COLOURS[1]), strict=True))


def population(group: Group) -> Drawing | None:
    """The fitness of everyone over generations: all seeds of a system together."""
    systems = [system for system in group.systems if any(run.fitness.size for run in system.runs)]
    if not systems:
        return None
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure, found = panels(len(systems), columns=3, width=4.0, height=3.3)
    rows = []
    for axes, system in zip(found, systems, strict=True):
        shade = colour(system.place)
        longest = max(len(run.fitness) for run in system.runs)
        edges = np.unique(np.linspace(0, longest, min(BINS, longest) + 1).astype(int))
        middle, quantiles = [], []
        for begin, end in pairwise(edges):
            everyone = np.concatenate([run.fitness[begin:end].ravel() for run in system.runs])
            everyone = everyone[np.isfinite(everyone)]
            if len(everyone):
                middle.append((begin + 1 + end) / 2)
                quantiles.append(np.percentile(everyone, [0, 25, 50, 75, 100]))
        if not middle:
            continue
        low, lower, median, upper, high = np.array(quantiles).T
        axes.fill_between(middle, low, high, color=shade, alpha=0.15, linewidth=0)
        axes.fill_between(middle, lower, upper, color=shade, alpha=0.35, linewidth=0)
        axes.plot(middle, median, color=shade, linewidth=1.5)
        axes.plot(middle, high, color="black", linewidth=0.8)
        axes.set(ylabel="fitness: mean return of its episodes", title=_head(system))
        count_generations(axes)
        rows += [(system.label, *row) for row in zip(middle, low, lower, median, upper, high, strict=True)]
    shades = {"everyone": 0.15, "the middle half": 0.5, "the median": 1.0}
    key = [Patch(color="#777777", alpha=alpha, label=name) for name, alpha in shades.items()]
    key.append(Line2D([], [], color="black", linewidth=0.8, label="the fittest"))
    legend(figure, key, [one.get_label() for one in key], 4)
    return Drawing(
        "population",
        "The whole population",
        "Everyone's fitness in each generation, the seeds of a system together, as far as each goes. Fitness is what selection saw, few noisy "
        "episodes; it is not a test.",
        figure,
        ("system", "generation", "lowest", "quarter", "median", "three_quarters", "highest"),
        rows,
    )


def clone_rates(run: History) -> np.ndarray:
    """[G, 3]: of the learner's clones so far, the percentages that became elite, were selected, were discarded."""
    total = run.fates.sum(axis=1, keepdims=True)
    return np.where(total > 0, 100.0 * run.fates / np.maximum(total, 1), np.nan)


def clones(group: Group) -> Drawing | None:
    """What becomes of the learner's clones, against frames (PDERL Figure 11)."""
    systems = [system for system in group.systems if clone_runs(system.counted)]
    if not systems:
        return None
    figure, found = panels(len(systems), columns=3, width=4.0, height=3.3)
    rows = []
    for axes, system in zip(found, systems, strict=True):
        for run in clone_runs(system.runs):
            rates, begun = clone_rates(run), run.fates.sum(axis=1) > 0
            for k, fate in enumerate(FATES):
                smooth = moving_average(rates[begun, k])
                axes.plot(run.frames[begun], smooth, color=FATE_COLOURS[fate], alpha=0.3, linewidth=0.7)
                rows += [(system.label, run.name, fate, *row) for row in thinned(run.frames[begun], smooth)]
        grid, mean = _shared_rates(clone_runs(system.counted))
        for k, fate in enumerate(FATES):
            axes.plot(grid, mean[:, k], color=FATE_COLOURS[fate], linewidth=1.8, label=fate)
        axes.set(ylabel="clones of the learner so far, %", title=_head(system), ylim=(-3, 103))
        count_frames(axes)
    legend_below(figure, found)
    return Drawing(
        "clones",
        "Who drives progress: the learner's clones",
        "Of the clones of the learner that joined the population until then, the share that became elite, was selected "
        "as a parent, or was discarded. As the authors have it: the ratio so far, then the mean of the last 10 generations. Faint: seeds; bold: their mean.",
        figure,
        ("system", "run", "fate", "frames", "percent"),
        rows,
    )


def clone_runs(runs: Sequence[History]) -> list[History]:
    """The runs that had a clone at all."""
    return [run for run in runs if run.fates is not None and run.fates[-1].sum() > 0]


def _shared_rates(runs: list[History]) -> tuple[np.ndarray, np.ndarray]:
    begun = [run.fates.sum(axis=1) > 0 for run in runs]
    low = max(run.frames[own][0] for run, own in zip(runs, begun, strict=True))
    high = max(low, min(run.frames[-1] for run in runs))
    grid = np.linspace(low, high, 100)
    smooth = lambda run, own, k: np.interp(grid, run.frames[own], moving_average(clone_rates(run)[own, k]))
    curves = [[smooth(run, own, k) for k in range(3)] for run, own in zip(runs, begun, strict=True)]
    return grid, np.mean(curves, axis=0).T


def origins(group: Group) -> Drawing | None:
    """Where the learner teaches and clones nothing: how often the fittest was taught, and how the taught fare beside others."""
    systems = [system for system in group.systems if any(_mixed(run) for run in system.runs)]
    if not systems:
        return None
    figure, found = panels(2, width=5.2, height=3.5)
    rows = []
    for system in systems:
        for run in filter(_mixed, system.runs):
            at, won, ahead = _contest(run)
            for axes, values, name in zip(
                found, (100 * moving_average(won), moving_average(ahead)), NAMES, strict=True
            ):
                axes.plot(
                    run.frames[at], values, color=colour(system.place), linewidth=1.1, alpha=0.8, label=system.label
                )
                rows += [(system.label, run.name, name, *row) for row in thinned(run.frames[at], values)]
    found[0].set_ylabel("generations won by the taught, %")
    found[0].set_ylim(-3, 103)
    found[1].set_ylabel("mean fitness, taught less others")
    found[1].axhline(0.0, color="grey", linewidth=0.8)
    for axes in found:
        count_frames(axes)
    legend_below(figure, found)
    return Drawing(
        "origins",
        "Who drives progress: taught and untaught",
        "Over the generations in which both were tried, individuals that the learner taught or made beside all others; "
        "mean of the last 10 such generations, a line for each seed. On the left how often the fittest was one of them.",
        figure,
        ("system", "run", "measure", "frames", "value"),
        rows,
    )


def _mixed(run: History) -> bool:
    tried = run.candidates
    return bool(run.fates is None and (tried.learning & tried.bred).any() and (~tried.learning & tried.bred).any())


def _contest(run: History) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Generations with both kinds, whether the learner's won, and by how much its mean is above the others'."""
    tried, size = run.candidates, len(run.frames)
    of = lambda mine: (tried.at[mine], tried.fitness[mine])
    total, count, best = np.zeros((2, size)), np.zeros((2, size)), np.full((2, size), -np.inf)
    for k, kind in enumerate((tried.learning, ~tried.learning)):
        at, fitness = of(kind & tried.bred & np.isfinite(tried.fitness))
        np.add.at(total[k], at, fitness)
        np.add.at(count[k], at, 1)
        np.maximum.at(best[k], at, fitness)
    at = np.flatnonzero((count > 0).all(axis=0))
    mean = total[:, at] / count[:, at]
    return at, (best[0, at] > best[1, at]).astype(float), mean[0] - mean[1]


def policies(group: Group) -> Drawing | None:
    """The final return of each policy of a population of learners, best first (GPO Figure 6)."""
    systems = [
        system for system in group.systems if system.preset in ("gpo", "single") and system.runs[0].fitness.shape[1] > 1
    ]
    if not systems:
        return None
    figure, (axes,) = panels(1, width=7.5, height=3.6)
    width, rows = 0.8 / len(systems), []
    for place, system in enumerate(systems):
        last = [np.nanmean(run.fitness[-WINDOW:], axis=0) for run in system.counted]
        last = np.array([np.sort(own)[::-1] for own in last if len(own) == len(last[0])])
        mean = last.mean(axis=0)
        ranks = np.arange(1, len(mean) + 1)
        error = last.std(axis=0, ddof=1) / np.sqrt(len(last)) if len(last) > 1 else None
        axes.bar(
            ranks + (place - (len(systems) - 1) / 2) * width,
            mean,
            width,
            yerr=error,
            color=colour(system.place),
            label=f"{system.label}, {system.seeds}",
        )
        rows += [(system.label, len(last), *row) for row in zip(ranks, mean, strict=True)]
    axes.set(xlabel="policy of the population, best first", ylabel="final mean return", xticks=ranks)
    legend_below(figure, [axes])
    return Drawing(
        "policies",
        "Every policy of the population",
        f"Mean return of each policy in the last {WINDOW} iterations, with its noise, sorted within each run, then the mean over seeds with its standard error.",
        figure,
        ("system", "seeds", "rank", "mean"),
        rows,
    )


def _head(system: System) -> str:
    return f"{system.label}, {len(system.runs)} seed{'s' * (len(system.runs) > 1)}"
