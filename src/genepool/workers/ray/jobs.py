"""What `RayWorkers` keeps of its workers and of the candidates that are on their way."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from genepool.types import Candidate, Outcome


@dataclass(eq=False)
class Call:
    """A candidate on its way: what is sent for it, with how many it may be sent, how often it was lost, what came of it."""

    candidate: Candidate
    message: bytes
    references: dict[str, list[Any]]
    share: int
    submitted: bool
    losses: int = 0
    outcome: Outcome | None = None


@dataclass(eq=False)
class Errand:
    """What a worker was sent for, and when: calls, or only to say that it is there."""

    calls: list[Call]
    begun: float


@dataclass(eq=False)
class Hand:
    """A worker as the driver knows it."""

    player: Any  # Ray's handle
    errand: Errand | None = None
    dead: bool = False

    @property
    def ready(self) -> bool:
        """Whether it is known to be there."""
        return self.errand is None or bool(self.errand.calls)


class Timing(NamedTuple):
    """Seconds that a candidate's errand took: from issue to outcome, and of these on the worker in all, learning and acting."""

    number: int
    elapsed: float
    worker: float
    lesson: float
    acting: float
