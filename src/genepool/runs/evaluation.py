"""Playing a run's champion on fresh episodes."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from genepool.runs.folder import Folder
from genepool.runs.policy import load
from genepool.runs.training import rebuild_algorithm
from genepool.types import Candidate, Individual
from genepool.workers.local import LocalWorkers


def evaluate(
    run: str | Path, episodes: int = 100, seed: int = 0, task: Any = None
) -> tuple[tuple[float, ...], dict[str, Any]]:
    """The returns of `episodes` episodes without noise, and what is known of the champion that played them."""
    folder = Folder(run)
    algorithm = rebuild_algorithm(folder.config, task)
    champion = load(folder.path)
    # a stream of its own, apart from those that training draws from
    seeds = np.random.default_rng([seed, 0xE7A1]).integers(2**31 - 1, size=episodes).tolist()
    workers = LocalWorkers(algorithm.task)
    try:
        actor = jax.tree.map(np.asarray, champion.actor)
        return workers.map([Candidate(Individual(actor, None), tuple(seeds), purpose="evaluation")])[
            0
        ].returns, champion.facts
    finally:
        workers.close()
