"""The band of published results in which our mean over seeds is expected, and whether it lies there.

A band is made of several sources by one rule: it goes from the lowest mean less its spread to the highest mean plus its
spread. It uses only returns of test episodes at the same number of frames. Returns of training, and the best test on
the way, are in reference.csv and are never made into a band.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from genepool.analysis.verify.published import PublishedReturn, split_version
from genepool.errors import UserError

CHANGED = {  # the versions in which a Gymnasium task became another one, and what changed
    "HalfCheetah": {},
    "Swimmer": {},
    "Hopper": {5: "the healthy reward"},
    "Walker2d": {5: "the healthy reward and the friction of a foot"},
    "Ant": {4: "contact forces", 5: "the healthy reward and the observation"},
    "Humanoid": {4: "contact forces", 5: "the healthy reward and the observation"},
}
TOLERANCE = 0.1  # of the frames: a test that is further off does not count


class Band(NamedTuple):
    """Where a correct implementation's mean over seeds is expected."""

    low: float
    high: float
    points: tuple[PublishedReturn, ...]
    caution: str  # how the sources' task differs from ours; empty if it is the same

    @property
    def settings(self) -> PublishedReturn:
        """The source whose settings are used: that with the most seeds, of several the first."""
        return max(self.points, key=lambda point: point.seeds)


class Verdict(NamedTuple):
    """Our mean over seeds, each seed's score, and whether the mean lies in the band."""

    inside: bool
    score: float
    scores: tuple[float, ...]


def difference(task: str, version: str, other: str) -> str:
    """What changed in a task between two versions. Empty if it is the same task."""
    if version == other:
        return ""
    if task not in CHANGED or not all(v[:1] == "v" and v[1:].isdigit() for v in (version, other)):
        return "nothing says that they are the same task"
    first, last = sorted(int(v[1:]) for v in (version, other))
    changes = [f"v{v} changed {what}" for v, what in CHANGED[task].items() if first < v <= last]
    return ", ".join(changes)


def find_band(system: str, task_id: str, frames: int, points: Sequence[PublishedReturn]) -> Band:
    """The band of a system on a task at a number of frames.

    It goes from the lowest mean less its spread to the highest plus its spread. A source without a spread is given the
    largest of the others'. Sources on another version of the task are used only if there is none on an equal version,
    and then the band has a caution.
    """
    task, version = split_version(task_id)
    here = _points_at(system, task_id, frames, points)
    equal = [point for point in here if not difference(task, version, point.version)]
    used = tuple(equal or here)
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


def _points_at(system: str, task_id: str, frames: int, points: Sequence[PublishedReturn]) -> list[PublishedReturn]:
    """The test returns of a system on a task, in any version, at a number of frames."""
    task, _ = split_version(task_id)
    tested = [point for point in points if point.tested]
    found = [point for point in tested if point.system == system and point.task == task]
    if not found:
        raise UserError(f"nothing is published for {system} on {task_id}: {_alternatives(system, task, tested)}")
    here = [point for point in found if point.frames == frames]
    if not here:
        known = ", ".join(f"{number:,}" for number in sorted({point.frames for point in found}))
        raise UserError(f"nothing is published for {system} on {task_id} at {frames:,} frames: take one of {known}")
    return here


def _alternatives(system: str, task: str, points: Sequence[PublishedReturn]) -> str:
    """What is published for this system or for this task, in words."""
    tasks = sorted({point.task for point in points if point.system == system})
    systems = sorted({point.system for point in points if point.task == task})
    known = [f"{system} has {', '.join(tasks)}"] * bool(tasks) + [f"{task} has {', '.join(systems)}"] * bool(systems)
    return "; ".join(known) or f"there are results of {', '.join(sorted({point.system for point in points}))}"


def is_near(at: float, frames: int) -> bool:
    """Whether a test at `at` frames counts as one at `frames`."""
    return abs(at - frames) <= TOLERANCE * frames


def score_at(curve: Sequence[tuple[int, float]], frames: int) -> float:
    """The mean test return at the test nearest to this many frames."""
    if not curve:
        raise UserError("the run was never tested: train it further")
    at, score = min(curve, key=lambda test: abs(test[0] - frames))
    if not is_near(at, frames):
        raise UserError(f"the test nearest to {frames:,} frames is at {at:,}: train further, or test more often")
    return score


def judge(band: Band, curves: Sequence[Sequence[tuple[int, float]]], frames: int) -> Verdict:
    """Whether the mean over seeds of the tests at this many frames lies in the band. A curve: (frames, mean return)."""
    scores = tuple(score_at(curve, frames) for curve in curves)
    score = fmean(scores)
    return Verdict(band.low <= score <= band.high, score, scores)
