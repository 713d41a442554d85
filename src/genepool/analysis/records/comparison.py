"""Two groups of runs side by side: on each task that both have, at the same frames, with a test of the difference."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from genepool.analysis.records.history import History
from genepool.analysis.records.reading import read_all
from genepool.analysis.records.statistics import (
    ALPHA,
    Difference,
    bootstrap,
    differ,
    interquartile_mean,
    interval,
    mean_improvement,
    verdict,
)
from genepool.analysis.records.systems import grouped
from genepool.analysis.report.curves import WINDOW
from genepool.analysis.report.drawing import DPI, colour, count_frames, legend_below, panels, shared_curve, small_titles
from genepool.analysis.report.tables import between, number
from genepool.errors import UserError


@dataclass(frozen=True)
class Side:
    """One of the two on one task."""

    name: str
    runs: tuple[History, ...]
    scores: np.ndarray  # [runs]: at the frames of the comparison


@dataclass(frozen=True)
class Comparison:
    """Both on one task by one engine."""

    task: str
    frames: int  # that every run has been tested at
    sides: tuple[Side, Side]
    found: Difference
    cautions: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """What the data can say, in words."""
        a, b = self.sides
        return verdict(self.found, len(a.scores), len(b.scores), a.name, b.name)


def compare(
    a: Sequence[Path], b: Sequence[Path], frames: float | None = None
) -> tuple[list[Comparison], dict[str, str]]:
    """Compare the runs of `a` with those of `b`, and say which were left out and why."""
    both = {path.resolve() for path in a} & {path.resolve() for path in b}
    if both:
        raise UserError(f"{next(iter(both)).name} is on both sides: give each run to one of them")
    histories, left_out = read_all([*a, *b])
    for run in histories:
        if not len(run.score.at):
            left_out[run.name] = "has no test yet"
        elif frames and run.frames[run.score.at[-1]] < frames:
            left_out[run.name] = f"was last tested at {int(run.frames[run.score.at[-1]]):,} frames"
    histories = [run for run in histories if run.name not in left_out]
    here = {path.resolve() for path in a}
    sides = [[run for run in histories if (run.path.resolve() in here) == first] for first in (True, False)]
    for name, runs in zip("AB", sides, strict=True):
        if not runs:
            raise UserError(f"side {name} has no run to compare{_why(left_out)}")
    labels = {
        run.name: system.label for group in grouped(histories)[0] for system in group.systems for run in system.runs
    }
    tasks = []
    for runs in sides:
        groups, doubled = grouped(runs)
        left_out |= doubled
        tasks.append({(group.task, group.engine): group.runs for group in groups})
    common = [key for key in tasks[0] if key in tasks[1]]
    if not common:
        words = [", ".join(f"{task} ({engine})" for task, engine in own) for own in tasks]
        raise UserError(f"nothing to compare: A has {words[0]}, B has {words[1]}; task and engine must be the same")
    for own, other in (tasks, tasks[::-1]):
        for task, engine in own.keys() - other.keys():
            left_out[f"{task} ({engine})"] = "only one side has it"
    return [_on(key, tasks[0][key], tasks[1][key], labels, frames) for key in common], left_out


def _why(left_out: dict[str, str]) -> str:
    return "".join(f": {name} {reason}" for name, reason in list(left_out.items())[:1])


def _on(
    key: tuple[str, str], a: list[History], b: list[History], labels: dict[str, str], frames: float | None
) -> Comparison:
    ends = {run.name: int(run.frames[run.score.at[-1]]) for run in (*a, *b)}
    first = max(int(run.frames[run.score.at[0]]) for run in (*a, *b))
    shortest = min(ends, key=ends.get)
    at = max(first, int(frames or ends[shortest]))
    names = [" and ".join(dict.fromkeys(labels.get(run.name, run.config["preset"]) for run in runs)) for runs in (a, b)]
    same = names[0] == names[1]
    sides = tuple(
        Side(f"{name} ({side})" if same else name, tuple(runs), np.array([run.final(at) for run in runs]))
        for side, name, runs in zip("AB", names, (a, b), strict=True)
    )
    cautions = []
    if not frames and max(ends.values()) > 1.05 * at:
        cautions.append(f"{shortest} is the shortest run and sets the frames; others go on to {max(ends.values()):,}")
    if same:
        cautions.append("both sides are the same system with the same settings")
    for side, runs in zip("AB", (a, b), strict=True):
        kinds = dict.fromkeys(labels.get(run.name, "") for run in runs)
        if len(kinds) > 1:
            cautions.append(f"side {side} takes {len(kinds)} systems as one")
    if len({run.scored for run in (*a, *b)}) > 1:
        cautions.append("not all are scored by the same policy: " + ", ".join(sorted({run.scored for run in (*a, *b)})))
    if len({str(run.config.get("versions", {}).get(key[1])) for run in (*a, *b)}) > 1:
        cautions.append(f"they were played with different versions of {key[1]}")
    return Comparison(f"{key[0]} ({key[1]})", at, sides, differ(sides[0].scores, sides[1].scores), tuple(cautions))


def told(comparisons: Sequence[Comparison]) -> str:
    """The comparisons as text."""
    lines = []
    for one in comparisons:
        lines += [
            f"{one.task}, at {one.frames:,} frames; a run's score is the mean of its last {WINDOW} tests by then",
            "",
        ]
        cells = [("", "seeds", "mean", "std", "median", "IQM", "95 % interval of the IQM")]
        for side, name in zip(one.sides, "AB", strict=True):
            own = side.scores
            spread = number(own.std(ddof=1)) if len(own) > 1 else ""
            ends = between(*interval(own, "interquartile mean"))
            middle = number(float(np.median(own))), number(float(interquartile_mean(own)))
            cells.append((f"{name}  {side.name}", str(len(own)), number(own.mean()), spread, *middle, ends))
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            padded = [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
            lines.append("  ".join([row[0].ljust(widths[0]), *padded]).rstrip())
        found, (n, m) = one.found, (len(side.scores) for side in one.sides)
        lines += [
            "",
            f"A - B   {number(found.difference)}{_interval(found.difference_interval)}, difference of the means",
            f"P(A>B)  {found.improvement:.2f}{_interval(found.improvement_interval)}, that a run of A beats one of B",
            f"p       {found.p:.2g}, Mann-Whitney, two-sided; {n} against {m} seeds cannot have less than {found.smallest_p:.2g}",
            "",
            one.verdict,
            *(f"Mind: {caution}." for caution in one.cautions),
            "",
        ]
    if len(comparisons) > 1:
        lines += _over_tasks(comparisons)
    return "\n".join(lines).rstrip()


def _interval(ends: tuple[float, float]) -> str:
    return "" if np.isnan(ends[0]) else f" (95 % interval {between(*ends)})"


def _over_tasks(comparisons: Sequence[Comparison]) -> list[str]:
    """rliable's probability of improvement over all tasks, whose runs are drawn anew task by task."""
    pairs = [side.scores for one in comparisons for side in one.sides]
    ends = bootstrap(mean_improvement, *pairs) if min(map(len, pairs)) > 1 else (np.nan, np.nan)
    value, count = float(mean_improvement(*pairs)), len(comparisons)
    return [
        f"Over {count} tasks: P(A>B) {value:.2f}{_interval(tuple(map(float, ends)))}, the mean of the tasks'.",
        f"{count} tests were made: of {count} systems that do not differ, {ALPHA * count:.2g} would be found to, on average.",
    ]


def draw(comparisons: Sequence[Comparison], path: Path) -> None:
    """For each task both learning curves, and the scores that were compared."""
    figure, axes = panels(2 * len(comparisons), width=5.0, height=3.3)
    for row, one in enumerate(comparisons):
        curves, dots = axes[2 * row : 2 * row + 2]
        for place, side in enumerate(one.sides):
            for run in side.runs:
                curves.plot(run.frames[run.score.at], run.smoothed(), color=colour(place), alpha=0.25, linewidth=0.7)
            if shared := shared_curve(side.runs, "frames"):
                grid, values = shared
                name = f"{'AB'[place]}: {side.name}, {len(side.runs)} seed{'s' * (len(side.runs) > 1)}"
                dot = "o" if len(grid) == 1 else None
                curves.plot(grid, values.mean(axis=0), marker=dot, color=colour(place), linewidth=1.8, label=name)
                curves.fill_between(grid, *interval(values), color=colour(place), alpha=0.18, linewidth=0)
            low, high = interval(side.scores)
            dots.plot([low, high], [place, place], color=colour(place), linewidth=3, alpha=0.8)
            dots.plot(side.scores, np.full(len(side.scores), place), "o", color=colour(place), alpha=0.5)
            dots.plot(side.scores.mean(), place, "D", color=colour(place), markeredgecolor="white", markersize=8)
        curves.axvline(one.frames, color="grey", linewidth=0.8, linestyle=":")
        curves.set(ylabel=f"test return, mean of last {WINDOW} tests", title=one.task)
        count_frames(curves)
        dots.set(
            yticks=[0, 1], yticklabels=["A", "B"], ylim=(1.6, -0.6), xlabel="score of each seed, mean and 95 % interval"
        )
        dots.set_title(f"at {one.frames:,} frames: p = {one.found.p:.2g}")
    legend_below(figure, axes)
    small_titles(figure)
    figure.savefig(path, dpi=DPI)
