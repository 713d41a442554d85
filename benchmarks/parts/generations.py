"""Part: whole generations of PDERL, and where their time goes."""

import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import Any
from unittest import mock

import jax

from benchmarks.parts.measuring import ALGORITHM, Row, actions_of, physics, row, with_worker_processes
from genepool import Individual, LocalWorkers, Outcome, buffer
from genepool.algorithms.injection import InjectionState
from genepool.evolution.genetic import generational as genetic
from genepool.schedule import Clock, synchronous
from genepool.workers import processes

AUTHORS_MS_PER_FRAME = 13.0  # of the authors' code on their machine; not measured here


@with_worker_processes
def generation(threads: int, quick: bool) -> list[Row]:
    """Generations with replay and memories full: where the time goes, and the peak memory."""
    short = replace(ALGORITHM, updates_per_frame=0.001)  # compiles everything and learns little
    workers = LocalWorkers(ALGORITHM.task)
    k_init, k_first, *keys = jax.random.split(jax.random.key(0), 3 if quick else 4)
    state = filled_up(*synchronous(short, workers, k_first, ALGORITHM.init(k_init), Clock()))
    records = []
    played = []
    for key in keys:
        clock, begun = Clock(), time.perf_counter()
        with crossover_spans() as distilling:
            state, outcomes = synchronous(short if quick else ALGORITHM, workers, key, state, clock)
        record = clock.seconds | {"whole": time.perf_counter() - begun, "distillation": covered_seconds(distilling)}
        records.append(record | {"children": len(distilling), "frames": sum(o.frames for o in outcomes)})
        played.append(actions_of(outcomes))
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + sum(
        helper.peak() for helper in processes.pool.start_now(0)
    )
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    for record, actions in zip(records, played, strict=True):
        record["physics"] = physics(actions, threads)
    target = {"target": 2000, "target_is_of": "measured"}
    return [*shares(records), row("peak memory", "MB", [peak / 1e6], [held / 1e6], "the arrays of the state", **target)]


def filled_up(state: InjectionState, outcomes: Sequence[Outcome]) -> InjectionState:
    """The state with replay and memories filled with these outcomes, by the functions that training uses."""
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
def crossover_spans() -> Iterator[list[tuple[float, float]]]:
    """Collect when every crossover began and ended."""
    spans, cross = [], genetic.cross

    def timed(*arguments: Any) -> tuple[Individual, ...]:
        begun = time.perf_counter()
        children = jax.block_until_ready(cross(*arguments))
        spans.append((begun, time.perf_counter()))
        return children

    with mock.patch.object(genetic, "cross", timed):
        yield spans


def covered_seconds(spans: Sequence[tuple[float, float]]) -> float:
    """Seconds in which at least one span was under way: several children may be made at once."""
    total, last = 0.0, 0.0
    for begun, ended in sorted(spans):
        total += max(0.0, ended - max(begun, last))
        last = max(last, ended)
    return total


def shares(records: list[dict[str, float]]) -> list[Row]:
    """Parts of a generation against the whole, and its pace against that of the authors' code."""
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
