"""Parts: frozen dataclasses of hyper-parameters, the meaning of their fields, and parts as JSON and back.

Rebuilding a part from JSON runs no code. A user's own part is found only among the classes that the caller gives.
"""

import ast
import functools
import importlib
import inspect
import linecache
import re
import types
import typing
from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, TypeVar, dataclass_transform

from genepool.errors import UserError

T = TypeVar("T")
COMMENT = re.compile(r"(?:^\s*|\s)# (.*)$")


@dataclass_transform(frozen_default=True)
def part(kind: type[T]) -> type[T]:
    """Make a class a part: a frozen dataclass whose `help` explains its fields.

    A part remembers which fields it was given. In a preset, its other fields take the preset's settings.
    """
    made: Any = dataclass(frozen=True)(kind)
    listed = [f"    {name}: {text}" for name, text in field_texts(made).items()]
    if listed:
        made.__doc__ = "\n".join([inspect.cleandoc(made.__doc__ or ""), "", "Fields:", *listed])
    plain = made.__init__
    names = [f.name for f in fields(made)]

    @functools.wraps(plain)
    def init(self: Any, *values: Any, **named: Any) -> None:
        object.__setattr__(self, "given", frozenset(names[: len(values)]) | frozenset(named))
        plain(self, *values, **named)

    made.__init__ = init
    return made


def given(holder: Any) -> frozenset[str]:
    """The fields that this part was given when it was made; of a plain dataclass, those that are not the default."""
    if hasattr(holder, "given"):
        return holder.given
    return frozenset(f.name for f in fields(holder) if getattr(holder, f.name) != default_of(f))


def default_of(field: Field[Any]) -> Any:
    """The default of a dataclass's field; MISSING if it has none."""
    return field.default_factory() if field.default_factory is not MISSING else field.default


def field_texts(kind: type) -> dict[str, str]:
    """Every field with its meaning and its default, for `help`."""
    meanings = field_comments(kind)
    texts = {}
    for f in fields(kind):
        default = default_of(f)
        shown = "" if default is MISSING else f"default: {default!r}"
        texts[f.name] = "; ".join(text for text in (meanings.get(f.name, ""), shown) if text)
    return texts


def field_comments(kind: type) -> dict[str, str]:
    """The comment of every field, on its line or above it, with those of inherited fields."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if is_dataclass(base):
            found |= _commented(getattr(inspect.getmodule(base), "__file__", None) or "").get(base.__qualname__, {})
    return found


@functools.lru_cache(maxsize=256)
def _commented(file: str) -> dict[str, dict[str, str]]:
    """The comments of the annotated fields of every class in a file."""
    lines = linecache.getlines(file)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return {}
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {node.name: dict(_fields_of(node, lines)) for node in classes}


def _fields_of(node: ast.ClassDef, lines: Sequence[str]) -> typing.Iterator[tuple[str, str]]:
    """The annotated fields of a class, each with its comment: on its own lines or, if they have none, above it."""
    for statement in node.body:
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        of_field = lines[statement.lineno - 1 : statement.end_lineno]
        own = [match[1] for text in of_field if (match := COMMENT.search(text))]
        first = statement.lineno - 2
        above: list[str] = []
        while not own and first >= 0 and lines[first].lstrip().startswith("# "):
            above.insert(0, lines[first].strip()[2:])
            first -= 1
        yield statement.target.id, " ".join(own or above)


def words(kind: type) -> str:
    """The name of a class as an option: RowCopy is row-copy, DDPG is ddpg, OpenAIES is openai-es, no part is none."""
    if kind is type(None):
        return "none"
    return getattr(kind, "word", None) or re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


def choices(kind: type, field: str) -> list[type]:
    """The parts that a field may hold, by its annotation, and the type of None if it may be empty."""
    annotation = typing.get_type_hints(kind)[field]
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    options = typing.get_args(annotation) if union else (annotation,)
    return [option for option in options if is_dataclass(option) or option is type(None)]


def address(kind: Any) -> str:
    """A user's own class or function as module:name."""
    return f"{kind.__module__}:{kind.__qualname__}"


def import_address(address: str) -> Any:
    """The object at module:name; the name may have dots. None if the module has no such name."""
    module, _, name = address.partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"cannot import {module!r} of {address!r} ({error}): is it on PYTHONPATH?") from None
    return functools.reduce(lambda holder, word: getattr(holder, word, None), name.split("."), found)


def is_own(kind: type) -> bool:
    """Whether a class is not genepool's."""
    return kind.__module__.partition(".")[0] != "genepool"


def described(value: Any) -> Any:
    """A part with the parts within it, as JSON can hold it. A user's own classes are named with their modules."""
    if is_dataclass(value) and not isinstance(value, type):
        name = address(type(value)) if is_own(type(value)) else type(value).__name__
        return {"part": name} | {f.name: described(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, (tuple, list)):
        return [described(item) for item in value]
    return address(value) if callable(value) else value


def rebuilt(description: dict[str, Any], kinds: Sequence[type], own: Sequence[type] = ()) -> Any:
    """The part of this description: one of the given kinds, or one of the user's own classes."""
    name = description.get("part")
    if isinstance(name, str) and ":" in name:
        kind = _own_kind(name, own)
    else:
        kind = next((k for k in kinds if k.__name__ == name), None)
    if kind is None:
        raise UserError(f"the configuration names a part {name!r} that does not fit here: it is of another version")
    known = {f.name for f in fields(kind)}
    unknown = description.keys() - known - {"part"}
    if unknown:
        raise UserError(
            f"{kind.__name__} has no field {sorted(unknown)[0]!r}: the configuration is from another version"
        )
    values = {n: _value(description[n], choices(kind, n), own) for n in known & description.keys()}
    return kind(**values)


def _own_kind(name: str, own: Sequence[type]) -> type:
    module, _, plain = name.partition(":")
    for kind in own:
        if address(kind) == name or (module == "__main__" and kind.__qualname__ == plain):
            return kind
    raise UserError(f"the run's part {name!r} is code of your own: give it again with --part {name}")


def _value(value: Any, kinds: list[type], own: Sequence[type]) -> Any:
    if isinstance(value, dict) and "part" in value:
        return rebuilt(value, kinds, own)
    return tuple(value) if isinstance(value, list) else value
