"""PPO, A2C and their advantages: against the obvious sums, on their own and with shared data."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genepool.algorithms.gpo.sharing import Sharing
from genepool.errors import UserError
from genepool.learning.ppo import A2C, PPO, Critic, SharedRows
from genepool.learning.returns import Advantages, Batch, batch_of, discounted
from genepool.learning.value_function import rows_by_step
from genepool.networks.stochastic import StochasticPolicy
from genepool.types import Candidate, Individual, Outcome, Transitions

B = 40
SIZES = (3, 2)


def batch(seed, lengths=(10, 13, 17), ends=("terminated", "limit", "cut")):
    """Random rows of three trajectories, one that ended, one at the time limit, one that was cut short."""
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return rng.normal(size=(B, *shape)).astype(np.float32)

    at = np.cumsum(lengths) - 1
    flags = {name: np.zeros(B, np.float32) for name in ("last", "goes_on", "at_limit")}
    flags["last"][at] = 1.0
    flags["goes_on"][:] = 1.0
    for row, end in zip(at, ends, strict=True):
        flags["goes_on"][row] = end != "terminated"
        flags["at_limit"][row] = end == "limit"
    return Batch(draw(SIZES[0]), draw(SIZES[1]), draw(), draw(SIZES[0]), **flags)


def members(mutation, m=3):
    def make(k):
        return mutation.init(jax.random.fold_in(k, 1), StochasticPolicy(k, *SIZES, (8,)))

    return [make(jax.random.key(i)) for i in range(m)]


def shared_by(mutation, population, batches):
    prepared = [mutation.prepare(member, rows) for member, rows in zip(population, batches, strict=True)]
    stacked = SharedRows(*(jnp.stack(column) for column in zip(*(rows for _, rows, _ in prepared), strict=True)))
    return [member for member, _, _ in prepared], stacked, [returns for _, _, returns in prepared]


def close(a, b, tolerance=1e-5):
    return all(np.allclose(x, y, atol=tolerance) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize("gae", [1.0, 0.95, 0.0])
def test_the_advantage_is_the_obvious_double_sum(gae, bootstrap):
    rows = batch(0)
    rng = np.random.default_rng(1)
    v_t = rng.normal(size=B).astype(np.float32)
    v_tp1 = rng.normal(size=B).astype(np.float32)
    bootstrap_weight = rows.goes_on if bootstrap else rows.goes_on * (1 - rows.at_limit)
    delta = rows.reward + 0.9 * bootstrap_weight * v_tp1 - v_t
    ends = np.flatnonzero(rows.last)
    expected = [
        sum((0.9 * gae) ** k * delta[t + k] for k in range(ends[ends >= t][0] - t + 1)) for t in range(B)
    ]  # 0 ** 0 is 1
    advantage, returns = Advantages(0.9, gae, bootstrap, standardise=False)(rows, v_t, v_tp1)
    assert np.asarray(advantage) == pytest.approx(np.array(expected), abs=1e-4)
    assert np.asarray(returns) == pytest.approx(np.array(expected) + v_t, abs=1e-4)


def test_with_lambda_one_and_no_critic_the_advantage_is_the_discounted_return():
    rows = batch(0, ends=("terminated",) * 3)
    zeros = np.zeros(B, np.float32)
    found, _ = Advantages(0.9, 1.0, standardise=False)(rows, zeros, zeros)
    assert np.asarray(found) == pytest.approx(np.asarray(discounted(rows, 0.9)), abs=1e-5)


def test_standardised_advantages_have_mean_zero_and_std_one():
    rows = batch(0)
    v = np.zeros(B, np.float32)
    found, _ = Advantages()(rows, v, v)
    assert (float(found.mean()), float(found.std())) == pytest.approx((0.0, 1.0), abs=1e-5)


def test_an_episode_at_the_time_limit_one_that_ended_and_one_cut_short_are_told_apart():
    terminated = np.zeros(9, np.float32)
    terminated[1] = 1.0
    rows = Transitions(np.zeros((9, 3)), np.zeros((9, 2)), np.zeros(9), np.zeros((9, 3)), terminated)
    found = batch_of(Outcome(Candidate(Individual(None, None)), None, (0.0,), rows, lengths=(2, 4, 3)), horizon=4)
    assert found.last.tolist() == [0, 1, 0, 0, 0, 1, 0, 0, 1]
    assert found.goes_on[[1, 5, 8]].tolist() == [0, 1, 1]
    assert found.at_limit[[1, 5, 8]].tolist() == [0, 1, 0]


def test_all_ratios_are_one_on_the_first_step():
    mutation = PPO()
    population, shared, _ = shared_by(mutation, members(mutation), [batch(i) for i in range(3)])
    own = SharedRows(*(column[0] for column in shared))
    gain, _ = mutation.gain(population[0].policy, own, None)
    assert float(gain) == pytest.approx(float(own.advantage.mean()), abs=1e-6)


def test_ppo_without_penalty_takes_the_gradient_of_the_sum_over_the_policies_that_it_shares_with():
    mutation = PPO(epochs=1, beta=0.0, rate=1e-3)
    sharing = Sharing(max_ratio=None)
    population, shared, returns = shared_by(mutation, members(mutation), [batch(i) for i in range(3)])
    shares_with = np.array([True, False, True])

    def equation_5(policy):
        rows = [SharedRows(*(column[j] for column in shared)) for j in (0, 2)]
        ratios = [jnp.exp(policy.distribution(r.observation).log_prob(r.action) - r.log_prob) for r in rows]
        return -sum(jnp.mean(ratio * r.advantage) for ratio, r in zip(ratios, rows, strict=True))

    gradient = jax.grad(equation_5)(population[0].policy)
    expected = jax.tree.map(  # Adam's first step
        lambda w, g: w - 1e-3 * g / (jnp.abs(g) + 1e-8), population[0].policy, gradient
    )
    updated, report = mutation.update(jax.random.key(0), population[0], 0, shared, returns[0], shares_with, sharing)
    assert close(updated.policy, expected)
    assert 0.0 < float(report.effective) <= 1.0 <= float(report.max_ratio)


@pytest.mark.parametrize("mutation", [PPO(epochs=3), A2C(), PPO("clip", epochs=2, minibatches=4)], ids=str)
def test_sharing_with_no_other_policy_is_the_plain_update_bit_for_bit(mutation):
    population, shared, returns = shared_by(mutation, members(mutation), [batch(i) for i in range(3)])
    args = jax.random.key(0), population[1], 1, shared, returns[1], np.array([False, True, False])
    assert equal(mutation.update(*args, Sharing())[0], mutation.update(*args, None)[0])


def test_a2c_is_one_step_of_grad_log_pi_times_the_advantage():
    mutation = A2C(rate=1e-2)
    population, shared, returns = shared_by(mutation, members(mutation, 1), [batch(0)])
    own = SharedRows(*(column[0] for column in shared))

    def loss(p):
        return -jnp.mean(p.distribution(own.observation).log_prob(own.action) * own.advantage)

    gradient = jax.grad(loss)(population[0].policy)
    expected = jax.tree.map(lambda w, g: w - 1e-2 * g / (jnp.abs(g) + 1e-8), population[0].policy, gradient)
    updated, _ = mutation.update(jax.random.key(0), population[0], 0, shared, returns[0], np.array([True]), None)
    assert close(updated.policy, expected)


def test_the_penalty_holds_the_policy_back():
    weak, strong = (PPO(epochs=20, rate=1e-2, beta=beta) for beta in (1e-4, 100.0))
    moved = []
    for mutation in (weak, strong):
        population, shared, returns = shared_by(mutation, members(mutation, 1), [batch(0)])
        _, report = mutation.update(jax.random.key(0), population[0], 0, shared, returns[0], np.array([True]), None)
        moved.append(float(report.kl))
    assert moved[1] < 0.1 * moved[0]


def test_beta_doubles_above_the_target_halves_below_and_stays_between():
    mutation = PPO(kl_target=0.01)

    def beta(kl, b=1.0):
        return float(mutation.adapted_beta(jnp.asarray(b), jnp.asarray(kl)))

    assert (beta(0.016), beta(0.01), beta(0.006)) == (2.0, 1.0, 0.5)
    assert (beta(1.0, 9e3), beta(0.0, 1.5e-4)) == pytest.approx((1e4, 1e-4))


def test_a_clipped_ratio_gains_nothing_beyond_its_bounds():
    mutation = PPO("clip", clip=0.2)
    policy = StochasticPolicy(jax.random.key(0), *SIZES, (8,))
    rows = batch(0)
    likely = policy.distribution(rows.observation).log_prob(rows.action)

    def gain(shift, a):
        return float(
            mutation.gain(
                policy, SharedRows(rows.observation, rows.action, jnp.full(B, a), likely - np.log(shift)), None
            )[0]
        )

    assert gain(1.5, 1.0) == pytest.approx(1.2, abs=1e-5)
    assert gain(0.5, -1.0) == pytest.approx(-0.8, abs=1e-5)
    assert gain(1.5, -1.0) == pytest.approx(-1.5, abs=1e-5)


def test_the_weight_of_another_policy_s_sample_is_limited():
    mutation = PPO()
    played = batch(0)
    policy = StochasticPolicy(jax.random.key(0), *SIZES, (8,))
    log_prob = policy.distribution(played.observation).log_prob(played.action)
    rows = SharedRows(played.observation, played.action, jnp.ones(B), log_prob - np.log(5.0))  # every ratio is 5

    def gain(policy, max_ratio):
        return mutation.gain(policy, rows, max_ratio)[0]

    assert float(gain(policy, 2.0)) == pytest.approx(2.0, abs=1e-5)
    bound, free = (jax.grad(gain)(policy, most).output.weight for most in (2.0, None))
    assert np.asarray(5.0 * bound) == pytest.approx(np.asarray(2.0 * free), abs=1e-5)


def test_the_critic_fits_the_returns_of_its_batch():
    critic = Critic(epochs=300, minibatches=1, rate=1e-2)
    rng = np.random.default_rng(0)
    s = rng.normal(size=(256, 3)).astype(np.float32)
    returns = 100.0 + 20.0 * s[:, 0] - 5.0 * s[:, 1]
    fitted, _ = critic.fit(None, critic.init(jax.random.key(1), 3), s, returns)
    assert np.asarray(fitted(s)) == pytest.approx(returns, abs=6.0)  # of a std of 20


def test_epochs_in_minibatches_take_every_row_once():
    rows = rows_by_step(jax.random.key(0), 12, 2, 4).tolist()
    assert sorted(np.ravel(rows[:4])) == sorted(np.ravel(rows[4:])) == list(range(12))
    assert rows[:4] != rows[4:]


def test_a_critic_that_goes_through_its_batch_in_parts_fits_it_too():
    critic = Critic(epochs=100, minibatches=8, rate=3e-3)
    rng = np.random.default_rng(0)
    s = rng.normal(size=(256, 3)).astype(np.float32)
    returns = 100.0 + 20.0 * s[:, 0] - 5.0 * s[:, 1]
    rows = rows_by_step(jax.random.key(0), 256, 100, 8)
    fitted, _ = critic.fit(rows, critic.init(jax.random.key(1), 3), s, returns)
    assert np.asarray(fitted(s)) == pytest.approx(returns, abs=6.0)  # of a std of 20


def test_rewards_that_are_scaled_have_discounted_returns_of_about_unit_spread():
    mutation = PPO(reward_scaling=True)
    (member,) = members(mutation, 1)
    rows = batch(0)
    prepared, _, returns = mutation.prepare(member, rows._replace(reward=1000.0 * rows.reward))
    assert float(jnp.std(returns)) < 5.0
    assert float(prepared.reward_scale.count) == pytest.approx(B, abs=1e-2)


@pytest.mark.parametrize(
    "wrong",
    [{"epochs": 0}, {"minibatches": 0}, {"critic": Critic(hidden=())}, {"clip": -1.0}, {"rate": 0.0}, {"beta": -1.0}],
    ids=str,
)
def test_an_update_of_nothing_or_backwards_is_refused(wrong):
    with pytest.raises(UserError):
        replace(PPO(), **wrong)
    if {"critic", "rate"} & wrong.keys():
        with pytest.raises(UserError):
            replace(A2C(), **wrong)


@pytest.mark.parametrize("wrong", [{"kl": -0.1}, {"max_ratio": 0.0}], ids=str)
def test_sharing_by_less_than_nothing_is_refused(wrong):
    with pytest.raises(UserError):
        Sharing(**wrong)
