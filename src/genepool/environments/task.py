"""A task: an environment's id or a user's own function that makes one, and the engine that runs it."""

import difflib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from genepool.cores import cores
from genepool.environments.spaces import Spaces
from genepool.errors import UserError
from genepool.parts import part

ENGINES = ("mujoco", "envpool", "gymnasium")  # in the order in which they are asked for a task


@part
class Task:
    """What is to be learnt, and how its episodes are played."""

    id: str  # the environment's name; of one's own, module:function
    engine: Literal["mujoco", "envpool", "gymnasium"] = "gymnasium"  # what runs the environments
    # as the ERL family's code: reaching the time limit counts as the end of the task
    truncation_is_terminal: bool = False
    max_steps: int | None = None  # cut episodes to this length; none: the environment's own limit
    make: Callable[[], Any] | None = None  # makes an environment of one's own

    def __post_init__(self):
        if self.max_steps is not None and self.max_steps < 1:
            raise UserError(f"max steps needs 1 or more, not {self.max_steps}: leave it out for whole episodes")

    @property
    def spaces(self) -> Spaces:
        """Its sizes and ranges."""
        return _spaces(self.id, self.engine, self.make)

    @property
    def observation_size(self) -> int:
        """|S|."""
        return self.spaces.observation_size

    @property
    def action_size(self) -> int:
        """|A|."""
        return self.spaces.action_size

    @property
    def horizon(self) -> int:
        """The most steps an episode takes."""
        return min(self.spaces.horizon, self.max_steps or self.spaces.horizon)

    @property
    def threads(self) -> int:
        """Cores that may play it: all, but one for code of a user's own, which may depend on what this process does."""
        return cores() if self.make is None else 1

    def open(self) -> Any:
        """A new engine for this task: an `Engine` of `genepool.protocols`."""
        module = _engine(self.engine)
        if self.engine == "mujoco":
            return module.MuJoCoEngine(self.id)
        if self.engine == "envpool":
            return module.EnvPoolEngine(self.id)
        return module.GymnasiumEngine(self.make or (lambda: module.make(self.id)))

    def versions(self) -> dict[str, str]:
        """The engine and the physics whose versions decide what a number means."""
        return _engine(self.engine).version()


def find(task: str | Callable[[], Any] | Task, engine: str | None = None) -> Task:
    """A task by its id, by "module:function", or by a function that makes the environment.

    Its id is the same either way, so that runs from Python and from the shell are compared with each other.

    Some of MuJoCo's robots are run in batches of our own, other tasks by EnvPool where it is installed and has them, and
    all the rest by Gymnasium. DM Control's tasks are EnvPool's, and go by their usual names, such as CheetahRun; their
    observations are laid flat in DM Control's own order. Gymnasium's may have options,
    "HopperHilly-v0?difficulty=0.5&terrain_seed=3": they are keyword arguments of the environment.
    """
    if isinstance(task, Task):
        return task
    if engine not in (None, *ENGINES):
        raise UserError(f"there is no engine {engine!r}: choose one of {', '.join(ENGINES)}")
    if callable(task):
        return _made_by(task, _name_of(task), engine)
    plain, mark, options = task.partition("?")
    module, _, name = plain.partition(":")
    if name:
        own = _attribute(_imported(module, plain), name)
        if callable(own) and mark:
            raise UserError(f"{plain} is code of your own and takes no options: give it what it needs in {module}")
        if callable(own):
            return _made_by(own, task, engine)
    for own, has in (("mujoco", True), ("envpool", _has_envpool())):
        if has and engine in (None, own) and (id := _engine(own).id_of(plain)):
            if mark:
                raise UserError(f"the engine {own} takes no options: play {task!r} with --engine gymnasium")
            return _checked(Task(id, own))
    if engine == "mujoco":
        raise UserError(
            f"the engine mujoco has {', '.join(_engine('mujoco').TASKS)} only: leave --engine out for {plain!r}"
        )
    if engine == "envpool":
        raise UserError(_no_envpool(plain))
    id = _engine("gymnasium").id_of(plain)
    if not name and not id:
        raise UserError(_no_task(plain, engine))
    return _checked(Task((id or plain) + mark + options, "gymnasium"))


def _checked(task: Task) -> Task:
    """The task, once its spaces are known to be such as policies can be trained on."""
    _ = task.spaces
    return task


def _made_by(make: Callable[[], Any], name: str, engine: str | None) -> Task:
    if engine not in (None, "gymnasium"):
        raise UserError(f"the engine {engine} has its own tasks only: leave --engine out for an environment of yours")
    return _checked(Task(name, "gymnasium", make=make))


def _name_of(make: Callable[[], Any]) -> str:
    """A function or class as module:name, which is what it is called by in the shell."""
    if isinstance(make, partial):
        module, _, name = _name_of(make.func).partition(":")
        return f"{module}:partial({name})"
    named = make if hasattr(make, "__qualname__") else type(make)
    module = named.__module__
    if module == "__main__":
        module = _name_of_main() or module
    return f"{module}:{named.__qualname__}"


def _name_of_main() -> str | None:
    """The name by which others import what runs as the main program; none where it is no file."""
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None):  # python -m
        return main.__spec__.name
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else None


def _attribute(module: Any, name: str) -> Any:
    """What a module calls by this name, which may have dots; none where there is nothing."""
    found = module
    for plain in name.split("."):
        found = getattr(found, plain, None)
    return found


def _imported(module: str, task: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"cannot import {module!r} of the task {task!r} ({error}): is it on PYTHONPATH?") from None


def _has_envpool() -> bool:
    return importlib.util.find_spec("envpool") is not None


def _no_envpool(task: str) -> str:
    if not _has_envpool():
        return "EnvPool is not installed: pip install 'genepool[envpool]', or use --engine gymnasium"
    return f"EnvPool has no task {task!r}{_nearest(task, _engine('envpool').names())}; --engine gymnasium has others"


def _no_task(task: str, engine: str | None) -> str:
    known = _engine("gymnasium").names()
    if engine == "gymnasium":
        return f"Gymnasium has no task {task!r}{_nearest(task, known)}; leave --engine out to look in EnvPool too"
    if not _has_envpool():
        more = "DM Control's tasks need EnvPool, which is not installed: pip install 'genepool[envpool]'"
        return f"there is no task {task!r}{_nearest(task, known)}; {more}"
    near = _nearest(task, known + _engine("envpool").names())
    return f"there is no task {task!r}{near}; your own is given as module:function"


def _unmade(task: str, error: Exception) -> str:
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    plain, mark, _ = task.partition("?")
    if mark and unknown:
        near = _nearest(unknown[1], _engine("gymnasium").arguments(plain))
        return f"{plain} has no option {unknown[1]!r}{near}; options are the keyword arguments of its environment"
    return (
        f"the task {task!r} cannot be made: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    )


def _nearest(task: str, known: Sequence[str]) -> str:
    """The known names that come nearest, as a question; of several versions the newest."""
    stem = lambda name: re.sub(r"-v\d+$", "", name.lower())
    newest = {stem(name): name for name in sorted(known)}
    near = [newest[match] for match in difflib.get_close_matches(stem(task), newest, n=3, cutoff=0.6)]
    return f" (did you mean {', '.join(near)}?)" if near else ""


def _engine(name: str) -> Any:
    return importlib.import_module(f"genepool.environments.engines.{name}")


@lru_cache(maxsize=64)
def _spaces(id: str, engine: str, make: Callable[[], Any] | None) -> Spaces:
    if engine == "envpool":
        return _engine(engine).spaces(id)
    module = _engine("gymnasium")
    try:
        environment = make() if make else module.make(id)
    except UserError:
        raise
    except Exception as error:
        raise UserError(_unmade(id, error)) from error
    try:
        return module.spaces(environment, id)
    finally:
        environment.close()
