"""Parts as JSON and back: a frozen dataclass is its fields and its class's name. Nothing that is read is ever run."""

import types
import typing
from dataclasses import fields, is_dataclass
from typing import Any

from genepool.errors import UserError


def described(part: Any) -> Any:
    """A part, and the parts within it, as what JSON can hold."""
    if is_dataclass(part):
        return {"part": type(part).__name__} | {f.name: described(getattr(part, f.name)) for f in fields(part)}
    if isinstance(part, tuple | list):
        return [described(item) for item in part]
    if callable(part):
        return f"{part.__module__}:{part.__qualname__}"
    return part


def rebuilt(description: dict[str, Any], kind: type) -> Any:
    """The part of this kind that was described. The annotations of its fields say which parts may stand there."""
    if description.get("part") != kind.__name__:
        raise UserError(
            f"the configuration describes {description.get('part')!r} where {kind.__name__} belongs: it is from another version"
        )
    known = {f.name for f in fields(kind)}
    unknown = description.keys() - known - {"part"}
    if unknown:
        raise UserError(
            f"{kind.__name__} has no field {sorted(unknown)[0]!r}: the configuration is from another version"
        )
    return kind(**{name: _value(description[name], choices(kind, name)) for name in known & description.keys()})


def choices(kind: type, field: str) -> list[type]:
    """The parts that a field may hold, by its annotation; the type of None where it may be left empty."""
    annotation = typing.get_type_hints(kind)[field]
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    options = typing.get_args(annotation) if union else (annotation,)
    return [option for option in options if is_dataclass(option) or option is type(None)]


def _value(value: Any, kinds: list[type]) -> Any:
    if isinstance(value, dict) and "part" in value:
        matching = [kind for kind in kinds if kind.__name__ == value["part"]]
        if not matching:
            raise UserError(
                f"the configuration names a part {value['part']!r} that does not fit here: it is from another version"
            )
        return rebuilt(value, matching[0])
    return tuple(value) if isinstance(value, list) else value
