"""genepool plot: learning curves of one or several runs."""

from pathlib import Path
from typing import Annotated

from genepool.errors import UserError
from genepool.options import parsed


def main(argv: list[str]) -> int:
    """Run `genepool plot` with these arguments; the exit code."""
    import tyro

    def plot(runs: Annotated[tuple[Path, ...], tyro.conf.Positional], out: Path | None = None) -> int:
        """Draw the learning curves of one or several runs.

        Args:
            runs: Run folders.
            out: The PNG to write; by default curve.png in the run folder, or curves.png here for several.
        """
        from genepool.analysis.curves import draw
        from genepool.runs.folder import Folder

        if not runs:
            raise UserError("plot what? genepool plot RUN...; `genepool runs` shows what is there")
        path = out or (Folder(runs[0]).curve_file if len(runs) == 1 else Path("curves.png"))
        draw([Folder(run) for run in runs], path)
        print(path)
        return 0

    return parsed(plot, "genepool plot", argv)
