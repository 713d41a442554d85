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


def settings(task: Task, table: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What a paper's table gives for this task, by the name before its version."""
    return table.get(re.sub(r"-v\d+$", "", task.id), {})


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
