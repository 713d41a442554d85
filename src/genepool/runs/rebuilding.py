"""A run's task and algorithm, rebuilt from its configuration. Nothing that is read is run as code."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from genepool.algorithms.assemble import couplings
from genepool.environments.lookup import find
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.parts import is_own, rebuilt
from genepool.protocols import Algorithm

OLDEST = (0, 2)  # the oldest version whose checkpoints can be resumed
OwnTask = str | Callable[[], Any] | Task | None


def check_resumable(path: Path, config: dict[str, Any]) -> None:
    """Refuse a run of an older version, whose states have another layout."""
    made = str((config.get("versions") or {}).get("genepool", "an older version"))
    numbers = tuple(int(word) for word in made.split(".")[:2] if word.isdigit())
    if numbers < OLDEST:
        raise UserError(
            f"{path} was trained by genepool {made}, whose checkpoints this version cannot read: resume it with "
            "that version, or train it anew; its records and its champion are read by every version"
        )


def rebuild_task(config: dict[str, Any], task: OwnTask = None) -> Task:
    """The task that a configuration describes. A task of the user's own must be given again."""
    stored = config["algorithm"].get("task") or {}
    made = rebuilt(stored | {"make": None}, [Task])
    if not (stored.get("make") is not None or ":" in str(stored.get("id", ""))):
        return made
    if task is None:
        raise UserError(f"the run's task {stored['id']!r} is your own code: give it again with --task module:function")
    return replace(made, make=find(task).make)


def rebuild_algorithm(config: dict[str, Any], task: OwnTask = None, parts: Sequence[type] = ()) -> Algorithm:
    """The algorithm that a configuration describes. Parts of the user's own must be given again, as classes."""
    for own in parts:
        if not isinstance(own, type) or not is_own(own):
            raise UserError(f"{own!r} is not a part of your own: give the class that the run's configuration names")
    found = rebuild_task(config, task)
    stored = config["algorithm"].get("task") or {}
    description = config["algorithm"] | {"task": stored | {"make": None}}
    return replace(rebuilt(description, couplings(), parts), task=found)


def positive(frames: float) -> int:
    """The frames as an integer. Refused unless they are a number of 1 or more."""
    if not (math.isfinite(frames) and frames >= 1):
        raise UserError(f"frames must be a positive number, not {frames}")
    return int(frames)
