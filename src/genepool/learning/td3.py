"""TD3 (Fujimoto et al. 2018): alone, and as the teacher of CEM-RL (Pourchot and Sigaud 2019) and AES-RL (Lee et al. 2020).

Two critics learn towards the smaller of their slow copies, at actions with a little noise. What the target policy is
depends on who asks: alone it is a slow copy of the actor, in CEM-RL the individual that is about to be taught, in
AES-RL the population's mean.
"""

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
from genepool.learning.exploration import GaussianNoise
from genepool.machine import EIGEN
from genepool.networks import Activation, Actor, QNetwork
from genepool.optimiser import Adam, adam_init
from genepool.types import Transitions

BLOCK = 1_000  # gradient steps between two moments at which a signal is heard

Critics = tuple[QNetwork, QNetwork]


class TD3State(eqx.Module):
    """Networks, their slow targets and their optimisers."""

    actor: Actor
    critics: Critics
    target_actor: Actor
    target_critics: Critics
    actor_optimiser: Any
    critic_optimiser: Any
    losses: np.ndarray  # of critics and actor, means over the last call
    updates: np.ndarray  # gradient steps of the critics so far


@dataclass(frozen=True)
class TD3:
    """y = r + gamma (1 - d) min_j Q'_j(s', clip(pi'(s') + clip(noise))); the actor climbs Q_1."""

    batch_size: int = 100  # B: transitions per gradient step
    actor_rate: float = 1e-3  # Adam's learning rate for the actor
    critic_rate: float = 1e-3  # Adam's learning rate for the critics
    discount: float = 0.99  # gamma: discount factor
    tau: float = 0.005  # tau: how far the targets follow in each step
    target_noise: float = 0.2  # sigma_p: std of the noise on the target action, as a share of half the action range
    noise_clip: float = 0.5  # c: largest noise on the target action
    policy_delay: int = 2  # critic steps per step of actor and targets, when it learns alone
    warmup: int = 10_000  # no learning until the replay holds more than this; alone, it acts at random till then
    noise: GaussianNoise = field(default_factory=GaussianNoise)  # of the exploring episodes
    critic_hidden: tuple[int, ...] = (400, 300)  # units of the critics' hidden layers
    critic_activation: Activation = "leaky_relu"  # of the critics' hidden layers

    def __post_init__(self):
        if self.batch_size < 1 or self.warmup < 0 or self.policy_delay < 1:
            raise UserError(
                "the learner needs a batch of 1 or more, a warm-up of 0 or more, a policy delay of 1 or more"
            )
        if not (0.0 <= self.discount <= 1.0 and 0.0 <= self.tau <= 1.0):
            raise UserError("the learner's discount and tau lie between 0 and 1")
        if not self.critic_hidden or min(self.critic_hidden) < 1:
            raise UserError("critic hidden needs the units of one layer or more, each 1 or more")

    def init(self, key: Array, actor: Actor) -> TD3State:
        """A learner that begins with this actor."""
        sizes = actor.sizes[0], actor.sizes[-1], self.critic_hidden, self.critic_activation
        critics = tuple(QNetwork(k, *sizes) for k in jax.random.split(key))
        optimisers = [adam_init(network) for network in (actor, critics)]
        return TD3State(
            actor, critics, actor, critics, *optimisers, np.full(2, np.nan, np.float32), np.zeros((), np.int64)
        )

    def actor(self, state: TD3State) -> Actor:
        """The policy learnt so far."""
        return state.actor

    def critic(self, state: TD3State) -> Callable[[Array, Array], Array]:
        """Q_1(s, a), the critic that actors climb."""
        return state.critics[0]

    teacher = critic

    def explore(self, key: Array, state: TD3State, last: Array, steps: int, seen: int) -> tuple[Actor, np.ndarray]:
        """The actor with noise on its actions; during the warm-up, actions drawn uniformly from their range."""
        if seen < self.warmup:
            return random_player(key, state.actor, steps)
        return state.actor, np.asarray(self.noise.draw(key, last, steps))

    def update(self, key: Array, state: TD3State, replay: buffer.Buffer, steps: int) -> TD3State:
        """Take `steps` steps of the critics, and one of the actor and the targets after every `policy_delay` of them."""
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
        """Take `steps` steps of the critics towards the value of the given policy; their targets follow every step."""
        learning = (state.critics, state.target_critics, state.critic_optimiser)
        learning, losses = in_blocks(partial(_update_critic, self, policy), key, learning, replay, steps)
        critics, target_critics, optimiser = learning
        changed = lambda s: (s.critics, s.target_critics, s.critic_optimiser, s.losses, s.updates)
        return eqx.tree_at(changed, state, (critics, target_critics, optimiser, losses, state.updates + steps))

    def improve(self, key: Array, actor: Actor, teacher: QNetwork, states: Array, filled: Array, steps: int) -> Actor:
        """The actor after `steps` steps up the frozen critic, with fresh Adam."""
        learning = actor, adam_init(actor)
        for begin in range(0, steps, BLOCK):
            k_block, count = jax.random.fold_in(key, begin), min(BLOCK, steps - begin)
            learning = _improve(self, k_block, learning, teacher, states, filled, count)
        return learning[0]

    def report(self, state: TD3State) -> dict[str, Any]:
        """Losses and gradient steps, for the record."""
        losses = [float(loss) if np.isfinite(loss) else None for loss in state.losses]
        return {"critic_loss": losses[0], "actor_loss": losses[1], "updates": int(state.updates)}

    def targets(self, noise: Array, policy: Actor, target_critics: Critics, batch: Transitions) -> Array:
        """y = r + gamma (1 - d) min_j Q'_j(s', clip(pi'(s') + clip(sigma_p noise, -c, c), -1, 1))."""
        s = batch.next_observation
        smoothing = jnp.clip(self.target_noise * noise, -self.noise_clip, self.noise_clip)
        a = jnp.clip(policy(s) + smoothing, -1.0, 1.0)
        smaller = jnp.minimum(*(critic(s, a) for critic in target_critics))
        return batch.reward + self.discount * (1.0 - batch.terminated) * smaller

    def critic_loss(self, critics: Critics, batch: Transitions, y: Array) -> Array:
        """mean (Q_1 - y)^2 + mean (Q_2 - y)^2."""
        return sum(jnp.mean((critic(batch.observation, batch.action) - y) ** 2) for critic in critics)

    def actor_loss(self, actor: Actor, critic: QNetwork, states: Array) -> Array:
        """-mean Q_1(s, pi(s))."""
        return -jnp.mean(critic(states, actor(states)))


def random_player(key: Array, actor: Actor, steps: int) -> tuple[Actor, np.ndarray]:
    """An actor that does nothing, and noise that makes its actions uniform over their range."""
    noise = jax.random.uniform(key, (steps, actor.sizes[-1]), minval=-1.0, maxval=1.0)
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), actor), np.asarray(noise)


def in_blocks(
    work: Callable, key: Array, networks: Any, replay: buffer.Buffer, steps: int, losses: int = 2
) -> tuple[Any, np.ndarray]:
    """The networks after `steps` steps, one compiled block after the other, and the means of the losses."""
    total = np.zeros(losses)
    for begin in range(0, steps, BLOCK):
        count = min(BLOCK, steps - begin)
        networks, found = work(jax.random.fold_in(key, begin), networks, replay, count)
        total += np.asarray(found)
    return networks, (total / max(1, steps)).astype(np.float32)


def follow(tau: float, slow: Any, fast: Any) -> Any:
    """The slow weights, a share tau nearer to the fast ones."""
    return jax.tree.map(lambda s, f: s + tau * (f - s), slow, fast)


def _minibatches(part: TD3, key: Array, replay: buffer.Buffer) -> Callable[[Array], tuple[Transitions, Array]]:
    """A function from the step to its minibatch and the noise on its target actions."""
    k_places, k_noise = jax.random.split(key)
    places = buffer.sample(k_places, replay, (BLOCK, part.batch_size))
    noise = jax.random.normal(k_noise, (BLOCK, part.batch_size, replay.data.action.shape[-1]))
    return lambda i: (jax.tree.map(lambda leaf: leaf[places[i]], replay.data), noise[i])


def _critic_step(part: TD3, policy: Actor, target_critics: Critics, critics: Critics, optimiser: Any, drawn: tuple):
    batch, noise = drawn
    y = part.targets(noise, policy, target_critics, batch)
    loss, gradient = jax.value_and_grad(part.critic_loss)(critics, batch, y)
    return *Adam(part.critic_rate).step(critics, gradient, optimiser), loss


@partial(jax.jit, static_argnums=0, compiler_options=EIGEN)
def _update(part: TD3, key: Array, networks: tuple, replay: buffer.Buffer, steps: Array) -> tuple[tuple, Array]:
    drawn, delay = _minibatches(part, key, replay), part.policy_delay

    def critic_step(i, carry):
        (actor, critics, target_actor, target_critics, actor_state, critic_state), losses = carry
        critics, critic_state, loss = _critic_step(part, target_actor, target_critics, critics, critic_state, drawn(i))
        networks = (actor, critics, target_actor, target_critics, actor_state, critic_state)
        return networks, losses + jnp.stack([loss, 0.0])

    def group(g, carry):
        for j in range(delay):
            carry = critic_step(g * delay + j, carry)
        (actor, critics, target_actor, target_critics, actor_state, critic_state), losses = carry
        states = drawn(g * delay + delay - 1)[0].observation
        loss, gradient = jax.value_and_grad(part.actor_loss)(actor, critics[0], states)
        actor, actor_state = Adam(part.actor_rate).step(actor, gradient, actor_state)
        target_actor, target_critics = follow(part.tau, target_actor, actor), follow(part.tau, target_critics, critics)
        networks = (actor, critics, target_actor, target_critics, actor_state, critic_state)
        return networks, losses + jnp.stack([0.0, delay * loss])

    carry = jax.lax.fori_loop(0, steps // delay, group, (networks, jnp.zeros(2)))
    return jax.lax.fori_loop(steps // delay * delay, steps, critic_step, carry)  # what is left of the last group


@partial(jax.jit, static_argnums=0, compiler_options=EIGEN)
def _update_critic(
    part: TD3, policy: Actor, key: Array, learning: tuple, replay: buffer.Buffer, steps: Array
) -> tuple[tuple, Array]:
    drawn = _minibatches(part, key, replay)

    def step(i, carry):
        (critics, target_critics, optimiser), losses = carry
        critics, optimiser, loss = _critic_step(part, policy, target_critics, critics, optimiser, drawn(i))
        return (critics, follow(part.tau, target_critics, critics), optimiser), losses + jnp.stack([loss, jnp.nan])

    return jax.lax.fori_loop(0, steps, step, (learning, jnp.zeros(2)))


@partial(jax.jit, static_argnums=0, compiler_options=EIGEN)
def _improve(
    part: TD3, key: Array, learning: tuple, teacher: QNetwork, states: Array, filled: Array, steps: Array
) -> tuple[Actor, Any]:
    places = jax.random.randint(key, (BLOCK, part.batch_size), 0, filled)

    def step(i, learning):
        actor, optimiser = learning
        gradient = jax.grad(part.actor_loss)(actor, teacher, states[places[i]])
        return Adam(part.actor_rate).step(actor, gradient, optimiser)

    return jax.lax.fori_loop(0, steps, step, learning)
