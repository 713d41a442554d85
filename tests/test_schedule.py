"""Schedules with an algorithm that only counts: when it is asked, what it is told, and when it cannot go on."""

from dataclasses import dataclass, replace

import jax
import pytest

from genepool.analysis.scaling.simulated_costs import NO_INDIVIDUAL, SimulatedAESRL, SimulatedCEMRL, SimulatedWorkers
from genepool.schedule import Clock, asynchronous, generation, synchronous
from genepool.types import Candidate
from genepool.workers.virtual import Costs, VirtualWorkers

KEY = jax.random.key(3)


@dataclass(frozen=True)
class Counts:
    """What a `Counting` algorithm did. `learner` counts gradient steps."""

    learner: int = 0
    asked: int = 0
    told: int = 0


class Counting:
    """Has at most `at_once` candidates out, and asks only once `share` of the gradient steps owed were taken."""

    generation_size = 6

    def __init__(self, schedule="asynchronous", at_once=6, share=0.0, owed=lambda told: told):
        self.schedule = schedule
        self.at_once = at_once
        self.share = share
        self.owed = owed
        self.asks = []  # how many candidates each call of ask gave
        self.keys = []  # of all calls of learn

    def init(self, key):
        return Counts()

    def ask(self, key, state, n):
        behind = state.learner < self.share * self.owed(state.told)
        n = 0 if behind else min(n, self.at_once - (state.asked - state.told))
        self.asks.append(n)
        found = [Candidate(NO_INDIVIDUAL, (0,), number=state.asked + k) for k in range(n)]
        return found, replace(state, asked=state.asked + n)

    def tell(self, key, state, outcomes):
        assert outcomes
        return replace(state, told=state.told + len(outcomes))

    def steps_owed(self, state):
        return max(0, self.owed(state.told) - state.learner)

    def learning_phase(self, state):
        return "learning"

    def learn(self, key, state):
        self.keys.append(tuple(jax.random.key_data(key).tolist()))
        return replace(state, learner=state.learner + 1)

    def still_to_ask(self, state):
        return -state.told % self.generation_size


def workers(count=3, critic=0.0):
    return VirtualWorkers(SimulatedWorkers([3, 5, 9]), count, Costs(critic, 0.0, 1.0))


@pytest.mark.parametrize(("algorithm", "schedule"), [(SimulatedCEMRL, synchronous), (SimulatedAESRL, asynchronous)])
def test_a_generation_is_run_on_the_algorithms_own_schedule(algorithm, schedule):
    algorithm = algorithm(start=20)
    state, outcomes = generation(algorithm, workers(), KEY, algorithm.init(KEY))
    again, others = schedule(algorithm, workers(), KEY, algorithm.init(KEY), Clock())
    assert state == again
    assert len(outcomes) == algorithm.generation_size
    assert [a.candidate for a in outcomes] == [b.candidate for b in others]


def test_a_generation_counts_seconds_on_the_clock_that_it_is_given_and_ends_with_the_frames():
    algorithm = Counting()
    clock = Clock()
    _, outcomes = generation(algorithm, workers(1), KEY, Counts(), clock, frames=4)
    assert 4 <= sum(outcome.frames for outcome in outcomes) < 4 + 9
    assert {"acting", "breeding", "learning"} == set(clock.seconds)


def test_where_the_algorithm_has_no_candidate_an_idle_worker_waits_for_the_next_result():
    algorithm = Counting(at_once=1)
    clock = Clock()
    state, outcomes = asynchronous(algorithm, workers(3), KEY, Counts(), clock)
    assert [o.candidate.number for o in outcomes] == list(range(6))
    assert [event for event in clock.events if event != "learnt"] == [
        f"{event} {k}" for k in range(6) for event in ("ask", "tell")
    ]
    assert state.asked == state.told == 6
    assert len(algorithm.asks) <= len(clock.events)  # it is asked once between two results


@pytest.mark.parametrize("critic", [0.0, 0.5, 100.0])
def test_where_gradient_steps_must_come_first_asking_waits_for_them(critic):
    algorithm = Counting(share=1.0)
    state, outcomes = asynchronous(algorithm, workers(3, critic), KEY, Counts(), Clock())
    assert len(outcomes) == 6
    assert state.learner >= 3


def test_a_synchronous_generation_learns_first_where_gradient_steps_must_come_first():
    algorithm = Counting("synchronous", share=1.0, owed=lambda told: told + 3)
    state, outcomes = synchronous(algorithm, workers(), KEY, Counts(), Clock())
    assert algorithm.asks == [0, 6]
    assert (len(outcomes), state.told, state.learner) == (6, 6, 9)
    assert len(set(algorithm.keys)) == 9  # no key is used twice


def test_a_synchronous_generation_is_asked_for_in_portions_where_the_algorithm_gives_fewer():
    algorithm = Counting("synchronous", at_once=4)
    state, outcomes = synchronous(algorithm, workers(), KEY, Counts(), Clock())
    assert algorithm.asks == [4, 2]
    assert [o.candidate.number for o in outcomes] == list(range(6))
    assert state.told == 6


@pytest.mark.parametrize("schedule", ["synchronous", "asynchronous"])
def test_an_algorithm_that_can_never_go_on_is_an_error_and_no_endless_loop(schedule):
    algorithm = Counting(schedule, at_once=0)
    with pytest.raises(RuntimeError, match="asks for no candidate, although none is at work"):
        generation(algorithm, workers(), KEY, Counts())
    assert len(algorithm.asks) == 1


def test_an_algorithm_whose_learning_does_not_help_is_an_error_once_none_is_owed():
    class Stuck(Counting):
        def steps_owed(self, state):
            return 2 - state.learner

    algorithm = Stuck(at_once=0)
    with pytest.raises(RuntimeError, match="cannot go on"):
        generation(algorithm, workers(3, critic=1.0), KEY, Counts())
    assert len(algorithm.keys) == 2
