"""Parts that play: ten candidates, a generation of an evolution strategy, a candidate on Ray."""

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any
from unittest import mock

import jax

from benchmarks.parts.measuring import (
    ALGORITHM,
    SIZES,
    Row,
    actions_of,
    outcomes_of,
    physics,
    row,
    seconds,
    thread_label,
    with_worker_processes,
)
from genepool import Candidate, Individual
from genepool.acting.batch import ActorBatch
from genepool.networks import Actor


@with_worker_processes
def acting(threads: int, quick: bool) -> list[Row]:
    """An episode of each of ten candidates, played by new workers."""
    actors = [jax.device_get(Actor(key, *SIZES)) for key in jax.random.split(jax.random.key(0), 10)]
    candidates = [Candidate(Individual(actor, None), seeds=(k,)) for k, actor in enumerate(actors)]
    play = lambda: outcomes_of(candidates)
    actions = actions_of(play())  # compiles
    pairs = [(seconds(play), physics(actions, threads)) for _ in range(1 if quick else 15)]
    rounds, limits = zip(*pairs, strict=True)
    limit_is = f"mj_step alone, {actions.shape[0]} x {actions.shape[1]} frames"
    return [
        row(f"acting, {thread_label(threads)}", "s", rounds, limits, limit_is, target=1.8, engine=ALGORITHM.task.engine)
    ]


@with_worker_processes
def population(threads: int, quick: bool) -> list[Row]:
    """A generation of an evolution strategy: an episode of each of 50 mirrored pairs, and where the time goes."""
    mean, *noise = (
        jax.device_get(Actor(key, *SIZES, (512, 512), False, "relu"))
        for key in jax.random.split(jax.random.key(0), 3 if quick else 51)
    )
    actors = [jax.tree.map(lambda m, e, s=s: m + s * e, mean, pair) for pair in noise for s in (0.1, -0.1)]
    candidates = [Candidate(Individual(actor, None), seeds=(k,)) for k, actor in enumerate(actors)]
    play = lambda: outcomes_of(candidates)
    actions = actions_of(play())  # compiles
    works: list[float] = []
    limits: list[float] = []
    spent: list[dict[str, float]] = []
    for _ in range(1 if quick else 5):
        works.append(seconds(play))
        limits.append(physics(actions, threads))
        spent.append(_seconds_by_kind(play))
    name, limit_is = (
        f"population, {thread_label(threads)}",
        f"mj_step alone, {actions.shape[0]} x {actions.shape[1]} frames",
    )
    shared = lambda what: row(f"{name}: {what}", "s", [one[what] for one in spent], limits, "mj_step alone")
    return [row(name, "s", works, limits, limit_is, target=2.0), *map(shared, ("policies", "engine", "beginnings"))]


def _seconds_by_kind(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds that this process spends with policies, with the engine's steps, and with the starts of episodes."""
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
        mock.patch.object(ActorBatch, "act", timed("policies", ActorBatch.act)),
        mock.patch.object(engine, "step", timed("engine", engine.step)),
        mock.patch.object(engine, "begin", timed("beginnings", engine.begin)),
    ):
        work()
    return {what: sum(parts) for what, parts in spans.items()}


def cluster(threads: int, quick: bool) -> list[Row]:
    """What a Ray worker adds to a candidate of CEM-RL's size: from issue to outcome, less the worker's own time.

    Its episode has one frame, so transitions take almost no time. The limit is a Ray call that does nothing.
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
        pairs = [(median(alone()), _empty_call_ms(ray, nothing)) for _ in range(1 if quick else 9)]
    finally:
        workers.close()
    ours, bare = zip(*pairs, strict=True)
    name, target = "Ray's overhead per candidate", {"target": 5.0, "target_is_of": "measured"}
    return [row(name, "ms", ours, bare, "a Ray call that does nothing", **target)]


def _empty_call_ms(ray: Any, nothing: Any) -> float:
    return 1e3 * median(seconds(lambda: ray.get(nothing.remote())) for _ in range(20))
