"""How fast CEM-RL, P-CEM-RL and AES-RL would be on W workers (AES-RL Table 1 and its Appendix F), on a simulated clock.

The schedules are the real ones. The algorithms and episodes are simulated: they only take the time of their steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np

from genepool.analysis.scaling.simulated_costs import (
    NO_INDIVIDUAL,
    SimulatedAESRL,
    SimulatedCEMRL,
    SimulatedState,
    SimulatedWorkers,
)
from genepool.errors import UserError
from genepool.schedule import generation
from genepool.types import Candidate
from genepool.workers.virtual import Costs, VirtualWorkers

MOST_CANDIDATES = 2_000  # simulated; if episodes are short, frames and warm-up shrink in proportion

# AES-RL's Table 1, minutes per million frames. It does not say how P-CEM-RL's critic is scheduled
PUBLISHED = {
    task: {("CEM-RL", 1): serial, ("P-CEM-RL", 5): parallel, ("AES-RL", 5): five, ("AES-RL", 9): nine}
    for task, serial, parallel, five, nine in (
        ("HalfCheetah", 467, 187, 83, 54),
        ("Walker2d", 487, 205, 105, 77),
        ("Hopper", 505, 188, 133, 91),
    )
}


@dataclass(frozen=True)
class SimulatedSystem:
    """A system and its schedule."""

    name: str
    schedule: str  # as the table calls it
    tests: int = 0  # episodes of each test of the mean; one worker plays them while all others wait
    test_every: int = 0  # frames between two tests
    parallel_critic: bool = False  # learns at its own pace in the background, without a limit


SYSTEMS = {
    "cem-rl": SimulatedSystem("CEM-RL", "serial", tests=10, test_every=5_000),
    "p-cem-rl": SimulatedSystem("P-CEM-RL", "synchronous", tests=1),
    "p-cem-rl apart": SimulatedSystem("P-CEM-RL", "critic apart", tests=1, parallel_critic=True),
    "aes-rl": SimulatedSystem("AES-RL", "asynchronous"),
}


@dataclass(frozen=True)
class ScalingResult:
    """The speed and the losses of a system on so many workers."""

    system: str
    schedule: str
    workers: int
    minutes: float  # per million frames
    idle: float  # share of the workers' time; a synchronous critic counts as a busy worker
    staleness: float  # tells between a candidate's ask and its tell, on average
    most_staleness: int
    critic_per_frame: float  # critic steps
    lessons: float  # share of the candidates that took one
    speed_up: float = 1.0  # over the serial CEM-RL
    efficiency: float = 1.0  # T_1 / (W T_W), of the same system


def simulate(
    algorithm: str, costs: Costs, lengths: Sequence[int], workers: Sequence[int], frames: float = 1_000_000
) -> list[ScalingResult]:
    """The system (cem-rl, p-cem-rl or aes-rl) and those before it in that list, on each number of workers.

    `lengths` are those of some episodes; the simulated ones are drawn from them.
    """
    if algorithm not in ("cem-rl", "p-cem-rl", "aes-rl"):
        raise UserError(f"cannot simulate {algorithm!r}: choose cem-rl, p-cem-rl or aes-rl")
    if not len(lengths) or min(lengths) < 1 or not workers or min(workers) < 1 or frames <= 0:
        raise UserError("a simulation needs episodes of 1 frame or more, 1 worker or more and frames above 0")
    names = list(SYSTEMS)
    shown = names[: 3 if algorithm == "p-cem-rl" else names.index(algorithm) + 1]
    serial = _run(SYSTEMS["cem-rl"], 1, costs, lengths, frames)
    rows = [serial]
    for system in (SYSTEMS[name] for name in shown[1:]):
        alone = _run(system, 1, costs, lengths, frames)
        for count in workers:
            row = alone if count == 1 else _run(system, count, costs, lengths, frames)
            speed_up = _ratio(serial.minutes, row.minutes)
            efficiency = _ratio(alone.minutes, count * row.minutes)
            rows.append(replace(row, speed_up=speed_up, efficiency=efficiency))
    return rows


def _ratio(a: float, b: float) -> float:
    return a / b if b else float("inf")


def _run(system: SimulatedSystem, count: int, costs: Costs, lengths: Sequence[int], frames: float) -> ScalingResult:
    """Train the simulated algorithm until the frames are played and no candidate is in flight, and read the clock."""
    scale = min(1.0, MOST_CANDIDATES * float(np.mean(lengths)) / frames)
    start = SimulatedCEMRL.start * scale
    algorithm = SimulatedAESRL(start) if system.schedule == "asynchronous" else SimulatedCEMRL(start)
    charged = replace(costs, critic=0.0) if system.parallel_critic else costs
    workers = VirtualWorkers(SimulatedWorkers(lengths), count, charged)
    key = jax.random.key(0)
    state = algorithm.init(key)
    tested = 0
    while state.frames < frames * scale:
        left = frames * scale - state.frames
        state, _ = generation(algorithm, workers, jax.random.fold_in(key, state.told_count), state, frames=left)
        if system.tests and state.frames - tested >= system.test_every:
            workers.map(
                [Candidate(NO_INDIVIDUAL, (0,) * system.tests, number=state.told_count, purpose="champion test")]
            )
            tested = state.frames
    return _result(system, workers, costs, state)


def _result(system: SimulatedSystem, workers: VirtualWorkers, costs: Costs, state: SimulatedState) -> ScalingResult:
    critic_steps = state.learner
    busy = workers.busy_seconds
    if system.parallel_critic:
        critic_steps = workers.now / costs.critic if costs.critic else float("inf")
    elif system.schedule != "asynchronous":
        busy += workers.seconds.get("learning", 0.0)
    return ScalingResult(
        system=system.name,
        schedule=system.schedule,
        workers=workers.count,
        minutes=workers.now / 60 / state.frames * 1e6,
        idle=max(0.0, 1.0 - _ratio(busy, workers.count * workers.now)) if workers.now else 0.0,
        staleness=state.lag / state.told_count,
        most_staleness=state.most_lag,
        critic_per_frame=critic_steps / state.frames,
        lessons=state.accepted_lessons / state.told_count,
    )


def published_minutes(task: str) -> dict[tuple[str, int], float]:
    """Table 1's minutes by system and workers, if the task is one of its three."""
    return PUBLISHED.get(task.partition("-")[0], {})
