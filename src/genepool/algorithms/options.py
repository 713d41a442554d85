"""The options of a system: which parts were chosen, where they stand, and what each field's path and value is.

Parts are chosen first, from the coupling down. Then every field of every part takes its value: what the user gave; what the
user's own part was given; the preset's and its paper's setting for the task; the default. An option is a dotted path, such
as `evolver.mutation.sigma`, or its end, such as `mutation.sigma`, where only one path ends so.
"""

import functools
import importlib
import inspect
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from typing import Any

from genepool.algorithms.settings import Settings
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.parts import choices, default_of, field_comments, given, words

HIDDEN = ("preset", "task.id", "task.engine", "task.make")  # fields that are no options
COUPLED = ("evolver", "learner")  # parts whose methods the coupling checks


@dataclass
class Node:
    """A part that was chosen, and where it stands."""

    path: str  # "" for the coupling itself
    kind: type
    own: Any = None  # an instance of it, whose values are taken where nothing else is said
    mine: bool = False  # whether that is the user's, so that what it was given wins over the preset
    parts: dict[str, "Node | None"] = field(default_factory=dict)  # by field
    values: Settings = field(default_factory=dict)  # of its other fields, where they are not the defaults

    def at(self, name: str) -> str:
        """The path of one of its fields."""
        return f"{self.path}.{name}" if self.path else name

    def walk(self) -> Iterator["Node"]:
        """It, and the parts within it."""
        yield self
        for inner in self.parts.values():
            if inner is not None:
                yield from inner.walk()

    def leaves(self) -> Iterator[str]:
        """The paths of its own options."""
        found = (self.at(f.name) for f in fields(self.kind) if f.name not in self.parts)
        return (path for path in found if path not in HIDDEN)

    def built(self) -> Any:
        """The part."""
        inner = {name: node and node.built() for name, node in self.parts.items()}
        return self.kind(**self.values, **inner)


def tree(kind: type, own: Any, task: Task | None, settings: Settings, options: Mapping[str, Any]) -> Node:
    """The parts that preset and options choose, with the preset's settings in their fields."""
    root = Node("", kind, own, mine=own is not None)
    _grow(root, settings, options)
    if task is not None:
        root.parts["task"] = Node("task", Task, task, mine=True)
        _settle(root.parts["task"], settings)
    for key in options:
        paths = [path for path in part_paths(root) if path == key or path.endswith(f".{key}")]
        if len(paths) > 1 and key not in paths:
            raise UserError(f"{key!r} may be {' or '.join(sorted(paths))}: say which")
    return root


def _grow(node: Node, settings: Settings, options: Mapping[str, Any]) -> None:
    for f in fields(node.kind):
        kinds = part_choices(node.kind, f.name)
        if f.name == "task" and not node.path:
            node.parts["task"] = None
        elif kinds:
            node.parts[f.name] = _chosen(node, f, kinds, settings, options)
    _settle(node, settings)


def part_choices(kind: type, name: str) -> list[type]:
    """The parts that may stand in a field; none where it holds a plain value."""
    kinds = choices(kind, name)
    return kinds if any(kind is not type(None) for kind in kinds) else []


def _chosen(node: Node, f: Any, kinds: list[type], settings: Settings, options: Mapping[str, Any]) -> Node | None:
    """The part that stands in a field, grown."""
    path = node.at(f.name)
    present = default_of(f) if node.own is None else getattr(node.own, f.name)
    mine = node.mine and f.name in given(node.own)
    value = settings[path] if _may_stand(settings.get(path, MISSING), kinds) and not mine else present
    for key in options:
        if path == key or path.endswith(f".{key}"):
            value, mine = options[key], True
    if value is MISSING:
        raise UserError(f"{node.kind.__name__} needs a {f.name}: choose {' or '.join(map(words, kinds))}")
    value = _part(f.name, kinds, value)
    if value is None:
        return None
    if inspect.isclass(value):  # without fields of its own: those of the part that stands there, if it is such a one
        inner = Node(path, value, present if type(present) is value else None)
    else:
        inner = Node(path, type(value), value, mine)
    _check_fits(f.name, inner.kind, kinds)
    _grow(inner, settings, options)
    return inner


def _may_stand(setting: Any, kinds: list[type]) -> bool:
    """Whether a preset's setting fits here: its crossover need not be one of another evolver's."""
    return setting is None or any(setting == words(kind) for kind in kinds)


def _part(field_name: str, kinds: list[type], value: Any) -> Any:
    """A part or its class, of its name, of module:Class, or as it is."""
    if not isinstance(value, str):
        if value is None and type(None) not in kinds and field_name not in COUPLED:
            raise UserError(f"{field_name} cannot be left out: choose {' or '.join(map(words, kinds))}")
        return value
    named = {words(kind): kind for kind in kinds}
    if value in named:
        return None if named[value] is type(None) else named[value]
    if value == "none":
        return _part(field_name, kinds, None)
    if ":" in value:
        return imported_part(value)
    for kind in kinds:
        if hasattr(kind, "named") and (found := kind.named(value)):
            return found
    shown = [word for word in named if not hasattr(named[word], "named")]
    near = get_close_matches(value, shown, n=2, cutoff=0.5)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    raise UserError(f"there is no {field_name} {value!r}{hint}: choose {', '.join(shown)} or module:Class of your own")


def _check_fits(field_name: str, kind: type, kinds: list[type]) -> None:
    """Refuse a part of the user's own that lacks a method which all of genepool's have that may stand there."""
    house = [other for other in kinds if other is not type(None)]
    if kind in house:
        return
    if not is_dataclass(kind):
        raise UserError(f"{kind.__name__} is no {field_name}: a part is a frozen dataclass, see genepool.part")
    if field_name in COUPLED:
        return
    wanted = set.intersection(*({name for name, value in vars(other).items() if callable(value)} for other in house))
    wanted = {name for name in wanted if name == "__call__" or not name.startswith("_")}
    own = {
        name for base in kind.__mro__ for name in vars(base)
    }  # a class itself may be called: __call__ is not its own
    if missing := sorted(wanted - own):
        raise UserError(f"{kind.__name__} is no {field_name}: it has no method {missing[0]!r}")


def _settle(node: Node, settings: Settings) -> None:
    """Its fields that are no parts: what the user's own was given, the preset's setting, what stands there."""
    for f in fields(node.kind):
        if f.name in node.parts:
            continue
        path = node.at(f.name)
        if path in settings and not (node.mine and f.name in given(node.own)):
            node.values[f.name] = settings[path]
        elif node.own is not None:
            node.values[f.name] = getattr(node.own, f.name)


def part_paths(root: Node) -> list[str]:
    """The paths where parts stand or were left out."""
    return [node.at(name) for node in root.walk() for name in node.parts if node.at(name) != "task"]


def ends(path: str) -> Iterator[str]:
    """The path and all its ends: a.b.c, b.c, c."""
    names = path.split(".")
    return (".".join(names[k:]) for k in range(len(names)))


def full_path(root: Node, key: str, name: str, spelt: str = "") -> str:
    """The path that an option means; refused where there is none or more than one. `spelt`: how the user wrote it."""
    paths = [path for node in root.walk() for path in node.leaves()]
    if key in paths:
        return key
    found = [path for path in paths if path.endswith(f".{key}")]
    if len(found) > 1:
        raise UserError(f"{spelt or repr(key)} may be {' or '.join(sorted(found))}: say which")
    if not found:
        known = {end for path in (*paths, *part_paths(root)) for end in ends(path)}
        near = get_close_matches(key, known, n=2, cutoff=0.6)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise UserError(f"{name} has no option {spelt or repr(key)}{hint}: `genepool train {name} --help` lists them")
    return found[0]


def place(root: Node, path: str, value: Any) -> None:
    """Put a value into the field of this path."""
    holder, _, last = path.rpartition(".")
    node = next(node for node in root.walk() if node.path == holder)
    node.values[last] = value


def imported(address: str) -> Any:
    """What stands at module:name, of genepool's or of the user's own."""
    module, _, name = address.partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"cannot import {module!r} of {address!r} ({error}): is it on PYTHONPATH?") from None
    found = functools.reduce(lambda inner, word: getattr(inner, word, None), name.split("."), found)
    if found is None:
        raise UserError(f"the module {module!r} has no {name!r}: see how it is spelt there")
    return found


def imported_part(address: str) -> type:
    """The part of the user's own at module:Class."""
    found = imported(address)
    if not (inspect.isclass(found) and is_dataclass(found)):
        raise UserError(f"{address!r} is no part: a part is a frozen dataclass of hyper-parameters, see genepool.part")
    return found


def described_options(root: Node) -> dict[str, tuple[Any, Any, str]]:
    """Every option by its path: its type, its value and its meaning."""
    found = {}
    for node in root.walk():
        hints, comments = typing.get_type_hints(node.kind), field_comments(node.kind)
        by_path = {node.at(f.name): f for f in fields(node.kind)}
        for path in node.leaves():
            f = by_path[path]
            found[path] = hints[f.name], node.values.get(f.name, default_of(f)), comments.get(f.name, "")
    return found


def described_parts(root: Node) -> dict[str, tuple[str, str]]:
    """Every part by its path: its name, none where it is left out, and its meaning."""
    found = {}
    for node in root.walk():
        comments = field_comments(node.kind)
        for name, inner in node.parts.items():
            if node.at(name) != "task":
                found[node.at(name)] = inner.kind.__name__ if inner else "none", comments.get(name, "")
    return found
