"""Candidates that were handed out and have not come back: a lost one is issued again, a doubled one is accepted once."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from genepool.errors import UserError
from genepool.types import Outcome

MEMBER, EXPLORING = 1, 2  # kinds that several couplings have
SPAN = 4_096  # candidates between the oldest that is out and the newest, at least


class Asked(NamedTuple):
    """What a candidate is asked for as."""

    number: int  # in order of asking
    kind: int  # the coupling's own: a member, an exploration, ...
    place: int  # in the evolver's own sequence, -1 for none
    again: bool  # whether it was out before and was lost


class InFlight(eqx.Module):
    """Candidates by number, in a ring of the latest. `out`: 0 came back, k > 0 out as of kind k, -k to be issued again."""

    asked: np.ndarray
    told_count: np.ndarray  # outcomes accepted so far
    out: np.ndarray  # [span] int8
    place: np.ndarray  # [span]

    @property
    def span(self) -> int:
        """Candidates between the oldest that is out and the newest, at most."""
        return len(self.out)

    def upcoming(self, n: int, new: Iterator[tuple[int, int]]) -> list[Asked]:
        """The next n, lost ones first as what they were; `new` gives kind and place of the others in order.

        Fewer where the entry of a new one in the ring is still taken by an old one that is out.
        """
        if n > self.span:
            raise UserError(f"at most {self.span:,} candidates can be out at once, not {n:,}: ask for fewer at a time")
        first = int(self.asked)
        lost = [number for number in range(max(0, first - self.span), first) if self.out[number % self.span] < 0][:n]
        found = [Asked(k, -int(self.out[k % self.span]), int(self.place[k % self.span]), True) for k in lost]
        for number in range(first, first + n - len(lost)):
            if self.out[number % self.span]:
                break
            found.append(Asked(number, *next(new), False))
        return found

    def issue(self, asked: Sequence[Asked]) -> "InFlight":
        """The register with these out."""
        out, place = self.out.copy(), self.place.copy()
        for one in asked:
            out[one.number % self.span] = one.kind
            place[one.number % self.span] = one.place
        new = sum(not one.again for one in asked)
        return replace(self, asked=self.asked + new, out=out, place=place)

    def accept(self, outcomes: Sequence[Outcome]) -> tuple[list[Outcome], "InFlight"]:
        """The outcomes that are out, in order of asking, each once, and the register with them back."""
        kept, out = {}, self.out.copy()
        for outcome in sorted(outcomes, key=lambda outcome: outcome.candidate.number):
            number = outcome.candidate.number
            if out[number % self.span] and number >= int(self.asked) - self.span:
                kept[number], out[number % self.span] = outcome, 0
        return list(kept.values()), replace(self, told_count=self.told_count + len(kept), out=out)

    def staleness(self, outcomes: Sequence[Outcome]) -> list[int]:
        """Of outcomes accepted last, one after the other: how many others were accepted since each was asked for."""
        before = int(self.told_count) - len(outcomes)
        return [before + k - outcome.candidate.version for k, outcome in enumerate(outcomes)]

    def forget_workers(self) -> "InFlight":
        """The register with all that are out to be issued again: after a checkpoint was read, none is at work."""
        return replace(self, out=-np.abs(self.out))


def new_in_flight(generation: int) -> InFlight:
    """None was asked for yet. There is room for two generations."""
    span = max(SPAN, 1 << (2 * generation - 1).bit_length())
    zero = np.zeros((), np.int64)
    return InFlight(zero, zero, np.zeros(span, np.int8), np.full(span, -1, np.int64))


def draw_seeds(rng: np.random.Generator, n: int) -> tuple[int, ...]:
    """Environment seeds, one per episode."""
    return tuple(int(seed) for seed in rng.integers(2**31 - 1, size=n))


def forget_workers(self: Any, state: Any) -> Any:
    """The state with all candidates that are out to be issued again: after a checkpoint was read, none is at work."""
    return replace(state, in_flight=state.in_flight.forget_workers())
