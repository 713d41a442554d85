"""TD3 beside its peers: frames per second of genepool, SBX and Stable-Baselines3 with the same sizes, in turns.

    python -m benchmarks.peers [--python PYTHON] [--rounds N] [--frames N]

The peers are the extra `genepool[peers]`; they may live in an environment of their own, whose interpreter `--python`
names. All of them train on HalfCheetah-v5 with 400-300 units, batches of 100 and a gradient step per frame, and are
timed from the end of their warm-up, when everything is compiled.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from statistics import median
from typing import Any

TASK, HIDDEN, BATCH = "HalfCheetah-v5", (400, 300), 100


def genepool(frames: int) -> float:
    """Seconds per frame: episodes of a thousand frames, each followed by a thousand gradient steps."""
    import jax

    import genepool
    from genepool.schedule import Clock, synchronous

    algorithm = genepool.td3(TASK, learner=genepool.TD3(warmup=1_000))
    workers, key, state, begun = genepool.LocalWorkers(algorithm.task), jax.random.key(0), None, 0.0
    state = algorithm.init(key)
    for episode in range(3 + frames // 1_000):
        if episode == 3:  # two of warm-up, and one in which all is compiled
            begun = time.perf_counter()
        state, _ = synchronous(algorithm, workers, jax.random.fold_in(key, episode), state, Clock())
    return (time.perf_counter() - begun) / (frames // 1_000 * 1_000)


def stable_baselines3(frames: int) -> float:
    """Seconds per frame: a gradient step after every frame."""
    from stable_baselines3 import TD3

    return _peer(TD3, frames, train_freq=1, gradient_steps=1)


def sbx(frames: int) -> float:
    """Seconds per frame: a gradient step after every frame."""
    from sbx import TD3

    return _peer(TD3, frames, train_freq=1, gradient_steps=1)


def sbx_episodes(frames: int) -> float:
    """Seconds per frame: a thousand gradient steps after every episode, in one compiled call."""
    from sbx import TD3

    return _peer(TD3, frames, train_freq=(1, "episode"), gradient_steps=-1)


def _peer(kind: Any, frames: int, **schedule: Any) -> float:
    import gymnasium

    model = kind(
        "MlpPolicy",
        gymnasium.make(TASK),
        learning_rate=1e-3,
        batch_size=BATCH,
        learning_starts=1_000,
        buffer_size=1_000_000,
        policy_kwargs={"net_arch": list(HIDDEN)},
        device="cpu",
        **schedule,
    )
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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="TD3 beside its peers")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the peers")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is timed")
    parser.add_argument("--frames", type=int, default=4_000, help="frames that are timed")
    parser.add_argument("--contestant", choices=CONTESTANTS, help="time this one only, in this process")
    options = parser.parse_args()
    if options.contestant:
        print(json.dumps(CONTESTANTS[options.contestant](options.frames)))
        return
    found: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for turn in range(options.rounds):
        for name, rounds in found.items():
            print(f"round {turn + 1}: {name}", file=sys.stderr)
            rounds.append(_timed(name, options))
    ours = median(found["genepool"])
    for name, rounds in found.items():
        spent = median(rounds)
        print(
            f"{name:18} {1e3 * spent:6.2f} ms per frame, {1 / spent:6.0f} frames/s, genepool is {spent / ours:.2f} times as fast"
        )


def _timed(name: str, options: argparse.Namespace) -> float:
    interpreter = sys.executable if name == "genepool" else options.python
    environment = {"JAX_PLATFORMS": "cpu"} | os.environ
    if name == "genepool":  # as its command line does
        from genepool.cli import tune_jax

        tune_jax()
        environment |= {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
        os.environ.pop("XLA_FLAGS", None)
    command = [interpreter, __file__, "--contestant", name, "--frames", str(options.frames)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if answer.returncode:
        sys.exit(f"{name} failed: install its peers with pip install 'genepool[peers]', or name their --python")
    return json.loads(answer.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
