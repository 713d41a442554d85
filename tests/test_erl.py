"""The ERL loop: order, accounting, reductions, and that it learns."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from tasks import Reach

import genepool
from genepool.schedule import Clock, synchronous


def generations(algorithm, count, seed=0):
    """The records of the first generations, without a run folder: the outcomes and the states."""
    key, workers = jax.random.key(seed), genepool.LocalWorkers(algorithm.task)
    state = algorithm.init(key)
    for g in range(count):
        state, outcomes = synchronous(algorithm, workers, jax.random.fold_in(key, g), state, Clock())
        yield state, outcomes


def small(preset, task=Reach, **options):
    options = {"population": 6, "memory": 100, "hidden": (8, 8), "replay": 10_000, "updates_per_frame": 0.05} | options
    return preset(task, **options)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_pderl_without_its_operators_is_erl_bit_for_bit():
    plain = small(genepool.pderl, crossover=genepool.RowCopy(), mutation=genepool.Gaussian(), elite_fraction=0.2)
    for (a, _), (b, _) in zip(
        generations(plain, 3), generations(small(genepool.erl, elite_fraction=0.2), 3), strict=True
    ):
        assert all(np.array_equal(x, y, equal_nan=True) for x, y in zip(leaves(a), leaves(b), strict=True))


def test_perl_and_derl_are_pderl_with_one_operator_each():
    pderl, perl, derl = (preset("HalfCheetah-v5") for preset in (genepool.pderl, genepool.perl, genepool.derl))
    assert perl == replace(pderl, evolver=replace(pderl.evolver, crossover=genepool.RowCopy()))
    assert derl == replace(pderl, evolver=replace(pderl.evolver, mutation=genepool.Gaussian()))


@pytest.mark.parametrize(
    ("preset", "task", "elite_fraction", "trials", "sync_period", "sigma"),
    [
        (genepool.pderl, "Hopper-v5", 0.2, 3, 1, 0.1),
        (genepool.pderl, "Walker2d-v4", 0.2, 5, 1, 0.1),
        (genepool.pderl, "Ant-v5", 0.2, 1, 1, 0.01),
        (genepool.perl, "Swimmer-v5", 0.1, 1, 10, 0.1),
        (genepool.erl, "Hopper-v5", 0.3, 5, 1, None),
        (genepool.erl, "Walker2d-v5", 0.2, 3, 10, None),
    ],
)
def test_a_preset_takes_its_papers_settings_for_the_task(preset, task, elite_fraction, trials, sync_period, sigma):
    algorithm = preset(task)
    assert (algorithm.evolver.elite_fraction, algorithm.trials, algorithm.sync_period) == (
        elite_fraction,
        trials,
        sync_period,
    )
    assert getattr(algorithm.evolver.mutation, "sigma", None) == sigma
    assert preset(task, trials=7).trials == 7


def test_a_generation_plays_every_individual_xi_times_and_the_learner_once():
    algorithm = small(genepool.pderl, trials=3)
    *_, (_, outcomes) = generations(algorithm, 1)
    assert [len(o.returns) for o in outcomes] == [3] * 6 + [1]
    assert [o.candidate.purpose for o in outcomes] == ["fitness"] * 6 + ["exploration"]
    assert [o.candidate.noise is not None for o in outcomes] == [False] * 6 + [True]


def test_the_learner_takes_as_many_steps_as_the_generation_had_frames():
    algorithm = small(genepool.pderl, updates_per_frame=1.0, learner=genepool.DDPG(warmup=100))
    for g, (state, outcomes) in enumerate(generations(algorithm, 2), start=1):
        assert sum(o.frames for o in outcomes) == 7 * 20
        assert int(state.owed) == int(state.learner.updates) == g * 7 * 20
    assert int(state.replay.size) == 2 * 7 * 20


def test_no_learning_before_the_warm_up_is_over():
    algorithm = small(genepool.pderl, learner=genepool.DDPG(warmup=7 * 20))
    updates = [int(state.learner.updates) for state, _ in generations(algorithm, 2)]
    assert updates == [0, 7]


def test_outcomes_may_be_told_in_any_order():
    algorithm = small(genepool.pderl)
    key, workers = jax.random.key(4), genepool.LocalWorkers(algorithm.task)
    told = []
    for order in (slice(None), slice(None, None, -1)):
        candidates, state = algorithm.ask(key, algorithm.init(key), algorithm.generation)
        told.append(algorithm.tell(key, state, workers.map(candidates)[order]))
    assert all(np.array_equal(x, y, equal_nan=True) for x, y in zip(leaves(told[0]), leaves(told[1]), strict=True))


def test_ask_and_tell_leave_the_learner_alone_and_learn_writes_nothing_else():
    algorithm = small(genepool.pderl, learner=genepool.DDPG(warmup=10))
    key = jax.random.key(0)
    fresh = algorithm.init(key)
    before = leaves(fresh.learner)
    candidates, state = algorithm.ask(key, fresh, algorithm.generation)
    state = algorithm.tell(key, state, genepool.LocalWorkers(algorithm.task).map(candidates))
    assert all(np.array_equal(x, y, equal_nan=True) for x, y in zip(before, leaves(state.learner), strict=True))
    rest = lambda s: leaves(replace(s, learner=None))
    kept = [leaf.copy() for leaf in rest(state)]
    learnt = algorithm.learn(key, state)
    assert all(np.array_equal(x, y, equal_nan=True) for x, y in zip(kept, rest(learnt), strict=True))
    assert not np.array_equal(leaves(learnt.learner.actor)[0], before[0])


def test_the_learners_clone_joins_every_omega_generations_with_its_memory_and_its_fate_is_counted():
    algorithm = small(genepool.pderl, sync_period=2)
    clones = []
    for g, (state, outcomes) in enumerate(generations(algorithm, 6), start=1):
        cloned = [
            o.candidate for o in outcomes if o.candidate.origin == "learning" and o.candidate.purpose == "fitness"
        ]
        clones += cloned
        assert len(cloned) == (g in (3, 5))
        assert (algorithm.report(state, [])["clone"] is not None) == (g in (3, 5))
        for clone in cloned:
            assert int(clone.individual.memory.size) == min(100, 20 * (g - 1))
            assert not clone.parents
            assert not clone.operators
    assert sum(algorithm.report(state, [])["clones"].values()) == 2


def test_exploration_noise_goes_on_where_the_last_episode_left_it():
    algorithm = genepool.ddpg(Reach, replay=1_000, hidden=(8,))
    last = None
    for state, outcomes in generations(algorithm, 3):
        noise = outcomes[0].candidate.noise
        if last is not None:
            assert abs(noise[0] - last) < 0.5 * 0.3
        last = noise[outcomes[0].frames - 1]
        assert np.array_equal(state.noise, last)


def test_every_childs_parents_were_tried_in_the_generation_before():
    before = set()
    for _, outcomes in generations(small(genepool.pderl), 4):
        everyone = [o.candidate for o in outcomes if o.candidate.purpose == "fitness"]
        if before:
            assert all(set(c.parents) <= before for c in everyone)
            assert all(c.parents for c in everyone)
            assert {name for c in everyone for name in c.operators} <= {"elite", "distillation", "proximal"}
            assert sum(c.operators == ("elite",) for c in everyone) == 1
        before = {c.number for c in everyone}


def test_the_population_alone_climbs_a_task_solved_in_seconds():
    algorithm = genepool.perl(Reach, learner=None, population=20, hidden=(8, 8), memory=500, trials=4, sigma=0.05)
    best = [max(o.fitness for o in outcomes) for _, outcomes in generations(algorithm, 20)]
    assert best[0] < -5.0
    assert best[-1] > -3.5


def test_a_population_without_a_learner_cannot_distil():
    with pytest.raises(genepool.UserError, match="critic"):
        genepool.pderl(Reach, learner=None)


def test_what_a_user_gives_wins_over_the_papers_table():
    assert genepool.pderl("Ant-v5", mutation=genepool.Proximal(0.07)).evolver.mutation.sigma == 0.07
    assert genepool.pderl("Ant-v5", sigma=0.05).evolver.mutation.sigma == 0.05
    assert genepool.ddpg("Ant-v5", truncation_is_terminal=True).task.truncation_is_terminal
    with pytest.raises(genepool.UserError, match="sigma"):
        genepool.erl("Ant-v5", sigma=0.05)


@pytest.mark.parametrize(
    ("preset", "enough", "option"),
    [
        ("ddpg", 641, "warmup"),
        ("td3", 10_001, "warmup"),
        ("sac", 10_000, "random-frames"),
        ("esac", 10_000, "random-frames"),
    ],
)
def test_a_replay_that_never_holds_what_the_learner_waits_for_is_refused(preset, enough, option):
    assert getattr(genepool, preset)(Reach, replay=enough).replay == enough
    with pytest.raises(genepool.UserError, match=f"waits for {enough:,} .* --learner.{option}$"):
        getattr(genepool, preset)(Reach, replay=enough - 1)


def test_an_unknown_option_is_named():
    with pytest.raises(genepool.UserError, match="elite_fractoin"):
        genepool.pderl(Reach, elite_fractoin=0.3)


def test_a_partial_generation_is_refused():
    algorithm = small(genepool.pderl)
    with pytest.raises(ValueError, match="breeds whole generations"):
        algorithm.ask(jax.random.key(0), algorithm.init(jax.random.key(0)), 3)
