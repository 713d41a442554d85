"""An evolver alone, and a learner alone: what each plays, what it learns from, and what is refused."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from tasks import Reach
from tiny import generations, same

import genepool

GENETIC = genepool.GenerationalGA(population=20, crossover=genepool.RowCopy(), mutation=genepool.Proximal(0.05))
EVOLVERS = {
    "cem": genepool.CEM(population=6),
    "es": genepool.OpenAIES(pairs=3, winners=0.0, injected=0, crossover=None, tuning=None),
    "genetic": replace(GENETIC, population=6),
    "steady": genepool.SteadyStateGA(population=6, crossover=genepool.RowCopy(), mutation=genepool.Gaussian()),
}
LEARNERS = {
    "ddpg": genepool.DDPG(batch_size=8, warmup=30),
    "td3": genepool.TD3(batch_size=8, warmup=30, critic_hidden=(8,)),
    "sac": genepool.SAC(batch_size=8, warmup=30, random_frames=30, critic_hidden=(8,)),
}
SMALL = {"hidden": (8, 8), "replay": 1_000}


# -- an evolver alone


def evolver_alone(evolver, **options):
    return genepool.cem(Reach, evolver=evolver, **{"hidden": (8, 8), "memory": 100} | options)


def test_a_population_alone_climbs_a_task_solved_in_seconds():
    algorithm = evolver_alone(GENETIC, layer_norm=True, memory=500, trials=4)
    best = [max(o.fitness for o in outcomes) for _, outcomes in generations(algorithm, 20)]
    assert best[0] < -5.0
    assert best[-1] > -3.5


@pytest.mark.parametrize("name", EVOLVERS)
def test_a_generation_of_an_evolver_alone_is_its_population_and_nothing_else(name):
    algorithm = evolver_alone(EVOLVERS[name], trials=2)
    assert algorithm.generation_size == 6
    for g, (state, outcomes) in enumerate(generations(algorithm, 3)):
        assert [o.candidate.purpose for o in outcomes] == ["fitness"] * 6
        assert [len(o.returns) for o in outcomes] == [2] * 6
        assert sorted(o.candidate.number for o in outcomes) == list(range(6 * g, 6 * g + 6))
        assert all(o.candidate.number == o.candidate.place for o in outcomes)
        assert state.learner is None
        assert algorithm.steps_owed(state) == 0
    assert list(algorithm.policies(state)) == ["champion"]
    assert not {"clone", "clones"} & set(algorithm.report(state, outcomes))


def lost_and_asked_again(algorithm):
    """The first candidates of six; those that are issued when the first and the last of them were lost; the state."""
    key = jax.random.key(2)
    workers = genepool.LocalWorkers(algorithm.task)
    candidates, state = algorithm.ask(key, algorithm.init(key), 6)
    state = algorithm.tell(key, state, workers.map(candidates[1:5]))
    again, state = algorithm.ask(jax.random.key(3), algorithm.forget_workers(state), 2)
    assert [(c.number, c.place) for c in again] == [(0, 0), (5, 5)]
    state = algorithm.tell(key, state, workers.map(again))
    assert int(state.in_flight.told_count) == int(state.in_flight.asked) == 6
    return candidates, again, state


def test_a_population_alone_that_lost_its_workers_issues_the_same_individuals_again():
    candidates, again, _ = lost_and_asked_again(evolver_alone(EVOLVERS["genetic"]))
    assert same([one.individual for one in again], [candidates[0].individual, candidates[5].individual])


def test_an_evolution_strategy_that_lost_members_of_two_pairs_tries_one_further_pair():
    candidates, again, state = lost_and_asked_again(evolver_alone(EVOLVERS["es"]))
    seeds = {one.perturbation.seed for one in candidates}
    assert again[0].perturbation.seed == again[1].perturbation.seed == max(seeds) + 1
    assert [one.perturbation.scale for one in again] == [0.005, -0.005]
    assert same(again[0].individual, candidates[0].individual)
    assert int(state.evolver.generation) == 1


def test_a_population_without_a_learner_cannot_distil():
    with pytest.raises(genepool.UserError, match="critic"):
        evolver_alone(genepool.GenerationalGA(crossover=genepool.Distillation()))


def test_an_evolver_alone_is_refused_where_there_is_none():
    with pytest.raises(genepool.UserError, match="needs an evolver"):
        genepool.cem(Reach, evolver=None)


# -- a learner alone


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_alone_plays_an_episode_and_then_takes_as_many_steps_as_it_had_frames(name):
    algorithm = getattr(genepool, name)(Reach, learner=LEARNERS[name], **SMALL)
    assert algorithm.generation_size == 1
    for g, (state, outcomes) in enumerate(generations(algorithm, 4)):
        (outcome,) = outcomes
        assert (outcome.candidate.purpose, outcome.candidate.number, outcome.frames) == ("exploration", g, 20)
        assert int(state.experience.replay.size) == 20 * (g + 1)
        assert int(state.learner.updates) == (0, 20, 40, 60)[g]  # the first 20 frames are fewer than the warm-up
    assert list(algorithm.policies(state)) == ["learner"]
    assert algorithm.report(state, outcomes)["updates"] == 60


def test_a_learner_alone_takes_as_many_steps_per_frame_as_it_is_told():
    algorithm = genepool.td3(Reach, learner=LEARNERS["td3"], updates_per_frame=0.25, **SMALL)
    assert [int(state.learner.updates) for state, _ in generations(algorithm, 4)] == [0, 5, 10, 15]


def test_exploration_noise_goes_on_where_the_last_episode_left_it():
    algorithm = genepool.ddpg(Reach, replay=1_000, hidden=(8,))
    last = None
    for state, outcomes in generations(algorithm, 3):
        noise = outcomes[0].candidate.noise
        if last is not None:
            assert abs(noise[0] - last) < 0.5 * 0.3
        last = noise[outcomes[0].frames - 1]
        assert np.array_equal(state.experience.noise, last)


def test_a_lost_episode_is_issued_again_and_counts_once():
    algorithm = genepool.ddpg(Reach, **SMALL)
    key = jax.random.key(0)
    workers = genepool.LocalWorkers(algorithm.task)
    (lost,), state = algorithm.ask(key, algorithm.init(key), 1)
    (again,), state = algorithm.ask(key, algorithm.forget_workers(state), 1)
    assert again.number == lost.number == 0
    assert again.purpose == "exploration"
    state = algorithm.tell(key, state, workers.map([again, lost]))
    assert int(state.in_flight.told_count) == 1
    assert int(state.experience.replay.size) == 20


@pytest.mark.parametrize(
    ("preset", "enough", "option"),
    [("ddpg", 641, "warmup"), ("td3", 10_001, "warmup"), ("sac", 10_000, "random-frames")],
)
def test_a_replay_that_never_holds_what_the_learner_waits_for_is_refused(preset, enough, option):
    assert getattr(genepool, preset)(Reach, replay=enough).replay == enough
    with pytest.raises(genepool.UserError, match=f"waits for {enough:,} .* --learner.{option}$"):
        getattr(genepool, preset)(Reach, replay=enough - 1)


def test_a_learner_alone_is_refused_where_there_is_none_and_where_it_is_none():
    with pytest.raises(genepool.UserError, match="needs a learner"):
        genepool.td3(Reach, learner=None)
    with pytest.raises(genepool.UserError, match=r"CEM is no learner: it has no method '\w+'"):
        genepool.td3(Reach, learner=genepool.CEM())


def test_a_setting_of_the_task_is_an_option_of_the_preset():
    assert genepool.ddpg("Ant-v5", truncation_is_terminal=True).task.truncation_is_terminal
