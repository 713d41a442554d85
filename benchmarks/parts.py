"""What the speed benchmark measures: HalfCheetah-v5 at PDERL's settings, each figure interleaved with its limit.

A part is a function of the number of threads, and of whether a quick look is enough. It returns rows with every round.
"""

import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial, wraps
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import genepool
from genepool import Candidate, Individual, LocalWorkers, Outcome, Transitions, buffer, networks, trees
from genepool.algorithms.injection import InjectionState
from genepool.cores import map_on_cores
from genepool.evolution.genetic import generational as genetic
from genepool.learning import ddpg, offpolicy, ppo
from genepool.learning.lessons import Lesson
from genepool.learning.returns import Batch
from genepool.networks import Actor
from genepool.optimiser import Adam, adam_init
from genepool.schedule import Clock, synchronous
from genepool.workers import local
from genepool.workers import processes as crew
from genepool.xla import EIGEN

Row = dict[str, Any]
ALGORITHM = genepool.pderl("HalfCheetah-v5")
SIZES = ALGORITHM.task.observation_size, ALGORITHM.task.action_size
BRANCH, JOINT = 200, 300  # the critic's layers
GEMM = (128, 2 * BRANCH, JOINT)  # the largest product of an update: a batch through the critic's joint layer
AUTHORS_MS_PER_FRAME = 13.0  # of the authors' code on their machine; not measured here


def row(name: str, unit: str, rounds: Sequence[float], limits: Sequence[float], limit_is: str, **more: Any) -> Row:
    """A line of the report. A target is the most that the ratio, or else the measured figure, may be."""
    series = {"rounds": list(rounds), "limit_rounds": list(limits), "limit_is": limit_is}
    return {"name": name, "unit": unit, "target": None, "target_is_of": "ratio"} | series | more


def seconds(work: Callable[[], Any]) -> float:
    """How long the work takes, waiting for what JAX does behind."""
    begun = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - begun


def update_flops(observation: int, action: int, hidden: Sequence[int] = (128, 128), batch: int = 128) -> int:
    """FLOPs that the matrix products of one DDPG update cannot do without, 2 per multiply-add.

    A layer of m inputs and n units costs m n multiply-adds per state forward, m n for the gradient of its weights and
    m n for that of its inputs. Nobody needs the gradient of the inputs of a first layer, save the critic's of the
    action. So, with A and C for a whole actor or critic forward:

        y = r + gamma Q'(s', mu'(s'))    A + C
        critic, Q(s, a)                  C, C for the weights, and back to both branches
        actor, Q(s, mu(s))               A + C, back through the critic by the action's branch alone, A for the weights,
                                         and back to the hidden layers

    That is 756,536 multiply-adds for 17 observations and 6 actions, 193.67 MFLOP for a batch of 128. Element-wise work
    (layer norm, tanh, Adam, the slow targets) is not counted.
    """
    actor, actor_back = actor_products(observation, action, hidden)
    critic = critic_products(observation, action)
    critic_back = JOINT + 2 * BRANCH * JOINT
    action_back = JOINT + BRANCH * JOINT + action * BRANCH
    critic_step = critic + critic + critic_back
    actor_step = actor + critic + action_back + actor + actor_back
    return 2 * batch * (actor + critic + critic_step + actor_step)


def usual_flops(observation: int, action: int, hidden: Sequence[int] = (128, 128), batch: int = 128) -> int:
    """FLOPs of one DDPG update as they are usually counted: a network's forward pass, and twice as many for its gradients.

        y = r + gamma Q'(s', mu'(s'))    A + C
        critic, Q(s, a)                  3 C
        actor, Q(s, mu(s))               3 (A + C)

    That is 951,612 multiply-adds, 243.61 MFLOP, some of them for gradients that nobody needs (see `update_flops`). The targets
    were set when a plain compiled loop had 1.3 on one thread and 1.66 on two: it is near that by this count, at 1.7 and 2.1 by the least.
    """
    actor, _ = actor_products(observation, action, hidden)
    critic = critic_products(observation, action)
    return 2 * batch * (4 * actor + 7 * critic)


def distillation_flops(observation: int, action: int, memory: int, steps: int, batch: int) -> int:
    """FLOPs that the matrix products of one child need: `steps` of the actor forward and back, and the targets.

    The targets take both parents' actors and the critic twice on every state of the memory. The state's half of the
    critic is the same both times: counted once, the limit would be 7 % lower.
    """
    actor, actor_back = actor_products(observation, action)
    targets = 2 * memory * (actor + critic_products(observation, action))
    return 2 * (steps * batch * (actor + actor + actor_back) + targets)


def actor_products(observation: int, action: int, hidden: Sequence[int] = (128, 128)) -> tuple[int, int]:
    """Multiply-adds per state of an actor: forward, and back to its hidden layers."""
    layers = [m * n for m, n in pairwise((observation, *hidden, action))]
    return sum(layers), sum(layers[1:])


def critic_products(observation: int, action: int) -> int:
    """Multiply-adds per state of a critic, forward."""
    return (observation + action) * BRANCH + 2 * BRANCH * JOINT + JOINT


def teaching_flops(observation: int, action: int, batch: int, critic_steps: int, actor_steps: int) -> int:
    """FLOPs that the matrix products of TD3's critic steps and of lessons need, actor and critics of 400-300.

    A critic step: the target policy and both target critics forward; both critics forward, for their weights, and back
    to the hidden layers. A step of a lesson: actor and first critic forward, back through the critic to the action, and
    the actor's weights and hidden layers.
    """
    actor, actor_back = actor_products(observation, action, (400, 300))
    critic, critic_back = actor_products(observation + action, 1, (400, 300))
    critic_step = actor + 2 * critic + 2 * (critic + critic + critic_back)
    actor_step = actor + critic + critic_back + action * 400 + actor + actor_back
    return 2 * batch * (critic_steps * critic_step + actor_steps * actor_step)


def gemm_timer(repeats: int = 100, tries: int = 5) -> Callable[[], dict[str, float]]:
    """A function that gives the seconds per FLOP of the GEMM, by NumPy and by XLA, each the median of a few tries."""
    m, k, n = GEMM
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    out = np.empty((m, n), np.float32)

    def numpy_products() -> None:
        for _ in range(repeats):
            np.matmul(a, b, out=out)

    @partial(jax.jit, compiler_options=EIGEN)
    def xla_products(a, b):
        def product(_, carry):
            y = carry[0] @ b
            return carry[0].at[0, 0].set(1e-3 * y[0, 0]), y  # each waits for the last, so none can be left out

        return jax.lax.fori_loop(0, repeats, product, (a, jnp.zeros((m, n))))

    on_device = jax.device_put((a, b))
    makers = {"numpy": numpy_products, "xla": lambda: xla_products(*on_device)}
    for work in makers.values():
        seconds(work)
    per_flop = lambda work: median(seconds(work) for _ in range(tries)) / (repeats * 2 * m * k * n)
    return lambda: {name: per_flop(work) for name, work in makers.items()}


def beside_gemm(
    name: str, flops: int, work: Callable[[], Any], rounds: int, calls: int, target: float | None = None
) -> Row:
    """The ms per call of some work that makes so many, beside the FLOPs of a call at the better GEMM rate of the round."""
    seconds(work)  # compiles
    gemm = gemm_timer()
    pairs = [(gemm(), 1e3 * seconds(work) / calls) for _ in range(rounds)]
    limits = [1e3 * flops * min(rates.values()) for rates, _ in pairs]
    more = {"flops": flops, "gemm_gflops": {by: [1e-9 / rates[by] for rates, _ in pairs] for by in pairs[0][0]}}
    limit_is = f"{flops / 1e6:,.2f} MFLOP at {1e-6 * flops / median(limits):.1f} GFLOP/s"
    return row(name, "ms", [spent for _, spent in pairs], limits, limit_is, target=target, **more)


def physics(actions: np.ndarray, threads: int) -> float:
    """Seconds of bare MuJoCo steps with these actions, [episodes, frames, |A|]; a thread plays whole episodes."""
    import mujoco  # here, so that the peak memory of a generation is measured without it

    model, skip = cheetah()
    worlds = [mujoco.MjData(model) for _ in actions]

    def play(episodes: range) -> None:
        for k in episodes:
            control = worlds[k].ctrl
            for action in actions[k]:
                control[:] = action
                mujoco.mj_step(model, worlds[k], nstep=skip)  # without the GIL

    crew = [threading.Thread(target=play, args=(range(k, len(actions), threads),)) for k in range(threads)]
    begun = time.perf_counter()
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    return time.perf_counter() - begun


@cache
def cheetah() -> tuple[Any, int]:
    """The task's MuJoCo model, and its physics steps per frame."""
    from genepool.environments.engines import gymnasium as gymnasium_engine

    environment = gymnasium_engine.make(ALGORITHM.task.id).unwrapped
    return environment.model, environment.frame_skip


def in_company(part: Callable[[int, bool], list[Row]]) -> Callable[[int, bool], list[Row]]:
    """The part, measured when the processes that play beside this one are there: a run hires them after some seconds."""

    @wraps(part)
    def measure(threads: int, quick: bool) -> list[Row]:
        crew.gather(threads - 1)
        return part(threads, quick)

    return measure


def played(candidates: Sequence[Candidate]) -> list[Outcome]:
    """The outcomes of candidates, with everything built anew that has to be built for them."""
    workers = LocalWorkers(ALGORITHM.task)
    outcomes = workers.map(candidates)
    workers.close()
    return outcomes


def actions_of(outcomes: Sequence[Outcome]) -> np.ndarray:
    """What was done, [episodes, frames, |A|]: no episode of HalfCheetah ends before its time."""
    return np.stack([outcome.transitions.action for outcome in outcomes]).astype(np.float64)


def full(capacity: int) -> buffer.Buffer:
    """A ring filled with random rows."""
    rng = np.random.default_rng(0)
    draw = lambda *width: jnp.asarray(rng.standard_normal((capacity, *width), np.float32))
    data = Transitions(draw(SIZES[0]), jnp.tanh(draw(SIZES[1])), draw(), draw(SIZES[0]), jnp.zeros(capacity))
    return buffer.Buffer(data, jnp.int32(capacity), jnp.int32(0))


def update(threads: int, quick: bool) -> list[Row]:
    """A DDPG update, of 1000 in one call, on a full replay; and the same written plainly, which tells what our pains are worth."""
    learner, steps, replay = ALGORITHM.learner, 100 if quick else 1000, full(ALGORITHM.replay)
    k_actor, k_learner, k_update = jax.random.split(jax.random.key(0), 3)
    sizes = *SIZES, ALGORITHM.hidden, learner.batch_size
    usual, least = usual_flops(*sizes), update_flops(*sizes)

    def measure(name: str, target: float | None) -> Row:
        state = learner.init(k_learner, Actor(k_actor, *SIZES))
        work = lambda: learner.update(k_update, state, replay, steps)
        return beside_gemm(f"{name}, {spelt(threads)}", usual, work, 1 if quick else 9, steps, target)

    ours = measure("DDPG update", 1.35 if threads == 1 else 1.5)
    limits = [limit * least / usual for limit in ours["limit_rounds"]]
    name, limit_is = f"{ours['name']}: beside the least", f"{least / 1e6:,.2f} MFLOP, without what nobody needs"
    with plainly():
        plain = measure("the same written plainly", None)
    return [ours, row(name, "ms", ours["rounds"], limits, limit_is), plain]


@contextmanager
def plainly() -> Iterator[None]:
    """DDPG as one would write it first: JAX's own products, functions and gradients, and optax's Adam."""
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
        mock.patch.multiple(networks, matmul=jnp.matmul, elu=jax.nn.elu, layer_norm=layer_norm),
        mock.patch.multiple(ddpg, Adam=Adam, adam_init=Adam(0.0, 1.0)._rule.init),
    ):
        yield


def distillation(threads: int, quick: bool) -> list[Row]:
    """One child of two parents with full memories."""
    crossover, learner = ALGORITHM.evolver.crossover, ALGORITHM.learner
    k_x, k_y, k_learner, k_cross = jax.random.split(jax.random.key(0), 4)
    memory = full(ALGORITHM.memory)
    x, y = (jax.device_get(Individual(Actor(key, *SIZES), memory)) for key in (k_x, k_y))
    critic = learner.critic(learner.init(k_learner, Actor(k_x, *SIZES)))
    steps = int(crossover.steps(memory.size))
    flops = distillation_flops(*SIZES, ALGORITHM.memory, steps, crossover.batch_size)
    work = lambda: genetic.cross(crossover, k_cross, x, y, critic)
    return [beside_gemm(f"distilling a child, {spelt(threads)}", flops, work, 1 if quick else 15, 1, target=2.0)]


def teaching(threads: int, quick: bool) -> list[Row]:
    """CEM-RL's gradient phase: so many critic steps, then five lessons of as many steps each; and these stacked."""
    algorithm, steps, lessons = genepool.cem_rl("HalfCheetah-v5"), 100 if quick else 400, 5
    learner, replay = algorithm.learner, full(algorithm.replay)
    k_actor, k_learner, k_critic, k_lesson = jax.random.split(jax.random.key(0), 4)
    actor = jax.device_get(Actor(k_actor, *SIZES, algorithm.hidden, algorithm.layer_norm))
    state, data = learner.init(k_learner, actor), np.asarray(jax.random.key_data(k_lesson))
    shared = replay.data.observation, replay.size

    def candidates(learning: Any, steps: int) -> list[Candidate]:
        lesson = Lesson(learner, data, learner.teacher(learning), *shared, np.asarray(steps))
        return [Candidate(Individual(actor, None), lesson=lesson)] * lessons

    def work() -> list[Individual]:
        return local.individuals_to_play(
            candidates(learner.update_critic(k_critic, state, actor, replay, steps), steps)
        )

    flops = teaching_flops(*SIZES, learner.batch_size, steps, lessons * steps)
    name = f"CEM-RL's gradients per frame, {spelt(threads)}"
    whole = beside_gemm(name, flops // steps, work, 1 if quick else 5, steps, target=1.8)

    # what genepool does not do: all lessons as one program, the actors and their teachers along a leading axis
    few, axis = steps // 4, lambda tree: jax.tree.map(lambda leaf: jnp.stack([leaf] * lessons), tree)
    lesson = partial(offpolicy._improve.__wrapped__, learner, Adam(learner.actor_rate))
    improve = jax.jit(jax.vmap(lesson, (0, 0, 0, None, None, None)), compiler_options=EIGEN)
    given = axis(jax.random.fold_in(k_lesson, 0)), axis((actor, adam_init(actor))), axis(learner.teacher(state))
    both = (lambda: improve(*given, *shared, few), lambda: local.individuals_to_play(candidates(state, few)))
    alike = [np.asarray(both[0]()[0].output.weight[0]), both[1]()[0].actor.output.weight]  # compiles
    pairs = [[1e3 * seconds(one) for one in both] for _ in range(1 if quick else 15)]
    rounds, limits = zip(*pairs, strict=True)
    limit_is = f"the same in threads; {'the same' if np.array_equal(*alike) else 'other'} bits"
    return [whole, row(f"{few} steps of five lessons stacked, {spelt(threads)}", "ms", rounds, limits, limit_is)]


@in_company
def acting(threads: int, quick: bool) -> list[Row]:
    """An episode of each of ten candidates, with everything that has to be built for them."""
    actors = [jax.device_get(Actor(key, *SIZES)) for key in jax.random.split(jax.random.key(0), 10)]
    candidates = [Candidate(Individual(actor, None), seeds=(k,)) for k, actor in enumerate(actors)]
    play = lambda: played(candidates)
    actions = actions_of(play())  # compiles
    pairs = [(seconds(play), physics(actions, threads)) for _ in range(1 if quick else 15)]
    rounds, limits = zip(*pairs, strict=True)
    limit_is = f"mj_step alone, {actions.shape[0]} x {actions.shape[1]} frames"
    return [row(f"acting, {spelt(threads)}", "s", rounds, limits, limit_is, target=1.8, engine=ALGORITHM.task.engine)]


@in_company
def population(threads: int, quick: bool) -> list[Row]:
    """A generation of an evolution strategy: an episode of each of 50 mirrored pairs of 512-512, and where its time goes."""
    mean, *noise = (
        jax.device_get(Actor(key, *SIZES, (512, 512), False, "relu"))
        for key in jax.random.split(jax.random.key(0), 3 if quick else 51)
    )
    actors = [jax.tree.map(lambda m, e, s=s: m + s * e, mean, pair) for pair in noise for s in (0.1, -0.1)]
    candidates = [Candidate(Individual(actor, None), seeds=(k,)) for k, actor in enumerate(actors)]
    play = lambda: played(candidates)
    actions = actions_of(play())  # compiles
    works, limits, spent = [], [], []
    for _ in range(1 if quick else 5):
        works.append(seconds(play))
        limits.append(physics(actions, threads))
        spent.append(_spent(play))
    name, limit_is = f"population, {spelt(threads)}", f"mj_step alone, {actions.shape[0]} x {actions.shape[1]} frames"
    shared = lambda what: row(f"{name}: {what}", "s", [one[what] for one in spent], limits, "mj_step alone")
    return [row(name, "s", works, limits, limit_is, target=2.0), *map(shared, ("policies", "engine", "beginnings"))]


@in_company
def iteration(threads: int, quick: bool) -> list[Row]:
    """An iteration of GPO's mutation: eight policies play 2048 steps each, then learn, with nobody and with everyone near.

    The limit is what the target allows: 1.5 times mj_step for the frames and 1.8 times the FLOPs of the updates at GEMM speed.
    It is the second iteration of a round; in the first one of 36 it is also found out who is near.
    """
    alone = genepool.gpo("HalfCheetah-v5", sharing=genepool.Sharing(kl=0.0))
    key, workers, timer, rows = jax.random.key(0), LocalWorkers(alone.task), gemm_timer(), []
    for name, kl in (("nobody", 0.0), ("everyone", 1e9)):
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
        flops = mutation_flops(*SIZES, 8 * 2048, 1 if name == "nobody" else 8)
        spent = [
            (
                seconds(lambda c=candidates: workers.map(c)),
                seconds(lambda a=algorithm, s=state: a.learn(key, s).learner),
            )
            for _ in range(1 if quick else 9)
        ]
        raw = [(physics(actions, threads), flops * min(timer().values())) for _ in spent]
        label = f"{name} near, {spelt(threads)}"
        both = [sum(pair) for pair in spent], [1.5 * a + 1.8 * b for a, b in raw]
        rows.append(row(f"GPO's iteration, {label}", "s", *both, "1.5 mj_step + 1.8 FLOPs", target=1.0))
        if name == "nobody":
            rows.append(row(f"GPO's acting, {label}", "s", [a for a, _ in spent], [a for a, _ in raw], "mj_step alone"))
        limit_is = f"{flops / 1e6:,.0f} MFLOP"
        rows.append(row(f"GPO's learning, {label}", "s", [b for _, b in spent], [b for _, b in raw], limit_is))
        rows.append(stacked(algorithm, key, state, label, quick))
    return rows


def stacked(algorithm: Any, key: jax.Array, state: Any, label: str, quick: bool) -> Row:
    """The updates of all policies as one program, which genepool does not make of them, beside one for each in threads."""
    mutation, m, near = algorithm.mutation, algorithm.population, state.learner.near
    judge = lambda i: mutation.judge(
        trees.take(state.learner.members, i), Batch(*(column[i] for column in state.batch))
    )
    members, shared, returns = (trees.stack(part) for part in zip(*map(judge, range(m)), strict=True))
    critic, keys = mutation.critic, [jax.random.fold_in(key, i) for i in range(m)]
    order = lambda k: ppo.rows_by_step(k, algorithm.batch, critic.epochs, critic.minibatches)
    improve = partial(ppo._improved.__wrapped__, mutation, algorithm.sharing)
    together = jax.jit(jax.vmap(improve, ([None, 0], 0, 0, None, 0, 0)))

    def at_once() -> Any:
        orders = np.stack([order(jax.random.split(k)[1]) for k in keys])
        return together([None, orders], members, np.arange(m), shared, returns, near)

    def one_by_one() -> Any:
        one = lambda i: mutation.improve(
            keys[i], trees.take(members, i), i, shared, returns[i], near[i], algorithm.sharing
        )
        return map_on_cores(one, range(m))

    both = (at_once, one_by_one)
    for work in both:
        seconds(work)  # compiles
    pairs = [[seconds(work) for work in both] for _ in range(1 if quick else 9)]
    rounds, limits = zip(*pairs, strict=True)
    return row(f"GPO's updates stacked, {label}", "s", rounds, limits, "the same, each in a thread")


def mutation_flops(observation: int, action: int, samples: int, near: int) -> int:
    """FLOPs of the matrix products of one update of PPO (64-64, ten steps) and its critic (32-32, ten), on all policies' samples.

    Forward, for the weights, and back to the hidden layers; the policy's on the rows of `near` policies. Advantages and
    probabilities take one more forward pass of the policy and two of the critic.
    """
    policy, policy_back = actor_products(observation, action, (64, 64))
    critic, critic_back = actor_products(observation, 1, (32, 32))
    steps = 10 * (near * (2 * policy + policy_back) + 2 * critic + critic_back)
    return 2 * samples * (steps + policy + 2 * critic)


def _spent(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds that this process, one of a crew, spends with policies, with the engine's steps, and with its first ones."""
    spans: dict[str, list[float]] = {}

    def timed(what: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            begun = time.perf_counter()
            try:
                return do(*arguments)
            finally:
                spans.setdefault(what, []).append(time.perf_counter() - begun)

        return call

    engine = type(ALGORITHM.task.open())
    with (
        mock.patch.object(local.Crowd, "act", timed("policies", local.Crowd.act)),
        mock.patch.object(engine, "step", timed("engine", engine.step)),
        mock.patch.object(engine, "begin", timed("beginnings", engine.begin)),
    ):
        work()
    return {what: sum(parts) for what, parts in spans.items()}


@in_company
def generation(threads: int, quick: bool) -> list[Row]:
    """Whole generations with replay and memories full: where the time goes, and the most memory held."""
    hasty = replace(ALGORITHM, updates_per_frame=0.001)  # compiles everything without learning much
    workers = LocalWorkers(ALGORITHM.task)
    k_init, k_first, *keys = jax.random.split(jax.random.key(0), 3 if quick else 4)
    state = saturated(*synchronous(hasty, workers, k_first, ALGORITHM.init(k_init), Clock()))
    records, played = [], []
    for key in keys:
        clock, begun = Clock(), time.perf_counter()
        with timed_crossover() as distilling:
            state, outcomes = synchronous(hasty if quick else ALGORITHM, workers, key, state, clock)
        record = clock.seconds | {"whole": time.perf_counter() - begun, "distillation": covered(distilling)}
        records.append(record | {"children": len(distilling), "frames": sum(o.frames for o in outcomes)})
        played.append(actions_of(outcomes))
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + sum(mate.peak() for mate in crew.gather(0))
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    for record, actions in zip(records, played, strict=True):
        record["physics"] = physics(actions, threads)
    target = {"target": 2000, "target_is_of": "measured"}
    return [*shares(records), row("peak memory", "MB", [peak / 1e6], [held / 1e6], "the arrays of the state", **target)]


def saturated(state: InjectionState, outcomes: Sequence[Outcome]) -> InjectionState:
    """The state with replay and memories full of what was just played, written as training writes it."""
    rows = [outcome.transitions for outcome in outcomes]
    members = state.evolver.members
    replay, memories, memory = state.experience.replay, members.memory, state.experience.memory
    frames = outcomes[0].frames
    for k in range(replay.capacity // frames):
        replay = buffer.record(replay, rows[k % len(rows)])
    for _ in range(memory.capacity // frames):
        memories, memory = buffer.record_each(memories, rows[:-1]), buffer.record(memory, rows[-1])  # the last explored
    evolver = replace(state.evolver, members=Individual(members.actor, memories))
    return replace(state, evolver=evolver, experience=replace(state.experience, replay=replay, memory=memory))


@contextmanager
def timed_crossover() -> Iterator[list[tuple[float, float]]]:
    """Collects when every crossover began and ended."""
    spans, cross = [], genetic.cross

    def timed(*arguments: Any) -> tuple[Individual, ...]:
        begun = time.perf_counter()
        children = jax.block_until_ready(cross(*arguments))
        spans.append((begun, time.perf_counter()))
        return children

    with mock.patch.object(genetic, "cross", timed):
        yield spans


def covered(spans: Sequence[tuple[float, float]]) -> float:
    """Seconds in which at least one of the spans was under way: children may be made side by side."""
    total, last = 0.0, 0.0
    for begun, ended in sorted(spans):
        total += max(0.0, ended - max(begun, last))
        last = max(last, ended)
    return total


def shares(records: list[dict[str, float]]) -> list[Row]:
    """Parts of a generation beside the whole, and its pace beside the authors'."""
    whole = [r["whole"] for r in records]
    within = lambda name, parts, **more: row(f"generation: {name}", "s", parts, whole, "the whole generation", **more)
    phases = [within(name, [r[name] for r in records]) for name in ("learning", "distillation", "acting", "physics")]
    rest = [r["whole"] - r["learning"] - r["distillation"] - r["physics"] for r in records]
    pace = [1e3 * r["whole"] / r["frames"] for r in records]
    name, authors = f"a frame, {1e3 / median(pace):.0f} per second", "the authors' code, NOT measured here"
    return [
        *phases,
        within("all but gradient steps and physics", rest, target=0.1, generations=records),
        row(name, "ms", pace, [AUTHORS_MS_PER_FRAME], authors),
    ]


def memory(threads: int, quick: bool) -> list[Row]:
    """The memory of a full replay: the bytes of its arrays, which are written in place and never copied."""
    capacity, width = ALGORITHM.replay, 2 * SIZES[0] + SIZES[1] + 2
    arrays = sum(leaf.nbytes for leaf in jax.tree.leaves(buffer.empty(capacity, *SIZES)))
    limit_is = f"{capacity:,} rows of {width} float32"
    return [row("replay", "MB", [arrays / 1e6], [4 * capacity * width / 1e6], limit_is, target=1.2)]


def cluster(threads: int, quick: bool) -> list[Row]:
    """What a Ray worker adds to a candidate of CEM-RL's size: from issue to outcome, less the worker's own time.

    Its episode has one frame, so that transitions take no time to speak of. Beside it, a Ray call that does nothing.
    """
    import ray

    from genepool.workers.ray.driver import RayWorkers

    task = replace(ALGORITHM.task, max_steps=1)
    actors = [jax.device_get(Actor(key, *SIZES, (400, 300), False)) for key in jax.random.split(jax.random.key(0), 20)]
    candidates = [Candidate(Individual(actor, None), (k,), number=k) for k, actor in enumerate(actors)]
    workers = RayWorkers(task, 1)

    def alone() -> list[float]:
        for candidate in candidates:
            workers.submit(candidate)
            workers.next(wait=True)
        spent = [1e3 * (timing.elapsed - timing.worker) for timing in workers.timings]
        workers.timings.clear()
        return spent

    try:
        alone()
        nothing = ray.remote(num_cpus=0)(lambda: None)
        ray.get(nothing.remote())
        pairs = [(median(alone()), _call_ms(ray, nothing)) for _ in range(1 if quick else 9)]
    finally:
        workers.close()
    ours, bare = zip(*pairs, strict=True)
    name, target = "Ray's overhead per candidate", {"target": 5.0, "target_is_of": "measured"}
    return [row(name, "ms", ours, bare, "a Ray call that does nothing", **target)]


def _call_ms(ray: Any, nothing: Any) -> float:
    return 1e3 * median(seconds(lambda: ray.get(nothing.remote())) for _ in range(20))


def startup(threads: int, quick: bool) -> list[Row]:
    """`genepool --help`, beside an interpreter that does nothing."""
    commands = [Path(sys.executable).with_name("genepool"), "--help"], [sys.executable, "-c", "pass"]
    run = lambda command: seconds(lambda: subprocess.check_output(command))
    ours, bare = zip(*[[run(command) for command in commands] for _ in range(1 if quick else 5)], strict=True)
    target = {"target": 1.0, "target_is_of": "measured"}
    return [row(f"genepool --help, at best {min(ours):.3f}", "s", ours, bare, "python -c pass", **target)]


def spelt(threads: int) -> str:
    """1 thread, 2 threads."""
    return f"{threads} thread{'s' * (threads > 1)}"


ALL = (update, acting, population, iteration, distillation, teaching, generation, cluster, memory, startup)
PARTS = {part.__name__: part for part in ALL}
