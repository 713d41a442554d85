"""TD3 (Fujimoto et al. 2018): alone, or as a teacher.

It is the teacher in CEM-RL (Pourchot and Sigaud 2019) and AES-RL (Lee et al. 2020).

The target of both critics is the smaller value of their slow copies, at actions with a little noise. The caller chooses
the policy whose value they learn. Alone it is a slow copy of the actor; in CEM-RL, the individual that takes the next
lesson; in AES-RL, the mean of the population.
"""

from collections.abc import Callable
from dataclasses import field, replace
from functools import partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool import buffer
from genepool.errors import UserError
from genepool.learning.exploration import GaussianNoise
from genepool.learning.offpolicy import (
    bellman,
    check_settings,
    critic_steps,
    descend,
    follow,
    improve,
    in_blocks,
    no_losses,
    noisy_minibatches,
    random_player,
    report_losses,
)
from genepool.networks import Activation, Actor, QNetwork
from genepool.optimiser import Adam, AdamState, adam_init
from genepool.parts import part
from genepool.types import Transitions
from genepool.xla import EIGEN

Critics = tuple[QNetwork, QNetwork]
Networks = tuple[Actor, Critics, Actor, Critics, AdamState, AdamState]  # online, targets, optimisers
CriticNetworks = tuple[Critics, Critics, AdamState]  # online, targets, optimiser


class TD3State(eqx.Module):
    """Networks, their slow targets and their optimisers."""

    actor: Actor
    critics: Critics
    target_actor: Actor
    target_critics: Critics
    actor_optimiser: AdamState
    critic_optimiser: AdamState
    losses: np.ndarray  # of critics and actor, means over the last call
    updates: np.ndarray  # gradient steps of the critics so far


@part
class TD3:
    """y = r + gamma (1 - d) min_j Q'_j(s', clip(pi'(s') + clip(noise))); the actor climbs Q_1."""

    batch_size: int = 100  # B: transitions per gradient step
    actor_rate: float = 1e-3  # Adam's learning rate for the actor
    critic_rate: float = 1e-3  # Adam's learning rate for the critics
    discount: float = 0.99  # gamma: discount factor
    tau: float = 0.005  # tau: share by which the targets follow in each step
    target_noise: float = 0.2  # sigma_p: std of the noise on the target action, as a share of half the action range
    noise_clip: float = 0.5  # c: largest noise on the target action
    policy_delay: int = 2  # critic steps per step of the actor and the targets, if it learns alone
    warmup: int = 10_000  # no learning until the replay holds more than this; alone, it acts at random until then
    noise: GaussianNoise = field(default_factory=GaussianNoise)  # of the exploring episodes
    critic_hidden: tuple[int, ...] = (400, 300)  # units of the critics' hidden layers
    critic_activation: Activation = "leaky_relu"  # of the critics' hidden layers

    def __post_init__(self):
        check_settings(self)
        if not self.critic_hidden:
            raise UserError(f"critic_hidden is {self.critic_hidden}: the critics need the units of one layer or more")

    def init(self, key: Array, actor: Actor) -> TD3State:
        """A learner that begins with this actor."""
        sizes = actor.sizes[0], actor.sizes[-1], self.critic_hidden, self.critic_activation
        k_1, k_2 = jax.random.split(key)
        critics = QNetwork(k_1, *sizes), QNetwork(k_2, *sizes)
        optimisers = adam_init(actor), adam_init(critics)
        return TD3State(actor, critics, actor, critics, *optimisers, no_losses(), np.zeros((), np.int64))

    def individual(self, key: Array, actor: Actor) -> Actor:
        """What evolves: the actor."""
        return actor

    def actor(self, state: TD3State) -> Actor:
        """The policy learnt so far."""
        return state.actor

    def critic(self, state: TD3State) -> Callable[[Array, Array], Array]:
        """Q_1(s, a): the critic that actors climb."""
        return state.critics[0]

    teacher = critic

    def explore(
        self, key: Array, state: TD3State, last: Array, steps: int, frames_so_far: int
    ) -> tuple[Actor, np.ndarray]:
        """The actor, and noise on its actions. During the warm-up, actions are uniform over their range."""
        if frames_so_far < self.warmup:
            return random_player(key, state.actor, steps)
        return state.actor, np.asarray(self.noise.draw(key, last, steps))

    def update(self, key: Array, state: TD3State, replay: buffer.Buffer, steps: int) -> TD3State:
        """Take `steps` steps of the critics. After every `policy_delay` of them, move the actor and the targets."""
        networks = (
            state.actor,
            state.critics,
            state.target_actor,
            state.target_critics,
            state.actor_optimiser,
            state.critic_optimiser,
        )
        networks, losses = in_blocks(partial(_update, self), key, networks, replay, steps)
        return TD3State(*networks, losses, state.updates + steps)

    def update_critic(self, key: Array, state: TD3State, policy: Actor, replay: buffer.Buffer, steps: int) -> TD3State:
        """Take `steps` steps of the critics towards the value of the given policy. Their targets follow every step."""
        learning = (state.critics, state.target_critics, state.critic_optimiser)
        learning, losses = in_blocks(partial(_update_critic, self, policy), key, learning, replay, steps)
        critics, target_critics, optimiser = learning
        return replace(
            state,
            critics=critics,
            target_critics=target_critics,
            critic_optimiser=optimiser,
            losses=losses,
            updates=state.updates + steps,
        )

    def improve(
        self, key: Array, actor: Actor, teacher: QNetwork, states: Array, state_count: Array, steps: int
    ) -> Actor:
        """The actor after `steps` steps up the frozen critic, with fresh Adam."""
        return improve(self, Adam(self.actor_rate), key, actor, teacher, states, state_count, steps)

    def report(self, state: TD3State) -> dict[str, Any]:
        """Losses and gradient steps, for the record."""
        return report_losses(state.losses) | {"updates": int(state.updates)}

    def targets(self, noise: Array, policy: Actor, target_critics: Critics, batch: Transitions) -> Array:
        """y = r + gamma (1 - d) min_j Q'_j(s', clip(pi'(s') + clip(sigma_p noise, -c, c), -1, 1))."""
        s = batch.next_observation
        smoothing = jnp.clip(self.target_noise * noise, -self.noise_clip, self.noise_clip)
        a = jnp.clip(policy(s) + smoothing, -1.0, 1.0)
        smaller = jnp.minimum(*(critic(s, a) for critic in target_critics))
        return bellman(self.discount, batch, smaller)

    def critic_loss(self, critics: Critics, batch: Transitions, y: Array) -> Array:
        """mean (Q_1 - y)^2 + mean (Q_2 - y)^2."""
        errors = (jnp.mean((critic(batch.observation, batch.action) - y) ** 2) for critic in critics)
        return cast(Array, sum(errors))  # the type of `sum` allows for none

    def actor_loss(self, actor: Actor, critic: QNetwork, states: Array) -> Array:
        """-mean Q_1(s, pi(s))."""
        return -jnp.mean(critic(states, actor(states)))


def _critic_step(
    learner: TD3,
    policy: Actor,
    target_critics: Critics,
    critics: Critics,
    optimiser: AdamState,
    drawn: tuple[Transitions, Array],
) -> tuple[Critics, AdamState, Array]:
    batch, noise = drawn
    y = learner.targets(noise, policy, target_critics, batch)
    return descend(Adam(learner.critic_rate), learner.critic_loss, critics, optimiser, batch, y)


@partial(jax.jit, static_argnums=0, compiler_options=EIGEN)
def _update(
    learner: TD3, key: Array, networks: Networks, replay: buffer.Buffer, steps: Array
) -> tuple[Networks, Array]:
    drawn = noisy_minibatches(key, replay, learner.batch_size)
    delay = learner.policy_delay

    def critic_step(i: Array, carry: tuple[Networks, Array]) -> tuple[Networks, Array]:
        (actor, critics, target_actor, target_critics, actor_state, critic_state), losses = carry
        critics, critic_state, loss = _critic_step(
            learner, target_actor, target_critics, critics, critic_state, drawn(i)
        )
        networks = (actor, critics, target_actor, target_critics, actor_state, critic_state)
        return networks, losses + jnp.stack([loss, 0.0])

    # `policy_delay` steps of the critics, then one of the actor and the targets
    def critics_then_actor(group: Array, carry: tuple[Networks, Array]) -> tuple[Networks, Array]:
        for j in range(delay):
            carry = critic_step(group * delay + j, carry)
        (actor, critics, target_actor, target_critics, actor_state, critic_state), losses = carry
        states = drawn(group * delay + delay - 1)[0].observation
        adam = Adam(learner.actor_rate)
        actor, actor_state, loss = descend(adam, learner.actor_loss, actor, actor_state, critics[0], states)
        target_actor = follow(learner.tau, target_actor, actor)
        target_critics = follow(learner.tau, target_critics, critics)
        networks = (actor, critics, target_actor, target_critics, actor_state, critic_state)
        # `in_blocks` divides by the critics' steps; the actor's are fewer by the factor `delay`
        return networks, losses + jnp.stack([0.0, delay * loss])

    carry = jax.lax.fori_loop(0, steps // delay, critics_then_actor, (networks, jnp.zeros(2)))
    return jax.lax.fori_loop(steps // delay * delay, steps, critic_step, carry)  # fewer than `policy_delay` are left


@partial(jax.jit, static_argnums=0, compiler_options=EIGEN)
def _update_critic(
    learner: TD3, policy: Actor, key: Array, learning: CriticNetworks, replay: buffer.Buffer, steps: Array
) -> tuple[CriticNetworks, Array]:
    drawn = noisy_minibatches(key, replay, learner.batch_size)
    return critic_steps(partial(_critic_step, learner, policy), learner.tau, drawn, learning, steps)
