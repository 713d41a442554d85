"""From run folders to histories. Records are read one at a time, and nothing but them is read."""

import glob
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from genepool.analysis.records.history import ASK, FATES, LEARNT, TELL, TESTED, Candidates, History, Scores
from genepool.errors import UserError
from genepool.runs.folder import Folder

# all else that is a number, or a list of numbers, is a series to be drawn
ELSEWHERE = {"generation", "frames", "true_frames", "wall", "ledger", "fitness", "clone", "clones"}
ELSEWHERE |= {"candidates", "events", "moments", "seconds", *(f"{who}_test" for who in TESTED)}
ELSEWHERE |= {"champion", "round", "iteration"}  # places and counts, which say nothing as a curve


def find(places: Iterable[str | Path]) -> list[Path]:
    """The run folders that are meant: folders of runs, folders that hold such, and patterns with * in quotes."""
    found: dict[Path, None] = {}
    for place in places:
        paths = [Path(place)] if Path(place).exists() else [Path(path) for path in sorted(glob.glob(str(place)))]
        if not paths:
            raise UserError(f"there is no {place}: `genepool runs` shows what is there")
        files = ("config.json", "metrics.jsonl")
        here = sorted({file.parent for path in paths for name in files for file in path.rglob(name)})
        if not here:
            raise UserError(f"there are no runs in {place}: start one with genepool train")
        found |= dict.fromkeys(here)
    return list(found)


def read_all(paths: Sequence[Path]) -> tuple[list[History], dict[str, str]]:
    """The runs, and of those that cannot be read why, by name."""
    histories, left_out = [], {}
    above = os.path.commonpath([path.resolve().parent for path in paths])
    for path in paths:
        name = os.path.relpath(path.resolve(), above)  # runs of several folders may be called alike
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
    reader = _Reader()
    try:
        for record in folder.each_record():
            reader.add(record)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{folder.metrics_file} is damaged: record {reader.count + 1} is not one of ours") from None
    if not reader.count:
        raise UserError(f"{folder.path} has no generation yet: wait for its first record")
    return reader.history(name or folder.path.name, folder.path, config)


class _Reader:
    """Takes records in and gives columns out."""

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
        at, nan = self.count, float("nan")
        self.rows.append((float(record["frames"]), record.get("true_frames", nan), record.get("wall", nan)))
        self.fitness.append([float(value) for value in record.get("fitness", ())])
        for who in TESTED:
            if returns := record.get(f"{who}_test"):
                self.tests.setdefault(who, []).append((at, sum(returns) / len(returns), len(returns)))
        if "clones" in record:
            self.fates.append([record["clones"][fate] for fate in FATES])
        for name, value in record.items():
            if name not in ELSEWHERE and (number := _number(value)) is not None:
                self.scalars.setdefault(name, []).append((at, number))
        for phase, seconds in record.get("seconds", {}).items():
            self.seconds.setdefault(phase, []).append((at, seconds))
        for candidate in record.get("candidates", ()):
            self.candidates.append(self._tried(at, candidate, "clones" in record))
        events = record.get("events", ())
        for event, moment in zip(events, record.get("moments") or [nan] * len(events), strict=True):
            word, _, number = event.partition(" ")
            self.events.append(({"ask": ASK, "tell": TELL}.get(word, LEARNT), int(number or -1), at))
            self.moments.append(float(moment))
        self.count += 1

    def _tried(self, at: int, candidate: dict[str, Any], clones: bool) -> tuple:
        returns, beside, parents = candidate["returns"], candidate.get("reference"), candidate["parents"]
        maker = self.makers.setdefault(_maker(candidate, clones), len(self.makers))
        return (
            candidate["number"],
            at,
            sum(returns) / len(returns) if returns else float("nan"),
            sum(beside) / len(beside) if beside else float("nan"),
            parents[0] if parents else -1,
            parents[1] if len(parents) > 1 else -1,
            maker,
            candidate["purpose"] == "fitness",
            candidate["origin"] == "learning",
        )

    def history(self, name: str, path: Path, config: dict[str, Any]) -> History:
        frames, true_frames, wall = np.array(self.rows, float).T
        most = max((len(row) for row in self.fitness), default=0)
        fitness = np.array([row + [np.nan] * (most - len(row)) for row in self.fitness]).reshape(self.count, most)
        columns = np.array(self.candidates, float).reshape(-1, 9).T
        whole = lambda k: columns[k].astype(np.int64)
        tried = Candidates(
            number=whole(0),
            at=whole(1),
            fitness=columns[2],
            reference=columns[3],
            parents=columns[4:6].astype(np.int64).T,
            maker=whole(6),
            makers=tuple(self.makers),
            bred=columns[7] > 0,
            learning=columns[8] > 0,
        )
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
            scalars={key: self._column(rows) for key, rows in self.scalars.items()},
            seconds={key: np.nan_to_num(self._column(rows)) for key, rows in self.seconds.items()},
            candidates=tried,
            events=np.array(self.events, np.int64).reshape(-1, 3),
            moments=np.array(self.moments, float),
        )

    def _column(self, rows: list[tuple[int, float]]) -> np.ndarray:
        column = np.full(self.count, np.nan)
        column[[at for at, _ in rows]] = [value for _, value in rows]
        return column


def _tests(rows: list[tuple[int, float, int]]) -> Scores:
    at, returns, episodes = zip(*rows, strict=True)
    return Scores(np.array(at), np.array(returns), episodes[-1])


def _number(value: Any) -> float | None:
    """A number as it is, of a list of numbers the mean; nothing of anything else."""
    if isinstance(value, list):
        numbers = [number for number in value if isinstance(number, int | float) and number == number]
        return sum(numbers) / len(numbers) if numbers else None
    return float(value) if isinstance(value, int | float) else None


def _maker(candidate: dict[str, Any], clones: bool) -> str:
    """What was done to make the candidate, in words. Where a learner is cloned, those of its origin are its clones."""
    if candidate["purpose"] != "fitness":
        return candidate["purpose"]
    if candidate["operators"]:
        return " + ".join(candidate["operators"])
    if clones and candidate["origin"] == "learning":
        return "learner's clone"
    return "kept" if candidate["parents"] else "drawn"
