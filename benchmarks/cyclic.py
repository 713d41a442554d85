"""ESAC's Figure 2: evolution strategies on the discrete cyclic MDP, as a figure and as JSON.

    python -m benchmarks.cyclic [--out cyclic.png] [--frames 1e6] [--generations 100] [--seeds 3]

Left: the population's mean return (ES, ESAC) and the return of the learner's episodes (DDPG, PPO) against true
frames. Centre: seconds a generation against workers, for populations of 5 to 50 pairs. Right: ES with 50 pairs
against sigma, the mean over the first generations of the population's mean return.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import jax
import numpy as np

import genepool
from genepool.schedule import Clock, synchronous
from genepool.workers.named import open_workers

SIGMAS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.5, 1.0)
TASK = "CyclicMDP"


def algorithm(name: str, **options: Any) -> Any:
    """An agent on the cyclic MDP, with the small network that ES and ESAC have there."""
    return getattr(genepool, name)(TASK, hidden=(32, 32), **options)


def returns(name: str, seed: int, frames: float, most: int, **options: Any) -> Iterator[tuple[int, float]]:
    """True frames and the mean return of each generation, until the frames are played or `most` generations."""
    part = algorithm(name, **options)
    workers, key, state, played = open_workers("local", part.task), jax.random.key(seed), None, 0
    state = part.init(jax.random.fold_in(key, 0))
    purpose = "exploration" if name == "ddpg" else "fitness"
    for generation in range(most):
        state, outcomes = synchronous(part, workers, jax.random.fold_in(key, generation + 1), state, Clock())
        played += sum(outcome.frames for outcome in outcomes)
        yield played, fmean(o.fitness for o in outcomes if o.candidate.purpose == purpose)
        if played >= frames:
            break
    workers.close()


def left(frames: float, learner_frames: float, seeds: int) -> dict[str, list[list[tuple[int, float]]]]:
    """Return against true frames."""
    found = {}
    for name in ("es", "esac", "ddpg", "ppo"):
        found[name] = []
        for seed in range(seeds):
            print(f"{name}, seed {seed}", file=sys.stderr)
            limit = learner_frames if name == "ddpg" else frames  # a gradient step costs as much as a hundred frames
            found[name].append(list(returns(name, seed, limit, 3_000 if name == "ddpg" else 300)))
    return found


def centre(workers: tuple[str, ...], pairs: tuple[int, ...], repeats: int = 3) -> list[dict[str, Any]]:
    """Seconds a generation in which every member plays to the horizon."""
    rows = []
    for where in workers:
        for count in pairs:
            part = algorithm("es", pairs=count)
            bench, state, seconds = open_workers(where, part.task), part.init(jax.random.key(0)), []
            state = replace(state, evolver=replace(state.evolver, mother=clockwise(state), sigma=np.asarray(1e-6)))
            for k in range(repeats + 1):
                candidates, state = part.ask(jax.random.key(k), state, part.generation_size)
                begun = time.perf_counter()
                bench.map(candidates)
                seconds.append(time.perf_counter() - begun)
            bench.close()
            rows.append({"workers": where, "pairs": count, "seconds": min(seconds[1:])})
            print(rows[-1], file=sys.stderr)
    return rows


def clockwise(state: Any) -> Any:
    """The weights of an actor that goes round and round: its last layer's bias prefers the first action."""
    from genepool import trees

    like = jax.tree.map(np.zeros_like, state.evolver.template)
    like.output.bias[0] = 3.0
    return jax.numpy.asarray(trees.flat(like))


def right(generations: int, seeds: int) -> list[dict[str, Any]]:
    """ES against sigma."""
    rows = []
    for sigma in SIGMAS:
        means = []
        for seed in range(seeds):
            # where all play to the horizon nothing is left to be learnt: frames are limited, the last value goes on
            curve = [value for _, value in returns("es", seed, 4e5, generations, sigma=sigma)]
            means.append(fmean(curve + [curve[-1]] * (generations - len(curve))))
        rows.append({"sigma": sigma, "means": means})
        print(rows[-1], file=sys.stderr)
    return rows


def draw(found: dict[str, Any], path: Path) -> None:
    """The three panels."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from genepool.analysis.report.curves import COLOURS

    figure, (one, two, three) = plt.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    for colour, (name, runs) in zip(COLOURS, found["left"].items(), strict=False):
        for k, run in enumerate(runs):
            frames, values = zip(*run, strict=True)
            one.plot(frames, values, color=colour, alpha=0.8, label=name if k == 0 else None)
    one.set(xlabel="true frames", ylabel="return", xscale="log", title="ES, ESAC, DDPG and PPO on the cyclic MDP")
    for colour, where in zip(COLOURS, dict.fromkeys(row["workers"] for row in found["centre"]), strict=False):
        rows = [row for row in found["centre"] if row["workers"] == where]
        two.plot([r["pairs"] for r in rows], [r["seconds"] for r in rows], "o-", color=colour, label=where)
    two.set(xlabel="pairs", ylabel="seconds a generation", title="a generation to the horizon")
    sigmas = [row["sigma"] for row in found["right"]]
    means = np.array([row["means"] for row in found["right"]])
    three.plot(sigmas, means.mean(axis=1), "o-", color=COLOURS[0])
    three.fill_between(sigmas, means.min(axis=1), means.max(axis=1), color=COLOURS[0], alpha=0.2)
    three.set(xlabel="sigma", ylabel="mean return, first generations", xscale="log", title="ES, 50 pairs")
    for axes in (one, two):
        axes.legend(frameon=False)
    for axes in (one, two, three):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Measure all three panels and draw them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cyclic", description="ESAC's Figure 2")
    parser.add_argument(
        "--out", type=Path, default=Path("cyclic.png"), help="the figure; its numbers go next to it as JSON"
    )
    parser.add_argument("--frames", type=float, default=1e6, help="true frames of ES and ESAC on the left")
    parser.add_argument("--learner-frames", type=float, default=3e4, help="and of DDPG")
    parser.add_argument("--generations", type=int, default=100, help="generations of each run on the right")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", default="local,ray:1,ray:2", help="where the generations of the centre are played")
    options = parser.parse_args()
    found = {
        "left": left(options.frames, options.learner_frames, options.seeds),
        "centre": centre(tuple(options.workers.split(",")), (5, 10, 20, 50)),
        "right": right(options.generations, options.seeds),
    }
    options.out.with_suffix(".json").write_text(json.dumps(found))
    draw(found, options.out)
    print(options.out)


if __name__ == "__main__":
    main()
