"""Options of the command line: what tyro makes of typed parts. Parts are chosen by name, their fields by dotted paths."""

import contextlib
import difflib
import functools
import inspect
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, make_dataclass
from typing import Annotated, Any, NamedTuple

from genepool.errors import UserError


def nearest(word: str, known: Iterable[str]) -> str:
    """The known words that come nearest, as a question."""
    near = difflib.get_close_matches(word, list(known), n=2, cutoff=0.5)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


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
        raise UserError(f"{said.rstrip('.') or 'the arguments are not understood'}: see {program} --help") from None
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


class Word(NamedTuple):
    """An option as it was written."""

    spelt: str  # --learner.batch-size
    key: str  # learner.batch_size; of --no-x or --a.no-x, that of x
    no: bool  # whether it was --no-x
    values: tuple[str, ...]


def split(argv: Sequence[str]) -> Iterator[Word]:
    """The options one by one, each with its values."""
    argv = list(argv)
    while argv:
        word = argv.pop(0)
        if not word.startswith("--"):
            raise UserError(f"{word!r} stands where an option belongs, such as --frames 1e6")
        spelt, equals, value = word.partition("=")
        values = [value] if equals else []
        while argv and not argv[0].startswith("--"):
            values.append(argv.pop(0))
        holder, dot, name = spelt.removeprefix("--").rpartition(".")
        no = name.startswith("no-")
        key = f"{holder}{dot}{name.removeprefix('no-')}".replace("-", "_")
        yield Word(spelt, key, no, tuple(values))


def algorithm_and_options(program: str, to: Any, general: type, argv: list[str], description: str) -> tuple[Any, Any]:
    """The system `to` with what the options say, and the general options: those of the dataclass `general`."""
    from genepool.algorithms.assemble import build, chosen_parts
    from genepool.algorithms.options import ends, full_path, part_paths

    own = general.__dataclass_fields__
    help_words = [word for word in argv if word in ("-h", "--help")]
    said = list(split([word for word in argv if word not in help_words]))
    exchanged = {word.key: _part_name(word) for word in said if word.key not in own}
    root = chosen_parts(to, exchanged)
    part_keys = {end for path in part_paths(root) for end in ends(path)}
    options, words, paths = {}, [], {}
    for word in said:
        if word.key in own:
            words += [word.spelt, *word.values]
        elif word.key in part_keys and word.key not in to.short_names:
            if not (word.no or len(word.values) == 1):
                raise UserError(f"{word.spelt} needs the name of a part: see {program} --help")
            options[word.key] = exchanged[word.key]
        else:
            paths[word.key] = path = full_path(root, to.short_names.get(word.key, word.key), to.name, word.spelt)
            holder, dot, name = path.rpartition(".")
            flag = f"{holder}{dot}{'no-' if word.no else ''}{name}".replace("_", "-")
            words += [f"--{flag}", *word.values]
    found = parsed(_as_dataclass(root, general), program, words + help_words, description)
    for key, path in paths.items():
        options[key] = functools.reduce(getattr, path.split("."), found)
    return build(to, options), found


def _part_name(word: Word) -> str | None:
    """The part that an option may name; none to leave it out."""
    return None if word.no or not word.values else word.values[0]


def _as_dataclass(node: Any, general: type | None = None) -> type:
    """A part's options as a dataclass that tyro shows and reads: parts within it are dataclasses in turn."""
    import tyro

    from genepool.algorithms.options import HIDDEN, Node, described_options

    own = Node(node.path, node.kind, node.own, node.mine, dict.fromkeys(node.parts), node.values)
    rows = []
    for path, (kind, value, meaning) in described_options(own).items():
        help_text = tyro.conf.arg(help=meaning.replace("%", "%%"))
        rows.append((path.rpartition(".")[2], Annotated[kind, help_text], field(default=value)))
    for name, inner in node.parts.items():
        if inner is not None and any(path not in HIDDEN for path in inner.leaves()):
            made = _as_dataclass(inner)
            rows.append((name, made, field(default_factory=made)))
    made = make_dataclass(node.kind.__name__, rows, bases=(general,) if general else (), frozen=True)
    made.__doc__ = (node.kind.__doc__ or "").partition("\n\nFields:")[0]
    return made


def part_names(root: Any) -> str:
    """Which options take another part by name, and which names."""
    from genepool.algorithms.options import part_choices
    from genepool.parts import words

    said = []
    for node in root.walk():
        for name in node.parts:
            kinds = part_choices(node.kind, name) if node.at(name) != "task" else []
            if len(kinds) > 1:
                names = [words(kind) for kind in kinds if not hasattr(kind, "named")]
                names += ["a strategy of evosax such as sep-cma-es"] * (len(names) < len(kinds))
                said.append(f"--{name.replace('_', '-')}: {', '.join(names)}. ")
    return "Parts by name, or module:Class of your own: " + "".join(said)
