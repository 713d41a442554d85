"""How the parts measure: rounds of some work, each followed by a limit of this machine."""

import threading
import time
from collections.abc import Callable, Sequence
from functools import cache, partial, wraps
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import genepool
from benchmarks.parts.flops import BRANCH, JOINT
from genepool import Candidate, LocalWorkers, Outcome, Transitions, buffer
from genepool.workers import processes
from genepool.xla import EIGEN

Row = dict[str, Any]
ALGORITHM = genepool.pderl("HalfCheetah-v5")
SIZES = ALGORITHM.task.observation_size, ALGORITHM.task.action_size
GEMM = (128, 2 * BRANCH, JOINT)  # the largest product of an update: a batch through the critic's joint layer


def row(name: str, unit: str, rounds: Sequence[float], limits: Sequence[float], limit_is: str, **more: Any) -> Row:
    """A line of the report. The target is the largest ratio that is accepted, or the largest measured figure."""
    series = {"rounds": list(rounds), "limit_rounds": list(limits), "limit_is": limit_is}
    return {"name": name, "unit": unit, "target": None, "target_is_of": "ratio"} | series | more


def seconds(work: Callable[[], Any]) -> float:
    """How long the work takes, with what JAX computes in the background."""
    begun = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - begun


def gemm_timer(repeats: int = 100, tries: int = 5) -> Callable[[], dict[str, float]]:
    """A function that measures the seconds per FLOP of the GEMM, by NumPy and by XLA: the median of a few tries."""
    m, k, n = GEMM
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k), np.float32)
    b = rng.standard_normal((k, n), np.float32)
    out = np.empty((m, n), np.float32)

    def numpy_products() -> None:
        for _ in range(repeats):
            np.matmul(a, b, out=out)

    @partial(jax.jit, compiler_options=EIGEN)
    def xla_products(a: jax.Array, b: jax.Array) -> Any:
        def product(_: jax.Array, carry: Any) -> Any:
            y = carry[0] @ b
            return carry[0].at[0, 0].set(1e-3 * y[0, 0]), y  # each product needs the last one, so XLA leaves none out

        return jax.lax.fori_loop(0, repeats, product, (a, jnp.zeros((m, n))))

    on_device = jax.device_put((a, b))
    makers = {"numpy": numpy_products, "xla": lambda: xla_products(*on_device)}
    for work in makers.values():
        seconds(work)
    flops = repeats * 2 * m * k * n

    def seconds_per_flop() -> dict[str, float]:
        return {name: median(seconds(work) for _ in range(tries)) / flops for name, work in makers.items()}

    return seconds_per_flop


def with_gemm_limit(
    name: str, flops: int, work: Callable[[], Any], rounds: int, calls: int, target: float | None = None
) -> Row:
    """Milliseconds per call of work that makes `calls` of them. The limit is a call's FLOPs at the best GEMM rate."""
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

    players = [threading.Thread(target=play, args=(range(k, len(actions), threads),)) for k in range(threads)]
    begun = time.perf_counter()
    for thread in players:
        thread.start()
    for thread in players:
        thread.join()
    return time.perf_counter() - begun


@cache
def cheetah() -> tuple[Any, int]:
    """The task's MuJoCo model, and its physics steps per frame."""
    from genepool.environments.engines import gymnasium as gymnasium_engine

    environment = gymnasium_engine.make(ALGORITHM.task.id).unwrapped
    return environment.model, environment.frame_skip


def with_worker_processes(part: Callable[[int, bool], list[Row]]) -> Callable[[int, bool], list[Row]]:
    """The part, measured with the worker processes started: a run starts them only after some seconds."""

    @wraps(part)
    def measure(threads: int, quick: bool) -> list[Row]:
        processes.pool.start_now(threads - 1)
        return part(threads, quick)

    return measure


def outcomes_of(candidates: Sequence[Candidate]) -> list[Outcome]:
    """The outcomes of candidates, played by new workers."""
    workers = LocalWorkers(ALGORITHM.task)
    outcomes = workers.map(candidates)
    workers.close()
    return outcomes


def actions_of(outcomes: Sequence[Outcome]) -> np.ndarray:
    """The actions, [episodes, frames, |A|]: every episode of HalfCheetah lasts until the time limit."""
    return np.stack([outcome.transitions.action for outcome in outcomes]).astype(np.float64)


def full_replay(capacity: int) -> buffer.Buffer:
    """A ring filled with random rows."""
    rng = np.random.default_rng(0)

    def draw(*width: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal((capacity, *width), np.float32))

    data = Transitions(draw(SIZES[0]), jnp.tanh(draw(SIZES[1])), draw(), draw(SIZES[0]), jnp.zeros(capacity))
    return buffer.Buffer(data, jnp.int32(capacity), jnp.int32(0))


def thread_label(threads: int) -> str:
    """1 thread, 2 threads."""
    return f"{threads} thread{'s' * (threads > 1)}"
