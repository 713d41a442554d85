"""genepool watch: champions on film, or in a window."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from genepool.cli.options import parsed
from genepool.errors import UserError


def main(argv: list[str]) -> int:
    """Run `genepool watch` with these arguments; the exit code."""
    import tyro

    def watch(
        runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
        out: Path | None = None,
        episodes: int = 1,
        seed: int = 0,
        seconds: float = 15.0,
        live: bool = False,
        task: str | None = None,
    ) -> int:
        """Film the champions of one or several runs, side by side. No screen is needed.

        Args:
            runs: Run folders, of the same task or of different ones.
            out: The GIF or mp4 to write; by default champion.gif in the run folder, or champions.gif here for several.
            episodes: How many episodes, one after the other.
            seed: Which episodes: those that genepool evaluate plays with it.
            seconds: How much of each episode is filmed; it is played to its end.
            live: Show a window instead, one run after the other.
            task: The task again, as module:function, where it is code of your own.
        """
        if not runs:
            raise UserError("watch what? genepool watch RUN...; `genepool runs` shows what is there")
        if episodes < 1 or not seconds > 0:
            raise UserError("a film has 1 episode or more, and more than 0 seconds")
        if not has_screen():
            if live:
                raise UserError("there is no screen here: leave --live out, and look at the film that is written")
            os.environ.setdefault("MUJOCO_GL", "egl")  # read when MuJoCo's first picture is drawn

        from genepool.analysis.film import camera, film

        path = out or (runs[0] / "champion.gif" if len(runs) == 1 else Path("champions.gif"))
        stars, write, played = [camera.star(run, task) for run in runs], film.writer(path), []
        for star in stars:
            print(f"playing {star.name}", file=sys.stderr)
            played.append(camera.perform(star, episodes, seed, seconds, live))
            print(f"{star.name}: {_told(played[-1])}, episodes of seed {seed}{_engines(star)}")
        if not live:
            count = write(film.scenes(stars, played))
            print(f"{path}: {count} pictures, {count / camera.FPS:.1f} s")
        return 0

    return parsed(watch, "genepool watch", argv)


def has_screen() -> bool:
    """Whether a window can be opened."""
    named = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(named) or sys.platform in ("darwin", "win32")


def _told(played: Sequence[Any]) -> str:
    earned, steps = fmean(episode.earned for episode in played), sum(episode.steps for episode in played)
    return f"return {earned:.1f} in {steps} steps" if len(played) == 1 else f"mean return {earned:.1f} of {len(played)}"


def _engines(star: Any) -> str:
    """Where it was trained, if that is not where it is watched."""
    config = star.config
    if config["engine"] != "envpool":
        return ""
    here = ", ".join(f"{name} {version}" for name, version in star.task.versions().items())
    there = f"{config['engine']} {config['versions'][config['engine']]}"
    return f"; played with {here}, trained with {there}, whose physics differ: so may the return"
