"""Advantages: how much better an action was than what was to be expected (GAE, Schulman et al. 2016)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool.errors import UserError
from genepool.parts import part
from genepool.types import Outcome


class Batch(NamedTuple):
    """What a policy played in one iteration, row after row, several trajectories."""

    observation: Array  # [B, |S|]
    action: Array
    reward: Array
    next_observation: Array
    last: Array  # 1 in the last row of a trajectory
    goes_on: (
        Array  # how much the value of the next state counts: 0 where the task ended, 1 inside or where only we stopped
    )
    at_limit: Array  # 1 in the last row of a trajectory that the time limit ended


def batch_of(outcome: Outcome, horizon: int) -> Batch:
    """An outcome's rows, and how each of its trajectories ended."""
    rows, ends = outcome.transitions, np.cumsum(outcome.lengths) - 1
    last, at_limit = np.zeros(outcome.frames, np.float32), np.zeros(outcome.frames, np.float32)
    last[ends] = 1.0
    at_limit[ends] = (np.asarray(outcome.lengths) >= horizon) & (rows.terminated[ends] == 0.0)
    found = rows.observation, rows.action, rows.reward, rows.next_observation, last, 1.0 - rows.terminated, at_limit
    return Batch(*(np.asarray(column, np.float32) for column in found))


@part
class Advantages:
    """A_t = sum_k (gamma lambda)^k delta_t+k, delta_t = r_t + gamma V(s_t+1) - V(s_t), as far as the trajectory goes.

    With lambda 1 it is the discounted return less V(s_t), Monte-Carlo's. A trajectory that was cut short because the batch
    was full goes on with the value of its last state; one that reached the time limit does so if `bootstrap` says so.
    """

    discount: float = 0.99  # gamma: discount factor
    gae: float = 0.97  # lambda: 1 trusts what was earned, 0 the critic
    bootstrap: bool = True  # whether the value of the last state counts where the time limit ended an episode
    standardise: bool = True  # to mean 0 and std 1 over the batch

    def __post_init__(self):
        if not (0.0 <= self.discount <= 1.0 and 0.0 <= self.gae <= 1.0):
            raise UserError("discount and gae lie between 0 and 1")

    def __call__(self, batch: Batch, v_t: Array, v_tp1: Array) -> tuple[Array, Array]:
        """The advantage in every row, and the return by which the critic learns, A_t + V(s_t)."""
        worth = batch.goes_on if self.bootstrap else batch.goes_on * (1.0 - batch.at_limit)
        delta = batch.reward + self.discount * worth * v_tp1 - v_t
        decay = self.discount * self.gae * (1.0 - batch.last)

        def back(later: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            now = row[0] + row[1] * later
            return now, now

        advantage = jax.lax.scan(back, jnp.zeros(()), (delta, decay), reverse=True)[1]
        returns = advantage + v_t
        if self.standardise:
            advantage = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)
        return advantage, returns


def discounted(batch: Any, discount: float) -> Array:
    """Sum_k gamma^k r_t+k to the end of each row's trajectory."""
    back = lambda later, row: (row[0] + discount * (1.0 - row[1]) * later,) * 2
    return jax.lax.scan(back, jnp.zeros(()), (batch.reward, batch.last), reverse=True)[1]
