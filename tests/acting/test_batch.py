"""Batches of actors: an action depends on its own actor, observation and noise, not on the rest of the batch."""

import os
import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest

from genepool.acting.batch import BATCH_SIZES, batch_function
from genepool.networks import Actor, SquashedGaussian
from genepool.workers import local


class Timid(Actor):
    """Acts in a way of its own."""

    def explore(self, s, noise):
        return 0.5 * self(s)


def actors(hidden, layer_norm=False, activation="relu", size=3, kind=Actor, count=3):
    """Actors of 11 observations. Their initial weights are disturbed, so that none is zero."""
    rng = np.random.default_rng(0)

    def disturbed(leaf):
        return np.asarray(leaf) + 0.1 * rng.standard_normal(np.shape(leaf)).astype(np.float32)

    def make(key):
        if kind is SquashedGaussian:
            return SquashedGaussian(key, Actor(key, 11, size, hidden, layer_norm, activation))
        return kind(key, 11, size, hidden, layer_norm, activation)

    return [jax.tree.map(disturbed, make(key)) for key in jax.random.split(jax.random.key(0), count)]


def acts(several, inputs):
    """The actions of actors of the same shape."""
    leaves = [jax.tree.leaves(actor) for actor in several]
    size, act = batch_function(jax.tree.structure(several[0]), leaves, 11)
    rows = np.zeros((size, inputs.shape[1]), np.float32)
    rows[: len(several)] = inputs
    return act(rows)[: len(several)]


@pytest.mark.parametrize(
    ("hidden", "layer_norm", "activation", "size", "kind"),
    [
        ((128, 128), True, "tanh", 3, Actor),
        ((33,), False, "elu", 3, Actor),
        ((32,), False, "tanh", 1, Actor),  # one column, which XLA would sum up in its own ways
        ((64, 64), False, "relu", 17, Actor),
        ((256, 1025), False, "relu", 3, SquashedGaussian),  # a wide matrix, by XLA
        ((256, 2000), False, "relu", 3, Timid),
        ((512, 512), False, "relu", 6, Actor),  # wide ones, by Numba
        ((400, 300), False, "tanh", 2, Actor),  # with fewer columns than rows
        ((257, 256), True, "elu", 1, Actor),
        ((32, 2100, 32), False, "leaky_relu", 17, Actor),
        ((600, 700), False, "relu", 3, Actor),  # the largest that Numba reads here
    ],
)
def test_the_bits_of_an_action_depend_on_nothing_but_what_is_in_its_row(hidden, layer_norm, activation, size, kind):
    rng = np.random.default_rng(1)
    several = actors(hidden, layer_norm, activation, size, kind)
    inputs = rng.standard_normal((3, 11 + size)).astype(np.float32)
    alone = [acts([several[k]], inputs[[k]])[0] for k in range(3)]
    expected = [actor.explore(row[:11], row[11:]) for actor, row in zip(several, inputs, strict=True)]
    np.testing.assert_allclose(alone, expected, atol=1e-5)
    weight = sum(leaf.nbytes for leaf in jax.tree.leaves(several[0]))
    for rows in (n for n in BATCH_SIZES if n * weight < local.MAX_BATCH_BYTES):  # larger batches are never played
        chosen = rng.integers(3, size=rows)
        actions = acts([several[k] for k in chosen], inputs[chosen])
        assert np.array_equal(actions, [alone[k] for k in chosen]), rows


@pytest.mark.parametrize("layer_norm", [True, False])
@pytest.mark.parametrize("activation", ["tanh", "relu", "leaky_relu", "elu"])
def test_a_batch_on_the_host_acts_as_each_actor_does_by_itself(activation, layer_norm):
    several = actors((40, 24), layer_norm, activation, count=5)
    rng = np.random.default_rng(2)
    states, noise = (3.0 * rng.standard_normal((5, width)).astype(np.float32) for width in (11, 3))
    found = jax.tree.map(lambda *leaves: np.stack(leaves), *several).host_batch()(states, noise)
    expected = [actor.explore(s, e) for actor, s, e in zip(several, states, noise, strict=True)]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_wide_actors_whose_numbers_overflow_give_no_warning():
    huge = [jax.tree.map(lambda leaf: np.float32(1e30) * leaf, actor) for actor in actors((256, 257))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        acts(huge, np.ones((3, 14), np.float32))


@pytest.mark.parametrize(
    ("count", "hidden", "kind"),
    [
        (4, (512, 512), "Actor"),
        (2, (1100, 700), "Actor"),
        (12, (400, 300), "Actor"),
        (12, (256, 256), "SquashedGaussian"),
    ],
)
def test_wide_actors_are_read_by_the_thread_that_plays_and_wake_no_other(count, hidden, kind):
    """The threads of XLA and BLAS would take cores from other worker processes."""
    code = f"""
import jax, numpy as np
from dataclasses import replace
from pathlib import Path
from genepool.environments.lookup import find
from genepool.networks import Actor, SquashedGaussian
from genepool.acting.episodes import Rollout, play

def ticks():
    stats = [path.read_text().rpartition(")") for path in Path("/proc/self/task").glob("*/stat")]
    return sum(sum(map(int, rest.split()[11:13])) for name, _, rest in stats if name.split()[0] != main)

main = Path("/proc/self/stat").read_text().split()[0]
task = replace(find("HalfCheetah-v5", "mujoco"), max_steps=1000)
plain = [Actor(key, 17, 6, {hidden}, False, "relu") for key in jax.random.split(jax.random.key(0), {count})]
made = plain if "{kind}" == "Actor" else [SquashedGaussian(jax.random.key(1), actor) for actor in plain]
actors = [jax.device_get(actor) for actor in made]
play_all = lambda: play(task, task.open(), 1, [Rollout(actor, None, 0) for actor in actors])
play_all()
before = ticks()
play_all()
print(ticks() - before)
"""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) <= 2  # hundredths of a second


def test_an_actor_of_a_class_of_its_own_is_not_taken_for_its_parent():
    (wide,) = actors((256, 257), kind=Timid, count=1)
    row = np.ones((1, 14), np.float32)
    np.testing.assert_allclose(acts([wide], row)[0], 0.5 * wide(row[0, :11]), atol=1e-5)
