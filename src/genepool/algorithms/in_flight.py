"""Candidates that were handed out and have not come back.

A lost candidate is issued again. A result that arrives twice is accepted once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import equinox as eqx
import numpy as np

from genepool.errors import UserError
from genepool.types import Candidate, Outcome

MEMBER = 1  # the kinds that several couplings have
EXPLORING = 2
SPAN = 4_096  # the smallest size of the ring


class Asked(NamedTuple):
    """A candidate that is to be made: its number, and what it is."""

    number: int  # in order of asking
    kind: int  # the coupling's own: a member, an exploration, ...
    place: int  # in the evolver's own sequence; -1 if it is not the evolver's
    again: bool  # whether it was issued before and was lost


class InFlight(eqx.Module):
    """The latest candidates by number, in a ring."""

    asked: np.ndarray  # candidates issued so far
    told_count: np.ndarray  # outcomes accepted so far
    out: np.ndarray  # [span] int8: 0 came back; k > 0 is out, of kind k; -k is lost, to be issued again
    place: np.ndarray  # [span]

    @property
    def span(self) -> int:
        """The size of the ring: the largest distance in number between two candidates that are out."""
        return len(self.out)

    def upcoming(self, n: int, new: Iterator[tuple[int, int]]) -> list[Asked]:
        """The next n candidates: lost ones first, unchanged, then new ones. `new` gives kind and place of the new ones.

        Fewer than n if an old candidate that is still out holds the ring's entry of a new one.
        """
        if n > self.span:
            raise UserError(f"at most {self.span:,} candidates can be out at once, not {n:,}: ask for fewer")
        first = int(self.asked)
        lost = [number for number in range(max(0, first - self.span), first) if self.out[number % self.span] < 0][:n]
        asked = [Asked(k, -int(self.out[k % self.span]), int(self.place[k % self.span]), True) for k in lost]
        for number in range(first, first + n - len(lost)):
            if self.out[number % self.span]:
                break
            asked.append(Asked(number, *next(new), False))
        return asked

    def issue(self, asked: Sequence[Asked]) -> "InFlight":
        """The register with these out."""
        out = self.out.copy()
        place = self.place.copy()
        for one in asked:
            out[one.number % self.span] = one.kind
            place[one.number % self.span] = one.place
        new = sum(not one.again for one in asked)
        return replace(self, asked=self.asked + new, out=out, place=place)

    def label(self, candidate: Candidate, one: Asked) -> Candidate:
        """The candidate with its number and place, and with the count of outcomes accepted so far."""
        return replace(candidate, number=one.number, place=one.place, version=int(self.told_count))

    def accept(self, outcomes: Sequence[Outcome]) -> tuple[list[Outcome], "InFlight"]:
        """The outcomes of candidates that are out, in order of asking, each once; and the register without them."""
        accepted: dict[int, Outcome] = {}
        out = self.out.copy()
        for outcome in sorted(outcomes, key=lambda outcome: outcome.candidate.number):
            number = outcome.candidate.number
            if out[number % self.span] and number >= int(self.asked) - self.span:
                accepted[number] = outcome
                out[number % self.span] = 0
        return list(accepted.values()), replace(self, told_count=self.told_count + len(accepted), out=out)

    def staleness(self, outcomes: Sequence[Outcome]) -> list[int]:
        """How many others were accepted since each of these was asked for. They are the latest, accepted one by one."""
        before = int(self.told_count) - len(outcomes)
        return [before + k - outcome.candidate.version for k, outcome in enumerate(outcomes)]

    def forget_workers(self) -> "InFlight":
        """The register in which all that are out are lost: after a resume no worker has them."""
        return replace(self, out=-np.abs(self.out))


class HasInFlight(Protocol):
    """The state of a coupling, a dataclass with such a register."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    in_flight: InFlight


S = TypeVar("S", bound=HasInFlight)


def new_in_flight(generation_size: int) -> InFlight:
    """An empty register, with room for two generations."""
    span = max(SPAN, 1 << (2 * generation_size - 1).bit_length())
    zero = np.zeros((), np.int64)
    return InFlight(zero, zero, np.zeros(span, np.int8), np.full(span, -1, np.int64))


def draw_seeds(rng: np.random.Generator, n: int) -> tuple[int, ...]:
    """Environment seeds, one per episode."""
    return tuple(int(seed) for seed in rng.integers(2**31 - 1, size=n))


def forget_workers(self: object, state: S) -> S:
    """The state in which all candidates that are out are issued again: after a resume no worker has them."""
    return replace(state, in_flight=state.in_flight.forget_workers())
