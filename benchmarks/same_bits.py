"""Whether two checkouts of genepool train the same bits: the first records of small runs of every preset, old beside new.

    python -m benchmarks.same_bits --old PATH [--new PATH] [--only PATTERN ...] [--keep DIR]

Both sides run on this machine with this Python, from the command line alone, for that changes least. What is compared is
every line of metrics.jsonl but its clock, and the arrays of champion.safetensors. The new side is this checkout if none
is named. With `--keep` the runs stay in DIR, and the old side's are not played again while its source is the same. On Ray
only synchronous runs are compared: asynchronous ones depend on who is done first.

Exit code 1: a case differs, fails, or does not show what it is there for, such as a lesson.
"""

import argparse
import contextlib
import faulthandler
import fnmatch
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
CLOCKED = ("seconds", "wall", "moments")  # the keys of a record that tell the time
FEWEST = 3  # records of a case
PATIENCE = 300.0  # seconds that a case may take
VERSIONS = ("jax", "jaxlib", "numpy", "numba", "equinox", "mujoco", "envpool", "gymnasium", "evosax", "ray")


@dataclass(frozen=True)
class Case:
    """A small run: the arguments of `genepool train`, and what its records must show."""

    preset: str
    options: str
    shows: str = ""  # words that must occur in its records, see `shown`
    task: str = "Hopper-v5"  # some of its short episodes end early, others at the limit
    frames: int | None = 700
    stopped: int | None = None  # frames after which the run ends at first, and is then resumed
    spelt: str | None = None  # the options once more, for a checkout that refuses the first spelling

    def commands(self, options: str, folder: Path) -> list[list[str]]:
        """The calls of genepool, one after the other."""
        first = self.stopped or self.frames
        words = ["train", self.preset, self.task, *options.split(), "--seed", "3", "--run", str(folder)]
        calls = [words + (["--frames", str(first)] if first else [])]
        if self.stopped:
            again = ["--task", self.task] if ":" in self.task else []
            calls.append(["resume", str(folder), "--frames", str(self.frames), *again])
        return calls


BRIEF = "--max-steps 60 --test-episodes 2 --hidden 8 8 "
REPLAY = BRIEF + "--replay 2000 --learner.batch-size 16 "
GENETIC = REPLAY + "--population 4 --trials 2 --memory 300 --learner.warmup 64 "
ALONE = REPLAY + "--learner.warmup 64 --test-every 2 "
CRITIC = "--learner.critic-hidden 8 8 "
LESSONS = REPLAY + CRITIC + "--evolver.population 4 "
CEM = LESSONS + "--lessons.taught 2 --warmup 100 "
RANK = LESSONS + "--warmup 60 --critic-head-start 60 "
AES = RANK + "--reference-episodes 2 "
PAIRS = "--evolver.pairs 3 --test-every 1 "
PHASES = PAIRS + "--evolver.injected 1 --sac-episodes 2 --gradient-interval 1 --learner.warmup 32 "
ESAC = REPLAY + CRITIC + PHASES
RANDOM = "--learner.random-frames 32 "
PPO = BRIEF + "--batch 120 --test-every 2 "
SHARED = PPO + "--population 3 "
CROSSOVER = (
    "--crossover.iterations 1 --crossover.selector-epochs 2 --crossover.expert-frames 100 "
    "--crossover.student-frames 20 --crossover.dagger 2 --crossover.epochs 2 "
)
GPO = SHARED + "--rounds 2 --iterations 2 "

PRESETS = {
    "erl": Case("erl", GENETIC, "updates RowCopy Gaussian elite clone exploration"),
    "perl": Case("perl", GENETIC, "updates RowCopy Proximal elite clone exploration"),
    "derl": Case("derl", GENETIC, "updates Distillation Gaussian elite clone exploration"),
    "pderl": Case("pderl", GENETIC, "updates Distillation Proximal elite clone exploration"),
    "cem-rl": Case("cem-rl", CEM, "updates lesson"),
    "aes-rl": Case("aes-rl", AES, "updates lesson warm-up reference"),
    "one-plus-one-es": Case("one-plus-one-es", AES, "updates lesson warm-up reference"),
    "rank-es": Case("rank-es", RANK, "updates lesson warm-up"),
    "esac": Case("esac", ESAC + RANDOM, "updates phases winner mother learner exploration", frames=900),
    "gpo": Case("gpo", GPO + CROSSOVER, "updates couples expert student StateSpace PPO", frames=None),
    "single": Case("single", SHARED, "updates PPO", frames=1000),
    "joint": Case("joint", BRIEF + "--batch 240 ", "updates PPO"),
    "ddpg": Case("ddpg", ALONE, "updates exploration", frames=300),
    "td3": Case("td3", ALONE + CRITIC, "updates exploration", frames=300),
    "sac": Case("sac", ALONE + CRITIC + "--learner.random-frames 64 ", "updates exploration", frames=300),
    "ppo": Case("ppo", PPO, "updates PPO", frames=480),
    "a2c": Case("a2c", PPO, "updates A2C", frames=480),
    "cem": Case("cem", BRIEF + "--evolver.population 4 --trials 2 "),
    "es": Case("es", BRIEF + PAIRS, "mother"),
}


def _varied(name: str, options: str = "", **fields: Any) -> Case:
    """A preset's case with more options, or other fields."""
    case = PRESETS[name]
    return replace(case, options=case.options + options, **fields)


AT_ONCE = "--schedule asynchronous "
CASES = PRESETS | {
    "pderl, asynchronous": _varied("pderl", AT_ONCE, shows="updates Distillation Proximal clone exploration"),
    "cem-rl, asynchronous": _varied("cem-rl", AT_ONCE),
    "esac, asynchronous": _varied("esac", AT_ONCE),
    "aes-rl, synchronous": _varied("aes-rl", "--schedule synchronous "),
    "pderl, resumed": _varied("pderl", stopped=200),
    "pderl, asynchronous and resumed": _varied(
        "pderl", AT_ONCE, shows="updates Distillation Proximal clone exploration", stopped=200
    ),
    "cem-rl, resumed": _varied("cem-rl", stopped=230),
    "cem-rl, asynchronous and resumed": _varied("cem-rl", AT_ONCE, stopped=230),
    "aes-rl, resumed": _varied("aes-rl", stopped=230),
    "one-plus-one-es, resumed": _varied("one-plus-one-es", stopped=230),
    "rank-es, resumed": _varied("rank-es", stopped=230),
    "esac, resumed": _varied("esac", stopped=200),
    "esac, asynchronous and resumed": _varied("esac", AT_ONCE, stopped=200),
    "gpo, resumed": _varied("gpo", stopped=700, frames=1700),
    "td3, resumed": _varied("td3", stopped=150),
    "sac, resumed": _varied("sac", stopped=150),
    "ddpg, resumed": _varied("ddpg", stopped=150),
    "ppo, resumed": _varied("ppo", stopped=150),
    "cem, resumed": _varied("cem", stopped=200),
    "es, resumed": _varied("es", stopped=200),
    "pderl on Swimmer": _varied("pderl", "--sync-period 1 ", task="Swimmer-v5", frames=1300),
    "esac on HalfCheetah": _varied("esac", task="HalfCheetah-v5", frames=1500),
    "pderl on a task of one's own": _varied("pderl", "--sync-period 1 ", task="tasks:Reach", stopped=200),
    "es on the cyclic MDP": _varied("es", task="CyclicMDP-v0", frames=60),
    "gpo on the cyclic MDP": _varied("gpo", task="CyclicMDP-v0"),
    "pderl with TD3": _varied("pderl", "--learner td3 " + CRITIC),
    "cem-rl with SAC": _varied("cem-rl", "--learner sac "),
    "cem-rl with Sep-CMA-ES": _varied("cem-rl", "--evolver sep-cma-es "),
    "cem-rl, newest critic": _varied("cem-rl", "--target-policy mean --lesson-critic newest --critic-chunk 50 "),
    "aes-rl, references kept": _varied("aes-rl", "--reference-cache "),
    "aes-rl, other rules": _varied("aes-rl", "--mean-rule absolute-baseline --variance-rule fixed-n --warmup-told "),
    "esac, a phase at a time": _varied("esac", "--learns-after phase --share-experience "),
    "esac with TD3": Case("esac", ESAC + "--learner td3 ", "updates phases learner exploration", frames=900),
    "gpo by A2C, no sharing": Case(
        "gpo", GPO + CROSSOVER + "--mutation a2c --no-sharing ", "couples student A2C", frames=None
    ),
    "gpo, weights crossed": Case("gpo", GPO + "--crossover parameter-space ", "couples ParameterSpace", frames=None),
    "cem-rl, ray": _varied("cem-rl", "--workers ray:2 "),
    "esac, ray": _varied("esac", "--workers ray:2 "),
    "pderl, ray": _varied("pderl", "--workers ray:2 "),
}


def shown(records: Sequence[dict[str, Any]]) -> set[str]:
    """What happened in these records: operators, purposes, gradient steps, phases, clones, couples, references."""
    candidates = [candidate for record in records for candidate in record["candidates"]]
    words = {word for one in candidates for word in (*one["operators"], one["purpose"])}
    words |= {word.title().replace(" ", "") for word in words}  # "row copy" is RowCopy
    words |= {"reference"} if any("reference" in one for one in candidates) else set()
    return words | {name for name in ("updates", "phases", "clone", "couples") if any(r.get(name) for r in records)}


class Side:
    """One of the two checkouts, and the process that trains with it."""

    def __init__(self, checkout: Path, folder: Path, reuse: bool):
        self.checkout, self.folder, self.reuse = checkout, folder, reuse
        self._process: subprocess.Popen | None = None
        files = sorted((checkout / "src").rglob("*.py"))
        if not files:
            sys.exit(f"{checkout} is no checkout of genepool: it has no src")
        versions = {package.name: package.version for package in metadata.distributions() if package.name in VERSIONS}
        digest = hashlib.sha256(json.dumps(versions, sort_keys=True).encode())
        for file in files:
            digest.update(str(file.relative_to(checkout)).encode() + file.read_bytes())
        self._source = digest.hexdigest()

    def run(self, name: str, case: Case) -> tuple[Path, str, str]:
        """The run folder of a case, how long it took, and what went wrong."""
        folder = self.folder / re.sub(r"\W+", "-", name)
        mark = folder.with_suffix(".json")  # written last: only whole runs have one
        identity = json.dumps({"source": self._source, "case": asdict(case)})
        if self.reuse and mark.exists() and mark.read_text() == identity:
            return folder, "kept", ""
        mark.unlink(missing_ok=True)
        begun, code = time.perf_counter(), 2
        for options in filter(None, (case.options, case.spelt)):
            if code == 2:  # the spelling was refused
                shutil.rmtree(folder, ignore_errors=True)
                code = self._call(case.commands(options, folder), folder.with_suffix(".log"))
        seconds = f"{time.perf_counter() - begun:.1f} s"
        if code:
            self.close()  # what has failed once is not trusted again
            return folder, seconds, f"exit code {code}, see {folder.with_suffix('.log')}"
        mark.write_text(identity)
        return folder, seconds, ""

    def _call(self, commands: list[list[str]], log: Path) -> int:
        if self._process is None:
            self._process = self._start()
        print(json.dumps({"commands": commands, "log": str(log)}), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        return int(answer) if answer else self._process.wait() or 1

    def _start(self) -> subprocess.Popen:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join(str(part) for part in (self.checkout / "src", HERE / "tests"))  # tasks of one's own
        environment = {"JAX_PLATFORMS": "cpu"} | os.environ | {"PYTHONPATH": path}
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "--serve", str(self.checkout)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(command, cwd=self.folder, env=environment, text=True, **pipes)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
            self._process.kill()
            self._process.stdout.close()
            self._process = None


def serve(checkout: Path) -> None:
    """Run the commands of each line that comes in, in this process, and answer with the exit code."""
    answers = os.fdopen(os.dup(1), "w")
    import genepool
    from genepool import cli

    if not Path(genepool.__file__).is_relative_to(checkout):
        sys.exit(f"genepool was imported from {genepool.__file__}, not from {checkout}")
    for line in sys.stdin:
        job = json.loads(line)
        with open(job["log"], "w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            code = next((code for words in job["commands"] if (code := _called(cli, words))), 0)
            faulthandler.cancel_dump_traceback_later()
            sys.stdout.flush()
            sys.stderr.flush()
        print(code, file=answers, flush=True)


def _called(cli: Any, words: list[str]) -> int:
    try:
        return cli.main(words)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except Exception:
        traceback.print_exc()
        return 1


def first_difference(old: Path, new: Path) -> str:
    """The first record and key in which two runs differ, else the first array of their champions; empty if none does."""
    sides = read(old), read(new)
    for number, (one, other) in enumerate(zip(*sides, strict=False), 1):
        for key, *values in unlike(one, other):
            return f"record {number}, {key}: {values[0]} | {values[1]}"
    if len(sides[0]) != len(sides[1]):
        return f"records: {len(sides[0])} | {len(sides[1])}"
    champions = [arrays(folder / "champion.safetensors") for folder in (old, new)]
    for key, *values in unlike(*champions):
        return f"champion, {key}: {values[0]} | {values[1]}"
    return ""


def read(folder: Path) -> list[dict[str, Any]]:
    """The records of a run without their clock."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key not in CLOCKED} for record in records]


def arrays(file: Path) -> dict[str, Any]:
    """The arrays of a file: type and numbers, in which no bit is lost."""
    import safetensors.numpy

    found = sorted(safetensors.numpy.load_file(file).items())
    return {name: {"dtype": str(array.dtype), "values": array.tolist()} for name, array in found}


def unlike(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, str, str]]:
    """Where two values differ, each with both as JSON, which tells every bit of a number."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old | new:
            yield from unlike(old.get(name, "nothing"), new.get(name, "nothing"), f"{key}.{name}".strip("."))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for k, pair in enumerate(zip(old, new, strict=True)):
            yield from unlike(*pair, f"{key}.{k}")
    elif _exact(old) != _exact(new):
        yield key, json.dumps(old), json.dumps(new)


def _exact(value: Any) -> str:
    """As JSON; a whole number reads alike as 1 and as 1.0."""
    return json.dumps(float(value) if type(value) is int else value)


def verdict(name: str, case: Case, old: Side, new: Side) -> tuple[str, bool]:
    """A line of the table, and whether all is well."""
    line, folders, problem = [f"{name:34}"], [], ""
    for label, side in (("old", old), ("new", new)):
        folder, took, failed = side.run(name, case)
        folders.append(folder)
        line.append(f"{took:>7}")
        problem = problem or (f"{label} failed: {failed}" if failed else "")
    if not problem:
        records = read(folders[0])
        missing = set(case.shows.split()) - shown(records)
        missing |= {f"{FEWEST} records"} if len(records) < FEWEST else set()
        line.append(f"{len(records)} records")
        found = first_difference(*folders)
        problem = f"differs: {found}" if found else f"does not show {', '.join(sorted(missing))}" if missing else ""
    return "  ".join([*line, problem or "same"]), not problem


def main() -> int:
    """Run both sides of every case that is wanted; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_bits", description=__doc__.partition("\n")[0])
    parser.add_argument("--old", type=Path, metavar="PATH", help="the checkout to compare with")
    parser.add_argument("--new", type=Path, metavar="PATH", default=HERE, help="the other checkout; default: this one")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="only these cases: 'pderl*'")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs here, and use the old side's again")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    wanted = [name for name in CASES if any(fnmatch.fnmatch(name, pattern) for pattern in options.only)]
    if options.old is None or not wanted:
        parser.error("--old is needed" if wanted else f"no case is called so: there are {'; '.join(CASES)}")
    begun, bad = time.perf_counter(), 0
    with tempfile.TemporaryDirectory() as passing, contextlib.ExitStack() as closing:
        folder = (options.keep or Path(passing)).resolve()
        old = Side(options.old.resolve(), folder / "old", reuse=True)
        new = Side(options.new.resolve(), folder / "new", reuse=False)
        closing.callback(old.close)
        closing.callback(new.close)
        print(f"{'case':34}  {'old':>7}  {'new':>7}")
        for name in wanted:
            line, well = verdict(name, CASES[name], old, new)
            bad += not well
            print(line, flush=True)
    print(f"{len(wanted)} cases, {bad or 'none'} not the same, {time.perf_counter() - begun:.0f} s")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
