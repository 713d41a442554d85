"""The command line: train, resume, evaluate, plot, runs. Heavy modules are imported by the command that needs them."""

import contextlib
import difflib
import io
import itertools
import json
import os
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

from genepool.errors import UserError
from genepool.machine import cores

HELP = """\
genepool trains control policies by evolution and gradient learning together.

usage: genepool COMMAND ...

  train PRESET TASK   train a policy; every hyper-parameter is an option (genepool train PRESET --help)
  resume RUN          go on with a run from its last checkpoint, exactly as if it had never stopped
  evaluate RUN        play the champion of a run on fresh episodes
  plot RUN...         draw the learning curves of one or several runs
  runs [FOLDER]       a table of the runs that are there

presets:
  erl                 ERL: row-copy crossover, Gaussian mutation, DDPG
  perl                ERL with proximal mutation
  derl                ERL with distillation crossover
  pderl               ERL with both
  ddpg                the learner alone

tasks: any Gymnasium id with Box observations and actions, or module:function for an environment of your own

examples:
  genepool train pderl HalfCheetah-v5 --frames 1e6 --seed 3
  genepool train pderl Hopper-v5 --mutation.sigma 0.05 --learner.discount 0.999
  genepool train erl my_robot:make_env --run runs/robot
  genepool resume runs/robot
"""
PRESETS = ("erl", "perl", "derl", "pderl", "ddpg")
PARTS = ("evolver", "learner", "crossover", "mutation")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    commands = {"train": _train, "resume": _resume, "evaluate": _evaluate, "plot": _plot, "runs": _runs}
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    try:
        if argv[0] not in commands:
            raise UserError(f"there is no command {argv[0]!r}{_nearest(argv[0], commands)}: see genepool --help")
        tune_jax(argv)
        sys.path.append(os.getcwd())  # a task of the user's own is looked for where the user stands
        return commands[argv[0]](argv[1:])
    except UserError as error:
        print(f"genepool: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("genepool: stopped at once; `genepool resume` goes on from the last checkpoint", file=sys.stderr)
        return 130


def tune_jax(argv: Sequence[str] = ()) -> None:
    """Flags that must be set before JAX is imported, for the same bits come of the same flags. What the user set stays."""
    if "XLA_FLAGS" in os.environ:
        return
    if argv and argv[0] == "resume":
        for config in (Path(word) / "config.json" for word in argv[1:]):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                os.environ["XLA_FLAGS"] = json.loads(config.read_text()).get("xla_flags", "")
                return
    if cores() > 1:
        # with more than one thread, Eigen's matrix products are a fifth faster than those that XLA prefers
        os.environ["XLA_FLAGS"] = "--xla_cpu_experimental_ynn_fusion_type="


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=2, cutoff=0.5)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def _train(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: genepool train PRESET TASK [options]\n\n" + HELP[HELP.index("presets:") :], end="")
        return 0
    preset, *rest = argv
    if preset not in PRESETS:
        raise UserError(f"there is no preset {preset!r}{_nearest(preset, PRESETS)}: choose {', '.join(PRESETS)}")
    task = rest.pop(0) if rest and not rest[0].startswith("-") else None
    if task is None and not {"-h", "--help"} & set(rest):
        raise UserError(f"train what? genepool train {preset} TASK, for example HalfCheetah-v5")

    import tyro

    from genepool import algorithms
    from genepool.runs.training import train

    function = algorithms.PRESETS[preset]
    engine, rest = _taken(rest, "engine")
    default = function(task or "HalfCheetah-v5", engine=engine)
    for part in PARTS:
        name, rest = _taken(rest, part)
        default = with_part(default, part, name) if name else default

    @dataclass(frozen=True)
    class Train:
        frames: float = 1e6
        """Frames to train for, as the paper counts them: population and exploration, not tests."""
        seed: int = 0
        """Same seed, same bits."""
        run: Path | None = None
        """Where to keep the run; by default runs/<preset>-<task>-s<seed>-<time>."""
        tensorboard: bool = False
        """Write TensorBoard events into the run folder."""
        algorithm: Annotated[type(default), tyro.conf.arg(name="")] = default

    description = (
        f"{function.__doc__}\n\nThe defaults are the paper's for the task. --crossover, --mutation, --learner and --evolver each "
        "take another part by name (row-copy, distillation, gaussian, proximal, none)."
    )
    options = _parsed(Train, f"genepool train {preset} {task or 'TASK'}", rest, description)
    run = train(options.algorithm, options.frames, options.seed, options.run, preset, tensorboard=options.tensorboard)
    return _drive(run)


def _parsed(target: Any, program: str, argv: list[str], description: str | None = None) -> Any:
    """What tyro makes of the arguments. Its complaints, drawn as boxes, become one line."""
    import tyro

    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            options = tyro.cli(
                target,
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
        said = itertools.takewhile(lambda line: not line.startswith(over), filter(None, lines))
        raise UserError(f"{' '.join(said) or 'the arguments are not understood'}: see {program} --help") from None
    return options


def _taken(argv: list[str], option: str) -> tuple[str | None, list[str]]:
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
    if name not in kinds:
        raise UserError(f"there is no {field} {name!r}{_nearest(name, kinds)}: choose {' or '.join(kinds)}")
    return replace(part, **{field: kinds[name]()})


def _words(kind: type) -> str:
    """RowCopy as row-copy, DDPG as ddpg, no part at all as none."""
    if kind is type(None):
        return "none"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


def _drive(run: Any) -> int:
    """Train to the end with a display; stop cleanly on Ctrl-C or SIGTERM; then say what came of it."""
    from rich.console import Console

    from genepool.runs.display import Display, test_score

    console = Console(highlight=False)
    received = []

    def on_signal(number: int, _: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)
        run.stop()
        if not console.is_terminal:
            console.print("stopping after this generation; Ctrl-C again stops at once")

    _introduce(run, console)
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    last: dict[str, Any] = {}
    try:
        with Display(run, console) as show:
            for record in run:
                show(record)
                last = record
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if run.done:
        last = last or (run.folder.records or [{}])[-1]
        score = test_score(last)
        who = "champion" if "champion_test" in last else "learner"
        if score is not None:
            console.print(f"{who}: {score:.1f} (mean of {len(last[f'{who}_test'])} test episodes)")
        console.print(f"run folder: {run.folder.path}", soft_wrap=True)
        _draw([run.folder], run.folder.curve_file, console)
        return 0
    console.print(
        f"stopped after generation {run.generation}; go on with: genepool resume {run.folder.path}", soft_wrap=True
    )
    return 128 + received[0] if received else 0


def _introduce(run: Any, console: Any) -> None:
    """Who trains on what, and the settings that the paper gives for the task."""
    algorithm, config = run.algorithm, run.folder.config
    engine = ", ".join(
        f"{name} {config['versions'][name]}" for name in (algorithm.task.engine, "mujoco") if name in config["versions"]
    )
    console.print(
        f"{run.preset} on {algorithm.task.id} ({engine}), seed {run.seed}, {run.frames_wanted:,} frames", soft_wrap=True
    )
    if algorithm.evolver:
        sigma = getattr(algorithm.evolver.mutation, "sigma", None)
        console.print(
            f"elite fraction {algorithm.evolver.elite_fraction}, trials {algorithm.trials}, sync period {algorithm.sync_period}"
            + (f", sigma {sigma}" if sigma is not None else ""),
            soft_wrap=True,
        )
    if run.generation:
        console.print(f"going on after generation {run.generation}", soft_wrap=True)


def _draw(folders: Sequence[Any], path: Path, console: Any) -> None:
    from genepool.analysis.curves import draw

    try:
        draw(folders, path)
        console.print(f"learning curve: {path}", soft_wrap=True)
    except UserError as error:
        console.print(f"no learning curve: {error}", soft_wrap=True)


def _resume(argv: list[str]) -> int:
    import tyro

    def resume(run: Annotated[Path, tyro.conf.Positional], task: str | None = None, frames: float | None = None) -> int:
        """Go on with a run from its last checkpoint, exactly as if it had never stopped.

        Args:
            run: The run folder.
            task: The task again, as module:function, where it is code of your own: a run folder holds no code.
            frames: Train up to this many frames instead of what the run was started with.
        """
        from genepool.runs.training import resume as resumed

        run = resumed(run, task, frames)
        if run.done:
            raise UserError(f"{run.folder.path} is finished at {run.frames:,} frames: give --frames for more")
        return _drive(run)

    return _parsed(resume, "genepool resume", argv)


def _evaluate(argv: list[str]) -> int:
    import tyro

    def evaluate(
        run: Annotated[Path, tyro.conf.Positional], episodes: int = 100, seed: int = 0, task: str | None = None
    ) -> int:
        """Play the champion of a run on fresh episodes, without noise.

        Args:
            run: The run folder.
            episodes: How many episodes.
            seed: Which episodes: the same seed plays the same ones.
            task: The task again, as module:function, where it is code of your own.
        """
        from genepool.runs.evaluation import evaluate as evaluated

        if episodes < 1:
            raise UserError(f"episodes must be 1 or more, not {episodes}")
        returns, facts = evaluated(run, episodes, seed, task)
        spread = f" ± {stdev(returns):.1f} (std)" if episodes > 1 else ""
        print(f"{facts['preset']} on {facts['task']}, champion at {facts['frames']:,} frames")
        print(
            f"return {fmean(returns):.1f}{spread}, from {min(returns):.1f} to {max(returns):.1f}, {episodes} episodes, seed {seed}"
        )
        return 0

    return _parsed(evaluate, "genepool evaluate", argv)


def _plot(argv: list[str]) -> int:
    import tyro

    def plot(runs: Annotated[tuple[Path, ...], tyro.conf.Positional], out: Path | None = None) -> int:
        """Draw the learning curves of one or several runs.

        Args:
            runs: Run folders.
            out: The PNG to write; by default curve.png in the run folder, or curves.png here for several.
        """
        from genepool.analysis.curves import draw
        from genepool.runs.folder import Folder

        if not runs:
            raise UserError("plot what? genepool plot RUN...; `genepool runs` shows what is there")
        path = out or (Folder(runs[0]).curve_file if len(runs) == 1 else Path("curves.png"))
        draw([Folder(run) for run in runs], path)
        print(path)
        return 0

    return _parsed(plot, "genepool plot", argv)


def _runs(argv: list[str]) -> int:
    import tyro

    def runs(folder: Annotated[Path, tyro.conf.Positional] = Path("runs")) -> int:
        """A table of the runs that are there.

        Args:
            folder: Where to look.
        """
        from rich.console import Console
        from rich.table import Table

        from genepool.runs.folder import Folder, summary

        found = sorted(config.parent for config in folder.glob("*/config.json"))
        if not found:
            raise UserError(f"there are no runs in {folder}: start one with genepool train")
        table = Table(
            "run", "preset", "task", "seed", "frames", "of", "champion", "learner", box=None, header_style="dim"
        )
        for path in found:
            table.add_row(path.name, *summary(Folder(path)))
        Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(table)
        return 0

    return _parsed(runs, "genepool runs", argv)


if __name__ == "__main__":
    sys.exit(main())
