"""Parts that learn: a DDPG update, the distillation of a child, CEM-RL's lessons."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import genepool
from benchmarks.parts.flops import distillation_flops, lessons_flops, update_flops, usual_flops
from benchmarks.parts.measuring import ALGORITHM, SIZES, Row, full_replay, row, seconds, thread_label, with_gemm_limit
from genepool import Candidate, Individual
from genepool.evolution.genetic import generational as genetic
from genepool.learning import ddpg, offpolicy
from genepool.learning.lessons import GradientLesson
from genepool.networks import Actor, critics, layers
from genepool.optimiser import Adam, adam_init
from genepool.workers import local
from genepool.xla import EIGEN


def update(threads: int, quick: bool) -> list[Row]:
    """A DDPG update, of 1000 in one call, on a full replay; and the same
    written plainly, to show what the kernels gain."""
    learner = ALGORITHM.learner
    steps = 100 if quick else 1000
    replay = full_replay(ALGORITHM.replay)
    k_actor, k_learner, k_update = jax.random.split(jax.random.key(0), 3)
    sizes = *SIZES, ALGORITHM.hidden, learner.batch_size
    usual = usual_flops(*sizes)
    least = update_flops(*sizes)

    def measure(name: str, target: float | None) -> Row:
        state = learner.init(k_learner, Actor(k_actor, *SIZES))
        work = lambda: learner.update(k_update, state, replay, steps)
        return with_gemm_limit(f"{name}, {thread_label(threads)}", usual, work, 1 if quick else 9, steps, target)

    ours = measure("DDPG update", 1.35 if threads == 1 else 1.5)
    limits = [limit * least / usual for limit in ours["limit_rounds"]]
    name, limit_is = (
        f"{ours['name']}: against the least FLOPs",
        f"{least / 1e6:,.2f} MFLOP, without gradients that are not needed",
    )
    with written_plainly():
        plain = measure("the same written plainly", None)
    return [ours, row(name, "ms", ours["rounds"], limits, limit_is), plain]


@contextmanager
def written_plainly() -> Iterator[None]:
    """DDPG written without kernels: JAX's own products, functions and gradients, and optax's Adam."""
    import optax  # here, so that the peak memory of a generation is measured without it

    class Adam:
        def __init__(self, rate: float, clip: float):
            self._rule = optax.chain(optax.clip_by_global_norm(clip), optax.adam(rate))

        def step(self, weights: Any, gradient: Any, state: Any) -> tuple[Any, Any]:
            move, state = self._rule.update(gradient, state)
            return optax.apply_updates(weights, move), state

    def layer_norm(y: jax.Array, gain: jax.Array, shift: jax.Array) -> jax.Array:
        std = jnp.std(y, axis=-1, ddof=1, keepdims=True)
        return gain * (y - jnp.mean(y, axis=-1, keepdims=True)) / (std + 1e-6) + shift

    with (
        mock.patch.multiple(layers, matmul=jnp.matmul, layer_norm=layer_norm),
        mock.patch.multiple(critics, matmul=jnp.matmul, elu=jax.nn.elu),
        mock.patch.multiple(ddpg, Adam=Adam, adam_init=Adam(0.0, 1.0)._rule.init),
    ):
        yield


def distillation(threads: int, quick: bool) -> list[Row]:
    """One child of two parents with full memories."""
    crossover = ALGORITHM.evolver.crossover
    learner = ALGORITHM.learner
    k_x, k_y, k_learner, k_cross = jax.random.split(jax.random.key(0), 4)
    memory = full_replay(ALGORITHM.memory)
    x, y = (jax.device_get(Individual(Actor(key, *SIZES), memory)) for key in (k_x, k_y))
    critic = learner.critic(learner.init(k_learner, Actor(k_x, *SIZES)))
    steps = int(crossover.steps(memory.size))
    flops = distillation_flops(*SIZES, ALGORITHM.memory, steps, crossover.batch_size)
    work = lambda: genetic.cross(crossover, k_cross, x, y, critic)
    return [
        with_gemm_limit(f"distilling a child, {thread_label(threads)}", flops, work, 1 if quick else 15, 1, target=2.0)
    ]


def teaching(threads: int, quick: bool) -> list[Row]:
    """CEM-RL's gradient phase: critic steps, then five lessons of as many steps each; and these lessons stacked."""
    algorithm = genepool.cem_rl("HalfCheetah-v5")
    steps = 100 if quick else 400
    lessons = 5
    learner = algorithm.learner
    replay = full_replay(algorithm.replay)
    k_actor, k_learner, k_critic, k_lesson = jax.random.split(jax.random.key(0), 4)
    actor = jax.device_get(Actor(k_actor, *SIZES, algorithm.hidden, algorithm.layer_norm))
    state = learner.init(k_learner, actor)
    data = np.asarray(jax.random.key_data(k_lesson))
    shared = replay.data.observation, replay.size

    def candidates(learning: Any, steps: int) -> list[Candidate]:
        lesson = GradientLesson(learner, data, learner.teacher(learning), *shared, np.asarray(steps))
        return [Candidate(Individual(actor, None), lesson=lesson)] * lessons

    def work() -> list[Individual]:
        return local.individuals_to_play(
            candidates(learner.update_critic(k_critic, state, actor, replay, steps), steps)
        )

    flops = lessons_flops(*SIZES, learner.batch_size, steps, lessons * steps)
    name = f"CEM-RL's gradients per frame, {thread_label(threads)}"
    whole = with_gemm_limit(name, flops // steps, work, 1 if quick else 5, steps, target=1.8)

    # for comparison: all lessons as one program, with the actors and their teachers along a leading axis
    few = steps // 4
    lesson = partial(offpolicy._improve.__wrapped__, learner, Adam(learner.actor_rate))
    improve = jax.jit(jax.vmap(lesson, (0, 0, 0, None, None, None)), compiler_options=EIGEN)
    one = jax.random.fold_in(k_lesson, 0), (actor, adam_init(actor)), learner.teacher(state)
    given = jax.tree.map(lambda leaf: jnp.stack([leaf] * lessons), one)
    both = (lambda: improve(*given, *shared, few), lambda: local.individuals_to_play(candidates(state, few)))
    alike = [np.asarray(both[0]()[0].output.weight[0]), both[1]()[0].actor.output.weight]  # compiles
    pairs = [[1e3 * seconds(one) for one in both] for _ in range(1 if quick else 15)]
    rounds, limits = zip(*pairs, strict=True)
    limit_is = f"the same in threads; {'the same' if np.array_equal(*alike) else 'other'} bits"
    return [whole, row(f"{few} steps of five lessons stacked, {thread_label(threads)}", "ms", rounds, limits, limit_is)]
