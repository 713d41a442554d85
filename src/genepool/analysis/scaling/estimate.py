"""How long a run will take on this machine, and how much memory, from a short measurement.

Gradient steps are measured in a scaled-down run: its episodes are cut to 100 frames, and its warm-ups and head starts
in proportion. So learning begins after seconds, and every program is compiled that a real run compiles. Playing and
breeding are measured in two generations of full length, of which the second counts. A crossover of GPO's is measured
twice, each time after as many iterations as it looks back on, and the second counts. The rest is arithmetic.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import jax

from genepool.learning.lessons import GradientLesson
from genepool.protocols import Algorithm
from genepool.runs.training import start
from genepool.schedule import Clock, synchronous
from genepool.types import Candidate, Individual
from genepool.workers import processes
from genepool.workers.local import LocalWorkers, process_count

EPISODE = 100  # frames of an episode in the scaled-down run
ENOUGH = 5  # of its generations with gradient steps
FEWEST = 4  # of its generations, if it takes no gradient steps
PATIENCE = 120.0  # seconds after which the scaled-down run ends in any case
IN_FRAMES = ("warmup", "random_frames", "critic_head_start")  # settings that count frames from the beginning


@dataclass(frozen=True)
class Measured:
    """The measured parts of a run, in seconds, frames and bytes."""

    start: float  # until it trains: imports and compilation
    generation: float  # playing and breeding a generation of full length
    generation_frames: float
    test: float  # of all policies that are tested
    test_every: int  # generations
    step: float  # a gradient step of the learner
    steps_per_frame: float  # once it learns
    frames_before_learning: float  # before it learns
    lessons: float  # per frame, once individuals take lessons
    memory: float  # bytes, the peak so far
    row: float  # bytes of a transition in the replay
    rows: int  # the capacity of the replay
    crossover: float = 0.0  # between two rounds of GPO's
    crossover_frames: int = 0
    crossover_every: int = 1  # generations
    crossovers: int = 0  # at most


@dataclass(frozen=True)
class Estimate:
    """Seconds by what they are spent on, and bytes of memory."""

    seconds: dict[str, float]
    memory: float

    @property
    def total(self) -> float:
        """Seconds in all."""
        return sum(self.seconds.values())


def predict(measured: Measured, frames: float) -> Estimate:
    """The time and memory of a run of so many frames. The last generation is played to its end."""
    round_frames = measured.crossover_every * measured.generation_frames + measured.crossover_frames
    crossed = min(frames // round_frames, measured.crossovers)
    generations = crossed * measured.crossover_every - (
        -(frames - crossed * round_frames) // measured.generation_frames
    )
    played = generations * measured.generation_frames
    learning = max(0.0, played - measured.frames_before_learning)
    seconds = {
        "starting and compiling": measured.start,
        "acting and breeding": generations * measured.generation,
        "learning": learning * measured.steps_per_frame * measured.step + learning * measured.lessons,
        "tests": -(-generations // measured.test_every) * measured.test,
    } | ({"crossovers": crossed * measured.crossover} if measured.crossovers else {})
    # the replay is allocated from the beginning; a checkpoint copies its filled part
    return Estimate(seconds, measured.memory + measured.row * min(played, measured.rows))


def measure(algorithm: Algorithm, begun: float) -> Measured:
    """Measure an algorithm on this machine. `begun` is how many seconds ago the process was started."""
    small = scaled_down(algorithm)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="estimate-") as folder:
        run = start(small, 1e15, 0, Path(folder) / "run")
        ready = time.perf_counter()
        records = []
        for record in run:
            records.append(record)
            if _enough(records) or time.perf_counter() - ready > PATIENCE:
                run.stop()
    if hasattr(algorithm, "min_utd"):
        algorithm = replace(algorithm, min_utd=0.0)  # no waiting for gradient steps that are not taken here
    workers = LocalWorkers(algorithm.task)
    count = process_count(algorithm.task.threads, algorithm.generation_size)
    helpers = processes.pool.start_now(count - 1)  # as a run does after a while
    try:
        state, generation, frames = _full_generation(algorithm, workers, run.state)
        test = _full_test(algorithm, workers, state)
        crossing = _crossing(algorithm, workers)
    finally:
        workers.close()
    replay = state.experience.replay if hasattr(state, "experience") else None
    return Measured(
        start=begun + ready - started + _compiling(records),
        generation=generation,
        generation_frames=frames,
        test=test,
        test_every=algorithm.test_every,
        **_learning(records, _scale(algorithm)),
        memory=_peak() + sum(helper.peak() for helper in helpers),
        row=sum(leaf.nbytes for leaf in replay.data) / replay.capacity if replay else 0.0,
        rows=replay.capacity if replay else 0,
        **crossing,
    )


def scaled_down(algorithm: Algorithm) -> Algorithm:
    """The same with shorter episodes and warm-ups, and without tests, which are measured on their own."""

    def cut(part: Any) -> dict[str, int]:
        return {name: getattr(part, name) // _scale(algorithm) for name in IN_FRAMES if hasattr(part, name)}

    task = replace(algorithm.task, max_steps=algorithm.task.horizon // _scale(algorithm))
    learner = getattr(algorithm, "learner", None)
    parts = cut(algorithm) | ({"learner": replace(learner, **cut(learner))} if learner else {})
    return replace(algorithm, task=task, test_every=sys.maxsize, **parts)


def _scale(algorithm: Algorithm) -> int:
    """How many times shorter the episodes of the scaled-down run are."""
    return max(1, algorithm.task.horizon // EPISODE)


def _updates(records: Sequence[dict[str, Any]]) -> list[int]:
    """Gradient steps of each generation."""
    totals = [record.get("updates", 0) for record in records]
    return [now - before for now, before in zip(totals, [0, *totals], strict=False)]


def _enough(records: Sequence[dict[str, Any]]) -> bool:
    if "updates" not in records[-1]:
        return len(records) >= FEWEST
    return sum(steps > 0 for steps in _updates(records)) >= ENOUGH


def _learning(records: Sequence[dict[str, Any]], scale: int) -> dict[str, float]:
    """The cost of gradient steps and lessons in the scaled-down run, and how many there are."""
    steps = _updates(records)
    frames = [record["frames"] for record in records]
    busy = [k for k, count in enumerate(steps) if count]
    if not busy:
        return {"step": 0.0, "steps_per_frame": 0.0, "frames_before_learning": 0.0, "lessons": 0.0}
    first = busy[0]
    later = busy[1:] or busy  # the first compiles, and may catch up on steps that are owed
    taken = sum(steps[k] for k in later)
    slope = taken / (frames[-1] - frames[first]) if frames[-1] > frames[first] else taken / frames[-1]
    return {
        "step": sum(records[k]["seconds"]["learning"] for k in later) / taken,
        "steps_per_frame": slope,
        "frames_before_learning": scale * max(0.0, frames[first] - steps[first] / slope),
        "lessons": _lessons(records),
    }


def _has_lessons(record: dict[str, Any]) -> bool:
    return any("lesson" in candidate["operators"] for candidate in record["candidates"])


def _lessons(records: Sequence[dict[str, Any]]) -> float:
    """Seconds per frame that acting takes longer if individuals take lessons."""
    paces: dict[bool, list[float]] = {False: [], True: []}
    for before, record in pairwise([{"frames": 0}, *records]):
        paces[_has_lessons(record)].append(record["seconds"]["acting"] / (record["frames"] - before["frames"]))
    without = paces[False][1:]  # the first of either compiles
    after = paces[True][1:]
    return max(0.0, median(after) - median(without)) if without and after else 0.0


def _compiling(records: Sequence[dict[str, Any]]) -> float:
    """Estimated seconds that JAX spent compiling during these generations.

    The first generation of each kind compiles, so it takes longer than the median of the others of its kind.
    A kind is: with or without gradient steps of the learner, and with or without lessons. A lesson is the gradient
    steps that an individual takes before it acts.
    """
    kinds: dict[tuple[bool, bool], list[float]] = {}
    for record, steps in zip(records, _updates(records), strict=True):
        kinds.setdefault((steps > 0, _has_lessons(record)), []).append(sum(record["seconds"].values()))
    return sum(max(0.0, first - median(others)) for first, *others in kinds.values() if others)


def _full_generation(algorithm: Algorithm, workers: LocalWorkers, state: Any) -> tuple[Any, float, int]:
    """The state after two generations of full length without learning; seconds and frames of the second."""
    at_once = algorithm.generation_size if algorithm.schedule == "synchronous" else 1
    for key in jax.random.split(jax.random.key(0)):  # the first compiles
        begun = time.perf_counter()
        frames = 0
        for part in range(algorithm.generation_size // at_once):
            k_ask, k_tell = jax.random.split(jax.random.fold_in(key, part))
            candidates, state = algorithm.ask(k_ask, state, at_once)
            outcomes = workers.map([_without_lesson(candidate) for candidate in candidates])
            state = jax.block_until_ready(algorithm.tell(k_tell, state, outcomes))
            frames += sum(outcome.frames for outcome in outcomes)
    return state, time.perf_counter() - begun, frames


def _without_lesson(candidate: Candidate) -> Candidate:
    """The candidate without its lesson, which is measured in the scaled-down run."""
    return replace(candidate, lesson=None) if isinstance(candidate.lesson, GradientLesson) else candidate


def _full_test(algorithm: Algorithm, workers: LocalWorkers, state: Any) -> float:
    """Seconds of a test of all policies that are tested."""
    seeds = tuple(range(algorithm.test_episodes))
    tests = [Candidate(Individual(actor, None), seeds) for actor in algorithm.policies(state).values()]
    for _ in range(2):  # the first compiles
        begun = time.perf_counter()
        workers.map(tests)
    return time.perf_counter() - begun


def _crossing(algorithm: Algorithm, workers: LocalWorkers) -> dict[str, Any]:
    """The time and frames of a crossover between two rounds, and how often there is one. Empty without rounds."""
    crossovers = getattr(algorithm, "crossovers", 0)
    if not crossovers:
        return {}
    back = min(algorithm.iterations, getattr(algorithm.crossover, "iterations", 1))
    small = replace(algorithm, rounds=3, iterations=back)
    state = small.init(jax.random.key(0))
    clock = Clock()
    outcomes = []
    for key in jax.random.split(jax.random.key(1), 2 * back):  # the first crossover compiles
        clock.clear()
        state, outcomes = synchronous(small, workers, key, state, clock)
    return {
        "crossover": sum(clock.seconds.get(phase, 0.0) for phase in ("selecting", "crossover", "exploring")),
        "crossover_frames": sum(o.frames for o in outcomes if o.candidate.purpose != "fitness"),
        "crossover_every": algorithm.iterations,
        "crossovers": crossovers,
    }


def _peak() -> float:
    """The peak memory of this process, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024.0 * most
