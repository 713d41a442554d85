"""ESAC's coupling: the learner's phases, its actor among the members, what is counted, and reductions."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from tasks import Reach
from tiny import KEY, LENGTH, es, esac, generations, same

import genepool
from genepool import trees
from genepool.algorithms.phases import Phases
from genepool.errors import UserError
from genepool.evolution.distribution.tuning import LinearTuning
from genepool.learning.ddpg import DDPG
from genepool.learning.td3 import TD3
from genepool.runs.folder import CLOCKED
from genepool.types import Outcome, Transitions

NO_PHASE = {"final_chance": 0.0, "chance_decay": 1e-9}


def played(candidate, fitness):
    """The candidate's outcome, had it earned this much."""
    individual = candidate.individual._replace(actor=candidate.perturbation(candidate.individual.actor))
    rows = Transitions(np.zeros((1, 1)), np.zeros((1, 1)), np.ones(1), np.zeros((1, 1)), np.zeros(1))
    return Outcome(candidate, individual, (fitness,), rows)


def last(algorithm, count, seed=0):
    """The state after so many generations."""
    *_, (state, _) = generations(algorithm, count, seed)
    return state


# -- when the learner has a phase


def test_142_phases_are_expected_in_a_million_nominal_steps():
    algorithm = esac()
    for millions, phases in ((1, 141.9), (2, 214.8), (5, 312.2), (10, 415.5)):
        chances = [algorithm.chance(1_000 * t) for t in range(5, millions * 1_000 + 1, 5)]
        assert sum(chances) == pytest.approx(phases, abs=0.1)
    assert algorithm.chance(10**6) == pytest.approx(0.491, abs=1e-3)


def test_a_phase_comes_as_often_as_its_chance_says():
    """Four hundred generations of one pair, each a chance of a quarter: 100 phases, within three deviations of 8.7."""
    options = {"pairs": 1, "winners": 0.0, "injected": 0, "sac_episodes": 1, "gradient_interval": 1}
    algorithm = esac(**options, final_chance=0.25, chance_decay=1e-9)
    members, state = algorithm.ask(KEY, algorithm.init(KEY), 2)
    outcomes = [played(member, float(k)) for k, member in enumerate(members)]
    ended = [algorithm.tell(jax.random.fold_in(KEY, k), state, outcomes) for k in range(400)]
    assert {int(s.generation) for s in ended} == {1}
    assert abs(sum(int(s.phases) for s in ended) - 100) < 3 * 8.7


def test_a_phase_comes_only_after_every_gradient_interval():
    algorithm = esac(final_chance=1.0, gradient_interval=3, sac_episodes=1)
    assert [int(s.phases) for s, _ in generations(algorithm, 6)] == [0, 0, 1, 1, 1, 2]


def test_a_phase_is_its_episodes_each_followed_by_as_many_gradient_steps_as_it_had_frames():
    algorithm = esac(final_chance=1.0)
    (first, outcomes), (second, more) = generations(algorithm, 2)
    assert [len(outcomes), len(more)] == [12, 14]
    assert [o.candidate.purpose for o in more[12:]] == ["exploration"] * 2
    assert int(first.learner.updates) == 0
    assert int(second.learner.updates) == sum(o.frames for o in more[12:]) == 40
    assert int(second.experience.replay.size) == 40  # the population's experience is not stored
    in_phase = replace(second, episodes=np.asarray(2))
    assert algorithm.still_to_ask(in_phase) == 1
    assert esac(final_chance=1.0, learns_after="phase").still_to_ask(in_phase) == 2


def test_shared_experience_stores_the_transitions_of_all():
    state = last(esac(final_chance=1.0, share_experience=True), 2)
    assert int(state.experience.replay.size) == (12 + 12 + 2) * LENGTH
    assert int(state.experience.owed) == 2 * LENGTH  # gradient steps are owed for the learner's own frames alone


def test_sigma_is_tuned_with_the_learner_s_phases_or_at_intervals():
    always = {"final_chance": 1.0, "gradient_interval": 2, "sac_episodes": 1}
    with_phases = esac(tuning=LinearTuning(0.01), **always)
    sigmas = [float(s.evolver.sigma) for s, _ in generations(with_phases, 4)]
    assert sigmas == pytest.approx([0.05, 0.06, 0.06, 0.07])
    at_intervals = esac(tuning=LinearTuning(0.01), tuned="interval", interval=60, **NO_PHASE)
    sigmas = [float(s.evolver.sigma) for s, _ in generations(at_intervals, 6)]
    assert sigmas == pytest.approx([0.05, 0.05, 0.06, 0.06, 0.06, 0.07])


# -- the learner among the members


def test_the_learner_s_actor_is_injected_as_it_stands():
    algorithm = esac(final_chance=1.0, injected=2)
    state = last(algorithm, 2)
    candidates, _ = algorithm.ask(KEY, state, algorithm.generation_size)
    around_learner = [c for c in candidates if c.kind == "learner"]
    assert len(around_learner) == 4
    for candidate in around_learner:
        assert same(candidate.individual.actor, jax.tree.map(np.asarray, algorithm.learner.actor(state.learner)))
        assert (candidate.origin, candidate.operators) == ("learning", ("learner",))


def test_the_learner_joins_every_generation_once_also_where_members_are_asked_for_one_by_one():
    algorithm = esac(**NO_PHASE, schedule="asynchronous")
    state = algorithm.init(KEY)
    kinds = []
    workers = genepool.LocalWorkers(algorithm.task)
    for k in range(24):
        (member,), state = algorithm.ask(jax.random.fold_in(KEY, k), state, 1)
        kinds.append(member.kind)
        state = algorithm.tell(KEY, state, workers.map([member]))
    assert kinds == (["winner"] * 4 + ["mother"] * 6 + ["learner"] * 2) * 2


def test_counters_are_true_and_the_nominal_count_is_derived(tmp_path):
    run = genepool.start(esac(final_chance=1.0), 900, seed=0, run=tmp_path / "run")
    records = list(run)
    final = records[-1]
    assert final["frames"] == final["ledger"]["fitness"] + final["ledger"]["exploration"] == (12 * 4 + 2 * 2) * 20
    assert final["nominal_steps"] == 4 * 20
    assert final["updates"] == final["ledger"]["exploration"]
    assert final["phases"] == 2
    assert final["pop_max_ma100"] == pytest.approx(np.mean([max(r["fitness"]) for r in records]))
    assert {"champion_test", "mother_test", "learner_test"} <= final.keys()


# -- reductions and laws


def test_esac_without_its_parts_moves_the_mother_as_the_evolution_strategy_alone_does():
    off = {"crossover": None, "tuning": None, "injected": 0, "winners": 0.0}
    coupled = esac(**off, **NO_PHASE)
    alone = es()
    state = coupled.init(KEY)
    other = alone.init(KEY)
    workers = genepool.LocalWorkers(alone.task)
    for k in range(3):
        key = jax.random.fold_in(KEY, k)
        state = replace(state, evolver=other.evolver)  # each coupling draws new directions by a key of its own
        members, state = coupled.ask(key, state, 12)
        others, other = alone.ask(key, other, 12)
        assert [m.perturbation for m in members] == [m.perturbation for m in others]
        assert [m.seeds for m in members] == [m.seeds for m in others]
        state = coupled.tell(key, state, workers.map(members))
        other = alone.tell(key, other, workers.map(others))
        for name in ("mother", "optimiser", "champion", "last_returns", "generation"):
            assert same(getattr(state.evolver, name), getattr(other.evolver, name)), name
    assert int(state.generation) == 3
    assert int(state.phases) == int(state.learner.updates) == 0


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    one, again, other = (last(esac(final_chance=1.0), 3, seed) for seed in (1, 1, 2))
    assert same(one, again)
    assert not same(one, other)


def test_told_one_by_one_it_is_the_same_state():
    algorithm = esac()
    members, state = algorithm.ask(KEY, algorithm.init(KEY), 12)
    outcomes = genepool.LocalWorkers(algorithm.task).map(members)
    at_once = algorithm.tell(KEY, state, outcomes)
    for outcome in outcomes:
        state = algorithm.tell(KEY, state, [outcome])
    assert same(at_once, state)


def test_on_the_asynchronous_schedule_the_learner_has_its_phases_too():
    state = last(esac(final_chance=1.0, schedule="asynchronous"), 5)
    assert int(state.generation) == int(state.evolver.generation) >= 4
    assert int(state.phases) >= 2
    assert int(state.learner.updates) > 0


def test_another_learner_takes_sacs_place():
    """Runs only."""
    learner = TD3(batch_size=8, critic_hidden=(8, 8), warmup=8)
    assert int(last(esac(learner=learner, final_chance=1.0), 2).learner.updates) == 40


@pytest.mark.parametrize("evolver", ["cem", "rank-es", "generational-ga"])
def test_another_evolver_takes_the_strategys_place_and_the_learner_is_tried_among_its_members(evolver):
    options = {"sac_episodes": 2, "gradient_interval": 2, "final_chance": 1.0, "hidden": (4,), "memory": 50}
    learner = DDPG(batch_size=8, warmup=8)
    algorithm = genepool.esac(Reach, evolver=evolver, learner=learner, population=4, replay=500, **options)
    for state, outcomes in generations(algorithm, 2):
        members = [o for o in outcomes if o.candidate.purpose == "fitness"]
        assert [o.candidate.origin for o in members].count("learning") == 1
        assert np.isfinite(trees.flat(algorithm.champion(state))).all()
    assert int(state.learner.updates) == 40
    assert list(algorithm.policies(state)) == ["champion", "learner"]


def test_an_interrupted_run_resumes_to_the_last_bit(tmp_path):
    whole = list(genepool.start(esac(final_chance=1.0), 1_100, seed=0, run=tmp_path / "whole"))
    parts = genepool.start(esac(final_chance=1.0), 1_100, seed=0, run=tmp_path / "parts")
    for record in parts:
        if record["generation"] == 2:
            parts.stop()
    resumed = genepool.resume(tmp_path / "parts", task=Reach)
    list(resumed)

    def strip(record):
        return {name: value for name, value in record.items() if name not in CLOCKED}

    assert [strip(record) for record in whole] == [strip(record) for record in resumed.folder.records]


def test_the_papers_settings_are_chosen_by_task():
    assert genepool.esac("Ant-v5").evolver.rate == 1e-4
    assert genepool.esac("Swimmer-v5").sac_episodes == 1
    assert genepool.esac("HalfCheetah-v5").sac_episodes == 5
    preset = genepool.esac("Hopper-v5", pairs=10)
    assert (preset.sac_episodes, preset.evolver.pairs, preset.hidden) == (10, 10, (512, 512))
    assert isinstance(preset, Phases)
    assert preset.learner.critics == "value"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"final_chance": 1.5}, "final chance is 1.5: it is a probability"),
        ({"chance_decay": 0.0}, "chance decay is 0.0"),
        ({"sac_episodes": 0}, "sac episodes is 0"),
        ({"updates_per_frame": -1.0}, "updates per frame is -1.0"),
        ({"learner": None}, "phases needs a learner"),
        ({"evolver": None}, "phases needs an evolver"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_a_line(options, said):
    make = partial(genepool.esac, Reach) if options.get("evolver", 0) is None else esac
    with pytest.raises(UserError, match=said) as refusal:
        make(**options)
    assert "\n" not in str(refusal.value)
