"""The camera: episodes of champions, played and filmed in Gymnasium, the engine that draws."""

import inspect
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from genepool.acting.episodes import Rollout, play, returns
from genepool.environments.engines import gymnasium as gymnasium_engine
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.runs.evaluation import episode_seeds
from genepool.runs.folder import Folder
from genepool.runs.policy import load
from genepool.runs.rebuilding import rebuild_task

FPS = 25  # pictures a second, which a GIF can keep to
HEIGHT = 360  # of a picture, in pixels


class FilmedChampion(NamedTuple):
    """A champion, the task that it is filmed on, and the run that it comes from."""

    actor: Any
    task: Task  # with Gymnasium as its engine
    config: dict[str, Any]
    frames: int  # of its training

    @property
    def name(self) -> str:
        """Preset, task, frames and seed."""
        return f"{self.config['preset']}, {self.task.id}, {self.frames:,} frames, seed {self.config['seed']}"


class Picture(NamedTuple):
    """A picture of an episode."""

    pixels: np.ndarray  # [HEIGHT, width, 3]
    step: int  # after which it was taken
    earned: float  # the return so far


class FilmedEpisode(NamedTuple):
    """An episode that was played: its return, its steps, and its pictures."""

    earned: float
    steps: int
    pictures: list[Picture]


class Camera:
    """An engine of one environment that takes pictures in real time during the first seconds of an episode."""

    def __init__(self, environment: Any, seconds: float):
        self._environment = environment
        self._engine = gymnasium_engine.GymnasiumEngine(lambda: environment)
        self._rate = environment.metadata.get("render_fps") or FPS  # steps a second
        self._most = math.ceil(seconds * FPS) if environment.render_mode == "rgb_array" else 0  # a window draws itself

    def begin(self, seeds: Sequence[int], threads: int) -> np.ndarray:
        """Start an episode."""
        self.pictures: list[Picture] = []
        self.steps = 0
        self.earned = 0.0
        observations = self._engine.begin(seeds, threads)
        self._take_pictures()
        return observations

    def step(self, actions: np.ndarray, live: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Step the environment."""
        answer = self._engine.step(actions, live)
        self.steps += 1
        self.earned += float(answer[1][0])
        self._take_pictures()
        return answer

    def _take_pictures(self) -> None:
        """Take the pictures of this step: none if steps are quicker than pictures, several if they are slower."""
        until_now = math.ceil((self.steps + 1) * FPS / self._rate)  # picture k shows step floor(k rate / FPS)
        count = min(until_now, self._most) - len(self.pictures)
        if count > 0:
            self.pictures += [Picture(_pixels(self._environment), self.steps, self.earned)] * count

    def close(self) -> None:
        """Free the environment."""
        self._environment.close()


def load_champion(run: str | Path, task: Any = None) -> FilmedChampion:
    """The champion of a run, and its task with the engine that draws."""
    folder = Folder(run)
    config = folder.config
    champion = load(folder.path)
    trained = rebuild_task(config, task)
    id = trained.id if trained.engine == "gymnasium" else gymnasium_engine.id_of(trained.id)
    if id is None:
        raise UserError(f"{trained.id} cannot be watched: Gymnasium does not have it, and EnvPool draws no pictures")
    shown = replace(trained, id=id, engine="gymnasium")
    sizes = champion.spaces.observation_size, champion.spaces.action_size
    if (shown.observation_size, shown.action_size) != sizes:
        raise UserError(f"{id} cannot be watched: Gymnasium's has other observations or actions than it was trained on")
    return FilmedChampion(jax.tree.map(np.asarray, champion.actor), shown, config, champion.facts["frames"])


def film_episodes(
    champion: FilmedChampion, episodes: int, seed: int, seconds: float, live: bool = False
) -> list[FilmedEpisode]:
    """Play the episodes that `genepool evaluate` plays, to their end. The first seconds of each are filmed."""
    seeds = episode_seeds(seed, episodes)
    camera = Camera(drawing_environment(champion.task, "human" if live else "rgb_array"), seconds)
    played = []
    try:
        for episode_seed in seeds:
            (earned,) = returns(play(champion.task, camera, 1, [Rollout(champion.actor, None, episode_seed)]))
            played.append(FilmedEpisode(earned, camera.steps, camera.pictures))
    finally:
        camera.close()
    return played


def drawing_environment(task: Task, mode: str) -> Any:
    """A task's environment that draws, for a film ("rgb_array") or in a window ("human")."""
    try:
        if task.make is None:
            environment = gymnasium_engine.make(task.id, render_mode=mode)
        elif "render_mode" in inspect.signature(task.make).parameters:
            environment = task.make(render_mode=mode)
        else:
            environment = task.make()
    except Exception as error:
        raise UserError(f"{task.id} cannot be drawn: {_first_line(error)}") from error
    if environment.render_mode != mode:
        environment.close()
        raise UserError(f"{task.id} draws nothing: let its function take render_mode, and draw for {mode!r}")
    gymnasium_engine.follow(environment)
    return environment


def _pixels(environment: Any) -> np.ndarray:
    """The environment's picture, HEIGHT pixels high."""
    from PIL import Image

    try:
        picture = Image.fromarray(np.asarray(environment.render(), np.uint8))
    except Exception as error:
        raise UserError(f"the task cannot be drawn: {_first_line(error)}") from error
    width = 2 * round(HEIGHT * picture.width / picture.height / 2)  # even, as films must be
    return np.asarray(picture.resize((width, HEIGHT)))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
