"""Injection, the coupling of ERL: order, accounting, the learner's clones, reductions."""

from dataclasses import replace

import jax
import pytest
from tasks import Reach
from tiny import copied, generations, leaves, same

import genepool


def small(preset=genepool.pderl, task=Reach, **options):
    options = {"population": 6, "memory": 100, "hidden": (8, 8), "replay": 10_000, "updates_per_frame": 0.05} | options
    return preset(task, **options)


# -- the four systems


def test_pderl_without_its_operators_is_erl_bit_for_bit():
    plain = small(crossover=genepool.RowCopy(), mutation=genepool.Gaussian(), elite_fraction=0.2)
    erl = small(genepool.erl, elite_fraction=0.2)
    assert all(same(a, b) for (a, _), (b, _) in zip(generations(plain, 3), generations(erl, 3), strict=True))


def test_perl_and_derl_are_pderl_with_one_operator_each():
    pderl, perl, derl = (preset("HalfCheetah-v5") for preset in (genepool.pderl, genepool.perl, genepool.derl))
    row_copy = {"crossover": genepool.RowCopy()}
    gaussian = {"mutation": genepool.Gaussian()}
    assert perl == replace(pderl, preset="perl", evolver=replace(pderl.evolver, **row_copy))
    assert derl == replace(pderl, preset="derl", evolver=replace(pderl.evolver, **gaussian))


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
    found = algorithm.evolver.elite_fraction, algorithm.trials, algorithm.sync_period
    assert found == (elite_fraction, trials, sync_period)
    assert getattr(algorithm.evolver.mutation, "sigma", None) == sigma
    assert preset(task, trials=7).trials == 7


# -- accounting


def test_a_generation_plays_every_individual_xi_times_and_the_learner_once():
    algorithm = small(trials=3)
    assert algorithm.generation_size == 7
    *_, (_, outcomes) = generations(algorithm, 1)
    assert [len(o.returns) for o in outcomes] == [3] * 6 + [1]
    assert [o.candidate.purpose for o in outcomes] == ["fitness"] * 6 + ["exploration"]
    assert [o.candidate.noise is not None for o in outcomes] == [False] * 6 + [True]
    assert [o.candidate.number for o in outcomes] == list(range(7))
    assert [o.candidate.place for o in outcomes] == [*range(6), -1]


def test_the_learner_takes_as_many_steps_as_the_generation_had_frames():
    algorithm = small(updates_per_frame=1.0, learner=genepool.DDPG(warmup=100))
    for g, (state, outcomes) in enumerate(generations(algorithm, 2), start=1):
        assert sum(o.frames for o in outcomes) == 7 * 20
        assert int(state.experience.owed) == int(state.learner.updates) == g * 7 * 20
        assert algorithm.steps_owed(state) == 0
    assert int(state.experience.replay.size) == 2 * 7 * 20


def test_no_learning_before_the_warm_up_is_over():
    algorithm = small(learner=genepool.DDPG(warmup=7 * 20))
    updates = [int(state.learner.updates) for state, _ in generations(algorithm, 2)]
    assert updates == [0, 7]


def test_outcomes_may_be_told_in_any_order():
    algorithm = small()
    key = jax.random.key(4)
    workers = genepool.LocalWorkers(algorithm.task)
    states = []
    for order in (slice(None), slice(None, None, -1)):
        candidates, state = algorithm.ask(key, algorithm.init(key), algorithm.generation_size)
        states.append(algorithm.tell(key, state, workers.map(candidates)[order]))
    assert same(*states)


def test_a_generation_may_be_asked_for_and_told_in_portions():
    algorithm = small(genepool.erl)
    key = jax.random.key(4)
    workers = genepool.LocalWorkers(algorithm.task)
    candidates, state = algorithm.ask(key, algorithm.init(key), 7)
    parts = []
    portioned = algorithm.init(key)
    for n in (3, 3, 1):
        part, portioned = algorithm.ask(key, portioned, n)
        parts += part
    assert algorithm.ask(key, portioned, 3)[0] == []  # the next generation waits for this one's outcomes
    for one, other in zip(candidates, parts, strict=True):
        found = [(c.number, c.place, c.purpose, c.origin, c.parents, len(c.seeds)) for c in (one, other)]
        assert found[0] == found[1]
        assert same(one.individual, other.individual)
    outcomes = workers.map(candidates)
    once = algorithm.tell(key, state, outcomes)
    for portion in (outcomes[5:], outcomes[:2], outcomes[2:5]):
        portioned = algorithm.tell(key, portioned, portion)
    assert same(once.evolver, portioned.evolver)
    assert int(once.experience.replay.size) == int(portioned.experience.replay.size) == 7 * 20


def test_ask_and_tell_leave_the_learner_alone_and_learn_writes_nothing_else():
    algorithm = small(learner=genepool.DDPG(warmup=10))
    key = jax.random.key(0)
    fresh = algorithm.init(key)
    before = copied(fresh.learner)
    candidates, state = algorithm.ask(key, fresh, algorithm.generation_size)
    state = algorithm.tell(key, state, genepool.LocalWorkers(algorithm.task).map(candidates))
    assert same(before, state.learner)

    def rest(s):
        return leaves(replace(s, learner=None))

    kept = [leaf.copy() for leaf in rest(state)]
    learnt = algorithm.learn(key, state)
    assert same(kept, rest(learnt))
    assert not same(learnt.learner.actor, before.actor)


# -- the learner's clones, and ancestry


def test_the_learners_clone_joins_every_omega_generations_with_its_memory_and_its_fate_is_counted():
    algorithm = small(sync_period=2)
    clones = []
    for g, (state, outcomes) in enumerate(generations(algorithm, 6), start=1):
        members = [o.candidate for o in outcomes if o.candidate.purpose == "fitness"]
        cloned = [candidate for candidate in members if candidate.origin == "learning"]
        clones += cloned
        assert len(cloned) == (g in (3, 5))
        assert (algorithm.report(state, [])["clone"] is not None) == (g in (3, 5))
        for clone in cloned:
            assert int(clone.individual.memory.size) == min(100, 20 * (g - 1))
            assert not clone.parents
            assert not clone.operators
    assert sum(algorithm.report(state, [])["clones"].values()) == 2


def test_every_childs_parents_were_tried_in_the_generation_before():
    before = set()
    for _, outcomes in generations(small(), 4):
        members = [o.candidate for o in outcomes if o.candidate.purpose == "fitness"]
        if before:
            assert all(set(c.parents) <= before for c in members)
            assert all(c.parents for c in members)
            assert {name for c in members for name in c.operators} <= {"elite", "distillation", "proximal"}
            assert sum(c.operators == ("elite",) for c in members) == 1
        before = {c.number for c in members}


def test_those_that_were_lost_are_issued_again_as_what_they_were():
    algorithm = small(genepool.erl)
    key = jax.random.key(2)
    workers = genepool.LocalWorkers(algorithm.task)
    candidates, state = algorithm.ask(key, algorithm.init(key), 7)
    outcomes = workers.map(candidates)
    state = algorithm.forget_workers(algorithm.tell(key, state, outcomes[1:5]))
    again, state = algorithm.ask(jax.random.key(3), state, 7)
    assert [(c.number, c.place, c.purpose) for c in again] == [
        (0, 0, "fitness"),
        (5, 5, "fitness"),
        (6, -1, "exploration"),
    ]
    for one, other in zip(again[:2], (candidates[0], candidates[5]), strict=True):
        assert same(one.individual, other.individual)
    state = algorithm.tell(key, state, [*workers.map(again), *outcomes])  # what was lost may come back, too
    assert int(state.in_flight.told_count) == 7
    assert int(state.evolver.generation) == 1
    assert int(state.experience.replay.size) == 7 * 20


def test_a_clone_joins_a_generation_once_also_where_its_first_member_is_issued_again():
    algorithm = small(sync_period=1)
    key = jax.random.key(2)
    *_, (state, _) = generations(algorithm, 1)
    workers = genepool.LocalWorkers(algorithm.task)
    candidates, state = algorithm.ask(key, state, 7)
    (clone,) = (c for c in candidates[:6] if c.origin == "learning")
    lost = [c for c in candidates if c is not clone]
    state = algorithm.forget_workers(algorithm.tell(key, state, workers.map([clone])))
    again, _ = algorithm.ask(key, state, 7)

    def what(c):
        return (c.number, c.place, c.origin, c.parents)

    assert list(map(what, again)) == list(map(what, lost))
    assert all(same(a.individual, b.individual) for a, b in zip(again[:5], lost[:5], strict=True))


# -- what is refused


def test_it_needs_a_learner_and_an_evolver():
    with pytest.raises(genepool.UserError, match="needs a learner: for an evolver alone"):
        genepool.pderl(Reach, learner=None)
    with pytest.raises(genepool.UserError, match="needs an evolver: for a learner alone"):
        genepool.pderl(Reach, evolver=None)


def test_what_a_user_gives_wins_over_the_papers_table():
    assert genepool.pderl("Ant-v5", mutation=genepool.Proximal(0.07)).evolver.mutation.sigma == 0.07
    assert genepool.pderl("Ant-v5", sigma=0.05).evolver.mutation.sigma == 0.05
    with pytest.raises(genepool.UserError, match="sigma"):
        genepool.erl("Ant-v5", sigma=0.05)


@pytest.mark.parametrize(("preset", "enough", "option"), [("pderl", 641, "warmup"), ("esac", 10_000, "random-frames")])
def test_a_replay_that_never_holds_what_the_learner_waits_for_is_refused(preset, enough, option):
    assert getattr(genepool, preset)(Reach, replay=enough).replay == enough
    with pytest.raises(genepool.UserError, match=f"waits for {enough:,} .* --learner.{option}$"):
        getattr(genepool, preset)(Reach, replay=enough - 1)


def test_an_unknown_option_is_named():
    with pytest.raises(genepool.UserError, match="elite_fractoin"):
        genepool.pderl(Reach, elite_fractoin=0.3)
