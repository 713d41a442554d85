"""A small OpenAI-ES: its first state, its members and their outcomes."""

import jax
import numpy as np

from genepool import trees
from genepool.networks import Actor
from genepool.types import Individual, Outcome, Transitions

KEY = jax.random.key(0)
LIKE = Actor(KEY, 1, 1, (8, 8), False)
CLONE = Individual(Actor(jax.random.key(7), 1, 1, (8, 8), False), None)
PLAIN = {"winners": 0.0, "injected": 0, "crossover": None, "tuning": None}
ROWS = Transitions(np.zeros((1, 1)), np.zeros((1, 1)), np.ones(1), np.zeros((1, 1)), np.zeros(1))


def begun(part):
    return part.init(KEY, lambda _: Individual(LIKE, None))


def asked(part, state, count=None):
    return part.ask(KEY, state, range(count or part.population), None)


def made(candidate):
    """The perturbed actor of a member, as a vector."""
    return trees.flat(candidate.perturbation(candidate.individual.actor))


def played(candidate, fitness):
    """The candidate's outcome with this fitness."""
    individual = candidate.individual._replace(actor=candidate.perturbation(candidate.individual.actor))
    return Outcome(candidate, individual, (float(fitness),), ROWS)


def all_played(candidates, fitness):
    return [played(c, f) for c, f in zip(candidates, fitness, strict=True)]


def after_telling(part, state, outcomes, key=KEY):
    return part.tell(key, state, outcomes, None)


def same(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True) for a, b in pairs)
