"""The named systems: each a function that chooses parts, with the settings that its paper gives per task."""

import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from genepool.algorithms.erl import ERL
from genepool.algorithms.esac import ESAC
from genepool.algorithms.gpo import GPO
from genepool.algorithms.taught import Controlled, TaughtES
from genepool.environments.task import Task, find
from genepool.errors import UserError
from genepool.evolution.asynchronous import AsynchronousES, FullMove, RankES, SuccessRule
from genepool.evolution.crossover import Distillation, RowCopy
from genepool.evolution.distribution import CEM
from genepool.evolution.genetic import Generational
from genepool.evolution.mutation import Gaussian, Proximal
from genepool.evolution.winners import WinnersES
from genepool.learning.ppo import A2C, PPO, Critic
from genepool.learning.returns import Advantages
from genepool.learning.sac import SAC
from genepool.learning.td3 import TD3

# psi, xi, omega: PDERL's Table 4
PDERL_TASKS = {
    "Swimmer": {"elite_fraction": 0.1, "trials": 1, "sync_period": 10, "sigma": 0.1},
    "HalfCheetah": {"elite_fraction": 0.1, "trials": 1, "sync_period": 10, "sigma": 0.1},
    "Hopper": {"elite_fraction": 0.2, "trials": 3, "sync_period": 1, "sigma": 0.1},
    "Walker2d": {"elite_fraction": 0.2, "trials": 5, "sync_period": 1, "sigma": 0.1},
    "Ant": {"elite_fraction": 0.2, "trials": 1, "sync_period": 1, "sigma": 0.01},
    "Reacher": {"elite_fraction": 0.2, "trials": 3, "sync_period": 10},
}
# the same of ERL's code, which its paper's numbers come from
ERL_TASKS = {
    "Swimmer": {"elite_fraction": 0.1, "trials": 1, "sync_period": 10},
    "HalfCheetah": {"elite_fraction": 0.1, "trials": 1, "sync_period": 10},
    "Hopper": {"elite_fraction": 0.3, "trials": 5, "sync_period": 1},
    "Walker2d": {"elite_fraction": 0.2, "trials": 3, "sync_period": 10},
    "Ant": {"elite_fraction": 0.3, "trials": 1, "sync_period": 1},
    "Reacher": {"elite_fraction": 0.2, "trials": 5, "sync_period": 10},
}

# r, f_b and p_des of AES-RL's code; Humanoid's networks and rate
AES_TASKS = {
    "HalfCheetah": {"scale": 2000.0, "share": 0.5},
    "Hopper": {"scale": 600.0, "share": 0.5},
    "Walker2d": {"scale": 800.0, "share": 0.5},
    "Ant": {"scale": 960.0, "share": 0.5},
    "Humanoid": {
        "scale": 960.0,
        "share": 0.5,
        "hidden": (256, 256),
        "critic_hidden": (256, 256),
        "learning_rate": 3e-4,
    },
    "Swimmer": {"scale": 48.0, "share": 0.1},
}
ASYNCHRONOUS = {
    "learner": TD3(batch_size=256),
    "lessons": Controlled(),
    "random_warmup": True,
    "catch_up": True,
    "critic_head_start": 10_000,
    "target_policy": "mean",
    "replay": 200_000,
    "asynchronous": True,
}

# E, and the strategy's sigma and rate: ESAC's 6.1 and its tables of settings; k of Swimmer is the code's, and so is the network
# for the cyclic MDP. With the papers' sigma all members act alike there, their returns tie and nothing is learnt.
ESAC_TASKS = {
    "CyclicMDP": {"sigma": 0.1, "hidden": (32, 32), "activation": "tanh"},
    "Ant": {"sac_episodes": 10, "rate": 1e-4},
    "Walker2d": {"sac_episodes": 10},
    "Hopper": {"sac_episodes": 10},
    "Humanoid": {"sac_episodes": 10},
    "Swimmer": {"sac_episodes": 1, "injected": 1},
}
ESAC_CONTROL = {"sigma": 0.01, "rate": 0.01}  # of the DM Control tasks
ESAC_TASKS |= dict.fromkeys(("CartpoleSwingup", "WalkerWalk", "WalkerRun"), ESAC_CONTROL)
ESAC_TASKS |= {
    name: ESAC_CONTROL | {"sac_episodes": 1}
    for name in (
        *("HumanoidStand", "HumanoidWalk", "HumanoidRun", "CheetahRun", "FishUpright", "FishSwim"),
        *("AcrobotSwingup", "QuadrupedWalk", "QuadrupedRun"),
    )
}

GPO_HORIZON = 512  # T: GPO's episodes
ALONE = {"rounds": 1, "iterations": 488, "sharing": None}  # as many iterations as 8 million transitions make
TODAY = Advantages(gae=0.95)

AnyTask = str | Callable[[], Any] | Task


def erl(task: AnyTask, **options: Any) -> ERL:
    """ERL (Khadka and Tumer 2018): row-copy crossover, Gaussian mutation, DDPG."""
    return _assembled(task, options, ERL_TASKS, crossover=RowCopy(), mutation=Gaussian())


def perl(task: AnyTask, **options: Any) -> ERL:
    """PERL (Bodnar et al. 2020): ERL with proximal mutation."""
    return _assembled(task, options, PDERL_TASKS, crossover=RowCopy(), mutation=Proximal())


def derl(task: AnyTask, **options: Any) -> ERL:
    """DERL (Bodnar et al. 2020): ERL with distillation crossover."""
    return _assembled(task, options, PDERL_TASKS, crossover=Distillation(), mutation=Gaussian())


def pderl(task: AnyTask, **options: Any) -> ERL:
    """PDERL (Bodnar et al. 2020): ERL with distillation crossover and proximal mutation."""
    return _assembled(task, options, PDERL_TASKS, crossover=Distillation(), mutation=Proximal())


def ddpg(task: AnyTask, **options: Any) -> ERL:
    """DDPG (Lillicrap et al. 2015) as ERL runs it: the same learner and loop, no population."""
    return _assembled(task, options, {}, evolver=None, test_every=10)


def td3(task: AnyTask, **options: Any) -> ERL:
    """TD3 (Fujimoto et al. 2018), alone: an episode, then as many gradient steps as it had frames."""
    plain = {"hidden": (400, 300), "layer_norm": False}
    return _assembled(task, options, {}, evolver=None, learner=TD3(), test_episodes=10, test_every=10, **plain)


def sac(task: AnyTask, **options: Any) -> ERL:
    """SAC (Haarnoja et al. 2018), alone, with a fixed temperature: an episode, then as many gradient steps as it had frames."""
    plain = {"hidden": (256, 256), "layer_norm": False, "activation": "relu", "initial": "xavier"}
    return _assembled(task, options, {}, evolver=None, learner=SAC(), test_episodes=10, test_every=10, **plain)


def cem(task: AnyTask, **options: Any) -> TaughtES:
    """CEM, alone: the cross-entropy method with diagonal covariance and mirrored samples."""
    return _taught(task, options, {}, evolver=CEM(), learner=None)


def es(task: AnyTask, **options: Any) -> ESAC:
    """OpenAI-ES (Salimans et al. 2017), alone, as ESAC runs it: mirrored pairs, shaped by rank, Adam."""
    evolver = WinnersES(winners=0.0, injected=0, crossover=None, tuning=None)
    return _beside(task, options, evolver=evolver, learner=None)


def esac(task: AnyTask, **options: Any) -> ESAC:
    """ESAC (Suri et al. 2020): OpenAI-ES whose winners cross with the mother, and SAC, which learns at selected times."""
    critics = {"critic_hidden": (512, 512), "initial": "xavier"}
    return _beside(task, options, evolver=WinnersES(), learner=SAC(critics="value", **critics))


def cem_rl(task: AnyTask, **options: Any) -> TaughtES:
    """CEM-RL (Pourchot and Sigaud 2019): CEM, and TD3 teaches half of every sample. On several workers, P-CEM-RL."""
    return _taught(task, options, {}, evolver=CEM(), learner=TD3())


def aes_rl(task: AnyTask, **options: Any) -> TaughtES:
    """AES-RL (Lee et al. 2020): every outcome moves the mean by its own merit, as soon as it is there."""
    return _taught(task, options, AES_TASKS, evolver=AsynchronousES(), **ASYNCHRONOUS)


def one_plus_one_es(task: AnyTask, **options: Any) -> TaughtES:
    """(1+1)-ES with the one-fifth success rule, taught like AES-RL (AES-RL's Table 2)."""
    # the rule has no upper limit of its own
    evolver = AsynchronousES(mean_rule=FullMove(), variance_rule=SuccessRule(), variance_cap=1e-2)
    return _taught(task, options, AES_TASKS, evolver=evolver, **ASYNCHRONOUS)


def rank_es(task: AnyTask, **options: Any) -> TaughtES:
    """The asynchronous rank-based strategy with the oldest replaced, taught like AES-RL (AES-RL's Table 2)."""
    return _taught(task, options, AES_TASKS, evolver=RankES(), **ASYNCHRONOUS)


def gpo(task: AnyTask, **options: Any) -> GPO:
    """GPO (Gangwani and Peng 2018): policies mutated by PPO, whose couples have children that imitate both."""
    return _mutated(task, options, max_steps=GPO_HORIZON)


def single(task: AnyTask, **options: Any) -> GPO:
    """GPO's baseline Single: as many policies, each on its own, of which the best counts."""
    return _mutated(task, options, **ALONE, max_steps=GPO_HORIZON)


def joint(task: AnyTask, **options: Any) -> GPO:
    """GPO's baseline Joint: one policy with the batches of all."""
    return _mutated(task, options, **ALONE, max_steps=GPO_HORIZON, population=1, batch=16_384)


def ppo(task: AnyTask, **options: Any) -> GPO:
    """PPO (Schulman et al. 2017), alone, as it is used today: clipped ratio, minibatches, GAE, scaled observations and rewards."""
    critic = Critic(hidden=(64, 64), rate=3e-4)
    mutation = PPO(
        "clip", minibatches=32, rate=3e-4, max_norm=0.5, reward_scaling=True, advantages=TODAY, critic=critic
    )
    return _mutated(task, options, **ALONE, population=1, mutation=mutation, output_scale=0.01)


def a2c(task: AnyTask, **options: Any) -> GPO:
    """A2C (Mnih et al. 2016), alone: one step of the policy for every batch, GAE, scaled observations and rewards."""
    mutation = A2C(rate=1e-2, max_norm=0.5, reward_scaling=True, advantages=TODAY)
    return _mutated(
        task, options, **ALONE, population=1, batch=1_024, mutation=mutation, normalise=True, output_scale=0.01
    )


def _mutated(task: AnyTask, options: dict[str, Any], **preset: Any) -> GPO:
    """GPO of the preset's parts and the options, the later winning.

    An option is a field of `GPO` or of `Task`; `engine` names the engine.
    """
    task = find(task, options.pop("engine", None))
    if "max_steps" in preset and task.horizon < preset["max_steps"]:
        preset.pop("max_steps")
    given = preset | options
    loop = {f.name: given.pop(f.name) for f in fields(GPO) if f.name in given}
    task = replace(task, **{f.name: given.pop(f.name) for f in fields(Task) if f.name in given})
    if given:
        raise UserError(f"there is no option {sorted(given)[0]!r}: help(genepool.GPO) lists them")
    return GPO(task, **loop)


def _beside(task: AnyTask, options: dict[str, Any], **preset: Any) -> ESAC:
    """ESAC of the preset's parts, the paper's settings for the task, and the options, the later winning.

    An option is a field of `ESAC`, of `WinnersES` or of `Task`; `engine` names the engine.
    """
    task = find(task, options.pop("engine", None))
    table = settings(task, ESAC_TASKS)
    if preset["learner"] is None:
        table = {name: value for name, value in table.items() if name not in ("sac_episodes", "injected")}
    given = table | preset | options
    loop = {f.name: given.pop(f.name) for f in fields(ESAC) if f.name in given}
    task = replace(task, **{f.name: given.pop(f.name) for f in fields(Task) if f.name in given})
    if "evolver" not in options:
        own = {f.name: given.pop(f.name) for f in fields(WinnersES) if f.name in given}
        loop["evolver"] = replace(loop["evolver"], **own)
    if set(given) & set(options):
        raise UserError(
            f"there is no option {sorted(set(given) & set(options))[0]!r}: help(genepool.ESAC) and help(genepool.WinnersES) list them"
        )
    return ESAC(task, **loop)


def settings(task: Task, table: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What a paper's table gives for this task, by the name before its version and options."""
    return table.get(re.sub(r"(-v\d+)?(\?.*)?$", "", task.id), {})


def _assembled(task: AnyTask, options: dict[str, Any], table: dict[str, dict[str, Any]], **preset: Any) -> ERL:
    """ERL of the preset's parts, the paper's settings for the task, and the options, the later winning.

    An option is a field of `ERL`, of `Generational` or of `Task`; `engine` names the engine, `sigma` is the proximal
    mutation's magnitude.
    """
    task = find(task, options.pop("engine", None))
    given = settings(task, table) | preset | options
    if "sigma" in given and "mutation" not in options and isinstance(given["mutation"], Proximal):
        given["mutation"] = replace(given["mutation"], sigma=given["sigma"])
    elif "sigma" in options:
        raise UserError(
            "sigma belongs to the preset's own proximal mutation: give mutation=Proximal(sigma=...) instead"
        )
    given.pop("sigma", None)

    def fields_of(part: type) -> dict[str, Any]:
        return {f.name: given.pop(f.name) for f in fields(part) if f.name in given}

    task = replace(task, **fields_of(Task))
    loop = fields_of(ERL)
    if "evolver" not in loop:
        loop["evolver"] = Generational(**fields_of(Generational))
    if given:
        raise UserError(
            f"there is no option {sorted(given)[0]!r}: help(genepool.ERL) and help(genepool.Generational) list them"
        )
    return ERL(task, **loop)


def _taught(task: AnyTask, options: dict[str, Any], table: dict[str, dict[str, Any]], **preset: Any) -> TaughtES:
    """TaughtES of the preset's parts, the paper's settings for the task, and the options, the later winning.

    An option is a field of `TaughtES`, of its evolver or of `Task`; `engine` names the engine, `share` is the share of
    individuals that are taught, `learning_rate` that of actor and critic, `critic_hidden` the units of the critics.
    """
    task = find(task, options.pop("engine", None))
    given = settings(task, table) | preset | options
    for name, part, held in (
        ("share", "lessons", ("share",)),
        ("learning_rate", "learner", ("actor_rate", "critic_rate")),
        ("critic_hidden", "learner", ("critic_hidden",)),
    ):
        value = given.pop(name, None)
        if value is not None and part not in options and hasattr(given.get(part), held[0]):
            given[part] = replace(given[part], **dict.fromkeys(held, value))
        elif name in options:
            raise UserError(f"{name} belongs to the preset's own {part}: give it to the {part} instead")
    loop = {f.name: given.pop(f.name) for f in fields(TaughtES) if f.name in given}
    task = replace(task, **{f.name: given.pop(f.name) for f in fields(Task) if f.name in given})
    evolver = loop["evolver"]
    loop["evolver"] = replace(evolver, **{f.name: given.pop(f.name) for f in fields(evolver) if f.name in given})
    given.pop("scale", None)  # of a table, for an evolver that has none
    if given:
        raise UserError(
            f"there is no option {sorted(given)[0]!r}: help(genepool.TaughtES) and help(genepool.{type(evolver).__name__}) list them"
        )
    return TaughtES(task, **loop)
