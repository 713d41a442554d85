"""Laws of every off-policy learner: DDPG, TD3, both forms of SAC, and one outside the package."""

import json
from dataclasses import fields, replace
from functools import cache

import jax
import numpy as np
import pytest
from one_step import BEST, one_step_replay
from own_learner import OneCritic

from genepool.algorithms.choices import missing_methods
from genepool.errors import UserError
from genepool.learning import offpolicy
from genepool.learning.ddpg import DDPG
from genepool.learning.lessons import GradientLesson
from genepool.learning.sac import SAC
from genepool.learning.td3 import TD3
from genepool.networks import Actor, deterministic
from genepool.parts import described, rebuilt
from genepool.protocols import Teacher
from genepool.runs import checkpoint

KEY = jax.random.key(0)
TINY = {"batch_size": 32, "discount": 0.9, "tau": 0.1, "warmup": 60, "critic_hidden": (32, 32)}
RATES = {"actor_rate": 1e-3, "critic_rate": 1e-3}
LEARNERS = {  # their random actions end with the warm-up
    "ddpg": DDPG(random_frames=60, **RATES, **TINY),
    "td3": TD3(**RATES, **TINY),
    "sac twin": SAC("twin", random_frames=60, **RATES, **TINY),
    "sac value": SAC("value", random_frames=60, **RATES, **TINY),
    "own": OneCritic(**TINY),
}
EVERY = pytest.mark.parametrize("part", LEARNERS.values(), ids=LEARNERS)
BOTH = pytest.mark.parametrize("how", ["update", "update_critic"])
INVALID = [{"batch_size": 0}, {"warmup": -1}, {"critic_hidden": (8, 0)}]
INVALID += [{name: value} for name in ("discount", "tau") for value in (-0.1, 1.1, float("nan"))]
ONE_STEP = one_step_replay(weight=2.0)


def new_actor(seed=0):
    return Actor(jax.random.key(seed), 3, 2, (8, 8), layer_norm=False)


def new_individual(part, seed):
    return part.individual(jax.random.key(seed), new_actor(seed))


@cache
def begun(part):
    return part.init(KEY, new_actor())


@pytest.fixture(scope="module")
def replay(memory):
    """A replay that is not full."""
    return memory(2000, 50)


@cache
def trained(part):
    """The learner after training on the task of one step."""
    return part.update(KEY, begun(part), ONE_STEP, 5000)


def after(part, how, key, state, replay, steps, policy=1):
    """The learner after steps of `update`, or of `update_critic` towards the value of another policy."""
    others = (new_individual(part, policy),) if how == "update_critic" else ()
    return getattr(part, how)(key, state, *others, replay, steps)


def lesson(part, actor, replay, steps):
    """The actor after a lesson of the new learner."""
    teacher = part.teacher(begun(part))
    return part.improve(KEY, actor, teacher, replay.data.observation, replay.size, steps)


def leaves(tree):
    return [np.array(leaf) for leaf in jax.tree.leaves(tree)]


def same(one, other):
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(leaves(one), leaves(other), strict=True))


def networks(state):
    """All of a state but the losses of the last call."""
    names = getattr(state, "_fields", None) or [field.name for field in fields(state)]
    return {name: getattr(state, name) for name in names if name != "losses"}


# -- interface


@EVERY
def test_it_is_a_teacher(part):
    assert missing_methods(part, Teacher) == []
    assert isinstance(part, Teacher)


@EVERY
def test_it_is_written_as_json_and_read_again(part):
    read = rebuilt(json.loads(json.dumps(described(part))), (DDPG, TD3, SAC), own=(OneCritic,))
    assert read == part
    assert hash(read) == hash(part)


@EVERY
def test_its_actor_acts_within_the_range_and_its_critic_says_a_value_for_each_row(part, rows):
    state = begun(part)
    batch = rows(20)
    actions = np.asarray(part.actor(state)(batch.observation))
    assert actions.shape == (20, 2)
    assert np.abs(actions).max() <= 1.0
    assert part.critic(state)(batch.observation, batch.action).shape == (20,)


@EVERY
def test_it_reports_numbers_and_none_where_there_is_none(part, replay):
    before = part.report(begun(part))
    report = part.report(part.update(KEY, begun(part), replay, 3))
    assert (before["updates"], report["updates"]) == (0, 3)
    assert before.keys() == report.keys() == json.loads(json.dumps(report)).keys()
    assert before["critic_loss"] is None
    assert all(np.isfinite(value) for value in report.values())


@pytest.mark.parametrize("options", INVALID, ids=str)
@EVERY
def test_invalid_settings_are_refused_in_one_line(part, options):
    setting = next(iter(options)).replace("_", ".")  # a blank or an underscore between the words
    with pytest.raises(UserError, match=f"^{setting} is .*: ") as refusal:
        replace(part, **options)
    assert len(str(refusal.value).splitlines()) == 1


# -- gradient steps


@BOTH
@EVERY
def test_no_steps_change_nothing_and_have_no_loss(part, how, replay):
    state = part.update(KEY, begun(part), replay, 3)
    found = after(part, how, KEY, state, replay, 0)
    assert same(networks(found), networks(state))
    assert part.report(found)["critic_loss"] is None


@BOTH
@EVERY
def test_gradient_steps_are_counted_in_one_call_and_in_two(part, how, replay):
    assert int(after(part, how, KEY, begun(part), replay, 7).updates) == 7
    two = after(part, how, KEY, after(part, how, KEY, begun(part), replay, 3), replay, 4)
    assert int(two.updates) == 7
    assert int(part.update(KEY, two, replay, 5).updates) == 12


@BOTH
@EVERY
def test_the_key_determines_every_bit_and_neither_the_state_nor_the_replay_is_written(part, how, replay):
    state = begun(part)
    before = leaves((state, replay))
    once, again, other = (after(part, how, key, state, replay, 7) for key in (KEY, KEY, jax.random.key(1)))
    assert same(once, again)
    assert not same(networks(once), networks(other))
    assert not same(networks(once), networks(state))
    assert all(np.isfinite(leaf).all() for leaf in leaves(networks(once)))
    assert same(before, (state, replay))


@BOTH
@EVERY
def test_learning_goes_in_blocks_of_a_thousand_steps(part, how, replay, monkeypatch):
    """1500 steps are a block of 1000 and one of 500, each with its own key."""
    found = after(part, how, KEY, begun(part), replay, 1500)
    expected = begun(part)
    assert int(found.updates) == 1500
    monkeypatch.setattr(offpolicy, "blocks", lambda key, steps: [(key, steps)])
    for begin, count in ((0, 1000), (1000, 500)):
        expected = after(part, how, jax.random.fold_in(KEY, begin), expected, replay, count)
    assert same(networks(found), networks(expected))


@EVERY
def test_it_learns_only_from_rows_of_the_replay_that_are_in_use(part, replay):
    poisoned = replace(replay, data=jax.tree.map(lambda leaf: leaf.at[50:].set(np.nan), replay.data))
    assert same(part.update(KEY, begun(part), poisoned, 20), part.update(KEY, begun(part), replay, 20))
    individual = new_individual(part, 1)
    assert same(lesson(part, individual, poisoned, 50), lesson(part, individual, replay, 50))


@pytest.mark.parametrize(("terminated", "counts"), [(1.0, False), (0.0, True)])
@EVERY
def test_the_next_state_counts_unless_the_episode_ended(part, terminated, counts, replay):
    data = replay.data._replace(terminated=np.full_like(replay.data.terminated, terminated))
    elsewhere = data._replace(next_observation=data.next_observation + 1.0)
    rings = (replace(replay, data=rows) for rows in (data, elsewhere))
    found, moved = (after(part, "update_critic", KEY, begun(part), ring, 7) for ring in rings)
    assert same(part.critic(found), part.critic(moved)) != counts


@EVERY
def test_a_learner_that_was_saved_and_loaded_goes_on_with_the_same_bits(part, replay, tmp_path):
    state = part.update(KEY, begun(part), replay, 7)
    checkpoint.save(tmp_path / "file", state, {})
    loaded, _ = checkpoint.load(tmp_path / "file", begun(part))
    assert same(loaded, state)
    assert all(a.dtype == b.dtype for a, b in zip(jax.tree.leaves(loaded), jax.tree.leaves(state), strict=True))
    key = jax.random.key(1)
    assert same(part.update(key, loaded, replay, 7), part.update(key, state, replay, 7))


# -- lessons


@EVERY
def test_critics_that_learn_for_others_leave_the_actor_alone(part, replay):
    state = part.update(KEY, begun(part), replay, 7)
    found, other = (after(part, "update_critic", KEY, state, replay, 10, policy) for policy in (1, 2))
    assert same(part.actor(found), part.actor(state))
    assert not same(part.critic(found), part.critic(state))
    assert not same(part.critic(found), part.critic(other))  # the caller chooses the policy


@EVERY
def test_a_lesson_climbs_the_frozen_critic_and_writes_neither_the_teacher_nor_the_actor_it_was_given(part, rows):
    teacher = part.teacher(trained(part))
    individual = new_individual(part, 8)
    states = ONE_STEP.data.observation
    before = leaves((teacher, individual))
    improved = part.improve(KEY, individual, teacher, states, ONE_STEP.size, 300)
    assert same(before, (teacher, individual))
    assert jax.tree.structure(improved) == jax.tree.structure(individual)
    fresh = rows(50).observation
    critic = part.critic(trained(part))
    values = [float(np.mean(critic(fresh, deterministic(actor)(fresh)))) for actor in (individual, improved)]
    assert values[1] > values[0] + 0.1


@EVERY
def test_a_lesson_of_no_steps_changes_nothing_and_each_lesson_has_a_fresh_optimiser(part, replay):
    individual = new_individual(part, 8)
    assert same(lesson(part, individual, replay, 0), individual)
    twice = lesson(part, lesson(part, individual, replay, 5), replay, 5)
    assert not same(twice, lesson(part, individual, replay, 10))


@EVERY
def test_a_lesson_that_travels_is_the_learner_s_own(part, replay):
    individual = new_individual(part, 8)
    data = np.asarray(jax.random.key_data(KEY))
    travelled = GradientLesson(
        part, data, part.teacher(begun(part)), replay.data.observation, replay.size, np.asarray(20)
    )
    assert same(travelled(individual), lesson(part, individual, replay, 20))


# -- exploration


@EVERY
def test_it_acts_at_random_in_the_warm_up_uniformly_over_the_range(part):
    player, noise = part.explore(KEY, begun(part), np.zeros(2), 10_000, frames_so_far=59)
    assert noise.shape == (10_000, 2)
    actions = np.asarray(player.explore(np.ones((10_000, 3), np.float32), noise))
    assert np.abs(actions).max() <= 1.0
    np.testing.assert_allclose(actions.mean(axis=0), 0.0, atol=0.025)  # 4 standard errors
    np.testing.assert_allclose(actions.var(axis=0), 1 / 3, atol=0.012)
    np.testing.assert_allclose(np.mean(actions > 0.8), 0.1, atol=0.01)
    np.testing.assert_allclose(np.corrcoef(actions.T)[0, 1], 0.0, atol=0.04)


@EVERY
def test_after_the_warm_up_it_acts_by_its_own_actor_with_noise_that_the_key_determines(part, rows):
    state = begun(part)
    states = rows(20).observation
    player, noise = part.explore(KEY, state, np.zeros(2), 20, frames_so_far=61)
    assert noise.shape == (20, 2)
    assert noise.all()
    np.testing.assert_allclose(player.explore(states, 0.0 * noise), part.actor(state)(states), atol=1e-6)
    assert same(noise, part.explore(KEY, state, np.zeros(2), 20, frames_so_far=61)[1])
    assert not same(noise, part.explore(jax.random.key(1), state, np.zeros(2), 20, frames_so_far=61)[1])


# -- a task with a known answer


@EVERY
def test_the_learner_solves_a_task_of_one_step_and_its_lessons_find_the_same_answer(part):
    rows = ONE_STEP.data
    state = trained(part)
    assert not np.allclose(np.mean(part.actor(begun(part))(rows.observation), axis=0), BEST, atol=0.2)
    actions = np.asarray(part.actor(state)(rows.observation))
    np.testing.assert_allclose(actions.mean(axis=0), BEST, atol=0.1)
    np.testing.assert_allclose(actions, np.tile(BEST, (len(actions), 1)), atol=0.25)
    values = part.critic(state)(rows.observation, rows.action)
    np.testing.assert_allclose(np.mean(np.abs(values - rows.reward)), 0.0, atol=0.1)
    improved = part.improve(KEY, new_individual(part, 8), part.teacher(state), rows.observation, ONE_STEP.size, 2500)
    np.testing.assert_allclose(np.mean(deterministic(improved)(rows.observation), axis=0), BEST, atol=0.1)
