"""Advantages: how much better an action was than expected (GAE, Schulman et al. 2016)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool.errors import UserError
from genepool.parts import part
from genepool.types import Column, Outcome


class Batch(NamedTuple):
    """What a policy played in one iteration: the rows of several trajectories, one after the other."""

    observation: Column  # [B, |S|]
    action: Column
    reward: Column
    next_observation: Column
    last: Column  # 1 in the last row of a trajectory
    goes_on: Column  # 0 if the task ended the episode in this row, else 1
    at_limit: Column  # 1 in the last row of a trajectory that the time limit ended


def batch_of(outcome: Outcome, horizon: int) -> Batch:
    """An outcome's rows, and how each of its trajectories ended."""
    rows = outcome.transitions
    ends = np.cumsum(outcome.lengths) - 1
    last = np.zeros(outcome.frames, np.float32)
    last[ends] = 1.0
    at_limit = np.zeros(outcome.frames, np.float32)
    at_limit[ends] = (np.asarray(outcome.lengths) >= horizon) & (rows.terminated[ends] == 0.0)
    columns = rows.observation, rows.action, rows.reward, rows.next_observation, last, 1.0 - rows.terminated, at_limit
    return Batch(*(np.asarray(column, np.float32) for column in columns))


@part
class Advantages:
    """A_t = sum_k (gamma lambda)^k delta_t+k to the end of the trajectory; delta_t = r_t + gamma V(s_t+1) - V(s_t).

    With lambda 1 it is the discounted return less V(s_t), the Monte Carlo estimate. The value of the last state counts
    if a full batch cut the trajectory short, and with `bootstrap` also if the time limit ended it.
    """

    discount: float = 0.99  # gamma: discount factor
    gae: float = 0.97  # lambda: 1 trusts the rewards, 0 the critic
    bootstrap: bool = True  # whether the value of the last state counts if the time limit ended the episode
    standardise: bool = True  # to mean 0 and std 1 over the batch

    def __post_init__(self):
        for name in ("discount", "gae"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UserError(f"{name} is {getattr(self, name)}: give a number from 0 to 1")

    def __call__(self, batch: Batch, v_t: Array, v_tp1: Array) -> tuple[Array, Array]:
        """The advantage of every row, and the return that the critic fits, A_t + V(s_t)."""
        bootstrap_weight = batch.goes_on if self.bootstrap else batch.goes_on * (1.0 - batch.at_limit)
        delta = batch.reward + self.discount * bootstrap_weight * v_tp1 - v_t
        decay = self.discount * self.gae * (1.0 - batch.last)

        def back(later: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            delta_t, decay_t = row
            now = delta_t + decay_t * later
            return now, now

        advantage = jax.lax.scan(back, jnp.zeros(()), (delta, decay), reverse=True)[1]
        returns = advantage + v_t
        if self.standardise:
            advantage = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)
        return advantage, returns


def discounted(batch: Batch, discount: float) -> Array:
    """Sum_k gamma^k r_t+k to the end of each row's trajectory."""

    def back(later: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, last = row
        now = reward + discount * (1.0 - last) * later
        return now, now

    return jax.lax.scan(back, jnp.zeros(()), (batch.reward, batch.last), reverse=True)[1]
