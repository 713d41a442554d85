"""Workers on a simulated clock, and workers that repeat a recorded order.

Both play candidates and learn for real, at once, in this process. They choose only when a result comes back.
An asynchronous run depends on that order, so with these workers it can be repeated bit for bit.
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
from genepool.protocols import Workers
from genepool.types import Candidate, LearningResult, Outcome

LEARNER = -1  # stands for the learner where workers have numbers
END_OF_ROUND = "the end of a round"


@part
class Costs:
    """Seconds that one step of each kind takes."""

    critic: float  # c: a gradient step of the learner
    actor: float  # a: a gradient step of a lesson
    environment: float  # e: a step of the task, by a candidate or its reference


class Activity(NamedTuple):
    """What a worker did, and its begin and end in seconds: a bar of AES-RL's Fig. 1."""

    worker: int  # its number, or LEARNER
    kind: str  # lesson, acting, reference or learning
    start: float
    end: float
    number: int  # the candidate's number; -1 for learning


class VirtualWorkers:
    """`count` workers and one learner on a simulated clock: a result comes back when the time of its steps is over.

    A candidate takes a * lesson steps + e * frames, its own and its reference's. Learning takes c * steps. Results that
    end at the same time come back in the order in which they began.
    """

    def __init__(self, workers: Workers, count: int, costs: Costs):
        if count < 1:
            raise UserError("a simulated clock needs 1 worker or more")
        self.workers = workers
        self.count = count
        self.costs = costs
        self.name = f"virtual:{count}"
        self.now = 0.0
        self.busy = 0
        self.learning = False
        self.trace: list[Activity] = []
        self._free = [(0.0, worker) for worker in range(count)]  # a heap: the time at which each worker is free
        self._ends: list[tuple[float, int, Outcome | LearningResult]] = []  # a heap: results not returned yet
        self._order = itertools.count()

    @property
    def idle(self) -> int:
        """Workers whose last outcome was returned."""
        return self.count - self.busy

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Each candidate, in order, goes to the worker that is free first. The clock moves to the last one's end."""
        outcomes = self.workers.map(candidates)
        self.now = max([self.now, *(self._begin(outcome) for outcome in outcomes)])
        return outcomes

    def submit(self, candidate: Candidate) -> None:
        """Play it now; `next` returns its outcome when its time is over."""
        (outcome,) = self.workers.map([candidate])
        heappush(self._ends, (self._begin(outcome), next(self._order), outcome))
        self.busy += 1

    def learn_in_background(self, learn: Callable[[Array, Any], Any], key: Array, state: Any, steps: int) -> None:
        """Learn now; `next` returns the result when its time is over."""
        result = LearningResult(jax.block_until_ready(learn(key, state).learner))
        end = self.now + self.costs.critic * steps
        self.trace.append(Activity(LEARNER, "learning", self.now, end, -1))
        heappush(self._ends, (end, next(self._order), result))
        self.learning = True

    def next(self, wait: bool) -> Outcome | LearningResult | None:
        """The result that ends first, if it has ended by now. To wait for it moves the clock on."""
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
        """Add the candidate's activities to the trace, on the worker that is free first. The time at which they end."""
        free, worker = self._free[0]
        candidate = outcome.candidate
        activities = [("acting", self.costs.environment * outcome.frames)]
        if candidate.lesson is not None:
            activities.insert(0, ("lesson", self.costs.actor * int(candidate.lesson.steps)))
        if outcome.reference_frames:
            activities.append(("reference", self.costs.environment * outcome.reference_frames))
        end = max(free, self.now)
        for kind, seconds in activities:
            start = end
            end = start + seconds
            self.trace.append(Activity(worker, kind, start, end, candidate.number))
        heapreplace(self._free, (end, worker))
        return end

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds spent until now in activities of each kind, summed over the workers."""
        seconds: dict[str, float] = {}
        for activity in self.trace:
            spent = min(activity.end, self.now) - min(activity.start, self.now)
            seconds[activity.kind] = seconds.get(activity.kind, 0.0) + spent
        return seconds

    @property
    def busy_seconds(self) -> float:
        """Seconds that the workers were busy until now, without the learner."""
        return sum(seconds for kind, seconds in self.seconds.items() if kind != "learning")

    @property
    def idle_share(self) -> float:
        """The share of the workers' time until now in which they did nothing."""
        return 1.0 - self.busy_seconds / (self.count * self.now) if self.now else 0.0

    def close(self) -> None:
        """Close the inner workers."""
        self.workers.close()


class RecordedWorkers:
    """Returns results in a recorded order: that of `events` in the records of an asynchronous run.

    `events` holds a list for each round: "ask 12", "tell 9", "learnt" in order. It may also be one list of all events
    if every round begins by asking.
    """

    name = "recorded"

    def __init__(self, workers: Workers, events: Iterable[str | Sequence[str]]):
        self.workers = workers
        self._events: deque[str] = deque()
        for entry in events:  # a string is one event, a list holds all events of a round
            self._events.extend([entry] if isinstance(entry, str) else [*entry, END_OF_ROUND])
        self._event_number = 1  # the next event's, for messages
        self._round_ended = False  # whether `next` has returned None for the end of the round
        self._outcomes: dict[int, Outcome] = {}  # by the candidate's number
        self._learning_result: LearningResult | None = None

    @property
    def busy(self) -> int:
        """Outcomes that were not returned yet."""
        return len(self._outcomes)

    @property
    def idle(self) -> int:
        """1 if the next event asks, or a round ends; else 0, so that the schedule waits for the recorded result."""
        return int(not self._next_event.startswith(("tell", "learnt")))

    @property
    def learning(self) -> bool:
        """Whether a result of learning was not returned yet."""
        return self._learning_result is not None

    @property
    def _next_event(self) -> str:
        return self._events[0] if self._events else END_OF_ROUND

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """The outcomes of the inner workers."""
        return self.workers.map(candidates)

    def submit(self, candidate: Candidate) -> None:
        """Play it now; `next` returns its outcome where the record tells it."""
        if self._next_event != f"ask {candidate.number}":
            raise self._mismatch(f"the run asks for candidate {candidate.number}")
        self._advance()
        (self._outcomes[candidate.number],) = self.workers.map([candidate])

    def learn_in_background(self, learn: Callable[[Array, Any], Any], key: Array, state: Any, steps: int) -> None:
        """Learn now; `next` returns the result where the record has it."""
        self._learning_result = LearningResult(jax.block_until_ready(learn(key, state).learner))

    def next(self, wait: bool) -> Outcome | LearningResult | None:
        """The next result of the record; None where the record asks or a round ends."""
        if self._round_ended:  # so this is a new round
            self._events.popleft()
            self._round_ended = False
        event = self._next_event
        if event == END_OF_ROUND:
            self._round_ended = bool(self._events)
            return None
        if event.startswith("ask "):
            return None
        if event == "learnt":
            done = self._learning_result
            self._learning_result = None
        else:
            done = self._outcomes.pop(_number(event), None)
        if done is None:
            raise self._mismatch("the run has no such result under way")
        self._advance()
        return done

    def _advance(self) -> None:
        self._events.popleft()
        self._event_number += 1

    def _mismatch(self, but: str) -> UserError:
        return UserError(
            f"the recorded order does not fit: event {self._event_number} is {self._next_event}, but {but}"
        )

    def close(self) -> None:
        """Close the inner workers."""
        self.workers.close()


def _number(event: str) -> int:
    """The candidate in "tell 9"."""
    word, _, number = event.partition(" ")
    if word != "tell" or not number.isdigit():
        raise UserError(f'a recorded order is made of "ask 12", "tell 9" and "learnt", but holds "{event}"')
    return int(number)
