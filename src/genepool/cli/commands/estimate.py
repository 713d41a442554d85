"""genepool estimate: how long a run will take on this machine, and how much memory, before it is started."""

import sys
import time

from genepool.cli.commands.train import chosen
from genepool.cores import cores
from genepool.errors import UserError

USAGE = """\
usage: genepool estimate PRESET TASK [--frames N] [options of genepool train]

Measure for about a minute, and say how long the run will take on this machine and how much memory. The estimate assumes
that episodes stay as long as those of the untrained policy.

example: genepool estimate pderl HalfCheetah-v5 --frames 1e6
"""


def main(argv: list[str]) -> int:
    """Run `genepool estimate` with these arguments; the exit code."""
    before = time.process_time()
    entered = time.perf_counter()
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    algorithm, options = chosen("estimate", argv)
    frames = algorithm.budget if options.frames is None else options.frames
    if options.workers != "local":
        raise UserError("estimate measures this machine alone: leave --workers out, or use `genepool simulate`")

    from genepool.analysis.scaling.estimate import measure, predict
    from genepool.runs.display import duration
    from genepool.runs.rebuilding import positive

    frames = positive(frames)

    print("measuring", file=sys.stderr)
    measured = measure(algorithm, before + time.perf_counter() - entered)
    found = predict(measured, frames)
    print(f"{algorithm.preset} on {algorithm.task.id}, {frames:,} frames, {cores()} cores")
    print(f"time    {duration(found.total)}: " + ", ".join(f"{k} {duration(v)}" for k, v in found.seconds.items()))
    print(f"memory  {found.memory / 1e9:.2f} GB at most")
    print(
        f"a generation plays {measured.generation_frames:,} frames in {measured.generation:.2f} s, "
        f"a gradient step takes {1e3 * measured.step:.2f} ms; measured in {duration(time.perf_counter() - entered)}"
    )
    return 0
