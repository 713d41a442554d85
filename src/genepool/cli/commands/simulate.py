"""genepool simulate: how a system scales with the number of workers, on a simulated clock."""

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

from genepool.cli.options import parse
from genepool.errors import UserError


def main(argv: list[str]) -> int:
    """Run `genepool simulate` with these arguments; the exit code."""
    import tyro

    def simulate(
        preset: Annotated[Literal["aes-rl", "p-cem-rl", "cem-rl"], tyro.conf.Positional],
        task: Annotated[str, tyro.conf.Positional],
        workers: str = "1,2,4,5,8,9,16,32,64,128,256,512,1024",
        frames: float = 1e6,
        costs: Literal["measured", "authors"] = "measured",
        out: Path = Path("scaling.png"),
    ) -> int:
        """Simulate how long a million frames take on each number of workers, and how long the workers wait.

        The schedules are the real ones, on a simulated clock. Unless --costs is authors, the costs of a critic step,
        an actor step and an environment step are first measured on this machine, with one thread each.

        Args:
            preset: The system. Those before it in the order cem-rl, p-cem-rl, aes-rl are simulated too.
            task: The task, whose episode lengths are measured.
            workers: Numbers of workers, with commas.
            frames: Frames to simulate. The times shown are per million frames.
            costs: The steps' costs: measured here, or fitted to AES-RL's Table 1, so its authors' machine's.
            out: The PNG to write.
        """
        from genepool.analysis.scaling import report
        from genepool.analysis.scaling import simulate as scaling

        counts = _worker_counts(workers)
        price, lengths = _measure(preset, task, costs)
        print("simulating", file=sys.stderr)
        rows = scaling.simulate(preset, price, lengths, counts, frames)
        print(report.table(rows, task))
        report.draw(rows, out, task)
        print(f"figure: {out}")
        return 0

    return parse(simulate, "genepool simulate", argv)


def _worker_counts(workers: str) -> list[int]:
    """The numbers of workers in a text such as 1,2,4."""
    counts = [word for word in workers.split(",") if word]
    if not counts or not all(word.strip().isdigit() and int(word) > 0 for word in counts):
        raise UserError(f"workers are numbers above 0 with commas, such as 1,2,4, not {workers!r}")
    return [int(word) for word in counts]


def _measure(preset: str, task: str, costs: str) -> tuple[Any, Sequence[int]]:
    """The costs of steps, measured here or the authors', and the lengths of episodes, measured here."""
    from genepool.analysis.scaling import costs as machine
    from genepool.environments.lookup import find

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
    return price, lengths
