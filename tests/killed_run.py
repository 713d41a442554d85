"""Trains a small run and kills itself with SIGKILL at a moment: killed_run.py FOLDER MOMENT [PRESET [WORKERS]]."""

import os
import signal
import sys
from pathlib import Path

import genepool
from genepool.algorithms.gpo.imitation import StateSpace
from genepool.learning.ddpg import DDPG
from genepool.learning.ppo import PPO, Critic
from genepool.learning.td3 import TD3
from genepool.runs import checkpoint, training
from genepool.workers.local import LocalWorkers

FRAMES = 2_000  # seven generations or so


def algorithm(preset):
    return ALGORITHMS[preset]("Pendulum-v1", engine="gymnasium", max_steps=60, test_episodes=2)


def aes_rl(task, **options):
    learner = TD3(batch_size=8, critic_hidden=(8, 8))
    evolver = {"population": 5, "reference_episodes": 2, "reference_cache": True}
    small = {"replay": 5_000, "warmup": 200, "critic_head_start": 300, "critic_chunk": 100}
    return genepool.aes_rl(task, hidden=(8, 8), learner=learner, **evolver, **small, **options)


def gpo(task, **options):
    crossover = StateSpace(iterations=2, selector_epochs=3, expert_frames=100, student_frames=20, dagger=3, epochs=2)
    small = {"population": 3, "iterations": 2, "rounds": 5, "batch": 120, "hidden": (8,), "crossover": crossover}
    mutation = PPO(epochs=2, critic=Critic(minibatches=1))
    return genepool.gpo(task, mutation=mutation, test_every=2, **small, **options)


def pderl(task, **options):
    small = {"population": 4, "trials": 1, "memory": 300, "hidden": (16, 16), "sync_period": 2}
    return genepool.pderl(task, replay=5_000, updates_per_frame=0.1, **small, **options)


ALGORITHMS = {"aes_rl": aes_rl, "gpo": gpo, "pderl": pderl}


def kill_at(owner, name, call):
    """Let the function be killed in the middle of its n-th call, after its work is done but before it returns."""
    original = getattr(owner, name)
    calls = []

    def killing(*arguments, **options):
        answer = original(*arguments, **options)
        calls.append(name)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, killing)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    moment = sys.argv[2]
    preset = sys.argv[3] if len(sys.argv) > 3 else "pderl"
    training.SECONDS_BETWEEN_CHECKPOINTS = 0.0 if moment != "never" else 1e9
    if moment == "acting":
        # a generation's episodes and its tests are two calls; of AES-RL they are six, and this is in the third
        kill_at(LocalWorkers, "map", {"pderl": 5, "gpo": 6}.get(preset, 15))  # GPO: the first students
    elif moment == "learning":
        moments = {
            "pderl": (DDPG, "update", 3),
            "gpo": (StateSpace, "imitate", 8),
            "aes_rl": (TD3, "update_critic", 10),
        }
        kill_at(*moments[preset])
    elif moment == "saving":
        # two syncs for the configuration, five for the first checkpoint and champion; the ninth is of the second
        # checkpoint's temporary file, which is whole but not renamed yet
        kill_at(checkpoint, "sync", 9)
    elif moment == "twice":
        training.SECONDS_BETWEEN_CHECKPOINTS = 1e9  # no checkpoint at all before the kill
        kill_at(DDPG, "update", 4)
    workers = sys.argv[4] if len(sys.argv) > 4 else "local"

    def new():
        return genepool.start(algorithm(preset), FRAMES, seed=3, run=folder, workers=workers)

    run = genepool.resume(folder) if folder.exists() else new()
    for _ in run:
        pass
