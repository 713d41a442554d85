"""DDPG: its update against the equations written with optax, and a task with a known best action."""

from dataclasses import fields, replace
from functools import cache
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from naive_updates import ddpg_step
from one_step import one_step_replay

from benchmarks.parts import measuring, updates
from benchmarks.parts.flops import update_flops, usual_flops
from genepool import buffer
from genepool.algorithms.alone import LearnerAlone
from genepool.errors import UserError
from genepool.learning import ddpg, offpolicy
from genepool.learning.ddpg import DDPG
from genepool.networks import Actor
from genepool.optimiser import Adam, adam_init
from genepool.types import Outcome, Transitions

KEY = jax.random.key(0)


@cache
def learner(sizes, hidden):
    return DDPG().init(KEY, Actor(KEY, *sizes, hidden))


def close(ours, naive, atol):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), ours, naive)


def test_the_critic_s_target_is_that_of_the_bellman_equation_and_ends_with_the_task():
    batch = Transitions(
        observation=jnp.zeros((3, 2)),
        action=jnp.zeros((3, 1)),
        reward=jnp.array([1.0, 2.0, 3.0]),
        next_observation=jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        terminated=jnp.array([0.0, 1.0, 0.0]),
    )

    def actor(s):
        return 10 * s[:, :1]

    def critic(s, a):
        return s[:, 1] + a[:, 0]

    y = DDPG(discount=0.5).targets(actor, critic, batch)
    np.testing.assert_allclose(y, [1 + 0.5 * (2 + 10), 2, 3 + 0.5 * (6 + 50)])


def test_losses_are_the_mean_squared_error_and_the_negative_mean_value(rows):
    batch = rows(4)

    def actor(s):
        return s[:, 1:]

    def critic(s, a):
        return s[:, 0] + 2 * a[:, 0]

    q = critic(batch.observation, batch.action)
    y = np.arange(4.0)
    np.testing.assert_allclose(DDPG().critic_loss(critic, batch, y), np.mean((q - y) ** 2), rtol=1e-5)
    negative_value = -np.mean(batch.observation[:, 0] + 2 * batch.observation[:, 1])
    np.testing.assert_allclose(DDPG().actor_loss(actor, critic, batch.observation), negative_value, rtol=1e-5)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_our_adam_equals_that_of_optax(clip):
    rng = np.random.default_rng(0)

    def draw(scale):
        return {"w": scale * jnp.asarray(rng.normal(size=(5, 3))), "b": scale * jnp.asarray(rng.normal(size=3))}

    weights = draw(1.0)
    theirs = weights
    chain = optax.chain(optax.clip_by_global_norm(clip or np.inf), optax.adam(0.01))
    ours = weights
    state = adam_init(weights)
    their_state = chain.init(weights)
    for scale in (0.01, 0.1, 1.0, 10.0, 0.1):  # global norms on both sides of the clip
        gradient = draw(scale)
        ours, state = Adam(0.01, clip).step(ours, gradient, state)
        change, their_state = chain.update(gradient, their_state)
        theirs = optax.apply_updates(theirs, change)
        close(ours, theirs, 1e-6)
    assert np.max(np.abs(ours["w"] - weights["w"])) > 0.01


def test_updates_and_slow_targets_equal_the_equations_written_with_optax(rows, memory, monkeypatch):
    part = DDPG(batch_size=16, actor_rate=1e-3, critic_rate=2e-3, discount=0.9, tau=0.1, gradient_clip=1.5)
    places = np.random.default_rng(0).integers(50, size=(offpolicy.BLOCK, part.batch_size))
    monkeypatch.setattr(buffer, "sample", lambda key, ring, shape: jnp.asarray(places))
    state = learner((3, 2), (8,))
    steps = 5
    found = part.update(KEY, state, memory(64, 50), steps)

    critic_adam, actor_adam = (
        optax.chain(optax.clip_by_global_norm(1.5), optax.adam(rate)) for rate in (part.critic_rate, part.actor_rate)
    )
    update = ddpg_step(critic_adam, actor_adam)
    pair = state.actor, state.critic
    networks = (*pair, *pair, actor_adam.init(state.actor), critic_adam.init(state.critic))
    losses = []
    for i in range(steps):
        networks, loss = update(networks, Transitions(*(leaf[places[i]] for leaf in rows(50))))
        losses.append(loss)
    close((found.actor, found.critic, found.target_actor, found.target_critic), networks[:4], 1e-5)
    np.testing.assert_allclose(found.losses, np.mean(losses, axis=0), rtol=1e-4)
    assert int(found.updates) == steps
    moved = max(
        float(np.max(np.abs(a - b))) for a, b in zip(*map(jax.tree.leaves, (found.actor, state.actor)), strict=True)
    )
    assert moved > 1e-3


def test_the_critic_steps_first_and_as_it_would_alone(memory):
    part = DDPG(batch_size=16, tau=0.1)
    state = learner((3, 2), (8,))
    replay = memory(64, 50)
    both = part.update(KEY, state, replay, 1)
    alone = part.update_critic(KEY, state, state.target_actor, replay, 1)
    close((alone.critic, alone.target_critic), (both.critic, both.target_critic), 1e-7)
    close((alone.actor, alone.target_actor), (state.actor, state.target_actor), 0)
    assert int(alone.actor_optimiser.t) == 0


def test_a_learner_begins_with_small_outputs_and_targets_that_are_copies():
    state = learner((3, 2), (8,))
    fresh = Actor(KEY, 3, 2, (8,))
    close(state.actor.output, jax.tree.map(lambda leaf: 0.1 * leaf, fresh.output), 1e-7)
    close(state.actor.hidden, fresh.hidden, 0)
    assert 0.99 * 0.1 / 300**0.5 < np.max(np.abs(state.critic.output.weight)) <= 0.1 / 300**0.5
    close((state.target_actor, state.target_critic), (state.actor, state.critic), 0)


@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan")])
def test_an_invalid_gradient_clip_is_refused(clip):
    with pytest.raises(UserError, match="gradient clip above 0"):
        DDPG(gradient_clip=clip)


def test_the_learner_solves_a_task_of_one_step_with_erl_s_critic():
    replay = one_step_replay([0.5], observation_size=2)
    rows = jax.tree.map(lambda leaf: leaf[:200], replay.data)
    part = DDPG(batch_size=32, actor_rate=1e-3, critic_rate=1e-3)
    trained = part.update(KEY, learner((2, 1), (16,)), replay, 1500)
    np.testing.assert_allclose(part.actor(trained)(rows.observation), 0.5, atol=0.1)
    values = jax.jit(part.critic(trained).__call__)(rows.observation, rows.action)
    np.testing.assert_allclose(values, rows.reward, atol=0.15)


@pytest.mark.parametrize(("n", "owed"), [(640, 0), (641, 12)])
def test_learning_waits_until_the_replay_holds_more_than_the_warm_up(rows, memory, n, owed):
    """An episode of 12 frames, after which the replay holds n."""
    task = SimpleNamespace(observation_size=3, action_size=2, horizon=20)
    algorithm = LearnerAlone(task, learner=DDPG(), hidden=(4,), replay=1024)
    state = algorithm.init(KEY)
    state = replace(state, experience=replace(state.experience, replay=memory(1024, n - 12)))
    (explorer,), state = algorithm.ask(KEY, state, 1)
    state = algorithm.tell(KEY, state, [Outcome(explorer, explorer.individual, (0.0,), rows(12))])
    assert int(state.experience.replay.size) == n
    assert algorithm.steps_owed(state) == owed


def test_the_plain_update_of_the_benchmark_is_the_same_update():
    replay = measuring.full_replay(2_000)

    def updated():
        return DDPG().update(KEY, DDPG().init(KEY, Actor(KEY, *measuring.SIZES)), replay, 20)

    ours = updated()
    with updates.written_plainly():
        plain = updated()
    for name in ("actor", "critic", "target_actor", "target_critic"):  # Adam has moved weights by up to 9e-3
        close(getattr(ours, name), getattr(plain, name), atol=5e-6)


def flops(lowered):
    return lowered.cost_analysis()["flops"]


def test_the_flops_that_the_benchmark_counts_have_those_of_the_compiled_program_between_them():
    learner = DDPG()
    state = learner.init(KEY, Actor(KEY, *measuring.SIZES))
    replay = measuring.full_replay(2_000)
    shape = (offpolicy.BLOCK, 128)
    networks = tuple(getattr(state, part.name) for part in fields(state)[:6])  # all but losses and updates
    drawing = flops(jax.jit(buffer.sample, static_argnums=2).lower(KEY, replay, shape))  # for a whole block
    counted = flops(ddpg._update.lower(learner, KEY, networks, replay, 1)) - drawing
    least = update_flops(*measuring.SIZES)
    usual = usual_flops(*measuring.SIZES)
    assert least == 2 * 128 * 756_536
    assert usual == 2 * 128 * 951_612
    assert 1.03 * least < counted < 1.05 * least < usual  # products, and all else
