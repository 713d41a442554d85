"""What the papers set per task, by the name of the task before its version. An option is a dotted path."""

import re
from typing import Any

Settings = dict[str, Any]


def _erl(elite_fraction: float, trials: int, sync_period: int, sigma: float | None = None) -> Settings:
    """psi, xi, omega and, of proximal mutation, sigma."""
    own = {"evolver.elite_fraction": elite_fraction, "trials": trials, "sync_period": sync_period}
    return own if sigma is None else own | {"evolver.mutation.sigma": sigma}


# PDERL's Table 4
PDERL_TASKS = {
    "Swimmer": _erl(0.1, 1, 10, 0.1),
    "HalfCheetah": _erl(0.1, 1, 10, 0.1),
    "Hopper": _erl(0.2, 3, 1, 0.1),
    "Walker2d": _erl(0.2, 5, 1, 0.1),
    "Ant": _erl(0.2, 1, 1, 0.01),
    "Reacher": _erl(0.2, 3, 10),
}
# the same from ERL's code, which produced its paper's numbers
ERL_TASKS = {
    "Swimmer": _erl(0.1, 1, 10),
    "HalfCheetah": _erl(0.1, 1, 10),
    "Hopper": _erl(0.3, 5, 1),
    "Walker2d": _erl(0.2, 3, 10),
    "Ant": _erl(0.3, 1, 1),
    "Reacher": _erl(0.2, 5, 10),
}


def _aes(scale: float, share: float = 0.5) -> Settings:
    """r and f_b, and p_des."""
    return {"evolver.scale": scale, "lessons.share": share}


# AES-RL's code; Humanoid's networks and rate
AES_TASKS = {
    "HalfCheetah": _aes(2000.0),
    "Hopper": _aes(600.0),
    "Walker2d": _aes(800.0),
    "Ant": _aes(960.0),
    "Humanoid": _aes(960.0)
    | {"hidden": (256, 256), "learner.critic_hidden": (256, 256)}
    | {"learner.actor_rate": 3e-4, "learner.critic_rate": 3e-4},
    "Swimmer": _aes(48.0, 0.1),
}

# E, and the strategy's sigma and rate: ESAC's 6.1 and its tables of settings. k of Swimmer and the network for the
# cyclic MDP are the code's. With the paper's sigma all members act alike on the cyclic MDP, and nothing is learnt.
_CONTROL = {"evolver.sigma": 0.01, "evolver.rate": 0.01}  # of the DM Control tasks
ESAC_TASKS = {
    "CyclicMDP": {"evolver.sigma": 0.1, "hidden": (32, 32), "activation": "tanh"},
    "Ant": {"sac_episodes": 10, "evolver.rate": 1e-4},
    "Walker2d": {"sac_episodes": 10},
    "Hopper": {"sac_episodes": 10},
    "Humanoid": {"sac_episodes": 10},
    "Swimmer": {"sac_episodes": 1, "evolver.injected": 1},
    "CartpoleSwingup": _CONTROL,
    "WalkerWalk": _CONTROL,
    "WalkerRun": _CONTROL,
}
ESAC_TASKS |= {
    name: _CONTROL | {"sac_episodes": 1}
    for name in (
        *("HumanoidStand", "HumanoidWalk", "HumanoidRun", "CheetahRun", "FishUpright", "FishSwim"),
        *("AcrobotSwingup", "QuadrupedWalk", "QuadrupedRun"),
    )
}
ES_TASKS = {
    task: {name: value for name, value in own.items() if name not in ("sac_episodes", "evolver.injected")}
    for task, own in ESAC_TASKS.items()
}


def for_task(table: dict[str, Settings], id: str) -> Settings:
    """The settings of a table for this task."""
    return table.get(re.sub(r"(-v\d+)?(\?.*)?$", "", id), {})
