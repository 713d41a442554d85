"""Films of champions side by side, with step and return written under them, as GIF or mp4."""

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from genepool.analysis.film.camera import FPS, HEIGHT, FilmedChampion, FilmedEpisode, Picture
from genepool.errors import UserError

BAND = 40  # pixels for the words under a picture


def scenes(champions: Sequence[FilmedChampion], played: Sequence[Sequence[FilmedEpisode]]) -> Iterator[Image.Image]:
    """The pictures of a film: the champions side by side, one episode after the other.

    An episode that is over shows its last picture until all are over.
    """
    for number, episodes in enumerate(zip(*played, strict=True), 1):
        for moment in zip_longest(*(episode.pictures for episode in episodes)):
            tiles = [
                _tile(champion.name, number, picture or episode.pictures[-1], episode)
                for champion, picture, episode in zip(champions, moment, episodes, strict=True)
            ]
            scene = Image.new("RGB", (sum(tile.width for tile in tiles), HEIGHT + BAND))
            for k, tile in enumerate(tiles):
                scene.paste(tile, (sum(before.width for before in tiles[:k]), 0))
            yield scene


def _tile(name: str, number: int, picture: Picture, episode: FilmedEpisode) -> Image.Image:
    tile = Image.new("RGB", (picture.pixels.shape[1], HEIGHT + BAND))
    tile.paste(Image.fromarray(picture.pixels))
    over = ", over" if picture.step == episode.steps else ""
    words = f"{name}\nepisode {number}, step {picture.step}, return {picture.earned:.1f}{over}"
    ImageDraw.Draw(tile).text((6, HEIGHT + 4), words, fill="white", font=ImageFont.load_default(13), spacing=3)
    return tile


def writer(path: Path) -> Callable[[Iterator[Image.Image]], int]:
    """A function that writes a film to this file, as GIF or mp4 by its name, and returns how many pictures it has."""
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent} to write the film to: make it, or give another --out FILE")
    if path.suffix.lower() == ".gif":
        return lambda scenes: _gif(scenes, path)
    if path.suffix.lower() != ".mp4":
        raise UserError(f"a film is a .gif or an .mp4, not {path.name}: give --out FILE.gif")
    try:
        import av
    except ImportError:
        raise UserError("mp4 needs PyAV: pip install 'genepool[film]', or give --out FILE.gif") from None
    return lambda scenes: _mp4(av, scenes, path)


def _gif(scenes: Iterator[Image.Image], path: Path) -> int:
    count = 0

    def reduced() -> Iterator[Image.Image]:
        nonlocal count
        for scene in scenes:
            count += 1
            yield scene.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)

    pictures = reduced()
    next(pictures).save(path, save_all=True, append_images=pictures, duration=1000 // FPS, loop=0)
    return count


def _mp4(av: Any, scenes: Iterator[Image.Image], path: Path) -> int:
    count = 0
    stream = None
    with av.open(str(path), "w") as film:
        for scene in scenes:
            if stream is None:
                stream = film.add_stream("libx264", rate=FPS)
                stream.width = scene.width
                stream.height = scene.height
                stream.pix_fmt = "yuv420p"
            film.mux(stream.encode(av.VideoFrame.from_image(scene)))
            count += 1
        film.mux(stream.encode(None))
    return count
