"""ESAC's Figures 6 and 8: gradient steps of SAC, and the return against the clip of the mutation tuning."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from genepool.analysis.records.statistics import WINDOW, moving_average
from genepool.analysis.report.curves import COLOURS, DPI, blank, series, task_name
from genepool.analysis.report.drawing import POINTS
from genepool.errors import UserError
from genepool.runs.folder import Folder


def updates(folders: Sequence[Folder]) -> dict[str, dict[str, list[np.ndarray]]]:
    """By task and preset, the runs: [3, n], steps as the paper counts them, frames played, gradient steps so far."""
    runs: dict[str, dict[str, list[np.ndarray]]] = {}
    for folder in folders:
        config = folder.config
        records = [record for record in folder.records if record.get("updates") is not None]
        if not records:
            raise UserError(f"{folder.path} has no learner, or has not learnt yet: it has no updates to draw")
        # if the paper counts true steps, as SAC's does, a record has no nominal ones
        nominal = [record.get("nominal_steps", record["frames"]) for record in records]
        columns = [nominal, [record["true_frames"] for record in records], [record["updates"] for record in records]]
        runs.setdefault(task_name(config), {}).setdefault(config["preset"], []).append(np.array(columns, float))
    return runs


def draw_updates(folders: Sequence[Folder], path: Path) -> None:
    """Gradient steps so far, against the paper's nominal steps and against all frames played, a row per task.

    Seeds of the same preset are averaged up to the end of the shortest; the thin lines are the single runs.
    """
    runs = updates(folders)
    figure = blank(10, 3.8 * len(runs))
    panels = figure.subplots(len(runs), 2, squeeze=False)
    for (left, right), (task, presets) in zip(panels, runs.items(), strict=True):
        for colour, (preset, seeds) in zip(COLOURS, presets.items(), strict=False):
            label = f"{preset}, mean of {len(seeds)} runs" if len(seeds) > 1 else preset
            for axes, column in ((left, 0), (right, 1)):
                for run in seeds:
                    axes.plot(run[column], run[2], color=colour, linewidth=0.7, alpha=0.5)
                axes.plot(*mean_curve([run[[column, 2]] for run in seeds]), color=colour, label=label)
        left.set(xlabel="steps, as the paper counts them", ylabel="gradient steps of the learner", title=task)
        right.set(xlabel="frames played, tests included", title=task, xscale="log")
        for axes in (left, right):
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
            axes.yaxis.set_major_formatter("{x:,.0f}")
        left.xaxis.set_major_formatter("{x:,.0f}")
        left.legend(frameon=False)
    _add_note(figure, folders, "thin: single runs")
    figure.savefig(path, dpi=DPI)


def mean_curve(runs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The mean of curves [2, n], over the range that all of them cover."""
    if len(runs) == 1:
        return tuple(runs[0])
    x = np.linspace(max(run[0, 0] for run in runs), min(run[0, -1] for run in runs), POINTS)
    return x, np.mean([np.interp(x, *run) for run in runs], axis=0)


def sensitivity(folders: Sequence[Folder]) -> dict[str, dict[float | str, list[float]]]:
    """By task and zeta, each run's mean of its champion's last ten tests. Other tunings have their names as keys."""
    found: dict[str, dict[float | str, list[float]]] = {}
    for folder in folders:
        config = folder.config
        _, returns = series(folder, "champion")
        evolver = config["algorithm"].get("evolver") or {}
        if "tuning" not in evolver:
            raise UserError(f"{folder.path} is no run of ESAC or ES: only their mutation is tuned")
        if not len(returns):
            raise UserError(f"{folder.path} was not tested yet: there is no return to draw")
        tuning = evolver["tuning"] or {"part": "no tuning"}
        key = tuning["clip"] if "clip" in tuning else tuning["part"]
        final = float(moving_average(returns.mean(axis=1))[-1])
        found.setdefault(task_name(config), {}).setdefault(key, []).append(final)
    return found


def draw_sensitivity(folders: Sequence[Folder], path: Path) -> None:
    """The champion's return against zeta, the clip of the mutation tuning, relative to the best zeta of its task.

    Runs with another tuning, or none, are the dashed lines.
    """
    figure = blank(7.5, 4.6)
    axes = figure.subplots()
    for colour, (task, by_zeta) in zip(COLOURS, sensitivity(folders).items(), strict=False):
        _draw_task(axes, colour, task, by_zeta)
    axes.set(
        xscale="log",
        xlabel="zeta, the clip of the mutation tuning",
        ylabel="return / that of the best zeta",
        title="Return of the champion and the clip of the mutation tuning",
    )
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    _add_note(figure, folders, f"mean of up to {WINDOW} last tests; a small dot per run")
    figure.savefig(path, dpi=DPI)


def _draw_task(axes: Any, colour: str, task: str, by_zeta: dict[float | str, list[float]]) -> None:
    means = {key: np.mean(returns) for key, returns in by_zeta.items()}
    zetas = sorted(key for key in by_zeta if not isinstance(key, str))
    best = max((means[zeta] for zeta in zetas), default=0.0)
    if best <= 0:
        raise UserError(f"no zeta earned more than 0 on {task}: there is nothing to divide its returns by")
    axes.plot(zetas, [means[zeta] / best for zeta in zetas], "o-", color=colour, label=f"{task}, best {best:.1f}")
    for zeta in zetas:
        axes.plot([zeta] * len(by_zeta[zeta]), np.array(by_zeta[zeta]) / best, ".", color=colour, alpha=0.5)
    for name in (key for key in by_zeta if isinstance(key, str)):
        axes.axhline(means[name] / best, color=colour, linestyle="--", label=f"{task}, {name}")


def _add_note(figure: Any, folders: Sequence[Folder], note: str) -> None:
    """Write seeds and frames of the runs under the figure."""
    seeds = ", ".join(map(str, sorted({folder.config["seed"] for folder in folders})))
    frames = [folder.records[-1]["frames"] for folder in folders]
    span = f"{min(frames):,} to {max(frames):,}" if len(set(frames)) > 1 else f"{frames[0]:,}"
    figure.supxlabel(f"{len(folders)} runs, seeds {seeds}, {span} frames as counted; {note}", fontsize=8, color="grey")
