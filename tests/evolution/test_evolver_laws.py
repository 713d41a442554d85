"""Laws of every evolver: two genetic algorithms, four of our strategies, two of evosax's, and a user's strategy."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from tasks import Reach
from tiny import KEY, N, Nudge, Walk, copied, leaves, same

import genepool
from genepool import buffer, trees
from genepool.algorithms.choices import missing_methods
from genepool.evolution.distribution.adapter import adapted
from genepool.networks import Actor
from genepool.runs import checkpoint
from genepool.types import Individual, Outcome, Transitions

SIZES = 1, 1  # of Reach
NARROW = {"scale": 0.02, "initial_variance": 1e-2, "variance_floor": 1e-3}
WIDE = {"initial_variance": 1e-2, "epsilon": 1e-2}


EVOLVERS = {
    "generational-ga": lambda: genepool.GenerationalGA(N, mutation=Nudge()),
    "steady-state-ga": lambda: genepool.SteadyStateGA(N, mutation=Nudge()),
    "cem": lambda: genepool.CEM(N, **WIDE),
    "asynchronous-es": lambda: genepool.AsynchronousES(genepool.LinearRange(), population=N, **NARROW),
    "rank-es": lambda: genepool.RankES(N, epsilon_decay=0.98, **WIDE),
    "openai-es": lambda: genepool.OpenAIES(N // 2, sigma=0.05, rate=0.03, injected=1),
    "sep-cma-es": lambda: genepool.Evosax("Sep_CMA_ES", N, std=0.1),
    "open-es": lambda: genepool.Evosax("Open_ES", N, std=0.05, rate=0.03),
    "own": Walk,
}
SAMPLED = ["generational-ga", "cem", "openai-es", "sep-cma-es", "open-es"]  # these make a generation at once


@pytest.fixture(params=EVOLVERS)
def part(request):
    if request.param in ("sep-cma-es", "open-es"):
        pytest.importorskip("evosax")
    return EVOLVERS[request.param]()


@pytest.fixture
def evolver(part):
    return adapted(part)


only_sampled = pytest.mark.parametrize("part", SAMPLED, indirect=True)


def new_individual(k):
    """A small actor that its number determines, with an empty memory."""
    return Individual(Actor(jax.random.key(k), *SIZES, (2,), layer_norm=False), buffer.empty(8, *SIZES))


START = trees.flat(new_individual(0).actor)
TOP = START + np.random.default_rng(0).uniform(-0.5, 0.5, START.size).astype(np.float32)


def height(vector):
    """An upturned bowl: 0 at the top."""
    return -float(np.sum((vector - TOP) ** 2))


def vector(candidate):
    """The weights that a candidate is tried with."""
    actor = candidate.individual.actor
    return trees.flat(actor if candidate.perturbation is None else candidate.perturbation(actor))


def tried(candidate, fitness=None):
    """The outcome of a candidate: the height of its weights, three transitions, and the height of its reference."""
    actor = trees.unflat(vector(candidate), candidate.individual.actor)
    rows = np.full(3, candidate.number, np.float32)
    rows = Transitions(rows[:, None], rows[:, None], rows, rows[:, None], 0 * rows)
    references = candidate.reference and (height(trees.flat(candidate.reference)),) * candidate.reference_episodes
    fitness = height(vector(candidate)) if fitness is None else fitness
    return Outcome(candidate, candidate.individual._replace(actor=actor), (fitness,), rows, references or ())


def asked(evolver, state, places, key=None):
    """Candidates for these places, with place and number as a coupling gives them, and the state after asking."""
    key = jax.random.fold_in(KEY, places[0]) if key is None else key
    candidates, state = evolver.ask(key, state, list(places), None)
    return [replace(c, place=p, number=p) for c, p in zip(candidates, places, strict=True)], state


def played(evolver, state, generation=0):
    """The outcomes of a generation, and the state after asking for it."""
    candidates, state = asked(evolver, state, range(N * generation, N * (generation + 1)))
    return [tried(candidate) for candidate in candidates], state


def begun(evolver, generations=0):
    """The state after so many generations."""
    state = evolver.init(KEY, new_individual)
    for g in range(generations):
        outcomes, state = played(evolver, state, g)
        state = evolver.tell(jax.random.fold_in(KEY, g), state, outcomes, None)
    return state


def check_valid(evolver, state, generation):
    """The state has candidates and a champion, and all weights are finite."""
    candidates, _ = asked(evolver, state, range(N * generation, N * (generation + 1)))
    assert len(candidates) == N
    assert all(np.isfinite(vector(candidate)).all() for candidate in candidates)
    assert np.isfinite(trees.flat(evolver.champion(state))).all()
    assert json.dumps(evolver.report(state, []))


def next_up(evolver, state, generation):
    """What a state shows: the champion, and the candidates of the next generation."""
    candidates, _ = asked(evolver, state, range(N * generation, N * (generation + 1)))
    return [trees.flat(evolver.champion(state)), *map(vector, candidates)]


# -- interface


def test_it_is_an_evolver(evolver):
    assert isinstance(evolver, genepool.Evolver)
    assert missing_methods(evolver, genepool.Evolver) == []
    assert evolver.population == N
    assert all(type(flag) is bool for flag in (evolver.needs_critic, evolver.takes_lessons, evolver.has_upcoming))
    assert not evolver.needs_critic
    assert not evolver.has_upcoming or callable(evolver.upcoming)


def test_its_state_holds_arrays_only_and_the_key_determines_every_bit(evolver):
    state = begun(evolver, 1)
    assert all(isinstance(leaf, np.ndarray | np.generic | jax.Array) for leaf in jax.tree.leaves(state))
    assert same(state, begun(evolver, 1))


@pytest.mark.parametrize("generations", [0, 1])
def test_its_champion_is_a_policy(evolver, generations):
    champion = evolver.champion(begun(evolver, generations))
    assert [leaf.shape for leaf in leaves(champion)] == [leaf.shape for leaf in leaves(new_individual(0).actor)]
    action = np.asarray(champion(np.ones(1, np.float32)))
    assert action.shape == (1,)
    assert np.abs(action) <= 1.0


def test_upcoming_says_which_candidates_come_next(evolver):
    state = begun(evolver, 1)
    if evolver.has_upcoming:
        known = [trees.flat(actor) for actor in evolver.upcoming(state, 4)]
        candidates, _ = asked(evolver, state, range(N, N + 4))
        np.testing.assert_array_equal(known, [vector(candidate) for candidate in candidates])


def test_it_climbs_a_quadratic_bowl(evolver):
    """After 40 generations, at most half of the distance from the first individual to the top is left."""
    assert height(trees.flat(evolver.champion(begun(evolver, 40)))) > 0.25 * height(START)


# -- asking


def test_neither_asking_nor_telling_writes_to_the_state_it_was_given(evolver):
    state = begun(evolver, 1)
    before = copied(state)
    outcomes, after_asking = played(evolver, state, 1)
    between = copied(after_asking)
    evolver.tell(KEY, after_asking, outcomes, None)
    assert same(after_asking, between)
    assert same(state, before)


@pytest.mark.parametrize("generations", [0, 1])
def test_the_first_of_those_asked_for_are_the_same_with_and_without_the_others(evolver, generations):
    state = begun(evolver, generations)
    first = N * generations
    few, many = (asked(evolver, state, range(first, first + n))[0] for n in (2, N))
    assert same([vector(c) for c in few], [vector(c) for c in many[:2]])
    assert same([c.individual for c in few], [c.individual for c in many[:2]])


@pytest.mark.parametrize("generations", [0, 1])
@only_sampled
def test_places_asked_one_by_one_equal_places_asked_in_bulk(evolver, generations):
    at_once, state = played(evolver, begun(evolver, generations), generations)
    alone = begun(evolver, generations)
    candidates = []
    for place in range(N * generations, N * (generations + 1)):
        own, alone = asked(evolver, alone, [place], jax.random.key(100 + place))
        candidates += own
    assert same([vector(o.candidate) for o in at_once], [vector(c) for c in candidates])
    assert same(state, alone)


@pytest.mark.parametrize("part", [name for name in EVOLVERS if name not in SAMPLED], indirect=True)
def test_others_make_each_candidate_when_asked_from_its_key_alone(evolver):
    state = begun(evolver, 1)
    once, again, other = (asked(evolver, state, [N], jax.random.key(seed)) for seed in (1, 1, 2))
    assert same(vector(once[0][0]), vector(again[0][0]))
    assert not same(vector(once[0][0]), vector(other[0][0]))
    assert same(once[1], state)


@pytest.mark.parametrize("generations", [0, 1])
def test_a_newcomer_is_tried_next_and_never_again(evolver, generations):
    newcomer = new_individual(77)
    state = evolver.inject(begun(evolver, generations), newcomer)
    outcomes, state = played(evolver, state, generations)
    found = [o.candidate for o in outcomes if o.candidate.origin == "learning"]
    assert len(found) == (2 if found[0].perturbation else 1)  # mirrored noise needs a pair around it
    assert all(same(leaves(c.individual.actor), leaves(newcomer.actor)) for c in found)
    state = evolver.tell(KEY, state, outcomes, None)
    candidates, _ = asked(evolver, state, range(N * (generations + 1), N * (generations + 2)))
    assert all(candidate.origin == "evolution" for candidate in candidates)


# -- telling


@pytest.mark.parametrize("ends", [range(1, N), [4], [1]], ids=["one by one", "4 and 2", "1 and 5"])
def test_told_in_any_portions_it_reaches_the_same_bits(evolver, ends):
    at_once = in_parts = begun(evolver)
    for g in range(2):
        outcomes, at_once = played(evolver, at_once, g)
        _, in_parts = played(evolver, in_parts, g)
        at_once = evolver.tell(KEY, at_once, outcomes, None)
        for places in np.split(np.arange(N), ends):
            in_parts = evolver.tell(KEY, in_parts, [outcomes[k] for k in places], None)
        assert same(at_once, in_parts)


@pytest.mark.parametrize("order", [[5, 4, 3, 2, 1, 0], [2, 0, 5, 1, 4, 3]])
def test_told_in_any_order_it_goes_on(evolver, order):
    outcomes, state = played(evolver, begun(evolver, 1), 1)
    for k in order:
        state = evolver.tell(KEY, state, [outcomes[k]], None)
    check_valid(evolver, state, 2)


@pytest.mark.parametrize("order", [[5, 4, 3, 2, 1, 0], [2, 0, 5, 1, 4, 3]])
@only_sampled
def test_the_order_in_which_a_generation_is_told_changes_nothing_that_comes(part, evolver, order):
    outcomes, state = played(evolver, begun(evolver, 1), 1)
    in_order = disorder = state
    in_order = evolver.tell(KEY, in_order, outcomes, None)
    for k in order:
        disorder = evolver.tell(KEY, disorder, [outcomes[k]], None)
    rounding = 1e-6 if isinstance(part, genepool.Evosax) else 0.0  # evosax adds up in the order of telling
    for one, other in zip(next_up(evolver, in_order, 2), next_up(evolver, disorder, 2), strict=True):
        np.testing.assert_allclose(one, other, rtol=0.0, atol=rounding)


def test_no_outcomes_change_nothing(evolver):
    state = begun(evolver, 1)
    assert same(evolver.tell(KEY, state, [], None), state)


@pytest.mark.parametrize("sick", [[2], range(N)], ids=["one", "all"])
def test_a_fitness_that_is_not_finite_does_no_harm(evolver, sick):
    outcomes, state = played(evolver, begun(evolver, 1), 1)
    outcomes = [tried(o.candidate, np.nan) if k in sick else o for k, o in enumerate(outcomes)]
    check_valid(evolver, evolver.tell(KEY, state, outcomes, None), 2)


# -- in a coupling, and in a file


def test_lost_outcomes_are_asked_for_again_and_doubled_ones_are_counted_once(part):
    algorithm = genepool.cem(Reach, evolver=part, memory=8, hidden=(2,), max_steps=20)
    candidates, state = algorithm.ask(KEY, algorithm.init(KEY), N)
    outcomes = [tried(candidate) for candidate in candidates]
    once, twice = (algorithm.tell(KEY, state, [outcomes[k] for k in places]) for places in ([1, 3], [3, 1, 3, 1]))
    assert same(once, twice)
    assert same(once, algorithm.tell(KEY, once, outcomes[1:2]))
    again, state = algorithm.ask(jax.random.key(1), algorithm.forget_workers(once), N - 2)
    assert [(c.number, c.place) for c in again] == [(k, k) for k in (0, 2, 4, 5)]
    state = algorithm.tell(KEY, state, [*map(tried, again), *outcomes])  # the lost come back, too
    assert int(state.in_flight.told_count) == N
    assert [c.number for c in algorithm.ask(KEY, state, N)[0]] == [*range(N, 2 * N)]


def test_a_state_that_was_saved_and_read_goes_on_with_the_same_bits(evolver, tmp_path):
    outcomes, state = played(evolver, evolver.inject(begun(evolver, 1), new_individual(77)), 1)
    state = evolver.tell(KEY, state, outcomes[:4], None)
    checkpoint.save(tmp_path / "file", state, {})
    read, _ = checkpoint.load(tmp_path / "file", begun(evolver))
    assert same(read, state)
    ends = []
    for one in (read, state):
        one = evolver.tell(KEY, one, outcomes[4:], None)
        rest, one = played(evolver, evolver.inject(one, new_individual(78)), 2)
        ends.append(evolver.tell(KEY, one, rest, None))
    assert same(*ends)
