"""genepool report: all that the records of some runs show, on one page."""

from pathlib import Path
from typing import Annotated

from genepool.cli.options import parsed
from genepool.errors import UserError


def main(argv: list[str]) -> int:
    """Run `genepool report` with these arguments; the exit code."""
    import tyro

    def report(runs: Annotated[tuple[str, ...], tyro.conf.Positional], out: Path = Path("report")) -> int:
        """Draw all that the records of some runs show: one page, and the PNG and CSV files behind it.

        Runs are grouped by task and engine, then by system; their seeds are taken together. Nothing is played anew.

        Args:
            runs: Run folders, folders that hold run folders, or patterns in quotes.
            out: The folder to write into; its index.html is the page.
        """
        from genepool.analysis.records import reading
        from genepool.analysis.report.build import report as made

        if not runs:
            raise UserError("report on what? genepool report RUN...; `genepool runs` shows what is there")
        found = made(reading.find(runs), out)
        for name, reason in found.left_out.items():
            print(f"left out: {name}: {reason}")
        print(f"{found.page} ({found.runs} runs, {found.figures} figures)")
        return 0

    return parsed(report, "genepool report", argv)
