"""How a system is put together from a preset and options: the one way, for the command line and for Python."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from genepool.algorithms import choices
from genepool.algorithms.options import (
    Node,
    described_options,
    described_parts,
    ends,
    full_path,
    imported,
    part_paths,
    place,
    tree,
)
from genepool.algorithms.presets import COUPLINGS, FUNCTIONS, PRESETS
from genepool.algorithms.settings import Settings, for_task
from genepool.environments.task import Task, find
from genepool.errors import UserError
from genepool.parts import words
from genepool.protocols import Algorithm

AnyTask = str | Callable[[], Any] | Task


class System(NamedTuple):
    """What options are applied to."""

    kind: type  # the coupling's class
    own: Any  # an instance of it, of the user's own; else none
    name: str
    task: Task
    settings: Settings  # the preset's and its paper's for the task
    short_names: Mapping[str, str]  # options that the paper's own tables name, and where they are


def assembled(name: str, task: AnyTask, options: Mapping[str, Any]) -> Any:
    """The preset of this name on a task, with options that win over what the preset says.

    A coupling of the user's own goes by module:Class, or by module:function of a task that makes one.
    """
    options = dict(options)
    return build(system(name, task, options.pop("engine", None)), options)


def exchanged(algorithm: Any, options: Mapping[str, Any]) -> Any:
    """An algorithm with other parts and settings."""
    return build(System(type(algorithm), algorithm, algorithm.preset, algorithm.task, {}, {}), dict(options))


def system(name: str, task: AnyTask, engine: str | None = None) -> System:
    """The system of this name on a task, as it is before any option."""
    if ":" in name:
        return _of_the_users_own(name, find(task, engine))
    if name not in PRESETS:
        near = get_close_matches(name, PRESETS, n=2, cutoff=0.5)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise UserError(f"there is no preset {name!r}{hint}: choose {', '.join(PRESETS)}, or module:Class of your own")
    preset = PRESETS[name]
    found = find(task, engine)
    settings = preset.settings | for_task(preset.tasks, found.id)
    if settings.get("task.max_steps", 0) > found.horizon:
        settings.pop("task.max_steps")
    return System(imported(preset.coupling), None, name, found, settings, preset.short_names)


def _of_the_users_own(name: str, task: Task) -> System:
    found, own = imported(name), None
    if not inspect.isclass(found):
        if not callable(found):
            raise UserError(f"{name!r} is no coupling: give a class, or a function of a task that makes one")
        own = found(task)
        found = type(own)
    if not is_dataclass(found) or "task" not in {f.name for f in fields(found)}:
        raise UserError(f"{found.__name__} is no coupling: it is to be a part (see genepool.part) with a field `task`")
    return System(found, own, name, task, {}, {})


def chosen_parts(to: System, options: Mapping[str, Any]) -> Node:
    """The parts that a system has with these options, and their settings."""
    options = _spelt_out(to, options)
    return tree(to.kind, to.own, to.task, _scheduled(to.settings, options), options)


def build(to: System, options: Mapping[str, Any]) -> Any:
    """The system with these options."""
    root = chosen_parts(to, options)
    options = _spelt_out(to, options)
    parts = {end for path in part_paths(root) for end in ends(path)}
    for key in options:
        if key not in parts:
            place(root, full_path(root, key, to.name), options[key])
    if any(f.name == "preset" for f in fields(to.kind)):
        root.values["preset"] = to.name
    algorithm = root.built()
    if missing := choices.missing_methods(algorithm, Algorithm):
        raise UserError(f"{to.kind.__name__} is no coupling: it has no {missing[0]!r}, see genepool.Algorithm")
    return algorithm


def _spelt_out(to: System, options: Mapping[str, Any]) -> dict[str, Any]:
    return {to.short_names.get(key, key): value for key, value in options.items()}


def _scheduled(settings: Settings, options: Settings) -> Settings:
    """A steady-state population needs no generations, and a generational one cannot do without: either brings the other along."""
    evolver, schedule = options.get("evolver"), options.get("schedule")
    if evolver is None and schedule == "asynchronous" and settings.get("evolver") == "generational-ga":
        return settings | {"evolver": "steady-state-ga"}
    kind = evolver if inspect.isclass(evolver) else type(evolver)
    if schedule is None and "steady-state-ga" in (evolver, words(kind)):
        return settings | {"schedule": "asynchronous"}
    return settings


def couplings() -> list[type]:
    """All of genepool's."""
    return [imported(place) for place in COUPLINGS]


def preset_function(python_name: str) -> Callable[..., Any]:
    """The preset as a function of a task and options, whose `help` explains every option."""
    name = FUNCTIONS[python_name]
    preset = PRESETS[name]

    def function(task: AnyTask, **options: Any) -> Any:
        return assembled(name, task, options)

    root = tree(imported(preset.coupling), None, None, preset.settings, {})
    listed = [f"    {path}: {meaning}; here {value!r}" for path, (_, value, meaning) in described_options(root).items()]
    chosen = [f"    {path}: {meaning}; here {name}" for path, (name, meaning) in described_parts(root).items()]
    head = f"{preset.doc}\n\nAn option is a dotted path or an end of it that no other path has. Give parts as objects, classes or\n"
    head += "names. What a paper sets for the task is taken for that task; what you give wins.\n"
    function.__doc__ = "\n".join([head, "Parts:", *chosen, "", "Options:", *listed])
    function.__name__ = function.__qualname__ = python_name
    function.__module__ = "genepool"
    return function
