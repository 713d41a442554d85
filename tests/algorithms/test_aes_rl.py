"""AES-RL: the mean that is played beside every individual, staleness, lost candidates, and the serial loop."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from tiny import KEY, LENGTH, aes_rl, cem_rl, generations, same

import genepool
from genepool import trees
from genepool.evolution.distribution.asynchronous import AsynchronousES
from genepool.parts import part
from genepool.schedule import Clock, asynchronous
from genepool.types import Candidate, Individual


@pytest.fixture(scope="module")
def lived():
    """Six generations of AES-RL on one worker: [(state, outcomes, events)]."""
    algorithm = aes_rl()
    key = jax.random.key(0)
    workers = genepool.LocalWorkers(algorithm.task)
    state = algorithm.init(key)
    history = []
    for g in range(6):
        clock = Clock()
        state, outcomes = asynchronous(algorithm, workers, jax.random.fold_in(key, g), state, clock)
        without_ring = replace(state, experience=replace(state.experience, replay=None))
        history.append((jax.tree.map(np.asarray, without_ring), outcomes, clock.events))
    return algorithm, history


def one_by_one(algorithm, state, count, key=KEY):
    """Ask for a candidate, try it, tell it, so many times: each outcome with the states before and after it."""
    workers = genepool.LocalWorkers(algorithm.task)
    for k in range(count):
        own = jax.random.fold_in(key, k)
        (candidate,), asked = algorithm.ask(own, state, 1)
        (outcome,) = workers.map([candidate])
        before = asked.evolver
        state = algorithm.tell(own, asked, [outcome])
        yield outcome, before, state


# -- critic steps


def test_the_critic_takes_as_many_steps_as_there_were_frames_and_never_more(lived):
    algorithm, history = lived
    for state, _, _ in history:
        assert int(state.learner.updates) == int(state.frames)
    state = algorithm.init(KEY)
    workers = genepool.LocalWorkers(algorithm.task)
    for k in range(12):
        key = jax.random.fold_in(KEY, k)
        candidates, state = algorithm.ask(key, state, 1)
        state = algorithm.tell(key, state, workers.map(candidates))
        assert algorithm.steps_owed(state) <= algorithm.critic_chunk
        if int(state.frames) <= algorithm.warmup:
            assert algorithm.steps_owed(state) == 0
        while algorithm.steps_owed(state):
            state = algorithm.learn(key, state)
            assert int(state.learner.updates) <= int(state.frames)


# -- the mean beside every individual


def test_reference_episodes_are_played_by_the_mean_and_are_never_stored(lived):
    algorithm, history = lived
    for _, outcomes, _ in history:
        for o in outcomes:
            compared = o.candidate.purpose == "fitness"
            assert len(o.reference_returns) == 5 * compared
            assert o.reference_frames == 5 * LENGTH * compared
            assert o.frames == len(o.transitions.reward) == LENGTH
    state = algorithm.init(KEY)
    state = replace(state, frames=np.asarray(200), lengths=np.full(10, LENGTH))
    (candidate,), state = algorithm.ask(KEY, state, 1)
    assert same(candidate.reference, algorithm.champion(state))
    (outcome,) = genepool.LocalWorkers(algorithm.task).map([candidate])
    alone = Candidate(Individual(candidate.reference, None), candidate.reference_seeds)
    assert outcome.reference_returns == genepool.LocalWorkers(algorithm.task).map([alone])[0].returns
    assert int(algorithm.tell(KEY, state, [outcome]).experience.replay.size) == LENGTH


def test_the_mean_moves_as_its_rule_says_of_the_individual_and_the_reference(lived):
    algorithm, history = lived
    state, outcomes, _ = history[0]
    mean = algorithm.init(jax.random.key(0)).evolver.strategy_state.mean
    for o in outcomes:
        if o.candidate.purpose == "fitness":
            p = algorithm.evolver.mean_rule(o.fitness, float(np.mean(o.reference_returns)), 5.0)
            mean = mean + np.float32(p) * (trees.flat(o.individual.actor) - mean)
    np.testing.assert_allclose(state.evolver.strategy_state.mean, mean, atol=1e-5)


@part
class Never:
    """A mean rule under which the mean stays."""

    def __call__(self, z, mu, scale):
        """No step."""
        return 0.0


def test_with_the_cache_episodes_of_the_same_mean_are_played_once_and_their_mean_is_taken():
    algorithm = aes_rl(warmup=0, evolver=AsynchronousES(mean_rule=Never(), reference_cache=True))
    known = []
    fresh = []
    for outcome, _, state in one_by_one(algorithm, algorithm.init(KEY), 4):
        fresh.append(len(outcome.reference_returns))
        known += outcome.reference_returns
        (judged,) = algorithm.report(state, [outcome])["mean_fitness"]
        np.testing.assert_allclose(judged, np.mean(known), rtol=1e-6)
    assert fresh == [5, 0, 0, 0]
    moving = replace(algorithm, evolver=AsynchronousES(scale=5.0, reference_cache=True))
    fresh = []
    for outcome, before, state in one_by_one(moving, moving.init(KEY), 6):
        fresh.append(len(outcome.reference_returns))
        moved = not np.array_equal(before.strategy_state.mean, state.evolver.strategy_state.mean)
        assert np.isnan(state.evolver.mean_returns).all() == moved
    assert fresh.count(5) > 1  # a mean that moved is not the one that is known


def test_what_a_mean_earned_that_is_not_the_mean_any_more_is_not_kept():
    algorithm = aes_rl(warmup=0, evolver=AsynchronousES(mean_rule=Never(), reference_cache=True))
    candidates, state = algorithm.ask(KEY, algorithm.init(KEY), 2)
    first, second = genepool.LocalWorkers(algorithm.task).map(candidates)
    moving = replace(algorithm, evolver=AsynchronousES(scale=1e9, reference_cache=True))  # always half the way
    state = moving.tell(KEY, state, [first])
    assert np.isnan(state.evolver.mean_returns).all()
    state = algorithm.tell(KEY, state, [second])  # asked for before the mean moved
    assert np.isnan(state.evolver.mean_returns).all()


# -- staleness, order, loss


def test_staleness_is_how_many_were_accepted_since_the_candidate_was_asked_for():
    algorithm = aes_rl(warmup=0)
    workers = genepool.LocalWorkers(algorithm.task)
    candidates, state = algorithm.ask(KEY, algorithm.init(KEY), 4)
    outcomes = workers.map(candidates)
    order = [outcomes[k] for k in (2, 0, 3, 1)]
    for outcome in order:
        state = algorithm.tell(KEY, state, [outcome])
    report = algorithm.report(state, order)
    assert report["staleness"] == [0, 1, 2, 3]
    assert len(report["p"]) == len(report["mean_fitness"]) == 4
    at_once = algorithm.ask(KEY, algorithm.init(KEY), 4)[1]
    at_once = algorithm.tell(KEY, at_once, outcomes)
    assert algorithm.report(at_once, outcomes)["staleness"] == [0, 1, 2, 3]  # one after the other, at once or not
    later, state = algorithm.ask(KEY, state, 2)
    for outcome in workers.map(later)[::-1]:
        state = algorithm.tell(KEY, state, [outcome])
        assert algorithm.report(state, [outcome])["staleness"] == [5 - outcome.candidate.number]


def test_outcomes_may_be_told_in_any_order():
    algorithm = aes_rl(warmup=0)
    outcomes = None
    for order in ((0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0), (2, 5, 0, 1, 4, 3)):
        candidates, state = algorithm.ask(KEY, algorithm.init(KEY), 6)
        outcomes = outcomes or genepool.LocalWorkers(algorithm.task).map(candidates)
        for k in order:
            state = algorithm.tell(KEY, state, [outcomes[k]])
        strategy = state.evolver.strategy_state
        assert np.isfinite(strategy.mean).all()
        assert (strategy.variance >= np.float32(1e-5)).all()
        assert not state.in_flight.out.any()
        assert (int(state.in_flight.told_count), int(state.frames)) == (6, 6 * LENGTH)


def test_a_candidate_that_was_lost_is_issued_again_and_is_counted_once():
    algorithm = aes_rl(warmup=0, critic_head_start=0)
    state = algorithm.init(KEY)
    workers = genepool.LocalWorkers(algorithm.task)
    candidates, state = algorithm.ask(KEY, state, 3)
    state = algorithm.learn(KEY, algorithm.tell(KEY, state, workers.map(candidates)))
    counted = state.counts.sum()
    candidates, state = algorithm.ask(KEY, state, 4)
    assert state.counts.sum() == counted + 4
    state = algorithm.tell(KEY, state, workers.map(candidates[1:2]))
    again, state = algorithm.ask(jax.random.key(9), algorithm.forget_workers(state), 4)
    assert [c.number for c in again] == [3, 5, 6, 7]
    assert state.counts.sum() == counted + 5  # three again, one new
    kinds = [c.lesson is not None for c in (candidates[1], *again)]
    np.testing.assert_array_equal(state.counts, [1 + sum(kinds), 1 + len(kinds) - sum(kinds)])


# -- the serial loop


def test_the_asynchronous_schedule_on_one_worker_is_the_serial_loop():
    algorithm = aes_rl()
    key = jax.random.key(5)
    scheduled = [state for state, _ in generations(algorithm, 4, seed=5)]
    workers = genepool.LocalWorkers(algorithm.task)
    state = algorithm.init(key)
    without_ring = lambda state: replace(state, experience=replace(state.experience, replay=None))
    for g in range(4):
        k_ask, k_tell, k_learn = jax.random.split(jax.random.fold_in(key, g), 3)
        learn_count = 0
        for k in range(algorithm.generation_size):
            candidates, state = algorithm.ask(jax.random.fold_in(k_ask, k), state, 1)
            state = algorithm.tell(jax.random.fold_in(k_tell, k), state, workers.map(candidates))
            while algorithm.steps_owed(state):
                state = algorithm.learn(jax.random.fold_in(k_learn, learn_count), state)
                learn_count += 1
        assert same(without_ring(state), without_ring(scheduled[g]))
    assert same(state, scheduled[-1])
    assert int(state.learner.updates) == 40 * LENGTH


def test_the_events_of_a_serial_run_are_ask_tell_and_learn_in_turn(lived):
    _, history = lived
    *_, (_, outcomes, events) = history
    assert [event.split()[0] for event in events] == ["ask", "tell", "learnt"] * 10
    assert [int(e.split()[1]) for e in events if e.startswith("tell")] == [o.candidate.number for o in outcomes]


def test_in_a_run_the_reference_is_in_the_ledger_and_not_among_the_frames(tmp_path):
    *_, record = list(genepool.start(aes_rl(), frames=400, run=tmp_path / "run"))
    assert record["frames"] == record["ledger"]["warm-up"] + record["ledger"]["fitness"] == 400
    assert record["ledger"]["reference"] == 5 * record["ledger"]["fitness"]
    assert record["true_frames"] == sum(record["ledger"].values())
    assert record["ledger"]["champion test"] == 2 * 2 * LENGTH
    assert len(record["p"]) == len(record["staleness"]) == len(record["fitness"]) == 10
    assert record["staleness"] == [0.0] * 10
    assert record["taught"] + record["untaught"] > 0


def test_on_the_synchronous_schedule_a_result_lags_behind_those_that_moved_the_mean_before_it():
    *_, (state, outcomes) = generations(aes_rl(schedule="synchronous", warmup=0, critic_head_start=0), 2)
    algorithm = aes_rl(schedule="synchronous")
    assert algorithm.report(state, outcomes)["staleness"] == list(range(len(outcomes)))
    *_, (state, outcomes) = generations(cem_rl(), 2)
    assert cem_rl().report(state, outcomes)["staleness"] == [0] * len(outcomes)
