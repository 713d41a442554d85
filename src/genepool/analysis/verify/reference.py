"""Published results, each with its source, and whether ours lie among them.

What others have measured is in reference.csv; what the papers print is in published.csv. A band is made of several sources by one rule: it goes from the lowest mean
less its spread to the highest mean plus its spread. Only returns of test episodes at the same number of frames are used;
returns of training, and the best test on the way, are listed in the file and never made into a band.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from genepool.errors import UserError

FILE = Path(__file__).with_name("reference.csv")
PAPERS = ("PDERL Table 1", "AES-RL Table 3")  # their tables of test returns whose spread is one over seeds
CHANGED = {  # the versions in which a Gymnasium task became another one, and what changed; in others it did not
    "HalfCheetah": {},
    "Swimmer": {},
    "Hopper": {5: "the healthy reward"},
    "Walker2d": {5: "the healthy reward and the friction of a foot"},
    "Ant": {4: "contact forces", 5: "the healthy reward and the observation"},
    "Humanoid": {4: "contact forces", 5: "the healthy reward and the observation"},
}
NEAR = 0.1  # of the frames: how far off a test may be to count as one at that many frames


@dataclass(frozen=True)
class Point:
    """A published mean return."""

    system: str  # as the preset is called
    task: str
    version: str  # v1 to v5 of Gym and Gymnasium, or whose task of that name it is
    frames: int  # as the source counts them
    value: float
    spread: float | None
    spread_is: str
    seeds: int  # 0: not said
    metric: str  # test, best or training, and how it was taken
    networks: str
    settings: str  # options of `genepool train` that give these networks and rates; none: as the preset has them
    source: str

    @property
    def tested(self) -> bool:
        """Whether it is the return of test episodes at that many frames."""
        return self.metric.startswith("test")


class Band(NamedTuple):
    """Where a correct implementation's mean over seeds is expected."""

    low: float
    high: float
    points: tuple[Point, ...]
    caution: str  # what makes the sources' task another one; nothing where like is compared with like

    @property
    def settings(self) -> Point:
        """The source whose settings are taken: that with the most seeds, of several the first."""
        return max(self.points, key=lambda point: point.seeds)


class Verdict(NamedTuple):
    """Our mean over seeds, each seed's score, and whether the mean lies in the band."""

    inside: bool
    score: float
    scores: tuple[float, ...]


def read_points(path: Path | None = None) -> list[Point]:
    """All that is published, others' first, or what is in a file of the same columns."""
    papers = (
        [] if path else [_printed(row) for row in _rows(FILE.with_name("published.csv")) if row["source"] in PAPERS]
    )
    return [*_measured(path or FILE), *(point for point in papers if point.frames)]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _measured(path: Path) -> list[Point]:
    try:
        return [_point(row) for row in _rows(path)]
    except (OSError, KeyError, TypeError, ValueError) as error:
        names = ", ".join(field.name for field in fields(Point))
        raise UserError(f"{path} is no table of references ({error}): its columns are {names}") from None


def _point(row: dict[str, str]) -> Point:
    numbers = {name: kind(row[name]) for name, kind in (("frames", int), ("value", float), ("seeds", int))}
    spread = float(row["spread"]) if row["spread"] else None
    return Point(**row | numbers | {"spread": spread})


def _printed(row: dict[str, str]) -> Point:
    """A number of a paper's own. Where it does not state its frames they are 0."""
    return Point(
        row["system"],
        *named(row["task"]),
        frames=int(row["frames"] or 0),
        value=float(row["value"]),
        spread=float(row["spread"]),
        spread_is="std over seeds",
        seeds=int(row["seeds"] or 0),
        metric="test: frames as the paper counts them",
        networks="the paper's",
        settings="",
        source=row["source"],
    )


def named(task_id: str) -> tuple[str, str]:
    """A task's name and its version, if it has one."""
    return (re.fullmatch(r"(.+)-(v\d+)", task_id) or re.fullmatch("(.+)()", task_id)).groups()


def difference(task: str, version: str, other: str) -> str:
    """What changed in a task between two versions; nothing if it is the same task."""
    if version == other:
        return ""
    if task not in CHANGED or not all(v[:1] == "v" and v[1:].isdigit() for v in (version, other)):
        return "nothing says that they are the same task"
    first, last = sorted(int(v[1:]) for v in (version, other))
    changes = [f"v{v} changed {what}" for v, what in CHANGED[task].items() if first < v <= last]
    return ", ".join(changes)


def find_band(system: str, task_id: str, frames: int, points: Sequence[Point]) -> Band:
    """The band of a system on a task at a number of frames.

    From the lowest mean less its spread to the highest plus its spread. A source that gives no spread is given the largest
    of the others'. Sources on another version of the task are used only if there is none on a like one, and the band says so.
    """
    task, version = named(task_id)
    tested = [point for point in points if point.tested]
    mine = [point for point in tested if point.system == system and point.task == task]
    if not mine:
        raise UserError(f"nothing is published for {system} on {task_id}: {_nearest(system, task, tested)}")
    here = [point for point in mine if point.frames == frames]
    if not here:
        known = ", ".join(f"{number:,}" for number in sorted({point.frames for point in mine}))
        raise UserError(f"nothing is published for {system} on {task_id} at {frames:,} frames: take one of {known}")
    like = [point for point in here if not difference(task, version, point.version)]
    used = tuple(like or here)
    spreads = [point.spread for point in used if point.spread is not None]
    if not spreads:
        raise UserError(f"no source for {system} on {task_id} at {frames:,} frames gives a spread: there is no band")
    half = [max(spreads) if point.spread is None else point.spread for point in used]
    others = ", ".join(dict.fromkeys(f"{task}-{point.version}" for point in used))
    changes = "; ".join(dict.fromkeys(difference(task, version, point.version) for point in used))
    return Band(
        min(point.value - spread for point, spread in zip(used, half, strict=True)),
        max(point.value + spread for point, spread in zip(used, half, strict=True)),
        used,
        f"{task_id} is not {others}: {changes}" if changes else "",
    )


def _nearest(system: str, task: str, points: Sequence[Point]) -> str:
    tasks = sorted({point.task for point in points if point.system == system})
    systems = sorted({point.system for point in points if point.task == task})
    said = [f"{system} has {', '.join(tasks)}"] * bool(tasks) + [f"{task} has {', '.join(systems)}"] * bool(systems)
    return "; ".join(said) or f"there are results of {', '.join(sorted({point.system for point in points}))}"


def score_at(curve: Sequence[tuple[int, float]], frames: int) -> float:
    """The mean test return at the test nearest to this many frames."""
    if not curve:
        raise UserError("the run was never tested: train it further")
    found, score = min(curve, key=lambda test: abs(test[0] - frames))
    if abs(found - frames) > NEAR * frames:
        raise UserError(f"the test nearest to {frames:,} frames is at {found:,}: train further, or test more often")
    return score


def judge(band: Band, curves: Sequence[Sequence[tuple[int, float]]], frames: int) -> Verdict:
    """Whether the mean over seeds of the tests at this many frames lies in the band. A curve is (frames, mean return)."""
    scores = tuple(score_at(curve, frames) for curve in curves)
    score = fmean(scores)
    return Verdict(band.low <= score <= band.high, score, scores)
