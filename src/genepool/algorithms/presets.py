"""The named systems: each a function that chooses parts, with the settings that its paper gives per task."""

import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from genepool.algorithms.erl import ERL
from genepool.environments.task import Task, find
from genepool.errors import UserError
from genepool.evolution.crossover import Distillation, RowCopy
from genepool.evolution.genetic import Generational
from genepool.evolution.mutation import Gaussian, Proximal
from genepool.learning.ddpg import DDPG

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

AnyTask = str | Callable[[], Any] | Task


def erl(task: AnyTask, **options: Any) -> ERL:
    """ERL (Khadka and Tumer 2018): row-copy crossover, Gaussian mutation, DDPG."""
    return _family(task, ERL_TASKS, {"crossover": RowCopy(), "mutation": Gaussian()} | options)


def perl(task: AnyTask, sigma: float | None = None, **options: Any) -> ERL:
    """PERL (Bodnar et al. 2020): ERL with proximal mutation."""
    return _family(task, PDERL_TASKS, {"crossover": RowCopy(), "mutation": Proximal(), "sigma": sigma} | options)


def derl(task: AnyTask, **options: Any) -> ERL:
    """DERL (Bodnar et al. 2020): ERL with distillation crossover."""
    return _family(task, PDERL_TASKS, {"crossover": Distillation(), "mutation": Gaussian()} | options)


def pderl(task: AnyTask, sigma: float | None = None, **options: Any) -> ERL:
    """PDERL (Bodnar et al. 2020): ERL with distillation crossover and proximal mutation."""
    return _family(task, PDERL_TASKS, {"crossover": Distillation(), "mutation": Proximal(), "sigma": sigma} | options)


def ddpg(task: AnyTask, **options: Any) -> ERL:
    """DDPG (Lillicrap et al. 2015) as ERL runs it: the same learner and loop, no population."""
    return ERL(find(task, options.pop("engine", None)), **({"evolver": None, "test_every": 10} | options))


def settings(task: Task, table: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What a paper's table gives for this task, by the name before its version."""
    return table.get(re.split(r"-v\d+$", task.id)[0], {})


def _family(task: AnyTask, table: dict[str, dict[str, Any]], options: dict[str, Any]) -> ERL:
    """ERL with options spread over the parts that have them. What is given wins over the paper's table."""
    task = find(task, options.pop("engine", None))
    if options.get("sigma") is None:
        options.pop("sigma", None)
    given = settings(task, table) | options
    sigma = given.pop("sigma", None)
    if sigma is not None and isinstance(given["mutation"], Proximal):
        given["mutation"] = replace(given["mutation"], sigma=sigma)
    of_task = {f.name for f in fields(Task)} - {"id", "make", "engine"}
    of_evolver = {f.name for f in fields(Generational)}
    of_loop = {f.name for f in fields(ERL)}
    unknown = given.keys() - of_task - of_evolver - of_loop
    if unknown:
        raise UserError(f"there is no option {sorted(unknown)[0]!r}: help(genepool.ERL) and help(genepool.Generational) list them")
    pick = lambda names: {name: value for name, value in given.items() if name in names}
    given.setdefault("learner", DDPG())
    return ERL(replace(task, **pick(of_task)), **({"evolver": Generational(**pick(of_evolver))} | pick(of_loop)))
