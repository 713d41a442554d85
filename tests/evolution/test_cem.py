"""CEM: its weights, its sample and its update against CEM-RL's numbers; asking and telling in portions."""

from dataclasses import replace
from itertools import pairwise

import jax
import numpy as np
import pytest

from genepool.errors import UserError
from genepool.evolution.distribution.cem import CEM
from genepool.evolution.distribution.shared import Results, log_weights

KEY = jax.random.key(0)
MU = np.array([1.0, -2.0, 0.5], np.float32)
LAMBDA = np.array([0.42954, 0.26337, 0.16617, 0.09720, 0.04371])  # to the digits printed, of five elites


def equal(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def asked(part, state, *portions):
    """The rows that are handed out in these portions, and the state after the last."""
    rows = []
    for k, n in enumerate(portions):
        portion, state = part.ask(jax.random.fold_in(KEY, k), state, n)
        rows.append(portion)
    return np.concatenate(rows), state


def generations(part, fitness_of, count, mean=MU):
    """The states after each of many generations; `fitness_of(rng, vectors)` is their fitness."""
    rng = np.random.default_rng(0)
    state = part.init(KEY, mean)
    states = []
    for g in range(count):
        vectors, state = part.ask(KEY, state, part.population)
        state = part.tell(jax.random.fold_in(KEY, g), state, Results(vectors, fitness_of(rng, vectors)))
        states.append(state)
    return states


def test_the_elites_weights_are_those_of_cem_rl():
    np.testing.assert_allclose(log_weights(5), LAMBDA, atol=5e-6)
    np.testing.assert_allclose(sum(log_weights(7)), 1.0)


def test_epsilon_decays_as_cem_rl_s_does_and_before_it_is_used():
    states = generations(CEM(), lambda rng, vectors: rng.random(len(vectors)), 100)
    series = [float(states[g - 1].epsilon) for g in (10, 50, 100)]
    np.testing.assert_allclose(series, [6.0e-4, 8.6e-5, 1.59e-5], rtol=0.01)
    flat = generations(CEM(initial_variance=0.0), lambda rng, vectors: rng.random(len(vectors)), 1)[0]
    np.testing.assert_allclose(flat.variance, 0.95 * 1e-3 + 0.05 * 1e-5, rtol=1e-5)  # all individuals are the mean


def test_the_second_half_of_a_sample_mirrors_the_first():
    part = CEM(initial_variance=0.04)
    sample, _ = part.ask(KEY, part.init(KEY, MU), 10)
    np.testing.assert_allclose(sample[5:] - MU, -(sample[:5] - MU), atol=1e-6)
    assert len(np.unique(sample[:, 0])) == 10
    for free in (CEM(antithetic=False), CEM(population=9)):
        sample = free.init(KEY, MU).sample - MU
        assert not any(np.allclose(a, -b, atol=1e-4) for a in sample for b in sample)


def test_a_sample_has_the_variance_of_every_coordinate():
    part = CEM(population=10_000)
    state = part._sampled(KEY, replace(part.init(KEY, MU), variance=np.array([0.1, 0.2, 0.3], np.float32)))
    np.testing.assert_allclose(state.sample.var(axis=0), [0.1, 0.2, 0.3], rtol=0.08)  # 4 standard errors of 5000 rows
    np.testing.assert_allclose(CEM(population=10_000).init(KEY, MU).sample.var(axis=0), 1e-3, rtol=0.08)


@pytest.mark.parametrize(("divide", "divisor"), [(True, 5), (False, 1)])
def test_the_update_is_equation_1_and_2_with_the_old_mean_and_with_or_without_the_factor_one_kth(divide, divisor):
    part = CEM(divide_by_elites=divide, initial_variance=0.09)
    vectors, state = part.ask(KEY, part.init(KEY, MU), 10)
    fitness = np.random.default_rng(1).permutation(10).astype(float)
    found = part.tell(KEY, state, Results(vectors, fitness))
    elites = vectors[np.argsort(-fitness)[:5]]
    epsilon = 0.95 * 1e-3 + 0.05 * 1e-5
    np.testing.assert_allclose(found.mean, LAMBDA @ elites, atol=5e-5)
    np.testing.assert_allclose(found.variance, LAMBDA @ (elites - MU) ** 2 / divisor + epsilon, rtol=1e-4)


@pytest.mark.parametrize("seed", [0, 1])
def test_under_random_selection_the_variance_settles_at_one_and_a_quarter_epsilon(seed):
    """v = v / K + epsilon at rest, for K = 5. Without the factor it gathers noise instead."""
    at_rest = {"epsilon": 1e-5, "epsilon_decay": 1.0, "initial_variance": 1e-5}
    mean = np.zeros(400, np.float32)

    def judge(rng, vectors):
        return np.random.default_rng([seed, rng.integers(2**31)]).random(len(vectors))

    states = generations(CEM(**at_rest), judge, 60, mean)
    settled = np.mean([state.variance.mean() for state in states[20:]])
    np.testing.assert_allclose(settled, 1.25e-5, rtol=0.02)
    without = generations(CEM(**at_rest, divide_by_elites=False), judge, 60, mean)
    assert without[-1].variance.mean() > 1e-4


def test_after_a_hundred_generations_the_variance_is_that_of_the_simulated_authors_class():
    with_factor, without = (
        generations(CEM(divide_by_elites=d), lambda rng, v: rng.random(len(v)), 100, np.zeros(300, np.float32))[-1]
        for d in (True, False)
    )
    np.testing.assert_allclose(with_factor.variance.mean(), 2.0e-5, rtol=0.15)
    np.testing.assert_allclose(without.variance.mean(), 4e-3, rtol=0.75)  # a random walk


def test_with_elitism_the_best_of_a_generation_is_tried_again_in_the_last_place():

    def fitness(rng, vectors):
        return -np.sum(vectors**2, axis=1)

    for before, after in pairwise(generations(CEM(elitism=True), fitness, 6)):
        tried = before.sample
        np.testing.assert_array_equal(after.sample[-1], tried[np.argmax(fitness(None, tried))])
    last = generations(CEM(), fitness, 6)
    assert not any(np.array_equal(state.sample[-1], state.elite) for state in last)


@pytest.mark.parametrize("portions", [(1,) * 10, (3, 7), (9, 1)])
def test_asked_in_portions_it_hands_out_the_same_sample(portions):
    part = CEM()
    at_once, after = asked(part, part.init(KEY, MU), 10)
    rows, state = asked(part, part.init(KEY, MU), *portions)
    np.testing.assert_array_equal(rows, at_once)
    equal(state, after)


@pytest.mark.parametrize("portions", [(1,) * 10, (3, 7), (10,)])
def test_told_in_portions_it_moves_to_the_same_bits(portions):
    part = CEM()
    vectors, state = asked(part, part.init(KEY, MU), 10)
    fitness = np.random.default_rng(2).random(10)
    begin = 0
    at_once = part.tell(KEY, state, Results(vectors, fitness))
    for n in portions:
        mean_before = state.mean
        state = part.tell(KEY, state, Results(vectors[begin : begin + n], fitness[begin : begin + n]))
        begin += n
        assert begin == 10 or np.array_equal(state.mean, mean_before)
    equal(state, at_once)


def test_two_populations_told_at_once_move_it_twice():
    part = CEM()
    rng = np.random.default_rng(4)
    vectors = rng.normal(MU, 0.1, (25, 3)).astype(np.float32)
    fitness = rng.random(25)
    state = part.tell(KEY, part.init(KEY, MU), Results(vectors, fitness))
    twice = part.init(KEY, MU)
    for begin in (0, 10):
        twice = part.tell(KEY, twice, Results(vectors[begin : begin + 10], fitness[begin : begin + 10]))
    np.testing.assert_array_equal(state.mean, twice.mean)
    np.testing.assert_array_equal(state.variance, twice.variance)
    assert (int(state.archive.count), int(twice.archive.count)) == (5, 0)


def test_where_more_is_asked_for_than_a_sample_has_another_is_drawn():
    part = CEM()
    rows, state = asked(part, part.init(KEY, MU), 7, 20)
    assert len(np.unique(rows[:, 0])) == 27
    assert int(state.handed) == 7
    mirror = rows[10:20] - MU  # the second sample is mirrored within itself
    np.testing.assert_allclose(mirror[5:], -mirror[:5], atol=1e-6)


def test_a_fitness_that_is_not_finite_is_never_among_the_elites():
    part = CEM()
    vectors, state = asked(part, part.init(KEY, MU), 10)
    fitness = np.arange(10.0)
    fitness[[1, 4, 9]] = np.nan, np.inf, -np.inf
    wild = vectors.copy()
    wild[3] = np.nan
    found = part.tell(KEY, state, Results(wild, fitness))
    np.testing.assert_allclose(found.mean, LAMBDA @ vectors[[8, 7, 6, 5, 2]], atol=5e-5)
    few = part.tell(KEY, state, Results(vectors, np.where(np.arange(10) < 3, fitness, np.nan)))  # 2 and 0 are left
    np.testing.assert_allclose(few.mean, log_weights(2) @ vectors[[2, 0]], atol=1e-5)


def test_a_generation_without_a_number_leaves_the_mean_and_the_variance():
    part = CEM()
    vectors, state = asked(part, part.init(KEY, MU), 10)
    found = part.tell(KEY, state, Results(vectors, np.full(10, np.nan)))
    np.testing.assert_array_equal(found.mean, MU)
    np.testing.assert_array_equal(found.variance, state.variance)
    assert not np.array_equal(found.sample, state.sample)
    assert int(found.handed) == 0


@pytest.mark.parametrize("options", [{"population": 1}, {"epsilon": -1.0}, {"epsilon_decay": 1.5}])
def test_invalid_settings_are_refused(options):
    with pytest.raises(UserError):
        CEM(**options)


def test_a_population_that_is_too_small_is_named():
    with pytest.raises(UserError, match="population is 1: a strategy needs 2 individuals or more"):
        CEM(population=1)
