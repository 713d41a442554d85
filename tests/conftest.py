"""What many tests are made of: transitions that are known by their reward, memories and individuals."""

import atexit
import os
import shutil
import tempfile

import jax
import numpy as np
import pytest

from genepool import buffer
from genepool.networks import Actor
from genepool.types import Individual, Transitions

# The processes that tests start share what JAX compiles: it is most of their time. This one has read its environment
# already and compiles for itself, so where both are compared, two compilations are.
os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="compiled-")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


def draw_rows(n, first=0, sizes=(3, 2)):
    """`n` random transitions; the reward of each is its number, counted from `first`."""
    rng = np.random.default_rng(first)

    def draw(size):
        return rng.uniform(-1.0, 1.0, (n, size)).astype(np.float32)

    reward = np.arange(first, first + n, dtype=np.float32)
    terminated = rng.integers(2, size=n).astype(np.float32)
    return Transitions(draw(sizes[0]), draw(sizes[1]), reward, draw(sizes[0]), terminated)


@pytest.fixture(scope="session")
def rows():
    return draw_rows


@pytest.fixture(scope="session")
def memory(rows):
    """A ring that holds the latest of `n` numbered rows."""
    return lambda capacity, n, first=0, sizes=(3, 2): buffer.record(
        buffer.empty(capacity, *sizes), rows(n, first, sizes)
    )


@pytest.fixture(scope="session")
def individual(memory):
    """A small actor with a memory of rows numbered from 1000 * seed."""

    def make(seed, n=20, capacity=32, sizes=(3, 2), hidden=(8, 8)):
        return Individual(Actor(jax.random.key(seed), *sizes, hidden), memory(capacity, n, 1000 * seed, sizes))

    return make
