"""Every evolver in every coupling with every learner, tried: docs/compositions.md.

    python -m benchmarks.compositions > docs/compositions.md      # five minutes on one core

Each composition is put together as `genepool train` does it and trained for some short generations on Pendulum-v1,
until its learner has taken gradient steps. What is refused is shown with the line that says why.
"""

import math
import sys
from typing import Any

import jax

import genepool
from genepool.algorithms.assemble import assembled

PRESETS = {"injection": "pderl", "lessons": "cem-rl", "phases": "esac"}
EVOLVERS = (
    *("generational-ga", "steady-state-ga", "cem", "asynchronous-es", "rank-es", "openai-es", "sep-cma-es"),
    "open-es",
)
LEARNERS = ("ddpg", "td3", "sac")
SIZES = {"hidden": (16, 16), "replay": 5_000, "max_steps": 50, "test_episodes": 1, "learner.batch_size": 16}
SMALL = {  # of a coupling
    "injection": {"memory": 200, "sync_period": 2, "trials": 1},
    "lessons": {"memory": 200, "warmup": 100},
    "phases": {"memory": 200, "sac_episodes": 1, "gradient_interval": 2, "test_every": 1},
}
GENERATIONS = 12  # at most, until the learner has learnt
HEAD = """# Compositions

Three couplings take any evolver and any learner: `genepool train PRESET TASK --evolver NAME --learner NAME`. There is one
exception: evolvers that estimate a gradient take no lessons. The preset brings the coupling, which is how gradients enter evolution.

| coupling | what it does | presets |
|---|---|---|
| injection | a clone of the learner joins the population every so often | `erl`, `perl`, `derl`, `pderl` |
| lessons | individuals take gradient steps against the learner's critic before they are tried | `cem-rl`, `aes-rl`, `one-plus-one-es`, `rank-es` |
| phases | the learner plays and learns at drawn times, and its clone is one of the members | `esac` |

The table is made by `python -m benchmarks.compositions`, which trains each composition on Pendulum-v1 until its learner has taken
gradient steps. *Trains* means that it runs and learns with finite numbers. It says nothing about how well. `sep-cma-es` and `open-es`
stand for evosax's strategies: those that sample around a mean, and those that estimate a gradient.
"""


def small(coupling: str, evolver: str, learner: str) -> Any:
    """The composition at a size that trains in seconds."""
    options = SIZES | SMALL[coupling] | {"evolver": evolver, "learner": learner}
    options |= {"learner.warmup": 50} | ({"learner.random_frames": 50} if learner == "sac" else {})
    options |= {"evolver.pairs": 3, "evolver.injected": 1} if evolver == "openai-es" else {"evolver.population": 6}
    return assembled(PRESETS[coupling], "Pendulum-v1", options)


def train(algorithm: Any) -> str:
    """How it went: trains, or what was wrong."""
    workers, key = genepool.LocalWorkers(algorithm.task), jax.random.key(0)
    state = algorithm.init(key)
    for g in range(GENERATIONS):
        state, outcomes = genepool.generation(algorithm, workers, jax.random.fold_in(key, g), state)
        report = algorithm.report(state, outcomes)
        if not all(math.isfinite(outcome.fitness) for outcome in outcomes):
            return "fitness is no number"
        if report["updates"] > 0 and math.isfinite(report["critic_loss"]):
            return "trains"
    return "learns nothing"


def main() -> None:
    """Try all, and print the page."""
    print(HEAD)
    refusals: dict[str, dict[str, None]] = {}
    print("| coupling | evolver | " + " | ".join(LEARNERS) + " |")
    print("|---" * (len(LEARNERS) + 2) + "|")
    for coupling in PRESETS:
        for evolver in EVOLVERS:
            cells = []
            for learner in LEARNERS:
                try:
                    cells.append(train(small(coupling, evolver, learner)))
                except genepool.UserError as refusal:
                    cells.append("refused")
                    refusals.setdefault(str(refusal), {})[f"{coupling} with `{evolver}`"] = None
                print(coupling, evolver, learner, cells[-1], file=sys.stderr)
            print(f"| {coupling} | `{evolver}` | " + " | ".join(cells) + " |")
    for line, which in refusals.items():
        print(f"\n{' and '.join(which)} are refused:\n\n> {line}")


if __name__ == "__main__":
    main()
