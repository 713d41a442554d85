"""genepool plot: learning curves of one or several runs."""

from pathlib import Path
from typing import Annotated, Literal

from genepool.cli.options import parse
from genepool.errors import UserError


def main(argv: list[str]) -> int:
    """Run `genepool plot` with these arguments; the exit code."""
    import tyro

    def plot(
        runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
        out: Path | None = None,
        figure: Literal["returns", "updates", "sensitivity"] = "returns",
    ) -> int:
        """Draw the learning curves of one or several runs, or other figures of ESAC's paper.

        Args:
            runs: Run folders.
            out: The PNG to write; by default in the run folder, or here for several.
            figure: returns: test returns against frames. updates: the learner's gradient steps against nominal and true
                frames. sensitivity: returns of runs that differ in zeta, the clip of ESAC's mutation tuning.
        """
        from genepool.analysis.report import curves
        from genepool.analysis.report import esac as esac_figures
        from genepool.runs.folder import Folder

        if not runs:
            raise UserError("plot what? genepool plot RUN...; `genepool runs` shows what is there")
        figures = {
            "returns": (curves.draw, "curve.png" if len(runs) == 1 else "curves.png"),
            "updates": (esac_figures.draw_updates, "updates.png"),
            "sensitivity": (esac_figures.draw_sensitivity, "sensitivity.png"),
        }
        draw, name = figures[figure]
        path = out or (runs[0] / name if len(runs) == 1 else Path(name))
        draw([Folder(run) for run in runs], path)
        print(path)
        return 0

    return parse(plot, "genepool plot", argv)
