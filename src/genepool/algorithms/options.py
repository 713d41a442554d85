"""The options of an algorithm: which parts were chosen, where they stand, and the path and value of each field.

Parts are chosen first, from the coupling down. Then every field of every part takes its value from the first of these:
the user's option; the user's own part; the preset's setting or its paper's for the task; the default. An option is a
dotted path, such as `evolver.mutation.sigma`, or an end that no other path has, such as `mutation.sigma`.
"""

import inspect
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any

from genepool.algorithms.settings import Settings
from genepool.environments.task import Task
from genepool.errors import UserError, did_you_mean
from genepool.parts import choices, default_of, field_comments, given, import_address, words

HIDDEN = ("preset", "task.id", "task.engine", "task.make")  # fields that are not options
COUPLED = ("evolver", "learner")  # parts whose methods the coupling checks


@dataclass
class Node:
    """A part that was chosen, and where it stands."""

    path: str  # "" for the coupling itself
    kind: type
    instance: Any = None  # a part of this kind, whose values are the defaults here
    is_users: bool = False  # whether the instance is the user's: the values it was given win over the preset
    parts: dict[str, "Node | None"] = field(default_factory=dict)  # by field
    values: Settings = field(default_factory=dict)  # of its other fields, if they are not the defaults

    def at(self, name: str) -> str:
        """The path of one of its fields."""
        return f"{self.path}.{name}" if self.path else name

    def walk(self) -> Iterator["Node"]:
        """This node, and all nodes below it."""
        yield self
        for inner in self.parts.values():
            if inner is not None:
                yield from inner.walk()

    def leaves(self) -> Iterator[str]:
        """The paths of this part's own options."""
        found = (self.at(f.name) for f in fields(self.kind) if f.name not in self.parts)
        return (path for path in found if path not in HIDDEN)

    def built(self) -> Any:
        """The part itself."""
        inner = {name: node and node.built() for name, node in self.parts.items()}
        return self.kind(**self.values, **inner)


def tree(kind: type, instance: Any, task: Task | None, settings: Settings, options: Mapping[str, Any]) -> Node:
    """The parts that preset and options choose, with the preset's settings in their fields."""
    root = Node("", kind, instance, is_users=instance is not None)
    _choose_parts(root, settings, options)
    if task is not None:
        root.parts["task"] = Node("task", Task, task, is_users=True)
        _set_values(root.parts["task"], settings)
    for key in options:
        paths = [path for path in part_paths(root) if path == key or path.endswith(f".{key}")]
        if len(paths) > 1 and key not in paths:
            raise UserError(f"{key!r} may be {' or '.join(sorted(paths))}: say which")
    return root


def _choose_parts(node: Node, settings: Settings, options: Mapping[str, Any]) -> None:
    for f in fields(node.kind):
        kinds = part_choices(node.kind, f.name)
        if f.name == "task" and not node.path:
            node.parts["task"] = None
        elif kinds:
            node.parts[f.name] = _chosen_part(node, f, kinds, settings, options)
    _set_values(node, settings)


def part_choices(kind: type, name: str) -> list[type]:
    """The parts that a field may hold; empty for a field that holds a plain value."""
    kinds = choices(kind, name)
    return kinds if any(kind is not type(None) for kind in kinds) else []


def _chosen_part(
    node: Node, f: Field[Any], kinds: list[type], settings: Settings, options: Mapping[str, Any]
) -> Node | None:
    """The part in this field, with its own parts; None if it is left out."""
    path = node.at(f.name)
    present = default_of(f) if node.instance is None else getattr(node.instance, f.name)
    is_users = node.is_users and f.name in given(node.instance)
    value = settings[path] if _may_stand(settings.get(path, MISSING), kinds) and not is_users else present
    for key in options:
        if path == key or path.endswith(f".{key}"):
            value = options[key]
            is_users = True
    if value is MISSING:
        raise UserError(f"{node.kind.__name__} needs a {f.name}: choose {' or '.join(map(words, kinds))}")
    value = _part(f.name, kinds, value)
    if value is None:
        return None
    if inspect.isclass(value):  # a class has no values: those of the present part are kept if it is of this class
        inner = Node(path, value, present if type(present) is value else None)
    else:
        inner = Node(path, type(value), value, is_users)
    _check_fits(f.name, inner.kind, kinds)
    _choose_parts(inner, settings, options)
    return inner


def _may_stand(setting: object, kinds: list[type]) -> bool:
    """Whether a preset's setting fits this field. The user may have chosen an evolver with other crossovers."""
    return setting is None or any(setting == words(kind) for kind in kinds)


def _part(field_name: str, kinds: list[type], value: Any) -> Any:
    """The part or class that the user's value means: a name, module:Class, or the value itself."""
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
    raise UserError(
        f"there is no {field_name} {value!r}{did_you_mean(value, shown)}: "
        f"choose {', '.join(shown)} or module:Class of your own"
    )


def _check_fits(field_name: str, kind: type, kinds: list[type]) -> None:
    """Refuse a user's own part that lacks a method which all of genepool's parts for this field have."""
    ours = [other for other in kinds if other is not type(None)]
    if kind in ours:
        return
    if not is_dataclass(kind):
        raise UserError(f"{kind.__name__} is no {field_name}: a part is a frozen dataclass, see genepool.part")
    if field_name in COUPLED:
        return
    wanted = set.intersection(*({name for name, value in vars(other).items() if callable(value)} for other in ours))
    wanted = {name for name in wanted if name == "__call__" or not name.startswith("_")}
    # not by hasattr: every class has __call__, which makes its instances
    present = {name for base in kind.__mro__ for name in vars(base)}
    if missing := sorted(wanted - present):
        raise UserError(f"{kind.__name__} is no {field_name}: it has no method {missing[0]!r}")


def _set_values(node: Node, settings: Settings) -> None:
    """Set the fields that hold no parts: from the user's instance, the preset's settings, or the present instance."""
    for f in fields(node.kind):
        if f.name in node.parts:
            continue
        path = node.at(f.name)
        if path in settings and not (node.is_users and f.name in given(node.instance)):
            node.values[f.name] = settings[path]
        elif node.instance is not None:
            node.values[f.name] = getattr(node.instance, f.name)


def part_paths(root: Node) -> list[str]:
    """The paths of all fields for parts, also of those left out."""
    return [node.at(name) for node in root.walk() for name in node.parts if node.at(name) != "task"]


def ends(path: str) -> Iterator[str]:
    """All ends of a path: a.b.c, b.c, c."""
    names = path.split(".")
    return (".".join(names[k:]) for k in range(len(names)))


def full_path(root: Node, key: str, name: str, spelt: str = "") -> str:
    """The path that an option means. Refused if there is none or several. `spelt` is how the user wrote it."""
    paths = [path for node in root.walk() for path in node.leaves()]
    if key in paths:
        return key
    found = [path for path in paths if path.endswith(f".{key}")]
    if len(found) > 1:
        raise UserError(f"{spelt or repr(key)} may be {' or '.join(sorted(found))}: say which")
    if not found:
        known = {end for path in (*paths, *part_paths(root)) for end in ends(path)}
        hint = did_you_mean(key, known)
        raise UserError(f"{name} has no option {spelt or repr(key)}{hint}: `genepool train {name} --help` lists them")
    return found[0]


def set_value(root: Node, path: str, value: Any) -> None:
    """Set the field at this path."""
    holder, _, last = path.rpartition(".")
    node = next(node for node in root.walk() if node.path == holder)
    node.values[last] = value


def imported(address: str) -> Any:
    """The object at module:name, genepool's or the user's own."""
    found = import_address(address)
    if found is None:
        module, _, name = address.partition(":")
        raise UserError(f"the module {module!r} has no {name!r}: check its spelling")
    return found


def imported_part(address: str) -> type:
    """The user's own part at module:Class."""
    found = imported(address)
    if not (inspect.isclass(found) and is_dataclass(found)):
        raise UserError(f"{address!r} is no part: a part is a frozen dataclass of hyper-parameters, see genepool.part")
    return found


def described_options(root: Node) -> dict[str, tuple[Any, Any, str]]:
    """Every option by its path: its type, its value and its meaning."""
    found: dict[str, tuple[Any, Any, str]] = {}
    for node in root.walk():
        hints = typing.get_type_hints(node.kind)
        comments = field_comments(node.kind)
        by_path = {node.at(f.name): f for f in fields(node.kind)}
        for path in node.leaves():
            f = by_path[path]
            found[path] = hints[f.name], node.values.get(f.name, default_of(f)), comments.get(f.name, "")
    return found


def described_parts(root: Node) -> dict[str, tuple[str, str]]:
    """Every part by its path: its name, or none if it is left out, and its meaning."""
    found: dict[str, tuple[str, str]] = {}
    for node in root.walk():
        comments = field_comments(node.kind)
        for name, inner in node.parts.items():
            if node.at(name) != "task":
                found[node.at(name)] = inner.kind.__name__ if inner else "none", comments.get(name, "")
    return found
