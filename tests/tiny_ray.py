"""Ray workers for tests: environments in which something happens, candidates of every kind, a cluster for each file."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import ray
from tasks import Reach

from genepool.environments.task import Task
from genepool.networks import Actor
from genepool.types import Candidate, Individual
from genepool.workers.ray.cluster import start
from genepool.workers.ray.driver import RayWorkers

# seeds of episodes in which something happens
BREAKS = 7
DOZES = 11
DIES = 13


class Troubled(Reach):
    """By its seed an episode raises an error, takes two seconds to begin, or kills its process.

    If the folder has a file with the seed as its name, the first such episode writes its process id there and stalls.
    """

    def __init__(self, folder):
        self.folder = Path(folder)

    def reset(self, *, seed=None, options=None):
        self.seed = seed
        mark = self.folder / str(seed)
        if mark.exists():
            mark.write_text(str(os.getpid()))  # before the test may look for it
            mark.rename(self.folder / f"{seed}.stalled")
            time.sleep(600)
        if seed == DOZES:
            time.sleep(2.0)
        if seed == DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reset(seed=seed)

    def step(self, action):
        if self.seed == BREAKS:
            raise RuntimeError("the joint broke")
        return super().step(action)


class Nudge(eqx.Module):
    """A lesson: the actor moves a little towards the first number of the states."""

    states: jax.Array
    key: jax.Array
    steps: int = eqx.field(static=True)

    @eqx.filter_jit
    def __call__(self, actor):
        def loss(actor):
            return jnp.mean((jax.vmap(actor)(self.states[:, :1]) - jax.random.uniform(self.key)) ** 2)

        for _ in range(self.steps):
            actor = jax.tree.map(lambda x, g: x - 0.01 * g, actor, jax.grad(loss)(actor))
        return actor


def make(environment, *arguments):
    return Task(environment.__name__, make=partial(environment, *arguments))


REACH = make(Reach)


def of_every_kind(n=8, task=REACH, memory=None):
    """Candidates of every kind: plain, exploring, with a lesson, with a reference, with a memory."""
    keys = jax.random.split(jax.random.key(0), n)
    actors = [Actor(key, task.observation_size, task.action_size, (16, 16)) for key in keys]
    states = jax.random.normal(jax.random.key(1), (2000, 4))
    noise = 0.3 * np.random.default_rng(1).standard_normal((task.horizon, task.action_size)).astype(np.float32)
    found = []
    for k, actor in enumerate(actors):
        lesson = Nudge(states, jax.random.key(k), 3) if k % 4 == 2 else None
        reference = {"reference": actors[0], "reference_seeds": (500, 501)} if k % 4 >= 2 else {}
        found.append(
            Candidate(
                Individual(actor, memory if k % 2 else None),
                seeds=(100 * k, 100 * k + 1),
                noise=noise if k % 4 == 1 else None,
                lesson=lesson,
                number=k,
                **reference,
            )
        )
    return found


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(a, b):
    """Whether two outcomes are the same to the last bit."""
    assert a.candidate is b.candidate
    assert (a.returns, a.reference_returns, a.reference_frames) == (b.returns, b.reference_returns, b.reference_frames)
    assert a.individual.memory is b.individual.memory
    for x, y in zip(
        leaves((a.individual.actor, a.transitions)), leaves((b.individual.actor, b.transitions)), strict=True
    ):
        assert x.dtype == y.dtype
        assert np.array_equal(x, y)
    return True


def until(condition, seconds=30.0):
    late = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < late, "it did not happen"
        time.sleep(0.02)


def own_cluster():
    """A cluster for the tests of a file, as RayWorkers start it."""
    start(ray, 6)
    yield
    ray.shutdown()


def shared_workers(task, count):
    """Workers that several tests share, as they take seconds to start. They are closed after the last test."""
    found = RayWorkers(task, count)
    yield found
    found.close()
