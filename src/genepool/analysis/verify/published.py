"""Published results, each with its source: the papers' own numbers and those of other implementations.

What the papers print is in published.csv; what others have measured is in reference.csv.
"""

import csv
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from genepool.analysis.records.systems import SystemRuns, settings
from genepool.errors import UserError

PAPERS_FILE = Path(__file__).with_name("published.csv")
REFERENCE_FILE = Path(__file__).with_name("reference.csv")
PAPERS = ("PDERL Table 1", "AES-RL Table 3")  # their tables of test returns whose spread is one over seeds


class PublishedNumber(NamedTuple):
    """A number that a paper prints."""

    system: str  # our preset
    task: str  # as the paper has it
    metric: str  # return; pop_max_ma100; clones elite %, ...; minutes, ...
    value: float
    spread: float | None
    spread_kind: str
    median: float | None
    seeds: int | None
    frames: int | None
    variant: str  # the settings that it holds for, as path=value
    source: str
    caveat: str


@dataclass(frozen=True)
class PublishedReturn:
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
    settings: str  # options of `genepool train` that give these networks and rates; empty: as the preset has them
    source: str

    @property
    def tested(self) -> bool:
        """Whether it is the return of test episodes at that many frames."""
        return self.metric.startswith("test")


def published_numbers() -> list[PublishedNumber]:
    """All numbers that the papers print."""
    return [_number(row) for row in _rows(PAPERS_FILE)]


def numbers_for(system: SystemRuns, metric: str = "return") -> list[PublishedNumber]:
    """The papers' numbers for the same system, with the same parts, on the same task in any version."""
    config = system.runs[0].config
    own = settings(config)
    task, _ = split_version(config["task"])
    return [
        number
        for number in published_numbers()
        if (number.system, split_version(number.task)[0]) == (system.preset, task)
        and (number.metric == metric or (metric == "return" and number.metric == "pop_max_ma100"))
        and _fits(number.variant, own)
    ]


def published_returns(path: Path | None = None) -> list[PublishedReturn]:
    """All published mean returns, others' first; or those in a file with the columns of reference.csv."""
    if path:
        return _measured(path)
    printed = [_printed(row) for row in _rows(PAPERS_FILE) if row["source"] in PAPERS]
    return [*_measured(REFERENCE_FILE), *(one for one in printed if one.frames)]


def split_version(task_id: str) -> tuple[str, str]:
    """A task's name and its version, which is empty if it has none."""
    found = re.fullmatch(r"(.+)-(v\d+)", task_id)
    return found.groups() if found else (task_id, "")


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _number(row: dict[str, str]) -> PublishedNumber:
    read = {"value": float, "spread": float, "median": float, "seeds": int, "frames": int}
    numbers = {name: kind(row[name]) if row[name] else None for name, kind in read.items()}
    return PublishedNumber(**row | numbers)


def _fits(variant: str, own: dict[str, Any]) -> bool:
    """Whether a configuration has the settings of the variant. A setting that it lacks altogether counts as equal."""
    wanted = (pair.partition("=")[::2] for pair in variant.split())
    found = ((own.get(path, own.get(f"{path}.part", value)), value) for path, value in wanted)
    return all(str(have) == value for have, value in found)


def _measured(path: Path) -> list[PublishedReturn]:
    try:
        return [_return(row) for row in _rows(path)]
    except (OSError, KeyError, TypeError, ValueError) as error:
        names = ", ".join(field.name for field in fields(PublishedReturn))
        raise UserError(f"{path} is no table of references ({error}): its columns are {names}") from None


def _return(row: dict[str, str]) -> PublishedReturn:
    numbers = {name: kind(row[name]) for name, kind in (("frames", int), ("value", float), ("seeds", int))}
    spread = float(row["spread"]) if row["spread"] else None
    return PublishedReturn(**row | numbers | {"spread": spread})


def _printed(row: dict[str, str]) -> PublishedReturn:
    """A paper's own mean return. If the paper does not state its frames they are 0."""
    return PublishedReturn(
        row["system"],
        *split_version(row["task"]),
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
