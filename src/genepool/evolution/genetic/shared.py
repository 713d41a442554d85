"""What both genetic algorithms share: memories, calls of the operators, fates of clones, checks of settings."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from genepool import buffer, trees
from genepool.errors import UserError
from genepool.protocols import Critic
from genepool.types import Individual, Outcome, Population

T = TypeVar("T")
Crossover = Callable[[Array, Individual, Individual, Critic | None], tuple[Individual, ...]]
Mutation = Callable[[Array, Individual], Individual]

FATES = ("elite", "selected", "discarded")  # what may become of a clone of the learner in the population
ELITE, SELECTED, DISCARDED = range(len(FATES))  # states hold these indices


def with_new_memory(outcomes: Sequence[Outcome]) -> Population:
    """The individuals of the outcomes with their fitness. Each memory has the new transitions."""
    members = trees.stack([outcome.individual for outcome in outcomes])
    memory = buffer.record_each(members.memory, [outcome.transitions for outcome in outcomes])
    return Population(Individual(members.actor, memory), np.array([outcome.fitness for outcome in outcomes]))


def with_rows(stacked: T, slots: Sequence[int], rows: Any) -> T:
    """The stacked tree with these rows in these slots.

    The rows are written on the host, so that nothing is compiled for each number of rows.
    """

    def written(old: Array | np.ndarray, new: ArrayLike) -> Array | np.ndarray:
        leaf = np.array(old)  # a copy, because candidates may hold views of the old rows
        leaf[slots] = new
        return leaf if isinstance(old, np.ndarray) else jnp.asarray(leaf)

    return jax.tree.map(written, stacked, rows)


def operator_name(operator: object) -> str:
    """The name of an operator's class as words: "row copy"."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(operator).__name__).lower()


@partial(jax.jit, static_argnums=0)
def cross(
    crossover: Crossover, key: Array, x: Individual, y: Individual, critic: Critic | None
) -> tuple[Individual, ...]:
    """The children of x and y."""
    return crossover(key, x, y, critic)


@partial(jax.jit, static_argnums=0)
def mutate(mutation: Mutation, keys: Array, members: Individual, chosen: Array) -> Individual:
    """The members, of which the chosen ones are mutated."""
    return trees.where(jnp.asarray(chosen), jax.vmap(mutation)(keys, members), members)


def fates_report(fate: np.ndarray, fates: np.ndarray) -> dict[str, Any]:
    """The name of the last clone's fate, and how many clones so far had each fate."""
    last = FATES[int(fate)] if fate >= 0 else None
    return {"clone": last, "clones": dict(zip(FATES, fates.tolist(), strict=True))}


def elite_count(fraction: float, population: int) -> int:
    """e = max(1, floor(psi N))."""
    return max(1, int(fraction * population + 1e-9))


def check_sizes(population: int, tournament: int) -> None:
    """Refuse a population without pairs, and a tournament without individuals."""
    if population < 2:
        raise UserError(f"population is {population}: a genetic algorithm needs 2 individuals or more")
    if tournament < 1:
        raise UserError(f"tournament is {tournament}: it needs 1 individual or more")


def check_share(field: str, value: float, most: float = 1.0) -> None:
    """Refuse a share or probability that is out of range."""
    if not 0.0 <= value <= most:
        raise UserError(f"{field} is {value}: it must lie between 0 and {most:g}")
