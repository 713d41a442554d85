"""The loop of CEM-RL and AES-RL: who is taught when and by which critic, what is counted, and reductions."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from tasks import Reach

import genepool
from genepool import trees
from genepool.algorithms.taught import Controlled, FirstHalf
from genepool.evolution.asynchronous import AsynchronousES
from genepool.evolution.distribution import Told
from genepool.learning.td3 import TD3
from genepool.runs import checkpoint
from genepool.schedule import Clock, asynchronous, synchronous
from genepool.types import Candidate, Individual

KEY = jax.random.key(0)
TEACHER = TD3(batch_size=8, critic_hidden=(8, 8))
LENGTH = 20  # of every episode of Reach


def small(preset, task=Reach, **options):
    options = {"hidden": (8, 8), "replay": 2_000, "learner": TEACHER, "warmup": 200, "test_episodes": 2} | options
    return preset(task, **options)


def aes(**options):
    """AES-RL with a warm-up of five episodes."""
    options = {"warmup": 100, "critic_head_start": 100, "critic_chunk": 50, "scale": 5.0} | options
    return small(genepool.aes_rl, **options)


def generations(algorithm, count, seed=0, schedule=None):
    """The states and outcomes of the first generations."""
    key, workers = jax.random.key(seed), genepool.LocalWorkers(algorithm.task)
    schedule = schedule or (asynchronous if algorithm.asynchronous else synchronous)
    state = algorithm.init(key)
    for g in range(count):
        state, outcomes = schedule(algorithm, workers, jax.random.fold_in(key, g), state, Clock())
        yield state, outcomes


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(one, other):
    pairs = zip(leaves(one), leaves(other), strict=True)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


class Listening(TD3):
    """A learner that writes down what it is asked to do, and does it."""

    heard = []  # noqa: RUF012, shared on purpose: parts are frozen

    def update_critic(self, key, state, policy, replay, steps):
        self.heard.append(("critic", steps, trees.flat(policy)))
        return super().update_critic(key, state, policy, replay, steps)

    def improve(self, key, actor, teacher, states, filled, steps):
        self.heard.append(("lesson", steps, trees.flat(actor)))
        return super().improve(key, actor, teacher, states, filled, steps)


@pytest.fixture
def heard():
    Listening.heard.clear()
    return Listening.heard


LISTENING = Listening(batch_size=8, critic_hidden=(8, 8))


# -- CEM-RL


def test_a_generation_of_cem_rl_has_the_steps_of_its_paper(heard):
    """Each block S_prev // 5 critic steps, each lesson S_prev actor steps; first once more than the warm-up is played."""
    algorithm = small(genepool.cem_rl, learner=LISTENING, warmup=200)
    counts = []
    for state, outcomes in generations(algorithm, 4):
        taught = [o.candidate.lesson is not None for o in outcomes]
        critic, lessons = ([steps for kind, steps, _ in heard if kind == name] for name in ("critic", "lesson"))
        counts.append((critic, lessons, taught, int(state.learner.updates)))
        heard.clear()
    frames, none, half = 10 * LENGTH, [False] * 10, [True] * 5 + [False] * 5
    assert counts[0] == ([], [], none, 0)  # exactly the warm-up, and that is not enough
    assert counts[1] == ([frames // 5] * 5, [], none, frames)  # the critics are ready for the next generation
    assert counts[2] == ([frames // 5] * 5, [frames] * 5, half, 2 * frames)
    assert counts[3] == ([frames // 5] * 5, [frames] * 5, half, 3 * frames)


class Uneven(Reach):
    """Episodes of 3 to 20 steps, by the seed."""

    def reset(self, *, seed=None, options=None):
        answer = super().reset(seed=seed)
        self.end = 3 + seed % 18
        return answer

    def step(self, action):
        observation, reward, *_ = super().step(action)
        return observation, reward, False, self.t >= self.end, {}


def test_where_the_frames_do_not_divide_the_blocks_are_rounded_down(heard):
    algorithm = small(genepool.cem_rl, Uneven, learner=LISTENING, warmup=0, max_steps=20)
    before = 0
    for state, outcomes in generations(algorithm, 3):
        frames = sum(o.frames for o in outcomes)
        critic, lessons = ([steps for kind, steps, _ in heard if kind == name] for name in ("critic", "lesson"))
        assert critic == [frames // 5] * 5
        assert lessons == ([before] * 5 if before else [])
        before = frames
        heard.clear()
        assert int(state.learner.updates) == int(state.owed)


def test_the_critics_learn_the_value_of_the_individuals_that_are_taught_next_as_they_were_sampled(heard):
    algorithm = small(genepool.cem_rl, learner=LISTENING, warmup=0)
    learnt = None
    for state, outcomes in generations(algorithm, 3):
        if learnt is not None:
            asked = [trees.flat(o.candidate.individual.actor) for o in outcomes]
            np.testing.assert_array_equal(asked[:5], learnt)
        learnt = np.stack([policy for kind, _, policy in heard if kind == "critic"])
        np.testing.assert_array_equal(learnt, state.strategy.sample[:5])
        heard.clear()


def test_the_taught_are_the_first_half_and_their_mirror_twins_are_not_and_all_are_told_as_they_were_tried():
    algorithm = small(genepool.cem_rl, warmup=0)
    (before, _), (state, outcomes) = generations(algorithm, 2)
    sampled = np.stack([trees.flat(o.candidate.individual.actor) for o in outcomes])
    tried = np.stack([trees.flat(o.individual.actor) for o in outcomes])
    mean = before.strategy.mean
    np.testing.assert_allclose(sampled[5:] - mean, -(sampled[:5] - mean), atol=1e-6)
    assert all(np.abs(tried[:5] - sampled[:5]).max(axis=1) > 1e-3)
    np.testing.assert_array_equal(tried[5:], sampled[5:])
    assert [o.candidate.origin for o in outcomes] == ["learning"] * 5 + ["evolution"] * 5
    assert [o.candidate.operators for o in outcomes] == [("lesson",)] * 5 + [()] * 5
    best = np.argsort([-o.fitness for o in outcomes], kind="stable")[:5]  # the distribution moved to what was tried
    weights = np.log(6 / np.arange(1, 6)) / np.log(6 / np.arange(1, 6)).sum()
    np.testing.assert_allclose(state.strategy.mean, weights @ tried[best], atol=1e-5)


def test_a_lesson_s_critic_is_that_of_its_own_block_or_the_newest():
    own, newest = (small(genepool.cem_rl, warmup=0, lesson_critic=which) for which in ("own_block", "newest"))
    states = []
    for algorithm in (own, newest):
        ((state, _),) = generations(algorithm, 1)
        candidates, _ = algorithm.ask(KEY, state, 10)
        states.append((state, [c.lesson.teacher for c in candidates[:5]]))
    (state, blocks), (_, last) = states
    assert not any(same(a, b) for k, a in enumerate(blocks) for b in blocks[:k])
    assert same(blocks[-1], state.learner.inner.critics[0])
    assert all(same(teacher, blocks[-1]) for teacher in last)


def test_the_first_critic_of_a_block_is_what_the_learner_had_after_that_many_steps():
    algorithm = small(genepool.cem_rl, warmup=0)
    key, workers = jax.random.key(3), genepool.LocalWorkers(algorithm.task)
    candidates, state = algorithm.ask(key, algorithm.init(key), 10)
    state = algorithm.tell(key, state, workers.map(candidates))
    policy = trees.unflat(state.strategy.sample[0], candidates[0].individual.actor)
    alone = TEACHER.update_critic(jax.random.fold_in(KEY, 0), state.learner.inner, policy, state.replay, 40)
    learnt = algorithm.learn(KEY, state)
    assert same(learnt.learner.teachers[0], alone.critics[0])
    assert len(learnt.learner.teachers) == 5


def test_without_a_learner_it_is_the_strategy_alone():
    algorithm = small(genepool.cem, learner=None)
    for state, outcomes in generations(algorithm, 2):
        assert state.replay is state.learner is None
        assert not any(o.candidate.lesson for o in outcomes)
        assert algorithm.due(state) == 0
    report = algorithm.report(state, outcomes)
    assert (report["taught"], report["untaught"]) == (0, 0)


def test_on_the_synchronous_schedule_a_critic_of_the_mean_catches_up_in_chunks(heard):
    algorithm = small(genepool.cem_rl, learner=LISTENING, warmup=0, target_policy="mean", critic_chunk=64)
    for state, _ in generations(algorithm, 2):
        steps = [steps for kind, steps, _ in heard if kind == "critic"]
        assert steps == [64, 64, 64, 8]  # the 200 frames of a generation
        for kind, _, policy in heard:
            if kind == "critic":
                np.testing.assert_array_equal(policy, state.strategy.mean)
        heard.clear()


# -- how many are taught


def simulate(part, n, seed=0):
    """The share that is taught of n individuals, and how often the one or the other was certain."""
    rng, counts, certain = np.random.default_rng(seed), [1, 1], 0
    for _ in range(n):
        chance = part.chance(0, *counts)
        certain += chance in (0.0, 1.0)
        counts[0 if rng.random() <= chance > 0 else 1] += 1
    return (counts[0] - 1) / n, certain / n


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Controlled(0.5), 0.5),
        (Controlled(0.5, unbiased=False), 0.5),
        (Controlled(0.1), 0.1),
        (Controlled(0.1, unbiased=False), 0.108),
    ],
)
def test_the_share_of_the_taught_settles_where_equation_3_has_it(part, expected):
    np.testing.assert_allclose([simulate(part, 20_000, seed)[0] for seed in range(3)], expected, atol=1e-3)


def test_the_controller_saturates_within_a_hundredth_of_its_goal():
    part = Controlled(0.5)
    assert part.chance(0, 52, 48) == 0.0
    assert part.chance(0, 48, 52) == 1.0
    np.testing.assert_allclose(part.chance(0, 1, 1), 0.5)
    np.testing.assert_allclose(part.chance(0, 505, 495), 0.25)  # -50 * 0.005 + 0.5
    np.testing.assert_allclose(Controlled(0.1, unbiased=False).chance(0, 1, 9), 0.5)
    np.testing.assert_allclose(Controlled(0.1).chance(0, 1, 9), 0.1)
    assert simulate(part, 60)[1] > 0.3  # so that at first they nearly take turns


def test_the_first_half_is_taught_whatever_was_before():
    assert [FirstHalf(2).chance(place, 99, 1) for place in range(4)] == [1.0, 1.0, 0.0, 0.0]


# -- AES-RL


@pytest.fixture(scope="module")
def lived():
    """Six generations of AES-RL on one worker: [(state, outcomes)]; and the events of each."""
    algorithm, key = aes(), jax.random.key(0)
    workers, state, told = genepool.LocalWorkers(algorithm.task), None, []
    state = algorithm.init(key)
    for g in range(6):
        clock = Clock()
        state, outcomes = asynchronous(algorithm, workers, jax.random.fold_in(key, g), state, clock)
        told.append((jax.tree.map(np.asarray, replace(state, replay=None)), outcomes, clock.events))
    return algorithm, told


def test_the_warm_up_is_random_play_that_is_counted_and_never_told(lived):
    _, told = lived
    state, outcomes, _ = told[0]
    purposes = [o.candidate.purpose for o in outcomes]
    assert purposes == ["warm-up"] * 5 + ["fitness"] * 5  # 100 frames of 20 each
    played = np.concatenate([o.transitions.action for o in outcomes[:5]])
    np.testing.assert_allclose(played.mean(), 0.0, atol=0.25)
    np.testing.assert_allclose(played.var(), 1 / 3, atol=0.12)  # uniform in [-1, 1], 100 of them
    assert int(state.frames) == 10 * LENGTH
    ledger = {}
    genepool.Run._count(SimpleNamespace(ledger=ledger), outcomes)
    assert ledger == {"warm-up": 100, "fitness": 100, "reference": 5 * 5 * LENGTH}


def test_the_strategy_does_not_move_in_the_warm_up():
    algorithm = aes()
    state, workers = algorithm.init(KEY), genepool.LocalWorkers(algorithm.task)
    fresh = state.strategy
    candidates, state = algorithm.ask(KEY, state, 4)
    state = algorithm.tell(KEY, state, workers.map(candidates))
    assert same(state.strategy, fresh)
    assert (int(state.frames), int(state.replay.size), int(state.roll.told)) == (80, 80, 4)
    assert state.counts.tolist() == [1, 1]


def test_with_warmup_told_random_play_is_credited_to_the_individuals_that_were_sampled():
    """As the authors' code. Nothing else differs: the same seeds bring the same random returns."""
    plain, credited = aes(), aes(warmup_told=True)
    workers, state = genepool.LocalWorkers(plain.task), credited.init(KEY)
    expected, _ = plain.ask(KEY, plain.init(KEY), 4)
    sampled, _ = credited.evolver.ask(jax.random.split(KEY)[0], state.strategy, 4)
    strategy = state.strategy
    candidates, state = credited.ask(KEY, state, 4)
    outcomes = workers.map(candidates)
    assert [o.returns for o in outcomes] == [o.returns for o in workers.map(expected)]
    state = credited.tell(KEY, state, outcomes)
    for k, (z, outcome) in enumerate(zip(sampled, outcomes, strict=True)):
        told = Told(z[None], np.array([outcome.fitness]), np.array([np.mean(outcome.reference_returns)]))
        strategy = credited.evolver.tell(jax.random.fold_in(KEY, k), strategy, told)
    assert same(state.strategy, strategy)
    assert not np.array_equal(strategy.mean, credited.init(KEY).strategy.mean)
    assert [o.candidate.purpose for o in outcomes] == ["warm-up"] * 4
    assert (int(state.replay.size), state.counts.tolist()) == (80, [1, 1])


def test_a_told_warm_up_ranks_the_first_generation_of_cem():
    algorithm = small(genepool.cem_rl, random_warmup=True, warmup_told=True)
    fresh = algorithm.init(KEY)
    (state, outcomes), (later, _) = generations(algorithm, 2)
    best = outcomes[int(np.argmax([o.fitness for o in outcomes]))].individual.memory
    assert {o.candidate.purpose for o in outcomes} == {"warm-up"}
    np.testing.assert_array_equal(sorted(o.individual.memory[0] for o in outcomes), sorted(fresh.strategy.sample[:, 0]))
    pull = (state.strategy.mean - fresh.strategy.mean) @ (best - fresh.strategy.mean)
    assert pull > 0.0
    assert not same(later.strategy, state.strategy)


def test_who_is_out_counts_towards_the_warm_up():
    """With many workers no more random episodes are begun than the warm-up needs: those at work are expected to end."""
    algorithm = aes(max_steps=LENGTH)  # which is what an episode is expected to take, before any is over
    state, purposes = algorithm.init(KEY), []
    for k in range(8):
        (candidate,), state = algorithm.ask(jax.random.fold_in(KEY, k), state, 1)
        purposes.append(candidate.purpose)
    assert purposes == ["warm-up"] * 5 + ["fitness"] * 3


def test_no_lesson_before_the_critic_has_its_head_start(lived):
    algorithm, told = lived
    steps = 0
    for state, outcomes, events in told:
        by_number = {o.candidate.number: o.candidate for o in outcomes}
        for event in events:
            kind, _, number = event.partition(" ")
            if kind == "ask" and by_number[int(number)].lesson is not None:
                assert steps >= algorithm.critic_head_start
            if kind == "learnt":
                steps += algorithm.critic_chunk  # or less: a bound that is put right after every generation
        steps = int(state.learner.updates)
    assert any(o.candidate.lesson for _, outcomes, _ in told for o in outcomes)
    late = aes(critic_head_start=450)
    for state, outcomes in generations(late, 2):
        assert int(state.learner.updates) < 450
        assert not any(o.candidate.lesson for o in outcomes)
        assert state.counts.tolist() == [1, 1]  # and till then nobody is counted


def test_the_critic_takes_as_many_steps_as_there_were_frames_and_never_more(lived):
    algorithm, told = lived
    for state, _, _ in told:
        assert int(state.learner.updates) == int(state.frames)
    state, workers = algorithm.init(KEY), genepool.LocalWorkers(algorithm.task)
    for k in range(12):
        key = jax.random.fold_in(KEY, k)
        candidates, state = algorithm.ask(key, state, 1)
        state = algorithm.tell(key, state, workers.map(candidates))
        assert algorithm.due(state) <= algorithm.critic_chunk
        if int(state.frames) <= algorithm.warmup:
            assert algorithm.due(state) == 0
        while algorithm.due(state):
            state = algorithm.learn(key, state)
            assert int(state.learner.updates) <= int(state.frames)


def test_a_lesson_takes_as_many_steps_as_the_last_ten_episodes_had_frames():
    algorithm = small(
        genepool.aes_rl, Uneven, warmup=0, critic_head_start=0, reference_episodes=1, max_steps=20, share=0.9
    )
    lengths, seen = [], 0
    state, workers = algorithm.init(KEY), genepool.LocalWorkers(algorithm.task)
    for k in range(25):
        key = jax.random.fold_in(KEY, k)
        (candidate,), state = algorithm.ask(key, state, 1)
        if candidate.lesson is not None:
            assert int(candidate.lesson.steps) == sum(lengths[-10:])
            seen += 1
        (outcome,) = workers.map([candidate])
        lengths.append(outcome.frames)
        state = algorithm.tell(key, state, [outcome])
        while algorithm.due(state):
            state = algorithm.learn(key, state)
    assert seen > 10
    assert len(set(lengths)) > 5


def test_reference_episodes_are_played_by_the_mean_and_are_never_stored(lived):
    algorithm, told = lived
    for _, outcomes, _ in told:
        for o in outcomes:
            told_to_strategy = o.candidate.purpose == "fitness"
            assert len(o.reference_returns) == 5 * told_to_strategy
            assert o.reference_frames == 5 * LENGTH * told_to_strategy
            assert o.frames == len(o.transitions.reward) == LENGTH
    state = algorithm.init(KEY)
    state = replace(state, frames=np.asarray(200), lengths=np.full(10, LENGTH))
    (candidate,), state = algorithm.ask(KEY, state, 1)
    assert same(candidate.reference, algorithm.policies(state)["champion"])
    (outcome,) = genepool.LocalWorkers(algorithm.task).map([candidate])
    alone = Candidate(Individual(candidate.reference, None), candidate.reference_seeds)
    assert outcome.reference_returns == genepool.LocalWorkers(algorithm.task).map([alone])[0].returns
    assert int(algorithm.tell(KEY, state, [outcome]).replay.size) == LENGTH


def test_the_mean_moves_as_its_rule_says_of_the_individual_and_the_reference(lived):
    algorithm, told = lived
    state, outcomes, _ = told[0]
    strategy = algorithm.evolver.init(None, trees.flat(algorithm.init(jax.random.key(0)).strategy.mean))
    for o in outcomes:
        if o.candidate.purpose == "fitness":
            p = algorithm.evolver.mean_rule(o.fitness, float(np.mean(o.reference_returns)), 5.0)
            mean = strategy.mean + np.float32(p) * (trees.flat(o.individual.actor) - strategy.mean)
            strategy = replace(strategy, mean=mean)
    np.testing.assert_allclose(state.strategy.mean, strategy.mean, atol=1e-5)


class Never:
    """A mean rule under which the mean stays."""

    def __call__(self, z, mu, scale):
        return 0.0


def test_with_the_cache_episodes_of_the_same_mean_are_played_once_and_their_mean_is_taken():
    evolver = AsynchronousES(mean_rule=Never())
    algorithm = aes(warmup=0, reference_cache=True, evolver=evolver, learner=None)
    state, workers, known, fresh = algorithm.init(KEY), genepool.LocalWorkers(algorithm.task), [], []
    for k in range(4):
        (candidate,), state = algorithm.ask(jax.random.fold_in(KEY, k), state, 1)
        (outcome,) = workers.map([candidate])
        state = algorithm.tell(KEY, state, [outcome])
        fresh.append(len(outcome.reference_returns))
        known += outcome.reference_returns
        (judged,) = algorithm.report(state, [outcome])["mean_fitness"]
        np.testing.assert_allclose(judged, np.mean(known), rtol=1e-6)
    assert fresh == [5, 0, 0, 0]
    moving = replace(algorithm, evolver=AsynchronousES(scale=5.0))
    state, fresh = moving.init(KEY), []
    for k in range(6):
        (candidate,), state = moving.ask(jax.random.fold_in(KEY, k), state, 1)
        (outcome,) = workers.map([candidate])
        before, state = state.strategy.mean, moving.tell(KEY, state, [outcome])
        fresh.append(len(outcome.reference_returns))
        moved = not np.array_equal(before, state.strategy.mean)
        assert np.isnan(state.known).all() == moved
    assert fresh.count(5) > 1  # a mean that moved is not the one that is known


def test_what_a_mean_brought_that_is_not_the_mean_any_more_is_not_kept():
    algorithm = aes(warmup=0, reference_cache=True, evolver=AsynchronousES(mean_rule=Never()), learner=None)
    workers = genepool.LocalWorkers(algorithm.task)
    candidates, state = algorithm.ask(KEY, algorithm.init(KEY), 2)
    first, second = workers.map(candidates)
    moving = replace(algorithm, evolver=AsynchronousES(scale=1e9))  # whatever comes, half the way
    state = moving.tell(KEY, state, [first])
    assert np.isnan(state.known).all()
    state = algorithm.tell(KEY, state, [second])  # asked for before the mean moved
    assert np.isnan(state.known).all()


def test_staleness_is_how_many_were_told_since_the_candidate_was_asked_for():
    algorithm = aes(warmup=0, learner=None)
    workers = genepool.LocalWorkers(algorithm.task)
    candidates, state = algorithm.ask(KEY, algorithm.init(KEY), 4)
    outcomes = workers.map(candidates)
    for k in (2, 0, 3, 1):
        state = algorithm.tell(KEY, state, [outcomes[k]])
    report = algorithm.report(state, outcomes)
    assert report["staleness"] == [1, 3, 0, 2]
    together = algorithm.ask(KEY, algorithm.init(KEY), 4)[1]
    together = algorithm.tell(KEY, together, outcomes)
    assert algorithm.report(together, outcomes)["staleness"] == [0, 1, 2, 3]  # one after the other, at once or not
    assert len(report["p"]) == len(report["mean_fitness"]) == 4


def test_an_outcome_that_is_told_twice_changes_nothing(lived):
    for algorithm in (aes(warmup=0, critic_head_start=0), small(genepool.cem_rl, warmup=0)):
        workers = genepool.LocalWorkers(algorithm.task)
        candidates, state = algorithm.ask(KEY, algorithm.init(KEY), 3)
        outcomes = workers.map(candidates)
        state = algorithm.tell(KEY, state, [*outcomes, outcomes[1]])
        before = [leaf.copy() for leaf in leaves(state)]
        after = algorithm.tell(KEY, state, outcomes)
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, leaves(after), strict=True))
        assert int(after.replay.size) == 3 * LENGTH


def test_outcomes_may_be_told_in_any_order():
    algorithm = aes(warmup=0, learner=None)
    workers = genepool.LocalWorkers(algorithm.task)
    candidates, first = algorithm.ask(KEY, algorithm.init(KEY), 6)
    outcomes = workers.map(candidates)
    for order in ((0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0), (2, 5, 0, 1, 4, 3)):
        state = first
        for k in order:
            state = algorithm.tell(KEY, state, [outcomes[k]])
        assert np.isfinite(state.strategy.mean).all()
        assert (state.strategy.variance >= np.float32(1e-5)).all()
        assert not state.roll.out.any()
        assert (int(state.roll.told), int(state.frames)) == (6, 6 * LENGTH)


def test_a_candidate_that_was_lost_is_asked_again_and_is_counted_once():
    algorithm = aes(warmup=0, critic_head_start=0)
    state, workers = algorithm.init(KEY), genepool.LocalWorkers(algorithm.task)
    candidates, state = algorithm.ask(KEY, state, 3)
    state = algorithm.learn(KEY, algorithm.tell(KEY, state, workers.map(candidates)))
    counted = state.counts.sum()
    candidates, state = algorithm.ask(KEY, state, 4)
    assert state.counts.sum() == counted + 4
    state = algorithm.tell(KEY, state, workers.map(candidates[1:2]))
    lost = replace(state, roll=state.roll.lose())
    again, state = algorithm.ask(jax.random.key(9), lost, 4)
    assert [c.number for c in again] == [3, 5, 6, 7]
    assert state.counts.sum() == counted + 5  # three again, one new
    kinds = [c.lesson is not None for c in (candidates[1], *again)]
    np.testing.assert_array_equal(state.counts, [1 + sum(kinds), 1 + len(kinds) - sum(kinds)])


# -- bits


@pytest.mark.parametrize("make", [lambda: small(genepool.cem_rl, warmup=0), aes], ids=["cem_rl", "aes_rl"])
def test_the_same_seed_gives_the_same_bits(make):
    for (one, a), (other, b) in zip(generations(make(), 3), generations(make(), 3), strict=True):
        assert same(one, other)
        assert [o.returns for o in a] == [o.returns for o in b]
    assert not same(one, next(generations(make(), 1, seed=1))[0])


def test_the_asynchronous_schedule_on_one_worker_is_the_serial_loop():
    algorithm, key = aes(), jax.random.key(5)
    scheduled = [state for state, _ in generations(algorithm, 4, seed=5)]
    workers, state = genepool.LocalWorkers(algorithm.task), algorithm.init(key)
    for g in range(4):
        k_ask, k_tell, k_learn = jax.random.split(jax.random.fold_in(key, g), 3)
        studied = 0
        for k in range(algorithm.generation):
            candidates, state = algorithm.ask(jax.random.fold_in(k_ask, k), state, 1)
            state = algorithm.tell(jax.random.fold_in(k_tell, k), state, workers.map(candidates))
            while algorithm.due(state):
                state = algorithm.learn(jax.random.fold_in(k_learn, studied), state)
                studied += 1
        assert same(replace(state, replay=None), replace(scheduled[g], replay=None))
    assert same(state, scheduled[-1])
    assert int(state.learner.updates) == 40 * LENGTH


def test_the_events_of_a_serial_run_are_ask_tell_and_learn_in_turn(lived):
    _, told = lived
    *_, (_, outcomes, events) = told
    kinds = [event.split()[0] for event in events]
    assert kinds == ["ask", "tell", "learnt"] * 10
    assert [int(e.split()[1]) for e in events if e.startswith("tell")] == [o.candidate.number for o in outcomes]


@pytest.mark.parametrize(
    "make",
    [
        lambda: small(genepool.cem_rl, warmup=0),
        aes,
        lambda: small(genepool.rank_es, warmup=0, critic_head_start=0),
        lambda: small(genepool.cem_rl, warmup=0, evolver=genepool.Evosax("Sep_CMA_ES")),
    ],
    ids=["cem_rl", "aes_rl", "rank_es", "sep_cma_es"],
)
def test_a_state_is_read_back_as_it_was_written_and_goes_on_to_the_same_bits(make, tmp_path):
    algorithm = make()
    *_, (state, _) = generations(algorithm, 2)
    checkpoint.save(tmp_path / "state.safetensors", state, {})
    back, _ = checkpoint.load(tmp_path / "state.safetensors", algorithm.init(jax.random.key(1)))
    assert same(state, back)
    schedule, workers = (asynchronous if algorithm.asynchronous else synchronous), genepool.LocalWorkers(algorithm.task)
    one, other = (schedule(algorithm, workers, KEY, start, Clock())[0] for start in (state, back))
    assert same(one, other)


# -- presets


def test_aes_rl_takes_its_papers_settings_for_the_task():
    hopper, swimmer, humanoid = (genepool.aes_rl(f"{task}-v5") for task in ("Hopper", "Swimmer", "Humanoid"))
    assert (hopper.evolver.scale, hopper.lessons.share, hopper.hidden) == (600, 0.5, (400, 300))
    assert (swimmer.evolver.scale, swimmer.lessons.share) == (48, 0.1)
    assert (humanoid.evolver.scale, humanoid.lessons.share, humanoid.hidden) == (960, 0.5, (256, 256))
    assert humanoid.learner.actor_rate == humanoid.learner.critic_rate == 3e-4
    assert humanoid.learner.critic_hidden == (256, 256)
    assert hopper.learner.actor_rate == hopper.learner.critic_rate == 1e-3
    scales = {"HalfCheetah": 2000, "Walker2d": 800, "Ant": 960}
    assert {task: genepool.aes_rl(f"{task}-v4").evolver.scale for task in scales} == scales
    assert genepool.one_plus_one_es("Hopper-v5").evolver.scale == 600
    assert genepool.rank_es("Swimmer-v5").lessons.share == 0.1
    assert genepool.aes_rl("Swimmer-v5", share=0.5, scale=7.0).lessons.share == 0.5
    assert genepool.aes_rl("Swimmer-v5", scale=7.0).evolver.scale == 7.0


def test_the_presets_have_the_hyper_parameters_of_the_papers_codes():
    cem_rl, aes_rl, td3 = (preset("HalfCheetah-v5") for preset in (genepool.cem_rl, genepool.aes_rl, genepool.td3))
    assert (cem_rl.evolver.population, cem_rl.lessons.taught, cem_rl.warmup) == (10, 5, 10_000)
    assert (cem_rl.learner.batch_size, cem_rl.replay, cem_rl.random_warmup) == (100, 1_000_000, False)
    assert (aes_rl.learner.batch_size, aes_rl.replay, aes_rl.random_warmup) == (256, 200_000, True)
    assert (aes_rl.reference_episodes, aes_rl.target_policy, aes_rl.critic_chunk) == (5, "mean", 1000)
    assert (aes_rl.evolver.initial_variance, aes_rl.evolver.variance_floor) == (1e-3, 1e-5)
    assert (td3.learner.policy_delay, td3.learner.noise.scale, td3.learner.warmup) == (2, 0.1, 10_000)
    for algorithm in (cem_rl, aes_rl, td3):
        assert (algorithm.hidden, algorithm.activation, algorithm.layer_norm) == ((400, 300), "tanh", False)
        assert (algorithm.learner.critic_hidden, algorithm.learner.critic_activation) == ((400, 300), "leaky_relu")


def test_an_option_that_is_not_there_is_named():
    with pytest.raises(genepool.UserError, match="scael"):
        genepool.aes_rl(Reach, scael=3.0)
    with pytest.raises(genepool.UserError, match="draws no samples ahead"):
        genepool.cem_rl(Reach, evolver=AsynchronousES())
    with pytest.raises(genepool.UserError, match="reference episodes"):
        genepool.aes_rl(Reach, reference_episodes=0)


TINY = {"hidden": (8, 8), "replay": 2_000, "test_episodes": 2, "learner": replace(TEACHER, warmup=20)}
WITH_TD3 = TINY | {"layer_norm": False, "population": 4, "memory": 100, "sync_period": 1}
ONLY_RUN = {
    "td3": lambda: genepool.td3(Reach, **TINY),
    "cem": lambda: genepool.cem(Reach, hidden=(8, 8)),
    "es": lambda: genepool.cem(Reach, hidden=(8, 8), evolver=genepool.Evosax("Open_ES", population=6)),
    "cem_rl": lambda: small(genepool.cem_rl, warmup=0),
    "aes_rl": lambda: aes(),
    "one_plus_one_es": lambda: small(genepool.one_plus_one_es, warmup=40, critic_head_start=0),
    "rank_es": lambda: small(genepool.rank_es, warmup=40, critic_head_start=0),
    "pderl, asynchronous": lambda: genepool.pderl(Reach, **WITH_TD3).scheduled("asynchronous"),
    "erl with td3": lambda: genepool.erl(Reach, **WITH_TD3),
    "cem_rl, asynchronous": lambda: small(genepool.cem_rl, warmup=0).scheduled("asynchronous"),
    "aes_rl, synchronous": lambda: aes().scheduled("synchronous"),
    "absolute, fixed": lambda: aes(
        evolver=AsynchronousES(genepool.AbsoluteBaseline(), genepool.FixedN(), scale=5.0), warmup=0
    ),
}


@pytest.mark.parametrize("name", ONLY_RUN)
def test_every_preset_runs_two_generations(name, tmp_path):
    """Only runs the code: no law is tested here."""
    algorithm = ONLY_RUN[name]()
    run = genepool.train(algorithm, frames=1_000_000, run=tmp_path / "run")
    for record in run:
        assert json.loads(json.dumps(record)) == record
        assert all(math.isfinite(fitness) for fitness in record["fitness"])
        if record["generation"] == 2:
            run.stop()
    assert run.generation == 2
    assert len(run.folder.records) == 2


def test_in_a_run_the_reference_is_in_the_ledger_and_not_among_the_frames(tmp_path):
    run = genepool.train(aes(), frames=400, run=tmp_path / "run")
    *_, record = list(run)
    assert record["frames"] == record["ledger"]["warm-up"] + record["ledger"]["fitness"] == 400
    assert record["ledger"]["reference"] == 5 * record["ledger"]["fitness"]
    assert record["true_frames"] == sum(record["ledger"].values())
    assert record["ledger"]["champion test"] == 2 * 2 * LENGTH
    assert len(record["p"]) == len(record["staleness"]) == len(record["fitness"]) == 10
    assert record["staleness"] == [0.0] * 10
    assert record["taught"] + record["untaught"] > 0
