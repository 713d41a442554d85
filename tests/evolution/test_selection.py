"""Selection and mating: the reference numbers of ERL's selection, and PDERL's mating scores."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genepool import trees
from genepool.evolution.genetic.selection import Mating, distances, survival

FITNESS = np.array([3.0, 9.0, 1.0, 7.0, 5.0, 2.0])
RNG = partial(np.random.default_rng, 0)


@pytest.mark.parametrize(
    ("elites", "unique_winners", "distilled_children", "row_copy_pairs", "champion_wins"),
    [(1, 4.87, 4.07, 2.28, 0.942), (2, 4.61, 3.17, 1.84, 0.921), (3, 4.31, 2.13, 1.31, 0.892)],
)
def test_selection_has_the_reference_numbers(elites, unique_winners, distilled_children, row_copy_pairs, champion_wins):
    rng = RNG()
    fitness = np.random.default_rng(1).permutation(10)
    counts = []
    for _ in range(8000):
        chosen = survival(rng, fitness, elites)
        left = max(0, len(chosen.free) - elites)  # slots for children, after the elites' copies
        champion = chosen.elites[0] in chosen.winners
        counts.append((len(chosen.winners), left, (left + 1) // 2, champion))
    expected = unique_winners, distilled_children, row_copy_pairs, champion_wins
    np.testing.assert_allclose(np.mean(counts, axis=0), expected, atol=0.05)  # over 4 standard errors, and rounding
    np.testing.assert_allclose(np.mean(counts, axis=0)[3], champion_wins, atol=0.015)


def test_every_slot_is_kept_or_free_and_the_elites_are_the_fittest():
    rng = RNG()
    for _ in range(200):
        fitness = rng.normal(size=10)
        elites, winners, free = survival(rng, fitness, 3)
        assert elites == np.argsort(-fitness)[:3].tolist()
        assert len(set(winners)) == len(winners)
        assert sorted(free) == sorted(set(range(10)) - set(elites) - set(winners))


def test_an_individual_whose_fitness_is_no_number_is_the_worst():
    fitness = np.array([np.nan, -1e9, 3.0])
    assert survival(RNG(), fitness, 2).elites == [2, 1]


def naive_pairs(scores):
    """All pairs of six slots, the highest score first."""
    pairs = [(i, j) for i in range(6) for j in range(i + 1, 6)]
    return sorted(pairs, key=lambda pair: -scores[pair])


def symmetric(seed=0):
    distance = np.random.default_rng(seed).random((6, 6))
    return distance + distance.T


def chosen(mating, n, distance=None, generation=0, rng=None):
    return mating.pairs(rng or RNG(), range(6), FITNESS, distance, n, generation)


def test_greedy_mating_takes_the_pairs_with_the_highest_sums_fitter_parent_first():
    expected = [(1, 3), (1, 4), (1, 0), (3, 4)]  # 16, 14, 12 and 12
    assert chosen(Mating(), 4) == expected


def test_distance_based_mating_takes_the_most_distant_pairs_fitter_parent_first():
    distance = symmetric()
    expected = [(i, j) if FITNESS[i] >= FITNESS[j] else (j, i) for i, j in naive_pairs(distance)[:5]]
    assert chosen(Mating(greedy=0.0), 5, distance) == expected


def test_the_ends_of_the_convex_combination_are_the_pure_scores_and_between_them_it_mixes():
    distance = symmetric()
    nearly = 1e-9
    assert chosen(Mating(greedy=nearly), 15, distance) == chosen(Mating(greedy=0.0), 15, distance)
    sums = FITNESS[:, None] + FITNESS

    def unit(scores):
        return (scores - (s := scores[np.triu_indices(6, 1)]).min()) / np.ptp(s)

    first = chosen(Mating(greedy=0.3), 15, distance)
    assert [tuple(sorted(pair)) for pair in first] == naive_pairs(0.3 * unit(sums) + 0.7 * unit(distance))
    ties_broken = [sum(FITNESS[list(pair)]) for pair in chosen(Mating(greedy=1 - nearly), 15, distance)]
    assert ties_broken == [sum(FITNESS[list(pair)]) for pair in chosen(Mating(), 15)]


def test_the_weight_is_annealed_in_a_straight_line_and_then_stays():
    mating = Mating(greedy=0.2, greedy_at_end=1.0, anneal_over=40)
    np.testing.assert_allclose([mating.weight(g) for g in (0, 10, 20, 40, 1000)], [0.2, 0.4, 0.6, 1.0, 1.0])
    assert {Mating(greedy=0.7).weight(g) for g in (0, 50, 1000)} == {0.7}
    late = chosen(mating, 3, symmetric(), generation=40)
    assert late == chosen(Mating(), 3)


@pytest.mark.parametrize("pick", ["rank", "softmax"])
def test_drawn_pairs_are_the_likelier_the_better_their_score(pick):
    pairs = chosen(Mating(pick=pick), 20_000)

    def times(*pair):
        return sum(set(drawn) == set(pair) for drawn in pairs)

    # sums 16, 14, 9, 4 and 3 of 15 pairs
    assert times(1, 3) > 1.05 * times(1, 4) > 1.1 * times(3, 5) > 1.2 * times(2, 0) > 0
    assert all(FITNESS[i] >= FITNESS[j] for i, j in pairs)
    odds = times(1, 3) / times(2, 5)
    np.testing.assert_allclose(odds, {"rank": 15.0, "softmax": np.exp(4)}[pick], rtol=0.35)


def test_fewer_pairs_than_children_are_used_from_the_top_again():
    mating = Mating()
    assert mating.pairs(RNG(), [0, 1, 3], FITNESS, None, 5, 0) == [(1, 3), (1, 0), (3, 0), (1, 3), (1, 0)]
    assert mating.pairs(RNG(), [4], FITNESS, None, 2, 0) == [(4, 4), (4, 4)]


@pytest.mark.parametrize("actions", ["policy", "stored"])
def test_distances_equal_the_naive_double_loop(individual, actions):
    # all states are used, or there is only one: nothing depends on the draws
    individuals = [individual(k, n=5 + k if actions == "policy" else 1, capacity=16) for k in range(4)]
    act = jax.jit(lambda actor, s: actor(s))

    def one_way(x, y):
        """E over y's states of the squared difference between mu_x and y's actions."""
        n = int(y.memory.size)
        states = y.memory.data.observation[:n]
        stored = y.memory.data.action[:n]
        other = stored if actions == "stored" else act(y.actor, states)
        return float(jnp.mean(jnp.sum((act(x.actor, states) - other) ** 2, axis=-1)))

    naive = [[one_way(x, y) + one_way(y, x) for y in individuals] for x in individuals]
    found = distances(jax.random.key(0), trees.stack(individuals), Mating(distance_actions=actions, batch_size=12))
    np.testing.assert_allclose(found, naive, rtol=1e-4, atol=1e-6)
    assert (found[~np.eye(4, dtype=bool)] > 0.01).all()


def test_stored_distances_look_at_the_latest_thousand_rows_only(individual):
    def spoilt(x):
        actions = np.array(x.memory.data.action)
        actions[:200] = np.nan  # the oldest of 1200
        return eqx.tree_at(lambda x: x.memory.data.action, x, actions)

    individuals = trees.stack([spoilt(individual(k, n=1200, capacity=1200)) for k in (1, 2)])
    assert np.isfinite(
        distances(jax.random.key(0), individuals, Mating(distance_actions="stored", batch_size=4000))
    ).all()
