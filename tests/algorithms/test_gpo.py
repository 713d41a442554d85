"""The GPO loop: its rounds, its phases, its budget and its ablations."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from tasks import Plane

import genepool
from genepool import trees
from genepool.algorithms.gpo.couples import Fittest
from genepool.algorithms.gpo.imitation import ParameterSpace, StateSpace
from genepool.algorithms.gpo.state import SCORES, Phase
from genepool.errors import UserError
from genepool.learning.ppo import A2C, PPO, Critic
from genepool.schedule import Clock, synchronous
from genepool.workers.local import LocalWorkers

CROSSOVER = StateSpace(iterations=2, selector_epochs=4, expert_frames=50, student_frames=20, dagger=3, epochs=2)
SMALL = {
    "population": 3,
    "rounds": 3,
    "iterations": 2,
    "batch": 60,
    "hidden": (8,),
    "mutation": PPO(epochs=2, critic=Critic(minibatches=1)),
    "normalise": False,
    "crossover": CROSSOVER,
    "max_steps": 20,
}


def played(algorithm, iterations, seed=0):
    """State, outcomes and clock of every iteration."""
    key = jax.random.key(seed)
    workers = LocalWorkers(algorithm.task)
    clock = Clock()
    state = algorithm.init(key)
    history = []
    for k in range(iterations):
        state, outcomes = synchronous(algorithm, workers, jax.random.fold_in(key, k), state, clock)
        history.append(outcomes)
    return state, history, clock


def same(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y, equal_nan=np.asarray(x).dtype.kind == "f") for x, y in pairs)


@pytest.fixture(scope="module")
def finished():
    algorithm = genepool.gpo(Plane, **SMALL)
    return algorithm, *played(algorithm, 6)


def test_the_budget_of_the_paper_closes_at_7957888_steps_with_experts_and_students():
    assert genepool.gpo("HalfCheetah-v5").budget == 7_957_888
    assert genepool.gpo("HalfCheetah-v5", final_crossover=True).budget == 8_037_888
    assert genepool.single("HalfCheetah-v5").budget == genepool.joint("HalfCheetah-v5").budget == 488 * 16_384


def test_every_step_of_a_run_is_counted_and_they_are_the_budget(finished):
    algorithm, state, history, _ = finished
    frames = [sum(o.frames for o in outcomes) for outcomes in history]
    assert sum(frames) == algorithm.budget == 3 * (3 * 2 * 60 + 2 * (50 + 3 * 20))
    assert frames == [180, 180 + 330, 180, 180 + 330, 180, 180]  # the last round ends without crossover
    assert int(state.learner.round) == 2


def test_a_round_mutates_then_selects_then_crosses_and_each_is_timed_apart(finished):
    _, _, history, clock = finished
    purposes = [[o.candidate.purpose for o in outcomes] for outcomes in history]
    assert purposes[0] == ["fitness"] * 3
    assert purposes[1] == ["fitness"] * 3 + ["expert"] * 3 + ["student"] * 9
    assert {"acting", "learning", "selecting", "exploring", "crossover"} <= clock.seconds.keys()


def test_the_phases_of_a_round_are_those_of_algorithm_1_and_some_wait_for_what_is_played():
    algorithm = genepool.gpo(Plane, **SMALL)
    key = jax.random.key(0)
    workers = LocalWorkers(algorithm.task)
    state = algorithm.init(key)
    waits = []
    phases = []
    while state.learner.round == 0:
        phases.append(Phase(int(state.learner.phase)))
        waits.append(not state.is_ready)
        assert waits[-1] == phases[-1].needs_play == (algorithm.steps_owed(state) == 0)
        if waits[-1]:
            candidates, state = algorithm.ask(key, state, 3)
            state = algorithm.tell(key, state, workers.map(candidates))
        assert algorithm.learning_phase(state) == phases[-1].record_name
        state = algorithm.learn(key, state)
    crossing = [Phase.START_CROSSOVER, *[Phase.IMITATE] * 4]  # the expert's collection, then three of the student
    assert phases == [Phase.MUTATE, Phase.MUTATE, Phase.SELECT, *crossing]
    assert waits == [True, True, False, False, *[True] * 4]


def test_children_descend_from_their_couples_and_others_from_themselves(finished):
    _, state, history, _ = finished
    last = {o.candidate.number for o in history[1] if o.candidate.purpose == "fitness"}
    children = [o.candidate for o in history[2]]
    assert all(child.operators == ("StateSpace",) and set(child.parents) <= last for child in children)
    assert all(len(set(child.parents)) == 2 for child in children)
    older = [o.candidate for o in history[3] if o.candidate.purpose == "fitness"]
    assert [c.parents for c in older] == [(child.number,) for child in children]
    assert all(c.operators == ("PPO",) for c in older)
    assert int(state.in_flight.told_count) == sum(len(outcomes) for outcomes in history)


def test_the_same_seed_gives_the_same_bits(finished):
    algorithm, state, _, _ = finished
    again, _, _ = played(algorithm, 6)
    assert same(state, again)


def test_outcomes_may_be_told_one_by_one_in_any_order():
    algorithm = genepool.gpo(Plane, **SMALL)
    key = jax.random.key(0)
    workers = LocalWorkers(algorithm.task)
    states = []
    for order in ((0, 1, 2), (2, 0, 1)):
        state = algorithm.init(key)
        candidates, state = algorithm.ask(key, state, 3)
        outcomes = workers.map(candidates)
        for k in order:
            assert algorithm.steps_owed(state) == 0
            state = algorithm.tell(key, state, [outcomes[k]])
        state = algorithm.tell(key, state, [outcomes[1]])  # told before: ignored
        states.append(algorithm.learn(key, state))
    assert same(*states)


def test_a_policy_of_single_does_not_depend_on_the_size_of_the_population():
    small = SMALL | {"crossover": None, "rounds": 1}
    many, few = (genepool.single(Plane, **small | {"population": m}) for m in (4, 2))
    states = [played(algorithm, 3)[0] for algorithm in (many, few)]
    first_two = jax.tree.map(lambda leaf: np.asarray(leaf)[:2], states[0].learner.members)
    assert same(first_two, states[1].learner.members)


def test_gpo_without_sharing_is_single_until_its_first_crossover():
    single = genepool.single(Plane, **SMALL | {"rounds": 1})
    off = genepool.gpo(Plane, **SMALL | {"crossover": None, "selection": None, "sharing": None})
    before, _, _ = played(replace(off, iterations=4), 3)
    assert same(before.learner.members, played(single, 3)[0].learner.members)
    after, _, _ = played(off, 3)  # the second ended a round
    assert not same(after.learner.members, before.learner.members)


def test_sharing_with_a_threshold_that_none_meets_is_no_sharing():
    strict = genepool.gpo(Plane, **SMALL | {"sharing": genepool.Sharing(kl=0.0)})
    alone = genepool.gpo(Plane, **SMALL | {"sharing": None})
    assert same(played(strict, 2)[0].learner.members, played(alone, 2)[0].learner.members)


def test_with_a_threshold_that_all_meet_each_policy_learns_from_the_rows_of_all():
    algorithm = genepool.gpo(Plane, **SMALL | {"sharing": genepool.Sharing(kl=1e9)})
    state, _, _ = played(algorithm, 1)
    assert state.learner.shares_with.all()
    alone, _, _ = played(genepool.gpo(Plane, **SMALL | {"sharing": None}), 1)
    assert not same(state.learner.members.policy, alone.learner.members.policy)


def test_the_policies_that_share_are_fixed_for_a_round():
    algorithm = genepool.gpo(
        Plane, **SMALL | {"iterations": 3, "mutation": PPO(epochs=5, rate=0.1, critic=Critic(minibatches=1))}
    )
    first, second = (played(algorithm, k)[0].learner.shares_with for k in (1, 2))
    assert np.array_equal(first, second)


def test_without_crossover_a_child_is_a_copy_of_the_stronger_parent():
    algorithm = genepool.gpo(Plane, **SMALL | {"crossover": None})
    key = jax.random.key(0)
    workers = LocalWorkers(algorithm.task)
    state = algorithm.init(key)
    for k in range(2):
        state, _ = synchronous(algorithm, workers, jax.random.fold_in(key, k), state, Clock())
    learner = state.learner
    fitness = state.scores[:, -1]
    assert int(learner.round) == 1
    couples = learner.crossover.couples
    stronger = [x if fitness[x] >= fitness[y] else y for x, y in couples]
    weights = np.asarray(learner.members.policy.output.weight)
    assert all(
        np.array_equal(weights[i], weights[j]) == (stronger[i] == stronger[j]) for i in range(3) for j in range(3)
    )
    assert not np.any(np.asarray(learner.members.optimiser.t))  # a new optimiser


@pytest.mark.parametrize(
    "parts",
    [
        {"crossover": ParameterSpace()},
        {"crossover": replace(CROSSOVER, choice="soft", child_starts_from="stronger", expert_alone=True)},
        {"selection": Fittest(diversity=0.5), "mutation": A2C(critic=Critic(minibatches=2)), "normalise": True},
        {"selection": None, "final_crossover": True, "rounds": 1, "iterations": 2},
    ],
    ids=str,
)
def test_every_ablation_trains_through_a_crossover(parts):
    """Only runs the code, and sees that everything stays a number."""
    algorithm = genepool.gpo(Plane, **SMALL | parts)
    state, _, _ = played(algorithm, 3)
    assert int(state.learner.round) == 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.learner.members))
    assert algorithm.report(state, [])["round"] == 2


def test_the_champion_is_the_one_that_earned_most_in_the_latest_iterations():
    algorithm = genepool.single(Plane, **SMALL | {"rounds": 1})
    state = algorithm.init(jax.random.key(0))
    scores = np.full((3, SCORES), np.nan)
    scores[:, -2:] = [[0.0, 9.0], [5.0, 5.0], [0.0, 8.0]]
    latest = replace(state, scores=scores)
    assert algorithm.best_member(latest) == 1
    assert same(algorithm.champion(latest), trees.take(state.learner.members.policy, 1))
    assert algorithm.best_member(state) == 0


def test_of_children_that_have_not_played_the_champion_is_the_one_with_the_best_parents():
    algorithm = genepool.gpo(Plane, **SMALL | {"crossover": None, "selection": None})
    state, _, _ = played(algorithm, 2)  # the second ended a round
    scores = np.full((3, SCORES), np.nan)
    scores[:, -1] = [9.0, 1.0, 5.0]
    crossover = replace(state.learner.crossover, couples=np.array([[1, 2], [0, 1], [0, 2]]))
    bred = replace(state, learner=replace(state.learner, crossover=crossover), scores=scores)
    assert algorithm.best_member(bred) == 2
    assert same(algorithm.champion(bred), trees.take(state.learner.members.policy, 2))
    told = replace(bred.in_flight, told_count=bred.in_flight.told_count + 3)
    assert algorithm.best_member(replace(bred, in_flight=told)) == 0  # they have played
    mutated = replace(bred.learner, iteration=bred.learner.iteration + 1)
    assert algorithm.best_member(replace(bred, learner=mutated)) == 0  # and learnt


def test_streams_share_the_frames_and_are_as_long_as_an_episode():
    algorithm = genepool.gpo(Plane, **SMALL)
    assert algorithm.streams(60) == (20, 20, 20)
    assert algorithm.streams(50) == (25, 25)
    assert algorithm.streams(7) == (7,)
    assert genepool.gpo("HalfCheetah-v5").streams(2048) == (512,) * 4


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"population": 1}, "population is 1: a couple needs two policies"),
        ({"batch": 0}, "batch is 0: it must be 1 or more"),
        ({"hidden": ()}, "hidden"),
        ({"mutation": PPO(minibatches=100)}, "minibatches"),
        ({"nonsense": 1}, "no option 'nonsense'"),
        ({"selection": 3}, "int is no selection"),
        ({"crossover": CROSSOVER, "hiden": 2}, "no option 'hiden'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(wrong, said):
    with pytest.raises(UserError, match=said):
        genepool.gpo(Plane, **SMALL | wrong)


def test_gpo_is_synchronous_only():
    with pytest.raises(UserError, match="synchronous only"):
        genepool.gpo(Plane, **SMALL, schedule="asynchronous")


def test_a_champion_with_scaled_observations_is_saved_and_loaded_as_it_is(tmp_path):
    algorithm = genepool.gpo(Plane, **SMALL | {"normalise": True, "test_every": 2})
    run = genepool.train(algorithm, 400, seed=1, run=tmp_path / "run", display=False)
    champion = run.champion
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    loaded = genepool.load(tmp_path / "run")
    assert np.array_equal(loaded.predict(observations)[0], champion.predict(observations)[0])
    assert np.any(np.asarray(loaded.actor.scale.mean))
    assert np.abs(loaded.predict(100.0 * observations)[0]).max() <= 1.0
