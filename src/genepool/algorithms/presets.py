"""The named systems in one table: the coupling of each, its parts by name, its settings. This module imports no JAX.

The key of a setting is a dotted path. It applies if the chosen parts have such a field.
"""

from typing import Any, NamedTuple

from genepool.algorithms.settings import AES_TASKS, ERL_TASKS, ES_TASKS, ESAC_TASKS, PDERL_TASKS, Settings


class Preset(NamedTuple):
    """A named system."""

    coupling: str  # module:Class
    doc: str  # what it is and whose
    short: str  # the same for a list
    settings: Settings
    tasks: dict[str, Settings] = {}  # noqa: RUF012, never written
    short_names: dict[str, str] = {}  # noqa: RUF012, the paper's names of options, and their paths


INJECTION = "genepool.algorithms.injection:Injection"
LESSONS = "genepool.algorithms.lessons:Lessons"
PHASES = "genepool.algorithms.phases:Phases"
EVOLVER_ALONE = "genepool.algorithms.alone:EvolverAlone"
LEARNER_ALONE = "genepool.algorithms.alone:LearnerAlone"
GPO = "genepool.algorithms.gpo.loop:GPO"
COUPLINGS = (INJECTION, LESSONS, PHASES, EVOLVER_ALONE, LEARNER_ALONE, GPO)


def _genetic(crossover: str, mutation: str) -> Settings:
    return {"evolver": "generational-ga", "evolver.crossover": crossover, "evolver.mutation": mutation}


_SIGMA = {"sigma": "evolver.mutation.sigma"}
_SCALE = {"scale": "evolver.scale"}
_ASYNCHRONOUS = {
    "learner": "td3",
    "learner.batch_size": 256,
    "lessons": "controlled",
    "random_warmup": True,
    "catch_up": True,
    "critic_head_start": 10_000,
    "target_policy": "mean",
    "replay": 200_000,
    "schedule": "asynchronous",
}
# the success rule has no upper limit of its own
_ONE_PLUS_ONE = {
    "evolver.mean_rule": "full-move",
    "evolver.variance_rule": "success-rule",
    "evolver.variance_cap": 1e-2,
}
_ES = {"hidden": (512, 512), "layer_norm": False, "activation": "relu", "initial": "xavier", "test_every": 10}
_ES_ALONE = {"evolver.winners": 0.0, "evolver.injected": 0, "evolver.crossover": None, "evolver.tuning": None}
_SOFT = {"learner.critics": "value", "learner.critic_hidden": (512, 512), "learner.initial": "xavier"}
_PLAIN = {"layer_norm": False, "test_episodes": 10}
_SAC_ACTOR = {"hidden": (256, 256), "activation": "relu", "initial": "xavier"}
_HORIZON = {"task.max_steps": 512}  # T: GPO's time limit, for tasks with longer episodes
_ONE_ROUND = {"rounds": 1, "iterations": 488, "sharing": None}  # as many iterations as 8 million transitions make
_TODAY = {"mutation.max_norm": 0.5, "mutation.reward_scaling": True, "mutation.advantages.gae": 0.95}
_PPO = {"mutation.objective": "clip", "mutation.minibatches": 32, "mutation.rate": 3e-4}
_PPO |= {"mutation.critic.hidden": (64, 64), "mutation.critic.rate": 3e-4}

PRESETS: dict[str, Preset] = {
    "erl": Preset(
        INJECTION,
        "ERL (Khadka and Tumer 2018): row-copy crossover, Gaussian mutation, DDPG.",
        "ERL: row-copy crossover, Gaussian mutation, DDPG",
        _genetic("row-copy", "gaussian") | {"learner": "ddpg"},
        ERL_TASKS,
        _SIGMA,
    ),
    "perl": Preset(
        INJECTION,
        "PERL (Bodnar et al. 2020): ERL with proximal mutation.",
        "ERL with proximal mutation",
        _genetic("row-copy", "proximal") | {"learner": "ddpg"},
        PDERL_TASKS,
        _SIGMA,
    ),
    "derl": Preset(
        INJECTION,
        "DERL (Bodnar et al. 2020): ERL with distillation crossover.",
        "ERL with distillation crossover",
        _genetic("distillation", "gaussian") | {"learner": "ddpg"},
        PDERL_TASKS,
        _SIGMA,
    ),
    "pderl": Preset(
        INJECTION,
        "PDERL (Bodnar et al. 2020): ERL with distillation crossover and proximal mutation.",
        "ERL with both; --schedule asynchronous breeds one child at a time",
        _genetic("distillation", "proximal") | {"learner": "ddpg"},
        PDERL_TASKS,
        _SIGMA,
    ),
    "cem-rl": Preset(
        LESSONS,
        "CEM-RL (Pourchot and Sigaud 2019): CEM, and TD3 teaches half of every sample. On several workers, P-CEM-RL.",
        "CEM, and TD3 teaches half of every sample; with --workers ray:5, P-CEM-RL",
        {"evolver": "cem", "learner": "td3", "lessons": "first-half"},
    ),
    "aes-rl": Preset(
        LESSONS,
        "AES-RL (Lee et al. 2020): every outcome moves the mean by its own merit, as soon as it arrives.",
        "AES-RL: every outcome moves the mean as soon as it arrives",
        {"evolver": "asynchronous-es"} | _ASYNCHRONOUS,
        AES_TASKS,
        _SCALE,
    ),
    "one-plus-one-es": Preset(
        LESSONS,
        "(1+1)-ES with the one-fifth success rule, with lessons like AES-RL (AES-RL's Table 2).",
        "AES-RL's machinery with the (1+1)-ES and the one-fifth rule",
        {"evolver": "asynchronous-es"} | _ONE_PLUS_ONE | _ASYNCHRONOUS,
        AES_TASKS,
        _SCALE,
    ),
    "rank-es": Preset(
        LESSONS,
        "The asynchronous rank-based strategy with the oldest replaced, with lessons like AES-RL (AES-RL's Table 2).",
        "the same with the rank-based strategy",
        {"evolver": "rank-es"} | _ASYNCHRONOUS,
        AES_TASKS,
        _SCALE,
    ),
    "esac": Preset(
        PHASES,
        "ESAC (Suri et al. 2020): OpenAI-ES whose winners cross with the mother, and SAC, learning at selected times.",
        "ESAC: an evolution strategy, and SAC, which learns at selected times",
        {"evolver": "openai-es", "learner": "sac"} | _SOFT,
        ESAC_TASKS,
    ),
    "gpo": Preset(
        GPO,
        "GPO (Gangwani and Peng 2018): policies mutated by PPO, whose couples have children that imitate both.",
        "GPO: policies mutated by PPO (--mutation a2c: by A2C), whose couples have children that imitate both",
        {"mutation": "ppo"} | _HORIZON,
    ),
    "single": Preset(
        GPO,
        "GPO's baseline Single: as many policies, each on its own, of which the best counts.",
        "GPO's baseline: as many policies, each on its own, of which the best counts",
        {"mutation": "ppo"} | _ONE_ROUND | _HORIZON,
    ),
    "joint": Preset(
        GPO,
        "GPO's baseline Joint: one policy with the batches of all.",
        "GPO's baseline: one policy with the batches of all",
        {"mutation": "ppo", "population": 1, "batch": 16_384} | _ONE_ROUND | _HORIZON,
    ),
    "ddpg": Preset(
        LEARNER_ALONE,
        "DDPG (Lillicrap et al. 2015) as ERL runs it: the same learner and loop, no population.",
        "a learner alone: DDPG, as ERL has it",
        {"learner": "ddpg"},
    ),
    "td3": Preset(
        LEARNER_ALONE,
        "TD3 (Fujimoto et al. 2018), alone: an episode, then as many gradient steps as it had frames.",
        "a learner alone: TD3",
        {"learner": "td3", "hidden": (400, 300)} | _PLAIN,
    ),
    "sac": Preset(
        LEARNER_ALONE,
        "SAC (Haarnoja et al. 2018), fixed temperature, alone: an episode, then a gradient step for each frame.",
        "a learner alone: SAC; as another's, --learner sac",
        {"learner": "sac"} | _SAC_ACTOR | _PLAIN,
    ),
    "ppo": Preset(
        GPO,
        "PPO (Schulman et al. 2017), alone, as used today: clipped ratio, minibatches, GAE, scaled data.",
        "a learner alone: PPO, as it is used today",
        {"mutation": "ppo", "population": 1, "output_scale": 0.01} | _PPO | _TODAY | _ONE_ROUND,
    ),
    "a2c": Preset(
        GPO,
        "A2C (Mnih et al. 2016), alone: one step of the policy for every batch, GAE, scaled observations and rewards.",
        "a learner alone: A2C",
        {"mutation": "a2c", "mutation.rate": 1e-2, "population": 1, "batch": 1_024, "output_scale": 0.01}
        | _TODAY
        | _ONE_ROUND,
    ),
    "cem": Preset(
        EVOLVER_ALONE,
        "CEM, alone: the cross-entropy method with diagonal covariance and mirrored samples.",
        "an evolver alone: the cross-entropy method; another one by --evolver",
        {"evolver": "cem"},
    ),
    "es": Preset(
        EVOLVER_ALONE,
        "OpenAI-ES (Salimans et al. 2017), alone, as ESAC runs it: mirrored pairs, shaped by rank, Adam.",
        "an evolver alone: OpenAI-ES",
        {"evolver": "openai-es"} | _ES_ALONE | _ES,
        ES_TASKS,
    ),
}


def list_of_presets() -> str:
    """A line for each preset, for `--help`."""
    return "".join(f"  {name:18}  {preset.short}\n" for name, preset in PRESETS.items())


def python_name(name: str) -> str:
    """aes-rl as aes_rl."""
    return name.replace("-", "_")


FUNCTIONS: dict[str, Any] = {python_name(name): name for name in PRESETS}
