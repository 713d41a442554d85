"""The command line: train, resume, evaluate, plot, runs. Heavy modules are imported by the command that needs them."""

import difflib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

from genepool.errors import UserError

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
        _tune_jax()
        return commands[argv[0]](argv[1:])
    except UserError as error:
        print(f"genepool: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("genepool: stopped at once; `genepool resume` goes on from the last checkpoint", file=sys.stderr)
        return 130


def _tune_jax() -> None:
    """Settings that must be made before JAX is imported. What the user has set stays."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


def _nearest(word: str, known: Sequence[str]) -> str:
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

    from genepool.algorithms import ALGORITHMS, PRESETS as functions
    from genepool.runs.training import train

    engine, rest = _without(rest, "--engine")
    algorithm = functions[preset](task or "HalfCheetah-v5", **({"engine": engine} if engine else {}))
    algorithm, rest = _with_named_parts(algorithm, rest)

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
        algorithm: Annotated[type(algorithm), tyro.conf.arg(name="")] = algorithm

    options = tyro.cli(
        Train,
        prog=f"genepool train {preset} {task or 'TASK'}",
        description=f"{functions[preset].__doc__} Defaults are the paper's for the task. "
        "--crossover, --mutation, --learner and --evolver take another part by name, or none.",
        args=rest,
        config=(tyro.conf.AvoidSubcommands, tyro.conf.FlagConversionOff),
    )
    _check(options.algorithm)
    _import_tensorboard(options.tensorboard)
    run = train(options.algorithm, options.frames, options.seed, options.run, preset, tensorboard=options.tensorboard)
    return _drive(run)


def _without(argv: list[str], option: str) -> tuple[str | None, list[str]]:
    """The value of an option, and the arguments without it."""
    for k, word in enumerate(argv):
        if word == option and k + 1 < len(argv):
            return argv[k + 1], argv[:k] + argv[k + 2 :]
        if word.startswith(option + "="):
            return word.partition("=")[2], argv[:k] + argv[k + 1 :]
    return None, argv
