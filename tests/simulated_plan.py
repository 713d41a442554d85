"""The runner of results with a simulated genepool: runs of ten generations of SIMULATED_PACE seconds each.

simulated_plan.py [arguments of benchmarks.results]; with `train` or `resume` it is the simulated program. The plan REAL
trains with genepool itself. The program keeps the promises of the real one: SIGTERM ends it after the generation, and
everything is on disk by then. A file next to the run counts the generations that were trained.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from benchmarks import results
from benchmarks.results import Row
from benchmarks.runs import jobs

TINY = (Row({"first": "cem", "second": "es"}, "Reach", 100, 2, "nothing"),)
WORDS = "cem --max-steps 20 --hidden 8 --evolver.population 4 --test-episodes 2"
REAL = (Row({"CEM": WORDS}, "Pendulum-v1", 200, 1, "nothing", engine="gymnasium"),)
FAILING = (Row({"broken": "cem --fail", "first": "cem"}, "Reach", 100, 1, "nothing"),)


def train(words):
    folder = Path(words[words.index("--run") + 1] if words[0] == "train" else words[1])
    if "--fail" in words:
        sys.exit("the joint broke")
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"command": "cli.py " + " ".join(words)}))
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    metrics = folder / "metrics.jsonl"
    done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
    for generation in range(done + 1, 11):
        time.sleep(float(os.environ["SIMULATED_PACE"]))
        tests = {"champion_test": [1.0], "ledger": {"fitness": 10 * generation}}
        record = {"frames": 10 * generation, "true_frames": 10 * generation, "wall": 0.1 * generation} | tests
        with metrics.open("a") as file:
            file.write(json.dumps(record) + "\n")
        with folder.with_suffix(".lived").open("a") as file:
            file.write(f"{generation}\n")
        if stopped:
            sys.exit(143)


if __name__ == "__main__":
    if sys.argv[1] in ("train", "resume"):
        train(sys.argv[1:])
    else:
        if "simulated_plan:REAL" not in sys.argv:
            jobs.PROGRAM = (sys.executable, __file__)
        plan = [] if "--plan" in sys.argv else ["--plan", "simulated_plan:TINY"]
        sys.exit(results.main([*sys.argv[1:], *plan]))
