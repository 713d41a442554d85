"""TD3 and SAC against their peers: frames per second of genepool, SBX and Stable-Baselines3 with the same sizes.

    python -m benchmarks.peers [--learner td3|sac] [--python PYTHON] [--rounds N] [--frames N]

The peers are the extra `genepool[peers]`; they may live in an environment of their own, whose interpreter `--python`
names. All of them train on HalfCheetah-v5 with the same units and batches, a gradient step per frame (TD3: 400-300 and
100; SAC: 256-256 and 256, its temperature fixed), and are timed from the end of their warm-up, when everything is
compiled.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from statistics import median
from typing import Any

TASK = "HalfCheetah-v5"
PEERS = {
    "td3": {"batch_size": 100, "learning_rate": 1e-3, "policy_kwargs": {"net_arch": [400, 300]}},
    "sac": {"batch_size": 256, "learning_rate": 3e-4, "policy_kwargs": {"net_arch": [256, 256]}, "ent_coef": 0.2},
}


def genepool(learner: str, frames: int) -> float:
    """Seconds per frame: episodes of a thousand frames, each followed by a thousand gradient steps."""
    import jax

    import genepool
    from genepool.schedule import Clock, synchronous

    parts = {"td3": genepool.TD3(warmup=1_000), "sac": genepool.SAC(warmup=1_000, random_frames=1_000)}
    algorithm = getattr(genepool, learner)(TASK, learner=parts[learner])
    workers, key, state, begun = genepool.LocalWorkers(algorithm.task), jax.random.key(0), None, 0.0
    state = algorithm.init(key)
    for episode in range(3 + frames // 1_000):
        if episode == 3:  # two of warm-up, and one in which all is compiled
            begun = time.perf_counter()
        state, _ = synchronous(algorithm, workers, jax.random.fold_in(key, episode), state, Clock())
    return (time.perf_counter() - begun) / (frames // 1_000 * 1_000)


def stable_baselines3(learner: str, frames: int) -> float:
    """Seconds per frame: a gradient step after every frame."""
    import stable_baselines3 as peer

    return _peer(peer, learner, frames, train_freq=1, gradient_steps=1)


def sbx(learner: str, frames: int) -> float:
    """Seconds per frame: a gradient step after every frame."""
    import sbx as peer

    return _peer(peer, learner, frames, train_freq=1, gradient_steps=1)


def sbx_episodes(learner: str, frames: int) -> float:
    """Seconds per frame: a thousand gradient steps after every episode, in one compiled call."""
    import sbx as peer

    return _peer(peer, learner, frames, train_freq=(1, "episode"), gradient_steps=-1)


def _peer(peer: Any, learner: str, frames: int, **schedule: Any) -> float:
    import gymnasium

    settings = {"learning_starts": 1_000, "buffer_size": 1_000_000, "device": "cpu"} | PEERS[learner] | schedule
    model = getattr(peer, learner.upper())("MlpPolicy", gymnasium.make(TASK), **settings)
    model.learn(3_000)
    begun = time.perf_counter()
    model.learn(frames, reset_num_timesteps=False)
    return (time.perf_counter() - begun) / frames


CONTESTANTS = {
    "genepool": genepool,
    "sbx": sbx,
    "sbx, by episodes": sbx_episodes,
    "stable-baselines3": stable_baselines3,
}


def main() -> None:
    """Time one contestant, or all of them in turns."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="TD3 and SAC against their peers")
    parser.add_argument("--learner", choices=PEERS, default="td3", help="who learns")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the peers")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is timed")
    parser.add_argument("--frames", type=int, default=4_000, help="frames that are timed")
    parser.add_argument("--contestant", choices=CONTESTANTS, help="time this one only, in this process")
    options = parser.parse_args()
    if options.contestant:
        print(json.dumps(CONTESTANTS[options.contestant](options.learner, options.frames)))
        return
    found: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for turn in range(options.rounds):
        for name, rounds in found.items():
            print(f"round {turn + 1}: {name} ...", file=sys.stderr)
            rounds.append(_timed(name, options))
            print(f"round {turn + 1}: {name} {1e3 * rounds[-1]:.2f} ms per frame", file=sys.stderr)
    ours = median(found["genepool"])
    for name, rounds in found.items():
        spent = median(rounds)
        print(
            f"{name:18} {1e3 * spent:6.2f} ms per frame, {1 / spent:6.0f} frames/s, genepool is {spent / ours:.2f} times as fast"
        )


def _timed(name: str, options: argparse.Namespace) -> float:
    interpreter = sys.executable if name == "genepool" else options.python
    environment = {"JAX_PLATFORMS": "cpu"} | os.environ
    command = [
        interpreter,
        __file__,
        "--contestant",
        name,
        "--frames",
        str(options.frames),
        "--learner",
        options.learner,
    ]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if answer.returncode:
        sys.exit(f"{name} failed: install its peers with pip install 'genepool[peers]', or name their --python")
    return json.loads(answer.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
