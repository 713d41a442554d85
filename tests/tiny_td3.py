"""A small TD3, and how networks are compared."""

from functools import cache

import jax
import numpy as np

from genepool.learning.td3 import TD3
from genepool.networks import Actor

KEY = jax.random.key(0)
SMALL = TD3(batch_size=32, discount=0.9, tau=0.1, critic_hidden=(16, 16))  # one for all: compiling is most of the time


@cache
def learner(part=SMALL, sizes=(3, 2)):
    return part.init(KEY, Actor(KEY, *sizes, (8, 8), layer_norm=False))


def close(ours, naive, atol):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), ours, naive)


def same(one, other):
    leaves = (jax.tree.leaves(tree) for tree in (one, other))
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*leaves, strict=True))


def distance(one, other):
    leaves = (jax.tree.leaves(tree) for tree in (one, other))
    return max(float(np.max(np.abs(a - b))) for a, b in zip(*leaves, strict=True))
