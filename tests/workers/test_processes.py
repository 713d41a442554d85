"""Worker processes: the bits do not depend on which process plays, nor on whether one is lost."""

import io
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tasks import Reach
from test_workers import candidates, same

import genepool
from genepool.environments import task as tasks
from genepool.environments.lookup import find
from genepool.networks import Actor
from genepool.types import Individual
from genepool.workers import local, processes
from genepool.workers.processes import ProcessPool, WorkerProcess

CHEETAH = replace(find("HalfCheetah-v5"), max_steps=40)


@pytest.fixture(scope="module")
def shared_process():
    """A worker process that is ready, for all tests that do not lose it."""
    process = WorkerProcess()
    process.starting.join()
    assert process.ready
    yield process
    process.close()


@pytest.fixture
def helper(shared_process, monkeypatch):
    """The only worker process, on two cores. It counts the rollouts of each batch that it plays."""
    monkeypatch.setattr(processes, "pool", ProcessPool([shared_process]))
    monkeypatch.setattr(tasks, "cores", lambda: 2)
    monkeypatch.setattr(shared_process, "batches", [], raising=False)
    play = WorkerProcess.play

    def counted(self, task, batch):
        self.batches.append(len(batch))
        return play(self, task, batch)

    monkeypatch.setattr(WorkerProcess, "play", counted)
    return shared_process


def alone(several, task=CHEETAH):
    return genepool.LocalWorkers(task, alone=True).map(several)


@pytest.mark.parametrize(
    ("id", "engine"),
    [
        ("Hopper-v5", "mujoco"),
        ("Hopper-v5", "envpool"),
        ("CartPole-v1", "gymnasium"),
        ("HopperHilly?difficulty=0.3", "gymnasium"),
    ],
)
def test_with_a_worker_process_the_outcomes_are_those_of_one_process(helper, id, engine):
    task = replace(find(id, engine), max_steps=120)
    several = candidates(task, 10)
    assert all(same(a, b) for a, b in zip(genepool.LocalWorkers(task).map(several), alone(several, task), strict=True))
    assert helper.batches == [10]  # half of the episodes: two for each candidate


def test_what_is_sent_is_received_however_its_arrays_lie_and_so_is_what_follows():
    rows = np.random.default_rng(0).standard_normal((30, 40), np.float32)
    sent = [rows, rows.T, rows[::2, 1:], rows[:0], np.float32(2.0), jnp.arange(3.0), np.array([True]), (rows, "words")]
    pipe = io.BytesIO()
    processes.send(pipe, sent)
    first = pipe.tell()
    processes.send(pipe, "the next")
    pipe.seek(0)
    jax.tree.map(np.testing.assert_array_equal, processes.receive(pipe), sent)
    assert processes.receive(pipe) == "the next"
    with pytest.raises(EOFError):
        processes.receive(io.BytesIO(pipe.getvalue()[: first - 100]))  # the sender died on the way


def test_a_worker_process_is_free_again_after_each_map(helper):
    several = candidates(CHEETAH, 4)
    for _ in range(3):
        genepool.LocalWorkers(CHEETAH).map(several)
    assert 1 <= len(helper.batches) <= 3
    assert processes.pool.acquire(5) == [helper]
    assert processes.pool.acquire(5) == []
    processes.pool.release([helper])


def test_a_worker_process_reports_a_users_error_and_stays(helper):
    several = candidates(CHEETAH, 4)
    broken = [replace(c, noise=np.full((40, 6), np.nan, np.float32)) for c in several]
    with pytest.raises(genepool.UserError, match=r"HalfCheetah-v5 returned .* not finite in the episode with seed"):
        genepool.LocalWorkers(CHEETAH).map(broken)
    assert helper.ready
    outcomes = genepool.LocalWorkers(CHEETAH).map(several)
    assert all(same(a, b) for a, b in zip(outcomes, alone(several), strict=True))


def test_when_an_episode_fails_all_processes_stop(helper, monkeypatch):
    monkeypatch.setattr(local, "CAPACITY", 2)
    play = local.LocalWorkers._play_here
    here = []

    def counted(self, threads, batch):
        here.append(len(batch))
        return play(self, threads, batch)

    monkeypatch.setattr(local.LocalWorkers, "_play_here", counted)
    first, *others = candidates(CHEETAH, 40)
    # both compile what they play with, which may take longer than all the rest
    genepool.LocalWorkers(CHEETAH).map(others)
    helper.batches.clear()
    here.clear()
    broken = replace(first, noise=np.full((40, 6), np.nan, np.float32))
    with pytest.raises(genepool.UserError, match="not finite"):
        genepool.LocalWorkers(CHEETAH).map([broken, *others])
    assert len(helper.batches) + len(here) < 20  # of forty


def test_ctrl_c_does_not_end_a_worker_process(helper):
    several = candidates(CHEETAH, 10)
    helper.process.send_signal(signal.SIGINT)
    genepool.LocalWorkers(CHEETAH).map(several)
    assert helper.ready
    assert helper.batches == [10]


def test_one_episode_is_played_here_and_so_is_code_of_a_users_own(helper):
    genepool.LocalWorkers(CHEETAH).map(candidates(CHEETAH, 1, episodes=1))
    own = find(Reach)
    genepool.LocalWorkers(own).map(candidates(own, 10))
    assert helper.batches == []


@pytest.fixture
def doomed(monkeypatch):
    """A worker process of its own, which the test may lose."""
    monkeypatch.setattr(processes, "pool", ProcessPool())
    monkeypatch.setattr(tasks, "cores", lambda: 2)
    (process,) = processes.pool.start_now(1)
    yield process
    process.close()


def test_the_batch_of_a_killed_worker_process_is_played_here(doomed):
    several = candidates(CHEETAH, 10)
    doomed.process.kill()
    doomed.process.wait()
    outcomes = genepool.LocalWorkers(CHEETAH).map(several)
    assert all(same(a, b) for a, b in zip(outcomes, alone(several), strict=True))
    assert processes.pool.acquire(1) == []
    assert len(processes.pool.start_now(1)) == 1  # it is not replaced


def test_actors_that_another_process_cannot_know_are_played_here(doomed):
    class Own(Actor):
        """A class that cannot be imported."""

    several = candidates(CHEETAH, 10)
    sizes = CHEETAH.observation_size, CHEETAH.action_size
    own = [replace(c, individual=Individual(Own(jax.random.key(k), *sizes), None)) for k, c in enumerate(several)]
    outcomes = genepool.LocalWorkers(CHEETAH).map(own)
    assert all(same(a, b) for a, b in zip(outcomes, alone(own), strict=True))
    assert processes.pool.acquire(1) == []


def test_no_process_is_started_for_a_short_game(monkeypatch):
    pool = ProcessPool()
    started = []
    monkeypatch.setattr(processes, "WorkerProcess", lambda: started.append(1))
    pool.report_missing(3, 0.6 * processes.PATIENCE)
    assert started == []
    pool.report_missing(3, 0.6 * processes.PATIENCE)
    pool.report_missing(3, 0.6 * processes.PATIENCE)
    assert started == [1, 1, 1]


def test_worker_processes_end_with_the_process_that_started_them_however_it_ends():
    code = """from genepool.workers.processes import pool
(helper,) = pool.start_now(1)
print(helper.process.pid, flush=True)
input()
"""
    for end in (signal.SIGKILL, None):
        with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as process:
            pid = int(process.stdout.readline())
            assert Path(f"/proc/{pid}").exists()
            process.send_signal(end) if end else process.stdin.write("\n")
        until = time.monotonic() + 20.0
        while _lives(pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert not _lives(pid)


def test_a_fork_of_a_process_leaves_its_worker_processes_alone():
    code = """import os, sys, warnings
from genepool.workers.processes import pool
(helper,) = pool.start_now(1)
warnings.simplefilter("ignore")  # JAX warns that a fork may not work
if os.fork() == 0:
    sys.exit(len(pool.acquire(1)))
status = os.waitstatus_to_exitcode(os.wait()[1])
print(status, helper.process.poll(), len(pool.acquire(1)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["0", "None", "1"]


def _lives(pid):
    """Whether the process runs. An ended one keeps its entry until its parent reads it."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
