"""A genetic algorithm that compiles quickly: its operators, its first generation, its outcomes."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import numpy as np

from genepool import trees
from genepool.evolution.genetic.generational import GenerationalGA
from genepool.types import Individual, Outcome

KEY = jax.random.key(0)
equal = partial(jax.tree.map, np.testing.assert_array_equal)


@dataclass(frozen=True)
class Shift:
    """A mutation that changes every weight and compiles quickly."""

    def __call__(self, key, x):
        return Individual(jax.tree.map(lambda leaf: leaf + 1.0, x.actor), x.memory)


@dataclass(frozen=True)
class Mean:
    """A crossover that changes every weight and compiles quickly, with one or two children."""

    children: int = 1

    def __call__(self, key, x, y, critic):
        return (Individual(jax.tree.map(lambda a, b: (a + b) / 2, x.actor, y.actor), x.memory),) * self.children


QUICK = GenerationalGA(crossover=Mean(), mutation=Shift())


def first_generation(individual):
    """A first generation of ten."""
    return trees.stack([individual(k, n=0, capacity=8, hidden=(4,)) for k in range(10)])


def play(rows, evolver, state, fitness, number=0):
    """Outcomes of a generation with this fitness; candidates are numbered from `number`."""
    start = int(state.generation) * evolver.population
    candidates = [replace(c, number=number + k, place=start + k) for k, c in enumerate(asked(evolver, state))]
    return [
        Outcome(c, c.individual, (float(f),), rows(3, first=10 * c.number))
        for c, f in zip(candidates, fitness, strict=True)
    ]


def started(evolver, first):
    return evolver.init(KEY, lambda k: trees.take(first, k))


def asked(evolver, state):
    start = int(state.generation) * evolver.population
    return evolver.ask(KEY, state, range(start, start + evolver.population), None)[0]
