"""genepool operators: what crossover and mutation do to a run's population."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from genepool.cli.options import parse
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
        """Breed children of the newest checkpoint by both crossovers and both mutations, play and draw them.

        The figures are PDERL's 1, 2 and 5 to 9; for a GPO run, its Figure 3. For a run without genetic memories or
        without a critic, only the figures that need neither are drawn.

        Args:
            run: The run folder; nothing of the run is changed.
            pairs: Pairs of parents to cross, and parents to mutate, drawn at random.
            episodes: Fresh episodes of every policy, the same for all.
            seed: Same seed, same numbers.
            sigmas: Magnitudes of proximal mutation to compare.
            fittest: Breed from so many of the fittest only; none: from all individuals.
            show: The pair and the parent whose visited states are drawn, counted from 1.
            embedding: How those states are mapped to a plane: t-SNE or principal components.
            out: Where to write the figures and operators.csv; by default operators in the run folder.
            task: The task again, as module:function, where it is code of your own.
            part: A part of your own that the run has, as module:Class. Repeat it for each part.
        """
        if pairs < 1 or episodes < 1 or not 1 <= show <= pairs or not sigmas or min(sigmas) <= 0:
            raise UserError("pairs and episodes are 1 or more, sigmas above 0, and show one of the pairs")
        if fittest is not None and fittest < 2:
            raise UserError(f"parents are chosen from the fittest 2 or more, not {fittest}")

        from rich.console import Console

        from genepool.algorithms.options import imported_part
        from genepool.analysis.operators.study import draw_figures, episodes_of, frames_to_breed, run_study
        from genepool.analysis.operators.study_input import load

        study_input = load(run, task, [imported_part(own) for own in part])
        folder = out or run / "operators"
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
        folder.mkdir(parents=True, exist_ok=True)
        _introduce(console, study_input)
        breeding_frames = frames_to_breed(study_input, pairs)  # GPO's crossover plays episodes to train a child
        breeding = f", and {breeding_frames:,} frames to breed by" if breeding_frames else ""
        console.print(f"playing {episodes_of(study_input, pairs, episodes, sigmas):,} episodes{breeding}")
        done = run_study(study_input, pairs, episodes, seed, sigmas, fittest)
        console.print(f"{done.frames:,} frames of episodes; medians over {pairs} families in each table, KL in nats")
        table = _write_tables(console, done, folder)
        for path in (table, *draw_figures(done, show - 1, embedding, folder)):
            console.print(str(path), soft_wrap=True)
        return 0

    return parse(operators, "genepool operators", argv)


def _introduce(console: Any, study_input: Any) -> None:
    """Print which run is studied, and what it lacks."""
    facts = study_input.facts
    console.print(
        f"{facts['preset']} on {facts['task']}, generation {facts['generation']}, {facts['frames']:,} frames: "
        f"{len(study_input.individuals)} individuals"
    )
    if study_input.missing:
        console.print(study_input.missing)


def _write_tables(console: Any, done: Any, folder: Path) -> Path:
    """Print a table of each part of the study, and write all rows to operators.csv, whose path is returned."""
    from genepool.analysis.operators import numbers

    for name, part in done.parts.items():
        console.print(numbers.table(part.rows, name))
    path = folder / "operators.csv"
    numbers.write([row for part in done.parts.values() for row in part.rows], done.facts, path)
    return path
