"""Trains a small PDERL run and kills itself with SIGKILL at a given moment: python killed_run.py FOLDER MOMENT."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import genepool
from genepool.learning.ddpg import DDPG
from genepool.runs import checkpoint, training
from genepool.workers.local import LocalWorkers

FRAMES = 2_000  # seven generations or so


def algorithm():
    parts = genepool.pderl(
        "Pendulum-v1", engine="gymnasium", population=4, trials=1, memory=300, hidden=(16, 16), sync_period=2
    )
    return replace(parts, replay=5_000, test_episodes=2, updates_per_frame=0.1, task=replace(parts.task, max_steps=60))


def kill_at(owner, name, call):
    """Let the function be killed in the middle of its n-th call, after its work is done but before it returns."""
    original, calls = getattr(owner, name), []

    def killing(*arguments, **options):
        answer = original(*arguments, **options)
        calls.append(name)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, killing)


if __name__ == "__main__":
    folder, moment = Path(sys.argv[1]), sys.argv[2]
    training.SECONDS_BETWEEN_CHECKPOINTS = 0.0 if moment != "never" else 1e9
    if moment == "acting":
        kill_at(LocalWorkers, "map", 5)  # a generation's episodes and its tests are two calls
    elif moment == "learning":
        kill_at(DDPG, "update", 3)
    elif moment == "saving":
        # two syncs for the configuration, five for the first checkpoint and champion; the ninth is of the second
        # checkpoint's temporary file, which is whole but not renamed yet
        kill_at(checkpoint, "sync", 9)
    elif moment == "twice":
        training.SECONDS_BETWEEN_CHECKPOINTS = 1e9  # no checkpoint at all before the kill
        kill_at(DDPG, "update", 4)
    run = genepool.resume(folder) if folder.exists() else genepool.train(algorithm(), FRAMES, seed=3, run=folder)
    for _ in run:
        pass
