"""DDPG (Lillicrap et al. 2015) with ERL's and PDERL's settings: one deterministic actor, one critic, slow targets."""

from collections.abc import Callable
from dataclasses import dataclass, field
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
from genepool.learning.td3 import random_player
from genepool.machine import EIGEN
from genepool.networks import Activation, Actor, Critic, QNetwork, shrink_output
from genepool.optimiser import Adam, adam_init
from genepool.types import Transitions

BLOCK = 1_000  # gradient steps between two moments at which a signal is heard


class DDPGState(eqx.Module):
    """Networks, their slow targets and their optimisers."""

    actor: Actor
    critic: Critic | QNetwork
    target_actor: Actor
    target_critic: Critic | QNetwork
    actor_optimiser: Any
    critic_optimiser: Any
    losses: np.ndarray  # of critic and actor, means over the last call of `update`
    updates: np.ndarray  # gradient steps so far


@dataclass(frozen=True)
class DDPG:
    """y = r + gamma (1 - d) Q'(s', mu'(s')); the critic follows y, the actor climbs the critic, the targets follow both."""

    batch_size: int = 128  # B: transitions per gradient step
    actor_rate: float = 5e-5  # Adam's learning rate for the actor
    critic_rate: float = 5e-4  # Adam's learning rate for the critic
    discount: float = 0.99  # gamma: discount factor
    tau: float = 0.001  # tau: how far the targets follow in each step
    gradient_clip: float = 10.0  # largest global norm of either gradient
    warmup: int = 640  # no learning until the replay holds more than this
    random_frames: int = 0  # exploring episodes are random until the replay holds this
    noise: OrnsteinUhlenbeck = field(default_factory=OrnsteinUhlenbeck)  # of the exploring episodes
    critic_hidden: tuple[int, ...] = ()  # units of the hidden layers of a plain critic, as TD3 has; none: ERL's critic
    critic_activation: Activation = "relu"  # of the hidden layers of a plain critic

    def __post_init__(self):
        if self.batch_size < 1 or self.warmup < 0 or self.random_frames < 0 or self.gradient_clip <= 0:
            raise UserError(
                "the learner needs a batch of 1 or more, a warm-up and random frames of 0 or more, a gradient clip above 0"
            )
        if any(units < 1 for units in self.critic_hidden):
            raise UserError("critic hidden needs layers of 1 unit or more")
        if not (0.0 <= self.discount <= 1.0 and 0.0 <= self.tau <= 1.0):
            raise UserError("the learner's discount and tau lie between 0 and 1")

    def init(self, key: Array, actor: Actor) -> DDPGState:
        """A learner that begins with this actor, its output layer scaled by 0.1 as in ERL."""
        actor, sizes = shrink_output(actor), (actor.sizes[0], actor.sizes[-1])
        plain = (self.critic_hidden, self.critic_activation)
        critic = shrink_output(QNetwork(key, *sizes, *plain) if self.critic_hidden else Critic(key, *sizes))
        optimisers = [adam_init(network) for network in (actor, critic)]
        return DDPGState(
            actor, critic, actor, critic, *optimisers, np.full(2, np.nan, np.float32), np.zeros((), np.int64)
        )

    def actor(self, state: DDPGState) -> Actor:
        """The policy learnt so far."""
        return state.actor

    def explore(self, key: Array, state: DDPGState, last: Array, steps: int, seen: int) -> tuple[Actor, np.ndarray]:
        """Who plays an exploring episode, and the noise on its actions, which follows the row `last`."""
        if seen < self.random_frames:
            return random_player(key, state.actor, steps)
        return state.actor, np.asarray(self.noise.draw(key, last, steps))

    def critic(self, state: DDPGState) -> Callable[[Array, Array], Array]:
        """Q(s, a), the online critic."""
        return state.critic

    def update(self, key: Array, state: DDPGState, replay: buffer.Buffer, steps: int) -> DDPGState:
        """Take `steps` gradient steps on minibatches of the replay, in compiled blocks."""
        networks = (
            state.actor,
            state.critic,
            state.target_actor,
            state.target_critic,
            state.actor_optimiser,
            state.critic_optimiser,
        )
        total = np.zeros(2)
        for begin in range(0, steps, BLOCK):
            count = min(BLOCK, steps - begin)
            networks, losses = _update(self, jax.random.fold_in(key, begin), networks, replay, count)
            total += np.asarray(losses)
        return DDPGState(*networks, (total / max(1, steps)).astype(np.float32), state.updates + steps)

    def report(self, state: DDPGState) -> dict[str, Any]:
        """Losses and gradient steps, for the record."""
        losses = [float(loss) if np.isfinite(loss) else None for loss in state.losses]
        return {"critic_loss": losses[0], "actor_loss": losses[1], "updates": int(state.updates)}

    def critic_loss(self, critic: Critic | QNetwork, batch: Transitions, y: Array) -> Array:
        """mean (Q(s, a) - y)^2."""
        return jnp.mean((critic(batch.observation, batch.action) - y) ** 2)

    def targets(self, target_actor: Actor, target_critic: Critic | QNetwork, batch: Transitions) -> Array:
        """y = r + gamma (1 - d) Q'(s', mu'(s'))."""
        s = batch.next_observation
        return batch.reward + self.discount * (1.0 - batch.terminated) * target_critic(s, target_actor(s))

    def actor_loss(self, actor: Actor, critic: Critic | QNetwork, states: Array) -> Array:
        """-mean Q(s, mu(s))."""
        return -jnp.mean(critic(states, actor(states)))


@partial(jax.jit, static_argnums=0, compiler_options=EIGEN)
def _update(part: DDPG, key: Array, networks: tuple, replay: buffer.Buffer, steps: Array) -> tuple[tuple, Array]:
    places = buffer.sample(key, replay, (BLOCK, part.batch_size))
    actor_adam, critic_adam = Adam(part.actor_rate, part.gradient_clip), Adam(part.critic_rate, part.gradient_clip)
    follow = lambda slow, fast: slow + part.tau * (fast - slow)

    def step(i, carry):
        (actor, critic, target_actor, target_critic, actor_state, critic_state), losses = carry
        batch = jax.tree.map(lambda leaf: leaf[places[i]], replay.data)
        y = part.targets(target_actor, target_critic, batch)
        critic_loss, gradient = jax.value_and_grad(part.critic_loss)(critic, batch, y)
        critic, critic_state = critic_adam.step(critic, gradient, critic_state)
        actor_loss, gradient = jax.value_and_grad(part.actor_loss)(actor, critic, batch.observation)
        actor, actor_state = actor_adam.step(actor, gradient, actor_state)
        target_actor = jax.tree.map(follow, target_actor, actor)
        target_critic = jax.tree.map(follow, target_critic, critic)
        networks = (actor, critic, target_actor, target_critic, actor_state, critic_state)
        return networks, losses + jnp.stack([critic_loss, actor_loss])

    return jax.lax.fori_loop(0, steps, step, (networks, jnp.zeros(2)))
