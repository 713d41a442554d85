"""Hindsight crossover: a generation's winners cross with the mother after she moved (ESAC, Algorithm 1, line 26)."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool.protocols import Actor
from genepool.types import Individual

Crossover = Callable[[Array, Individual, Individual], tuple[Individual, ...]]


@partial(jax.jit, static_argnums=0)
def cross_with_mother(crossover: Crossover, key: Array, winners: Array, mother: Array, template: Actor) -> Array:
    """The mother with parts of each winner, [w, d]. All are flat vectors. `template` has the actor's shapes."""
    leaves, structure = jax.tree.flatten(template)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def tree(vector: Array) -> Individual:
        pieces = zip(jnp.split(vector, ends), leaves, strict=True)
        return Individual(jax.tree.unflatten(structure, [piece.reshape(leaf.shape) for piece, leaf in pieces]), None)

    def child(key: Array, winner: Array) -> Array:
        crossed = crossover(key, tree(winner), tree(mother))[1]
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(crossed.actor)])

    return jax.vmap(child)(jax.random.split(key, len(winners)), winners)
