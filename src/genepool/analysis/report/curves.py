"""Learning curves of one or several runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from genepool.errors import UserError
from genepool.runs.folder import Folder

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # told apart by all eyes
DPI = 130
WINDOW = 10  # tests, in the authors' moving average


def moving_average(values: Sequence[float], window: int = WINDOW) -> np.ndarray:
    """The mean of each value and up to `window` - 1 before it: how ERL's and PDERL's authors report (their last 10 generations)."""
    total = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - window)
    return (total[ends] - total[starts]) / (ends - starts)


def series(folder: Folder, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Frames and test returns [tests, episodes] of a run's champion, mother or learner."""
    rows = [(record["frames"], record[f"{name}_test"]) for record in folder.records if record.get(f"{name}_test")]
    return np.array([frames for frames, _ in rows]), np.array([returns for _, returns in rows])


def blank(width: float, height: float) -> Any:
    """An empty figure of so many inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("figures need matplotlib: pip install 'genepool[analysis]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def draw(folders: Sequence[Folder], path: Path) -> None:
    """Draw the test returns against frames, every run in its colour: champion solid, mother dotted, learner dashed."""
    figure = blank(8, 5)
    axes = figure.subplots()
    episodes, smooth = set(), False
    for colour, folder in zip(COLOURS * (1 + len(folders) // len(COLOURS)), folders, strict=False):
        config = folder.config
        for name, style in (("champion", "-"), ("mother", ":"), ("learner", "--")):
            frames, returns = series(folder, name)
            if not len(frames):
                continue
            mean = returns.mean(axis=1)
            label = f"{config['preset']} {name}, seed {config['seed']}"
            if len(mean) >= 2 * WINDOW:
                smooth = True
                axes.plot(frames, mean, style, color=colour, alpha=0.25, linewidth=0.8)
                mean = moving_average(mean)
            axes.plot(frames, mean, style, color=colour, label=label)
            episodes.add(returns.shape[1])
    if not episodes:
        raise UserError("nothing to draw: no generation of these runs was tested yet")
    tasks = sorted({f"{folder.config['task']} ({folder.config['engine']})" for folder in folders})
    axes.set(
        xlabel="frames, as the paper counts them",
        ylabel=f"test return, mean of {' or '.join(map(str, sorted(episodes)))} episodes",
        title=", ".join(tasks),
    )
    if smooth:
        note = f"bold: mean of the last {WINDOW} tests"
        axes.annotate(note, (0.99, 0.01), xycoords="axes fraction", ha="right", fontsize=8, color="grey")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=DPI)
