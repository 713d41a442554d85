"""PPO (Schulman et al. 2017) and A2C: gradient steps on what a policy and similar policies have just played (GPO, 3.2).

A member is a policy with its critic and optimisers. Policies share data as in GPO's equations 5 and 6: another policy's
sample is weighted by the ratio of its probabilities under one's own policy and under the other.
"""

from dataclasses import field
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from genepool.errors import UserError, check_at_least
from genepool.learning.returns import Advantages, Batch, discounted
from genepool.learning.value_function import Critic, FittedCritic, Orders, rows_by_step, rows_of_step
from genepool.networks.stochastic import Categorical, Normal, Scale, StochasticPolicy, new_scale
from genepool.optimiser import Adam, AdamState, adam_init
from genepool.parts import part


class SharedRows(NamedTuple):
    """A policy's rows as other policies learn from them."""

    observation: Array  # [B, |S|]
    action: Array
    advantage: Array  # by the critic of the policy that played them
    log_prob: Array  # under the policy that played them


class Member(eqx.Module):
    """A policy with its optimiser, its critic and the weight of its penalty."""

    policy: StochasticPolicy
    optimiser: AdamState
    critic: FittedCritic
    beta: Array  # the weight of the KL penalty
    reward_scale: Scale | None  # of discounted returns, if rewards are normalised


class Report(NamedTuple):
    """The figures of an update, for the record."""

    surrogate: Array
    kl: Array  # from the policy before the update
    entropy: Array
    critic_loss: Array  # on standardised returns, after the fit
    effective: Array  # the smallest effective share of another policy's samples
    max_ratio: Array  # the largest weight of another policy's sample


@part
class PPO:
    """Maximise sum_j mean_Dj [ pi_i(a|s) / pi_j(a|s) A ] - beta mean_Di KL(pi_old || pi_i), GPO's equations 3 and 5.

    beta doubles if the KL after an update is above 1.5 times its target, and halves if it is below two thirds of it
    (Schulman et al.). With the objective "clip" the ratio is clipped and there is no penalty.
    """

    objective: Literal["penalty", "clip"] = "penalty"  # the adaptive KL penalty, or min(rho A, clip(rho) A)
    epochs: int = 10  # passes over the batch
    minibatches: int = 1  # gradient steps in an epoch
    rate: float = 1e-3  # Adam's learning rate for the policy
    kl_target: float = 0.01  # the KL that an update should cause
    beta: float = 1.0  # beta_0: the penalty's weight at the beginning
    clip: float = 0.2  # epsilon, if the ratio is clipped
    entropy: float = 0.0  # weight of an entropy bonus
    max_norm: float | None = None  # longest gradient; a longer one is scaled down
    reward_scaling: bool = False  # divide rewards by the std of discounted returns
    advantages: Advantages = field(default_factory=Advantages)
    critic: Critic = field(default_factory=Critic)

    def __post_init__(self):
        check_at_least(1, self, "epochs", "minibatches")
        check_at_least(1, self.critic, "epochs", "minibatches")
        check_at_least(0, self, "beta", "entropy")
        for holder, name in ((self, "rate"), (self.critic, "rate"), (self, "kl_target"), (self, "clip")):
            if not getattr(holder, name) > 0:
                raise UserError(f"{name.replace('_', ' ')} is {getattr(holder, name)}: it must be above 0")
        if not self.critic.hidden or min(self.critic.hidden) < 1:
            raise UserError(
                f"the critic's hidden is {tuple(self.critic.hidden)}: give one layer or more of 1 unit or more"
            )

    @property
    def steps(self) -> int:
        """Gradient steps of the policy in an update."""
        return self.epochs * self.minibatches

    def init(self, key: Array, policy: StochasticPolicy) -> Member:
        """A member with this policy, a new critic and new optimisers."""
        reward_scale = new_scale(()) if self.reward_scaling else None
        critic = self.critic.init(key, policy.sizes[0])
        return Member(policy, adam_init(policy), critic, jnp.asarray(self.beta), reward_scale)

    def prepare(self, member: Member, batch: Batch) -> tuple[Member, SharedRows, Array]:
        """The member with its new reward scale, its rows to share, and the returns that its critic will fit."""
        return _prepare(self, member, batch)

    def update(
        self,
        key: Array,
        member: Member,
        slot: int,
        shared: SharedRows,
        returns: Array,
        shares_with: Array,
        sharing: Any,
    ) -> tuple[Member, Report]:
        """The member after an update on its own rows and on those of the policies that it shares with.

        `shared` is [m, B, ...], in which the member's own rows are in its slot; `shares_with` is [m].
        """
        k_policy, k_critic = jax.random.split(key)
        n = returns.shape[0]
        policy_orders = rows_by_step(k_policy, n, self.epochs, self.minibatches)
        critic_orders = rows_by_step(k_critic, n, self.critic.epochs, self.critic.minibatches)
        orders: list[Orders] = [policy_orders, critic_orders]
        return _update(self, sharing, orders, member, slot, shared, returns, shares_with)

    def gain(
        self, policy: StochasticPolicy, rows: SharedRows, max_ratio: float | None
    ) -> tuple[Array, Normal | Categorical]:
        """mean [ rho A ] over rows, which may come from any policy, and this policy's distributions in their states."""
        found = policy.distribution(rows.observation)
        ratio = jnp.exp(found.log_prob(rows.action) - rows.log_prob)
        if max_ratio is not None:
            # the weight is limited, and the gradient is scaled by the same factor instead of being cut off
            ratio = ratio * jax.lax.stop_gradient(jnp.minimum(1.0, max_ratio / ratio))
        gain = ratio * rows.advantage
        if self.objective == "clip":
            gain = jnp.minimum(gain, jnp.clip(ratio, 1.0 - self.clip, 1.0 + self.clip) * rows.advantage)
        return jnp.mean(gain), found

    def adapted_beta(self, beta: Array, kl: Array) -> Array:
        """beta after an update that caused this KL, within [1e-4, 1e4]."""
        beta = jnp.where(kl > 1.5 * self.kl_target, 2.0 * beta, jnp.where(kl < self.kl_target / 1.5, 0.5 * beta, beta))
        return jnp.clip(beta, 1e-4, 1e4)


@part
class A2C:
    """One step along sum_j mean_Dj [ grad pi_i(a|s) / pi_j(a|s) A ], GPO's equations 4 and 6.

    It is computed as the first step of a PPO without penalty, where rho is 1 for a policy's own rows.
    """

    rate: float = 1e-3  # Adam's learning rate for the policy
    entropy: float = 0.0  # weight of an entropy bonus
    max_norm: float | None = None  # longest gradient; a longer one is scaled down
    reward_scaling: bool = False  # divide rewards by the std of discounted returns
    advantages: Advantages = field(default_factory=Advantages)
    critic: Critic = field(default_factory=Critic)

    steps = 1

    def __post_init__(self):
        _ = self._as_ppo  # PPO refuses wrong values

    @property
    def _as_ppo(self) -> PPO:
        fields = ("rate", "entropy", "max_norm", "reward_scaling", "advantages", "critic")
        return PPO(epochs=1, beta=0.0, **{name: getattr(self, name) for name in fields})

    def init(self, key: Array, policy: StochasticPolicy) -> Member:
        """A member with this policy, a new critic and new optimisers."""
        return self._as_ppo.init(key, policy)

    def prepare(self, member: Member, batch: Batch) -> tuple[Member, SharedRows, Array]:
        """The member with its new reward scale, its rows to share, and the returns that its critic will fit."""
        return self._as_ppo.prepare(member, batch)

    def update(self, key: Array, member: Member, *rest: Any) -> tuple[Member, Report]:
        """The member after one step. The arguments are those of `PPO.update`."""
        updated, report = self._as_ppo.update(key, member, *rest)
        return eqx.tree_at(lambda m: m.beta, updated, member.beta), report


@partial(jax.jit, static_argnums=0)
def _prepare(mutation: PPO, member: Member, batch: Batch) -> tuple[Member, SharedRows, Array]:
    if member.reward_scale is not None:
        scale = member.reward_scale.updated(discounted(batch, mutation.advantages.discount))
        member = eqx.tree_at(lambda m: m.reward_scale, member, scale)
        batch = batch._replace(reward=batch.reward * jax.lax.rsqrt(scale.variance + 1e-8))
    v_t = member.critic(batch.observation)
    v_tp1 = member.critic(batch.next_observation)
    advantage, returns = mutation.advantages(batch, v_t, v_tp1)
    log_prob = member.policy.distribution(batch.observation).log_prob(batch.action)
    return member, SharedRows(batch.observation, batch.action, advantage, log_prob), returns


@partial(jax.jit, static_argnums=(0, 1))
def _update(
    mutation: PPO,
    sharing: Any,
    orders: list[Orders],
    member: Member,
    slot: Array,
    shared: SharedRows,
    returns: Array,
    shares_with: Array,
) -> tuple[Member, Report]:
    """`PPO.update` compiled. `orders` are the rows of each step of the policy and of the critic."""
    own = _rows_of(shared, slot)
    others = None
    weight = 1.0
    weights = jnp.ones(()), jnp.ones(())
    if sharing is not None:
        others = _others(shared, slot, shares_with)
        weight = 1.0 / (1 + others.count) if sharing.normalise else 1.0
        weights = _weights(member, others)
    before = member.policy.distribution(own.observation)
    max_ratio = None if sharing is None else sharing.max_ratio
    policy, optimiser = _policy_steps(mutation, orders[0], member, own, others, before, weight, max_ratio)
    after = policy.distribution(own.observation)
    kl = jnp.mean(before.kl(after))
    critic, critic_loss = mutation.critic.fit(orders[1], member.critic, own.observation, returns)
    if policy.scale is not None:  # last: the steps compare policies under the scale by which the rows were played
        policy = eqx.tree_at(lambda p: p.scale, policy, policy.scale.updated(own.observation))
    gain = mutation.gain(policy, own, None)[0]
    report = Report(gain, kl, jnp.mean(after.entropy()), critic_loss, *weights)
    return Member(policy, optimiser, critic, mutation.adapted_beta(member.beta, kl), member.reward_scale), report


def _policy_steps(
    mutation: PPO,
    orders: Orders,
    member: Member,
    own: SharedRows,
    others: "_Others | None",
    before: Normal | Categorical,
    weight: Array | float,
    max_ratio: float | None,
) -> tuple[StochasticPolicy, AdamState]:
    """The policy and its optimiser after all gradient steps. `before` are the distributions before the first."""

    def own_loss(policy: StochasticPolicy, rows: Array | slice) -> Array:
        gain, now = mutation.gain(policy, SharedRows(*(column[rows] for column in own)), None)
        loss = -weight * gain - mutation.entropy * jnp.mean(now.entropy())
        if mutation.objective == "penalty":
            loss = loss + member.beta * jnp.mean(before.take(rows).kl(now))
        return loss

    def other_loss(policy: StochasticPolicy, k: Array, rows: Array | slice) -> Array:
        assert others is not None
        other = SharedRows(*(column[rows] for column in others.rows(k)))
        return -weight * mutation.gain(policy, other, max_ratio)[0]

    adam = Adam(mutation.rate, mutation.max_norm)

    def step(k: Array, carry: tuple[StochasticPolicy, AdamState]) -> tuple[StochasticPolicy, AdamState]:
        policy, state = carry
        rows = rows_of_step(orders, k)
        gradient = jax.grad(own_loss)(policy, rows)
        if others is not None:

            def add(other: Array, total: StochasticPolicy) -> StochasticPolicy:
                return jax.tree.map(jnp.add, total, jax.grad(other_loss)(policy, other, rows))

            gradient = jax.lax.fori_loop(0, others.count, add, gradient)
        return adam.step(policy, gradient, state)

    return jax.lax.fori_loop(0, mutation.steps, step, (member.policy, member.optimiser))


class _Others(NamedTuple):
    """The rows of the other policies that a policy shares with."""

    shared: SharedRows  # [m, B, ...], of all policies
    slots: Array  # [m]: those of the other policies come first
    count: Array  # how many they are

    def rows(self, k: Array) -> SharedRows:
        return _rows_of(self.shared, self.slots[k])


def _others(shared: SharedRows, slot: Array, shares_with: Array) -> _Others:
    slots = jnp.argsort(~(shares_with & (jnp.arange(shares_with.size) != slot)), stable=True)
    return _Others(shared, slots, jnp.sum(shares_with) - shares_with[slot])


def _rows_of(shared: SharedRows, slot: Array) -> SharedRows:
    return SharedRows(*(jax.lax.dynamic_index_in_dim(column, slot, keepdims=False) for column in shared))


def _weights(member: Member, others: _Others) -> tuple[Array, Array]:
    """The least effective share of another's rows before the update, (sum w)^2 / (n sum w^2), and the largest w."""

    def extremes(k: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        rows = others.rows(k)
        w = jnp.exp(member.policy.distribution(rows.observation).log_prob(rows.action) - rows.log_prob)
        share = jnp.mean(w) ** 2 / jnp.mean(w**2)
        return jnp.minimum(found[0], share), jnp.maximum(found[1], jnp.max(w))

    return jax.lax.fori_loop(0, others.count, extremes, (jnp.ones(()), jnp.ones(())))
