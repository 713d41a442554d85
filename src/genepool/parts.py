"""Parts: frozen dataclasses of hyper-parameters. What their fields mean, which may stand where, and parts as JSON and back.

Nothing that is read is ever run: a part of the user's own is found again only among the classes that are handed in.
"""

import ast
import functools
import inspect
import linecache
import re
import types
import typing
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, TypeVar, dataclass_transform

from genepool.errors import UserError

T = TypeVar("T")
COMMENT = re.compile(r"(?:^\s*|\s)# (.*)$")


@dataclass_transform(frozen_default=True)
def part(kind: type[T]) -> type[T]:
    """Make a class a part: a frozen dataclass whose `help` explains its fields and which remembers which were given.

    Where a preset exchanges a part, the fields that were not given keep the preset's settings.
    """
    made: Any = dataclass(frozen=True)(kind)
    listed = [f"    {name}: {text}" for name, text in field_texts(made).items()]
    if listed:
        made.__doc__ = "\n".join([inspect.cleandoc(made.__doc__ or ""), "", "Fields:", *listed])
    plain, names = made.__init__, [f.name for f in fields(made)]

    @functools.wraps(plain)
    def init(self: Any, *values: Any, **named: Any) -> None:
        object.__setattr__(self, "given", frozenset(names[: len(values)]) | frozenset(named))
        plain(self, *values, **named)

    made.__init__ = init
    return made


def given(holder: Any) -> frozenset[str]:
    """The fields that were given when this part was made; of a plain dataclass those that are not the default."""
    if hasattr(holder, "given"):
        return holder.given
    return frozenset(f.name for f in fields(holder) if getattr(holder, f.name) != default_of(f))


def default_of(field: Any) -> Any:
    """The default of a dataclass's field; MISSING where it has none."""
    return field.default_factory() if field.default_factory is not MISSING else field.default


def field_texts(kind: type) -> dict[str, str]:
    """Every field with its meaning and its default, for the reader."""
    meanings, texts = field_comments(kind), {}
    for f in fields(kind):
        default = default_of(f)
        shown = "" if default is MISSING else f"default: {default!r}"
        texts[f.name] = "; ".join(text for text in (meanings.get(f.name, ""), shown) if text)
    return texts


def field_comments(kind: type) -> dict[str, str]:
    """The comment of every field, on its line or above it, those of inherited fields too."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if is_dataclass(base):
            found |= _commented(getattr(inspect.getmodule(base), "__file__", None) or "").get(base.__qualname__, {})
    return found


@functools.lru_cache(maxsize=256)
def _commented(file: str) -> dict[str, dict[str, str]]:
    """Of every class of a file, the comments of its annotated fields."""
    lines = linecache.getlines(file)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return {}
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {node.name: dict(_fields_of(node, lines)) for node in classes}


def _fields_of(node: ast.ClassDef, lines: Sequence[str]) -> typing.Iterator[tuple[str, str]]:
    for line in node.body:
        if not (isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)):
            continue
        own = [match[1] for text in lines[line.lineno - 1 : line.end_lineno] if (match := COMMENT.search(text))]
        first, above = line.lineno - 2, []
        while not own and first >= 0 and lines[first].lstrip().startswith("# "):
            above.insert(0, lines[first].strip()[2:])
            first -= 1
        yield line.target.id, " ".join(own or above)


def words(kind: type) -> str:
    """A class as the name it goes by: RowCopy as row-copy, DDPG as ddpg, OpenAIES as openai-es, no part at all as none."""
    if kind is type(None):
        return "none"
    return getattr(kind, "word", None) or re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


def choices(kind: type, field: str) -> list[type]:
    """The parts that a field may hold, by its annotation; the type of None where it may be left empty."""
    annotation = typing.get_type_hints(kind)[field]
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    options = typing.get_args(annotation) if union else (annotation,)
    return [option for option in options if is_dataclass(option) or option is type(None)]


def address(kind: Any) -> str:
    """A class or function of the user's own as module:name."""
    return f"{kind.__module__}:{kind.__qualname__}"


def is_own(kind: type) -> bool:
    """Whether a class is not genepool's."""
    return kind.__module__.partition(".")[0] != "genepool"


def described(value: Any) -> Any:
    """A part, and the parts within it, as what JSON can hold. Classes of the user's own are named with their module."""
    if is_dataclass(value) and not isinstance(value, type):
        name = address(type(value)) if is_own(type(value)) else type(value).__name__
        return {"part": name} | {f.name: described(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple | list):
        return [described(item) for item in value]
    return address(value) if callable(value) else value


def rebuilt(description: dict[str, Any], kinds: Sequence[type], own: Sequence[type] = ()) -> Any:
    """The part that was described: one of these kinds, which annotations name, or one of the user's own that are handed in."""
    name = description.get("part")
    kind = _own_kind(name, own) if ":" in str(name) else next((k for k in kinds if k.__name__ == name), None)
    if kind is None:
        raise UserError(f"the configuration names a part {name!r} that does not fit here: it is from another version")
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
