"""Small SACs of both forms, and how networks are compared."""

from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import numpy as np
import pytest

from genepool.learning.sac import SAC
from genepool.networks import Actor, SquashedGaussian

KEY = jax.random.key(0)
# one for all: compiling is most of the time
TWIN = SAC(
    batch_size=32,
    discount=0.9,
    tau=0.1,
    critic_hidden=(16, 16),
    actor_rate=1e-3,
    critic_rate=1e-3,
    warmup=60,
    random_frames=60,
)
VALUE = replace(TWIN, critics="value", automatic=True, target_entropy=-1.0, temperature_rate=1e-2)
FORMS = pytest.mark.parametrize("part", [TWIN, VALUE], ids=["twin", "value"])


def new_actor(seed=0, sizes=(3, 2)):
    return Actor(jax.random.key(seed), *sizes, (8, 8), layer_norm=False)


def new_policy(seed=0, sizes=(3, 2)):
    return SquashedGaussian(jax.random.key(100 + seed), new_actor(seed, sizes))


@cache
def learner(part=TWIN):
    return part.init(KEY, new_actor())


def close(ours, naive, atol):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), ours, naive)


def same(one, other):
    leaves = (jax.tree.leaves(tree) for tree in (one, other))
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*leaves, strict=True))


def scaled(ring):
    """The memory with rewards a tenth as large, so that sums in float32 agree."""
    return eqx.tree_at(lambda b: b.data.reward, ring, 0.1 * ring.data.reward)
