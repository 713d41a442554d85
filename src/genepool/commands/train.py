"""genepool train: a preset on a task, with every hyper-parameter an option."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from genepool.commands.drive import drive
from genepool.errors import UserError
from genepool.options import PARTS, nearest, parsed, selections, taken, with_part

HELP = """\
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
  gpo                 GPO: policies mutated by PPO (--mutation a2c: by A2C), whose couples have children that imitate both;
                      --no-crossover, --no-selection, --no-sharing take a part of it away
  single              GPO's baseline: as many policies, each on its own, of which the best counts
  joint               GPO's baseline: one policy with the batches of all
  ddpg                a learner alone: DDPG, as ERL has it
  td3                 a learner alone: TD3
  sac                 a learner alone: SAC; as another's, --learner sac
  ppo                 a learner alone: PPO, as it is used today
  a2c                 a learner alone: A2C
  cem                 a strategy alone: the cross-entropy method
  es                  a strategy alone: OpenAI-ES

tasks: any Gymnasium id with Box observations and Box or Discrete actions, DM Control's by name (CheetahRun, WalkerWalk),
CyclicMDP, HalfCheetahHilly and HalfCheetahRllab with their like (GPO's), or module:function for an environment of your own;
Gymnasium's may have options, the keyword arguments of the environment: 'HopperHilly?difficulty=0.5&terrain_seed=3'

examples:
  genepool train pderl HalfCheetah-v5 --frames 1e6 --seed 3
  genepool train pderl Hopper-v5 --mutation.sigma 0.05 --learner.discount 0.999
  genepool train erl my_robot:make_env --run runs/robot
  genepool train aes-rl HalfCheetah-v5 --workers ray:9
  genepool train aes-rl Hopper-v5 --mean-rule linear-range --variance-rule fixed-n
  genepool train cem-rl HalfCheetah-v5 --evolver sep-cma-es
  genepool train esac Swimmer-v5 --evolver.pairs 10 --tuning none
  genepool train gpo HalfCheetah-v5 --mutation a2c --no-sharing
  genepool resume runs/robot
"""
PRESETS = (
    *("erl", "perl", "derl", "pderl", "cem-rl", "aes-rl", "one-plus-one-es", "rank-es", "esac"),
    *("gpo", "single", "joint", "ddpg", "td3", "sac", "ppo", "a2c", "cem", "es"),
)


def main(argv: list[str]) -> int:
    """Run `genepool train` with these arguments; the exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: genepool train PRESET TASK [options]\n\n" + HELP, end="")
        return 0
    preset, options = chosen("train", argv)

    from genepool.runs.training import train

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
    return drive(run)


def chosen(command: str, argv: list[str]) -> tuple[str, Any]:
    """The preset, and what the options make of it: `algorithm`, `frames`, `seed` and the rest of `genepool train`."""
    preset, *rest = argv
    if preset not in PRESETS:
        raise UserError(f"there is no preset {preset!r}{nearest(preset, PRESETS)}: choose {', '.join(PRESETS)}")
    task = rest.pop(0) if rest and not rest[0].startswith("-") else None
    if task is None and not {"-h", "--help"} & set(rest):
        raise UserError(f"{command} what? genepool {command} {preset} TASK, for example HalfCheetah-v5")

    import tyro

    from genepool import algorithms

    function = algorithms.PRESETS[preset]
    engine, rest = taken(rest, "engine")
    default = function(task or "HalfCheetah-v5", engine=engine)
    policy = taken(rest, "target-policy")[0]
    if policy in ("individual", "mean") and hasattr(default, "target_policy"):
        default = replace(default, target_policy=policy)  # first, for not every evolver goes with the preset's own
    for part in PARTS:
        name, rest = taken(rest, part)
        if f"--no-{part}" in rest:
            name, rest = "none", [word for word in rest if word != f"--no-{part}"]
        default = with_part(default, part.replace("-", "_"), name) if name else default
    schedule, rest = taken(rest, "schedule")
    if schedule not in (None, "synchronous", "asynchronous"):
        raise UserError(f"there is no schedule {schedule!r}: choose synchronous or asynchronous")
    default = default.scheduled(schedule) if schedule else default

    @dataclass(frozen=True)
    class Train:
        frames: float | None = None
        """Frames to train for, as the paper counts them: population and exploration, not tests. None: what GPO's rounds take, a
        million of any other."""
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
    options = parsed(Train, f"genepool {command} {preset} {task or 'TASK'}", rest, description)
    if options.frames is None:
        options = replace(options, frames=getattr(options.algorithm, "budget", 1e6))
    return preset, options
