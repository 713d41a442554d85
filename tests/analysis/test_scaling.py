"""The worker-scaling study: the simulated clock against the cost model, by hand and by the published minutes."""

import time
from itertools import pairwise

import jax
import numpy as np
import pytest
from tasks import Reach

import genepool
from genepool.analysis.scaling.costs import AUTHORS, measure_costs, measure_lengths
from genepool.analysis.scaling.report import draw, table
from genepool.analysis.scaling.simulate import PUBLISHED, simulate
from genepool.analysis.scaling.simulated_costs import NO_INDIVIDUAL, SimulatedAESRL, SimulatedCEMRL, SimulatedWorkers
from genepool.environments.lookup import find
from genepool.schedule import Clock, asynchronous, synchronous
from genepool.types import Candidate
from genepool.workers.virtual import Costs, VirtualWorkers

UNEVEN = (20, 60, 100, 500, 1000)


class WorkersOfKnownLengths(SimulatedWorkers):
    """Lengths in order, each generation the same; a test of the mean has 7 frames."""

    def _outcome(self, candidate):
        length = 7 if candidate.purpose == "champion test" else self.lengths[candidate.number % len(self.lengths)]
        return SimulatedWorkers([length])._outcome(candidate)


def generation_seconds(count, lengths, costs):
    """The simulated time of CEM-RL's third generation, the second with lessons, and of the test of its mean."""
    algorithm = SimulatedCEMRL(start=0)
    workers = VirtualWorkers(WorkersOfKnownLengths(lengths), count, costs)
    state = algorithm.init(None)
    key = jax.random.key(0)
    times = []
    for _ in range(3):
        state, _ = synchronous(algorithm, workers, key, state, Clock())
        workers.map([Candidate(NO_INDIVIDUAL, (0,), purpose="champion test")])
        times.append(workers.now)
    return times[2] - times[1]


def aes_rl(count, costs, lengths=(1000,), frames=200_000, **options):
    """The state of a simulated AES-RL after the frames, its workers, and its events."""
    algorithm = SimulatedAESRL(**options)
    workers = VirtualWorkers(SimulatedWorkers(lengths), count, costs)
    state = algorithm.init(None)
    clock = Clock()
    while state.frames < frames:
        key = jax.random.key(state.told_count)
        state, _ = asynchronous(algorithm, workers, key, state, clock, frames - state.frames)
    return state, workers, clock.events


def rows_of(system, *arguments, **options):
    return {row.workers: row for row in simulate(system.lower(), *arguments, **options) if row.system == system}


@pytest.mark.parametrize(
    ("count", "by_hand"),
    [
        (1, 2 * 39 + 5 * 3 * 39 + 39 + 7),
        (5, 2 * 39 + 3 * 39 + 10 + 7),  # 3 6 | 1 9 | 4 3 | 1 2 5 | 5
    ],
)
def test_a_synchronous_generation_takes_what_the_cost_model_says(count, by_hand):
    """T = c S + ceil(5/W) a S + makespan({e l_i}) + e l_mu."""
    assert generation_seconds(count, (3, 1, 4, 1, 5, 9, 2, 6, 5, 3), Costs(2.0, 3.0, 1.0)) == by_hand


@pytest.mark.parametrize("count", [2, 3, 4, 7, 10, 100])
def test_a_synchronous_generation_is_no_later_than_with_a_barrier_between_lessons_and_acting(count):
    lengths = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3)
    free = np.zeros(count)
    for length in lengths:
        free[np.argmin(free)] += length
    with_barrier = 2 * 39 + -(-5 // count) * 3 * 39 + free.max() + 7
    assert generation_seconds(count, lengths, Costs(2.0, 3.0, 1.0)) <= with_barrier


def test_one_asynchronous_worker_takes_the_sum_of_all_steps_and_is_never_idle():
    for critic in (0.0, 1.0):
        state, workers, _ = aes_rl(1, Costs(critic, 0.5, 0.25))
        assert workers.now == state.accepted_lessons * 10_000 * 0.5 + state.told_count * 6_000 * 0.25
        assert workers.idle_share == 0.0


def test_no_asynchronous_worker_waits_between_two_candidates():
    _, workers, _ = aes_rl(16, AUTHORS, UNEVEN)
    for worker in range(16):
        mine = [activity for activity in workers.trace if activity.worker == worker]
        assert mine[0].start == 0.0
        assert all(a.end == b.start for a, b in pairwise(mine))


def test_every_candidate_is_told_once():
    state, _, events = aes_rl(32, AUTHORS, UNEVEN)
    tells = [event for event in events if event.startswith("tell")]
    assert len(set(tells)) == len(tells) == state.told_count == state.asked
    assert set(tells) == {f"tell {number}" for number in range(state.asked)}


def test_if_only_the_critic_takes_time_so_does_a_synchronous_run():
    for row in simulate("p-cem-rl", Costs(0.007, 0.0, 0.0), UNEVEN, [1, 1024], frames=100_000):
        expected = 0.0 if row.schedule == "critic apart" else row.critic_per_frame * 0.007 * 1e6 / 60
        assert row.minutes == pytest.approx(expected, rel=1e-9)


def test_a_slow_critic_does_not_hold_an_asynchronous_run_back_and_takes_the_steps_it_has_time_for():
    slow, fast = (aes_rl(16, Costs(critic, 0.0038, 0.001)) for critic in (0.1, 1e-9))
    assert slow[1].now == fast[1].now
    learning = [activity for activity in slow[1].trace if activity.kind == "learning"]
    assert all(a.end == b.start for a, b in pairwise(learning))
    since = slow[1].now - learning[0].start
    assert slow[0].learner == 1000 * (since // 100)
    assert fast[0].frames - 1000 <= fast[0].learner <= fast[0].frames


@pytest.mark.parametrize("lengths", [(1000,), UNEVEN])
def test_asynchronous_throughput_never_falls_with_more_workers(lengths):
    rows = rows_of("AES-RL", AUTHORS, lengths, [1, 2, 3, 5, 8, 16, 32], frames=200_000)
    assert all(few.minutes >= many.minutes for few, many in pairwise(rows.values()))


def test_a_candidate_is_told_as_many_tells_late_as_there_are_other_workers():
    state, _, _ = aes_rl(8, AUTHORS, UNEVEN, frames=400_000)
    assert state.lag / state.told_count == pytest.approx(7, rel=0.05)
    assert aes_rl(1, AUTHORS)[0].most_lag == 0


def test_half_of_the_candidates_take_lessons_of_the_last_ten_episodes_steps():
    state, workers, _ = aes_rl(4, Costs(0.0, 1.0, 0.0))
    lessons = [activity.end - activity.start for activity in workers.trace if activity.kind == "lesson"]
    assert set(lessons) == {10_000.0}
    assert len(lessons) == pytest.approx(0.5 * state.told_count, rel=0.1)


def test_the_authors_costs_give_their_published_minutes_for_halfcheetah():
    rows = simulate("aes-rl", AUTHORS, [1000], [5, 9])
    minutes = {(row.system, row.workers): row.minutes for row in rows if row.schedule != "critic apart"}
    known = PUBLISHED["HalfCheetah"]
    for place in [("CEM-RL", 1), ("P-CEM-RL", 5), ("AES-RL", 5)]:
        assert minutes[place] == pytest.approx(known[place], rel=0.02)
    assert minutes["AES-RL", 9] == pytest.approx(46, rel=0.01)  # what the fit says; published are 54
    text = table(rows, "HalfCheetah-v5")
    assert "467" in text.splitlines()[1]
    assert "467" not in table(rows, "Ant-v5")


def test_speed_up_is_over_the_serial_system_and_efficiency_over_one_worker():
    rows = simulate("aes-rl", AUTHORS, UNEVEN, [4], frames=100_000)
    assert rows == simulate("aes-rl", AUTHORS, UNEVEN, [4], frames=100_000)
    one = rows_of("AES-RL", AUTHORS, UNEVEN, [1], frames=100_000)[1]
    serial = rows[0]
    four = rows[-1]
    assert [row.schedule for row in rows] == ["serial", "synchronous", "critic apart", "asynchronous"]
    assert four.speed_up == serial.minutes / four.minutes
    assert four.efficiency == one.minutes / (4 * four.minutes)
    assert one.efficiency == 1.0


def test_the_table_and_the_figure_mark_a_run_that_ends_in_the_warm_up(tmp_path):
    rows = simulate("aes-rl", AUTHORS, [1000], [1, 8, 128], frames=100_000)
    assert "*" in table(rows).splitlines()[-2]
    assert "*" not in table(rows[:-1])
    draw(rows, tmp_path / "scaling.png", "HalfCheetah-v5")
    assert (tmp_path / "scaling.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pderl", AUTHORS, [1000], [1]), "cannot simulate 'pderl'"),
        (("aes-rl", AUTHORS, [1000], [0]), "1 worker or more"),
        (("aes-rl", AUTHORS, [], [1]), "episodes of 1 frame or more"),
    ],
)
def test_what_cannot_be_simulated_is_refused(arguments, message):
    with pytest.raises(genepool.UserError, match=message):
        simulate(*arguments)


def test_costs_are_the_least_of_three_times_and_compiling_is_not_among_them():
    calls = []

    def take(steps):
        calls.append(steps)
        time.sleep(0.5 if len(calls) == 1 else 1e-5 * steps)

    def idle(steps):
        pass

    costs = measure_costs(take, idle, idle, steps=1_000)
    assert calls == [1_000] * 4
    assert 1e-5 <= costs.critic < 2e-4
    assert costs.actor < costs.critic


def test_lengths_are_those_of_real_episodes():
    assert measure_lengths(find(Reach), episodes=3) == [20, 20, 20]
