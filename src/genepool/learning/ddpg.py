"""DDPG (Lillicrap et al. 2015) with ERL's and PDERL's settings: one deterministic actor, one critic, slow targets.

It can also give lessons, as TD3 does in CEM-RL. Its critic then learns the value of the policies that it is given.
"""

from collections.abc import Callable
from dataclasses import field, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool import buffer
from genepool.errors import UserError
from genepool.learning.exploration import OrnsteinUhlenbeck
from genepool.learning.offpolicy import (
    bellman,
    check_settings,
    critic_steps,
    descend,
    follow,
    improve,
    in_blocks,
    minibatches,
    no_losses,
    random_player,
    report_losses,
)
from genepool.networks import Activation, Actor, BranchedCritic, QNetwork, shrink_output
from genepool.optimiser import Adam, AdamState, adam_init
from genepool.parts import part
from genepool.types import Transitions
from genepool.xla import EIGEN

Critic = BranchedCritic | QNetwork
Networks = tuple[Actor, Critic, Actor, Critic, AdamState, AdamState]  # online, targets, optimisers
CriticNetworks = tuple[Critic, Critic, AdamState]  # online, target, optimiser


class DDPGState(eqx.Module):
    """Networks, their slow targets and their optimisers."""

    actor: Actor
    critic: Critic
    target_actor: Actor
    target_critic: Critic
    actor_optimiser: AdamState
    critic_optimiser: AdamState
    losses: np.ndarray  # of critic and actor, means over the last call
    updates: np.ndarray  # gradient steps of the critic so far


@part
class DDPG:
    """The critic learns y = r + gamma (1 - d) Q'(s', mu'(s')). The actor climbs the critic. The targets follow both."""

    batch_size: int = 128  # B: transitions per gradient step
    actor_rate: float = 5e-5  # Adam's learning rate for the actor
    critic_rate: float = 5e-4  # Adam's learning rate for the critic
    discount: float = 0.99  # gamma: discount factor
    tau: float = 0.001  # tau: share by which the targets follow in each step
    gradient_clip: float = 10.0  # largest global norm of each gradient
    warmup: int = 640  # no learning until the replay holds more than this
    random_frames: int = 0  # exploring episodes are random until the replay holds this
    noise: OrnsteinUhlenbeck = field(default_factory=OrnsteinUhlenbeck)  # of the exploring episodes
    critic_hidden: tuple[int, ...] = ()  # units of the hidden layers of a plain critic, as in TD3; none: ERL's critic
    critic_activation: Activation = "relu"  # of the hidden layers of a plain critic

    def __post_init__(self):
        check_settings(self)
        if not self.gradient_clip > 0:
            raise UserError(f"gradient_clip is {self.gradient_clip}: the learner needs a gradient clip above 0")

    def init(self, key: Array, actor: Actor) -> DDPGState:
        """A learner that begins with this actor. Its output layer is scaled by 0.1, as in ERL."""
        sizes = actor.sizes[0], actor.sizes[-1]
        actor = shrink_output(actor)
        hidden = (self.critic_hidden, self.critic_activation)
        critic = shrink_output(QNetwork(key, *sizes, *hidden) if self.critic_hidden else BranchedCritic(key, *sizes))
        optimisers = adam_init(actor), adam_init(critic)
        return DDPGState(actor, critic, actor, critic, *optimisers, no_losses(), np.zeros((), np.int64))

    def individual(self, key: Array, actor: Actor) -> Actor:
        """What evolves: the actor."""
        return actor

    def actor(self, state: DDPGState) -> Actor:
        """The policy learnt so far."""
        return state.actor

    def critic(self, state: DDPGState) -> Callable[[Array, Array], Array]:
        """Q(s, a), the online critic."""
        return state.critic

    teacher = critic

    def explore(
        self, key: Array, state: DDPGState, last: Array, steps: int, frames_so_far: int
    ) -> tuple[Actor, np.ndarray]:
        """The actor, and noise on its actions that continues from the row `last`. At first, random actions."""
        if frames_so_far < self.random_frames:
            return random_player(key, state.actor, steps)
        return state.actor, np.asarray(self.noise.draw(key, last, steps))

    def update(self, key: Array, state: DDPGState, replay: buffer.Buffer, steps: int) -> DDPGState:
        """Take `steps` gradient steps of critic and actor. Their targets follow every step."""
        networks: Networks = (
            state.actor,
            state.critic,
            state.target_actor,
            state.target_critic,
            state.actor_optimiser,
            state.critic_optimiser,
        )
        networks, losses = in_blocks(partial(_update, self), key, networks, replay, steps)
        return DDPGState(*networks, losses, state.updates + steps)

    def update_critic(
        self, key: Array, state: DDPGState, policy: Actor, replay: buffer.Buffer, steps: int
    ) -> DDPGState:
        """Take `steps` steps of the critic towards the value of the given policy. Its target follows every step."""
        learning: CriticNetworks = (state.critic, state.target_critic, state.critic_optimiser)
        learning, losses = in_blocks(partial(_update_critic, self, policy), key, learning, replay, steps)
        critic, target_critic, optimiser = learning
        return replace(
            state,
            critic=critic,
            target_critic=target_critic,
            critic_optimiser=optimiser,
            losses=losses,
            updates=state.updates + steps,
        )

    def improve(
        self, key: Array, actor: Actor, teacher: Critic, states: Array, state_count: Array, steps: int
    ) -> Actor:
        """The actor after `steps` steps up the frozen critic, with fresh Adam."""
        adam = Adam(self.actor_rate, self.gradient_clip)
        return improve(self, adam, key, actor, teacher, states, state_count, steps)

    def report(self, state: DDPGState) -> dict[str, Any]:
        """Losses and gradient steps, for the record."""
        return report_losses(state.losses) | {"updates": int(state.updates)}

    def critic_loss(self, critic: Critic, batch: Transitions, y: Array) -> Array:
        """mean (Q(s, a) - y)^2."""
        return jnp.mean((critic(batch.observation, batch.action) - y) ** 2)

    def targets(self, policy: Actor, target_critic: Critic, batch: Transitions) -> Array:
        """y = r + gamma (1 - d) Q'(s', mu'(s')), where mu' is the slow actor or the policy that is given."""
        s = batch.next_observation
        return bellman(self.discount, batch, target_critic(s, policy(s)))

    def actor_loss(self, actor: Actor, critic: Critic, states: Array) -> Array:
        """-mean Q(s, mu(s))."""
        return -jnp.mean(critic(states, actor(states)))


def _critic_step(
    learner: DDPG, policy: Actor, target_critic: Critic, critic: Critic, optimiser: AdamState, batch: Transitions
) -> tuple[Critic, AdamState, Array]:
    y = learner.targets(policy, target_critic, batch)
    adam = Adam(learner.critic_rate, learner.gradient_clip)
    return descend(adam, learner.critic_loss, critic, optimiser, batch, y)


@partial(jax.jit, static_argnums=0, compiler_options=EIGEN)
def _update(
    learner: DDPG, key: Array, networks: Networks, replay: buffer.Buffer, steps: Array
) -> tuple[Networks, Array]:
    drawn = minibatches(key, replay, learner.batch_size)
    actor_adam = Adam(learner.actor_rate, learner.gradient_clip)

    def step(i: Array, carry: tuple[Networks, Array]) -> tuple[Networks, Array]:
        (actor, critic, target_actor, target_critic, actor_state, critic_state), losses = carry
        batch = drawn(i)
        critic, critic_state, critic_loss = _critic_step(
            learner, target_actor, target_critic, critic, critic_state, batch
        )
        actor, actor_state, actor_loss = descend(
            actor_adam, learner.actor_loss, actor, actor_state, critic, batch.observation
        )
        target_actor = follow(learner.tau, target_actor, actor)
        target_critic = follow(learner.tau, target_critic, critic)
        networks = (actor, critic, target_actor, target_critic, actor_state, critic_state)
        return networks, losses + jnp.stack([critic_loss, actor_loss])

    return jax.lax.fori_loop(0, steps, step, (networks, jnp.zeros(2)))


@partial(jax.jit, static_argnums=0, compiler_options=EIGEN)
def _update_critic(
    learner: DDPG, policy: Actor, key: Array, learning: CriticNetworks, replay: buffer.Buffer, steps: Array
) -> tuple[CriticNetworks, Array]:
    drawn = minibatches(key, replay, learner.batch_size)
    return critic_steps(partial(_critic_step, learner, policy), learner.tau, drawn, learning, steps)
