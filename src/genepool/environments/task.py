"""A task: an environment by its id or by a user's own function, and the engine that runs it."""

import importlib
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from genepool.cores import cores
from genepool.environments.spaces import Spaces
from genepool.errors import UserError, did_you_mean
from genepool.parts import part


@part
class Task:
    """The environment in which a policy is trained, and how its episodes end."""

    id: str  # the environment's name; module:function for an environment of your own
    engine: Literal["mujoco", "envpool", "gymnasium"] = "gymnasium"  # what runs the environment
    # as in the code of ERL and PDERL: the time limit ends the task, as a fall does
    truncation_is_terminal: bool = False
    max_steps: int | None = None  # cut episodes to this length; none: the environment's own limit
    make: Callable[[], Any] | None = None  # makes an environment of your own

    def __post_init__(self):
        if self.max_steps is not None and self.max_steps < 1:
            raise UserError(f"max steps is {self.max_steps}: it must be 1 or more; leave it out for whole episodes")

    @property
    def spaces(self) -> Spaces:
        """The sizes and ranges of observations and actions."""
        return _spaces(self.id, self.engine, self.make)

    @property
    def observation_size(self) -> int:
        """|S|: the size of an observation."""
        return self.spaces.observation_size

    @property
    def action_size(self) -> int:
        """|A|: the size of an action."""
        return self.spaces.action_size

    @property
    def horizon(self) -> int:
        """The most steps an episode takes."""
        return min(self.spaces.horizon, self.max_steps or self.spaces.horizon)

    @property
    def threads(self) -> int:
        """Cores that may play it: all. One for a user's own code, which may depend on the state of this process."""
        return cores() if self.make is None else 1

    def open(self) -> Any:
        """A new engine for this task, which offers `genepool.protocols.Engine`."""
        module = engine_module(self.engine)
        if self.engine == "mujoco":
            return module.MuJoCoEngine(self.id)
        if self.engine == "envpool":
            return module.EnvPoolEngine(self.id)
        return module.GymnasiumEngine(self.make or (lambda: module.make(self.id)))

    def versions(self) -> dict[str, str]:
        """The versions of the engine and its physics, on which results depend."""
        return engine_module(self.engine).version()


def _cannot_make(task: str, error: Exception) -> str:
    """What to say of a task whose environment raised an error when it was made."""
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    plain, mark, _ = task.partition("?")
    if mark and unknown:
        hint = did_you_mean(unknown[1], engine_module("gymnasium").arguments(plain))
        return f"{plain} has no option {unknown[1]!r}{hint}; options are the keyword arguments of its environment"
    reason = str(error).splitlines()[0] if str(error) else ""
    return f"the task {task!r} cannot be made: {type(error).__name__}: {reason}"


def engine_module(name: str) -> Any:
    """The module of an engine. It is imported when it is first needed."""
    return importlib.import_module(f"genepool.environments.engines.{name}")


@lru_cache(maxsize=64)
def _spaces(id: str, engine: str, make: Callable[[], Any] | None) -> Spaces:
    if engine == "envpool":
        return engine_module(engine).spaces(id)
    module = engine_module("gymnasium")
    try:
        environment = make() if make else module.make(id)
    except UserError:
        raise
    except Exception as error:
        raise UserError(_cannot_make(id, error)) from error
    try:
        return module.spaces(environment, id)
    finally:
        environment.close()
