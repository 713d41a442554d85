"""The runner of results with a program in genepool's place: runs of ten generations of STANDIN_PACE seconds each.

standin_plan.py [arguments of benchmarks.results]; with `train` or `resume` it is that program, and the plan REAL is genepool's own. It keeps the promises of the
real one: SIGTERM ends it after the generation, everything is on disk then, and a file beside the run counts what it lived.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from benchmarks import results, runner
from benchmarks.results import Row

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
        time.sleep(float(os.environ["STANDIN_PACE"]))
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
        if "standin_plan:REAL" not in sys.argv:
            runner.PROGRAM = (sys.executable, __file__)
        plan = [] if "--plan" in sys.argv else ["--plan", "standin_plan:TINY"]
        sys.exit(results.main([*sys.argv[1:], *plan]))
