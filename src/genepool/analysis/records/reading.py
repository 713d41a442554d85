"""From run folders to histories. Records are read one at a time, and no other file of the run is opened."""

import glob
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from genepool.analysis.records.history import ASK, FATES, LEARN, TELL, TESTED, Candidates, History, Scores
from genepool.errors import UserError
from genepool.runs.folder import CONFIG_NAME, METRICS_NAME, Folder

NAN = float("nan")
EVENTS = {"ask": ASK, "tell": TELL}  # the first word of an event; any other is LEARN
# any other number, or list of numbers, is a series to be drawn
NO_SERIES = {"generation", "frames", "true_frames", "wall", "ledger", "fitness", "clone", "clones"}
NO_SERIES |= {"candidates", "events", "moments", "seconds", *(f"{who}_test" for who in TESTED)}
NO_SERIES |= {"champion", "round", "iteration"}  # indices and counts, whose curve shows nothing


def find(places: Iterable[str | Path]) -> list[Path]:
    """The run folders at these places: run folders, folders that hold some, and patterns with * in quotes."""
    found: dict[Path, None] = {}
    for place in places:
        paths = [Path(place)] if Path(place).exists() else [Path(path) for path in sorted(glob.glob(str(place)))]
        if not paths:
            raise UserError(f"there is no {place}: `genepool runs` shows what is there")
        names = (CONFIG_NAME, METRICS_NAME)
        here = sorted({file.parent for path in paths for name in names for file in path.rglob(name)})
        if not here:
            raise UserError(f"there are no runs in {place}: start one with genepool train")
        found |= dict.fromkeys(here)
    return list(found)


def read_all(paths: Sequence[Path]) -> tuple[list[History], dict[str, str]]:
    """The runs; and those that cannot be read by name, each with the reason."""
    histories = []
    left_out: dict[str, str] = {}
    above = os.path.commonpath([path.resolve().parent for path in paths])
    for path in paths:
        name = os.path.relpath(path.resolve(), above)  # runs of several folders may have the same name
        try:
            histories.append(read(Folder(path), name))
        except UserError as error:
            left_out[name] = str(error)
    return histories, left_out


def read(folder: Folder, name: str = "") -> History:
    """A run's records as columns."""
    config = folder.config
    missing = {"preset", "task", "engine", "seed", "frames"} - config.keys()
    if missing:
        raise UserError(f"{folder.config_file} is damaged: it has no {sorted(missing)[0]}")
    columns = _Columns()
    try:
        for record in folder.each_record():
            columns.add(record)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{folder.metrics_file} is damaged: record {columns.count + 1} is not one of ours") from None
    if not columns.count:
        raise UserError(f"{folder.path} has no generation yet: wait for its first record")
    return columns.history(name or folder.path.name, folder.path, config)


class _Columns:
    """The columns of a run while its records are read."""

    def __init__(self):
        self.count = 0
        self.rows: list[tuple[float, ...]] = []  # frames, true frames, wall
        self.fitness: list[list[float]] = []
        self.tests: dict[str, list[tuple[int, float, int]]] = {}
        self.fates: list[list[int]] = []
        self.scalars: dict[str, list[tuple[int, float]]] = {}
        self.seconds: dict[str, list[tuple[int, float]]] = {}
        self.candidates: list[tuple] = []
        self.makers: dict[str, int] = {}
        self.events: list[tuple[int, int, int]] = []
        self.moments: list[float] = []

    def add(self, record: dict[str, Any]) -> None:
        at = self.count
        self.rows.append((float(record["frames"]), record.get("true_frames", NAN), record.get("wall", NAN)))
        self.fitness.append([float(value) for value in record.get("fitness", ())])
        for who in TESTED:
            if returns := record.get(f"{who}_test"):
                self.tests.setdefault(who, []).append((at, _mean(returns), len(returns)))
        if "clones" in record:
            self.fates.append([record["clones"][fate] for fate in FATES])
        for name, value in record.items():
            if name not in NO_SERIES and (number := _number(value)) is not None:
                self.scalars.setdefault(name, []).append((at, number))
        for phase, seconds in record.get("seconds", {}).items():
            self.seconds.setdefault(phase, []).append((at, seconds))
        for candidate in record.get("candidates", ()):
            self.candidates.append(self._row(at, candidate, "clones" in record))
        events = record.get("events", ())
        for event, moment in zip(events, record.get("moments") or [NAN] * len(events), strict=True):
            word, _, number = event.partition(" ")
            self.events.append((EVENTS.get(word, LEARN), int(number or -1), at))
            self.moments.append(float(moment))
        self.count += 1

    def _row(self, at: int, candidate: dict[str, Any], clones: bool) -> tuple:
        """The fields of `Candidates` for one candidate, of parents two."""
        parents = candidate["parents"]
        return (
            candidate["number"],
            at,
            _mean(candidate["returns"]),
            _mean(candidate.get("reference")),
            parents[0] if parents else -1,
            parents[1] if len(parents) > 1 else -1,
            self.makers.setdefault(_maker(candidate, clones), len(self.makers)),
            candidate["purpose"] == "fitness",
            candidate["origin"] == "learning",
        )

    def history(self, name: str, path: Path, config: dict[str, Any]) -> History:
        frames, true_frames, wall = np.array(self.rows, float).T
        most = max((len(row) for row in self.fitness), default=0)
        fitness = np.array([row + [np.nan] * (most - len(row)) for row in self.fitness]).reshape(self.count, most)
        tests = {who: _tests(rows) for who, rows in self.tests.items()}
        return History(
            name=name,
            path=path,
            config=config,
            frames=frames,
            true_frames=true_frames,
            wall=wall,
            tests=tests,
            fitness=fitness,
            fates=np.array(self.fates) if len(self.fates) == self.count else None,
            scalars={key: self._series(rows) for key, rows in self.scalars.items()},
            seconds={key: np.nan_to_num(self._series(rows)) for key, rows in self.seconds.items()},
            candidates=self._candidates(),
            events=np.array(self.events, np.int64).reshape(-1, 3),
            moments=np.array(self.moments, float),
        )

    def _candidates(self) -> Candidates:
        columns = np.array(self.candidates, float).reshape(-1, 9).T
        return Candidates(
            number=columns[0].astype(np.int64),
            at=columns[1].astype(np.int64),
            fitness=columns[2],
            reference=columns[3],
            parents=columns[4:6].astype(np.int64).T,
            maker=columns[6].astype(np.int64),
            makers=tuple(self.makers),
            for_fitness=columns[7] > 0,
            by_learner=columns[8] > 0,
        )

    def _series(self, rows: list[tuple[int, float]]) -> np.ndarray:
        """[G]: the values at their records, NaN elsewhere."""
        series = np.full(self.count, np.nan)
        series[[at for at, _ in rows]] = [value for _, value in rows]
        return series


def _tests(rows: list[tuple[int, float, int]]) -> Scores:
    at, returns, episodes = zip(*rows, strict=True)
    return Scores(np.array(at), np.array(returns), episodes[-1])


def _mean(values: Sequence[float] | None) -> float:
    return sum(values) / len(values) if values else NAN


def _number(value: Any) -> float | None:
    """A number as it is, the mean of a list of numbers, and None for anything else."""
    if isinstance(value, list):
        numbers = [number for number in value if isinstance(number, int | float) and number == number]
        return sum(numbers) / len(numbers) if numbers else None
    return float(value) if isinstance(value, int | float) else None


def _maker(candidate: dict[str, Any], clones: bool) -> str:
    """How the candidate was made, in words. If the run clones its learner, a candidate of the learner is a clone."""
    if candidate["purpose"] != "fitness":
        return candidate["purpose"]
    if candidate["operators"]:
        return " + ".join(candidate["operators"])
    if clones and candidate["origin"] == "learning":
        return "learner's clone"
    return "kept" if candidate["parents"] else "drawn"
