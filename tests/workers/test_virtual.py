"""Workers on a simulated clock, and workers that repeat a recorded order: they change the order, and nothing else."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from tasks import Reach

import genepool
from genepool.environments.lookup import find
from genepool.evolution.genetic.steady_state import SteadyStateGA
from genepool.learning.ddpg import DDPG
from genepool.schedule import Clock, asynchronous, synchronous
from genepool.types import Candidate, Individual, LearningResult, Outcome, Transitions
from genepool.workers.virtual import LEARNER, Costs, RecordedWorkers, VirtualWorkers

COSTS = Costs(critic=0.003, actor=0.002, environment=0.001)


class FakeWorkers:
    """Inner workers that play nothing: the length of an episode is its seed."""

    def map(self, candidates):
        return [outcome(candidate) for candidate in candidates]


def outcome(candidate):
    rows = Transitions(None, None, np.zeros(sum(candidate.seeds)), None, None)
    return Outcome(candidate, candidate.individual, (0.0,), rows, (), sum(candidate.reference_seeds))


class Uneven(Reach):
    """Some episodes are shorter than others, so candidates are not always done in the order of asking."""

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        self.t = int(self.np_random.integers(12))
        return observation, info


def candidate(number, frames, lesson=None, reference=()):
    lesson = SimpleNamespace(steps=np.asarray(lesson)) if lesson else None
    return Candidate(Individual(None, None), (frames,), lesson=lesson, reference_seeds=reference, number=number)


def learning(key, state):
    """The state after learning: only its learner is returned."""
    return SimpleNamespace(learner="learnt")


def tiny():
    return genepool.Injection(
        find(Uneven),
        evolver=SteadyStateGA(population=4),
        learner=DDPG(batch_size=8, warmup=20),
        hidden=(8,),
        memory=32,
        replay=512,
        schedule="asynchronous",
    )


def rounds(workers, count=4, schedule=asynchronous, between=lambda: None, algorithm=None):
    """The state after some rounds of the tiny algorithm, and the events of each."""
    algorithm = algorithm or tiny()
    key = jax.random.key(3)
    events = []
    state = algorithm.init(key)
    for r in range(count):
        clock = Clock()
        state, _ = schedule(algorithm, workers, jax.random.fold_in(key, r), state, clock)
        events.append(clock.events)
        between()
    return state, events


def flat(events):
    return [event for each in events for event in each]


def same(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)


def local():
    return genepool.LocalWorkers(find(Uneven))


def test_candidates_come_back_when_their_time_is_over_and_ties_in_the_order_of_submission():
    workers = VirtualWorkers(FakeWorkers(), 3, Costs(1.0, 2.0, 1.0))
    for each in (candidate(0, 7, reference=(2, 1)), candidate(1, 4, lesson=3), candidate(2, 5)):
        workers.submit(each)
    workers.learn_in_background(learning, None, None, steps=10)
    assert (workers.idle, workers.busy, workers.learning) == (0, 3, True)
    assert workers.next(wait=False) is None
    came = [workers.next(wait=True) for _ in range(4)]
    assert [c.candidate.number if isinstance(c, Outcome) else c for c in came] == [2, 0, 1, LearningResult("learnt")]
    assert workers.now == 10.0
    assert (workers.idle, workers.busy, workers.learning) == (3, 0, False)
    assert workers.next(wait=True) is None


def test_the_trace_has_every_activity_with_its_begin_and_end():
    workers = VirtualWorkers(FakeWorkers(), 2, Costs(1.0, 2.0, 1.0))
    workers.submit(candidate(0, 7, lesson=3, reference=(2, 1)))
    workers.learn_in_background(learning, None, None, steps=4)
    expected = [(0, "lesson", 0, 6, 0), (0, "acting", 6, 13, 0), (0, "reference", 13, 16, 0)]
    assert workers.trace == [*expected, (LEARNER, "learning", 0, 4, -1)]
    workers.next(wait=True)
    assert workers.busy_seconds == 4.0  # of the lesson; the rest is still to come
    workers.next(wait=True)
    assert workers.seconds == {"lesson": 6, "acting": 7, "reference": 3, "learning": 4}
    assert workers.idle_share == 0.5


def test_a_map_takes_the_makespan_of_list_scheduling():
    workers = VirtualWorkers(FakeWorkers(), 2, Costs(0.0, 0.0, 1.0))
    outcomes = workers.map([candidate(k, frames) for k, frames in enumerate((5, 2, 2, 4, 1))])
    assert [o.frames for o in outcomes] == [5, 2, 2, 4, 1]
    assert workers.now == 8.0  # 5, 1 | 2, 2, 4
    assert [activity.worker for activity in workers.trace] == [0, 1, 1, 1, 0]
    workers.map([])
    assert workers.now == 8.0


def test_a_map_waits_for_workers_that_have_candidates():
    workers = VirtualWorkers(FakeWorkers(), 2, Costs(0.0, 0.0, 1.0))
    workers.submit(candidate(0, 5))
    workers.map([candidate(1, 3), candidate(2, 4)])
    assert workers.now == 7.0  # the submitted one | 3, 4
    assert workers.next(wait=False).candidate.number == 0
    assert workers.now == 7.0


def test_one_virtual_worker_with_a_learner_that_takes_no_time_is_the_serial_loop_bit_for_bit():
    virtual = VirtualWorkers(local(), 1, Costs(0.0, 0.002, 0.001))
    a, events = rounds(virtual)
    b, serial = rounds(local())
    assert events == serial
    assert "learnt" in events[-1]
    assert same(a, b)


def test_a_synchronous_run_on_a_simulated_clock_equals_the_local_one_bit_for_bit():
    workers = VirtualWorkers(local(), 3, COSTS)
    a, _ = rounds(workers, 3, synchronous)
    b, _ = rounds(local(), 3, synchronous)
    assert same(a, b)
    assert workers.seconds["learning"] == pytest.approx(COSTS.critic * int(a.learner.updates))
    assert (
        workers.now > workers.seconds["learning"] + workers.seconds["acting"] / 3
    )  # learning and acting wait for each other


@pytest.mark.parametrize("critic", [0.0, 0.0007, 1.0])
def test_one_worker_is_never_idle_however_slow_the_learner_is(critic):
    workers = VirtualWorkers(local(), 1, Costs(critic, 0.002, 0.001))
    rounds(workers)
    assert workers.idle_share == pytest.approx(0.0, abs=1e-9)


def test_a_result_of_learning_that_takes_time_comes_after_the_next_candidate_was_asked_for():
    _, events = rounds(VirtualWorkers(local(), 1, COSTS), 3)
    all_events = flat(events)
    before = [all_events[k - 1] for k, event in enumerate(all_events) if event == "learnt"]
    assert before
    assert not any(event.startswith("tell") for event in before)


class Watched(genepool.Lessons):
    """Writes down the share of its critic steps that were taken whenever a candidate is asked for."""

    shares = []  # noqa: RUF012, shared on purpose: parts are frozen

    def ask(self, key, state, n):
        candidates, state = super().ask(key, state, n)
        if candidates and state.experience.owed:
            self.shares.append(int(state.learner.updates) / int(state.experience.owed))
        return candidates, state


def watched(min_utd):
    Watched.shares.clear()
    learner = genepool.TD3(batch_size=8, critic_hidden=(8,))
    evolver = genepool.AsynchronousES(population=6, reference_episodes=1)
    parts = {"target_policy": "mean", "critic_chunk": 5, "warmup": 20, "hidden": (8,), "replay": 512}
    parts |= {"lessons": genepool.Controlled(), "catch_up": True}
    return Watched(find(Uneven), evolver, learner, min_utd=min_utd, **parts)


def test_asking_pauses_while_the_critic_is_further_behind_than_min_utd():
    """Three workers wait for a slow critic, and no longer than they must."""
    slow = Costs(critic=0.01, actor=0.0, environment=0.001)
    rounds(VirtualWorkers(local(), 3, slow), algorithm=watched(0.0))
    assert min(Watched.shares) < 0.3
    workers = VirtualWorkers(local(), 3, slow)
    a, events = rounds(workers, algorithm=watched(0.7))
    assert 0.7 <= min(Watched.shares) < 0.8
    assert workers.idle_share > 0.2
    b, again = rounds(RecordedWorkers(local(), events), algorithm=watched(0.7))
    assert again == events
    assert same(a, b)


def test_on_one_worker_here_the_critic_is_never_behind_and_min_utd_changes_nothing():
    (a, events), (b, again) = (rounds(local(), algorithm=watched(share)) for share in (0.0, 1.0))
    assert again == events
    assert same(a, b)
    with pytest.raises(genepool.UserError, match="between 0 and 1"):
        watched(1.5)


def test_every_candidate_is_told_once():
    workers = VirtualWorkers(local(), 3, COSTS)
    _, events = rounds(workers)
    told = [int(event.split()[1]) for event in flat(events) if event.startswith("tell")]
    assert len(told) >= 4 * tiny().generation_size
    assert len(set(told)) == len(told)
    assert told != sorted(told)
    assert sorted({activity.number for activity in workers.trace} - {-1}) == list(range(len(told) + workers.busy))


@pytest.mark.parametrize("arrange", [list, flat])
def test_a_recorded_order_replays_bit_for_bit(arrange):
    a, events = rounds(VirtualWorkers(local(), 3, COSTS))
    assert events != rounds(local())[1]
    b, again = rounds(RecordedWorkers(local(), arrange(events)))
    assert again == events
    assert same(a, b)


def test_a_recorded_order_replays_bit_for_bit_where_rounds_begin_by_telling():
    workers = VirtualWorkers(local(), 3, COSTS)
    (tested,), _ = tiny().ask(jax.random.key(0), tiny().init(jax.random.key(0)), 1)
    a, events = rounds(workers, between=lambda: workers.map([tested] * 3))  # while others are at work
    assert any(each[0].startswith("tell") for each in events)
    b, again = rounds(RecordedWorkers(local(), events))
    assert again == events
    assert same(a, b)


def test_a_run_is_repeated_from_the_events_in_its_records(tmp_path):
    workers = VirtualWorkers(local(), 3, COSTS)
    first = genepool.start(tiny(), frames=300, seed=1, run=tmp_path / "first", workers=workers)
    records = list(first)
    again = RecordedWorkers(local(), [record["events"] for record in records])
    second = genepool.start(tiny(), frames=300, seed=1, run=tmp_path / "second", workers=again)
    assert [record["events"] for record in second] == [record["events"] for record in records]
    assert same(first.state, second.state)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda events: events[1:], "event 1 is ask 1, but the run asks for candidate 0"),
        (lambda events: [*events[:2], "tell 4"], "event 3 is tell 4, but the run has no such result under way"),
        (lambda events: [*events[:3], "learnt"], "event 4 is learnt, but the run has no such result under way"),
        (lambda events: events[:5], "is the end of a round, but the run asks for candidate"),
        (lambda events: [events[:3], events[3:]], "is the end of a round, but the run asks for candidate"),
        (lambda events: ["told 3"], 'made of "ask 12", "tell 9" and "learnt", but holds "told 3"'),
    ],
)
def test_a_recorded_order_that_does_not_fit_is_refused_in_one_line(spoil, message):
    _, events = rounds(VirtualWorkers(local(), 3, COSTS), 1)
    with pytest.raises(genepool.UserError, match=message) as error:
        rounds(RecordedWorkers(local(), spoil(events[0])))
    assert "\n" not in str(error.value)


def test_a_clock_without_workers_is_refused():
    with pytest.raises(genepool.UserError, match="1 worker or more"):
        VirtualWorkers(local(), 0, COSTS)
