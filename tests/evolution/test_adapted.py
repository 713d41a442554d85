"""What `adapted` accepts as an evolver: an evolver, or a strategy. Anything else is refused."""

from dataclasses import dataclass

import pytest

from genepool.errors import UserError
from genepool.evolution.distribution.adapter import VectorEvolver, adapted
from genepool.evolution.distribution.cem import CEM


def test_an_evolver_is_returned_unchanged():
    evolver = adapted(CEM())
    assert isinstance(evolver, VectorEvolver)
    assert adapted(evolver) is evolver


class Method:
    """A method that is never called."""

    def __call__(self):
        raise AssertionError


class NoTell:
    """A strategy without `tell`."""

    population = 2
    init = ask = mean = report = Method()


@dataclass(frozen=True)
class NoPopulation:
    """An evolver without `population`."""

    init = ask = tell = inject = champion = report = Method()


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (3, "int is no evolver: it has no method 'init'"),
        (NoTell(), "NoTell is no evolver: it has no method 'tell'"),
        (NoPopulation(), "NoPopulation is no evolver: it has no field 'population'"),
    ],
)
def test_anything_else_is_refused_in_one_line(thing, said):
    with pytest.raises(UserError, match=said) as refusal:
        adapted(thing)
    assert "\n" not in str(refusal.value)
