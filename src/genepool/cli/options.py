"""Options of the command line, read with tyro. Parts are chosen by name, their fields by dotted paths."""

import contextlib
import functools
import inspect
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import field, make_dataclass
from typing import Annotated, Any, NamedTuple

from genepool.errors import UserError


def parse(target: Any, program: str, argv: list[str], description: str | None = None) -> Any:
    """The arguments as tyro reads them: an instance of the target class, or what the target function returns.

    Tyro draws its error messages as boxes. They become one line here.
    """
    import tyro

    complaint = io.StringIO()
    call = []

    @functools.wraps(target)
    def keep_call(*given: Any, **named: Any) -> None:
        call.append(functools.partial(target, *given, **named))  # called later: its own messages are no complaints

    try:
        with contextlib.redirect_stderr(complaint):
            options = tyro.cli(
                keep_call if inspect.isfunction(target) else target,
                prog=program,
                description=description,
                args=argv,
                config=(tyro.conf.AvoidSubcommands,),
                return_unknown_args=False,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(f"{_one_line(complaint.getvalue(), program)}: see {program} --help") from None
    return call[0]() if call else options


def _one_line(complaint: str, program: str) -> str:
    """The words of tyro's message without its box and its hints."""
    lines = (line.strip(" │╭╮╰╯─") for line in complaint.splitlines()[1:])
    worded = filter(re.compile(r"\w").search, lines)  # rules of hyphens are drawn where boxes cannot be
    hints = ("For full helptext", "Argument helptext", f"{program} --help")
    message = " ".join(itertools.takewhile(lambda line: not line.startswith(hints), worded))
    return message.rstrip(".") or "the arguments are not understood"


def take_option(argv: list[str], option: str) -> tuple[str | None, list[str]]:
    """The value of --option, None if it is not there, and the other arguments."""
    flag = f"--{option}"
    for k, word in enumerate(argv):
        if word == flag:
            if k + 1 == len(argv):
                raise UserError(f"{flag} needs a value: see --help")
            return argv[k + 1], argv[:k] + argv[k + 2 :]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2], argv[:k] + argv[k + 1 :]
    return None, argv


class WrittenOption(NamedTuple):
    """An option as the user wrote it."""

    spelt: str  # --learner.batch-size
    key: str  # learner.batch_size; the key of --no-x is that of x
    no: bool  # whether it is --no-x
    values: tuple[str, ...]


def split_options(argv: Sequence[str]) -> Iterator[WrittenOption]:
    """The options one by one, each with its values."""
    argv = list(argv)
    while argv:
        word = argv.pop(0)
        if not word.startswith("--"):
            raise UserError(f"{word!r} is not an option: write an option such as --frames 1e6")
        spelt, equals, value = word.partition("=")
        values = [value] if equals else []
        while argv and not argv[0].startswith("--"):
            values.append(argv.pop(0))
        holder, dot, name = spelt.removeprefix("--").rpartition(".")
        no = name.startswith("no-")
        key = f"{holder}{dot}{name.removeprefix('no-')}".replace("-", "_")
        yield WrittenOption(spelt, key, no, tuple(values))


def algorithm_and_options(program: str, spec: Any, general: type, argv: list[str], description: str) -> tuple[Any, Any]:
    """The algorithm with the given options, and the general options, which are fields of the dataclass `general`."""
    from genepool.algorithms.assemble import build, chosen_parts
    from genepool.algorithms.options import ends, full_path, part_paths

    own = general.__dataclass_fields__
    help_words = [word for word in argv if word in ("-h", "--help")]
    written = list(split_options([word for word in argv if word not in help_words]))
    exchanged = {word.key: _part_name(word) for word in written if word.key not in own}
    root = chosen_parts(spec, exchanged)
    part_keys = {end for path in part_paths(root) for end in ends(path)}
    options: dict[str, Any] = {}
    words: list[str] = []
    paths: dict[str, str] = {}
    for word in written:
        if word.key in own:
            words += [word.spelt, *word.values]
        elif word.key in part_keys and word.key not in spec.short_names:
            if not (word.no or len(word.values) == 1):
                raise UserError(f"{word.spelt} needs the name of a part: see {program} --help")
            options[word.key] = exchanged[word.key]
        else:
            path = full_path(root, spec.short_names.get(word.key, word.key), spec.name, word.spelt)
            paths[word.key] = path
            holder, dot, name = path.rpartition(".")
            flag = f"{holder}{dot}{'no-' if word.no else ''}{name}".replace("_", "-")
            words += [f"--{flag}", *word.values]
    found = parse(_as_dataclass(root, general), program, words + help_words, description)
    for key, path in paths.items():
        options[key] = functools.reduce(getattr, path.split("."), found)
    return build(spec, options), found


def _part_name(word: WrittenOption) -> str | None:
    """The name of a part that the option gives; None to leave the part out."""
    return None if word.no or not word.values else word.values[0]


def _as_dataclass(node: Any, general: type | None = None) -> type:
    """A part's options as a dataclass for tyro. The parts within it are fields that hold such dataclasses."""
    import tyro

    from genepool.algorithms.options import HIDDEN, Node, described_options

    own = Node(node.path, node.kind, node.instance, node.is_users, dict.fromkeys(node.parts), node.values)
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
    """The options that take a part by name, and the names that each may have."""
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
