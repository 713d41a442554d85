"""An algorithm is built from a preset and options here, for the command line and for Python alike."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
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
    set_value,
    tree,
)
from genepool.algorithms.presets import COUPLINGS, FUNCTIONS, PRESETS
from genepool.algorithms.settings import Settings, for_task
from genepool.environments.lookup import find
from genepool.environments.task import Task
from genepool.errors import UserError, did_you_mean
from genepool.parts import words
from genepool.protocols import Algorithm

AnyTask = str | Callable[[], Any] | Task


class AlgorithmSpec(NamedTuple):
    """An algorithm before any option is applied."""

    coupling: type  # its class
    instance: Any  # of the user's own coupling; else None
    name: str
    task: Task
    settings: Settings  # the preset's, and its paper's for the task
    short_names: Mapping[str, str]  # the paper's names of options, and the paths that they stand for


def assembled(name: str, task: AnyTask, options: Mapping[str, Any]) -> Any:
    """The preset of this name on a task. The options win over the preset.

    `name` may be module:Class, a coupling of the user's own, or module:function, which makes one for a task.
    """
    options = dict(options)
    return build(find_spec(name, task, options.pop("engine", None)), options)


def exchanged(algorithm: Algorithm[Any], options: Mapping[str, Any]) -> Algorithm[Any]:
    """An algorithm with other parts and settings."""
    spec = AlgorithmSpec(type(algorithm), algorithm, algorithm.preset, algorithm.task, {}, {})
    return build(spec, dict(options))


def find_spec(name: str, task: AnyTask, engine: str | None = None) -> AlgorithmSpec:
    """The algorithm of this name on a task, before any option."""
    if ":" in name:
        return _spec_of_own(name, find(task, engine))
    if name not in PRESETS:
        raise UserError(
            f"there is no preset {name!r}{did_you_mean(name, PRESETS)}: "
            f"choose {', '.join(PRESETS)}, or module:Class of your own"
        )
    preset = PRESETS[name]
    found = find(task, engine)
    settings = preset.settings | for_task(preset.tasks, found.id)
    if settings.get("task.max_steps", 0) > found.horizon:
        settings.pop("task.max_steps")
    return AlgorithmSpec(imported(preset.coupling), None, name, found, settings, preset.short_names)


def _spec_of_own(name: str, task: Task) -> AlgorithmSpec:
    """The spec of a coupling of the user's own."""
    found = imported(name)
    instance = None
    if not inspect.isclass(found):
        if not callable(found):
            raise UserError(f"{name!r} is no coupling: give a class, or a function of a task that makes one")
        instance = found(task)
        found = type(instance)
    if not is_dataclass(found) or "task" not in {f.name for f in fields(found)}:
        raise UserError(f"{found.__name__} is no coupling: make it a part (see genepool.part) with a field `task`")
    return AlgorithmSpec(found, instance, name, task, {}, {})


def chosen_parts(spec: AlgorithmSpec, options: Mapping[str, Any]) -> Node:
    """The parts that an algorithm has with these options, and their settings."""
    options = _with_full_names(spec, options)
    return tree(spec.coupling, spec.instance, spec.task, _match_schedule(spec.settings, options), options)


def build(spec: AlgorithmSpec, options: Mapping[str, Any]) -> Algorithm[Any]:
    """The algorithm with these options."""
    root = chosen_parts(spec, options)
    options = _with_full_names(spec, options)
    parts = {end for path in part_paths(root) for end in ends(path)}
    for key in options:
        if key not in parts:
            set_value(root, full_path(root, key, spec.name), options[key])
    if any(f.name == "preset" for f in fields(spec.coupling)):
        root.values["preset"] = spec.name
    algorithm = root.built()
    if missing := choices.missing_methods(algorithm, Algorithm):
        raise UserError(f"{spec.coupling.__name__} is no coupling: it has no {missing[0]!r}, see genepool.Algorithm")
    return algorithm


def _with_full_names(spec: AlgorithmSpec, options: Mapping[str, Any]) -> dict[str, Any]:
    return {spec.short_names.get(key, key): value for key, value in options.items()}


def _match_schedule(settings: Settings, options: Settings) -> Settings:
    """The settings in which evolver and schedule fit: a steady-state GA is asynchronous, a generational GA synchronous.

    Where the user gave only one of the two, the other follows it.
    """
    evolver = options.get("evolver")
    schedule = options.get("schedule")
    if evolver is None and schedule == "asynchronous" and settings.get("evolver") == "generational-ga":
        return settings | {"evolver": "steady-state-ga"}
    kind = evolver if inspect.isclass(evolver) else type(evolver)
    if schedule is None and "steady-state-ga" in (evolver, words(kind)):
        return settings | {"schedule": "asynchronous"}
    return settings


def couplings() -> list[type]:
    """The classes of genepool's couplings."""
    return [imported(address) for address in COUPLINGS]


def preset_function(python_name: str) -> Callable[..., Any]:
    """The preset as a function of a task and options. Its `help` explains every option."""
    name = FUNCTIONS[python_name]
    preset = PRESETS[name]

    def function(task: AnyTask, **options: Any) -> Any:
        return assembled(name, task, options)

    root = tree(imported(preset.coupling), None, None, preset.settings, {})
    options = [
        f"    {path}: {meaning}; here {value!r}" for path, (_, value, meaning) in described_options(root).items()
    ]
    parts = [f"    {path}: {meaning}; here {name}" for path, (name, meaning) in described_parts(root).items()]
    head = (
        f"{preset.doc}\n\n"
        "An option is a dotted path, or an end of it that no other path has. Parts are given as objects,\n"
        "classes or names. The paper's settings for the task are the defaults; what you give wins.\n"
    )
    function.__doc__ = "\n".join([head, "Parts:", *parts, "", "Options:", *options])
    function.__name__ = function.__qualname__ = python_name
    function.__module__ = "genepool"
    return function
