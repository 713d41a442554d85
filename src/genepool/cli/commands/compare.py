"""genepool compare: two groups of runs side by side, with a test of the difference."""

from pathlib import Path
from typing import Annotated

from genepool.cli.options import parse
from genepool.errors import UserError


def main(argv: list[str]) -> int:
    """Run `genepool compare` with these arguments; the exit code."""
    import tyro

    def compare(
        runs: Annotated[tuple[str, ...], tyro.conf.Positional],
        against: tuple[str, ...] = (),
        frames: float | None = None,
        out: Path = Path("compare.png"),
    ) -> int:
        """Compare two groups of runs on every task that both have, and test whether they differ.

        genepool compare runs/pderl-* --against runs/erl-*

        Args:
            runs: Group A: run folders, folders that hold run folders, or patterns in quotes.
            against: Group B, likewise.
            frames: Compare at so many frames, and leave out runs with fewer; none: as many as every run has.
            out: The PNG to write.
        """
        from genepool.analysis.records import comparison, reading
        from genepool.analysis.report import comparison as comparison_report

        if not runs or not against:
            raise UserError("compare what? genepool compare RUN... --against RUN...")
        found, left_out = comparison.compare(reading.find(runs), reading.find(against), frames)
        print(comparison_report.as_text(found))
        for name, reason in left_out.items():
            print(f"left out: {name}: {reason}")
        comparison_report.draw(found, out)
        print(f"figure: {out}")
        return 0

    return parse(compare, "genepool compare", argv)
