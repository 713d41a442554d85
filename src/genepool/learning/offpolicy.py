"""What off-policy learners share: blocks of gradient steps, minibatches, slow targets, random play, lessons, checks.

All of it is meant for learners of your own, too. A learner is a part (`genepool.parts.part`) with the methods of
`genepool.protocols.Learner`, or of `Teacher` if others may climb its critic. Its loops of gradient steps are compiled, a
block of at most `BLOCK` steps at a time:

    @partial(jax.jit, static_argnums=0)
    def _update(part, key, networks, replay, steps):
        drawn = minibatches(key, replay, part.batch_size)

        def step(i, carry):
            networks, losses = carry
            networks, found = ...  # one gradient step on the minibatch drawn(i)
            return networks, losses + found

        return jax.lax.fori_loop(0, steps, step, (networks, jnp.zeros(2)))

and `in_blocks(partial(_update, self), key, networks, replay, steps)` takes as many steps as are wanted.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array

from genepool import buffer
from genepool.errors import UserError
from genepool.networks import Actor
from genepool.optimiser import Adam, adam_init
from genepool.types import Transitions
from genepool.xla import EIGEN

BLOCK = 1_000  # gradient steps in one call of a compiled loop; between two calls a signal is heard

LEAST = {  # of settings that count something: the least value, and how a message calls it
    "batch_size": (1, "a batch of 1 or more"),
    "policy_delay": (1, "a policy delay of 1 or more"),
    "warmup": (0, "a warm-up of 0 or more"),
    "random_frames": (0, "random frames of 0 or more"),
}


def check_settings(learner: Any) -> None:
    """Refuse what no learner can use: for `__post_init__`. Of the settings that are checked, the learner has any."""
    for name, (least, wanted) in LEAST.items():
        value = getattr(learner, name, least)
        if not value >= least:
            raise UserError(f"{name} is {value}: the learner needs {wanted}")
    for name in ("discount", "tau"):
        value = getattr(learner, name, 0.0)
        if not 0.0 <= value <= 1.0:
            raise UserError(f"{name} is {value}: it must lie between 0 and 1")
    hidden = getattr(learner, "critic_hidden", ())
    if any(units < 1 for units in hidden):
        raise UserError(f"critic_hidden is {hidden}: every layer needs 1 unit or more")


def blocks(key: Array, steps: int) -> Iterator[tuple[Array, int]]:
    """The key of each block, and how many steps it takes."""
    for begin in range(0, steps, BLOCK):
        yield jax.random.fold_in(key, begin), min(BLOCK, steps - begin)


def in_blocks(
    work: Callable, key: Array, networks: Any, replay: buffer.Buffer, steps: int, losses: int = 2
) -> tuple[Any, np.ndarray]:
    """The networks after `steps` gradient steps, and the means of the losses over them, NaN if there were none.

    `work(key, networks, replay, count)` takes the steps of one block. It returns the networks and the sums of the losses.
    """
    total = np.zeros(losses) if steps else np.full(losses, np.nan)
    for k_block, count in blocks(key, steps):
        networks, found = work(k_block, networks, replay, count)
        total += np.asarray(found)
    return networks, (total / max(1, steps)).astype(np.float32)


def minibatches(key: Array, replay: buffer.Buffer, batch_size: int) -> Callable[[Array], Transitions]:
    """A function from the number of a step in its block to its minibatch. All are drawn at once, with replacement."""
    places = buffer.sample(key, replay, (BLOCK, batch_size))
    return lambda i: jax.tree.map(lambda leaf: leaf[places[i]], replay.data)


def noisy_minibatches(
    key: Array, replay: buffer.Buffer, batch_size: int, *draws: int
) -> Callable[[Array], tuple[Transitions, Array]]:
    """The same, with standard normal noise for the actions of each minibatch: [*draws, batch, |A|]."""
    k_places, k_noise = jax.random.split(key)
    batch = minibatches(k_places, replay, batch_size)
    noise = jax.random.normal(k_noise, (BLOCK, *draws, batch_size, replay.data.action.shape[-1]))
    return lambda i: (batch(i), noise[i])


def follow(tau: float, slow: Any, fast: Any) -> Any:
    """The slow weights, a share tau nearer to the fast ones."""
    return jax.tree.map(lambda s, f: s + tau * (f - s), slow, fast)


def random_player(key: Array, actor: Actor, steps: int) -> tuple[Actor, np.ndarray]:
    """An actor that does nothing, and noise that makes its actions uniform over their range: for `explore`."""
    noise = jax.random.uniform(key, (steps, actor.sizes[-1]), minval=-1.0, maxval=1.0)
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), actor), np.asarray(noise)


def improve(
    learner: Any, adam: Adam, key: Array, actor: Actor, critic: Any, states: Array, filled: Array, steps: int
) -> Actor:
    """A lesson of a deterministic actor: `steps` gradient steps up the frozen critic, with fresh Adam.

    The states are drawn from the first `filled` rows. The learner has `batch_size` and `actor_loss(actor, critic, states)`.
    """
    learning = actor, adam_init(actor)
    for k_block, count in blocks(key, steps):
        learning = _improve(learner, adam, k_block, learning, critic, states, filled, count)
    return learning[0]


@partial(jax.jit, static_argnums=(0, 1), compiler_options=EIGEN)
def _improve(
    learner: Any, adam: Adam, key: Array, learning: tuple, critic: Any, states: Array, filled: Array, steps: Array
) -> tuple[Actor, Any]:
    places = jax.random.randint(key, (BLOCK, learner.batch_size), 0, filled)

    def step(i, learning):
        actor, optimiser = learning
        gradient = jax.grad(learner.actor_loss)(actor, critic, states[places[i]])
        return adam.step(actor, gradient, optimiser)

    return jax.lax.fori_loop(0, steps, step, learning)


def no_losses(count: int = 2) -> np.ndarray:
    """The losses of a learner that took no step."""
    return np.full(count, np.nan, np.float32)


def report_losses(losses: np.ndarray, names: Sequence[str] = ("critic_loss", "actor_loss")) -> dict[str, float | None]:
    """Losses by name, for the record. None where there is none."""
    return {name: float(loss) if np.isfinite(loss) else None for name, loss in zip(names, losses, strict=True)}
