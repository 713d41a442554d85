"""PPO (Schulman et al. 2017) and A2C: gradient steps on what a policy, and those near it, have just played (GPO, 3.2).

A member is a policy with its critic and optimisers. Policies share data as GPO's equations 5 and 6 have it: what another
played counts by how much likelier it is under one's own policy.
"""

from dataclasses import field
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool.errors import UserError
from genepool.learning.returns import Advantages, Batch, discounted
from genepool.networks import Activation, VNetwork
from genepool.networks.stochastic import Scale, StochasticPolicy, new_scale
from genepool.optimiser import Adam, AdamState, adam_init
from genepool.parts import part
from genepool.trees import host_random


class Shared(NamedTuple):
    """What a policy gives to all: its rows, how good they were, and how likely they were to itself."""

    observation: Array  # [B, |S|]
    action: Array
    advantage: Array  # by the critic of who collected them
    log_prob: Array


class Fitted(eqx.Module):
    """A critic, and the scales of its inputs and outputs on the batch that it was last fitted to."""

    network: VNetwork
    optimiser: AdamState
    inputs: tuple[Array, Array]  # mean and std
    outputs: tuple[Array, Array]

    def __call__(self, s: Array) -> Array:
        """V(s)."""
        return self.outputs[0] + self.outputs[1] * self.network((s - self.inputs[0]) / self.inputs[1])


class Member(eqx.Module):
    """A policy, and all that it learns with."""

    policy: StochasticPolicy
    optimiser: AdamState
    critic: Fitted
    beta: Array  # the weight of the KL penalty
    reward_scale: Scale | None  # of discounted returns, where rewards are normalised


class Report(NamedTuple):
    """What became of an update, for the record."""

    surrogate: Array
    kl: Array  # from the policy before the update
    entropy: Array
    critic_loss: Array  # on standardised returns, after the fit
    effective: Array  # the smallest effective share of another's samples
    max_ratio: Array  # the largest weight of another's sample


@part
class Critic:
    """V(s), fitted to the returns of each batch: inputs and outputs standardised on that batch (rllab's baseline)."""

    hidden: tuple[int, ...] = (32, 32)  # units of the hidden layers
    activation: Activation = "tanh"  # of the hidden layers
    rate: float = 1e-3  # Adam's learning rate
    epochs: int = 10  # times that the batch is gone through
    minibatches: int = 32  # gradient steps in an epoch

    def init(self, key: Array, observation_size: int) -> Fitted:
        """A critic that knows nothing."""
        network = VNetwork(key, observation_size, self.hidden, self.activation, "xavier")
        plain = lambda *size: (jnp.zeros(size), jnp.ones(size))
        return Fitted(network, adam_init(network), plain(observation_size), plain())

    def fit(self, rows: Array | None, fitted: Fitted, s: Array, returns: Array) -> tuple[Fitted, Array]:
        """The critic after its steps on these returns, each on its own `rows` of them, [steps, ...], and its loss."""
        scales = [(jnp.mean(x, axis=0), jnp.std(x, axis=0) + 1e-8) for x in (s, returns)]
        (x, y), adam = [(v - mean) / std for v, (mean, std) in zip((s, returns), scales, strict=True)], Adam(self.rate)

        def loss(network: VNetwork, rows: Array | slice) -> Array:
            return jnp.mean((network(x[rows]) - y[rows]) ** 2)

        def step(k: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            network, state = carry
            return adam.step(network, jax.grad(loss)(network, _all_or(rows, k)), state)

        network, state = jax.lax.fori_loop(0, self.epochs * self.minibatches, step, (fitted.network, fitted.optimiser))
        return Fitted(network, state, *scales), loss(network, slice(None))


def rows_by_step(key: Array, n: int, epochs: int, minibatches: int) -> np.ndarray | None:
    """The rows of each step, [steps, ...]: parts of a shuffle of its epoch's own; none where a step takes all.

    NumPy shuffles: to sort random numbers, as XLA would, takes a third as long as all that is learnt.
    """
    if minibatches == 1:
        return None
    orders = host_random(key).permuted(np.tile(np.arange(n, dtype=np.int32), (epochs, 1)), axis=1)
    return orders[:, : n // minibatches * minibatches].reshape(epochs * minibatches, -1)


def _all_or(rows: Array | None, step: Array) -> Array | slice:
    return slice(None) if rows is None else jnp.asarray(rows)[step]


@part
class PPO:
    """Maximise sum_j mean_Dj [ pi_i(a|s) / pi_j(a|s) A ] - beta mean_Di KL(pi_old || pi_i), GPO's equations 3 and 5.

    beta doubles where the KL after an update is above 1.5 times its target, and halves where it is below two thirds of it
    (Schulman et al.); or the ratio is clipped, and there is no penalty.
    """

    objective: Literal["penalty", "clip"] = "penalty"  # the adaptive KL penalty, or min(rho A, clip(rho) A)
    epochs: int = 10  # times that the batch is gone through
    minibatches: int = 1  # gradient steps in an epoch
    rate: float = 1e-3  # Adam's learning rate for the policy
    kl_target: float = 0.01  # the KL that an update should make
    beta: float = 1.0  # beta_0: the penalty's weight at the beginning
    clip: float = 0.2  # epsilon, where the ratio is clipped
    entropy: float = 0.0  # weight of an entropy bonus
    max_norm: float | None = None  # gradients longer than this are shortened
    reward_scaling: bool = False  # divide rewards by the std of discounted returns
    advantages: Advantages = field(default_factory=Advantages)
    critic: Critic = field(default_factory=Critic)

    def __post_init__(self):
        if min(self.epochs, self.minibatches, self.critic.epochs, self.critic.minibatches) < 1:
            raise UserError("epochs and minibatches are 1 or more")
        if min(self.rate, self.critic.rate, self.kl_target, self.clip) <= 0 or min(self.beta, self.entropy) < 0:
            raise UserError("rates, kl target and clip are above 0, beta and entropy 0 or more")
        if not self.critic.hidden or min(self.critic.hidden) < 1:
            raise UserError("the critic's hidden needs the units of one layer or more, each 1 or more")

    @property
    def steps(self) -> int:
        """Gradient steps of the policy in an update."""
        return self.epochs * self.minibatches

    def init(self, key: Array, policy: StochasticPolicy) -> Member:
        """A member with this policy, which has learnt nothing."""
        reward_scale = new_scale(()) if self.reward_scaling else None
        critic = self.critic.init(key, policy.sizes[0])
        return Member(policy, adam_init(policy), critic, jnp.asarray(self.beta), reward_scale)

    def judge(self, member: Member, batch: Batch) -> tuple[Member, Shared, Array]:
        """What the member gives to all of its batch, and the returns that its critic is to learn."""
        return _judged(self, member, batch)

    def improve(
        self, key: Array, member: Member, place: int, shared: Shared, returns: Array, near: Array, sharing: Any
    ) -> tuple[Member, Report]:
        """The member after an update on its own rows, [place], and those of the policies that are `near` it."""
        n, keys = returns.shape[0], jax.random.split(key)
        orders = [
            rows_by_step(k, n, part.epochs, part.minibatches) for k, part in zip(keys, (self, self.critic), strict=True)
        ]
        return _improved(self, sharing, orders, member, place, shared, returns, near)

    def gain(self, policy: StochasticPolicy, rows: Shared, max_ratio: float | None) -> tuple[Array, Any]:
        """mean [ rho A ] over rows of whomever, and the distributions it was found by."""
        found = policy.distribution(rows.observation)
        ratio = jnp.exp(found.log_prob(rows.action) - rows.log_prob)
        if max_ratio is not None:
            ratio = ratio * jax.lax.stop_gradient(jnp.minimum(1.0, max_ratio / ratio))  # it counts less, but it counts
        gain = ratio * rows.advantage
        if self.objective == "clip":
            gain = jnp.minimum(gain, jnp.clip(ratio, 1.0 - self.clip, 1.0 + self.clip) * rows.advantage)
        return jnp.mean(gain), found

    def adapted(self, beta: Array, kl: Array) -> Array:
        """beta after an update that made this KL, within [1e-4, 1e4]."""
        beta = jnp.where(kl > 1.5 * self.kl_target, 2.0 * beta, jnp.where(kl < self.kl_target / 1.5, 0.5 * beta, beta))
        return jnp.clip(beta, 1e-4, 1e4)


@part
class A2C:
    """One step along sum_j mean_Dj [ grad pi_i(a|s) / pi_j(a|s) A ], GPO's equations 4 and 6.

    That is the first step of a PPO without penalty, and so it is made: where nobody shares, rho is 1 there.
    """

    rate: float = 1e-3  # Adam's learning rate for the policy
    entropy: float = 0.0  # weight of an entropy bonus
    max_norm: float | None = None  # gradients longer than this are shortened
    reward_scaling: bool = False  # divide rewards by the std of discounted returns
    advantages: Advantages = field(default_factory=Advantages)
    critic: Critic = field(default_factory=Critic)

    steps = 1

    def __post_init__(self):
        _ = self._as_ppo  # it refuses what cannot be

    @property
    def _as_ppo(self) -> PPO:
        shared = {"rate", "entropy", "max_norm", "reward_scaling", "advantages", "critic"}
        return PPO(epochs=1, beta=0.0, **{name: getattr(self, name) for name in shared})

    def init(self, key: Array, policy: StochasticPolicy) -> Member:
        """A member with this policy, which has learnt nothing."""
        return self._as_ppo.init(key, policy)

    def judge(self, member: Member, batch: Batch) -> tuple[Member, Shared, Array]:
        """What the member gives to all of its batch, and the returns that its critic is to learn."""
        return self._as_ppo.judge(member, batch)

    def improve(self, key: Array, member: Member, *rest: Any) -> tuple[Member, Report]:
        """The member after one step."""
        improved, report = self._as_ppo.improve(key, member, *rest)
        return eqx.tree_at(lambda m: m.beta, improved, member.beta), report


@partial(jax.jit, static_argnums=0)
def _judged(mutation: PPO, member: Member, batch: Batch) -> tuple[Member, Shared, Array]:
    if member.reward_scale is not None:
        scale = member.reward_scale.seen(discounted(batch, mutation.advantages.discount))
        member = eqx.tree_at(lambda m: m.reward_scale, member, scale)
        batch = batch._replace(reward=batch.reward * jax.lax.rsqrt(scale.variance + 1e-8))
    values = member.critic(batch.observation), member.critic(batch.next_observation)
    advantage, returns = mutation.advantages(batch, *values)
    log_prob = member.policy.distribution(batch.observation).log_prob(batch.action)
    return member, Shared(batch.observation, batch.action, advantage, log_prob), returns


@partial(jax.jit, static_argnums=(0, 1))
def _improved(
    mutation: PPO,
    sharing: Any,
    orders: list[Array | None],
    member: Member,
    place: Array,
    shared: Shared,
    returns: Array,
    near: Array,
) -> tuple[Member, Report]:
    """`shared` is [m, B, ...]; `near` is [m], whose rows count; `orders` are the rows of the policy's and the critic's steps."""
    of = lambda j: Shared(*(jax.lax.dynamic_index_in_dim(column, j, keepdims=False) for column in shared))
    own, weight, weights = of(place), 1.0, (jnp.ones(()), jnp.ones(()))
    if sharing is not None:
        others = jnp.argsort(~(near & (jnp.arange(near.size) != place)), stable=True)  # those that are near come first
        count = jnp.sum(near) - near[place]
        weight = 1.0 / (1 + count) if sharing.normalise else 1.0
        weights = _weights(member, of, others, count)
    before = member.policy.distribution(own.observation)
    adam = Adam(mutation.rate, mutation.max_norm)

    def own_loss(policy: StochasticPolicy, rows: Any) -> Array:
        gain, now = mutation.gain(policy, Shared(*(column[rows] for column in own)), None)
        loss = -weight * gain - mutation.entropy * jnp.mean(now.entropy())
        if mutation.objective == "penalty":
            past = type(before)(*(part[rows] if part.ndim > 1 else part for part in before))
            loss = loss + member.beta * jnp.mean(past.kl(now))
        return loss

    def other_loss(policy: StochasticPolicy, j: Array, rows: Any) -> Array:
        return -weight * mutation.gain(policy, Shared(*(column[rows] for column in of(j))), sharing.max_ratio)[0]

    def step(k: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        policy, state = carry
        rows = _all_or(orders[0], k)
        gradient = jax.grad(own_loss)(policy, rows)
        if sharing is not None:
            add = lambda at, so_far: jax.tree.map(jnp.add, so_far, jax.grad(other_loss)(policy, others[at], rows))
            gradient = jax.lax.fori_loop(0, count, add, gradient)
        return adam.step(policy, gradient, state)

    policy, state = jax.lax.fori_loop(0, mutation.steps, step, (member.policy, member.optimiser))
    after = policy.distribution(own.observation)
    kl = jnp.mean(before.kl(after))
    critic, critic_loss = mutation.critic.fit(orders[1], member.critic, own.observation, returns)
    if policy.scale is not None:  # last, for all that was played is judged by the policy that played it
        policy = eqx.tree_at(lambda p: p.scale, policy, policy.scale.seen(own.observation))
    gain = mutation.gain(policy, own, None)[0]
    report = Report(gain, kl, jnp.mean(after.entropy()), critic_loss, *weights)
    return Member(policy, state, critic, mutation.adapted(member.beta, kl), member.reward_scale), report


def _weights(member: Member, of: Any, others: Array, count: Array) -> tuple[Array, Array]:
    """Of others' rows at the beginning of an update: the least effective share, (sum w)^2 / (n sum w^2), and the largest w."""

    def look(at: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        rows = of(others[at])
        w = jnp.exp(member.policy.distribution(rows.observation).log_prob(rows.action) - rows.log_prob)
        share = jnp.mean(w) ** 2 / jnp.mean(w**2)
        return jnp.minimum(found[0], share), jnp.maximum(found[1], jnp.max(w))

    return jax.lax.fori_loop(0, count, look, (jnp.ones(()), jnp.ones(())))
