"""Tiny algorithms, and what tests do with them: train some generations, compare two states to the last bit."""

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from tasks import Reach

import genepool
from genepool import trees
from genepool.learning.sac import SAC
from genepool.learning.td3 import TD3
from genepool.types import Individual

KEY = jax.random.key(0)
N = 6  # individuals in a generation
LENGTH = 20  # of every episode of Reach
TEACHER = TD3(batch_size=8, critic_hidden=(8, 8))
SOFT = SAC(critics="value", batch_size=8, critic_hidden=(8, 8), warmup=8, random_frames=0)
LESSONS = {"hidden": (8, 8), "replay": 2_000, "learner": TEACHER, "warmup": 200, "test_episodes": 2}
PAIRS = {"hidden": (8, 8), "pairs": 6, "evolver.sigma": 0.05, "test_episodes": 2, "test_every": 1, "max_steps": LENGTH}
PHASES = {"replay": 2_000, "learner": SOFT, "injected": 1, "sac_episodes": 2, "gradient_interval": 2}


class Uneven(Reach):
    """Episodes of 3 to 20 steps, by the seed."""

    def reset(self, *, seed=None, options=None):
        answer = super().reset(seed=seed)
        self.end = 3 + seed % 18
        return answer

    def step(self, action):
        observation, reward, *_ = super().step(action)
        return observation, reward, False, self.t >= self.end, {}


@genepool.part
class Walk:
    """A strategy of one's own, as small as one can be: it tries steps around the best that it knows."""

    population: int = N

    def init(self, key, mean):
        return {"mean": mean, "height": np.asarray(-np.inf)}

    def ask(self, key, state, n):
        noise = trees.host_random(key).standard_normal((n, state["mean"].size), np.float32)
        return state["mean"] + np.float32(0.1) * noise, state

    def tell(self, key, state, results):
        for vector, fitness in zip(results.vectors, results.fitness, strict=True):
            state = {"mean": vector, "height": np.asarray(fitness)} if fitness > state["height"] else state
        return state

    def mean(self, state):
        return state["mean"]

    def report(self, state):
        return {"height": float(state["height"])}


@genepool.part
class Nudge:
    """A mutation of one's own: every weight moves a little, for ours leave the weights of so small a network alone."""

    def __call__(self, key, x):
        weights, unravel = ravel_pytree(x.actor)
        return Individual(unravel(weights + 0.1 * jax.random.normal(key, weights.shape)), x.memory)


def cem_rl(task=Reach, **options):
    """CEM-RL with a warm-up of one generation."""
    return genepool.cem_rl(task, **LESSONS | options)


def aes_rl(task=Reach, **options):
    """AES-RL with a warm-up of five episodes."""
    own = {"warmup": 100, "critic_head_start": 100, "critic_chunk": 50, "scale": 5.0}
    return genepool.aes_rl(task, **LESSONS | own | options)


def rank_es(**options):
    """AES-RL's rank-based strategy, with a warm-up of two episodes."""
    return genepool.rank_es(Reach, **LESSONS | {"warmup": 40, "critic_head_start": 0} | options)


def esac(**options):
    """ESAC with six pairs."""
    return genepool.esac(Reach, **PAIRS | PHASES | options)


def es(**options):
    """OpenAI-ES alone with six pairs."""
    return genepool.es(Reach, **PAIRS | options)


def generations(algorithm, count, seed=0):
    """The state and the outcomes of each of the first generations."""
    key = jax.random.key(seed)
    workers = genepool.LocalWorkers(algorithm.task)
    state = algorithm.init(key)
    for g in range(count):
        state, outcomes = genepool.generation(algorithm, workers, jax.random.fold_in(key, g), state)
        yield state, outcomes


def leaves(tree):
    """All arrays of a tree, on the host."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def copied(tree):
    """The same on arrays of its own, which no later step writes to."""
    return jax.tree.map(lambda leaf: leaf.copy() if hasattr(leaf, "copy") else leaf, tree)


def same(one, other):
    """Whether two trees hold the same bits."""
    pairs = zip(leaves(one), leaves(other), strict=True)
    return jax.tree.structure(one) == jax.tree.structure(other) and all(
        a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs
    )
