"""The errors that genepool raises, and the checks and the hint that many modules share."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any


class UserError(ValueError):
    """Says in one line what is wrong and what to do next. The command line prints it and exits with code 2."""


class EpisodeFailed(Exception):
    """An environment raised an exception. `episode` is its index in the batch; the cause is chained to it."""

    def __init__(self, episode: int):
        super().__init__(episode)
        self.episode = episode


def did_you_mean(word: str, known: Iterable[str], stem: Callable[[str], str] = str) -> str:
    """The known words that are spelt most like this one, as a question in parentheses; empty if there is none.

    Words are compared by their stems. Of several known words with one stem the last in alphabetical order is shown.
    """
    by_stem = {stem(name): name for name in sorted(known)}
    similar = [by_stem[match] for match in get_close_matches(stem(word), by_stem, n=3, cutoff=0.6)]
    return f" (did you mean {' or '.join(similar)}?)" if similar else ""


def check_at_least(least: float, holder: Any, *names: str) -> None:
    """Refuse a value below `least` in one of these fields."""
    for name in names:
        if not getattr(holder, name) >= least:
            raise UserError(f"{name.replace('_', ' ')} is {getattr(holder, name)}: it must be {least:g} or more")


def check_seed(seed: int) -> None:
    """Refuse a negative seed."""
    if seed < 0:
        raise UserError(f"the seed must be 0 or more, not {seed}")
