"""Learning curves of one or several runs, drawn straight from their records."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from genepool.analysis.records.statistics import WINDOW, moving_average
from genepool.errors import UserError
from genepool.runs.folder import Folder

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # safe for the colour-blind
STYLES = {"champion": "-", "mother": ":", "learner": "--"}
DPI = 130


def series(folder: Folder, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Frames and test returns [tests, episodes] of a run's champion, mother or learner."""
    rows = [(record["frames"], record[f"{name}_test"]) for record in folder.records if record.get(f"{name}_test")]
    return np.array([frames for frames, _ in rows]), np.array([returns for _, returns in rows])


def task_name(config: dict[str, Any]) -> str:
    """The task and the engine of a run."""
    return f"{config['task']} ({config['engine']})"


def blank(width: float, height: float, layout: str | None = "constrained") -> Any:
    """An empty figure of so many inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("figures need matplotlib: pip install 'genepool[analysis]'") from None
    return Figure(figsize=(width, height), layout=layout)


def draw(folders: Sequence[Folder], path: Path) -> None:
    """Draw the test returns against frames, every run in its colour: champion solid, mother dotted, learner dashed."""
    figure = blank(8, 5)
    axes = figure.subplots()
    lengths = []
    episodes: set[int] = set()
    for colour, folder in zip(COLOURS * (1 + len(folders) // len(COLOURS)), folders, strict=False):
        config = folder.config
        for name, style in STYLES.items():
            frames, returns = series(folder, name)
            if len(frames):
                label = f"{config['preset']} {name}, seed {config['seed']}"
                _draw_curve(axes, frames, returns.mean(axis=1), style, colour, label)
                lengths.append(len(frames))
                episodes.add(returns.shape[1])
    if not episodes:
        raise UserError("nothing to draw: no generation of these runs was tested yet")
    axes.set(
        xlabel="frames, as the paper counts them",
        ylabel=f"test return, mean of {' or '.join(map(str, sorted(episodes)))} episodes",
        title=", ".join(sorted({task_name(folder.config) for folder in folders})),
    )
    if max(lengths) >= 2 * WINDOW:
        note = f"bold: mean of the last {WINDOW} tests"
        axes.annotate(note, (0.99, 0.01), xycoords="axes fraction", ha="right", fontsize=8, color="grey")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=DPI)


def _draw_curve(axes: Any, frames: np.ndarray, mean: np.ndarray, style: str, colour: str, label: str) -> None:
    """One curve. With enough tests it is smoothed, and the tests themselves are faint."""
    if len(mean) >= 2 * WINDOW:
        axes.plot(frames, mean, style, color=colour, alpha=0.25, linewidth=0.8)
        mean = moving_average(mean)
    axes.plot(frames, mean, style, color=colour, label=label)
