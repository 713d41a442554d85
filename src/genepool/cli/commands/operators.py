"""genepool operators: what crossover and mutation make of a run's own population."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from genepool.cli.options import parsed
from genepool.errors import UserError


def main(argv: list[str]) -> int:
    """Run `genepool operators` with these arguments; the exit code."""
    import tyro

    def operators(
        run: Annotated[Path, tyro.conf.Positional],
        pairs: int = 10,
        episodes: int = 10,
        seed: int = 0,
        sigmas: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2),
        fittest: int | None = None,
        show: int = 1,
        embedding: Literal["tsne", "pca"] = "tsne",
        out: Path | None = None,
        task: str | None = None,
        part: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    ) -> int:
        """Breed children by both crossovers and both mutations from the newest checkpoint, play them, and draw what they do.

        PDERL's Figures 1, 2 and 5 to 9; of a GPO run its Figure 3. A run without genetic memories or critic is studied as
        far as it goes.

        Args:
            run: The run folder; nothing of the run is changed.
            pairs: Pairs of parents to cross, and parents to mutate, drawn at random.
            episodes: Fresh episodes of every policy, the same for all.
            seed: Same seed, same numbers.
            sigmas: Magnitudes of proximal mutation to compare.
            fittest: Breed from so many of the fittest only; none: from everyone, fit or not.
            show: The pair, and the parent, whose visited states are drawn, counted from 1.
            embedding: How the states of that pair's policies are laid in a plane, t-SNE or principal components.
            out: Where to write the figures and operators.csv; by default operators in the run folder.
            task: The task again, as module:function, where it is code of your own.
            part: A part of your own that the run has, as module:Class; once for each.
        """
        if pairs < 1 or episodes < 1 or not 1 <= show <= pairs or not sigmas or min(sigmas) <= 0:
            raise UserError("pairs and episodes are 1 or more, sigmas above 0, and show one of the pairs")
        if fittest is not None and fittest < 2:
            raise UserError(f"parents are chosen from the fittest 2 or more, not {fittest}")

        from rich.console import Console

        from genepool.algorithms.options import imported_part
        from genepool.analysis.operators import numbers as report
        from genepool.analysis.operators.study import draw, episodes_of, frames_to_breed, study
        from genepool.analysis.operators.study_input import load

        material = load(run, task, [imported_part(own) for own in part])
        folder, console = out or run / "operators", Console(highlight=False, width=None if sys.stdout.isatty() else 140)
        folder.mkdir(parents=True, exist_ok=True)
        facts = material.facts
        console.print(
            f"{facts['preset']} on {facts['task']}, generation {facts['generation']}, {facts['frames']:,} frames: "
            f"{len(material.individuals)} individuals"
        )
        if material.missing:
            console.print(material.missing)
        besides = frames_to_breed(material, pairs)
        breeding = f", and {besides:,} frames to breed by" if besides else ""
        console.print(f"playing {episodes_of(material, pairs, episodes, sigmas):,} episodes{breeding}")
        done = study(material, pairs, episodes, seed, sigmas, fittest)
        console.print(f"{done.frames:,} frames of episodes; medians over {pairs} families in each table, KL in nats")
        for name, part in done.parts.items():
            console.print(report.table(part.rows, name))
        written = folder / "operators.csv"
        report.write([row for part in done.parts.values() for row in part.rows], done.facts, written)
        for path in (written, *draw(done, show - 1, embedding, folder)):
            console.print(str(path), soft_wrap=True)
        return 0

    return parsed(operators, "genepool operators", argv)
