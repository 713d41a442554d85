"""Ancestry: where the champion comes from, and what each operator did to the children that it made."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from genepool.analysis.records.history import Candidates, History
from genepool.analysis.records.lineage import Lineage, effects, lineage
from genepool.analysis.records.systems import SystemRuns, TaskRuns
from genepool.analysis.report.curves import COLOURS
from genepool.analysis.report.drawing import Drawing, count_generations, legend_below, panels

DOTS = 500  # at most, for one kind of candidate in a picture
LATE = 30  # generations of the close view
FITNESS = "fitness when it was tried"
MUTATIONS = ("proximal", "gaussian", "PPO", "A2C")
CROSSOVERS = ("distillation", "row copy", "element copy", "StateSpace", "ParameterSpace")
MAKER_COLOURS = {
    "elite": "#888888",
    "kept": "#BBBBBB",
    "Copy": "#BBBBBB",
    "drawn": "#000000",
    "learner's clone": COLOURS[1],
    "lesson": COLOURS[3],
    "mother": COLOURS[0],
    "winner": COLOURS[4],
    "learner": COLOURS[1],
}
MAKER_COLOURS |= dict.fromkeys(MUTATIONS, COLOURS[0]) | dict.fromkeys(CROSSOVERS, COLOURS[4])
MAKER_COLOURS |= {f"{crossover} + {mutation}": COLOURS[2] for crossover in CROSSOVERS for mutation in MUTATIONS}

Effects = dict[str, tuple[np.ndarray, np.ndarray]]  # fitness before and after, by how children were made


def lineages(group: TaskRuns) -> Drawing | None:
    """The champion's line through all of the run, and all its ancestors in the last generations."""
    best = [(system, _best(system)) for system in group.systems]
    found = [(system, run, tree) for system, run in best if (tree := lineage(run.candidates))]
    if not found:
        return None
    views = 2 if max(len(run.frames) for _, run, _ in found) > LATE else 1  # one view shows all of a short run
    figure, all_axes = panels(views * len(found), columns=2, width=5.2, height=3.5)
    rows = []
    for k, (system, run, tree) in enumerate(found):
        *overviews, late = all_axes[views * k : views * (k + 1)]
        first = max(0, len(run.frames) - LATE)
        _draw_family(late, run, tree, tree.ancestors[run.candidates.at[tree.ancestors] >= first], first)
        name = f"{system.label}, seed {run.config['seed']}"
        late.set(ylabel=FITNESS, title=f"{name}: all its ancestors" + ", last generations" * bool(first))
        for axes in overviews:
            _draw_family(axes, run, tree, tree.line, 0)
            axes.set(ylabel=FITNESS, title=f"{name}: its line")
        rows += [(system.label, run.name, *row) for row in _links(run.candidates, tree)]
    legend_below(figure, all_axes, columns=6)
    return Drawing(
        "lineage",
        "Where the champion comes from",
        "The fittest of the last generation (circle) of each system's best seed, and its ancestors, coloured by what "
        "made them. The black line leads back from it, always to the fitter parent; grey dots are all candidates. "
        "Elites are tried anew in every generation, so steps between their dots are chance. "
        "The CSV has all its ancestors.",
        figure,
        ("system", "run", "parent", "child", "made_by", "generation", "fitness"),
        rows,
    )


def _draw_family(axes: Any, run: History, tree: Lineage, shown: np.ndarray, first: int) -> None:
    """The members of the family that are shown, among all candidates since the generation `first`."""
    tried = run.candidates
    points = np.stack([tried.at + 1.0, tried.fitness], axis=1)
    background = np.flatnonzero(tried.for_fitness & (tried.at >= first))
    background = background[:: 1 + len(background) // (4 * DOTS)]
    axes.plot(*points[background].T, ".", color="#DDDDDD", markersize=2, zorder=0)
    links = tree.links[np.isin(tree.links, shown).all(axis=1)]
    threads = np.insert(points[links], 2, np.nan, axis=1).reshape(-1, 2)  # one line, broken between links
    axes.plot(*threads.T, color="#777777", linewidth=0.5, alpha=0.6, zorder=1)
    axes.plot(*points[tree.line[tried.at[tree.line] >= first]].T, color="black", linewidth=1.2, zorder=2)
    for maker in tried.makers:
        made = shown[tried.made_by(maker)[shown]]
        if len(made):
            shape = {"marker": "*", "markersize": 8} if maker == "learner's clone" else {"marker": ".", "markersize": 5}
            axes.plot(*points[made].T, linestyle="", color=maker_colour(maker), label=maker, zorder=3, **shape)
    axes.plot(*points[tree.champion], "o", markersize=9, markerfacecolor="none", markeredgecolor="black", zorder=4)
    count_generations(axes)


def _links(tried: Candidates, tree: Lineage) -> list[tuple]:
    """The links as rows: parent, child, what made the child, its generation and its fitness."""
    parents, children = tree.links.T
    makers = [tried.makers[maker] for maker in tried.maker[children].tolist()]
    known = (tried.number[parents], tried.number[children], tried.at[children] + 1, tried.fitness[children])
    x, y, generation, fitness = (column.tolist() for column in known)
    return list(zip(x, y, makers, generation, fitness, strict=True))


def _best(system: SystemRuns) -> History:
    return max(system.counted, key=lambda run: np.nan_to_num(run.final(), nan=-np.inf))


def maker_colour(maker: str) -> str:
    """The colour for one way of making candidates. Operators of one kind share theirs, in all systems."""
    return MAKER_COLOURS.get(maker, COLOURS[5])


def operator_effects(group: TaskRuns) -> Drawing | None:
    """Parents' fitness against their children's, and what each operator did to it."""
    systems = [(system, made) for system in group.systems if (made := pooled_effects(system))]
    if not systems:
        return None
    figure, found = panels(2 * len(systems), columns=2, width=5.2, height=3.5, names=True)
    rows = []
    for k, (system, made) in enumerate(systems):
        parent = "the fitter parent" if (system.runs[0].candidates.parents >= 0).any() else "the strategy's mean"
        _draw_cloud(found[2 * k], made, parent, system.label)
        _draw_boxes(found[2 * k + 1], made, parent)
        for maker, (before, after) in made.items():
            gain = after - before
            rows.append((system.label, maker, len(gain), 100 * np.mean(gain > 0), *np.percentile(gain, [25, 50, 75])))
    return Drawing(
        "operators",
        "What each operator did",
        "Every child of all seeds against the fitter of its parents; individuals of a strategy against its mean, where "
        "that was played. Boxes: middle half and median; whiskers: 5 to 95 %. 'elite' and 'kept' were not changed: "
        "their spread is the noise of fitness. They fall because those chosen for a high score were partly lucky.",
        figure,
        ("system", "made_by", "children", "fitter_percent", "gain_quarter", "gain_median", "gain_three_quarters"),
        rows,
    )


def _draw_cloud(axes: Any, made: Effects, parent: str, title: str) -> None:
    """Fitness before against fitness after, a dot for each child."""
    for maker, (before, after) in made.items():
        step = 1 + len(before) // DOTS
        look = {"color": maker_colour(maker), "markersize": 3, "alpha": 0.5, "label": maker}
        axes.plot(before[::step], after[::step], ".", **look)
    low, high = np.percentile(np.concatenate([np.concatenate(pair) for pair in made.values()]), [0.5, 99.5])
    margin = 0.05 * (high - low) or 1.0
    axes.set(xlim=(low - margin, high + margin), ylim=(low - margin, high + margin))
    axes.plot([low, high], [low, high], color="grey", linewidth=0.8)
    axes.set(xlabel=f"fitness of {parent}", ylabel="fitness of the individual", title=title)


def _draw_boxes(axes: Any, made: Effects, parent: str) -> None:
    """The gains of each way of making children, as a box plot."""
    gains = [after - before for before, after in made.values()]
    shape = {"whis": (5, 95), "showfliers": False, "widths": 0.6, "patch_artist": True}
    drawn = axes.boxplot(gains, orientation="horizontal", **shape)
    for maker, box in zip(made, drawn["boxes"], strict=True):
        box.set(facecolor=maker_colour(maker), alpha=0.6)
    for line in drawn["medians"]:
        line.set(color="black")
    axes.set_yticks(range(1, len(made) + 1), _box_labels(list(made), gains), fontsize=7)
    axes.set_ylim(max(len(made), 3) + 0.5, 0.5)
    axes.axvline(0.0, color="grey", linewidth=0.8)
    axes.set(xlabel=f"fitness less that of {parent}")


def _box_labels(names: Sequence[str], gains: Sequence[np.ndarray]) -> list[str]:
    pairs = zip(names, gains, strict=True)
    return [f"{name}\n{np.mean(gain > 0):.0%} fitter, n = {len(gain):,}" for name, gain in pairs]


def pooled_effects(system: SystemRuns) -> Effects:
    """Fitness before and after, by how children were made, pooled over the seeds."""
    found: dict[str, list] = {}
    for run in system.runs:
        for effect in effects(run.candidates):
            found.setdefault(effect.maker, []).append((effect.before, effect.after))
    return {
        maker: tuple(np.concatenate(column) for column in zip(*pairs, strict=True)) for maker, pairs in found.items()
    }
