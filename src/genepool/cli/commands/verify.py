"""genepool verify: train some seeds, and say whether their mean lies in the band of published results."""

import hashlib
import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from genepool.analysis.verify.band import Band, Verdict, find_band, judge
from genepool.analysis.verify.published import PublishedReturn, published_returns
from genepool.cli.commands import resume, train
from genepool.cli.options import take_option
from genepool.errors import UserError, did_you_mean
from genepool.runs.folder import Folder, file_name

FEW = 3  # the fewest seeds that a band is meant for
HELP = """\
usage: genepool verify PRESET TASK --frames N [--seeds 3] [--runs runs/verify] [options of genepool train]

Train PRESET on TASK with seeds 0, 1, 2, ... and say whether the mean over seeds of the test at N frames lies in the
band of published results: from the lowest mean less its spread to the highest plus its spread. The exit code is 0
inside the band and 1 outside.

  --frames N         frames at which there are published results; for other frames the published ones are listed
  --seeds K          how many seeds; a band is meant for three or more (default: 3)
  --runs DIR         where the runs are kept; a finished run is not trained again, an unfinished one is resumed
  --as-preset        train the preset unchanged; by default it gets the reference's networks and rates, which are shown
  --reference FILE   a table of published results in place of the package's

Every other option goes to genepool train, and wins over the reference's.

example: genepool verify td3 HalfCheetah-v5 --frames 100000 --seeds 3
"""


def main(argv: list[str]) -> int:
    """Run `genepool verify` with these arguments; the exit code."""
    if not argv or {"-h", "--help"} & set(argv):
        print(HELP, end="")
        return 0
    preset, *rest = argv
    if preset not in train.PRESETS:
        raise UserError(
            f"there is no preset {preset!r}{did_you_mean(preset, train.PRESETS)}: see genepool verify --help"
        )
    if not rest or rest[0].startswith("-"):
        raise UserError(f"verify what? genepool verify {preset} TASK --frames N, for example HalfCheetah-v5")
    task, *rest = rest
    frames, rest = _number(rest, "frames", None)
    seeds, rest = _number(rest, "seeds", 3)
    runs, rest = take_option(rest, "runs")
    table, rest = take_option(rest, "reference")
    own = "--as-preset" in rest
    rest = [word for word in rest if word != "--as-preset"]
    if {"--seed", "--run"} & {word.partition("=")[0] for word in rest}:
        raise UserError("verify chooses seeds and run folders itself: give --seeds and --runs")
    band = find_band(preset, task, frames, published_returns(Path(table) if table else None))
    settings = [] if own else without(shlex.split(band.settings.settings), rest)
    if settings:
        print(f"settings of {band.settings.source}: {shlex.join(settings)}")
    folders = [_folder(Path(runs or "runs/verify"), preset, task, settings + rest, seed) for seed in range(seeds)]
    for seed, folder in enumerate(folders):
        words = [preset, task, *settings, *rest, "--seed", str(seed), "--run", str(folder.path)]
        code = _trained(folder, frames, words)
        if code:
            return code
    verdict = judge(band, [curve(folder) for folder in folders], frames)
    print("\n".join(verdict_lines(preset, task, frames, band, verdict)))
    return 0 if verdict.inside else 1


def _number(argv: list[str], option: str, default: int | None) -> tuple[int, list[str]]:
    word, rest = take_option(argv, option)
    try:
        value = float(word) if word else default
    except ValueError:
        value = None
    if value is None or not (math.isfinite(value) and value >= 1 and value == int(value)):
        raise UserError(f"--{option} needs a whole number above 0: see genepool verify --help")
    return int(value), rest


def without(settings: Sequence[str], options: Sequence[str]) -> list[str]:
    """The settings, each an option and its values, without those that are among the given options."""

    def plain(word: str) -> str:
        return word.partition("=")[0].replace("--no-", "--")

    given = {plain(word) for word in options if word.startswith("--")}
    kept = []
    keep = True
    for word in settings:
        if word.startswith("--"):
            keep = plain(word) not in given
        kept += [word] * keep
    return kept


def _folder(runs: Path, preset: str, task: str, options: Sequence[str], seed: int) -> Folder:
    """The run folder. Every set of options has its own, so that runs with other options are never resumed."""
    digest = hashlib.blake2b(shlex.join(options).encode(), digest_size=4).hexdigest()
    return Folder(runs / f"{preset}-{file_name(task)}-{digest}-s{seed}")


def _trained(folder: Folder, frames: int, words: list[str]) -> int:
    """Train the run to so many frames, unless it has them already. The exit code."""
    if not folder.config_file.exists():
        return train.main([*words, "--frames", str(frames)])
    if folder.trained >= frames:
        config = folder.config
        commit = (config.get("git_commit") or "none known")[:12]
        print(
            f"{folder.path} was trained before ({config.get('started')}, commit {commit}): remove it to train it anew"
        )
        return 0
    return resume.main([str(folder.path), "--frames", str(frames)])


def curve(folder: Folder) -> list[tuple[int, float]]:
    """Frames and mean test return of the champion, or of the learner if there is no champion."""
    from genepool.analysis.report.curves import series

    for who in ("champion", "learner"):
        frames, returns = series(folder, who)
        if len(frames):
            return list(zip(frames.tolist(), returns.mean(axis=1).tolist(), strict=True))
    return []


def verdict_lines(preset: str, task: str, frames: int, band: Band, verdict: Verdict) -> list[str]:
    """The verdict and the results it depends on, as lines of text."""
    place = "inside" if verdict.inside else "outside"
    seeds = ", ".join(f"{score:.1f}" for score in verdict.scores)
    lines = [
        f"{preset} on {task}, tests at {frames:,} frames: {verdict.score:.1f}, the mean of {seeds}",
        "published:",
        *(f"  {_published(point)}" for point in band.points),
        f"{place} the band {band.low:.0f} to {band.high:.0f} (lowest mean less its spread, highest plus its spread)",
    ]
    if any(point.spread is None for point in band.points):
        lines.append("a source that gives no spread is given the largest of the others'")
    if band.caution:
        lines.append(f"CAUTION, the settings differ: {band.caution}")
    if len(verdict.scores) < FEW:
        lines.append(f"CAUTION, the band is meant for the mean of {FEW} seeds or more, not of {len(verdict.scores)}")
    return lines


def _published(point: PublishedReturn) -> str:
    spread = f"± {point.spread:.1f} ({point.spread_is})" if point.spread is not None else "(no spread)"
    seeds = f"{point.seeds or 'unknown'} seeds"
    where = f"{point.task}-{point.version}"
    return f"{point.value:.1f} {spread}, {seeds}, {where}, {point.metric}, {point.networks}: {point.source}"
