"""OpenAI-ES: telling in any portions and any order, mutation tuning after it, hindsight crossover."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_es import CLONE, KEY, LIKE, PLAIN, after_telling, all_played, asked, begun, made, played, same

from genepool import trees
from genepool.evolution.distribution.mirrored import centred_ranks
from genepool.evolution.distribution.openai_es import OpenAIES
from genepool.evolution.distribution.tuning import AutomaticMutationTuning, LinearTuning, huber
from genepool.evolution.genetic.crossover import ElementCopy, RowCopy
from genepool.networks import Actor
from genepool.types import Individual

# -- telling in any portions


def generations_outcomes(part, state, count, seed=0):
    """The state after asking for so many members, and their outcomes."""
    members, state = asked(part, state, count)
    return state, all_played(members, np.round(np.random.default_rng(seed).normal(size=count), 1))


@pytest.mark.parametrize("portions", [[1] * 12, [5, 7], [11, 1]])
def test_outcomes_told_in_portions_give_the_same_bits(portions):
    part = OpenAIES(pairs=6, injected=1)
    state, outcomes = generations_outcomes(part, part.inject(begun(part), CLONE), 12)
    at_once = after_telling(part, state, outcomes)
    parted = state
    for begin, count in zip(np.cumsum([0, *portions]), portions, strict=False):
        assert int(parted.generation) == 0
        parted = after_telling(part, parted, outcomes[begin : begin + count])
    assert int(at_once.generation) == 1
    assert same(parted, at_once)
    assert same(part.tune(parted), part.tune(at_once))


def test_what_is_left_of_a_portion_counts_for_the_next_generation():
    part = OpenAIES(pairs=6, injected=0)
    state, outcomes = generations_outcomes(part, begun(part), 17)
    at_once = after_telling(part, state, outcomes)
    parted = after_telling(part, after_telling(part, state, outcomes[:12]), outcomes[12:])
    assert (int(at_once.generation), int(at_once.count)) == (1, 5)
    assert same(at_once, parted)
    np.testing.assert_array_equal(at_once.last_returns, [o.fitness for o in outcomes[:12]])
    assert same(part.tune(at_once).sigma, part.tune(after_telling(part, state, outcomes[:12])).sigma)


def test_of_several_generations_told_at_once_each_has_a_key_of_its_own():
    part = OpenAIES(pairs=6, injected=0)
    state, outcomes = generations_outcomes(part, begun(part), 36)
    at_once = after_telling(part, state, outcomes)
    parted = state
    for i in range(3):
        key = jax.random.fold_in(KEY, i) if i else KEY
        parted = after_telling(part, parted, outcomes[12 * i : 12 * (i + 1)], key)
    assert int(at_once.generation) == 3
    assert same(at_once, parted)


def test_nothing_told_changes_nothing():
    part = OpenAIES(pairs=6, injected=0)
    state = begun(part)
    assert same(after_telling(part, state, []), state)


def test_the_mother_and_the_best_are_the_same_in_any_order_where_no_two_returns_are_equal():
    """The order of telling decides the row of a winner, and with it the draws of its crossover."""
    part = OpenAIES(pairs=6, injected=0)
    members, state = asked(part, begun(part))
    outcomes = all_played(members, np.random.default_rng(0).permutation(12))
    in_order = after_telling(part, state, outcomes)
    for shuffle in range(5):
        order = np.random.default_rng(shuffle).permutation(12)
        shuffled = after_telling(part, state, [outcomes[k] for k in order])
        for name in ("mother", "optimiser", "champion", "cosine", "seed", "generation"):
            assert same(getattr(shuffled, name), getattr(in_order, name)), name
        assert {b.tobytes() for b in shuffled.best} == {b.tobytes() for b in in_order.best}


def test_winners_keep_their_returns_in_any_order_and_the_first_of_equals_wins():
    part = OpenAIES(pairs=6, injected=0)
    members, state = asked(part, begun(part))
    fitness = np.round(np.random.default_rng(0).normal(size=11), 1)  # one is missing: the generation goes on
    fitness[[2, 5, 10]] = fitness.max()
    outcomes = all_played(members[:11], fitness)
    for shuffle in range(5):
        order = np.random.default_rng(shuffle).permutation(11)
        state_after = after_telling(part, state, [outcomes[k] for k in order])
        pairs = {(r, b.tobytes()) for r, b in zip(state_after.best_returns, state_after.best, strict=True)}
        assert pairs <= {(o.fitness, trees.flat(o.individual.actor).tobytes()) for o in outcomes}
        assert sorted(state_after.best_returns) == sorted(fitness)[-2:]
    ended = after_telling(part, state, [*outcomes, played(members[11], fitness.min())])
    np.testing.assert_array_equal(trees.flat(part.champion(ended)), made(members[2]))
    backwards = after_telling(part, state, [played(members[11], fitness.min()), *outcomes[::-1]])
    np.testing.assert_array_equal(trees.flat(part.champion(backwards)), made(members[10]))


def test_the_champion_is_the_best_of_the_last_generation_and_without_winners_the_mother():
    for options, has_winners in (({"injected": 0}, True), (PLAIN, False)):
        part = OpenAIES(pairs=6, **options)
        state = begun(part)
        assert same(part.champion(state), LIKE)
        members, state = asked(part, state)
        state = after_telling(part, state, all_played(members, range(12)))
        np.testing.assert_array_equal(trees.flat(part.mother(state)), state.mother)
        wanted = made(members[11]) if has_winners else np.asarray(state.mother)
        np.testing.assert_array_equal(trees.flat(part.champion(state)), wanted)


# -- tuning after telling


@pytest.mark.parametrize("sees", ["raw", "ranked"])
def test_sigma_tuned_after_telling_is_the_rule_by_hand_and_changes_nothing_else(sees):
    part = OpenAIES(pairs=6, injected=0, sigma=0.1, tuning=AutomaticMutationTuning(clip=1e-3, sees=sees))
    members, state = asked(part, begun(part))
    returns = np.random.default_rng(3).normal(size=12)
    state = after_telling(part, state, all_played(members, returns))
    assert float(state.sigma) == 0.1  # until it is tuned
    used = returns if sees == "raw" else centred_ranks(returns)
    wish = part.rate / (6 * 0.1) * huber(used.max(), used.mean())
    tuned = part.tune(state)
    assert float(tuned.sigma) == 0.1 + min(wish, 1e-3)
    assert bool(tuned.bound) == (wish > 1e-3)
    assert part.report(tuned, ())["sigma"] == float(tuned.sigma)
    assert same(replace(tuned, sigma=state.sigma, bound=state.bound), state)
    assert [m.perturbation.scale for m in asked(part, tuned)[0]] == [float(tuned.sigma), -float(tuned.sigma)] * 6


def test_the_returns_of_an_ended_generation_stay_for_the_tuning_while_the_next_is_told():
    part = OpenAIES(pairs=6, injected=0, tuning=AutomaticMutationTuning(clip=1e9))
    state, outcomes = generations_outcomes(part, begun(part), 15)
    ended = after_telling(part, state, outcomes[:12])
    assert same(part.tune(ended).sigma, part.tune(after_telling(part, ended, outcomes[12:])).sigma)


def test_without_a_generation_or_without_a_tuning_sigma_stays():
    for part in (OpenAIES(), OpenAIES(tuning=AutomaticMutationTuning(sees="ranked")), OpenAIES(tuning=None)):
        assert same(part.tune(begun(part)), begun(part))


def test_sigma_is_tuned_with_a_phase_or_whenever_an_interval_is_over():
    with_phases = OpenAIES()
    assert [with_phases.tunes_now(phase, 20, 20) for phase in (True, False)] == [True, False]
    at_intervals = OpenAIES(tuned="interval", interval=60)
    assert [at_intervals.tunes_now(True, 20 * g, 20) for g in range(1, 7)] == [False, False, True] * 2
    long = OpenAIES(tuned="interval", interval=7)  # shorter than a generation: once after each
    assert [long.tunes_now(False, 20 * g, 20) for g in range(1, 4)] == [True] * 3


def test_a_line_tunes_by_its_slope_whatever_the_returns():
    part = OpenAIES(pairs=6, injected=0, sigma=0.05, tuning=LinearTuning(0.01))
    members, state = asked(part, begun(part))
    state = after_telling(part, state, all_played(members, [np.nan] * 12))
    assert float(part.tune(state).sigma) == pytest.approx(0.06)


# -- hindsight crossover


def test_a_child_takes_28_percent_of_its_rows_and_18_percent_of_its_biases_from_the_winner():
    like = Actor(KEY, 16, 64, (64,), False)
    winner, mother = (jax.tree.map(lambda leaf, v=v: jnp.full(leaf.shape, v), like) for v in (1.0, 0.0))
    cross = jax.jit(jax.vmap(lambda k: RowCopy()(k, Individual(winner, None), Individual(mother, None))[1].actor))
    child = cross(jax.random.split(KEY, 2_000))
    assert float(jnp.mean(child.hidden[0].weight)) == pytest.approx(0.28, abs=0.01)
    assert float(jnp.mean(child.hidden[0].bias)) == pytest.approx(0.18, abs=0.01)
    rows = np.asarray(child.hidden[0].weight[0])
    assert set(rows.mean(axis=0)) <= {0.0, 1.0}  # a row is copied or not


def test_elements_change_places_and_none_is_lost():
    like = Actor(KEY, 4, 2, (32,), False)
    x, y = (Individual(jax.tree.map(lambda leaf, v=v: jnp.full(leaf.shape, v), like), None) for v in (1.0, 0.0))
    one, other = ElementCopy(0.3)(KEY, x, y)
    for a, b in zip(jax.tree.leaves(one.actor), jax.tree.leaves(other.actor), strict=True):
        np.testing.assert_array_equal(a + b, np.ones_like(a))
    assert float(jnp.mean(other.actor.hidden[0].weight)) == pytest.approx(0.3, abs=0.1)


def test_children_cross_the_last_generations_winners_with_the_mother_as_she_is_now():
    part = OpenAIES(pairs=6, injected=0, sigma=0.1)
    members, state = asked(part, begun(part))
    state = after_telling(part, state, all_played(members, range(12)))
    mother = np.asarray(state.mother)
    winners = [made(members[11]), made(members[10])]
    for child in state.children:
        shares = [np.mean(child == winner) for winner in winners]
        assert 0.05 < max(shares) < 0.6
        assert ((child == mother) | (child == winners[np.argmax(shares)])).all()
