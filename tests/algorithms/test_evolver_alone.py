"""An evolver alone: CEM and OpenAI-ES without a learner, their arithmetic written out, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tasks import Reach
from tiny import KEY, LENGTH, es, generations, same

import genepool
from genepool import trees
from genepool.errors import UserError
from genepool.evolution.distribution.mirrored import centred_ranks, direction
from genepool.evolution.distribution.tuning import AutomaticMutationTuning, LinearTuning
from genepool.optimiser import Adam, adam_init


def cem(**options):
    return genepool.cem(Reach, **{"hidden": (8, 8), "test_episodes": 2} | options)


# -- CEM


def test_without_a_learner_there_is_nothing_to_learn_and_no_lesson():
    algorithm = cem()
    for state, outcomes in generations(algorithm, 2):
        assert state.learner is None
        assert not any(o.candidate.lesson for o in outcomes)
        assert {(o.candidate.purpose, o.candidate.origin) for o in outcomes} == {("fitness", "evolution")}
        assert algorithm.steps_owed(state) == algorithm.still_to_ask(state) == 0
        assert algorithm.learn(KEY, state) is state
    assert set(algorithm.report(state, outcomes)) == {"variance", "epsilon"}


def test_the_mean_of_cem_is_that_of_the_best_by_logarithmic_weights():
    algorithm = cem()
    ((state, outcomes),) = generations(algorithm, 1)
    tried = np.stack([trees.flat(o.individual.actor) for o in outcomes])
    best = np.argsort([-o.fitness for o in outcomes], kind="stable")[:5]
    weights = np.log(6 / np.arange(1, 6)) / np.log(6 / np.arange(1, 6)).sum()
    np.testing.assert_allclose(state.evolver.strategy_state.mean, weights @ tried[best], atol=1e-5)
    np.testing.assert_array_equal(trees.flat(algorithm.champion(state)), state.evolver.strategy_state.mean)
    assert list(algorithm.policies(state)) == ["champion"]


def test_every_trial_is_an_episode_with_a_seed_of_its_own():
    ((_, outcomes),) = generations(cem(trials=3), 1)
    assert [(len(o.returns), o.frames) for o in outcomes] == [(3, 3 * LENGTH)] * 10
    seeds = [seed for o in outcomes for seed in o.candidate.seeds]
    assert len(set(seeds)) == 30


def test_on_the_asynchronous_schedule_staleness_is_reported():
    algorithm = cem(schedule="asynchronous")
    candidates, state = algorithm.ask(KEY, algorithm.init(KEY), 4)
    outcomes = genepool.LocalWorkers(algorithm.task).map(candidates)
    for k, number in enumerate((2, 0, 3, 1)):
        state = algorithm.tell(KEY, state, [outcomes[number]])
        assert algorithm.report(state, [outcomes[number]])["staleness"] == [k]


def test_a_reference_has_seeds_of_its_own_and_its_frames_are_counted_apart():
    evolver = genepool.AsynchronousES(scale=5.0, reference_episodes=3)
    ((_, outcomes),) = generations(cem(evolver=evolver, schedule="asynchronous"), 1)
    for o in outcomes:
        assert len(set(o.candidate.reference_seeds)) == 3
        assert not set(o.candidate.reference_seeds) & set(o.candidate.seeds)
        assert (o.frames, o.reference_frames) == (LENGTH, 3 * LENGTH)


# -- any other evolver


@pytest.mark.parametrize("evolver", ["generational-ga", "steady-state-ga", "rank-es", "openai-es"])
def test_any_evolver_may_stand_alone(evolver):
    options = {"pairs": 3, "injected": 0} if evolver == "openai-es" else {"population": 4}
    algorithm = cem(evolver=evolver, memory=50, hidden=(4,), **options)
    for state, outcomes in generations(algorithm, 3):
        assert len(outcomes) == algorithm.generation_size
        assert np.isfinite(trees.flat(algorithm.champion(state))).all()
    assert "clones" not in algorithm.report(state, outcomes)  # there is no learner whose clones they would be


def test_a_crossover_that_asks_a_critic_is_refused_in_one_line():
    evolver = genepool.GenerationalGA(crossover=genepool.Distillation())
    with pytest.raises(UserError, match="there is none here: take --crossover row-copy") as refusal:
        cem(evolver=evolver)
    assert "\n" not in str(refusal.value)
    with pytest.raises(UserError, match="needs an evolver"):
        cem(evolver=None)


# -- OpenAI-ES


@pytest.mark.parametrize("options", [{}, {"winners": 0.4}], ids=["es", "with winners that never cross"])
def test_the_evolution_strategy_is_sample_rank_and_step_bit_for_bit(options):
    algorithm = es(**options)
    mother = jnp.asarray(algorithm.init(jax.random.key(0)).evolver.mother)
    adam = Adam(algorithm.evolver.rate)
    optimiser = adam_init(mother)
    step = jax.jit(lambda mother, gradient, optimiser: adam.step(mother, -gradient, optimiser))
    for state, outcomes in generations(algorithm, 5):
        returns = np.array([o.fitness for o in outcomes])
        ranks = np.array([np.sum(returns < r) + (np.sum(returns == r) + 1) / 2 for r in returns])
        noise = {}
        for outcome, value in zip(outcomes, (ranks - 1) / 11 - 0.5, strict=True):
            own = outcome.candidate.perturbation
            tried = np.asarray(mother) + np.float32(own.scale) * direction(own.seed, mother.size)
            np.testing.assert_array_equal(trees.flat(outcome.individual.actor), tried)
            noise[own.seed] = noise.get(own.seed, 0.0) + value / own.scale
        total = np.zeros(mother.size, np.float32)
        for seed in sorted(noise):
            total += np.float32(noise[seed]) * direction(seed, mother.size)
        mother, optimiser = step(mother, total / np.float32(6), optimiser)
        np.testing.assert_array_equal(state.evolver.mother, mother)


def test_es_is_the_strategy_of_esac_without_its_parts():
    off = {"crossover": None, "tuning": None, "injected": 0, "winners": 0.0}
    assert genepool.es(Reach).evolver == genepool.OpenAIES(**off)
    for (one, _), (other, _) in zip(generations(es(**off), 3), generations(es(), 3), strict=True):
        assert same(one, other)


def test_plain_ascent_moves_the_mother_by_rate_times_the_gradient():
    algorithm = es(optimiser="plain", rate=0.5)
    ((state, outcomes),) = generations(algorithm, 1)
    before = algorithm.init(jax.random.key(0)).evolver.mother
    shaped = centred_ranks(np.array([o.fitness for o in outcomes]))
    steps = [o.candidate.perturbation for o in outcomes]
    signed = [np.sign(step.scale) * direction(step.seed, before.size) for step in steps]
    gradient = sum(f * z for f, z in zip(shaped, signed, strict=True)) / (6 * algorithm.evolver.sigma)
    np.testing.assert_allclose(state.evolver.mother, before + 0.5 * gradient, atol=1e-5)


def test_told_one_by_one_it_is_the_same_strategy():
    algorithm = es()
    members, state = algorithm.ask(KEY, algorithm.init(KEY), 12)
    outcomes = genepool.LocalWorkers(algorithm.task).map(members)
    at_once = algorithm.tell(KEY, state, outcomes)
    for outcome in outcomes:
        state = algorithm.tell(KEY, state, [outcome])
    assert int(state.evolver.generation) == 1
    assert same(at_once, state)


def test_sigma_is_tuned_at_intervals_where_there_is_no_learner():
    intervals = es(tuning=LinearTuning(0.01), tuned="interval", interval=60)
    sigmas = [float(state.evolver.sigma) for state, _ in generations(intervals, 6)]
    assert sigmas == pytest.approx([0.05, 0.05, 0.06, 0.06, 0.06, 0.07])
    with_phases = es(tuning=AutomaticMutationTuning())  # which are a learner's, and there is none
    assert [float(state.evolver.sigma) for state, _ in generations(with_phases, 2)] == [0.05, 0.05]


def test_the_champion_is_the_mother():
    algorithm = es()
    *_, (state, outcomes) = generations(algorithm, 2)
    np.testing.assert_array_equal(trees.flat(algorithm.champion(state)), state.evolver.mother)
    assert algorithm.report(state, outcomes)["sigma"] == 0.05
    assert list(algorithm.policies(state)) == ["champion"]


def test_the_strategy_walks_the_cyclic_mdp_with_the_settings_for_it():
    algorithm = genepool.es("CyclicMDP", max_steps=200)
    assert (algorithm.evolver.sigma, algorithm.hidden, algorithm.activation) == (0.1, (32, 32), "tanh")
    mean = [np.mean([o.fitness for o in outcomes]) for _, outcomes in generations(algorithm, 25, seed=1)]
    assert mean[0] < 20
    assert mean[-1] > 150  # of twelve seeds eleven had 168 to 200; seed 0, which begins with no step forward, had 128
