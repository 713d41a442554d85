"""genepool train: a preset on a task, with every hyper-parameter an option."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genepool.algorithms.presets import PRESETS, list_of_presets
from genepool.cli.options import algorithm_and_options, part_names, take_option
from genepool.errors import UserError, did_you_mean

HELP = f"""\
presets:
{list_of_presets()}
A preset has a coupling, the way in which gradients enter evolution: a clone of the learner in the population (erl,
perl, derl, pderl), lessons for individuals (cem-rl, aes-rl, one-plus-one-es, rank-es), or phases of the learner (esac).
Choose any evolver and any learner: --evolver generational-ga, steady-state-ga, cem, asynchronous-es, rank-es, openai-es
or one of evosax's; --learner ddpg, td3 or sac. Give a part of your own as module:Class, and a coupling of your own as
module:Class in place of the preset.

tasks: Gymnasium ids with Box observations and Box or Discrete actions, DM Control's by name (CheetahRun, WalkerWalk),
CyclicMDP, HalfCheetahHilly and HalfCheetahRllab with their like (GPO's), or module:function for an environment of
your own. A Gymnasium task may have options, the keyword arguments of the environment:
'HopperHilly?difficulty=0.5&terrain_seed=3'

examples:
  genepool train pderl HalfCheetah-v5 --frames 1e6 --seed 3
  genepool train pderl Hopper-v5 --sigma 0.05 --learner.discount 0.999
  genepool train pderl Hopper-v5 --evolver cem --learner sac
  genepool train erl my_robot:make_env --run runs/robot
  genepool train pderl Hopper-v5 --mutation my_parts:Mine
  genepool train aes-rl HalfCheetah-v5 --workers ray:9
  genepool train aes-rl Hopper-v5 --mean-rule linear-range --variance-rule fixed-n
  genepool train cem-rl HalfCheetah-v5 --evolver sep-cma-es
  genepool train esac Swimmer-v5 --pairs 10 --tuning none
  genepool train gpo HalfCheetah-v5 --mutation a2c --no-sharing
  genepool resume runs/robot --task my_robot:make_env
"""


@dataclass(frozen=True)
class General:
    """The options that every run has."""

    frames: float | None = None
    """Frames to train for, as the paper counts them: population and exploration, not tests. None: a million; for GPO,
    those of its rounds."""
    seed: int = 0
    """Same seed, same bits."""
    run: Path | None = None
    """The run folder; by default runs/<preset>-<task>-s<seed>-<time>."""
    tensorboard: bool = False
    """Write TensorBoard events into the run folder."""
    workers: str = "local"
    """Where candidates are tried: local (this process), or ray:N for N workers of a Ray cluster."""
    address: str | None = None
    """The Ray cluster to join. None: a cluster is started on this machine for this run."""


def main(argv: list[str]) -> int:
    """Run `genepool train` with these arguments; the exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: genepool train PRESET TASK [options]\n\n" + HELP, end="")
        return 0
    algorithm, options = chosen("train", argv)

    from genepool.follow import follow
    from genepool.runs.training import start

    named = {name: getattr(options, name) for name in ("frames", "seed", "run", "workers", "tensorboard", "address")}
    return follow(start(algorithm, **named))


def chosen(command: str, argv: list[str]) -> tuple[Any, Any]:
    """The algorithm that preset, task and options make, and the general options of `genepool train`."""
    preset, *rest = argv
    if preset not in PRESETS and ":" not in preset:
        raise UserError(f"there is no preset {preset!r}{did_you_mean(preset, PRESETS)}: choose {', '.join(PRESETS)}")
    task = rest.pop(0) if rest and not rest[0].startswith("-") else None
    if task is None and not {"-h", "--help"} & set(rest):
        raise UserError(f"{command} what? genepool {command} {preset} TASK, for example HalfCheetah-v5")

    from genepool.algorithms.assemble import chosen_parts, find_spec

    engine, rest = take_option(rest, "engine")
    spec = find_spec(preset, task or "HalfCheetah-v5", engine)
    described = PRESETS[preset].doc if preset in PRESETS else (spec.coupling.__doc__ or "")
    about = f"{described}\n\nThe defaults are the paper's for the task. {part_names(chosen_parts(spec, {}))}"
    about += "An option is a dotted path, or its end where no other path ends so."
    return algorithm_and_options(f"genepool {command} {preset} {task or 'TASK'}", spec, General, rest, about)
