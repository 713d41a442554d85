"""The files of a finished run in results/: its tests as CSV, and its configuration."""

import csv
import io
import json
import shlex
from pathlib import Path

from benchmarks.runs.jobs import Job, cpu_seconds, progress

COLUMNS = ("frames", "true_frames", "training_frames", "wall_seconds", "who", "returns")


def collect(job: Job, runs: Path, results: Path) -> None:
    """Write the tests and the configuration of a finished run to results/."""
    if progress(job, runs)[0] >= job.frames:
        keep(job, results, *tables(job, runs))


def keep(job: Job, results: Path, curve: str, config: str) -> None:
    """Write the tables of a run. Each file is replaced at once, so none is ever half written."""
    folder = results / job.name
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("curve.csv", curve), ("config.json", config)):
        (folder / f"{name}.tmp").write_text(text)
        (folder / f"{name}.tmp").replace(folder / name)


def tables(job: Job, runs: Path) -> tuple[str, str]:
    """A run's tests as CSV, a row for each tested policy; and its configuration without paths of this machine.

    `frames` are counted as in the paper, `true_frames` are all frames, `training_frames` are those without the
    tests. The configuration also has the cost of the run: wall-clock seconds, and CPU seconds of its own processes.
    The latter can be compared even if the cores were shared.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for line in (runs / job.name / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        tests = {name: value for name, value in record.items() if name.endswith("_test") and value}
        training = sum(frames for purpose, frames in record["ledger"].items() if not purpose.endswith(" test"))
        for name, returns in tests.items():
            facts = (
                record["frames"],
                record["true_frames"],
                training,
                round(record["wall"], 1),
                name.removesuffix("_test"),
            )
            writer.writerow([*facts, " ".join(f"{value:.2f}" for value in returns)])
    config = json.loads((runs / job.name / "config.json").read_text())
    words = shlex.split(config["command"])[1:]
    place = words.index("--run") if "--run" in words else len(words)
    config["command"] = shlex.join(["genepool", *words[:place], *words[place + 2 :]])
    cpu = cpu_seconds(job, runs)
    config["cost"] = {"wall_seconds": round(progress(job, runs)[1], 1), "cpu_seconds": cpu and round(cpu, 1)}
    return file.getvalue(), json.dumps(config, indent=2) + "\n"
