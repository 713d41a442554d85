"""Descent: where the champion comes from, and what each operator did to the children it made."""

import numpy as np

from genepool.analysis.curves import COLOURS
from genepool.analysis.drawing import Drawing, count_generations, panels
from genepool.analysis.history import History
from genepool.analysis.lineage import effects, lineage
from genepool.analysis.systems import Group, System

DOTS = 1_500  # of one kind in a picture
MUTATION, CROSSOVER, BOTH = COLOURS[0], COLOURS[4], COLOURS[2]
MUTATIONS = ("proximal", "gaussian", "PPO", "A2C")
CROSSOVERS = ("distillation", "row copy", "element copy", "StateSpace", "ParameterSpace")
MAKER_COLOURS = {
    "elite": "#888888",
    "kept": "#BBBBBB",
    "Copy": "#BBBBBB",
    "drawn": "#000000",
    "learner's clone": COLOURS[1],
}
MAKER_COLOURS |= {"lesson": COLOURS[3], "mother": COLOURS[0], "winner": COLOURS[4], "learner": COLOURS[1]}
MAKER_COLOURS |= dict.fromkeys(MUTATIONS, MUTATION) | dict.fromkeys(CROSSOVERS, CROSSOVER)
MAKER_COLOURS |= {f"{crossover} + {mutation}": BOTH for crossover in CROSSOVERS for mutation in MUTATIONS}


def lineages(group: Group) -> Drawing | None:
    """The champion and all its ancestors, each where it was tried and as fit as it was; its line of fitter parents bold."""
    found = [
        (system, run, tree) for system in group.systems for run in [_best(system)] if (tree := lineage(run.candidates))
    ]
    if not found:
        return None
    from matplotlib.collections import LineCollection

    figure, all_axes = panels(len(found), columns=2, width=5.2, height=3.7)
    rows = []
    for axes, (system, run, tree) in zip(all_axes, found, strict=True):
        tried = run.candidates
        points = np.stack([tried.at + 1.0, tried.fitness], axis=1)
        step = 1 + int(tried.bred.sum()) // (4 * DOTS)
        axes.plot(*points[tried.bred][::step].T, ".", color="#DDDDDD", markersize=2, zorder=0)
        axes.add_collection(LineCollection(points[tree.links], colors="#777777", linewidths=0.4, alpha=0.35, zorder=1))
        axes.plot(*points[tree.line].T, color="black", linewidth=1.3, zorder=2)
        for maker in tried.makers:
            mine = tree.ancestors[tried.made_by(maker)[tree.ancestors]]
            if len(mine):
                shape = (
                    {"marker": "*", "markersize": 7} if maker == "learner's clone" else {"marker": ".", "markersize": 4}
                )
                axes.plot(*points[mine].T, linestyle="", color=maker_colour(maker), label=maker, zorder=3, **shape)
        axes.plot(*points[tree.champion], "o", markersize=9, markerfacecolor="none", markeredgecolor="black", zorder=4)
        axes.set(ylabel="fitness when it was tried", title=f"{system.label}, seed {run.config['seed']}")
        count_generations(axes)
        axes.legend(frameon=False, fontsize=7, loc="lower right", markerscale=1.2)
        rows += [
            (
                system.label,
                run.name,
                tried.number[parent],
                tried.number[child],
                tried.makers[tried.maker[child]],
                tried.at[child] + 1,
                tried.fitness[child],
            )
            for parent, child in tree.links
        ]
    return Drawing(
        "lineage",
        "Where the champion comes from",
        "The fittest of the last generation (circle) and all its ancestors, coloured by what made them, of each system's best seed; "
        "grey dots are everyone else. The black line leads back from it, always to the fitter parent. Elites are tried anew in every generation, so "
        "steps between their dots are chance.",
        figure,
        ("system", "run", "parent", "child", "made_by", "generation", "fitness"),
        rows,
    )


def _best(system: System) -> History:
    return max(system.counted, key=lambda run: np.nan_to_num(run.final(), nan=-np.inf))


def maker_colour(maker: str) -> str:
    """The colour of those made so; the same kind of operator has the same in all systems."""
    return MAKER_COLOURS.get(maker, COLOURS[5])


def operators(group: Group) -> Drawing | None:
    """Parents' fitness against their children's, and what each operator did to it."""
    systems = [(system, made) for system in group.systems if (made := pooled(system))]
    if not systems:
        return None
    figure, found = panels(2 * len(systems), columns=2, width=5.2, height=3.5)
    rows = []
    for k, (system, made) in enumerate(systems):
        cloud, boxes = found[2 * k], found[2 * k + 1]
        names = list(made)
        for maker, (before, after) in made.items():
            step = 1 + len(before) // DOTS
            cloud.plot(
                before[::step],
                after[::step],
                ".",
                color=maker_colour(maker),
                markersize=3,
                alpha=0.5,
                label=maker,
            )
            gain = after - before
            rows.append((system.label, maker, len(gain), 100 * np.mean(gain > 0), *np.percentile(gain, [25, 50, 75])))
        low, high = np.percentile(np.concatenate([np.concatenate(pair) for pair in made.values()]), [0.5, 99.5])
        margin = 0.05 * (high - low) or 1.0
        cloud.set(xlim=(low - margin, high + margin), ylim=(low - margin, high + margin))
        cloud.plot([low, high], [low, high], color="grey", linewidth=0.8)
        parent = "the fitter parent" if (system.runs[0].candidates.parents >= 0).any() else "the strategy's mean"
        cloud.set(xlabel=f"fitness of {parent}", ylabel="fitness of the individual", title=system.label)
        gains = [after - before for before, after in made.values()]
        drawn = boxes.boxplot(
            gains, orientation="horizontal", whis=(5, 95), showfliers=False, widths=0.6, patch_artist=True
        )
        for maker, box in zip(names, drawn["boxes"], strict=True):
            box.set(facecolor=maker_colour(maker), alpha=0.6)
        for line in drawn["medians"]:
            line.set(color="black")
        labels = [
            f"{name}\n{np.mean(gain > 0):.0%} fitter, n = {len(gain):,}"
            for name, gain in zip(names, gains, strict=True)
        ]
        boxes.set_yticks(range(1, len(names) + 1), labels, fontsize=7)
        boxes.set_ylim(max(len(names), 3) + 0.5, 0.5)
        boxes.axvline(0.0, color="grey", linewidth=0.8)
        boxes.set(xlabel=f"fitness less that of {parent}")
    return Drawing(
        "operators",
        "What each operator did",
        "Every child of all seeds beside the fitter of its parents; individuals of a strategy beside its mean, where that was played. "
        "Boxes: middle half and median; whiskers: 5 to 95 %. 'elite' and 'kept' were not changed: their spread is the noise of fitness, and they fall "
        "because whoever was chosen for a high score was partly lucky.",
        figure,
        ("system", "made_by", "children", "fitter_percent", "gain_quarter", "gain_median", "gain_three_quarters"),
        rows,
    )


def pooled(system: System) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Fitness before and after by what was done, of all seeds together."""
    found: dict[str, list] = {}
    for run in system.runs:
        for effect in effects(run.candidates):
            found.setdefault(effect.maker, []).append((effect.before, effect.after))
    return {
        maker: tuple(np.concatenate(column) for column in zip(*pairs, strict=True)) for maker, pairs in found.items()
    }
