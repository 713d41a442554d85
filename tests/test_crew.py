"""Processes that play beside this one: the same bits, whoever plays, whoever is lost."""

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
from genepool.environments.task import find
from genepool.networks import Actor
from genepool.types import Individual
from genepool.workers import local
from genepool.workers import processes as crew

CHEETAH = replace(find("HalfCheetah-v5"), max_steps=40)


@pytest.fixture(scope="module")
def hired():
    """A mate that is there, for all tests that do not lose it."""
    mate = crew.Mate()
    mate.greeting.join()
    assert mate.ready
    yield mate
    mate.close()


@pytest.fixture
def mate(hired, monkeypatch):
    """The only mate of this process, on two cores; it counts what it plays."""
    monkeypatch.setattr(crew, "_free", [hired])
    monkeypatch.setattr(crew, "_hired", 1)
    monkeypatch.setattr(tasks, "cores", lambda: 2)
    monkeypatch.setattr(hired, "batches", [], raising=False)
    play = crew.Mate.play
    monkeypatch.setattr(
        crew.Mate, "play", lambda self, task, batch: self.batches.append(len(batch)) or play(self, task, batch)
    )
    return hired


def alone(everyone, task=CHEETAH):
    return genepool.LocalWorkers(task, alone=True).map(everyone)


@pytest.mark.parametrize(
    ("id", "engine"),
    [
        ("Hopper-v5", "mujoco"),
        ("Hopper-v5", "envpool"),
        ("CartPole-v1", "gymnasium"),
        ("HopperHilly?difficulty=0.3", "gymnasium"),
    ],
)
def test_with_a_mate_the_outcomes_are_those_of_one_process(mate, id, engine):
    task = replace(find(id, engine), max_steps=120)
    everyone = candidates(task, 10)
    assert all(
        same(a, b) for a, b in zip(genepool.LocalWorkers(task).map(everyone), alone(everyone, task), strict=True)
    )
    assert mate.batches == [10]  # half of two episodes each


def test_what_is_sent_is_received_however_its_arrays_lie_and_so_is_what_follows():
    rows = np.random.default_rng(0).standard_normal((30, 40), np.float32)
    sent = [rows, rows.T, rows[::2, 1:], rows[:0], np.float32(2.0), jnp.arange(3.0), np.array([True]), (rows, "words")]
    pipe = io.BytesIO()
    crew.send(pipe, sent)
    first = pipe.tell()
    crew.send(pipe, "the next")
    pipe.seek(0)
    jax.tree.map(np.testing.assert_array_equal, crew.receive(pipe), sent)
    assert crew.receive(pipe) == "the next"
    with pytest.raises(EOFError):
        crew.receive(io.BytesIO(pipe.getvalue()[: first - 100]))  # the other side died on the way


def test_a_mate_plays_for_one_after_the_other_and_is_free_again(mate):
    everyone = candidates(CHEETAH, 4)
    for _ in range(3):
        genepool.LocalWorkers(CHEETAH).map(everyone)
    assert 1 <= len(mate.batches) <= 3
    assert crew.take(5) == [mate]
    assert crew.take(5) == []
    crew.give([mate])


def test_what_is_wrong_is_said_and_the_mate_stays(mate):
    everyone = candidates(CHEETAH, 4)
    broken = [replace(c, noise=np.full((40, 6), np.nan, np.float32)) for c in everyone]
    with pytest.raises(genepool.UserError, match=r"HalfCheetah-v5 returned .* not finite in the episode with seed"):
        genepool.LocalWorkers(CHEETAH).map(broken)
    assert mate.ready
    outcomes = genepool.LocalWorkers(CHEETAH).map(everyone)
    assert all(same(a, b) for a, b in zip(outcomes, alone(everyone), strict=True))


def test_when_an_episode_fails_nobody_plays_on(mate, monkeypatch):
    monkeypatch.setattr(local, "CAPACITY", 2)
    play, here = local.LocalWorkers._play_here, []
    count = lambda self, threads, batch: here.append(len(batch)) or play(self, threads, batch)
    monkeypatch.setattr(local.LocalWorkers, "_play_here", count)
    first, *others = candidates(CHEETAH, 40)
    # both compile what they play with, which may take longer than all the rest
    genepool.LocalWorkers(CHEETAH).map(others)
    mate.batches.clear()
    here.clear()
    broken = replace(first, noise=np.full((40, 6), np.nan, np.float32))
    with pytest.raises(genepool.UserError, match="not finite"):
        genepool.LocalWorkers(CHEETAH).map([broken, *others])
    assert len(mate.batches) + len(here) < 20  # of forty


def test_ctrl_c_is_not_for_a_mate(mate):
    everyone = candidates(CHEETAH, 10)
    mate.process.send_signal(signal.SIGINT)
    genepool.LocalWorkers(CHEETAH).map(everyone)
    assert mate.ready
    assert mate.batches == [10]


def test_one_episode_is_played_here_and_so_is_code_of_a_users_own(mate):
    genepool.LocalWorkers(CHEETAH).map(candidates(CHEETAH, 1, episodes=1))
    own = find(Reach)
    genepool.LocalWorkers(own).map(candidates(own, 10))
    assert mate.batches == []


@pytest.fixture
def doomed(monkeypatch):
    """A mate of a crew of its own."""
    monkeypatch.setattr(crew, "_free", [])
    monkeypatch.setattr(crew, "_hired", 0)
    monkeypatch.setattr(tasks, "cores", lambda: 2)
    (mate,) = crew.gather(1)
    yield mate
    mate.close()


def test_what_a_mate_had_when_it_was_killed_is_played_here(doomed):
    everyone = candidates(CHEETAH, 10)
    doomed.process.kill()
    doomed.process.wait()
    outcomes = genepool.LocalWorkers(CHEETAH).map(everyone)
    assert all(same(a, b) for a, b in zip(outcomes, alone(everyone), strict=True))
    assert crew.take(1) == []
    assert len(crew.gather(1)) == 1  # it is not replaced


def test_actors_that_another_process_cannot_know_are_played_here(doomed):
    class Own(Actor):
        """Of a class that nobody can import."""

    everyone = candidates(CHEETAH, 10)
    sizes = CHEETAH.observation_size, CHEETAH.action_size
    own = [replace(c, individual=Individual(Own(jax.random.key(k), *sizes), None)) for k, c in enumerate(everyone)]
    outcomes = genepool.LocalWorkers(CHEETAH).map(own)
    assert all(same(a, b) for a, b in zip(outcomes, alone(own), strict=True))
    assert crew.take(1) == []


def test_nobody_is_hired_for_a_short_game(monkeypatch):
    monkeypatch.setattr(crew, "_free", [])
    monkeypatch.setattr(crew, "_hired", 0)
    monkeypatch.setattr(crew, "_alone", 0.0)
    hired = []
    monkeypatch.setattr(crew, "Mate", lambda: hired.append(1))
    crew.miss(3, 0.6 * crew.PATIENCE)
    assert hired == []
    crew.miss(3, 0.6 * crew.PATIENCE)
    crew.miss(3, 0.6 * crew.PATIENCE)
    assert hired == [1, 1, 1]


def test_mates_end_with_the_process_that_hired_them_however_it_ends():
    code = "from genepool.workers import processes as crew; (m,) = crew.gather(1); print(m.process.pid, flush=True); input()"
    for end in (signal.SIGKILL, None):
        with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as process:
            pid = int(process.stdout.readline())
            assert Path(f"/proc/{pid}").exists()
            process.send_signal(end) if end else process.stdin.write("\n")
        until = time.monotonic() + 20.0
        while _lives(pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert not _lives(pid)


def test_a_copy_of_a_process_leaves_its_mates_alone():
    code = """import os, sys, warnings
from genepool.workers import processes as crew
(mate,) = crew.gather(1)
warnings.simplefilter("ignore")  # JAX's, that a copy may not work
if os.fork() == 0:
    sys.exit(len(crew.take(1)))
status = os.waitstatus_to_exitcode(os.wait()[1])
print(status, mate.process.poll(), len(crew.take(1)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["0", "None", "1"]


def _lives(pid):
    """Whether the process is there, and not only its entry, which nobody may have read yet."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
