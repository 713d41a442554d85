"""The operator study from beginning to end: breed, play, count, draw.

PDERL, Figures 1, 2 and 5 to 9; GPO, Figure 3.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import jax
import numpy as np

from genepool.analysis.operators import figures
from genepool.analysis.operators.families import (
    SIGMAS,
    Family,
    PolicyEpisodes,
    PolicyEvaluator,
    crossings,
    magnitudes,
    mutations,
)
from genepool.analysis.operators.numbers import PolicyResult, results_of
from genepool.analysis.operators.study_input import StudyInput
from genepool.analysis.operators.visitation import embed, first_two

METHODS = {"tsne": "t-SNE", "pca": "principal components"}


class OperatorComparison(NamedTuple):
    """One kind of operator: the families that were compared, their episodes, and the numbers."""

    families: list[Family]
    played: list[dict[str, PolicyEpisodes]]
    rows: list[PolicyResult]


class OperatorStudy(NamedTuple):
    """Everything that was bred and played."""

    parts: dict[str, OperatorComparison]  # crossover; mutation and magnitude if the run has such operators
    sigmas: tuple[float, ...]
    facts: dict[str, Any]  # of the run and of the study, for every row and every figure
    frames: int  # played for it


def episodes_of(study_input: StudyInput, pairs: int, episodes: int, sigmas: Sequence[float]) -> int:
    """How many episodes a study plays: those of the whole population and of every child."""
    children = (
        len(study_input.crossovers) + len(study_input.mutations) + len(sigmas) * ("proximal" in study_input.mutations)
    )
    return episodes * (len(study_input.individuals) + pairs * children)


def frames_to_breed(study_input: StudyInput, pairs: int) -> int:
    """How many frames are played in addition, to make the children."""
    return sum(breed.frames(pairs) for breed in study_input.crossovers.values() if hasattr(breed, "frames"))


def run_study(
    study_input: StudyInput,
    pairs: int,
    episodes: int,
    seed: int,
    sigmas: Sequence[float] = SIGMAS,
    fittest: int | None = None,
) -> OperatorStudy:
    """Play the population on fresh episodes, breed from it or from its fittest, play the children, and count."""
    k_cross, k_mutate = jax.random.split(jax.random.key(seed))
    evaluator = PolicyEvaluator(study_input.task, episodes, seed)
    population = Family("population", {str(k): x.actor for k, x in enumerate(study_input.individuals)})
    (played,) = evaluator.evaluate([population])
    ranked = sorted(enumerate(one.mean for one in played.values()), key=lambda one: -one[1])
    fitness = dict(ranked[:fittest])
    indices = sorted(fitness)
    parts = {}
    for name, families in (
        ("crossover", crossings(k_cross, study_input, fitness, pairs)),
        ("mutation", mutations(k_mutate, study_input, indices, pairs)),
        ("magnitude", magnitudes(k_mutate, study_input, indices, pairs, sigmas)),
    ):
        if families:
            played = evaluator.evaluate(families)
            parts[name] = OperatorComparison(families, played, results_of(name, families, played))
    facts = study_input.facts | {"study_seed": seed, "episodes": episodes, "fittest": len(indices)}
    return OperatorStudy(parts, tuple(sigmas), facts, evaluator.frames)


def draw_figures(done: OperatorStudy, show: int, embedding: str, folder: Path) -> list[Path]:
    """All figures; `show` is the index of the pair and of the parent whose visited states are drawn."""
    facts = done.facts
    note = (
        f"{facts['preset']} on {facts['task']} ({facts['engine']}), run seed {facts['seed']}, "
        f"generation {facts['generation']}, {facts['frames']:,} frames\n"
        f"parents drawn from the fittest {facts['fittest']}; "
        f"{facts['episodes']} episodes of every policy, study seed {facts['study_seed']}"
    )
    kernels = f"{note}\nGaussian kernels, Scott's bandwidth; KL(parent || child) in nats"
    written = []

    def path(name: str) -> Path:
        written.append(folder / f"{name}.png")
        return written[-1]

    for name, part in done.parts.items():
        head = f"States visited, parent{'s' * (name == 'crossover')} {part.families[show].name}"
        planes = {policy: first_two(one.all_states) for policy, one in part.played[show].items()}
        titles = _titles(part, show)
        if name == "magnitude":
            lines = _magnitude_lines(part, done.sigmas)
            figures.differences(path(name), f"{head}: proximal mutation", kernels, planes, titles, lines)
            continue
        names = [family.name for family in part.families]
        figures.bars(path(name), f"{name.capitalize()}: parents and children", note, part.played, names)
        visits = figures.contours if name == "crossover" else figures.differences
        visits(path(f"visits_{name}"), head, kernels, planes, titles)
        if name == "crossover":
            states = {policy: one.all_states for policy, one in part.played[show].items()}
            points = embed(states, embedding, facts["study_seed"])
            title = f"{head}: {METHODS[embedding]} of all dimensions"
            figures.cloud(path("embedding"), title, note, points, titles)
    return written


def _titles(part: OperatorComparison, show: int) -> dict[str, str]:
    """The title of each policy's panel: its name, its return and how far it is from its parents."""
    count = len(part.families[show].policies)
    titles = {}
    for row in part.rows[show * count : (show + 1) * count]:
        divergences = " and ".join(f"{value:.2g}" for value in row.divergences)
        distance = "" if row.is_parent else f", KL {divergences}"
        titles[row.policy] = f"{row.policy}\nreturn {row.mean:.1f}{distance}"
    return titles


def _magnitude_lines(part: OperatorComparison, sigmas: Sequence[float]) -> Callable:
    children = [[row for row in part.rows if row.policy == f"sigma {sigma:g}"] for sigma in sigmas]
    divergences = np.array([[row.divergences[0] for row in column] for column in children]).T
    returns = np.array([[row.mean for row in column] for column in children]).T
    itself = [row.itself for row in part.rows if row.itself is not None]
    return figures.magnitude_lines(divergences, returns, sigmas, median(itself) if itself else np.nan)
