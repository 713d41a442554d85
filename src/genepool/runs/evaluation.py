"""Playing a run's champion on fresh episodes."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from genepool.errors import check_seed
from genepool.runs.folder import Folder
from genepool.runs.policy import load
from genepool.runs.rebuilding import rebuild_task
from genepool.types import Candidate, Individual
from genepool.workers.local import LocalWorkers


def episode_seeds(seed: int, episodes: int) -> tuple[int, ...]:
    """The seeds of fresh episodes, from a random stream that training does not use."""
    check_seed(seed)
    return tuple(np.random.default_rng([seed, 0xE7A1]).integers(2**31 - 1, size=episodes).tolist())


def evaluate(
    run: str | Path, episodes: int = 100, seed: int = 0, task: Any = None
) -> tuple[tuple[float, ...], dict[str, Any]]:
    """The returns of `episodes` episodes without noise, and the facts about the champion that played them."""
    folder = Folder(run)
    found = rebuild_task(folder.config, task)
    champion = load(folder.path)
    workers = LocalWorkers(found)
    try:
        actor = jax.tree.map(np.asarray, champion.actor)
        candidate = Candidate(Individual(actor, None), episode_seeds(seed, episodes), purpose="evaluation")
        return workers.map([candidate])[0].returns, champion.facts
    finally:
        workers.close()
