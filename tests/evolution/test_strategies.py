"""Every strategy climbs a quadratic bowl, asked and told in any portions."""

from itertools import product

import jax
import numpy as np
import pytest

from genepool.evolution.distribution.asynchronous import (
    AbsoluteBaseline,
    AdaptiveN,
    AsynchronousES,
    FixedN,
    FullMove,
    LinearRange,
    RelativeBaseline,
    SigmoidRange,
    SuccessRule,
)
from genepool.evolution.distribution.cem import CEM
from genepool.evolution.distribution.evosax import Evosax
from genepool.evolution.distribution.rank import RankES
from genepool.evolution.distribution.shared import Results

KEY = jax.random.key(0)
TOP = np.array([0.3, -0.2, 0.1, 0.4, -0.3], np.float32)
START = np.zeros(5, np.float32)  # 0.39 below the top


def height(vectors):
    """An upturned bowl: 0 at the top, -0.39 where the search starts."""
    return -np.sum((vectors - TOP) ** 2, axis=-1).astype(float)


def climb(part, portion, outcomes, sick=True, seed=0):
    """The height of the mean after so many outcomes, `portion` at a time. Every 17th fitness is NaN."""
    first = jax.random.key(seed)
    state = part.init(first, START)
    for begin in range(0, outcomes, portion):
        key = jax.random.fold_in(first, begin)
        vectors, state = part.ask(key, state, portion)
        fitness = height(vectors)
        if sick:
            fitness[np.arange(begin, begin + portion) % 17 == 16] = np.nan
        reference = np.full(portion, height(part.mean(state))) if part.needs_reference else None
        state = part.tell(key, state, Results(vectors, fitness, reference))
    return height(part.mean(state))


FLOOR = {"variance_floor": 1e-4, "initial_variance": 1e-2, "scale": 0.02}
RULES = {
    f"{type(mean_rule).__name__}-{type(variance_rule).__name__}": AsynchronousES(mean_rule, variance_rule, **FLOOR)
    for mean_rule, variance_rule in product(
        (FullMove(), LinearRange(), SigmoidRange(), AbsoluteBaseline(), RelativeBaseline()), (FixedN(), AdaptiveN())
    )
} | {"FullMove-SuccessRule": AsynchronousES(FullMove(), SuccessRule(), **FLOOR)}
STRATEGIES = {
    "CEM": CEM(initial_variance=1e-2, epsilon=1e-2),
    "RankES": RankES(initial_variance=1e-2, epsilon=1e-2, epsilon_decay=0.98),
    "RankES-worst": RankES(initial_variance=1e-2, epsilon=1e-2, epsilon_decay=0.98, replaces="worst"),
    "Sep_CMA_ES": ("Sep_CMA_ES", {"std": 0.1}),
    "Open_ES": ("Open_ES", {"std": 0.05, "rate": 0.02}),
} | RULES


def strategy(name):
    part = STRATEGIES[name]
    if isinstance(part, tuple):
        pytest.importorskip("evosax")
        return Evosax(part[0], **part[1])
    return part


@pytest.mark.parametrize("portion", [10, 1])
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_climbs_a_quadratic_bowl_asked_ten_by_ten_or_one_by_one(name, portion):
    """From 0.39 below the top to within 0.01, in 1000 outcomes, some of which are NaN.

    With AES-RL's rules to within 0.2, for worse individuals attract the mean too.
    """
    assert climb(strategy(name), portion, 1000) > (-0.2 if name in RULES else -0.01)
