"""What off-policy learners share: blocks of gradient steps, minibatches, targets, random play, lessons, checks.

Learners of your own may use it too. A learner is a part (`genepool.parts.part`) with the methods of
`genepool.protocols.Learner`, or of `Teacher` if it gives lessons. Its gradient steps are compiled loops of at most
`BLOCK` steps:

    @partial(jax.jit, static_argnums=0)
    def _update(part, key, networks, replay, steps):
        drawn = minibatches(key, replay, part.batch_size)

        def step(i, carry):
            networks, losses = carry
            networks, new_losses = ...  # one gradient step on the minibatch drawn(i)
            return networks, losses + new_losses

        return jax.lax.fori_loop(0, steps, step, (networks, jnp.zeros(2)))

and `in_blocks(partial(_update, self), key, networks, replay, steps)` takes `steps` of them.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool import buffer
from genepool.errors import UserError, check_at_least
from genepool.networks import Actor
from genepool.optimiser import Adam, AdamState, adam_init
from genepool.trees import map_leaves, map_pairs
from genepool.types import Transitions
from genepool.xla import EIGEN

N = TypeVar("N")  # networks: a pytree
C = TypeVar("C")  # a critic
D = TypeVar("D")  # what is drawn for a gradient step
Work = Callable[[Array, N, buffer.Buffer, int], tuple[N, Array]]  # the steps of a block; sums of losses

BLOCK = 1_000  # gradient steps in one call of a compiled loop; signals are handled between two calls

LEAST = {"batch_size": 1, "policy_delay": 1, "warmup": 0, "random_frames": 0}  # the least values of counts


def check_settings(learner: Any) -> None:
    """Refuse settings that no learner can use: for `__post_init__`. Settings that the learner lacks are not checked."""
    for name, least in LEAST.items():
        if hasattr(learner, name):
            check_at_least(least, learner, name)
    for name in ("discount", "tau"):
        value = getattr(learner, name, 0.0)
        if not 0.0 <= value <= 1.0:
            raise UserError(f"{name} is {value}: it must lie between 0 and 1")
    hidden = getattr(learner, "critic_hidden", ())
    if any(units < 1 for units in hidden):
        raise UserError(f"critic_hidden is {hidden}: every layer needs 1 unit or more")


def blocks(key: Array, steps: int) -> Iterator[tuple[Array, int]]:
    """The key of each block, and its number of steps."""
    for begin in range(0, steps, BLOCK):
        yield jax.random.fold_in(key, begin), min(BLOCK, steps - begin)


def in_blocks(
    work: Work[N], key: Array, networks: N, replay: buffer.Buffer, steps: int, losses: int = 2
) -> tuple[N, np.ndarray]:
    """The networks after `steps` gradient steps, and the mean losses of these steps, NaN if there were none.

    `work(key, networks, replay, count)` takes the steps of one block. It returns the networks and the sums of losses.
    """
    total = np.zeros(losses) if steps else np.full(losses, np.nan)
    for k_block, count in blocks(key, steps):
        networks, block_losses = work(k_block, networks, replay, count)
        total += np.asarray(block_losses)
    return networks, (total / max(1, steps)).astype(np.float32)


def minibatches(key: Array, replay: buffer.Buffer, batch_size: int) -> Callable[[Array], Transitions]:
    """A function that maps a step's number in its block to its minibatch. All are drawn at once, with replacement."""
    rows = buffer.sample(key, replay, (BLOCK, batch_size))
    return lambda i: map_leaves(lambda leaf: leaf[rows[i]], replay.data)


def noisy_minibatches(
    key: Array, replay: buffer.Buffer, batch_size: int, *draws: int
) -> Callable[[Array], tuple[Transitions, Array]]:
    """The same, and for each minibatch standard normal noise on actions: [*draws, batch, |A|]."""
    k_rows, k_noise = jax.random.split(key)
    batch = minibatches(k_rows, replay, batch_size)
    noise = jax.random.normal(k_noise, (BLOCK, *draws, batch_size, replay.data.action.shape[-1]))
    return lambda i: (batch(i), noise[i])


def follow(tau: float, slow: N, fast: N) -> N:
    """Polyak averaging: the slow weights, moved towards the fast ones by the share tau."""
    return map_pairs(lambda s, f: s + tau * (f - s), slow, fast)


def random_player(key: Array, actor: Actor, steps: int) -> tuple[Actor, np.ndarray]:
    """An actor whose actions are 0, and noise that makes them uniform over their range: for `explore`."""
    noise = jax.random.uniform(key, (steps, actor.sizes[-1]), minval=-1.0, maxval=1.0)
    return map_leaves(lambda leaf: np.zeros(leaf.shape, np.float32), actor), np.asarray(noise)


def bellman(discount: float, batch: Transitions, value: Array) -> Array:
    """y = r + gamma (1 - d) V(s'), given the values of the next states."""
    return batch.reward + discount * (1.0 - batch.terminated) * value


def descend(
    adam: Adam, loss: Callable[..., Array], network: N, optimiser: AdamState, *inputs: Any
) -> tuple[N, AdamState, Array]:
    """The network and its optimiser after one step down loss(network, *inputs), and the loss before it."""
    value, gradient = jax.value_and_grad(loss)(network, *inputs)
    network, optimiser = adam.step(network, gradient, optimiser)
    return network, optimiser, value


def critic_steps(
    critic_step: Callable[[C, C, AdamState, D], tuple[C, AdamState, Array]],
    tau: float,
    drawn: Callable[[Array], D],
    learning: tuple[C, C, AdamState],
    steps: Array,
) -> tuple[tuple[C, C, AdamState], Array]:
    """Steps of the critic alone. Its target follows each of them.

    `learning` is the critic, its target and its optimiser. `critic_step(target, critic, optimiser, drawn(i))` takes one
    step. It returns the critic, its optimiser and the loss. The sums of the losses have NaN for the actor.
    """

    def step(i: Array, carry: tuple[tuple[C, C, AdamState], Array]) -> tuple[tuple[C, C, AdamState], Array]:
        (critic, target, optimiser), losses = carry
        critic, optimiser, loss = critic_step(target, critic, optimiser, drawn(i))
        return (critic, follow(tau, target, critic), optimiser), losses + jnp.stack([loss, jnp.nan])

    return jax.lax.fori_loop(0, steps, step, (learning, jnp.zeros(2)))


def lesson_in_blocks(
    work: Callable[[Array, tuple[N, AdamState], int], tuple[N, AdamState]], key: Array, actor: N, steps: int
) -> N:
    """The actor after `steps` steps with fresh Adam. `work(key, (actor, optimiser), count)` takes one block."""
    learning = actor, adam_init(actor)
    for k_block, count in blocks(key, steps):
        learning = work(k_block, learning, count)
    return learning[0]


def improve(
    learner: Any, adam: Adam, key: Array, actor: Actor, critic: Any, states: Array, state_count: Array, steps: int
) -> Actor:
    """A lesson of a deterministic actor: `steps` gradient steps up the frozen critic, with fresh Adam.

    States are drawn from the first `state_count` rows. The learner has `batch_size` and
    `actor_loss(actor, critic, states)`.
    """

    def work(k_block: Array, learning: tuple[Actor, AdamState], count: int) -> tuple[Actor, AdamState]:
        return _improve(learner, adam, k_block, learning, critic, states, state_count, count)

    return lesson_in_blocks(work, key, actor, steps)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=EIGEN)
def _improve(
    learner: Any,
    adam: Adam,
    key: Array,
    learning: tuple[Actor, AdamState],
    critic: Any,
    states: Array,
    state_count: Array,
    steps: Array,
) -> tuple[Actor, AdamState]:
    rows = jax.random.randint(key, (BLOCK, learner.batch_size), 0, state_count)

    def step(i: Array, learning: tuple[Actor, AdamState]) -> tuple[Actor, AdamState]:
        actor, optimiser = learning
        gradient = jax.grad(learner.actor_loss)(actor, critic, states[rows[i]])
        return adam.step(actor, gradient, optimiser)

    return jax.lax.fori_loop(0, steps, step, learning)


def no_losses(count: int = 2) -> np.ndarray:
    """The losses of a learner that took no step: NaN."""
    return np.full(count, np.nan, np.float32)


def report_losses(losses: np.ndarray, names: Sequence[str] = ("critic_loss", "actor_loss")) -> dict[str, float | None]:
    """Losses by name, for the record. None for a loss that is not finite."""
    return {name: float(loss) if np.isfinite(loss) else None for name, loss in zip(names, losses, strict=True)}
