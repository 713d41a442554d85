"""The tables of a report: the runs, final scores with the papers', the learner's clones, champions' ancestry, time."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from genepool.analysis.records.history import FATES, History
from genepool.analysis.records.lineage import lineage
from genepool.analysis.records.statistics import WINDOW, differ, interquartile_mean, interval, verdict
from genepool.analysis.records.systems import SystemRuns, TaskRuns
from genepool.analysis.report.drawing import write_csv
from genepool.analysis.report.population import clone_rates, runs_with_clones
from genepool.analysis.report.scores import final_scores
from genepool.analysis.verify.published import PublishedNumber, numbers_for

FINAL_HEAD = ("system", "whose", "seeds", "frames", "all frames", "mean", "spread", "median", "IQM")
FINAL_HEAD += ("95 % interval of it", "to mind")
MINUTES = ("minutes", "minutes mutate", "minutes crossover", "minutes select")  # of a whole run, and of GPO's phases


class Table(NamedTuple):
    """Cells as text, and what to know of them."""

    name: str  # of its file
    title: str
    note: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def write(self, path: Path) -> None:
        """The table as CSV."""
        write_csv(path, [self.header, *self.rows])


def number(value: float | None) -> str:
    """A number with as many digits as matter. Empty for None and NaN."""
    if value is None or np.isnan(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def between(low: float, high: float) -> str:
    """An interval in words. Empty for NaN."""
    return "" if np.isnan(low) else f"{number(low)} to {number(high)}"


def aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """The rows as lines of text in columns: the first `left` columns to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        padded = [text.ljust(width) if k < left else text.rjust(width) for k, (text, width) in enumerate(cells)]
        lines.append("  ".join(padded).rstrip())
    return lines


def runs_table(groups: Sequence[TaskRuns]) -> Table:
    """Every run that is in the report."""
    rows = [
        (
            run.name,
            system.label,
            group.name,
            str(run.config["seed"]),
            f"{int(run.frames[-1]):,}",
            f"{int(run.config['frames']):,}",
            "finished" if run.finished else "not finished",
            number(run.final()),
        )
        for group in groups
        for system in group.systems
        for run in system.runs
    ]
    head = ("run", "system", "task", "seed", "frames", "of", "state", f"last {WINDOW} tests")
    note = "A run that is not finished still trains or was stopped; its folder does not say which."
    return Table("runs", "", note, head, rows)


def final_table(group: TaskRuns) -> Table:
    """Final scores with the papers' for the same system and task (PDERL Table 1, AES-RL 2 and 3, ESAC 1, GPO 1, 2)."""
    rows = []
    for system in group.systems:
        whose = f"ours: {system.counted[0].scored}, mean of last {WINDOW} tests"
        rows.append(_our_row(system, final_scores(system), whose))
        if "pop_max_ma100" in system.counted[0].scalars:
            best = np.array([_last(run, "pop_max_ma100") for run in system.counted])
            whose = "ours: best of a generation, mean of 100, as ESAC's paper"
            rows.append(_our_row(system, best[np.isfinite(best)], whose))
        rows += [_published_row(system, found) for found in numbers_for(system)]
    note = (
        "Spread: standard deviation over seeds unless it says otherwise. IQM: interquartile mean, with its bootstrap "
        "interval; with few seeds such intervals are too narrow. The papers' tasks are of other versions: read their "
        "rows as what to expect, not as opponents."
    )
    return Table("final-table", "Final scores and the papers'", note, FINAL_HEAD, rows)


def _our_row(system: SystemRuns, scores: np.ndarray, whose: str) -> tuple[str, ...]:
    frames = _span([run.frames[-1] for run in system.counted])
    true_frames = _span([run.true_frames[-1] for run in system.counted])
    if not len(scores):
        return (system.label, whose, "0", frames, true_frames, *[""] * 5, "no test on record yet")
    unfinished = sum(not run.finished for run in system.counted)
    return (
        system.label,
        whose,
        str(len(scores)),
        frames,
        true_frames,
        number(scores.mean()),
        number(scores.std(ddof=1)) if len(scores) > 1 else "",
        number(float(np.median(scores))),
        number(float(interquartile_mean(scores))),
        between(*interval(scores, "interquartile mean")),
        f"{unfinished} not finished" if unfinished else "",
    )


def _span(ends: list[float]) -> str:
    """The largest of these frames, or from the smallest to the largest if they differ by more than a hundredth."""
    return between(min(ends), max(ends)) if max(ends) > 1.01 * min(ends) else number(max(ends))


def _published_row(system: SystemRuns, found: PublishedNumber) -> tuple[str, ...]:
    kind = "" if found.spread_kind == "std" else f" ({found.spread_kind})"
    metric = "" if found.metric == "return" else f", {found.metric}"
    return (
        system.label,
        f"{found.source}, {found.task}{metric}",
        str(found.seeds or ""),
        number(found.frames) if found.frames else "",
        "",
        number(found.value),
        f"{number(found.spread)}{kind}" if found.spread is not None else "",
        number(found.median),
        "",
        "",
        found.caveat,
    )


def _last(run: History, name: str) -> float:
    known = run.scalars[name][np.isfinite(run.scalars[name])]
    return float(known[-1]) if len(known) else np.nan


def clones_table(group: TaskRuns) -> Table | None:
    """What became of the learner's clones in the end, in percent (PDERL Table 2)."""
    rows = []
    for system in group.systems:
        runs = runs_with_clones(system.counted)
        if not runs:
            continue
        rates = np.array([clone_rates(run)[-1] for run in runs])
        count = sum(int(run.fates[-1].sum()) for run in runs)
        spread = rates.std(axis=0, ddof=1) if len(runs) > 1 else [None] * len(FATES)
        cells = [_with_spread(*pair) for pair in zip(rates.mean(axis=0), spread, strict=True)]
        rows.append((system.label, "ours", str(len(runs)), str(count), *cells))
        for found in zip(*(numbers_for(system, f"clones {fate} %") for fate in FATES), strict=True):
            cells = [_with_spread(one.value, one.spread) for one in found]
            rows.append((system.label, f"{found[0].source}, {found[0].task}", str(found[0].seeds or ""), "", *cells))
    if not rows:
        return None
    head = ("system", "whose", "seeds", "clones", *(f"{fate}, %" for fate in FATES))
    note = "Mean and standard deviation over seeds of the final rates. Rates of few clones say little."
    return Table("clones-table", "What became of the learner's clones", note, head, rows)


def _with_spread(mean: float, spread: float | None) -> str:
    return f"{mean:.1f}" + (f" ± {spread:.1f}" if spread is not None else "")


def ancestry_table(group: TaskRuns) -> Table | None:
    """Where every run's champion comes from."""
    rows = []
    for system in group.systems:
        for run in system.runs:
            tree = lineage(run.candidates)
            if tree is None:
                continue
            tried = run.candidates
            root = tree.line[-1]
            steps = ", ".join(f"{count} {maker}" for maker, count in tree.steps(tried).most_common())
            clones = int(tried.made_by("learner's clone")[tree.ancestors].sum())
            begin = f"{tried.makers[tried.maker[root]]}, generation {tried.at[root] + 1}"
            share = f"{len(tree.ancestors):,} of {int(tried.for_fitness.sum()):,}"
            rows.append((run.name, share, str(clones), begin, steps))
    if not rows:
        return None
    head = ("run", "ancestors, of all tried", "of them learner's clones", "its line begins", "made along the line")
    note = "The champion is the fittest of the last generation; its line goes back always to the fitter parent."
    return Table("ancestry", "Where each champion comes from", note, head, rows)


def time_table(group: TaskRuns) -> Table:
    """Wall-clock minutes of our runs, and below them those that the papers print.

    Of the papers only GPO's Table 3 is used. `genepool simulate` compares with the minutes in AES-RL's Table 1.
    """
    rows = []
    for system in group.systems:
        frames = float(np.mean([run.frames[-1] for run in system.counted]))
        seconds = float(np.mean([run.wall[-1] for run in system.counted]))
        where = ", ".join(sorted({run.config.get("workers", "local") for run in system.counted}))
        rows.append((system.label, f"ours, workers {where}", *_pace(frames, seconds / 60), ""))
        for metric in MINUTES:
            for found in numbers_for(system, metric):
                whose = f"{found.source}, {found.task}, {metric.partition(' ')[2] or 'all'}"
                rows.append((system.label, whose, *_pace(found.frames, found.value), found.caveat))
    head = ("system", "whose", "frames", "minutes", "minutes per million frames", "to mind")
    return Table("time-table", "How long a run takes", "Means over seeds. Other machines, other minutes.", head, rows)


def _pace(frames: float, minutes: float) -> tuple[str, str, str]:
    return number(frames), number(minutes), number(minutes / frames * 1e6)


def sentences(group: TaskRuns) -> list[str]:
    """The systems' mean scores, and whether the two best differ."""
    found = [(system.label, own) for system in group.systems if len(own := final_scores(system))]
    ranked = sorted(found, key=lambda pair: -pair[1].mean())
    lines = []
    for label, own in ranked:
        spread = f"mean of {len(own)} seeds, 95 % interval {between(*interval(own))}"
        lines.append(
            f"{label}: {number(own.mean())} ({spread if len(own) > 1 else '1 seed, its spread is not known'})."
        )
    if len(ranked) > 1:
        (x, own), (y, other) = ranked[:2]
        lines.append(f"Of the two highest, {x} and {y}: {verdict(differ(own, other), len(own), len(other), x, y)}")
    return lines
