"""Workers on a simulated clock, and workers that repeat a recorded order.

Both play candidates and learn for real, in this process and at once; only when a result comes back is up to them. So an
asynchronous run, whose order of finishing is part of its result, can be had again to the last bit.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Any, NamedTuple

import jax
from jax import Array

from genepool.errors import UserError
from genepool.parts import part
from genepool.types import Candidate, LearningResult, Outcome

LEARNER = -1  # the learner's number among the workers
BORDER = "the end of a round"


@part
class Costs:
    """Seconds that one step of each kind takes."""

    critic: float  # c: a gradient step of the learner
    actor: float  # a: a gradient step of a lesson
    environment: float  # e: a step of the task, by a candidate or its reference


class Job(NamedTuple):
    """What a worker did from when to when: a bar of AES-RL's Fig. 1."""

    worker: int  # or LEARNER
    kind: str  # lesson, acting, reference or learning
    start: float
    end: float
    number: int  # the candidate's; -1 for learning


class VirtualWorkers:
    """`count` workers and one learner on a simulated clock: a result comes back when its steps' time is over.

    A candidate takes a * lesson steps + e * frames of its own and its reference's; learning takes c * steps. What ends
    at the same time comes back in the order in which it was begun.
    """

    def __init__(self, workers: Any, count: int, costs: Costs):
        if count < 1:
            raise UserError("a simulated clock needs 1 worker or more")
        self.workers = workers
        self.count = count
        self.costs = costs
        self.name = f"virtual:{count}"
        self.now = 0.0
        self.busy = 0
        self.learning = False
        self.trace: list[Job] = []
        self._free = [(0.0, worker) for worker in range(count)]  # a heap: since or until when
        self._ends: list[tuple[float, int, Outcome | LearningResult]] = []  # a heap: what is not handed out yet
        self._order = itertools.count()

    @property
    def idle(self) -> int:
        """Workers whose last candidate was handed out."""
        return self.count - self.busy

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Each to the worker that is free first, in order; the clock goes on until the last is done."""
        outcomes = self.workers.map(candidates)
        self.now = max([self.now, *(self._begin(outcome) for outcome in outcomes)])
        return outcomes

    def submit(self, candidate: Candidate) -> None:
        """Play it now; it comes back when its time is over."""
        (outcome,) = self.workers.map([candidate])
        heappush(self._ends, (self._begin(outcome), next(self._order), outcome))
        self.busy += 1

    def learn_in_background(self, learn: Callable[[Array, Any], Any], key: Array, state: Any, steps: int) -> None:
        """Learn now; it comes back when its time is over."""
        learnt = LearningResult(jax.block_until_ready(learn(key, state).learner))
        end = self.now + self.costs.critic * steps
        self.trace.append(Job(LEARNER, "learning", self.now, end, -1))
        heappush(self._ends, (end, next(self._order), learnt))
        self.learning = True

    def next(self, wait: bool) -> Outcome | LearningResult | None:
        """What ends first, if it has ended by now; to wait for it is to set the clock forward."""
        if not self._ends or not (wait or self._ends[0][0] <= self.now):
            return None
        end, _, done = heappop(self._ends)
        self.now = max(self.now, end)
        if isinstance(done, LearningResult):
            self.learning = False
        else:
            self.busy -= 1
        return done

    def _begin(self, outcome: Outcome) -> float:
        """Write the candidate's jobs down for the worker that is free first; when they end."""
        free, worker = self._free[0]
        candidate, end = outcome.candidate, max(free, self.now)
        jobs = [("acting", self.costs.environment * outcome.frames)]
        if candidate.lesson is not None:
            jobs.insert(0, ("lesson", self.costs.actor * int(candidate.lesson.steps)))
        if outcome.reference_frames:
            jobs.append(("reference", self.costs.environment * outcome.reference_frames))
        for kind, seconds in jobs:
            start, end = end, end + seconds
            self.trace.append(Job(worker, kind, start, end, candidate.number))
        heapreplace(self._free, (end, worker))
        return end

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds spent until now in jobs of each kind, summed over the workers."""
        seconds: dict[str, float] = {}
        for job in self.trace:
            spent = min(job.end, self.now) - min(job.start, self.now)
            seconds[job.kind] = seconds.get(job.kind, 0.0) + spent
        return seconds

    @property
    def busy_seconds(self) -> float:
        """Seconds that the workers spent at work until now, the learner not among them."""
        return sum(seconds for kind, seconds in self.seconds.items() if kind != "learning")

    @property
    def idle_share(self) -> float:
        """The share of the workers' time until now in which they did nothing."""
        return 1.0 - self.busy_seconds / (self.count * self.now) if self.now else 0.0

    def close(self) -> None:
        """Free what the inner workers hold."""
        self.workers.close()


class RecordedWorkers:
    """Hands results out in a recorded order: that of `events` in the records of an asynchronous run.

    `events` holds a list for each round, "ask 12", "tell 9", "learnt" in order. They may also stand in one list, as long
    as every round begins by asking: where a round ends is then seen from that.
    """

    name = "recorded"

    def __init__(self, workers: Any, events: Iterable[str | Sequence[str]]):
        self.workers = workers
        self._events: deque[str] = deque()
        for event in events:
            self._events.extend([event] if isinstance(event, str) else [*event, BORDER])
        self._place = 1  # of the event that comes, for messages
        self._over = False  # whether the round was said to be over
        self._played: dict[int, Outcome] = {}
        self._learnt: LearningResult | None = None

    @property
    def busy(self) -> int:
        """Candidates that were not handed out yet."""
        return len(self._played)

    @property
    def idle(self) -> int:
        """One where the record asks next or ends, or else none: then the schedule waits for what was told next."""
        return int(not self._coming.startswith(("tell", "learnt")))

    @property
    def learning(self) -> bool:
        """Whether something was learnt that was not handed out yet."""
        return self._learnt is not None

    @property
    def _coming(self) -> str:
        return self._events[0] if self._events else BORDER

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """The outcomes, from the inner workers."""
        return self.workers.map(candidates)

    def submit(self, candidate: Candidate) -> None:
        """Play it now; it comes back where it was told."""
        if self._coming != f"ask {candidate.number}":
            raise self._misfit(f"the run asks for candidate {candidate.number}")
        self._pass()
        (self._played[candidate.number],) = self.workers.map([candidate])

    def learn_in_background(self, learn: Callable[[Array, Any], Any], key: Array, state: Any, steps: int) -> None:
        """Learn now; it comes back where it was learnt."""
        self._learnt = LearningResult(jax.block_until_ready(learn(key, state).learner))

    def next(self, wait: bool) -> Outcome | LearningResult | None:
        """What the record hands out next; None where it asks or a round ends."""
        if self._over:  # and a new one has begun
            self._events.popleft()
            self._over = False
        coming = self._coming
        if coming == BORDER:
            self._over = bool(self._events)
        if coming == BORDER or coming.startswith("ask "):
            return None
        if coming == "learnt":
            done, self._learnt = self._learnt, None
        else:
            done = self._played.pop(_number(coming), None)
        if done is None:
            raise self._misfit("the run has no such thing under way")
        self._pass()
        return done

    def _pass(self) -> None:
        self._events.popleft()
        self._place += 1

    def _misfit(self, but: str) -> UserError:
        return UserError(f"the recorded order does not fit: event {self._place} is {self._coming}, but {but}")

    def close(self) -> None:
        """Free what the inner workers hold."""
        self.workers.close()


def _number(event: str) -> int:
    """The candidate in "tell 9"."""
    word, _, number = event.partition(" ")
    if word != "tell" or not number.isdigit():
        raise UserError(f'a recorded order is made of "ask 12", "tell 9" and "learnt", but holds "{event}"')
    return int(number)
