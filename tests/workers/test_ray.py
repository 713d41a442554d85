"""Ray workers: the same outcomes as local workers, on any worker; errors, learning in the background, the schedule."""

import time
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_ray import (
    BREAKS,
    DOZES,
    REACH,
    Troubled,
    leaves,
    make,
    of_every_kind,
    own_cluster,
    same,
    shared_workers,
    until,
)

import genepool
from genepool.errors import UserError
from genepool.evolution.genetic.steady_state import SteadyStateGA
from genepool.learning.ppo import Critic
from genepool.schedule import Clock, asynchronous, synchronous
from genepool.types import LearningResult, Outcome


@pytest.fixture(scope="module")
def cluster():
    yield from own_cluster()


@pytest.fixture(scope="module")
def three(cluster, tmp_path_factory):
    yield from shared_workers(make(Troubled, tmp_path_factory.mktemp("marks")), 3)


@pytest.fixture(scope="module")
def one(cluster):
    yield from shared_workers(REACH, 1)


def test_outcomes_equal_those_of_local_workers_bit_for_bit(three, memory):
    candidates = of_every_kind(memory=memory(32, 20, sizes=(1, 1)))
    here = genepool.LocalWorkers(REACH).map(candidates)
    assert all(same(a, b) for a, b in zip(three.map(candidates), here, strict=True))


def test_one_worker_gives_the_same_outcomes_as_three(one, three):
    candidates = of_every_kind(12)  # three at a time, or one after the other
    assert all(same(a, b) for a, b in zip(one.map(candidates), three.map(candidates), strict=True))


def trained(algorithm, workers, generations):
    state = algorithm.init(jax.random.key(0))
    key = jax.random.key(1)
    for g in range(generations):
        state, _ = synchronous(algorithm, workers, jax.random.fold_in(key, g), state, Clock())
    return state


def equal(a, b):
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(leaves(a), leaves(b), strict=True))


TINY = {"population": 6, "memory": 100, "hidden": (8, 8), "replay": 10_000, "updates_per_frame": 0.05}


def test_synchronous_pderl_is_the_same_run_bit_for_bit(three):
    algorithm = genepool.pderl(REACH, **TINY)
    assert equal(trained(algorithm, three, 2), trained(algorithm, genepool.LocalWorkers(REACH), 2))


def test_parallel_cem_rl_equals_cem_rl_bit_for_bit_whatever_the_number_of_workers(one, three):
    learner = genepool.TD3(batch_size=16, critic_hidden=(8, 8))
    algorithm = genepool.cem_rl(REACH, learner=learner, hidden=(8, 8), warmup=150, replay=2_000)
    here = trained(algorithm, genepool.LocalWorkers(REACH), 3)
    assert int(here.counts[0]) - 1 == 10  # lessons were taken in two of the three generations
    assert equal(trained(algorithm, three, 3), here)
    assert equal(trained(algorithm, one, 3), here)


def test_esac_on_a_cluster_is_esac_bit_for_bit(three):
    learner = genepool.SAC(batch_size=8, critic_hidden=(8, 8), warmup=8, random_frames=0)
    options = {"hidden": (8, 8), "pairs": 6, "injected": 1, "sac_episodes": 1, "gradient_interval": 2, "replay": 2_000}
    algorithm = genepool.esac(REACH, learner=learner, final_chance=1.0, **options)
    here = trained(algorithm, genepool.LocalWorkers(REACH), 3)
    assert int(here.phases) == 1
    assert equal(trained(algorithm, three, 3), here)


def test_gpo_on_a_cluster_is_gpo_bit_for_bit_through_a_crossover(three):
    crossover = genepool.StateSpace(iterations=2, selector_epochs=2, expert_frames=30, student_frames=20, dagger=2)
    mutation = genepool.PPO(epochs=2, critic=Critic(minibatches=1))
    small = {"population": 3, "iterations": 2, "rounds": 2, "batch": 60, "hidden": (8,), "max_steps": 20}
    algorithm = genepool.gpo(REACH, mutation=mutation, crossover=crossover, **small)
    here = trained(algorithm, genepool.LocalWorkers(REACH), 3)
    assert int(here.learner.round) == 1
    assert equal(trained(algorithm, three, 3), here)


def test_an_environments_error_arrives_once_and_in_the_same_line(three):
    candidates = [replace(candidate, seeds=(BREAKS - 2 + k,)) for k, candidate in enumerate(of_every_kind(4))]
    with pytest.raises(UserError) as here:
        genepool.LocalWorkers(three.task).map(candidates[2:3])
    with pytest.raises(UserError) as there:
        three.map(candidates)
    assert str(there.value) == str(here.value)
    assert "raised RuntimeError in the episode with seed 7, step 1: the joint broke" in str(there.value)
    assert three.map(candidates[:1])[0].candidate is candidates[0]  # the workers go on
    assert three.busy == 0


def test_waiting_costs_no_processor_time(three):
    three.submit(replace(of_every_kind(1)[0], seeds=(DOZES,)))
    begun = time.monotonic()
    spent = time.process_time()
    assert three.next(wait=False) is None
    assert isinstance(three.next(wait=True), Outcome)
    spent = time.process_time() - spent
    waited = time.monotonic() - begun
    assert waited > 1.9
    assert spent < 0.1 * waited


class Learning(NamedTuple):
    """Of an algorithm's state: what learning writes, and what it reads."""

    learner: Any
    replay: Any


def count_rows(key, state):
    """Learning that takes a while: it adds one to the steps, and to each row of the replay."""
    time.sleep(0.3)
    steps, _ = state.learner
    return state._replace(learner=(steps + 1, state.replay + 1))


def test_learning_goes_on_in_the_background_from_a_copy(three):
    state = Learning((np.int64(2), jnp.zeros(3)), jnp.zeros(3))
    three.learn_in_background(count_rows, jax.random.key(0), state, 1)
    assert three.learning
    jax.jit(lambda x: x + 5, donate_argnums=0)(state.replay)  # as tell does
    assert three.next(wait=False) is None
    found = three.next(wait=True)
    assert isinstance(found, LearningResult)
    assert found.learner[1].tolist() == [1.0, 1.0, 1.0]
    assert found.learner[0] == 3
    assert not three.learning


def test_learning_is_under_way_until_its_result_is_returned_and_no_other_begins_before(three):
    state = Learning((np.int64(2), jnp.zeros(3)), jnp.zeros(3))
    three.learn_in_background(count_rows, jax.random.key(0), state, 1)
    with pytest.raises(RuntimeError, match="under way already"):
        three.learn_in_background(count_rows, jax.random.key(0), state, 1)
    three.submit(of_every_kind(1)[0])
    until(lambda: three.idle == 3 and len(three._done) == 2)
    done = [(three.learning, three.next(wait=True)) for _ in range(2)]
    assert [learning for learning, found in done if isinstance(found, LearningResult)] == [True]
    assert not three.learning


def test_an_error_of_learning_arrives(three):
    def fail(key, state):
        raise FloatingPointError("diverged")

    three.learn_in_background(fail, jax.random.key(0), {}, 1)
    with pytest.raises(FloatingPointError, match="diverged"):
        three.next(wait=True)
    assert not three.learning


def test_the_asynchronous_schedule_tells_every_candidate_once(three):
    algorithm = genepool.erl(REACH, learner=genepool.DDPG(warmup=20), evolver=SteadyStateGA(), **TINY)
    key = jax.random.key(0)
    state = algorithm.init(key)
    told = []
    clock = Clock()
    for g in range(3):
        frames = 0 if g == 2 else 10**9  # the last time, only what is out still comes in
        state, outcomes = asynchronous(algorithm, three, jax.random.fold_in(key, g), state, clock, frames)
        told += [outcome.candidate.number for outcome in outcomes]
    assert three.busy == 0
    asked = [int(event.split()[1]) for event in clock.events if event.startswith("ask")]
    assert sorted(told) == sorted(asked) == list(range(len(asked)))
    assert len(told) >= 2 * algorithm.generation_size
    assert "learnt" in clock.events
    while three.learning:
        three.next(wait=True)
