"""Two groups of runs compared on each task that both have, at the same frames, with a test of the difference."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from genepool.analysis.records.history import History
from genepool.analysis.records.reading import read_all
from genepool.analysis.records.statistics import Difference, differ, verdict
from genepool.analysis.records.systems import group_runs
from genepool.errors import UserError

NAMES = "AB"  # of the sides
LATER = 1.05  # of the frames compared at: runs that go on further are mentioned

Runs = dict[tuple[str, str], list[History]]  # by task and engine


@dataclass(frozen=True)
class Side:
    """One of the two groups, on one task."""

    name: str
    runs: tuple[History, ...]
    scores: np.ndarray  # [runs]: at the frames of the comparison


@dataclass(frozen=True)
class Comparison:
    """Both groups on one task by one engine."""

    task: str
    frames: int  # at which every run has been tested
    sides: tuple[Side, Side]
    found: Difference
    cautions: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """What the scores show, in words."""
        a, b = self.sides
        return verdict(self.found, len(a.scores), len(b.scores), a.name, b.name)


def compare(
    a: Sequence[Path], b: Sequence[Path], frames: float | None = None
) -> tuple[list[Comparison], dict[str, str]]:
    """Compare the runs of `a` with those of `b`; also the runs that were left out, each with the reason."""
    of_a = {path.resolve() for path in a}
    both = of_a & {path.resolve() for path in b}
    if both:
        raise UserError(f"{next(iter(both)).name} is on both sides: give each run to one of them")
    histories, left_out = _usable([*a, *b], frames)
    sides = [[run for run in histories if (run.path.resolve() in of_a) == first] for first in (True, False)]
    for name, runs in zip(NAMES, sides, strict=True):
        if not runs:
            reason = "".join(f": {run} {why}" for run, why in list(left_out.items())[:1])
            raise UserError(f"side {name} has no run to compare{reason}")
    systems = [system for group in group_runs(histories)[0] for system in group.systems]
    labels = {run.name: system.label for system in systems for run in system.runs}
    tasks: list[Runs] = []
    for runs in sides:
        groups, doubled = group_runs(runs)
        left_out |= doubled
        tasks.append({(group.task, group.engine): group.runs for group in groups})
    common = [key for key in tasks[0] if key in tasks[1]]
    if not common:
        words = [", ".join(f"{task} ({engine})" for task, engine in own) for own in tasks]
        raise UserError(f"nothing to compare: A has {words[0]}, B has {words[1]}; task and engine must be the same")
    for own, other in (tasks, tasks[::-1]):
        for task, engine in own.keys() - other.keys():
            left_out[f"{task} ({engine})"] = "only one side has it"
    return [_compare_on(key, tasks[0][key], tasks[1][key], labels, frames) for key in common], left_out


def _usable(paths: Sequence[Path], frames: float | None) -> tuple[list[History], dict[str, str]]:
    """The runs that were tested, at `frames` or later; and the other ones, each with the reason."""
    histories, left_out = read_all(paths)
    for run in histories:
        if not len(run.score.at):
            left_out[run.name] = "has no test yet"
        elif frames and run.frames[run.score.at[-1]] < frames:
            left_out[run.name] = f"was last tested at {int(run.frames[run.score.at[-1]]):,} frames"
    return [run for run in histories if run.name not in left_out], left_out


def _compare_on(
    key: tuple[str, str], a: list[History], b: list[History], labels: dict[str, str], frames: float | None
) -> Comparison:
    """The comparison on one task by one engine."""
    ends = {run.name: int(run.frames[run.score.at[-1]]) for run in (*a, *b)}
    first = max(int(run.frames[run.score.at[0]]) for run in (*a, *b))
    shortest = min(ends, key=ends.get)
    at = max(first, int(frames or ends[shortest]))
    names = [" and ".join(dict.fromkeys(labels.get(run.name, run.config["preset"]) for run in runs)) for runs in (a, b)]
    same = names[0] == names[1]
    sides = tuple(
        Side(f"{name} ({side})" if same else name, tuple(runs), np.array([run.final(at) for run in runs]))
        for side, name, runs in zip(NAMES, names, (a, b), strict=True)
    )
    cautions = []
    if not frames and max(ends.values()) > LATER * at:
        cautions.append(f"{shortest} is the shortest run and sets the frames; others go on to {max(ends.values()):,}")
    if same:
        cautions.append("both sides are the same system with the same settings")
    cautions += _cautions(key[1], a, b, labels)
    return Comparison(f"{key[0]} ({key[1]})", at, sides, differ(sides[0].scores, sides[1].scores), tuple(cautions))


def _cautions(engine: str, a: list[History], b: list[History], labels: dict[str, str]) -> list[str]:
    """What makes the runs of the two sides less comparable."""
    cautions = []
    for side, runs in zip(NAMES, (a, b), strict=True):
        systems = {labels.get(run.name, "") for run in runs}
        if len(systems) > 1:
            cautions.append(f"side {side} takes {len(systems)} systems as one")
    scored = {run.scored for run in (*a, *b)}
    if len(scored) > 1:
        cautions.append("not all are scored by the same policy: " + ", ".join(sorted(scored)))
    if len({str(run.config.get("versions", {}).get(engine)) for run in (*a, *b)}) > 1:
        cautions.append(f"they were played with different versions of {engine}")
    return cautions
