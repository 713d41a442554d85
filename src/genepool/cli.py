"""The command line: train, resume, evaluate, plot, runs. Heavy modules are imported by the command that needs them."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, Literal

from genepool.errors import UserError
from genepool.options import PARTS, nearest, parsed, selections, taken, with_part

HELP = """\
genepool trains control policies by evolution and gradient learning together.

usage: genepool COMMAND ...

  train PRESET TASK   train a policy; every hyper-parameter is an option (genepool train PRESET --help)
  resume RUN          go on with a run from its last checkpoint, exactly as if it had never stopped
  evaluate RUN        play the champion of a run on fresh episodes
  plot RUN...         draw the learning curves of one or several runs
  runs [FOLDER]       a table of the runs that are there
  simulate SYSTEM TASK
                      how fast cem-rl, p-cem-rl or aes-rl would be on how many workers, on a simulated clock

presets:
  erl                 ERL: row-copy crossover, Gaussian mutation, DDPG
  perl                ERL with proximal mutation
  derl                ERL with distillation crossover
  pderl               ERL with both; --schedule asynchronous breeds one child at a time
  cem-rl              CEM, and TD3 teaches half of every sample; with --workers ray:5, P-CEM-RL
  aes-rl              AES-RL: every outcome moves the mean as soon as it is there
  one-plus-one-es     AES-RL's machinery with the (1+1)-ES and the one-fifth rule
  rank-es             the same with the rank-based strategy
  esac                ESAC: an evolution strategy, and SAC, which learns at selected times
  ddpg                a learner alone: DDPG, as ERL has it
  td3                 a learner alone: TD3
  sac                 a learner alone: SAC; as another's, --learner sac
  cem                 a strategy alone: the cross-entropy method
  es                  a strategy alone: OpenAI-ES

tasks: any Gymnasium id with Box observations and Box or Discrete actions, DM Control's by name (CheetahRun, WalkerWalk),
CyclicMDP, or module:function for an environment of your own

examples:
  genepool train pderl HalfCheetah-v5 --frames 1e6 --seed 3
  genepool train pderl Hopper-v5 --mutation.sigma 0.05 --learner.discount 0.999
  genepool train erl my_robot:make_env --run runs/robot
  genepool train aes-rl HalfCheetah-v5 --workers ray:9
  genepool train aes-rl Hopper-v5 --mean-rule linear-range --variance-rule fixed-n
  genepool train cem-rl HalfCheetah-v5 --evolver sep-cma-es
  genepool train esac Swimmer-v5 --evolver.pairs 10 --tuning none
  genepool resume runs/robot
"""
PRESETS = (
    *("erl", "perl", "derl", "pderl", "cem-rl", "aes-rl", "one-plus-one-es", "rank-es", "esac"),
    *("ddpg", "td3", "sac", "cem", "es"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    commands = {"train": _train, "resume": _resume, "evaluate": _evaluate, "plot": _plot, "runs": _runs}
    commands["simulate"] = _simulate
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    try:
        if argv[0] not in commands:
            raise UserError(f"there is no command {argv[0]!r}{nearest(argv[0], commands)}: see genepool --help")
        tune_jax(argv)
        sys.path.append(os.getcwd())  # a task of the user's own is looked for where the user stands
        return commands[argv[0]](argv[1:])
    except UserError as error:
        print(f"genepool: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
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
    # Eigen's matrix products are faster than those that XLA prefers: by a fifth with two threads, a little with one
    os.environ["XLA_FLAGS"] = "--xla_cpu_experimental_ynn_fusion_type="


def _train(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: genepool train PRESET TASK [options]\n\n" + HELP[HELP.index("presets:") :], end="")
        return 0
    preset, *rest = argv
    if preset not in PRESETS:
        raise UserError(f"there is no preset {preset!r}{nearest(preset, PRESETS)}: choose {', '.join(PRESETS)}")
    task = rest.pop(0) if rest and not rest[0].startswith("-") else None
    if task is None and not {"-h", "--help"} & set(rest):
        raise UserError(f"train what? genepool train {preset} TASK, for example HalfCheetah-v5")

    import tyro

    from genepool import algorithms
    from genepool.runs.training import train

    function = algorithms.PRESETS[preset]
    engine, rest = taken(rest, "engine")
    default = function(task or "HalfCheetah-v5", engine=engine)
    policy = taken(rest, "target-policy")[0]
    if policy in ("individual", "mean") and hasattr(default, "target_policy"):
        default = replace(default, target_policy=policy)  # first, for not every evolver goes with the preset's own
    for part in PARTS:
        name, rest = taken(rest, part)
        default = with_part(default, part.replace("-", "_"), name) if name else default
    schedule, rest = taken(rest, "schedule")
    if schedule not in (None, "synchronous", "asynchronous"):
        raise UserError(f"there is no schedule {schedule!r}: choose synchronous or asynchronous")
    default = default.scheduled(schedule) if schedule else default

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
        workers: str = "local"
        """Where candidates are tried: local (this process), or ray:N for N workers of a Ray cluster."""
        address: str | None = None
        """The Ray cluster to join; none: one is started on this machine, for this run alone."""
        algorithm: Annotated[type(default), tyro.conf.arg(name="")] = default

    description = (
        f"{function.__doc__}\n\nThe defaults are the paper's for the task. {selections(default)}"
        "--schedule synchronous or asynchronous takes another schedule than the preset's."
    )
    options = parsed(Train, f"genepool train {preset} {task or 'TASK'}", rest, description)
    run = train(
        options.algorithm,
        options.frames,
        options.seed,
        options.run,
        preset,
        options.workers,
        options.tensorboard,
        options.address,
    )
    return _drive(run)


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
    settings = ", ".join(f"{name} {value}" for name, value in algorithm.settings().items())
    if settings:
        console.print(settings, soft_wrap=True)
    if run.where != "local" or algorithm.schedule == "asynchronous":
        console.print(f"{algorithm.schedule} schedule, workers {run.where}", soft_wrap=True)
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

    def resume(
        run: Annotated[Path, tyro.conf.Positional],
        task: str | None = None,
        frames: float | None = None,
        workers: str | None = None,
        address: str | None = None,
    ) -> int:
        """Go on with a run from its last checkpoint, exactly as if it had never stopped.

        Args:
            run: The run folder.
            task: The task again, as module:function, where it is code of your own: a run folder holds no code.
            frames: Train up to this many frames instead of what the run was started with.
            workers: Where candidates are tried, local or ray:N; none: as the run was started.
            address: The Ray cluster to join; none: one is started on this machine.
        """
        from genepool.runs.training import resume as resumed

        run = resumed(run, task, frames, workers, address)
        if run.done:
            raise UserError(f"{run.folder.path} is finished at {run.frames:,} frames: give --frames for more")
        return _drive(run)

    return parsed(resume, "genepool resume", argv)


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

    return parsed(evaluate, "genepool evaluate", argv)


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

    return parsed(plot, "genepool plot", argv)


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

    return parsed(runs, "genepool runs", argv)


def _simulate(argv: list[str]) -> int:
    import tyro

    def simulate(
        preset: Annotated[Literal["aes-rl", "p-cem-rl", "cem-rl"], tyro.conf.Positional],
        task: Annotated[str, tyro.conf.Positional],
        workers: str = "1,2,4,5,8,9,16,32,64,128,256,512,1024",
        frames: float = 1e6,
        costs: Literal["measured", "authors"] = "measured",
        out: Path = Path("scaling.png"),
    ) -> int:
        """How long a million frames would take on how many workers, and how much of that the workers would wait.

        The schedules are the real ones, on a simulated clock. What a critic step, an actor step and an environment step cost
        is measured on this machine first, one thread each.

        Args:
            preset: The system; those it is compared with (AES-RL's Table 1) come with it.
            task: The task, whose episode lengths are measured.
            workers: Numbers of workers, with commas.
            frames: Frames to simulate.
            costs: The steps' costs: measured here, or fitted to the authors' machine from their Table 1.
            out: The PNG to write.
        """
        from genepool.analysis import costs as machine
        from genepool.analysis import scaling, scaling_report
        from genepool.environments.task import find

        counts = [word for word in workers.split(",") if word]
        if not counts or not all(word.strip().isdigit() and int(word) > 0 for word in counts):
            raise UserError(f"workers are numbers above 0 with commas, such as 1,2,4, not {workers!r}")
        found = find(task)
        print("measuring the lengths of episodes", file=sys.stderr)
        lengths = machine.measure_lengths(found)
        price = machine.AUTHORS
        if costs == "measured":
            print("measuring the costs of critic, actor and environment steps", file=sys.stderr)
            price = machine.costs_of("aes-rl" if preset == "aes-rl" else "cem-rl", found)
        print(
            f"{task}: a critic step {1e3 * price.critic:.2f} ms, an actor step {1e3 * price.actor:.2f} ms, "
            f"an environment step {1e3 * price.environment:.3f} ms ({costs}); episodes of {fmean(lengths):.0f} frames"
        )
        print("simulating", file=sys.stderr)
        rows = scaling.simulate(preset, price, lengths, [int(word) for word in counts], frames)
        print(scaling_report.table(rows, task))
        scaling_report.draw(rows, out, task)
        print(f"figure: {out}")
        return 0

    return parsed(simulate, "genepool simulate", argv)


if __name__ == "__main__":
    sys.exit(main())
