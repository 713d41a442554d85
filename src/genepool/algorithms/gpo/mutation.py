"""MUTATE: policy gradients of a population whose similar policies share data (GPO, 3.2; Algorithm 1, line 3)."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool import trees
from genepool.algorithms.gpo.genetics import divergence
from genepool.algorithms.gpo.sharing import Sharing
from genepool.algorithms.gpo.state import GPOLearner
from genepool.cores import map_on_cores
from genepool.learning.ppo import A2C, PPO, Member, Report, SharedRows
from genepool.learning.returns import Batch


def share_anew(learner: GPOLearner, sharing: Sharing | None, played: Batch) -> GPOLearner:
    """Decide, before the first update of a round, whose rows each policy learns from in it."""
    if sharing is None:
        return learner
    kl = divergence(learner.members.policy, played.observation)
    return replace(learner, shares_with=sharing.shares_with(kl))


def mutate(key: Array, mutation: PPO | A2C, sharing: Sharing | None, learner: GPOLearner, played: Batch) -> GPOLearner:
    """The population after an update of each policy on what all of them played.

    Each update is a compiled call on a core of its own: one program for all of them is slower on several cores
    (`benchmarks/parts/gpo.py`, `stacked`).
    """
    m = len(played.reward)
    members = [trees.take(learner.members, slot) for slot in range(m)]

    def prepare(slot: int) -> tuple[Member, SharedRows, Array]:
        return mutation.prepare(members[slot], Batch(*(column[slot] for column in played)))

    prepared = map_on_cores(prepare, range(m))
    columns = zip(*(rows for _, rows, _ in prepared), strict=True)
    shared = SharedRows(*(jnp.stack(column) for column in columns))

    def update(slot: int) -> tuple[Member, Report]:
        member, _, returns = prepared[slot]
        k_slot = jax.random.fold_in(key, slot)
        return mutation.update(k_slot, member, slot, shared, returns, learner.shares_with[slot], sharing)

    updated = map_on_cores(update, range(m))
    return replace(
        learner,
        members=trees.stack([member for member, _ in updated]),
        reports=np.array([report for _, report in updated], np.float32),
    )
