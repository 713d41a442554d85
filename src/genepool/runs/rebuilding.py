"""From a run's configuration back to its task and its algorithm. Nothing that is read is ever run."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from genepool.algorithms.assemble import couplings
from genepool.environments.task import Task, find
from genepool.errors import UserError
from genepool.parts import is_own, rebuilt
from genepool.protocols import Algorithm

OLDEST = (0, 2)  # the version whose checkpoints this one goes on with
TaskAgain = str | Callable[[], Any] | Task | None


def check_resumable(path: Path, config: dict[str, Any]) -> None:
    """Refuse a run of an older version, whose state is laid out in another way."""
    made = str((config.get("versions") or {}).get("genepool", "an older version"))
    numbers = tuple(int(word) for word in made.split(".")[:2] if word.isdigit())
    if numbers < OLDEST:
        raise UserError(
            f"{path} was trained by genepool {made}, whose checkpoints this version cannot read: resume it with "
            "that version, or train it anew; its records and its champion are read by every version"
        )


def rebuild_task(config: dict[str, Any], task: TaskAgain = None) -> Task:
    """The task that a configuration describes; of the user's own it must be given again."""
    stored = config["algorithm"].get("task") or {}
    made = rebuilt(stored | {"make": None}, [Task])
    if not (stored.get("make") is not None or ":" in str(stored.get("id", ""))):
        return made
    if task is None:
        raise UserError(
            f"the run's task {stored['id']!r} is code of your own: give it again with --task module:function"
        )
    return replace(made, make=find(task).make)


def rebuild_algorithm(config: dict[str, Any], task: TaskAgain = None, parts: Sequence[type] = ()) -> Algorithm:
    """The algorithm that a configuration describes. Parts of the user's own are found among those that are given again."""
    for own in parts:
        if not isinstance(own, type) or not is_own(own):
            raise UserError(f"{own!r} is no part of your own: give the class that the run names")
    found = rebuild_task(config, task)
    stored = config["algorithm"].get("task") or {}
    description = config["algorithm"] | {"task": stored | {"make": None}}
    return replace(rebuilt(description, couplings(), parts), task=found)


def positive(frames: float) -> int:
    """A number of frames; anything else is refused."""
    if not (math.isfinite(frames) and frames >= 1):
        raise UserError(f"frames must be a positive number, not {frames}")
    return int(frames)
