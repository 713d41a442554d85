"""The plan of training runs behind docs/results.md, and the program that runs it. It may be stopped and begun again
at any time.

    python -m benchmarks.results [--list] [--only PATTERN] [--jobs 2] [--runs runs/results]
    python -m benchmarks.results --workers ray:8 [--address HOST:PORT]
    python -m benchmarks.results --collect          # nothing is trained; what is finished goes to results/
    python -m benchmarks.results_page               # docs/results.md of what is in results/

Every run is a process of its own with one core and one thread. A run that is finished is not trained again; one that
was cut short goes on from its last checkpoint. Ctrl-C, once, has the runs save themselves. What is finished goes to
results/ as a small CSV and its configuration; the run folders stay where they are.
"""

import argparse
import importlib
import shlex
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.runs import cluster, runner
from benchmarks.runs.jobs import Job, progress
from benchmarks.runs.tables import collect
from genepool.analysis.verify.band import find_band
from genepool.analysis.verify.published import published_returns
from genepool.cli.commands.train import PRESETS


@dataclass(frozen=True)
class Row:
    """Systems that are compared on a task. A system is a preset and options of `genepool train`."""

    systems: dict[str, str]
    task: str
    frames: int
    seeds: int
    against: str  # what it is compared with
    as_published: bool = False  # with the networks and rates of the published results
    also_shown: tuple[str, ...] = ()  # systems of other rows in the same figure
    engine: str = "envpool"  # one for all: engines have other versions of MuJoCo, so their numbers are not compared


LEARNERS = {"TD3": "td3", "SAC": "sac", "DDPG": "ddpg"}
ERLS = {"ERL": "erl", "PERL": "perl", "DERL": "derl", "PDERL": "pderl"}
PLAN = (
    Row(LEARNERS, "HalfCheetah-v5", 100_000, 3, "the bands of published results", as_published=True),
    Row(
        {"TD3": "td3", "SAC": "sac"},
        "Hopper-v5",
        100_000,
        2,
        "the bands, of other versions of Hopper",
        as_published=True,
    ),
    Row({"CEM": "cem"}, "Swimmer-v5", 500_000, 2, "351 at a million frames, cited in AES-RL's Table 3"),
    Row(
        {"CEM-RL": "cem-rl", "AES-RL": "aes-rl", "TD3 with tanh actors": "td3"},
        "HalfCheetah-v5",
        100_000,
        2,
        "TD3 at equal true frames",
        also_shown=("TD3",),
    ),
    Row(ERLS, "Swimmer-v5", 500_000, 2, "each other; PDERL's Table 1 has 327 to 337 at 2 million frames"),
    Row({"ERL": "erl", "PDERL": "pderl"}, "HalfCheetah-v5", 300_000, 2, "each other"),
    Row(
        {"PDERL with TD3": "pderl --learner td3", "asynchronous PDERL": "pderl --schedule asynchronous"},
        "HalfCheetah-v5",
        300_000,
        1,
        "PDERL",
        also_shown=("PDERL",),
    ),
    Row({"CEM": "cem"}, "HalfCheetah-v5", 500_000, 2, "2940 at a million frames, cited in AES-RL's Table 3"),
    Row(
        {"ES": "es", "ESAC": "esac"},
        "Swimmer-v5",
        1_000_000,
        2,
        "each other, and SAC at equal true frames",
        also_shown=("SAC",),
    ),
    Row(
        {"ES": "es", "ESAC": "esac", "ESAC of ten pairs": "esac --evolver.pairs 10", "SAC": "sac"},
        "LunarLanderContinuous-v3",
        300_000,
        2,
        "each other",
    ),
    Row({"SAC": "sac"}, "Swimmer-v5", 1_000_000, 1, "46 at a million frames, cited in AES-RL's Table 3"),
    Row(
        {"GPO": "gpo", "Single": "single", "Joint": "joint"},
        "HalfCheetah-v5",
        8_000_000,
        2,
        "the order of GPO's Table 1, on rllab's task: 2101 GPO, 1766 Joint, 1524 Single",
    ),
)


def jobs_of(plan: tuple[Row, ...]) -> list[Job]:
    """The runs of a plan, in order: row by row, and in a row the first seed of every system first."""
    points, jobs = published_returns(), []
    for row in plan:
        for seed in range(row.seeds):
            for system, words in row.systems.items():
                preset, *options = shlex.split(words)
                options += ["--engine", row.engine]
                if row.as_published:
                    options += shlex.split(find_band(preset, row.task, row.frames, points).settings.settings)
                name = f"{system.lower().replace(' ', '-')}-{row.task}-{row.frames // 1000}k-s{seed}"
                jobs.append(Job(name, preset, row.task, row.frames, seed, tuple(options)))
    return jobs


def main(argv: list[str] | None = None) -> int:
    """Run the plan; the exit code: 0 if all of it is done, 1 if a run failed, 130 if it was stopped."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description="run the plan of results")
    parser.add_argument("--list", action="store_true", help="show the runs and how far they are, and train nothing")
    parser.add_argument("--collect", action="store_true", help="only write what is finished to results/")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="runs of this name, such as 'td3-*-s0'")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, each on a core of its own")
    parser.add_argument("--runs", type=Path, default=Path("runs/results"), help="where the run folders are")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where the tables go")
    parser.add_argument("--workers", default="local", help="local, or ray:N for N runs at a time on a Ray cluster")
    parser.add_argument("--address", help="the Ray cluster to join; none: one is started here")
    parser.add_argument("--plan", default="benchmarks.results:PLAN", help="another plan, as module:name")
    options = parser.parse_args(argv)
    module, _, name = options.plan.partition(":")
    try:
        plan = PLAN if options.plan == parser.get_default("plan") else getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        parser.error(f"there is no plan {options.plan!r}, which should be module:name: {error}")
    jobs = [job for job in jobs_of(plan) if fnmatch(job.name, options.only)]
    if not jobs:
        parser.error(f"no run of the plan is named {options.only!r}: --list shows them all")
    runs, results = options.runs.absolute(), options.results
    if options.list:
        for job in jobs:
            print(f"{job.name:45} {state_of(job, runs)}")
        return 0
    ready = [job for job in jobs if job.preset in PRESETS]
    for job in jobs:
        if job not in ready:
            print(f"{job.name}: left out, there is no preset {job.preset!r} here")
    for job in ready:
        collect(job, runs, results)
    if options.collect:
        return 0
    if options.workers == "local":
        return runner.work(ready, runs, results, options.jobs)
    return cluster.spread(ready, runs, results, options.workers, options.address)


def state_of(job: Job, runs: Path) -> str:
    """How far a run is, in words."""
    if job.preset not in PRESETS:
        return f"no preset {job.preset!r} here"
    frames = progress(job, runs)[0]
    return "done" if frames >= job.frames else f"{100 * frames // job.frames} %" if frames else "not begun"


if __name__ == "__main__":
    sys.exit(main())
