"""genepool report: figures and tables of all that the records of some runs show, on one page."""

from pathlib import Path
from typing import Annotated

from genepool.cli.options import parse
from genepool.errors import UserError


def main(argv: list[str]) -> int:
    """Run `genepool report` with these arguments; the exit code."""
    import tyro

    def report(runs: Annotated[tuple[str, ...], tyro.conf.Positional], out: Path = Path("report")) -> int:
        """Draw all that the records of some runs show: one page, and its figures and tables as PNG and CSV files.

        Runs are grouped by task and engine, then by system. Seeds of one system are pooled. No episode is played.

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

    return parse(report, "genepool report", argv)
