"""Options of the command line: what tyro makes of typed parts, and parts that are chosen by name."""

import contextlib
import difflib
import functools
import inspect
import io
import itertools
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from genepool.errors import UserError

PARTS = (
    *("evolver", "learner", "crossover", "mutation", "selection", "sharing"),
    *("lessons", "mean-rule", "variance-rule", "tuning"),
)


def nearest(word: str, known: Iterable[str]) -> str:
    """The known words that come nearest, as a question."""
    near = difflib.get_close_matches(word, list(known), n=2, cutoff=0.5)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def selections(algorithm: Any) -> str:
    """Which options take another part by name, and which names."""
    from genepool.runs.parts import choices

    said = []
    for part in PARTS:
        holder = algorithm if hasattr(algorithm, part.replace("-", "_")) else getattr(algorithm, "evolver", None)
        if holder is None or not hasattr(holder, part.replace("-", "_")):
            continue
        kinds = choices(type(holder), part.replace("-", "_"))
        names = "a strategy of evosax such as sep-cma-es" if any(hasattr(k, "named") for k in kinds) else ""
        words = [_words(kind) for kind in kinds if not hasattr(kind, "named")] + [names] * bool(names)
        said.append(f"--{part}: {', '.join(words)}. ")
    return "Parts by name: " + "".join(said)


def parsed(target: Any, program: str, argv: list[str], description: str | None = None) -> Any:
    """What tyro makes of the arguments, or what the function returns that takes them. Complaints, drawn as boxes, become one line."""
    import tyro

    complaint, call = io.StringIO(), []

    @functools.wraps(target)
    def understood(*given: Any, **named: Any) -> None:
        call.append(functools.partial(target, *given, **named))  # later: what it says itself is no complaint

    try:
        with contextlib.redirect_stderr(complaint):
            options = tyro.cli(
                understood if inspect.isfunction(target) else target,
                prog=program,
                description=description,
                args=argv,
                config=(tyro.conf.AvoidSubcommands,),
                return_unknown_args=False,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        lines = (line.strip(" │╭╮╰╯─") for line in complaint.getvalue().splitlines()[1:])
        over = ("For full helptext", "Argument helptext", f"{program} --help")
        worded = filter(re.compile(r"\w").search, lines)  # where there are no boxes, rules of hyphens are drawn
        said = " ".join(itertools.takewhile(lambda line: not line.startswith(over), worded))
        unknown = re.match(r"Unrecognized options: --([\w-]+)(,|$)", said)  # tyro knows only the others
        near = nearest(unknown[1], (*PARTS, *(f"no-{part}" for part in PARTS))) if unknown else ""
        raise UserError(f"{said or 'the arguments are not understood'}{near}: see {program} --help") from None
    return call[0]() if call else options


def taken(argv: list[str], option: str) -> tuple[str | None, list[str]]:
    """The value of --option, and the arguments without it."""
    flag = f"--{option}"
    for k, word in enumerate(argv):
        if word == flag:
            if k + 1 == len(argv):
                raise UserError(f"{flag} needs a value: see --help")
            return argv[k + 1], argv[:k] + argv[k + 2 :]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2], argv[:k] + argv[k + 1 :]
    return None, argv


def with_part(part: Any, field: str, name: str) -> Any:
    """The algorithm with the part of this name in the field, wherever within it the field is."""
    from genepool.runs.parts import choices

    if not hasattr(part, field):
        inner = getattr(part, "evolver", None)
        if inner is None:
            raise UserError(f"this algorithm has no {field}")
        return replace(part, evolver=with_part(inner, field, name))
    kinds = {_words(kind): kind for kind in choices(type(part), field)}
    for kind in kinds.values():
        if name not in kinds and hasattr(kind, "named") and (found := kind.named(name)):
            return replace(part, **{field: found})
    if name not in kinds:
        raise UserError(f"there is no {field} {name!r}{nearest(name, kinds)}: choose {' or '.join(kinds)}")
    return replace(part, **{field: kinds[name]()})


def _words(kind: type) -> str:
    """RowCopy as row-copy, DDPG as ddpg, no part at all as none."""
    if kind is type(None):
        return "none"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()
