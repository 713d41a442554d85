"""genepool watch: champions in a film, or in a window."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from genepool.cli.options import parse
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
        """Film the champions of one or several runs, side by side. It needs no screen.

        Args:
            runs: Run folders, of the same task or of different ones.
            out: The GIF or mp4 to write; by default champion.gif in the run folder, or champions.gif here for several.
            episodes: How many episodes, one after the other.
            seed: The seed of the episodes, which are those of genepool evaluate with this seed.
            seconds: How much of each episode is filmed. Episodes are played to their ends.
            live: Show a window instead, one run after the other.
            task: The task again, as module:function, where it is code of your own.
        """
        if not runs:
            raise UserError("watch what? genepool watch RUN...; `genepool runs` shows what is there")
        if episodes < 1 or not seconds > 0:
            raise UserError("a film has 1 episode or more, and more than 0 seconds")
        _prepare_screen(live)

        from genepool.analysis.film import camera, film

        path = out or (runs[0] / "champion.gif" if len(runs) == 1 else Path("champions.gif"))
        champions = [camera.load_champion(run, task) for run in runs]
        write = film.writer(path)
        played = []
        for champion in champions:
            print(f"playing {champion.name}", file=sys.stderr)
            played.append(camera.film_episodes(champion, episodes, seed, seconds, live))
            print(f"{champion.name}: {_results(played[-1])}, episodes of seed {seed}{_engines(champion)}")
        if not live:
            count = write(film.scenes(champions, played))
            print(f"{path}: {count} pictures, {count / camera.FPS:.1f} s")
        return 0

    return parse(watch, "genepool watch", argv)


def _prepare_screen(live: bool) -> None:
    """Let MuJoCo draw without a screen if there is none. Refuse a window then."""
    if has_screen():
        return
    if live:
        raise UserError("there is no screen here: leave --live out, and watch the film that is written")
    os.environ.setdefault("MUJOCO_GL", "egl")  # read when MuJoCo draws its first picture


def has_screen() -> bool:
    """Whether a window can be opened."""
    named = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(named) or sys.platform in ("darwin", "win32")


def _results(played: Sequence[Any]) -> str:
    earned = fmean(episode.earned for episode in played)
    steps = sum(episode.steps for episode in played)
    return f"return {earned:.1f} in {steps} steps" if len(played) == 1 else f"mean return {earned:.1f} of {len(played)}"


def _engines(champion: Any) -> str:
    """The engine of training, if the film was played with another engine."""
    config = champion.config
    if config["engine"] != "envpool":
        return ""
    here = ", ".join(f"{name} {version}" for name, version in champion.task.versions().items())
    there = f"{config['engine']} {config['versions'][config['engine']]}"
    return f"; played with {here}, trained with {there}, whose physics differ: the return may differ too"
