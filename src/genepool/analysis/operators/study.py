"""The operator study from beginning to end: breed, play, count, draw (PDERL, Figures 1, 2 and 5 to 9; GPO, Figure 3)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import jax
import numpy as np

from genepool.analysis.operators import figures
from genepool.analysis.operators import numbers as report
from genepool.analysis.operators.families import SIGMAS, Family, Played, Stage, crossings, magnitudes, mutations
from genepool.analysis.operators.study_input import Material
from genepool.analysis.operators.visitation import embed, first_two

METHODS = {"tsne": "t-SNE", "pca": "principal components"}


class Part(NamedTuple):
    """One of the studies: who was compared, what they brought, and the numbers."""

    families: list[Family]
    played: list[dict[str, Played]]
    rows: list[report.Row]


class Study(NamedTuple):
    """Everything that was bred and played."""

    parts: dict[str, Part]  # crossover, and mutation and magnitude where the run has such operators
    sigmas: tuple[float, ...]
    facts: dict[str, Any]  # of the run and of the study, for every row and every figure
    frames: int  # played for it


def episodes_of(material: Material, pairs: int, episodes: int, sigmas: Sequence[float]) -> int:
    """How many episodes a study plays: the whole population, and every child."""
    children = len(material.crossovers) + len(material.mutations) + len(sigmas) * ("proximal" in material.mutations)
    return episodes * (len(material.individuals) + pairs * children)


def frames_to_breed(material: Material, pairs: int) -> int:
    """How many frames are played besides, to make the children."""
    return sum(breed.frames(pairs) for breed in material.crossovers.values() if hasattr(breed, "frames"))


def study(
    material: Material,
    pairs: int,
    episodes: int,
    seed: int,
    sigmas: Sequence[float] = SIGMAS,
    fittest: int | None = None,
) -> Study:
    """Play everyone on the same fresh episodes, breed from the population or from its fittest, play the children, and count."""
    k_cross, k_mutate = jax.random.split(jax.random.key(seed))
    stage = Stage(material.task, episodes, seed)
    everyone = Family("population", {str(k): x.actor for k, x in enumerate(material.individuals)})
    ranked = sorted(enumerate(one.mean for one in stage.play([everyone])[0].values()), key=lambda one: -one[1])
    fitness = dict(ranked[:fittest])
    places = sorted(fitness)
    parts = {}
    for name, families in (
        ("crossover", crossings(k_cross, material, fitness, pairs)),
        ("mutation", mutations(k_mutate, material, places, pairs)),
        ("magnitude", magnitudes(k_mutate, material, places, pairs, sigmas)),
    ):
        if families:
            played = stage.play(families)
            parts[name] = Part(families, played, report.rows(name, families, played))
    facts = material.facts | {"study_seed": seed, "episodes": episodes, "fittest": len(places)}
    return Study(parts, tuple(sigmas), facts, stage.frames)


def draw(done: Study, show: int, embedding: str, folder: Path) -> list[Path]:
    """All figures; `show` is the pair and the parent whose visited states are drawn."""
    facts = done.facts
    note = (
        f"{facts['preset']} on {facts['task']} ({facts['engine']}), run seed {facts['seed']}, generation {facts['generation']}, "
        f"{facts['frames']:,} frames\nparents drawn from the fittest {facts['fittest']}; "
        f"{facts['episodes']} episodes of every policy, study seed {facts['study_seed']}"
    )
    kernels = f"{note}\nGaussian kernels, Scott's bandwidth; KL(parent || child) in nats"
    written = []

    def path(name: str) -> Path:
        written.append(folder / f"{name}.png")
        return written[-1]

    for name, part in done.parts.items():
        who = f"States visited, parent{'s' * (name == 'crossover')} {part.families[show].name}"
        planes, titles = _planes(part, show), _titles(part, show)
        if name == "magnitude":
            lines = _lines(part, done.sigmas)
            figures.differences(path(name), f"{who}: proximal mutation", kernels, planes, titles, lines)
            continue
        names = [family.name for family in part.families]
        figures.bars(path(name), f"{name.capitalize()}: parents and children", note, part.played, names)
        visits = figures.contours if name == "crossover" else figures.differences
        visits(path(f"visits_{name}"), who, kernels, planes, titles)
        if name == "crossover":
            states = {policy: np.concatenate(one.states) for policy, one in part.played[show].items()}
            points, how = embed(states, embedding, facts["study_seed"]), METHODS[embedding]
            figures.cloud(path("embedding"), f"{who}: {how} of all dimensions", note, points, titles)
    return written


def _planes(part: Part, show: int) -> dict[str, np.ndarray]:
    return {policy: first_two(np.concatenate(one.states)) for policy, one in part.played[show].items()}


def _titles(part: Part, show: int) -> dict[str, str]:
    count = len(part.families[show].policies)
    mine = part.rows[show * count : (show + 1) * count]
    far = lambda row: " and ".join(f"{value:.2g}" for value in row.divergences)
    said = lambda row: "" if row.policy.startswith("parent") else f", KL {far(row)}"
    return {row.policy: f"{row.policy}\nreturn {row.mean:.1f}{said(row)}" for row in mine}


def _lines(part: Part, sigmas: Sequence[float]) -> Callable:
    children = [[row for row in part.rows if row.policy == f"sigma {sigma:g}"] for sigma in sigmas]
    far = np.array([[row.divergences[0] for row in column] for column in children]).T
    returns = np.array([[row.mean for row in column] for column in children]).T
    own = [row.itself for row in part.rows if row.itself is not None]
    return figures.magnitude_lines(far, returns, sigmas, median(own) if own else np.nan)
