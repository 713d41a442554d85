"""What a run will cost: the arithmetic by hand, and an estimate against a real run."""

import time
from dataclasses import replace

import jax
import numpy as np
import pytest

import genepool
from genepool import cli
from genepool.algorithms.gpo.imitation import StateSpace
from genepool.analysis.scaling.estimate import Measured, measure, predict, scaled_down
from genepool.learning.ddpg import DDPG

CROSSING = ("selecting", "crossover", "exploring")

MEASURED = Measured(
    start=10.0,
    generation=0.5,
    generation_frames=1000,
    test=3.0,
    test_every=10,
    step=0.002,
    steps_per_frame=1.0,
    frames_before_learning=10_000,
    lessons=0.001,
    memory=1e9,
    row=100.0,
    rows=50_000,
)


def test_a_run_is_its_generations_its_tests_and_its_gradient_steps_after_the_warm_up():
    found = predict(MEASURED, 99_500)
    assert found.seconds == pytest.approx(
        {"starting and compiling": 10.0, "acting and breeding": 50.0, "learning": 90_000 * 0.003, "tests": 30.0}
    )
    assert found.total == pytest.approx(360.0)
    assert found.memory == pytest.approx(1e9 + 50_000 * 100.0)  # the replay is full by then


def test_a_run_that_ends_in_its_warm_up_learns_nothing():
    found = predict(MEASURED, 5_000)
    assert found.seconds["learning"] == 0.0
    assert found.memory == pytest.approx(1e9 + 5_000 * 100.0)


def test_between_rounds_there_are_crossovers_with_frames_of_their_own():
    rounds = replace(
        MEASURED, frames_before_learning=0, crossover=20.0, crossover_frames=500, crossover_every=4, crossovers=2
    )
    found = predict(rounds, 12_500)  # 4,000 and 500, the same again, and 3,500 more
    assert found.seconds["crossovers"] == 40.0
    assert found.seconds["acting and breeding"] == 12 * 0.5
    assert found.seconds["learning"] == pytest.approx(12_000 * 0.003)
    assert predict(rounds, 4_400).seconds["crossovers"] == 0.0
    assert predict(rounds, 50_000).seconds["crossovers"] == 40.0  # there are no more


def test_the_crossovers_of_gpo_are_in_the_estimate(tmp_path, monkeypatch):
    """By a clock that stands still while other processes have the core."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    crossover = StateSpace(iterations=2, expert_frames=400, student_frames=100, dagger=3)
    sizes = {"population": 3, "rounds": 3, "iterations": 4, "batch": 400, "test_every": 4, "test_episodes": 2}
    algorithm = genepool.gpo("Pendulum-v1", engine="gymnasium", crossover=crossover, **sizes)
    measured = measure(algorithm, 0.0)
    assert (measured.crossover_every, measured.crossovers) == (4, 2)
    assert measured.crossover_frames == 3 * (400 + 3 * 100)
    records = list(genepool.start(algorithm, algorithm.budget, run=tmp_path / "run"))
    took = [sum(record["seconds"].get(phase, 0.0) for phase in CROSSING) for record in records]
    crossed = [seconds for seconds in took if seconds]
    assert len(crossed) == 2
    assert 1 / 1.5 < predict(measured, algorithm.budget).seconds["crossovers"] / sum(crossed) < 1.5


def test_a_scaled_down_run_has_shorter_episodes_and_the_same_networks():
    algorithm = genepool.aes_rl("Pendulum-v1", engine="gymnasium")
    small = scaled_down(algorithm)
    assert (algorithm.task.horizon, small.task.horizon) == (200, 100)
    assert (small.warmup, small.critic_head_start) == (5_000, 5_000)
    assert (small.hidden, small.replay, small.evolver) == (algorithm.hidden, algorithm.replay, algorithm.evolver)


def test_an_estimate_is_within_a_factor_of_one_and_a_half_of_a_real_run(tmp_path, monkeypatch):
    """The median of three, by a clock that stands still while other processes have the core."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    learner = DDPG(batch_size=64, warmup=1_000, critic_hidden=(64,))
    options = {"hidden": (64,), "layer_norm": False, "replay": 20_000, "test_every": 2, "test_episodes": 5}
    algorithm = genepool.ddpg("Pendulum-v1", engine="gymnasium", learner=learner, **options)
    ratios = [_ratios(algorithm, tmp_path / str(k)) for k in range(3)]
    assert all(1 / 1.5 < ratio < 1.5 for ratio in np.median(ratios, axis=0))


def _ratios(algorithm, folder):
    """An estimate over what it really took, of all of a run, and of its second half, in which nothing is compiled."""
    measured = measure(algorithm, 0.0)
    jax.clear_caches()  # the real run compiles for itself
    begun = time.perf_counter()
    records = list(genepool.start(algorithm, 8_000, run=folder))
    took = time.perf_counter() - begun
    later = sum(sum(record["seconds"].values()) for record in records if record["frames"] > 4_000)
    whole, half = (predict(measured, frames).total for frames in (8_000, 4_000))
    jax.clear_caches()
    return whole / took, (whole - half) / later


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("td3", "estimate what?"),
        ("td3 Pendulum-v1 --frames -5", "frames must be a positive number"),
        ("td3 Pendulum-v1 --workers ray:4", "leave --workers out"),
    ],
)
def test_what_cannot_be_estimated_is_said_in_one_line(words, said, capsys):
    assert cli.main(["estimate", *words.split()]) == 2
    assert said in capsys.readouterr().err
