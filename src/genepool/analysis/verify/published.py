"""The papers' own numbers, from published.csv: one row for each, with where it stands and what to mind beside it."""

import csv
import re
from importlib.resources import files
from typing import Any, NamedTuple

from genepool.analysis.records.systems import System, settings


class Number(NamedTuple):
    """A printed number."""

    system: str  # our preset
    task: str  # as the paper has it
    metric: str  # return; pop_max_ma100; clones elite %, ...; minutes, ...
    value: float
    spread: float | None
    spread_kind: str
    median: float | None
    seeds: int | None
    frames: int | None
    variant: str  # settings that it was had with, as path=value
    source: str
    caveat: str


def numbers() -> list[Number]:
    """All of them."""
    with (files("genepool.analysis.verify") / "published.csv").open(newline="") as file:
        return [_number(row) for row in csv.DictReader(file)]


def _number(row: dict[str, str]) -> Number:
    whole = lambda text: int(text) if text else None
    real = lambda text: float(text) if text else None
    read = {"value": real, "spread": real, "median": real, "seeds": whole, "frames": whole}
    return Number(**{name: read.get(name, str)(text) for name, text in row.items()})


def beside(system: System, metric: str = "return") -> list[Number]:
    """What the papers have for the same system, with the same parts, on the same task whatever its version."""
    config = system.runs[0].config
    own = settings(config)
    return [
        number
        for number in numbers()
        if (number.system, base(number.task)) == (system.preset, base(config["task"]))
        and (number.metric == metric or (metric == "return" and number.metric == "pop_max_ma100"))
        and _fits(number.variant, own)
    ]


def base(task: str) -> str:
    """The task without its version."""
    return re.sub(r"-v\d+$", "", task)


def _fits(variant: str, own: dict[str, Any]) -> bool:
    """Whether a configuration has the settings of the variant. One that has no such setting at all is not ruled out."""
    wanted = (pair.partition("=")[::2] for pair in variant.split())
    found = ((own.get(path, own.get(f"{path}.part", value)), value) for path, value in wanted)
    return all(str(have) == value for have, value in found)
