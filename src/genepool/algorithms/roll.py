"""The roll: which candidates are out, so that a lost one is asked for again and a doubled one is told once."""

from collections.abc import Sequence
from dataclasses import replace

import equinox as eqx
import numpy as np

from genepool.types import Outcome

SPAN = 4096  # candidates between the oldest that is out and the newest


class Roll(eqx.Module):
    """Candidates by number. `out` has a place for each of the latest: 0 told, k > 0 out as of kind k, -k to be asked again."""

    asked: np.ndarray
    told: np.ndarray
    out: np.ndarray  # [SPAN] int8

    def call(self, n: int) -> tuple[list[int], "Roll"]:
        """The next n numbers, those that were lost first, and the roll with them out as of kind 1."""
        asked, out = int(self.asked), self.out.copy()
        lost = [number for number in range(max(0, asked - SPAN), asked) if out[number % SPAN] < 0][:n]
        new = list(range(asked, asked + n - len(lost)))
        numbers = lost + new
        out[[number % SPAN for number in numbers]] = 1
        return numbers, replace(self, asked=self.asked + len(new), out=out)

    def mark(self, number: int, kind: int) -> "Roll":
        """The roll with the candidate out as of this kind."""
        out = self.out.copy()
        out[number % SPAN] = kind
        return replace(self, out=out)

    def accept(self, outcomes: Sequence[Outcome]) -> tuple[list[Outcome], "Roll"]:
        """The outcomes that are out, in order of asking, each once, and the roll with them told."""
        kept, out = {}, self.out.copy()
        for outcome in sorted(outcomes, key=lambda outcome: outcome.candidate.number):
            number = outcome.candidate.number
            if out[number % SPAN] and number >= int(self.asked) - SPAN:
                kept[number], out[number % SPAN] = outcome, 0
        return list(kept.values()), replace(self, told=self.told + len(kept), out=out)

    def kind(self, number: int) -> int:
        """What the candidate is out as, or was before it was lost."""
        return abs(int(self.out[number % SPAN]))

    def lose(self) -> "Roll":
        """The roll with everyone who is out to be asked again: after a checkpoint was read, nobody is at work."""
        return replace(self, out=-np.abs(self.out))


def new_roll() -> Roll:
    """Nobody was asked for yet."""
    return Roll(np.zeros((), np.int64), np.zeros((), np.int64), np.zeros(SPAN, np.int8))


def draw_seeds(rng: np.random.Generator, n: int) -> tuple[int, ...]:
    """Environment seeds, one per episode."""
    return tuple(int(seed) for seed in rng.integers(2**31 - 1, size=n))
