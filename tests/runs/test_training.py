"""From Python: `train` trains to the end, `start` is followed, and a run that is dropped without being followed warns."""

import gc
import os
import signal
import warnings

import numpy as np
import pytest
from tasks import Reach

import genepool

SMALL = {"population": 4, "memory": 100, "hidden": (8, 8), "replay": 11_000, "test_episodes": 2, "max_steps": 20}


def test_train_trains_to_the_end_and_returns_the_finished_run(tmp_path):
    run = genepool.train(genepool.pderl(Reach, **SMALL), frames=300, run=tmp_path / "run", display=False)
    assert run.done
    assert run.folder.records[-1]["frames"] >= 300
    action, _ = run.champion.predict(np.array([0.5], np.float32))
    assert action.shape == (1,)


def test_a_run_that_is_started_hands_out_every_record(tmp_path):
    run = genepool.start(genepool.pderl(Reach, **SMALL), frames=300, run=tmp_path / "run")
    followed = [record["generation"] for record in run]
    assert followed == [record["generation"] for record in run.folder.records]
    assert run.done


def test_a_run_that_is_dropped_without_being_followed_warns_and_says_what_to_do(tmp_path):
    started = genepool.start(genepool.pderl(Reach, **SMALL), frames=300, run=tmp_path / "run")
    held = [started]
    del started
    with pytest.warns(UserWarning, match=r"never iterated over, so nothing was trained: .* genepool\.train"):
        held.clear()


def test_a_run_that_was_followed_for_a_while_does_not_warn(tmp_path):
    run = genepool.start(genepool.pderl(Reach, **SMALL), frames=300, run=tmp_path / "run")
    next(iter(run))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del run
        gc.collect()


def test_ctrl_c_ends_train_after_the_generation_and_resume_goes_on(tmp_path, monkeypatch):
    """The signal comes while the first generation is on."""
    tell = genepool.Injection.tell

    def interrupted(self, key, state, outcomes):
        os.kill(os.getpid(), signal.SIGINT)
        return tell(self, key, state, outcomes)

    monkeypatch.setattr(genepool.Injection, "tell", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"genepool\.resume"):
        genepool.train(genepool.pderl(Reach, **SMALL), frames=600, run=tmp_path / "run", display=False)
    monkeypatch.undo()
    run = genepool.resume(tmp_path / "run", task=Reach)
    assert (run.generation, run.done) == (1, False)
    assert [record["generation"] for record in run] == list(range(2, run.generation + 1))
    assert run.done
