"""SAC (Haarnoja et al. 2018): alone, with a population (ERL, ESAC), or as a teacher (CEM-RL, AES-RL).

The actor is a distribution, and alpha times its entropy counts as reward. SAC has two forms. In the first, which is in
ESAC's Algorithm 1, the critics bootstrap from the slow copy of a network for V. In the second they bootstrap from slow
copies of themselves. The caller chooses the policy whose value they learn, as with TD3.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool import buffer
from genepool.errors import UserError
from genepool.learning.offpolicy import (
    BLOCK,
    bellman,
    check_settings,
    descend,
    follow,
    in_blocks,
    lesson_in_blocks,
    no_losses,
    noisy_minibatches,
    random_player,
    report_losses,
)
from genepool.networks import Activation, Actor, Initial, QNetwork, SquashedGaussian, VNetwork
from genepool.optimiser import Adam, AdamState, adam_init
from genepool.parts import part
from genepool.types import Transitions

Critics = tuple[QNetwork, QNetwork]


class Valuation(eqx.Module):
    """The networks and optimisers that a critic step changes."""

    critics: Critics
    value: VNetwork | None  # V, in the first form
    target: Critics | VNetwork  # the slow copy: of V, or of the critics
    log_temperature: Array
    optimisers: tuple[AdamState, AdamState, AdamState]  # of critics, V and temperature


class SACState(eqx.Module):
    """The actor, the networks that judge it, and their optimisers."""

    policy: SquashedGaussian
    optimiser: AdamState  # the policy's
    valuation: Valuation
    losses: np.ndarray  # of critics and actor, and the entropy: means over the last call
    updates: np.ndarray  # gradient steps of the critics so far


Learning = tuple[SquashedGaussian, AdamState, Valuation]  # what `update` changes
Taught = tuple[SquashedGaussian, AdamState]  # what a lesson changes


class FrozenCritics(NamedTuple):
    """The function that a lesson climbs: two critics and the temperature."""

    critics: Critics
    temperature: Array


@part
class SAC:
    """The critics learn y = r + gamma (1 - d) V'(s') with V(s) = E [min_j Q_j(s, a) - alpha log pi(a|s)].

    The actor descends E [alpha log pi - min_j Q_j].
    Differs from ESAC's Algorithm 1 in the order of a step: the critics move before V, so that V and the actor can use
    the same values Q_j(s, a).
    """

    critics: Literal["twin", "value"] = "twin"  # V'(s') is from slow copies of both critics, or of a network for V
    batch_size: int = 256  # transitions per gradient step
    actor_rate: float = 3e-4  # Adam's learning rate for the actor
    critic_rate: float = 3e-4  # Adam's learning rate for the critics and V
    discount: float = 0.99  # gamma: discount factor
    tau: float = 0.005  # tau: share by which the targets follow in each step
    temperature: float = 0.2  # alpha (ESAC: lambda): weight of the entropy; if it is automatic, the first one
    automatic: bool = False  # alpha is tuned towards the target entropy
    target_entropy: float | None = None  # the entropy that an automatic alpha reaches; none: -|A|
    temperature_rate: float = 3e-4  # Adam's learning rate for log alpha
    warmup: int = 256  # no learning until the replay holds more than this
    random_frames: int = 10_000  # exploring episodes are random until the replay holds this
    critic_hidden: tuple[int, ...] = (256, 256)  # units of the hidden layers of critics and V
    critic_activation: Activation = "relu"  # of the hidden layers of critics and V
    initial: Initial = "xavier"  # how the weights of critics, V and the actor's spread are drawn

    def __post_init__(self):
        check_settings(self)
        least = "above 0 if it is automatic" if self.automatic else "0 or more"
        if not self.temperature >= 0.0 or (self.automatic and self.temperature == 0.0):
            raise UserError(f"temperature is {self.temperature}: it must be {least}")
        if not self.critic_hidden:
            raise UserError(f"critic_hidden is {self.critic_hidden}: the critics need the units of one layer or more")

    def init(self, key: Array, actor: Actor | SquashedGaussian) -> SACState:
        """A learner that begins with this policy, or with a distribution around this actor."""
        k_spread, k_value, k_1, k_2 = jax.random.split(key, 4)
        policy = actor if isinstance(actor, SquashedGaussian) else SquashedGaussian(k_spread, actor, self.initial)
        observation = actor.sizes[0]
        action = actor.sizes[-1]
        shape = (self.critic_hidden, self.critic_activation, self.initial)
        critics = QNetwork(k_1, observation, action, *shape), QNetwork(k_2, observation, action, *shape)
        value = VNetwork(k_value, observation, *shape) if self.critics == "value" else None
        log_temperature = jnp.log(jnp.asarray(self.temperature, jnp.float32))
        optimisers = adam_init(critics), adam_init(value), adam_init(log_temperature)
        valuation = Valuation(critics, value, value or critics, log_temperature, optimisers)
        return SACState(policy, adam_init(policy), valuation, no_losses(3), np.zeros((), np.int64))

    def individual(self, key: Array, actor: Actor) -> SquashedGaussian:
        """What evolves: a distribution around the actor, both of its heads."""
        return SquashedGaussian(jax.random.fold_in(key, 1), actor)

    def actor(self, state: SACState) -> Actor:
        """The policy learnt so far, without noise."""
        return state.policy.mean

    def critic(self, state: SACState) -> Callable[[Array, Array], Array]:
        """Q_1(s, a)."""
        return state.valuation.critics[0]

    def teacher(self, state: SACState) -> FrozenCritics:
        """The critics and the temperature."""
        return FrozenCritics(state.valuation.critics, jnp.exp(state.valuation.log_temperature))

    def explore(
        self, key: Array, state: SACState, last: Array, steps: int, frames_so_far: int
    ) -> tuple[Actor | SquashedGaussian, np.ndarray]:
        """The policy, and a standard normal draw for each action. At first, actions are uniform over their range."""
        if frames_so_far < self.random_frames:
            return random_player(key, state.policy.mean, steps)
        return state.policy, np.asarray(jax.random.normal(key, (steps, *last.shape)))

    def update(self, key: Array, state: SACState, replay: buffer.Buffer, steps: int) -> SACState:
        """Take `steps` steps of critics, temperature and actor."""
        learning = state.policy, state.optimiser, state.valuation
        learning, losses = in_blocks(partial(_update, self), key, learning, replay, steps, losses=3)
        return SACState(*learning, losses, state.updates + steps)

    def update_critic(
        self, key: Array, state: SACState, policy: SquashedGaussian, replay: buffer.Buffer, steps: int
    ) -> SACState:
        """Take `steps` steps of critics and temperature towards the value of the given policy."""
        work = partial(_update_critic, self, policy)
        valuation, losses = in_blocks(work, key, state.valuation, replay, steps, losses=3)
        return SACState(state.policy, state.optimiser, valuation, losses, state.updates + steps)

    def improve(
        self, key: Array, actor: SquashedGaussian, teacher: FrozenCritics, states: Array, state_count: Array, steps: int
    ) -> SquashedGaussian:
        """The policy after `steps` steps against frozen critics and temperature, with fresh Adam."""

        def work(k_block: Array, learning: Taught, count: int) -> Taught:
            return _improve(self, k_block, learning, teacher, states, state_count, count)

        return lesson_in_blocks(work, key, actor, steps)

    def report(self, state: SACState) -> dict[str, Any]:
        """Losses, entropy, temperature and gradient steps, for the record."""
        losses = report_losses(state.losses, ("critic_loss", "actor_loss", "entropy"))
        return losses | {"temperature": float(self.teacher(state).temperature), "updates": int(state.updates)}

    def targets(self, now: Valuation, draw: tuple[Array, Array] | None, batch: Transitions) -> Array:
        """y = r + gamma (1 - d) V'(s'). Without V, V'(s') = min_j Q'_j(s', a') - alpha log pi(a'|s') of the draw."""
        s = batch.next_observation
        if isinstance(now.target, VNetwork):
            return bellman(self.discount, batch, now.target(s))
        assert draw is not None
        value = soft_value(now.target, jnp.exp(now.log_temperature), s, *draw)
        return bellman(self.discount, batch, value)

    def critic_loss(self, critics: Critics, batch: Transitions, y: Array) -> Array:
        """mean (Q_1 - y)^2 + mean (Q_2 - y)^2; half of it in the form with V."""
        errors = (critic(batch.observation, batch.action) - y for critic in critics)
        total = cast(Array, sum(jnp.mean(error**2) for error in errors))  # the type of `sum` allows for none
        return (0.5 if self.critics == "value" else 1.0) * total

    def value_loss(self, value: VNetwork, states: Array, v: Array) -> Array:
        """1/2 mean (V - v)^2."""
        return 0.5 * jnp.mean((value(states) - v) ** 2)

    def temperature_loss(self, log_temperature: Array, log_pi: Array, action_size: int) -> Array:
        """-log alpha mean (log pi + H)."""
        wanted = -action_size if self.target_entropy is None else self.target_entropy
        return -log_temperature * jnp.mean(log_pi + wanted)

    def actor_loss(self, policy: SquashedGaussian, teacher: FrozenCritics, states: Array, noise: Array) -> Array:
        """mean [alpha log pi(a|s) - min_j Q_j(s, a)]."""
        actions, log_pi = policy.sample(states, noise)
        return jnp.mean(teacher.temperature * log_pi - tangent(teacher.critics, states, actions))


def soft_value(critics: Critics, temperature: Array, s: Array, a: Array, log_pi: Array) -> Array:
    """min_j Q_j(s, a) - alpha log pi(a|s)."""
    return jnp.minimum(*(critic(s, a) for critic in critics)) - temperature * log_pi


def tangent(critics: Critics, s: Array, a: Array) -> Array:
    """min_j Q_j(s, a) as its tangent at a, which has the same value and the same slope in a.

    Value and slope of each critic are computed before the smaller is chosen. If the slopes waited for the choice, the
    critics could not be computed on two cores at a time.
    """
    here = jax.lax.stop_gradient(a)
    (q_1, slope_1), (q_2, slope_2) = (_value_and_slope(partial(critic, s), here) for critic in critics)
    slope = jnp.where((q_1 < q_2)[..., None], slope_1, slope_2)
    return jnp.minimum(q_1, q_2) + jnp.sum(slope * (a - here), axis=-1)


def _value_and_slope(q: Callable[[Array], Array], a: Array) -> tuple[Array, Array]:
    value, back = jax.vjp(q, a)
    return value, back(jnp.ones_like(value))[0]


def _critic_step(
    learner: SAC, policy: SquashedGaussian, now: Valuation, batch: Transitions, noise: Array
) -> tuple[Valuation, Array, Array]:
    """The valuation after a step, its loss, and the entropy of the policy's actions."""
    adam = Adam(learner.critic_rate)
    states = batch.observation
    critic_optimiser, value_optimiser, temperature_optimiser = now.optimisers
    draw = policy.sample(batch.next_observation, noise[1]) if learner.critics == "twin" else None
    y = learner.targets(now, draw, batch)
    critics, critic_optimiser, loss = descend(adam, learner.critic_loss, now.critics, critic_optimiser, batch, y)
    value = now.value
    log_temperature = now.log_temperature
    if draw is None:
        assert value is not None
        draw = policy.sample(states, noise[0])
        v = soft_value(critics, jnp.exp(log_temperature), states, *draw)
        value, value_optimiser, value_loss = descend(adam, learner.value_loss, value, value_optimiser, states, v)
        loss = loss + value_loss
    if learner.automatic:
        gradient = jax.grad(learner.temperature_loss)(log_temperature, draw[1], batch.action.shape[-1])
        rate = Adam(learner.temperature_rate)
        log_temperature, temperature_optimiser = rate.step(log_temperature, gradient, temperature_optimiser)
    target = follow(learner.tau, now.target, critics if value is None else value)
    optimisers = critic_optimiser, value_optimiser, temperature_optimiser
    return Valuation(critics, value, target, log_temperature, optimisers), loss, -jnp.mean(draw[1])


@partial(jax.jit, static_argnums=0)
def _update(
    learner: SAC, key: Array, learning: Learning, replay: buffer.Buffer, steps: Array
) -> tuple[Learning, Array]:
    drawn = noisy_minibatches(key, replay, learner.batch_size, 2)  # the noise of actions in s, and in s'

    def step(i: Array, carry: tuple[Learning, Array]) -> tuple[Learning, Array]:
        (policy, optimiser, valuation), losses = carry
        batch, noise = drawn(i)
        valuation, critic_loss, entropy = _critic_step(learner, policy, valuation, batch, noise)
        teacher = FrozenCritics(valuation.critics, jnp.exp(valuation.log_temperature))
        adam = Adam(learner.actor_rate)
        policy, optimiser, loss = descend(
            adam, learner.actor_loss, policy, optimiser, teacher, batch.observation, noise[0]
        )
        return (policy, optimiser, valuation), losses + jnp.stack([critic_loss, loss, entropy])

    return jax.lax.fori_loop(0, steps, step, (learning, jnp.zeros(3)))


@partial(jax.jit, static_argnums=0)
def _update_critic(
    learner: SAC, policy: SquashedGaussian, key: Array, valuation: Valuation, replay: buffer.Buffer, steps: Array
) -> tuple[Valuation, Array]:
    drawn = noisy_minibatches(key, replay, learner.batch_size, 2)  # the noise of actions in s, and in s'

    def step(i: Array, carry: tuple[Valuation, Array]) -> tuple[Valuation, Array]:
        valuation, losses = carry
        valuation, loss, entropy = _critic_step(learner, policy, valuation, *drawn(i))
        return valuation, losses + jnp.stack([loss, jnp.nan, entropy])

    return jax.lax.fori_loop(0, steps, step, (valuation, jnp.zeros(3)))


@partial(jax.jit, static_argnums=0)
def _improve(
    learner: SAC, key: Array, learning: Taught, teacher: FrozenCritics, states: Array, state_count: Array, steps: Array
) -> Taught:
    k_rows, k_noise = jax.random.split(key)
    rows = jax.random.randint(k_rows, (BLOCK, learner.batch_size), 0, state_count)
    noise = jax.random.normal(k_noise, (BLOCK, learner.batch_size, learning[0].sizes[-1]))

    def step(i: Array, learning: Taught) -> Taught:
        policy, optimiser = learning
        gradient = jax.grad(learner.actor_loss)(policy, teacher, states[rows[i]], noise[i])
        return Adam(learner.actor_rate).step(policy, gradient, optimiser)

    return jax.lax.fori_loop(0, steps, step, learning)
