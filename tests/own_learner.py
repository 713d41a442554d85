"""A learner of one's own, outside the package: TD3 with one critic and no delay. It gives lessons, too."""

from collections import namedtuple
from functools import partial
from operator import attrgetter

import jax
import jax.numpy as jnp
import numpy as np

from genepool.learning import offpolicy
from genepool.networks import QNetwork
from genepool.optimiser import Adam, adam_init
from genepool.parts import part

State = namedtuple("State", "actor critic slow_actor slow_critic actor_adam critic_adam losses updates")


@part
class OneCritic:
    """The critic follows y = r + gamma (1 - d) Q'(s', clip(pi'(s') + clip(noise))); the actor climbs the critic."""

    batch_size: int = 100  # transitions per gradient step
    rate: float = 1e-3  # Adam's learning rate
    discount: float = 0.99  # gamma
    tau: float = 0.005  # share by which the targets follow in each step
    warmup: int = 1_000  # no learning, and random actions, until the replay holds more than this
    critic_hidden: tuple[int, ...] = (256, 256)  # units of the critic's hidden layers
    __post_init__ = offpolicy.check_settings
    actor = attrgetter("actor")  # learner.actor(state)
    critic = teacher = attrgetter("critic")

    def init(self, key, actor):
        pair = actor, QNetwork(key, actor.sizes[0], actor.sizes[-1], self.critic_hidden)
        return State(*pair, *pair, *map(adam_init, pair), offpolicy.no_losses(1), np.zeros((), np.int64))

    def individual(self, key, actor):
        return actor

    def explore(self, key, state, last, steps, frames_so_far):
        noise = 0.1 * np.asarray(jax.random.normal(key, (steps, *last.shape)))
        return (state.actor, noise) if frames_so_far > self.warmup else offpolicy.random_player(key, state.actor, steps)

    def update(self, key, state, replay, steps, policy=None):
        networks, losses = offpolicy.in_blocks(partial(self._steps, policy), key, state[:6], replay, steps, 1)
        return State(*networks, losses, state.updates + steps)

    def update_critic(self, key, state, policy, replay, steps):
        return self.update(key, state, replay, steps, policy)

    def improve(self, key, actor, teacher, states, state_count, steps):
        return offpolicy.improve(self, Adam(self.rate), key, actor, teacher, states, state_count, steps)

    def report(self, state):
        return offpolicy.report_losses(state.losses, ["critic_loss"]) | {"updates": int(state.updates)}

    def critic_loss(self, critic, policy, slow_critic, batch, noise):
        a = jnp.clip(policy(batch.next_observation) + jnp.clip(0.2 * noise, -0.5, 0.5), -1.0, 1.0)
        y = batch.reward + self.discount * (1.0 - batch.terminated) * slow_critic(batch.next_observation, a)
        return jnp.mean((critic(batch.observation, batch.action) - y) ** 2)

    def actor_loss(self, actor, critic, states):
        return -jnp.mean(critic(states, actor(states)))

    @partial(jax.jit, static_argnums=0)
    def _steps(self, policy, key, networks, replay, steps):
        drawn = offpolicy.noisy_minibatches(key, replay, self.batch_size)

        def step(i, carry):
            (actor, critic, slow_actor, slow_critic, *adams), losses = carry
            batch, noise = drawn(i)
            loss, slope = jax.value_and_grad(self.critic_loss)(critic, policy or slow_actor, slow_critic, batch, noise)
            critic, adams[1] = Adam(self.rate).step(critic, slope, adams[1])
            if policy is None:  # else the critic learns the value of the policy, and the actor stays
                slope = jax.grad(self.actor_loss)(actor, critic, batch.observation)
                actor, adams[0] = Adam(self.rate).step(actor, slope, adams[0])
                slow_actor = offpolicy.follow(self.tau, slow_actor, actor)
            return (actor, critic, slow_actor, offpolicy.follow(self.tau, slow_critic, critic), *adams), losses + loss

        return jax.lax.fori_loop(0, steps, step, (networks, jnp.zeros(1)))
