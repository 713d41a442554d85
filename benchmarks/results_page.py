"""docs/results.md of what is in results/: tables, learning curves, and what others have published.

    python -m benchmarks.results_page [--results results] [--docs docs]

What people make of the numbers is written by hand in results/account.md and taken over as it is.
"""

import argparse
import csv
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from benchmarks.results import PLAN, Row, jobs_of
from genepool.analysis.report.curves import COLOURS
from genepool.analysis.verify.band import Band, find_band, is_near, judge
from genepool.analysis.verify.published import PAPERS, PublishedReturn, published_returns

OPENING = """\
# Results

Made by `python -m benchmarks.results_page` from the tables in `results/`, which `python -m benchmarks.results` trains; anyone
with more machines can train further (`--only`, `--jobs`, `--workers ray:N`). A run is one process with one core. Returns are
of test episodes without noise: the champion's, or the learner's where it is alone. *Frames* are counted as the paper counts
them; *training frames* are all that were played, without the tests, and are what systems are compared at, between two tests
by a straight line. An interval is Student's, 95 %, over seeds: of two seeds it is wide, and of one there is none. Hours are by
the clock on the wall, of machines that may have been shared.
"""


class Seed(NamedTuple):
    """The tests of one run: frames, training frames, mean return; and the seconds that it took."""

    frames: np.ndarray
    training: np.ndarray
    returns: np.ndarray
    wall: float


def read_seed(path: Path) -> Seed | None:
    """The tests in a run's CSV, of the champion or of the learner alone; nothing if it was not trained yet."""
    if not path.exists():
        return None
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    who = "champion" if any(row["who"] == "champion" for row in rows) else "learner"
    rows = [row for row in rows if row["who"] == who]
    column = lambda name: np.array([float(row[name]) for row in rows])
    returns = np.array([fmean(float(word) for word in row["returns"].split()) for row in rows])
    return Seed(column("frames"), column("training_frames"), returns, max(column("wall_seconds"), default=0.0))


def interval(values: Sequence[float]) -> str:
    """The mean, and half the width of its 95 % interval over seeds, of those that were tested there."""
    values = [value for value in values if not math.isnan(value)]
    if not values:
        return "no test near"
    if len(values) < 2:
        return f"{fmean(values):.0f}"
    half = student.ppf(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return f"{fmean(values):.0f} ± {half:.0f}"


def at(seed: Seed, frames: float) -> float:
    """The return at the test nearest to these frames; NaN if none is close."""
    if not len(seed.frames):
        return math.nan
    nearest = int(np.argmin(np.abs(seed.frames - frames)))
    return float(seed.returns[nearest]) if is_near(seed.frames[nearest], frames) else math.nan


def section(row: Row, shown: dict[str, list[Seed]], points: Sequence[PublishedReturn], figure: str) -> list[str]:
    """A row of the plan as a part of the page."""
    lines = [
        f"## {', '.join(row.systems)} on {row.task}, {row.frames:,} frames",
        "",
        f"Judged against {row.against}.",
        "",
    ]
    trained = {system: seeds for system, seeds in shown.items() if seeds}
    missing = [system for system in row.systems if len(shown[system]) < row.seeds]
    if missing:
        lines += [
            f"Not all trained yet: {', '.join(f'{s} {len(shown[s])} of {row.seeds} seeds' for s in missing)}.",
            "",
        ]
    if trained:
        common = min(seed.training[-1] for seeds in trained.values() for seed in seeds)
        lines += [
            f"| system | seeds | return at {row.frames:,} frames | each seed | at {common:,.0f} training frames | hours |",
            "|---|---|---|---|---|---|",
            *(_line(system, seeds, row.frames, common) for system, seeds in trained.items()),
            "",
            f"![learning curves]({figure})",
            "",
        ]
    for system, words in row.systems.items():
        lines += _published(system, words.split()[0], row, shown[system], points)
    return [*lines, ""]


def _line(system: str, seeds: Sequence[Seed], frames: int, common: float) -> str:
    counted = [at(seed, frames) for seed in seeds]
    equal = [float(np.interp(common, seed.training, seed.returns)) for seed in seeds]
    hours = fmean(seed.wall for seed in seeds) / 3600
    each = ", ".join("none" if math.isnan(value) else f"{value:.0f}" for value in counted)
    return f"| {system} | {len(seeds)} | {interval(counted)} | {each} | {interval(equal)} | {hours:.2f} |"


def _published(
    system: str, preset: str, row: Row, seeds: Sequence[Seed], points: Sequence[PublishedReturn]
) -> list[str]:
    """The verdict where there is a band at as many frames; else what is published of the system on the task."""
    task = row.task.rpartition("-")[0]
    if row.as_published:
        band = find_band(preset, row.task, row.frames, points)
        curves = [list(zip(seed.frames.tolist(), seed.returns.tolist(), strict=True)) for seed in seeds]
        found = "not trained yet, to be compared with"
        if curves:
            place = "inside" if judge(band, curves, row.frames).inside else "outside"
            found = f"**{place}**" if len(curves) >= row.seeds else f"with {len(curves)} of {row.seeds} seeds {place}"
        caution = f" {band.caution[0].upper()}{band.caution[1:]}." if band.caution else ""
        sources = "; ".join(_source(point) for point in band.points)
        return [f"- {system}: {found} the band {band.low:.0f} to {band.high:.0f} ({sources}).{caution}"]
    papers = [p for p in points if p.system == preset and p.task == task and p.source in PAPERS]
    said = "; ".join(f"{_source(point)}, at {point.frames:,} frames" for point in papers)
    return [f"- {system}, published: {said}."] if papers else []


def _source(point: PublishedReturn) -> str:
    spread = f" ± {point.spread:.0f}" if point.spread is not None else ""
    name = point.source if point.source in PAPERS else point.source.split(" ")[0]
    return f"{point.value:.0f}{spread}, {point.seeds or 'unknown'} seeds, {point.task}-{point.version}, {name}"


def draw(row: Row, shown: dict[str, list[Seed]], bands: dict[str, Band], path: Path) -> None:
    """Draw returns against training frames: seeds thin, their mean bold; a bar is the band of published results."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for k, (colour, (system, seeds)) in enumerate(zip(COLOURS, shown.items(), strict=False)):
        for seed in seeds:
            dot = "o" if len(seed.returns) == 1 else None  # a line needs two
            axes.plot(seed.training, seed.returns, color=colour, alpha=0.35, linewidth=0.8, marker=dot)
        if seeds:
            grid = np.linspace(max(s.training[0] for s in seeds), min(s.training[-1] for s in seeds), 200)
            mean = np.mean([np.interp(grid, seed.training, seed.returns) for seed in seeds], axis=0)
            label = f"{system}, {len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'}"
            dot = "D" if max(len(seed.returns) for seed in seeds) == 1 else None
            axes.plot(grid, mean, color=colour, label=label, marker=dot)
        if system in bands:
            band = bands[system]
            right = (1.01 + 0.01 * k) * row.frames
            label = f"{system}, published at {row.frames:,} frames"
            middle, half = (band.high + band.low) / 2, (band.high - band.low) / 2
            axes.errorbar(right, middle, half, color=colour, capsize=4, linewidth=1.5, linestyle="", label=label)
    axes.set(xlabel="training frames: all that were played, without the tests", ylabel="test return", title=row.task)
    axes.set_xlim(0, max(axes.get_xlim()[1], 1.04 * row.frames))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def page(plan: Sequence[Row], results: Path, docs: Path) -> str:
    """The whole page; its figures are drawn on the way."""
    points, lines = published_returns(), [OPENING]
    account = results / "account.md"
    lines += ["## What we make of it", "", account.read_text().strip() if account.exists() else "Not written yet.", ""]
    (docs / "results").mkdir(parents=True, exist_ok=True)
    for row in plan:
        names = {system: _seeds(row, system, results) for system in row.systems}
        homes = {system: _home(plan, system, row) for system in row.also_shown}
        others = {f"{system} of the other table": _seeds(home, system, results) for system, home in homes.items()}
        shown = names | others
        figure = f"{'-'.join(row.systems).lower().replace(' ', '-')}-{row.task}.png"
        if any(shown.values()):
            bands = {
                system: find_band(words.split()[0], row.task, row.frames, points)
                for system, words in row.systems.items()
                if row.as_published
            }
            draw(row, shown, bands, docs / "results" / figure)
        lines += section(row, shown, points, f"results/{figure}")
    return "\n".join(lines).rstrip() + "\n"


def _home(plan: Sequence[Row], system: str, row: Row) -> Row:
    """The row that trains the system on the same task."""
    return next(other for other in plan if system in other.systems and other.task == row.task)


def _seeds(row: Row, system: str, results: Path) -> list[Seed]:
    """The seeds of a system that are trained."""
    one = Row({system: row.systems[system]}, row.task, row.frames, row.seeds, row.against)
    found = [read_seed(results / job.name / "curve.csv") for job in jobs_of((one,))]
    return [seed for seed in found if seed is not None]


def main(argv: list[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results_page", description="make docs/results.md")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    options = parser.parse_args(argv)
    options.docs.mkdir(parents=True, exist_ok=True)
    text = page(PLAN, options.results, options.docs)
    (options.docs / "results.md").write_text(text)
    print(options.docs / "results.md")


if __name__ == "__main__":
    main()
