"""genepool resume: go on with a run."""

from pathlib import Path
from typing import Annotated

from genepool.cli.options import parse
from genepool.errors import UserError


def main(argv: list[str]) -> int:
    """Run `genepool resume` with these arguments; the exit code."""
    import tyro

    def resume(
        run: Annotated[Path, tyro.conf.Positional],
        task: str | None = None,
        frames: float | None = None,
        workers: str | None = None,
        address: str | None = None,
        part: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    ) -> int:
        """Go on with a run from its last checkpoint, exactly as if it had never stopped.

        Args:
            run: The run folder.
            task: The task again, as module:function, where it is code of your own: a run folder holds no code.
            frames: Train up to this many frames instead of what the run was started with.
            workers: Where candidates are tried, local or ray:N; none: as when the run was started.
            address: The Ray cluster to join; none: one is started on this machine.
            part: A part of your own that the run has, as module:Class. Repeat it for each part.
        """
        from genepool.algorithms.options import imported_part
        from genepool.follow import follow
        from genepool.runs.training import resume as resumed

        training = resumed(run, task, frames, workers, address, [imported_part(own) for own in part])
        if training.done:
            raise UserError(f"{training.folder.path} is finished at {training.frames:,} frames: give --frames for more")
        return follow(training)

    return parse(resume, "genepool resume", argv)
