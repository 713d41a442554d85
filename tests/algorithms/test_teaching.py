"""What lessons need: which individuals take one, from which critic and after how many steps; random play before."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from tiny import KEY, LENGTH, TEACHER, Uneven, aes_rl, cem_rl, generations, same

import genepool
from genepool import trees
from genepool.algorithms.teaching import Controlled, FirstHalf, random_play
from genepool.errors import UserError
from genepool.evolution.distribution.shared import Results
from genepool.networks import Actor
from genepool.schedule import Clock, asynchronous
from genepool.types import Candidate, Individual

# -- which individuals take a lesson


def simulate(rule, n, seed=0):
    """The share of n individuals that take a lesson, and how often the one or the other was certain."""
    rng = np.random.default_rng(seed)
    counts = [1, 1]
    certain = 0
    for _ in range(n):
        chance = rule.chance(0, *counts)
        certain += chance in (0.0, 1.0)
        counts[0 if rng.random() <= chance > 0 else 1] += 1
    return (counts[0] - 1) / n, certain / n


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Controlled(0.5), 0.5),
        (Controlled(0.5, unbiased=False), 0.5),
        (Controlled(0.1), 0.1),
        (Controlled(0.1, unbiased=False), 0.108),
    ],
)
def test_the_share_of_lessons_settles_where_equation_3_has_it(rule, expected):
    np.testing.assert_allclose([simulate(rule, 20_000, seed)[0] for seed in range(3)], expected, atol=1e-3)


def test_the_controller_saturates_within_a_hundredth_of_its_goal():
    rule = Controlled(0.5)
    assert rule.chance(0, 52, 48) == 0.0
    assert rule.chance(0, 48, 52) == 1.0
    np.testing.assert_allclose(rule.chance(0, 1, 1), 0.5)
    np.testing.assert_allclose(rule.chance(0, 505, 495), 0.25)  # -50 * 0.005 + 0.5
    np.testing.assert_allclose(Controlled(0.1, unbiased=False).chance(0, 1, 9), 0.5)
    np.testing.assert_allclose(Controlled(0.1).chance(0, 1, 9), 0.1)
    assert simulate(rule, 60)[1] > 0.3  # so that at first they nearly take turns


def test_the_first_half_takes_lessons_whatever_was_before():
    assert [FirstHalf(2).chance(place, 99, 1) for place in range(4)] == [1.0, 1.0, 0.0, 0.0]
    with pytest.raises(UserError, match="taught is 0"):
        FirstHalf(0)


# -- from which critic


def test_a_lesson_s_critic_is_that_of_its_own_block_or_the_newest():
    states = []
    for algorithm in (cem_rl(warmup=0, lesson_critic=which) for which in ("own_block", "newest")):
        ((state, _),) = generations(algorithm, 1)
        candidates, _ = algorithm.ask(KEY, state, 10)
        states.append((state, [c.lesson.teacher for c in candidates[:5]]))
    (state, blocks), (_, last) = states
    assert not any(same(a, b) for k, a in enumerate(blocks) for b in blocks[:k])
    assert same(blocks[-1], state.learner.inner.critics[0])
    assert all(same(teacher, blocks[-1]) for teacher in last)


def test_the_first_critic_of_a_block_is_what_the_learner_had_after_that_many_steps():
    algorithm = cem_rl(warmup=0)
    key = jax.random.key(3)
    workers = genepool.LocalWorkers(algorithm.task)
    candidates, state = algorithm.ask(key, algorithm.init(key), 10)
    state = algorithm.tell(key, state, workers.map(candidates))
    policy = trees.unflat(state.evolver.strategy_state.sample[0], candidates[0].individual.actor)
    replay = state.experience.replay
    alone = TEACHER.update_critic(jax.random.fold_in(KEY, 0), state.learner.inner, policy, replay, 40)
    learnt = algorithm.learn(KEY, state)
    assert same(learnt.learner.teachers[0], alone.critics[0])
    assert len(learnt.learner.teachers) == 5


def test_a_lesson_takes_as_many_steps_as_the_last_ten_episodes_had_frames():
    own = {"warmup": 0, "critic_head_start": 0, "reference_episodes": 1, "max_steps": 20, "share": 0.9}
    algorithm = aes_rl(Uneven, **own)
    lengths = []
    seen = 0
    state = algorithm.init(KEY)
    workers = genepool.LocalWorkers(algorithm.task)
    for k in range(25):
        key = jax.random.fold_in(KEY, k)
        (candidate,), state = algorithm.ask(key, state, 1)
        if candidate.lesson is not None:
            assert int(candidate.lesson.steps) == sum(lengths[-10:])
            seen += 1
        (outcome,) = workers.map([candidate])
        lengths.append(outcome.frames)
        state = algorithm.tell(key, state, [outcome])
        while algorithm.steps_owed(state):
            state = algorithm.learn(key, state)
    assert seen > 10
    assert len(set(lengths)) > 5


# -- random play before


def first_generation(algorithm):
    """The state and the outcomes of the first generation, one worker."""
    return next(generations(algorithm, 1))


def test_the_warm_up_is_random_play_whose_frames_count_and_of_which_the_evolver_is_never_told():
    state, outcomes = first_generation(aes_rl())
    purposes = [o.candidate.purpose for o in outcomes]
    assert purposes == ["warm-up"] * 5 + ["fitness"] * 5  # 100 frames of 20 each
    played = np.concatenate([o.transitions.action for o in outcomes[:5]])
    np.testing.assert_allclose(played.mean(), 0.0, atol=0.25)
    np.testing.assert_allclose(played.var(), 1 / 3, atol=0.12)  # uniform in [-1, 1], 100 of them
    assert int(state.frames) == 10 * LENGTH
    ledger = {}
    genepool.Run._count(SimpleNamespace(ledger=ledger), outcomes)
    assert ledger == {"warm-up": 100, "fitness": 100, "reference": 5 * 5 * LENGTH}


def test_the_evolver_does_not_move_in_the_warm_up():
    algorithm = aes_rl()
    state = algorithm.init(KEY)
    fresh = state.evolver
    candidates, state = algorithm.ask(KEY, state, 4)
    state = algorithm.tell(KEY, state, genepool.LocalWorkers(algorithm.task).map(candidates))
    assert same(state.evolver, fresh)
    replay = int(state.experience.replay.size)
    assert (int(state.frames), replay, int(state.in_flight.told_count)) == (80, 80, 4)
    assert state.counts.tolist() == [1, 1]


def test_with_warmup_told_random_play_is_credited_to_the_individuals_that_were_sampled():
    """As the authors' code. Nothing else differs: the same seeds bring the same random returns."""
    plain = aes_rl()
    credited = aes_rl(warmup_told=True)
    workers = genepool.LocalWorkers(plain.task)
    state = credited.init(KEY)
    rule = credited.evolver
    expected, _ = plain.ask(KEY, plain.init(KEY), 4)
    strategy = state.evolver.strategy_state
    sampled, _ = rule.ask(jax.random.split(KEY)[0], strategy, 4)
    candidates, state = credited.ask(KEY, state, 4)
    outcomes = workers.map(candidates)
    assert [o.returns for o in outcomes] == [o.returns for o in workers.map(expected)]
    state = credited.tell(KEY, state, outcomes)
    for k, (z, outcome) in enumerate(zip(sampled, outcomes, strict=True)):
        results = Results(z[None], np.array([outcome.fitness]), np.array([np.mean(outcome.reference_returns)]))
        strategy = rule.tell(jax.random.fold_in(KEY, k), strategy, results)
    assert same(state.evolver.strategy_state, strategy)
    assert not np.array_equal(strategy.mean, credited.init(KEY).evolver.strategy_state.mean)
    assert [o.candidate.purpose for o in outcomes] == ["warm-up"] * 4
    assert (int(state.experience.replay.size), state.counts.tolist()) == (80, [1, 1])


def test_a_warm_up_that_is_credited_ranks_the_first_generation_of_cem():
    algorithm = cem_rl(random_warmup=True, warmup_told=True)
    fresh = algorithm.init(KEY).evolver.strategy_state
    (state, outcomes), (later, _) = generations(algorithm, 2)
    best = outcomes[int(np.argmax([o.fitness for o in outcomes]))].candidate.credited
    assert {o.candidate.purpose for o in outcomes} == {"warm-up"}
    np.testing.assert_array_equal(sorted(o.candidate.credited[0] for o in outcomes), sorted(fresh.sample[:, 0]))
    pull = (state.evolver.strategy_state.mean - fresh.mean) @ (best - fresh.mean)
    assert pull > 0.0
    assert not same(later.evolver, state.evolver)


def test_random_play_keeps_a_member_s_weights_and_reference_and_plays_one_episode():
    champion, member_actor = (Actor(jax.random.key(k), 1, 1, (4,)) for k in range(2))
    member = Candidate(Individual(member_actor, None), reference=champion, reference_episodes=3, place=7)

    def draw(member):
        return random_play(KEY, np.random.default_rng(0), champion, LENGTH, 2, member)

    credited = draw(member)
    plain = draw(None)
    np.testing.assert_array_equal(credited.credited, trees.flat(member_actor))
    assert (credited.reference, credited.reference_episodes, credited.place) == (champion, 3, 7)
    assert plain.credited is None
    assert plain.reference is None
    assert credited.seeds == plain.seeds
    assert len(plain.seeds) == 1
    np.testing.assert_array_equal(credited.noise, plain.noise)
    assert same(credited.individual.actor, plain.individual.actor)


def test_candidates_that_are_out_count_towards_the_warm_up():
    """With many workers no more random episodes are begun than the warm-up needs: those at work are expected to end."""
    algorithm = aes_rl(max_steps=LENGTH)  # which is what an episode is expected to take, before any is over
    state = algorithm.init(KEY)
    purposes = []
    for k in range(8):
        (candidate,), state = algorithm.ask(jax.random.fold_in(KEY, k), state, 1)
        purposes.append(candidate.purpose)
    assert purposes == ["warm-up"] * 5 + ["fitness"] * 3


# -- no lesson before the critic has its head start


def test_no_lesson_before_the_critic_has_its_head_start():
    algorithm = aes_rl()
    workers = genepool.LocalWorkers(algorithm.task)
    state = algorithm.init(KEY)
    steps = lessons = 0
    for g in range(6):
        clock = Clock()
        state, outcomes = asynchronous(algorithm, workers, jax.random.fold_in(KEY, g), state, clock)
        by_number = {o.candidate.number: o.candidate for o in outcomes}
        for event in clock.events:
            kind, _, number = event.partition(" ")
            if kind == "ask" and by_number[int(number)].lesson is not None:
                lessons += 1
                assert steps >= algorithm.critic_head_start
            if kind == "learnt":
                steps += algorithm.critic_chunk  # or less: a bound that is put right after every generation
        steps = int(state.learner.updates)
    assert lessons


def test_until_the_head_start_is_over_no_individual_is_counted():
    for state, outcomes in generations(aes_rl(critic_head_start=450), 2):
        assert int(state.learner.updates) < 450
        assert not any(o.candidate.lesson for o in outcomes)
        assert state.counts.tolist() == [1, 1]


def test_a_state_holds_one_critic_for_each_lesson_of_a_generation_and_no_more_than_there_are_members():
    assert len(cem_rl().init(KEY).learner.teachers) == 5
    assert len(cem_rl(**{"evolver.population": 4, "lessons.taught": 6}).init(KEY).learner.teachers) == 4
    assert len(cem_rl(lesson_critic="newest").init(KEY).learner.teachers) == 1
    assert len(aes_rl().init(KEY).learner.teachers) == 1
