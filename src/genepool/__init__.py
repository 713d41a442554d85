"""genepool trains control policies by evolution and gradient learning together.

run = genepool.train(genepool.pderl("HalfCheetah-v5"), frames=1_000_000, seed=0)
action, _ = run.champion.predict(observation)

To follow a run generation by generation:

for record in genepool.start(genepool.pderl("HalfCheetah-v5"), frames=1_000_000, seed=0):
    print(record["frames"], max(record["fitness"]))
"""

import importlib
from typing import Any

from genepool.algorithms.presets import FUNCTIONS

_HOME = {
    "genepool.algorithms.alone": ("EvolverAlone", "LearnerAlone"),
    "genepool.algorithms.gpo.loop": ("GPO",),
    "genepool.algorithms.injection": ("Injection",),
    "genepool.algorithms.lessons": ("Lessons",),
    "genepool.algorithms.phases": ("Phases",),
    "genepool.algorithms.teaching": ("Controlled", "FirstHalf"),
    "genepool.environments.tasks.cyclic": ("CyclicMDP",),
    "genepool.environments.tasks.hills": ("HalfCheetahHilly", "HopperHilly", "Walker2dHilly"),
    "genepool.environments.tasks.rllab": ("RllabEnv",),
    "genepool.environments.lookup": ("find",),
    "genepool.environments.task": ("Task",),
    "genepool.errors": ("UserError",),
    "genepool.evolution.distribution.asynchronous": (
        *("AbsoluteBaseline", "AdaptiveN", "AsynchronousES", "FixedN", "FullMove", "LinearRange"),
        *("RelativeBaseline", "SigmoidRange", "SuccessRule"),
    ),
    "genepool.algorithms.gpo.couples": ("Fittest",),
    "genepool.algorithms.gpo.sharing": ("Sharing",),
    "genepool.evolution.genetic.crossover": ("Distillation", "ElementCopy", "RowCopy"),
    "genepool.evolution.distribution.cem": ("CEM",),
    "genepool.evolution.genetic.generational": ("GenerationalGA",),
    "genepool.algorithms.gpo.imitation": ("ParameterSpace", "StateSpace"),
    "genepool.evolution.genetic.mutation": ("Gaussian", "Proximal"),
    "genepool.evolution.distribution.openai_es": ("OpenAIES",),
    "genepool.evolution.distribution.rank": ("RankES",),
    "genepool.evolution.genetic.selection": ("Mating",),
    "genepool.evolution.genetic.steady_state": ("SteadyStateGA",),
    "genepool.evolution.distribution.evosax": ("Evosax",),
    "genepool.evolution.distribution.tuning": ("AutomaticMutationTuning", "LinearTuning"),
    "genepool.follow": ("train",),
    "genepool.learning.ddpg": ("DDPG",),
    "genepool.learning.exploration": ("GaussianNoise", "OrnsteinUhlenbeck"),
    "genepool.learning.ppo": ("A2C", "PPO"),
    "genepool.learning.returns": ("Advantages",),
    "genepool.learning.sac": ("SAC",),
    "genepool.learning.td3": ("TD3",),
    "genepool.parts": ("part",),
    "genepool.protocols": ("Algorithm", "Evolver", "Learner", "Strategy", "Teacher"),
    "genepool.runs.policy": ("Policy", "load"),
    "genepool.runs.training": ("Run", "resume", "start"),
    "genepool.schedule": ("generation",),
    "genepool.types": ("Candidate", "Individual", "Outcome", "Transitions"),
    "genepool.workers.local": ("LocalWorkers",),
    "genepool.workers.virtual": ("Costs", "RecordedWorkers", "VirtualWorkers"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted([*_MODULE, *FUNCTIONS])


def __getattr__(name: str) -> Any:
    """The public names, each imported when first used: `genepool --help` need not wait for JAX."""
    if name in FUNCTIONS:
        found = importlib.import_module("genepool.algorithms.assemble").preset_function(name)
    elif name in _MODULE:
        found = getattr(importlib.import_module(_MODULE[name]), name)
    else:
        raise AttributeError(f"module 'genepool' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
