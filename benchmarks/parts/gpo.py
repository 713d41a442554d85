"""Part: an iteration of GPO, which is acting and learning."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

import genepool
from benchmarks.parts.flops import mutation_flops
from benchmarks.parts.measuring import (
    SIZES,
    Row,
    gemm_timer,
    physics,
    row,
    seconds,
    thread_label,
    with_worker_processes,
)
from genepool import LocalWorkers, trees
from genepool.cores import map_on_cores
from genepool.learning import ppo, value_function
from genepool.learning.returns import Batch


@with_worker_processes
def iteration(threads: int, quick: bool) -> list[Row]:
    """An iteration of GPO's mutation: eight policies play 2048 steps each, then learn, without and with
    shared data.

    The limit is what the target allows: 1.5 times mj_step for the frames and 1.8 times the FLOPs of the updates at
    GEMM speed. It is the second iteration of a round: the first one of 36 also measures which policies are similar.
    """
    alone = genepool.gpo("HalfCheetah-v5", sharing=genepool.Sharing(kl=0.0))
    key, workers, timer, rows = jax.random.key(0), LocalWorkers(alone.task), gemm_timer(), []
    for name, kl in (("no sharing", 0.0), ("full sharing", 1e9)):
        algorithm = replace(alone, sharing=genepool.Sharing(kl=kl))
        state = algorithm.init(key)
        for _ in range(2):
            candidates, state = algorithm.ask(key, state, 8)
            outcomes = workers.map(candidates)  # compiles
            state = algorithm.tell(key, state, outcomes)
            first, state = state, algorithm.learn(key, state)  # compiles
        state = first
        actions = np.concatenate([algorithm.task.spaces.to_environment(o.transitions.action) for o in outcomes])
        actions = actions.reshape(32, 512, -1)
        flops = mutation_flops(*SIZES, 8 * 2048, 1 if name == "no sharing" else 8)
        spent = [
            (
                seconds(lambda c=candidates: workers.map(c)),
                seconds(lambda a=algorithm, s=state: a.learn(key, s).learner),
            )
            for _ in range(1 if quick else 9)
        ]
        raw = [(physics(actions, threads), flops * min(timer().values())) for _ in spent]
        label = f"{name}, {thread_label(threads)}"
        both = [sum(pair) for pair in spent], [1.5 * a + 1.8 * b for a, b in raw]
        rows.append(row(f"GPO's iteration, {label}", "s", *both, "1.5 mj_step + 1.8 FLOPs", target=1.0))
        if name == "no sharing":
            rows.append(row(f"GPO's acting, {label}", "s", [a for a, _ in spent], [a for a, _ in raw], "mj_step alone"))
        limit_is = f"{flops / 1e6:,.0f} MFLOP"
        rows.append(row(f"GPO's learning, {label}", "s", [b for _, b in spent], [b for _, b in raw], limit_is))
        rows.append(stacked(algorithm, key, state, label, quick))
    return rows


def stacked(algorithm: Any, key: jax.Array, state: Any, label: str, quick: bool) -> Row:
    """The updates of all policies as one program, and as genepool does them: one program each, in threads."""
    mutation = algorithm.mutation
    m = algorithm.population

    def prepare(i: int) -> Any:
        return mutation.prepare(trees.take(state.learner.members, i), Batch(*(column[i] for column in state.batch)))

    members, shared, returns = (trees.stack(part) for part in zip(*map(prepare, range(m)), strict=True))
    critic = mutation.critic
    keys = [jax.random.fold_in(key, i) for i in range(m)]
    shares_with = state.learner.shares_with
    update = partial(ppo._update.__wrapped__, mutation, algorithm.sharing)
    together = jax.jit(jax.vmap(update, ([None, 0], 0, 0, None, 0, 0)))

    def at_once() -> Any:
        k_critics = [jax.random.split(k)[1] for k in keys]
        sizes = algorithm.batch, critic.epochs, critic.minibatches
        orders = np.stack([value_function.rows_by_step(k, *sizes) for k in k_critics])
        return together([None, orders], members, np.arange(m), shared, returns, shares_with)

    def one_by_one() -> Any:
        def one(i: int) -> Any:
            member = trees.take(members, i)
            return mutation.update(keys[i], member, i, shared, returns[i], shares_with[i], algorithm.sharing)

        return map_on_cores(one, range(m))

    both = (at_once, one_by_one)
    for work in both:
        seconds(work)  # compiles
    pairs = [[seconds(work) for work in both] for _ in range(1 if quick else 9)]
    rounds, limits = zip(*pairs, strict=True)
    return row(f"GPO's updates stacked, {label}", "s", rounds, limits, "the same, each in a thread")
