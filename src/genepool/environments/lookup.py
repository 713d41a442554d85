"""Finding a task: by its id, by "module:function", or by a function that makes its environment."""

import importlib.util
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from genepool.environments.task import Task, engine_module
from genepool.errors import UserError, did_you_mean
from genepool.parts import import_address

ENGINES = ("mujoco", "envpool", "gymnasium")  # in the order in which a task is looked for


def find(task: str | Callable[[], Any] | Task, engine: str | None = None) -> Task:
    """A task by its id, by "module:function", or by a function that makes the environment.

    A function and its "module:function" give the same id, so runs from Python and from the shell can be compared.

    Unless `engine` is given, five MuJoCo robots are run in batches by our own engine, other tasks by EnvPool if it is
    installed and has them, and all others by Gymnasium. DM Control's tasks are EnvPool's; their names are the usual
    ones, such as CheetahRun, and their observations are flattened in DM Control's order. A Gymnasium task may have
    options, which are keyword arguments of its environment: "HopperHilly-v0?difficulty=0.5&terrain_seed=3".
    """
    if isinstance(task, Task):
        return task
    if engine not in (None, *ENGINES):
        raise UserError(f"there is no engine {engine!r}: choose one of {', '.join(ENGINES)}")
    if callable(task):
        return _made_by(task, _name_of(task), engine)
    plain, mark, _ = task.partition("?")
    if ":" in plain and callable(make := import_address(plain)):
        if mark:
            raise UserError(f"{plain} is code of your own and takes no options: set what it needs in your module")
        return _made_by(make, task, engine)
    for batched, installed in (("mujoco", True), ("envpool", _has_envpool())):
        if installed and engine in (None, batched) and (id := engine_module(batched).id_of(plain)):
            if mark:
                raise UserError(f"the engine {batched} takes no options: play {task!r} with --engine gymnasium")
            return _checked(Task(id, batched))
    return _of_gymnasium(task, engine)


def _of_gymnasium(task: str, engine: str | None) -> Task:
    """A task that no batched engine has: Gymnasium's, or refused."""
    plain, mark, options = task.partition("?")
    if engine == "mujoco":
        names = ", ".join(engine_module("mujoco").TASKS)
        raise UserError(f"the engine mujoco has {names} only: leave --engine out for {plain!r}")
    if engine == "envpool":
        raise UserError(_not_in_envpool(plain))
    id = engine_module("gymnasium").id_of(plain)
    if ":" not in plain and not id:
        raise UserError(_unknown(plain, engine))
    return _checked(Task((id or plain) + mark + options, "gymnasium"))


def _checked(task: Task) -> Task:
    """The task. Refused if its spaces are not of a kind that policies can be trained on."""
    _ = task.spaces
    return task


def _made_by(make: Callable[[], Any], name: str, engine: str | None) -> Task:
    if engine not in (None, "gymnasium"):
        raise UserError(f"the engine {engine} has its own tasks only: leave --engine out for your own environment")
    return _checked(Task(name, "gymnasium", make=make))


def _name_of(make: Callable[[], Any]) -> str:
    """A function or class as module:name, which is how the shell names it."""
    if isinstance(make, partial):
        module, _, name = _name_of(make.func).partition(":")
        return f"{module}:partial({name})"
    named: Any = make if hasattr(make, "__qualname__") else type(make)
    module = named.__module__
    if module == "__main__":
        module = _name_of_main() or module
    return f"{module}:{named.__qualname__}"


def _name_of_main() -> str | None:
    """The name under which others can import the main program; None if it is not a file."""
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):  # python -m
        return spec.name
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else None


def _has_envpool() -> bool:
    return importlib.util.find_spec("envpool") is not None


def _not_in_envpool(task: str) -> str:
    if not _has_envpool():
        return "EnvPool is not installed: pip install 'genepool[envpool]', or use --engine gymnasium"
    return f"EnvPool has no task {task!r}{_similar(task, 'envpool')}; --engine gymnasium has others"


def _unknown(task: str, engine: str | None) -> str:
    if engine == "gymnasium":
        return f"Gymnasium has no task {task!r}{_similar(task, 'gymnasium')}; leave --engine out to look in EnvPool too"
    if not _has_envpool():
        more = "DM Control's tasks need EnvPool, which is not installed: pip install 'genepool[envpool]'"
        return f"there is no task {task!r}{_similar(task, 'gymnasium')}; {more}"
    hint = _similar(task, "gymnasium", "envpool")
    return f"there is no task {task!r}{hint}; your own is given as module:function"


def _similar(task: str, *engines: str) -> str:
    """The engines' tasks with similar names, each in its newest version, as a question."""
    known = [name for engine in engines for name in engine_module(engine).names()]
    return did_you_mean(task, known, stem=lambda name: re.sub(r"-v\d+$", "", name.lower()))
