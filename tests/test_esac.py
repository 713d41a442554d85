"""ESAC: the evolution strategy's arithmetic, mutation tuning, hindsight crossover, the learner's phases, and reductions."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tasks import Reach

import genepool
from genepool import trees
from genepool.algorithms.esac import ESAC
from genepool.evolution.crossover import ElementCopy, RowCopy
from genepool.evolution.tuning import AMT, LinearTuning, huber
from genepool.evolution.winners import Perturbation, WinnersES, _summed, centred_ranks, direction
from genepool.learning.sac import SAC
from genepool.learning.td3 import TD3
from genepool.networks import Actor
from genepool.optimiser import Adam, adam_init
from genepool.runs.folder import CLOCKED
from genepool.schedule import Clock, asynchronous, synchronous
from genepool.types import Outcome, Transitions

KEY = jax.random.key(0)
SMALL = SAC(critics="value", batch_size=8, critic_hidden=(8, 8), warmup=8, random_frames=0)
LIKE = Actor(KEY, 1, 1, (8, 8), False)  # as those of `small`: nothing is compiled twice
PLAIN = {"winners": 0.0, "injected": 0, "crossover": None, "tuning": None}


def small(preset=genepool.esac, **options):
    options = {
        "hidden": (8, 8),
        "pairs": 6,
        "sigma": 0.05,
        "replay": 2_000,
        "test_episodes": 2,
        "test_every": 1,
        "max_steps": 20,
    } | options
    if preset is genepool.esac:
        options = {"learner": SMALL, "injected": 1, "sac_episodes": 2, "gradient_interval": 2} | options
    return preset(Reach, **options)


def generations(algorithm, count, seed=0, schedule=synchronous):
    key, workers = jax.random.key(seed), genepool.LocalWorkers(algorithm.task)
    state = algorithm.init(key)
    for g in range(count):
        state, outcomes = schedule(algorithm, workers, jax.random.fold_in(key, g), state, Clock())
        yield state, outcomes


def played(candidate, fitness):
    """The candidate's outcome, had it earned this much."""
    individual = candidate.individual._replace(actor=candidate.lesson(candidate.individual.actor))
    rows = Transitions(np.zeros((1, 1)), np.zeros((1, 1)), np.ones(1), np.zeros((1, 1)), np.zeros(1))
    return Outcome(candidate, individual, (fitness,), rows)


def same(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True) for a, b in pairs)


# -- the evolution strategy


def test_returns_are_shaped_by_rank_and_equals_share_their_mean_rank():
    np.testing.assert_allclose(centred_ranks(np.array([30.0, 10.0, 20.0, 40.0])), [1 / 6, -1 / 2, -1 / 6, 1 / 2])
    np.testing.assert_allclose(centred_ranks(np.array([3.0, 1.0, 3.0, 2.0])), [1 / 3, -1 / 2, 1 / 3, -1 / 6])
    np.testing.assert_allclose(centred_ranks(np.full(6, 7.0)), np.zeros(6))


def test_a_return_that_is_no_number_ranks_last_and_never_wins():
    np.testing.assert_allclose(centred_ranks(np.array([np.nan, -5.0, 5.0])), [-1 / 2, 0, 1 / 2])
    part = WinnersES(pairs=6, injected=0)
    members, state = part.ask(part.init(KEY, trees.flat(LIKE)), 12, LIKE, None)
    fitness = [np.nan, 1.0] + [np.nan] * 10
    state = part.tell(state, [played(m, f) for m, f in zip(members, fitness, strict=True)])
    state = part.close(KEY, state, LIKE, 10, False)
    assert np.isfinite(state.mother).all()
    assert np.isfinite(state.children).all()
    np.testing.assert_array_equal(state.champion, trees.flat(played(members[1], 1.0).individual.actor))


def test_the_estimated_gradient_is_that_of_a_quadratic():
    """f = -|x - c|^2 / 2 and 20,000 pairs in six dimensions: to 5 %; shaped by rank, its direction to a cosine of 0.99."""
    c, sigma, seeds = np.arange(6.0), 0.1, np.arange(20_000)
    noise = np.stack([direction(int(s), 6) for s in seeds])
    value = lambda x: -0.5 * np.sum((x - c) ** 2, axis=1)
    plus, minus = value(sigma * noise), value(-sigma * noise)
    both, scales = np.concatenate([plus, minus]), np.repeat([sigma, -sigma], len(seeds))
    estimate = _summed(np.tile(seeds, 2), both / scales, 6) / (2 * len(seeds))
    np.testing.assert_allclose(estimate, c, atol=0.05 * np.linalg.norm(c))
    shaped = _summed(np.tile(seeds, 2), centred_ranks(both) / scales, 6)
    assert shaped @ c / np.linalg.norm(shaped) / np.linalg.norm(c) > 0.99


def test_a_pair_mirrors_the_vector_it_was_made_from_and_is_side_by_side():
    part = WinnersES(pairs=5, **PLAIN)
    members, _ = part.ask(part.init(KEY, trees.flat(LIKE)), 10, LIKE, None)
    vectors = [trees.flat(m.lesson(m.individual.actor)) for m in members]
    for plus, minus in zip(vectors[::2], vectors[1::2], strict=True):
        np.testing.assert_allclose((plus + minus) / 2, trees.flat(LIKE), atol=1e-6)
        np.testing.assert_allclose(np.std(plus - minus) / 2, part.sigma, rtol=0.3)
    assert len({m.lesson.seed for m in members}) == 5


def test_twenty_children_twenty_six_of_the_mother_and_four_of_the_learner_are_fifty_pairs():
    part = WinnersES()
    members, _ = part.ask(part.init(KEY, trees.flat(LIKE)), 100, LIKE, LIKE)
    bases = [m.operators[0] for m in members]
    assert bases == ["winner"] * 40 + ["mother"] * 52 + ["learner"] * 8
    assert [m.origin for m in members] == ["evolution"] * 92 + ["learning"] * 8


def test_sigma_travels_with_every_member():
    part = WinnersES(pairs=4, **PLAIN)
    state = replace(part.init(KEY, trees.flat(LIKE)), sigma=np.asarray(0.25))
    members, _ = part.ask(state, 8, LIKE, None)
    assert [m.lesson.scale for m in members] == [0.25, -0.25] * 4


def test_winners_keep_their_returns_whatever_the_order_of_arrival_and_of_equals_the_first_told_win():
    part = WinnersES(pairs=6, injected=0)
    members, state = part.ask(part.init(KEY, trees.flat(LIKE)), 12, LIKE, None)
    fitness = np.round(np.random.default_rng(0).normal(size=12), 1)
    fitness[[2, 5, 11]] = fitness.max()
    outcomes = [played(replace(m, number=k), f) for k, (m, f) in enumerate(zip(members, fitness, strict=True))]
    wanted = None
    for shuffle in range(5):
        order = np.random.default_rng(shuffle).permutation(12)
        told = part.tell(state, [outcomes[k] for k in order])
        pairs = {(r, b.tobytes()) for r, b in zip(told.best_returns, told.best, strict=True)}
        assert pairs <= {(o.fitness, trees.flat(o.individual.actor).tobytes()) for o in outcomes}
        returns = sorted(told.best_returns)
        wanted = wanted or returns
        assert returns == wanted == sorted(fitness)[-2:]
    one_by_one = state
    for outcome in outcomes:
        one_by_one = part.tell(one_by_one, [outcome])
    at_once = part.tell(state, outcomes)
    assert same(one_by_one, at_once)
    closed = part.close(KEY, at_once, LIKE, 10, False)
    np.testing.assert_array_equal(closed.champion, trees.flat(outcomes[2].individual.actor))


def test_everyones_step_and_that_of_the_mothers_pairs_are_one_where_all_are_hers():
    for part, equal in ((WinnersES(pairs=6, **PLAIN), True), (WinnersES(pairs=6, injected=0), False)):
        members, state = part.ask(part.init(KEY, trees.flat(LIKE)), 12, LIKE, None)
        rng = np.random.default_rng(1)
        state = part.tell(state, [played(m, float(f)) for m, f in zip(members, rng.normal(size=12), strict=True)])
        cosine = part.report(part.close(KEY, state, LIKE, 10, False))["cosine"]
        assert (cosine > 1 - 1e-6) == equal


def test_the_strategy_climbs_a_bowl():
    part = WinnersES(pairs=6, sigma=0.05, rate=0.05, injected=0)
    state, goal = part.init(KEY, trees.flat(LIKE)), np.linspace(-1, 1, trees.flat(LIKE).size)
    distance = lambda x: float(np.linalg.norm(np.asarray(x) - goal))
    begun = distance(state.mother)
    for g in range(150):
        members, state = part.ask(state, 12, LIKE, None)
        told = [played(m, -distance(trees.flat(m.lesson(m.individual.actor)))) for m in members]
        state = part.close(jax.random.fold_in(KEY, g), part.tell(state, told), LIKE, 10, False)
    assert distance(state.mother) < 0.3 * begun


# -- automatic mutation tuning


def test_the_huber_distance_is_a_parabola_that_goes_on_as_a_line():
    assert huber(3.0, 2.5) == 0.125
    assert huber(0.0, 1.0) == 0.5
    assert huber(5.0, 1.0) == 3.5


def test_a_clipped_sigma_grows_on_a_line():
    sigma, part, returns = 5e-3, AMT(), np.array([100.0, 0.0])
    for j in range(1, 51):
        sigma, bound = part.step(sigma, returns, returns, 50, 5e-3)
        assert bound
        assert sigma == pytest.approx(5e-3 + j * 1e-4)


def test_an_unclipped_sigma_is_the_first_times_the_product_of_lambda():
    """Appendix A: Lambda_t = 1 + a_es / (n sigma_t^2) h_t."""
    rng, part, rate, n = np.random.default_rng(0), AMT(clip=1e9), 5e-3, 50
    first = sigma = 5e-3
    product = 1.0
    for _ in range(20):
        returns = rng.normal(size=100)
        product *= 1.0 + rate / (n * sigma**2) * huber(returns.max(), returns.mean())
        sigma, bound = part.step(sigma, returns, returns, n, rate)
        assert not bound
        assert sigma == pytest.approx(first * product)


@pytest.mark.parametrize(
    ("n", "rate", "sigma", "step"), [(10, 5e-3, 5e-3, 1e-4), (50, 1e-2, 1e-2, 1e-4), (50, 1e-4, 5e-3, 5e-5)]
)
def test_of_shaped_returns_the_tuning_sees_an_eighth_whatever_happens(n, rate, sigma, step):
    returns = np.random.default_rng(0).normal(size=2 * n)
    new, _ = AMT(sees="ranked").step(sigma, returns, centred_ranks(returns), n, rate)
    assert new - sigma == pytest.approx(step, rel=0.01)


def test_sigma_is_tuned_with_the_learners_phases_or_at_intervals():
    always = {"final_chance": 1.0, "gradient_interval": 2, "sac_episodes": 1}
    phases = small(tuning=LinearTuning(0.01), **always)
    assert [float(s.strategy.sigma) for s, _ in generations(phases, 4)] == pytest.approx([0.05, 0.06, 0.06, 0.07])
    intervals = small(tuning=LinearTuning(0.01), tuned="interval", interval=60, learner=None)
    assert [float(s.strategy.sigma) for s, _ in generations(intervals, 6)] == pytest.approx(
        [0.05, 0.05, 0.06, 0.06, 0.06, 0.07]
    )


# -- hindsight crossover


def test_a_child_takes_28_percent_of_its_rows_and_18_percent_of_its_biases_from_the_winner():
    like = Actor(KEY, 16, 64, (64,), False)
    winner, mother = (jax.tree.map(lambda leaf, v=v: jnp.full(leaf.shape, v), like) for v in (1.0, 0.0))
    individual = genepool.Individual
    cross = jax.jit(jax.vmap(lambda k: RowCopy()(k, individual(winner, None), individual(mother, None))[1].actor))
    child = cross(jax.random.split(KEY, 2_000))
    assert float(jnp.mean(child.hidden[0].weight)) == pytest.approx(0.28, abs=0.01)
    assert float(jnp.mean(child.hidden[0].bias)) == pytest.approx(0.18, abs=0.01)
    rows = np.asarray(child.hidden[0].weight[0])
    assert set(rows.mean(axis=0)) <= {0.0, 1.0}  # rows are copied whole


def test_elements_change_places_and_none_is_lost():
    like = Actor(KEY, 4, 2, (32,), False)
    x, y = (
        genepool.Individual(jax.tree.map(lambda leaf, v=v: jnp.full(leaf.shape, v), like), None) for v in (1.0, 0.0)
    )
    one, other = ElementCopy(0.3)(KEY, x, y)
    for a, b in zip(jax.tree.leaves(one.actor), jax.tree.leaves(other.actor), strict=True):
        np.testing.assert_array_equal(a + b, np.ones_like(a))
    assert float(jnp.mean(other.actor.hidden[0].weight)) == pytest.approx(0.3, abs=0.1)


def test_children_cross_the_last_generations_winners_with_the_mother_as_she_is_now():
    part = WinnersES(pairs=6, injected=0, sigma=0.1)
    members, state = part.ask(part.init(KEY, trees.flat(LIKE)), 12, LIKE, None)
    state = part.tell(state, [played(m, float(k)) for k, m in enumerate(members)])
    closed = part.close(KEY, state, LIKE, 10, False)
    mother, winners = np.asarray(closed.mother), state.best
    for child in closed.children:
        shares = [np.mean(child == winner) for winner in winners]
        assert 0.05 < max(shares) < 0.6
        assert ((child == mother) | (child == winners[np.argmax(shares)])).all()


# -- the learner's phases


def test_142_phases_are_expected_in_a_million_nominal_steps():
    algorithm = small()
    for millions, phases in ((1, 141.9), (2, 214.8), (5, 312.2), (10, 415.5)):
        chances = [algorithm.chance(1_000 * t) for t in range(5, millions * 1_000 + 1, 5)]
        assert sum(chances) == pytest.approx(phases, abs=0.1)
    assert algorithm.chance(10**6) == pytest.approx(0.491, abs=1e-3)


def test_a_phase_comes_as_often_as_its_chance_says():
    """Four hundred generations of one pair, each a chance of a quarter: 100 phases, within three deviations of 8.7."""
    algorithm = small(
        pairs=1, final_chance=0.25, chance_decay=1e-9, gradient_interval=1, winners=0.0, injected=0, sac_episodes=1
    )
    state, like = algorithm.init(KEY), algorithm._like
    members, strategy = algorithm.evolver.ask(state.strategy, 2, like, None)
    told = algorithm.evolver.tell(strategy, [played(m, float(k)) for k, m in enumerate(members)])
    closed = [algorithm._closed(jax.random.fold_in(KEY, k), replace(state, strategy=told)) for k in range(400)]
    assert abs(sum(int(s.phases) for s in closed) - 100) < 3 * 8.7


def test_a_phase_is_its_episodes_each_followed_by_as_many_gradient_steps_as_it_had_frames():
    algorithm = small(final_chance=1.0)
    (first, outcomes), (second, more) = generations(algorithm, 2)
    assert [len(outcomes), len(more)] == [12, 14]
    assert [o.candidate.purpose for o in more[12:]] == ["exploration"] * 2
    assert int(first.learner.updates) == 0
    assert int(second.learner.updates) == sum(o.frames for o in more[12:]) == 40
    assert int(second.replay.size) == 40  # the population's experience is not stored
    whole = small(final_chance=1.0, learns_after="phase")
    assert whole.further(replace(second, episodes=np.asarray(2))) == 2
    assert algorithm.further(replace(second, episodes=np.asarray(2))) == 1


def test_shared_experience_stores_everyones_transitions():
    (_, _), (state, _) = generations(small(final_chance=1.0, share_experience=True), 2)
    assert int(state.replay.size) == (12 + 12 + 2) * 20


def test_the_learners_actor_is_injected_as_it_stands():
    algorithm = small(final_chance=1.0, injected=2)
    *_, (state, _) = generations(algorithm, 2)
    candidates, _ = algorithm.ask(KEY, state, algorithm.generation)
    injected = [c for c in candidates if c.operators == ("learner",)]
    assert len(injected) == 4
    for candidate in injected:
        assert same(candidate.individual.actor, algorithm.learner.actor(state.learner))


def test_counters_are_true_and_the_nominal_count_is_derived(tmp_path):
    run = genepool.train(small(final_chance=1.0), 900, seed=0, run=tmp_path / "run")
    records = list(run)
    last = records[-1]
    assert last["frames"] == last["ledger"]["fitness"] + last["ledger"]["exploration"] == (12 * 4 + 2 * 2) * 20
    assert last["nominal_steps"] == 4 * 20
    assert last["updates"] == last["ledger"]["exploration"]
    assert last["phases"] == 2
    assert last["pop_max_ma100"] == pytest.approx(np.mean([max(r["fitness"]) for r in records]))
    assert {"champion_test", "mother_test", "learner_test"} <= last.keys()


# -- reductions and laws


def test_esac_without_sac_crossover_and_tuning_is_the_evolution_strategy_bit_for_bit():
    """Against an evolution strategy written out: sample, rank, step."""
    algorithm = small(learner=None, crossover=None, tuning=None, injected=0)
    mother = jnp.asarray(algorithm.init(jax.random.key(0)).strategy.mother)
    adam, optimiser = Adam(algorithm.evolver.rate), adam_init(mother)
    step = jax.jit(lambda mother, gradient, optimiser: adam.step(mother, -gradient, optimiser))
    for state, outcomes in generations(algorithm, 5):
        returns = np.array([o.fitness for o in outcomes])
        ranks = np.array([np.sum(returns < r) + (np.sum(returns == r) + 1) / 2 for r in returns])
        shaped = (ranks - 1) / 11 - 0.5
        noise = {}
        for outcome, value in zip(outcomes, shaped, strict=True):
            lesson = outcome.candidate.lesson
            np.testing.assert_array_equal(
                trees.flat(outcome.individual.actor),
                np.asarray(mother) + np.float32(lesson.scale) * direction(lesson.seed, mother.size),
            )
            noise[lesson.seed] = noise.get(lesson.seed, 0.0) + value / lesson.scale
        total = np.zeros(mother.size, np.float32)
        for seed in sorted(noise):
            total += np.float32(noise[seed]) * direction(seed, mother.size)
        mother, optimiser = step(mother, total / np.float32(6), optimiser)
        np.testing.assert_array_equal(state.strategy.mother, mother)


def test_es_is_esac_without_its_parts():
    off = {"learner": None, "crossover": None, "tuning": None, "injected": 0, "winners": 0.0}
    for (one, _), (other, _) in zip(generations(small(**off), 3), generations(small(genepool.es), 3), strict=True):
        assert same(one.strategy, other.strategy)


def test_plain_ascent_moves_the_mother_by_rate_times_the_gradient():
    algorithm = small(genepool.es, optimiser="plain", rate=0.5)
    (state, outcomes), *_ = generations(algorithm, 1)
    before = algorithm.init(jax.random.key(0)).strategy.mother
    shaped = centred_ranks(np.array([o.fitness for o in outcomes]))
    gradient = sum(
        f * np.sign(o.candidate.lesson.scale) * direction(o.candidate.lesson.seed, before.size)
        for f, o in zip(shaped, outcomes, strict=True)
    ) / (6 * algorithm.evolver.sigma)
    np.testing.assert_allclose(state.strategy.mother, before + 0.5 * gradient, atol=1e-5)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    one, again, other = ([s for s, _ in generations(small(final_chance=1.0), 3, seed)][-1] for seed in (1, 1, 2))
    assert same(one, again)
    assert not same(one, other)


def test_told_one_by_one_it_is_the_same_strategy():
    algorithm = small(learner=None)
    members, state = algorithm.ask(KEY, algorithm.init(KEY), 12)
    outcomes = genepool.LocalWorkers(algorithm.task).map(members)
    at_once = algorithm.tell(KEY, state, outcomes)
    for outcome in outcomes:
        state = algorithm.tell(KEY, state, [outcome])
    assert same(at_once.strategy, state.strategy)


def test_on_the_asynchronous_schedule_the_learner_has_its_phases_too():
    algorithm = small(final_chance=1.0).scheduled("asynchronous")
    *_, (state, _) = generations(algorithm, 5, schedule=asynchronous)
    assert int(state.strategy.generation) >= 4
    assert int(state.phases) >= 2
    assert int(state.learner.updates) > 0


@pytest.mark.parametrize("learner", [TD3(batch_size=8, critic_hidden=(8, 8), warmup=8)])
def test_another_learner_takes_sacs_place(learner):
    """Runs only."""
    *_, (state, _) = generations(small(learner=learner, final_chance=1.0), 2)
    assert int(state.learner.updates) == 40


def test_an_interrupted_run_resumes_to_the_last_bit(tmp_path):
    whole = list(genepool.train(small(final_chance=1.0), 1_100, seed=0, run=tmp_path / "whole"))
    parts = genepool.train(small(final_chance=1.0), 1_100, seed=0, run=tmp_path / "parts")
    for record in parts:
        if record["generation"] == 2:
            parts.stop()
    resumed = genepool.resume(tmp_path / "parts", task=Reach)
    list(resumed)
    strip = lambda r: {k: v for k, v in r.items() if k not in CLOCKED}
    assert [strip(r) for r in whole] == [strip(r) for r in resumed.folder.records]


@pytest.mark.parametrize(
    ("part", "options", "words"),
    [
        (WinnersES, {"pairs": 0}, "a pair or more"),
        (WinnersES, {"pairs": 5, "winners": 0.8, "injected": 2}, "more than the pairs"),
        (WinnersES, {"pairs": 4, "winners": 0.5, "injected": 2, "members": "mother"}, "around the mother"),
        (AMT, {"clip": 0.0}, "above 0"),
        (ElementCopy, {"share": 2.0}, "between 0 and 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_line(part, options, words):
    with pytest.raises(genepool.UserError, match=words):
        part(**options)


def test_the_papers_settings_are_chosen_by_task():
    assert genepool.esac("Ant-v5").evolver.rate == 1e-4
    assert genepool.esac("Swimmer-v5").sac_episodes == 1
    assert genepool.esac("HalfCheetah-v5").sac_episodes == 5
    preset = genepool.esac("Hopper-v5", pairs=10)
    assert (preset.sac_episodes, preset.evolver.pairs, preset.hidden) == (10, 10, (512, 512))
    assert isinstance(preset, ESAC)
    assert preset.learner.critics == "value"


def test_the_strategy_walks_the_cyclic_mdp_with_the_settings_for_it():
    algorithm = genepool.es("CyclicMDP", max_steps=200)
    assert (algorithm.evolver.sigma, algorithm.hidden, algorithm.activation) == (0.1, (32, 32), "tanh")
    mean = [np.mean([o.fitness for o in outcomes]) for _, outcomes in generations(algorithm, 25)]
    assert mean[0] < 20
    assert mean[-1] > 150  # three seeds had 184 to 198


def test_a_perturbation_of_nothing_is_nothing():
    assert same(Perturbation(3, 0.0)(LIKE), LIKE)
