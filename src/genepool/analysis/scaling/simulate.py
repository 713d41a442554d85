"""How fast CEM-RL, P-CEM-RL and AES-RL would be on W workers (AES-RL Table 1 and its Appendix F), on a simulated clock.

The schedules are the real ones; the algorithms and episodes are stand-ins that take the steps' time and nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np

from genepool.analysis.scaling.simulated_costs import NOBODY, PretendedAESRL, PretendedCEMRL, PretendedWorkers, Tally
from genepool.errors import UserError
from genepool.schedule import generation
from genepool.types import Candidate
from genepool.workers.virtual import Costs, VirtualWorkers

MOST_CANDIDATES = 2_000  # simulated; where episodes are short, fewer frames and a warm-up that is shorter in proportion

# Table 1, minutes per million frames. Which way P-CEM-RL's critic went there is not said
PUBLISHED = {
    task: {("CEM-RL", 1): serial, ("P-CEM-RL", 5): parallel, ("AES-RL", 5): five, ("AES-RL", 9): nine}
    for task, serial, parallel, five, nine in (
        ("HalfCheetah", 467, 187, 83, 54),
        ("Walker2d", 487, 205, 105, 77),
        ("Hopper", 505, 188, 133, 91),
    )
}


@dataclass(frozen=True)
class System:
    """A system and how it is run."""

    name: str
    schedule: str  # as the table calls it
    tests: int = 0  # episodes of each test of the mean, by one worker while all wait
    test_every: int = 0  # frames between two tests
    parallel_critic: bool = False  # learns at its own pace beside the generations, without a limit


SYSTEMS = {
    "cem-rl": System("CEM-RL", "serial", tests=10, test_every=5_000),
    "p-cem-rl": System("P-CEM-RL", "synchronous", tests=1),
    "p-cem-rl apart": System("P-CEM-RL", "critic apart", tests=1, parallel_critic=True),
    "aes-rl": System("AES-RL", "asynchronous"),
}


@dataclass(frozen=True)
class Row:
    """What a system does on so many workers."""

    system: str
    schedule: str
    workers: int
    minutes: float  # per million frames
    idle: float  # share of the workers' time; a synchronous critic is one of the workers at work
    staleness: float  # tells between a candidate's ask and its tell, on average
    most_staleness: int
    critic_per_frame: float  # critic steps
    lessons: float  # share of the candidates that took one
    speed_up: float = 1.0  # over the serial CEM-RL
    efficiency: float = 1.0  # T_1 / (W T_W), of the same system


def simulate(
    algorithm: str, costs: Costs, lengths: Sequence[int], workers: Sequence[int], frames: float = 1_000_000
) -> list[Row]:
    """The system (cem-rl, p-cem-rl or aes-rl) and those before it in that list, on each number of workers.

    `lengths` are those of some episodes; the simulated ones are drawn from them.
    """
    if algorithm not in ("cem-rl", "p-cem-rl", "aes-rl"):
        raise UserError(f"no stand-in for {algorithm!r}: simulate cem-rl, p-cem-rl or aes-rl")
    if not len(lengths) or min(lengths) < 1 or not workers or min(workers) < 1 or frames <= 0:
        raise UserError("to simulate takes episodes of 1 frame or more, 1 worker or more and frames above 0")
    names = list(SYSTEMS)
    shown = names[: 3 if algorithm == "p-cem-rl" else names.index(algorithm) + 1]
    serial = _run(SYSTEMS["cem-rl"], 1, costs, lengths, frames)
    rows = [serial]
    for system in (SYSTEMS[name] for name in shown[1:]):
        alone = _run(system, 1, costs, lengths, frames)
        for count in workers:
            row = alone if count == 1 else _run(system, count, costs, lengths, frames)
            rows.append(
                replace(
                    row,
                    speed_up=_ratio(serial.minutes, row.minutes),
                    efficiency=_ratio(alone.minutes, count * row.minutes),
                )
            )
    return rows


def _ratio(a: float, b: float) -> float:
    return a / b if b else float("inf")


def _run(system: System, count: int, costs: Costs, lengths: Sequence[int], frames: float) -> Row:
    """Train the stand-in until the frames are played and all who are out are told, and read the clock."""
    scale = min(1.0, MOST_CANDIDATES * float(np.mean(lengths)) / frames)
    start = PretendedCEMRL.start * scale
    algorithm = PretendedAESRL(start) if system.schedule == "asynchronous" else PretendedCEMRL(start)
    charged = replace(costs, critic=0.0) if system.parallel_critic else costs
    workers = VirtualWorkers(PretendedWorkers(lengths), count, charged)
    key = jax.random.key(0)
    state, tested = algorithm.init(key), 0
    while state.frames < frames * scale:
        left = frames * scale - state.frames
        state, _ = generation(algorithm, workers, jax.random.fold_in(key, state.told), state, frames=left)
        if system.tests and state.frames - tested >= system.test_every:
            workers.map([Candidate(NOBODY, (0,) * system.tests, number=state.told, purpose="champion test")])
            tested = state.frames
    return _row(system, workers, costs, state)


def _row(system: System, workers: VirtualWorkers, costs: Costs, state: Tally) -> Row:
    critic_steps, busy = state.learner, workers.busy_seconds
    if system.parallel_critic:
        critic_steps = workers.now / costs.critic if costs.critic else float("inf")
    elif system.schedule != "asynchronous":
        busy += workers.seconds.get("learning", 0.0)
    return Row(
        system=system.name,
        schedule=system.schedule,
        workers=workers.count,
        minutes=workers.now / 60 / state.frames * 1e6,
        idle=max(0.0, 1.0 - _ratio(busy, workers.count * workers.now)) if workers.now else 0.0,
        staleness=state.lag / state.told,
        most_staleness=state.most_lag,
        critic_per_frame=critic_steps / state.frames,
        lessons=state.taught / state.told,
    )


def published(task: str) -> dict[tuple[str, int], float]:
    """Table 1's minutes by system and workers, if the task is one of its three."""
    return PUBLISHED.get(task.partition("-")[0], {})
