"""The figures of the operator study: bars of returns, contours of visited states, and behaviour against magnitude.

They know only named policies and their episodes, so PDERL's operators and GPO's are drawn alike.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from genepool.analysis.operators.families import PolicyEpisodes
from genepool.analysis.operators.visitation import on_window, window
from genepool.analysis.report.curves import COLOURS, DPI, blank

SHADES = np.linspace(0.03, 1.0, 9)  # of a density, as shares of its highest
LEVELS = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # of a difference, as shares of the parent's highest density


def bars(path: Path, title: str, note: str, played: Sequence[dict[str, PolicyEpisodes]], names: Sequence[str]) -> None:
    """Mean returns in groups, each relative to the first of its group (PDERL Figures 5 and 7, GPO Figure 3a).

    A group whose first earned nothing has no such ratio and is left out; if none has, returns are drawn as they are.
    """
    policies = list(played[0])
    returns = np.array([[group[policy].mean for policy in policies] for group in played])
    positive = returns[:, 0] > 0
    relative = bool(positive.any())
    kept = np.flatnonzero(positive) if relative else np.arange(len(played))
    heights = returns[kept] / returns[kept, :1] if relative else returns
    figure = blank(max(7.0, 1.1 * len(kept)), 4.2)
    axes = figure.subplots()
    width = 0.8 / len(policies)
    for k, (policy, colour) in enumerate(zip(policies, COLOURS, strict=False)):
        axes.bar(np.arange(len(kept)) + (k - (len(policies) - 1) / 2) * width, heights[:, k], width, color=colour)
        axes.bar(0, 0, color=colour, label=policy)
    axes.axhline(0.0, color="black", linewidth=0.8)
    if relative:
        axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xticks(np.arange(len(kept)), [names[k] for k in kept])
    axes.set(
        title=title,
        xlabel="parents, by their indices in the population",
        ylabel=f"mean return / that of {policies[0]}" if relative else "mean return",
    )
    if len(kept) < len(played):
        missing = len(played) - len(kept)
        note += f"\n{missing} of {len(played)} groups, whose {policies[0]} earned 0 or less, are left out"
    axes.legend(frameon=False, ncols=len(policies), loc="upper center", bbox_to_anchor=(0.5, -0.17))
    _finish(figure, path, note)


def contours(path: Path, title: str, note: str, points: dict[str, np.ndarray], titles: dict[str, str]) -> None:
    """Filled contours of where every policy spends its time, in one plane (PDERL Figures 1 and 6)."""
    grid, heights = _densities(points)
    figure = blank(3.1 * len(points), 3.9)
    panels = _panels(figure, len(points))
    for axes, (policy, height) in zip(panels, heights.items(), strict=True):
        axes.contourf(*grid, height, levels=height.max() * SHADES, cmap="viridis")
        _label_panel(axes, titles[policy])
    _label_figure(panels, figure, title)
    _finish(figure, path, note)


def differences(
    path: Path,
    title: str,
    note: str,
    points: dict[str, np.ndarray],
    titles: dict[str, str],
    below: Callable[[Sequence[Any]], None] | None = None,
) -> None:
    """The parent's time in blue, and of each child, in red, where it spends more (solid) and less (dashed).

    PDERL Figures 2, 8 and 9: (child - parent) / max parent, at the same levels in every panel. `below` draws the panels
    of a second row.
    """
    parent = next(iter(points))
    grid, heights = _densities(points)
    figure = blank(3.1 * len(points), 3.9 if below is None else 7.2)
    upper, *lower = [figure] if below is None else figure.subfigures(2, 1)
    panels = _panels(upper, len(points))
    base = heights[parent]
    for axes, (policy, height) in zip(panels, heights.items(), strict=True):
        axes.contourf(*grid, base, levels=base.max() * SHADES, cmap="Blues")
        if policy != parent:
            change = (height - base) / base.max()
            for sign, style in ((1.0, "solid"), (-1.0, "dashed")):
                axes.contour(*grid, sign * change, levels=LEVELS, colors=COLOURS[1], linestyles=style, linewidths=1.0)
        _label_panel(axes, titles[policy])
    _label_figure(panels, figure, title)
    if below is not None:
        below(lower[0].subplots(1, 2))
    levels = ", ".join(f"{level:g}" for level in LEVELS)
    key = f"red: (child - parent) / highest of parent at {levels}; solid where the child is more often, dashed less"
    _finish(figure, path, f"{note}\n{key}")


def magnitude_lines(divergences: np.ndarray, returns: np.ndarray, sigmas: Sequence[float], itself: float) -> Callable:
    """What draws the second row of Figure 9: KL and returns of every parent's children, [parents, sigmas].

    `itself` is the KL of a parent on other episodes.
    """

    def draw(axes: Sequence[Any]) -> None:
        for panel, values, label in (
            (axes[0], divergences, "KL(parent || child), nats"),
            (axes[1], returns, "mean return"),
        ):
            panel.plot(sigmas, values.T, color=COLOURS[5], linewidth=0.8, alpha=0.7)
            middle = f"median of {len(values)} parents"
            panel.plot(sigmas, np.median(values, axis=0), "o-", color=COLOURS[0], label=middle)
            panel.set(xscale="log", xlabel="mutation magnitude sigma", ylabel=label)
            panel.set_xticks(sigmas, [f"{sigma:g}" for sigma in sigmas])
            panel.minorticks_off()
            panel.grid(alpha=0.3)
        axes[0].set_yscale("log")
        axes[0].axhline(itself, color="grey", linestyle=":", label="a parent against itself, on other episodes")
        for panel in axes:
            panel.legend(frameon=False, fontsize=8)

    return draw


def cloud(path: Path, title: str, note: str, points: dict[str, np.ndarray], titles: dict[str, str]) -> None:
    """The states of every policy as points among those of all (GPO Figure 3b)."""
    figure = blank(3.1 * len(points), 3.9)
    panels = _panels(figure, len(points))
    pooled = np.concatenate(list(points.values()))
    for axes, colour, (policy, rows) in zip(panels, COLOURS, points.items(), strict=False):
        axes.scatter(*pooled.T, s=3, color="lightgrey", linewidths=0)
        axes.scatter(*rows.T, s=3, color=colour, linewidths=0)
        axes.set_title(titles[policy], fontsize=10)
        axes.set(xticks=[], yticks=[])
    figure.suptitle(title)
    _finish(figure, path, note)


def _panels(figure: Any, count: int) -> list[Any]:
    """Panels side by side that share their axes."""
    return list(np.atleast_1d(figure.subplots(1, count, sharex=True, sharey=True)))


def _densities(points: dict[str, np.ndarray]) -> tuple[tuple[np.ndarray, np.ndarray], dict[str, np.ndarray]]:
    """A grid over the states of all policies, and the density of each policy's states on it."""
    grid = window(list(points.values()))
    spread = np.concatenate(list(points.values())).std(axis=0)
    return grid, {policy: on_window(rows, grid, spread) for policy, rows in points.items()}


def _label_panel(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.2)


def _label_figure(panels: Sequence[Any], figure: Any, title: str) -> None:
    for axes in panels:
        axes.set_xlabel("state, dimension 1")
    panels[0].set_ylabel("state, dimension 2")
    figure.suptitle(title)


def _finish(figure: Any, path: Path, note: str) -> None:
    figure.supxlabel(note, fontsize=8, color="grey")
    figure.savefig(path, dpi=DPI)
