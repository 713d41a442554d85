"""OpenAI-ES: mirrored pairs around each vector, rank shaping, the gradient, and what is refused."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from tiny_es import CLONE, KEY, LIKE, PLAIN, after_telling, all_played, asked, begun, made, played, same

from genepool import trees
from genepool.errors import UserError
from genepool.evolution.distribution.mirrored import Perturbation, centred_ranks, direction, weighted_sum
from genepool.evolution.distribution.openai_es import OpenAIES
from genepool.evolution.genetic.crossover import ElementCopy
from genepool.parts import words
from genepool.protocols import Evolver

# -- members


def test_it_is_an_evolver_by_the_name_openai_es_that_takes_no_lessons():
    assert isinstance(OpenAIES(), Evolver)
    assert words(OpenAIES) == "openai-es"
    assert (OpenAIES.needs_critic, OpenAIES.takes_lessons, OpenAIES.has_upcoming) == (False, False, False)
    assert OpenAIES(pairs=7, winners=0.0).population == 14


def test_a_pair_mirrors_the_vector_it_was_made_from_and_is_side_by_side():
    part = OpenAIES(pairs=5, **PLAIN)
    members, _ = asked(part, begun(part))
    vectors = [made(m) for m in members]
    for plus, minus in zip(vectors[::2], vectors[1::2], strict=True):
        np.testing.assert_allclose((plus + minus) / 2, trees.flat(LIKE), atol=1e-6)
        np.testing.assert_allclose(np.std(plus - minus) / 2, part.sigma, rtol=0.3)
    assert len({m.perturbation.seed for m in members}) == 5


def test_pairs_of_every_kind_are_mirrored_around_one_vector_each():
    part = OpenAIES(pairs=6, winners=0.34, injected=1, sigma=0.1)
    members, state = asked(part, begun(part))
    state = part.inject(after_telling(part, state, all_played(members, range(12))), CLONE)
    members, _ = asked(part, state)
    assert [m.kind for m in members] == ["winner"] * 4 + ["mother"] * 6 + ["learner"] * 2
    centres = [*state.children, *[state.mother] * 3, trees.flat(CLONE.actor)]
    for plus, minus, centre in zip(members[::2], members[1::2], centres, strict=True):
        assert plus.individual.actor is minus.individual.actor
        assert plus.perturbation == replace(minus.perturbation, scale=-minus.perturbation.scale)
        np.testing.assert_array_equal(trees.flat(plus.individual.actor), centre)
        np.testing.assert_allclose((made(plus) + made(minus)) / 2, centre, atol=1e-6)


def test_asked_one_by_one_it_hands_out_the_same_members():
    part = OpenAIES(pairs=6, injected=1)
    state = alone = part.inject(begun(part), CLONE)
    members, state = asked(part, state)
    for member in members:
        (again,), alone = part.ask(jax.random.key(3), alone, [member.place], None)
        assert (again.kind, again.perturbation) == (member.kind, member.perturbation)
        assert same(again.individual.actor, member.individual.actor)
    assert same(state, alone)


def test_of_more_than_a_generation_there_are_further_pairs_around_the_same_vectors():
    part = OpenAIES(pairs=5, winners=0.4, injected=1)
    members, _ = asked(part, part.inject(begun(part), CLONE), 20)
    assert [m.kind for m in members[:10]] == [m.kind for m in members[10:]]
    assert len({m.perturbation.seed for m in members}) == 10


def test_all_members_around_one_vector_carry_the_same_actor():
    part = OpenAIES()
    members, _ = asked(part, part.inject(begun(part), CLONE))
    for kind, count in (("winner", 20), ("mother", 1), ("learner", 1)):
        assert len({id(m.individual.actor) for m in members if m.kind == kind}) == count


def test_twenty_children_twenty_six_of_the_mother_and_four_of_the_learner_are_fifty_pairs():
    part = OpenAIES()
    members, _ = asked(part, part.inject(begun(part), CLONE))
    assert [m.kind for m in members] == ["winner"] * 40 + ["mother"] * 52 + ["learner"] * 8
    assert [m.operators for m in members] == [(m.kind,) for m in members]
    assert [m.origin for m in members] == ["evolution"] * 92 + ["learning"] * 8


def test_without_a_newcomer_no_member_is_around_the_learner():
    part = OpenAIES(pairs=6, injected=2)
    members, state = asked(part, begun(part))
    assert {m.kind for m in members} == {"winner", "mother"}
    outcomes = all_played(members, range(12))
    state = after_telling(part, part.inject(state, CLONE), outcomes)  # injected into the generation that ends
    assert not state.injected_now
    assert "learner" not in {m.kind for m in asked(part, state)[0]}
    assert part.inject(state, CLONE).injected_now
    nowhere = OpenAIES(pairs=6, injected=0)
    assert "learner" not in {m.kind for m in asked(nowhere, nowhere.inject(begun(nowhere), CLONE))[0]}


def test_sigma_travels_with_every_member():
    part = OpenAIES(pairs=4, **PLAIN)
    members, _ = asked(part, replace(begun(part), sigma=np.asarray(0.25)))
    assert [m.perturbation.scale for m in members] == [0.25, -0.25] * 4


def test_a_perturbation_of_nothing_is_nothing():
    assert same(Perturbation(3, 0.0)(LIKE), LIKE)


# -- the gradient


def test_returns_are_shaped_by_rank_and_equals_share_their_mean_rank():
    np.testing.assert_allclose(centred_ranks(np.array([30.0, 10.0, 20.0, 40.0])), [1 / 6, -1 / 2, -1 / 6, 1 / 2])
    np.testing.assert_allclose(centred_ranks(np.array([3.0, 1.0, 3.0, 2.0])), [1 / 3, -1 / 2, 1 / 3, -1 / 6])
    np.testing.assert_allclose(centred_ranks(np.full(6, 7.0)), np.zeros(6))


def test_a_return_that_is_nan_ranks_last_and_never_wins():
    np.testing.assert_allclose(centred_ranks(np.array([np.nan, -5.0, 5.0])), [-1 / 2, 0, 1 / 2])
    part = OpenAIES(pairs=6, injected=0)
    members, state = asked(part, begun(part))
    state = after_telling(part, state, all_played(members, [np.nan, 1.0] + [np.nan] * 10))
    assert np.isfinite(state.mother).all()
    assert np.isfinite(state.children).all()
    np.testing.assert_array_equal(trees.flat(part.champion(state)), made(members[1]))


def test_the_estimated_gradient_is_that_of_a_quadratic():
    """f = -|x - c|^2 / 2 with 20,000 pairs in six dimensions: to 5 %. Shaped by rank, to a cosine of 0.99."""
    c = np.arange(6.0)
    sigma = 0.1
    seeds = np.arange(20_000)
    noise = np.stack([direction(int(s), 6) for s in seeds])

    def value(x):
        return -0.5 * np.sum((x - c) ** 2, axis=1)

    both = np.concatenate([value(sigma * noise), value(-sigma * noise)])
    scales = np.repeat([sigma, -sigma], len(seeds))
    estimate = weighted_sum(np.tile(seeds, 2), both / scales, 6) / (2 * len(seeds))
    np.testing.assert_allclose(estimate, c, atol=0.05 * np.linalg.norm(c))
    shaped = weighted_sum(np.tile(seeds, 2), centred_ranks(both) / scales, 6)
    assert shaped @ c / np.linalg.norm(shaped) / np.linalg.norm(c) > 0.99


def test_the_step_of_all_and_that_of_the_mothers_pairs_are_one_where_all_are_hers():
    for part, equal in ((OpenAIES(pairs=6, **PLAIN), True), (OpenAIES(pairs=6, injected=0), False)):
        members, state = asked(part, begun(part))
        state = after_telling(part, state, all_played(members, np.random.default_rng(1).normal(size=12)))
        assert (part.report(state, ())["cosine"] > 1 - 1e-6) == equal


def test_plain_ascent_moves_the_mother_by_rate_times_the_gradient_of_all_or_of_her_own_pairs():
    for members_used, own in (("all", slice(0, 12)), ("mother", slice(4, 12))):
        part = OpenAIES(pairs=6, winners=0.34, injected=0, rate=0.5, optimiser="plain", members=members_used)
        members, state = asked(part, begun(part))
        fitness = np.random.default_rng(2).normal(size=12)
        gradient = sum(
            f * np.sign(m.perturbation.scale) * direction(m.perturbation.seed, state.mother.size)
            for f, m in list(zip(centred_ranks(fitness), members, strict=True))[own]
        ) / (len(members[own]) / 2 * part.sigma)
        after = after_telling(part, state, all_played(members, fitness))
        np.testing.assert_allclose(after.mother, state.mother + 0.5 * gradient, rtol=1e-4, atol=1e-4)


def test_the_strategy_climbs_a_bowl():
    part = OpenAIES(pairs=6, sigma=0.05, rate=0.05, injected=0)
    state = begun(part)
    goal = np.linspace(-1, 1, trees.flat(LIKE).size)

    def distance(x):
        return float(np.linalg.norm(np.asarray(x) - goal))

    first = distance(state.mother)
    for g in range(150):
        members, state = asked(part, state)
        outcomes = [played(m, -distance(made(m))) for m in members]
        state = after_telling(part, state, outcomes, jax.random.fold_in(KEY, g))
    assert int(state.generation) == 150
    assert distance(state.mother) < 0.3 * first


# -- what is refused


@pytest.mark.parametrize(
    ("part", "options", "words"),
    [
        (OpenAIES, {"pairs": 0}, "pairs is 0: it must be 1 or more"),
        (OpenAIES, {"sigma": 0.0}, "sigma of the evolution strategy must be above 0"),
        (OpenAIES, {"rate": -1.0}, "rate of the evolution strategy must be above 0"),
        (OpenAIES, {"winners": 1.5}, "winners is a share of the pairs"),
        (OpenAIES, {"injected": -1}, "injected is -1: it must be 0 or more"),
        (OpenAIES, {"interval": 0}, "interval is 0: it must be 1 or more"),
        (OpenAIES, {"pairs": 5, "winners": 0.8, "injected": 2}, r"more than the pairs: 4 \+ 2 > 5"),
        (OpenAIES, {"pairs": 4, "winners": 0.5, "injected": 2, "members": "mother"}, "around the mother"),
        (ElementCopy, {"share": 2.0}, "between 0 and 1"),
    ],
)
def test_invalid_settings_are_refused_in_one_line(part, options, words):
    with pytest.raises(UserError, match=words) as refused:
        part(**options)
    assert "\n" not in str(refused.value)
