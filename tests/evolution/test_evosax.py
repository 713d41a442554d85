"""The strategies of evosax: they maximise, they are asked and told in portions, and the others are refused."""

import importlib

import jax
import numpy as np
import pytest

from genepool.errors import UserError
from genepool.evolution.distribution import evosax
from genepool.evolution.distribution.evosax import Evosax
from genepool.evolution.distribution.shared import Results

KEY = jax.random.key(0)
TOP = np.array([0.3, -0.2, 0.1, 0.4, -0.3], np.float32)
START = np.zeros(5, np.float32)


def height(vectors):
    """An upturned bowl: 0 at the top."""
    return -np.sum((vectors - TOP) ** 2, axis=-1).astype(float)


@pytest.fixture
def sep_cma_es():
    pytest.importorskip("evosax")
    return Evosax("Sep_CMA_ES", std=0.1)


def test_a_strategy_of_evosax_maximises():
    pytest.importorskip("evosax")
    part = Evosax("Sep_CMA_ES", population=50, std=0.1)
    vectors, state = part.ask(KEY, part.init(KEY, START), 50)
    moved = part.tell(KEY, state, Results(vectors, vectors[:, 0].astype(float)))  # the first coordinate is the fitness
    assert part.mean(moved)[0] > 0.05
    np.testing.assert_array_equal(part.mean(state), START)


def test_a_strategy_of_evosax_begins_at_the_mean_with_the_given_spread():
    pytest.importorskip("evosax")
    wide = Evosax("Sep_CMA_ES", population=4000, std=0.1)
    sample = wide.init(KEY, TOP).sample
    np.testing.assert_allclose(sample.mean(axis=0), TOP, atol=0.008)  # 5 standard errors
    np.testing.assert_allclose(sample.std(axis=0), 0.1, rtol=0.06)


@pytest.mark.parametrize("portions", [(1,) * 10, (3, 7)])
def test_a_strategy_of_evosax_is_asked_and_told_in_portions(sep_cma_es, portions):
    part = sep_cma_es
    fresh = sep_cma_es.init(KEY, START)
    vectors, state = part.ask(KEY, fresh, 10)
    at_once = part.tell(KEY, state, Results(vectors, height(vectors)))
    state = fresh
    for n in portions:
        rows, state = part.ask(KEY, state, n)
        state = part.tell(KEY, state, Results(rows, height(rows)))
    jax.tree.map(np.testing.assert_array_equal, state, at_once)


def test_a_fitness_that_is_not_finite_counts_as_the_worst(sep_cma_es):
    part = sep_cma_es
    vectors, state = part.ask(KEY, part.init(KEY, START), 10)
    fitness = height(vectors)
    fitness[3] = fitness.min() - 1e-3  # alone at the bottom: what its fitness is changes no rank
    sick = np.where(np.arange(10) == 3, np.nan, fitness)
    one, other = (part.mean(part.tell(KEY, state, Results(vectors, f))) for f in (fitness, sick))
    np.testing.assert_allclose(one, other, atol=1e-6)
    wild = vectors.copy()
    wild[3] = np.nan  # weights after a lesson that diverged
    assert np.isfinite(part.mean(part.tell(KEY, state, Results(wild, fitness)))).all()
    np.testing.assert_array_equal(part.mean(part.tell(KEY, state, Results(vectors, np.full(10, np.nan)))), START)


def test_a_strategy_is_found_by_its_name_on_the_command_line():
    pytest.importorskip("evosax")
    assert Evosax.named("sep-cma-es") == Evosax("Sep_CMA_ES")
    assert Evosax.named("open-es").strategy == "Open_ES"
    assert Evosax.named("snes").strategy == "SNES"
    assert Evosax.named("no-such-es") is None


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("NoSuch_ES", "no strategy 'NoSuch_ES'"),
        ("base", "no strategy 'base'"),
        ("DifferentialEvolution", "no mean"),
        ("SimpleGA", "no mean"),
        ("MutationFeatureEncoding", "no strategy"),  # a class, but of something else
        ("SV_Open_ES", "no mean"),  # but several
    ],
)
def test_an_unusable_strategy_is_refused_in_one_line(strategy, said):
    pytest.importorskip("evosax")
    with pytest.raises(UserError, match=said) as refusal:
        Evosax(strategy)
    assert "\n" not in str(refusal.value)


def test_a_strategy_that_climbs_an_estimated_gradient_takes_no_lessons():
    pytest.importorskip("evosax")
    assert [Evosax(name).takes_lessons for name in ("Sep_CMA_ES", "CMA_ES")] == [True, True]
    assert [Evosax(name).takes_lessons for name in ("Open_ES", "PGPE", "SNES")] == [False, False, False]
    assert Evosax.has_upcoming
    assert not Evosax.needs_reference


@pytest.mark.parametrize(
    ("options", "said"), [({"population": 1}, "population is 1: a strategy needs 2"), ({"std": 0.0}, "std is 0.0")]
)
def test_invalid_settings_are_refused_by_name(options, said):
    with pytest.raises(UserError, match=said):
        Evosax("Sep_CMA_ES", **options)


def test_an_odd_population_of_mirrored_samples_is_refused_in_one_line():
    pytest.importorskip("evosax")
    with pytest.raises(UserError, match="even"):
        Evosax("Open_ES", population=7)


def test_where_evosax_is_not_installed_one_line_says_what_to_do(monkeypatch):
    real = importlib.import_module

    def missing(name, *rest):
        if name.startswith("evosax"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(evosax.importlib, "import_module", missing)
    evosax._compiled.cache_clear()
    with pytest.raises(UserError, match="evosax is not installed: pip install") as refusal:
        Evosax("Sep_CMA_ES")
    assert "\n" not in str(refusal.value)
    with pytest.raises(UserError, match="not installed"):
        Evosax.named("sep-cma-es")
