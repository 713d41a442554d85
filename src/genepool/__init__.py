"""genepool trains control policies by evolution and gradient learning together.

run = genepool.train(genepool.pderl("HalfCheetah-v5"), frames=1_000_000, seed=0)
for record in run:
    print(record["frames"], max(record["fitness"]))
action, _ = run.champion.predict(observation)
"""

import importlib
from typing import Any

_HOME = {
    "genepool.algorithms.erl": ("ERL",),
    "genepool.algorithms.esac": ("ESAC",),
    "genepool.algorithms.gpo": ("GPO",),
    "genepool.algorithms.presets": (
        *("a2c", "aes_rl", "cem", "cem_rl", "ddpg", "derl", "erl", "es", "esac", "gpo", "joint"),
        *("one_plus_one_es", "pderl", "perl", "ppo", "rank_es", "sac", "single", "td3"),
    ),
    "genepool.algorithms.taught": ("Controlled", "FirstHalf", "TaughtES"),
    "genepool.environments.cyclic": ("CyclicMDP",),
    "genepool.environments.hills": ("HalfCheetahHilly", "HopperHilly", "Walker2dHilly"),
    "genepool.environments.rllab": ("RllabEnv",),
    "genepool.environments.task": ("Task", "find"),
    "genepool.errors": ("UserError",),
    "genepool.evolution.asynchronous": (
        *("AbsoluteBaseline", "AdaptiveN", "AsynchronousES", "FixedN", "FullMove", "LinearRange"),
        *("RankES", "RelativeBaseline", "SigmoidRange", "SuccessRule"),
    ),
    "genepool.evolution.couples": ("Fittest", "Sharing"),
    "genepool.evolution.crossover": ("Distillation", "ElementCopy", "RowCopy"),
    "genepool.evolution.distribution": ("CEM",),
    "genepool.evolution.genetic": ("Generational",),
    "genepool.evolution.imitation": ("ParameterSpace", "StateSpace"),
    "genepool.evolution.mutation": ("Gaussian", "Proximal"),
    "genepool.evolution.selection": ("Mating",),
    "genepool.evolution.steady": ("SteadyState",),
    "genepool.evolution.strategies": ("Evosax",),
    "genepool.evolution.tuning": ("AMT", "LinearTuning"),
    "genepool.evolution.winners": ("WinnersES",),
    "genepool.learning.ddpg": ("DDPG",),
    "genepool.learning.exploration": ("GaussianNoise", "OrnsteinUhlenbeck"),
    "genepool.learning.ppo": ("A2C", "PPO"),
    "genepool.learning.returns": ("Advantages",),
    "genepool.learning.sac": ("SAC",),
    "genepool.learning.td3": ("TD3",),
    "genepool.runs.policy": ("Policy", "load"),
    "genepool.runs.training": ("Run", "resume", "train"),
    "genepool.types": ("Candidate", "Individual", "Outcome", "Transitions"),
    "genepool.workers.local": ("LocalWorkers",),
    "genepool.workers.virtual": ("Costs", "RecordedWorkers", "VirtualWorkers"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE)


def __getattr__(name: str) -> Any:
    """The public names, each imported when first used: `genepool --help` need not wait for JAX."""
    if name not in _MODULE:
        raise AttributeError(f"module 'genepool' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE[name]), name)


def __dir__() -> list[str]:
    return __all__
