"""genepool runs: a table of the runs in a folder."""

import sys
from pathlib import Path
from typing import Annotated

from genepool.cli.options import parse
from genepool.errors import UserError


def main(argv: list[str]) -> int:
    """Run `genepool runs` with these arguments; the exit code."""
    import tyro

    def runs(folder: Annotated[Path, tyro.conf.Positional] = Path("runs")) -> int:
        """Print a table of the runs in a folder.

        Args:
            folder: The folder that holds the run folders.
        """
        from rich.console import Console
        from rich.table import Table

        from genepool.runs.folder import Folder, summary

        found = sorted(config.parent for config in folder.glob("*/config.json"))
        if not found:
            raise UserError(f"there are no runs in {folder}: start one with genepool train")
        table = Table(
            "run", "preset", "task", "seed", "frames", "of", "champion", "learner", box=None, header_style="dim"
        )
        for path in found:
            table.add_row(path.name, *summary(Folder(path)))
        Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(table)
        return 0

    return parse(runs, "genepool runs", argv)
