"""Runs the commands that `benchmarks.same_bits` sends, with the genepool of one checkout.

This file is run as a program with that checkout's PYTHONPATH, so it imports nothing of benchmarks.
"""

import faulthandler
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

PATIENCE = 300.0  # seconds that a case may take


def serve(checkout: Path) -> None:
    """Run the commands of each line of the standard input in this process, and print their exit code."""
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


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
