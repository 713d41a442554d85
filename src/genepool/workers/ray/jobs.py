"""What `RayWorkers` keeps of its workers and of the candidates that are sent to them."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from genepool.types import Candidate, Outcome, Transitions

Reference = Any  # Ray's ObjectRef


@dataclass(eq=False)
class Job:
    """A candidate to try, until its outcome has come."""

    candidate: Candidate
    message: bytes  # the packed candidate
    references: dict[str, list[Reference]]  # to the arrays that are not in the message
    share: int  # how many jobs may be sent to a worker together with this one
    submitted: bool  # whether `next` returns its outcome, not `map`
    losses: int = 0  # how often it was lost with its worker
    outcome: Outcome | None = None


@dataclass(eq=False)
class Request:
    """The jobs that a worker was sent, and when. A request without jobs is a greeting: a worker answers it on start."""

    jobs: list[Job]
    begun: float


class Reply(NamedTuple):
    """What a worker sends back for a job."""

    actor: bytes | None  # after its lesson; None if there was none: the driver has the actor, or computes it by itself
    returns: tuple[float, ...]
    transitions: Transitions
    reference: tuple[tuple[float, ...], int]  # returns and frames
    seconds: tuple[float, float, float]  # in all, learning and acting
    lengths: tuple[int, ...]


@dataclass(eq=False)
class WorkerHandle:
    """A Ray worker as the driver knows it."""

    actor: Any  # Ray's handle of the `RayWorker`
    request: Request | None = None  # not answered yet
    dead: bool = False

    @property
    def ready(self) -> bool:
        """Whether it has answered its latest greeting."""
        return self.request is None or bool(self.request.jobs)


class Timing(NamedTuple):
    """Seconds of a candidate: from request to reply, and of these on the worker in all, learning and acting."""

    number: int
    elapsed: float
    worker: float
    lesson: float
    acting: float


class JobQueue:
    """The jobs without an outcome: those that wait for a worker, and those that are with one."""

    def __init__(self):
        self._waiting: deque[Job] = deque()
        self._unfinished: set[Job] = set()

    def __len__(self) -> int:
        return len(self._unfinished)

    @property
    def waiting(self) -> int:
        """Jobs that wait for a worker."""
        return len(self._waiting)

    def add(self, job: Job) -> None:
        """Let a new job wait."""
        self._unfinished.add(job)
        self._waiting.append(job)

    def next_jobs(self) -> list[Job]:
        """The jobs for the next free worker: the first that waits, and as many others as its share allows."""
        jobs: list[Job] = []
        while self._waiting and (not jobs or len(jobs) < min(jobs[0].share, self._waiting[0].share)):
            job = self._waiting.popleft()
            if job in self._unfinished:  # else its outcome came after it was issued again
                jobs.append(job)
        return jobs

    def finish(self, jobs: Sequence[Job]) -> set[Job]:
        """Remove these jobs. The jobs among them that were unfinished until now."""
        finished = self._unfinished.intersection(jobs)
        self._unfinished -= finished
        return finished

    def repeat(self, jobs: Sequence[Job]) -> list[Job]:
        """Let lost jobs wait again, before all others; each is sent alone, as any of them may be the reason."""
        lost = [job for job in jobs if job in self._unfinished]
        for job in lost:
            job.share = 1
            job.losses += 1
        self._waiting.extendleft(reversed(lost))
        return lost

    def clear(self) -> None:
        """Forget all jobs."""
        self._waiting.clear()
        self._unfinished.clear()
