"""genepool evaluate: play the champion of a run on fresh episodes."""

from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated

from genepool.cli.options import parse
from genepool.errors import UserError


def main(argv: list[str]) -> int:
    """Run `genepool evaluate` with these arguments; the exit code."""
    import tyro

    def evaluate(
        run: Annotated[Path, tyro.conf.Positional], episodes: int = 100, seed: int = 0, task: str | None = None
    ) -> int:
        """Play the champion of a run on fresh episodes, without noise.

        Args:
            run: The run folder.
            episodes: How many episodes.
            seed: The seed of the episodes; the same seed plays the same episodes.
            task: The task again, as module:function, where it is code of your own.
        """
        from genepool.runs.evaluation import evaluate as evaluated

        if episodes < 1:
            raise UserError(f"episodes must be 1 or more, not {episodes}")
        returns, facts = evaluated(run, episodes, seed, task)
        spread = f" ± {stdev(returns):.1f} (std)" if episodes > 1 else ""
        print(f"{facts['preset']} on {facts['task']}, champion at {facts['frames']:,} frames")
        print(
            f"return {fmean(returns):.1f}{spread}, from {min(returns):.1f} to {max(returns):.1f}, "
            f"{episodes} episodes, seed {seed}"
        )
        return 0

    return parse(evaluate, "genepool evaluate", argv)
