"""GPO's selection and crossovers: couples, the binary policy, the expert and the child that imitates it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genepool.algorithms.gpo.couples import Fittest, all_couples, random_couples
from genepool.algorithms.gpo.imitation import (
    Expert,
    ParameterSpace,
    ParentTrajectories,
    Selector,
    StateSpace,
    shuffled_batches,
    top_rows,
)
from genepool.algorithms.gpo.sharing import Sharing
from genepool.networks import VNetwork
from genepool.networks.stochastic import StochasticPolicy

SMALL = StateSpace(selector_epochs=60, selector_hidden=(16,), rate=5e-3, epochs=40)


def policy(seed, discrete=False):
    return StochasticPolicy(jax.random.key(seed), 2, 2, (16,), discrete)


def played(states, returns):
    """Trajectories of ten states each, with these returns."""
    n = len(states)
    return ParentTrajectories(
        states.astype(np.float32), np.repeat(returns, n // len(returns)).astype(np.float32), np.arange(n) % 10 == 0
    )


def test_of_eight_policies_there_are_28_couples_and_the_best_8_are_taken():
    returns = np.array([3.0, 9.0, 1.0, 7.0, 5.0, 2.0, 8.0, 4.0])
    none = np.zeros((8, 8))
    couples = Fittest()(returns, none, 1.0)
    assert len(all_couples(8)) == 28
    assert couples.shape == (8, 2)
    sums = returns[couples].sum(axis=1)
    assert sums.tolist() == sorted((returns[all_couples(8)].sum(axis=1)), reverse=True)[:8]


def test_diversity_alone_takes_the_couples_that_differ_most_and_it_fades_with_the_rounds():
    rng = np.random.default_rng(0)
    returns = rng.normal(size=5)
    kl = rng.uniform(size=(5, 5))
    first = Fittest(diversity=1.0)(returns, kl, 1.0)
    apart = (kl + kl.T)[tuple(all_couples(5).T)]
    assert (kl + kl.T)[tuple(first.T)].tolist() == pytest.approx(sorted(apart, reverse=True)[:5])
    assert np.array_equal(Fittest(diversity=1.0)(returns, kl, 0.0), Fittest()(returns, kl, 0.0))


def test_two_policies_have_their_one_couple_twice():
    assert Fittest()(np.array([1.0, 2.0]), np.zeros((2, 2)), 1.0).tolist() == [[0, 1], [0, 1]]


def test_random_couples_are_all_different_where_there_are_enough():
    couples = random_couples(np.random.default_rng(0), 8)
    assert len({tuple(couple) for couple in couples.tolist()}) == 8
    assert (couples[:, 0] != couples[:, 1]).all()


def test_each_policy_shares_with_itself_and_sharing_need_not_be_mutual():
    shares_with = Sharing(kl=0.3).shares_with(np.array([[9.0, 0.1], [0.5, 9.0]]))
    assert shares_with.tolist() == [[True, True], [False, True]]


def test_the_best_share_of_trajectories_is_kept_and_weighs_one_on_average():
    states = np.zeros((50, 2))
    returns = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
    threshold, weight = top_rows(played(states, returns), kept=0.6)
    assert threshold == 3.0
    assert weight.reshape(5, 10)[:, 0].tolist() == pytest.approx([2.0, 0.0, 1.0, 0.0, 0.0])
    equal_threshold, equal = top_rows(played(states, np.full(5, 7.0)), kept=0.6)
    assert (equal_threshold, equal.min(), equal.max()) == (7.0, 1.0, 1.0)


def test_epochs_go_through_every_row_and_fill_up_the_last_batch():
    batches, steps = shuffled_batches(np.random.default_rng(0), np.arange(3, 13), epochs=2, batch_size=4, capacity=20)
    assert (batches.shape, steps) == ((10, 4), 6)
    for epoch in batches[:steps].reshape(2, 12):
        assert set(epoch.tolist()) == set(range(3, 13))


def test_the_binary_policy_tells_separable_states_apart():
    rng = np.random.default_rng(0)
    left = rng.normal([-2.0, 0.0], 0.5, size=(200, 2))
    right = rng.normal([2.0, 0.0], 0.5, size=(200, 2))
    returns = rng.uniform(1.0, 2.0, 20)
    selector = SMALL.select(jax.random.key(0), played(left, returns), played(right, returns), None)
    correct = np.concatenate(
        [np.asarray(selector(jnp.asarray(left))) > 0, np.asarray(selector(jnp.asarray(right))) < 0]
    )
    assert correct.mean() > 0.99


def test_where_only_one_parent_did_well_the_binary_policy_follows_that_one_and_the_child_becomes_it():
    rng = np.random.default_rng(0)
    good = rng.normal(size=(200, 2))
    poor = rng.normal(size=(200, 2))
    key = jax.random.key(0)
    x = policy(1)
    y = policy(2)
    selector = SMALL.select(key, played(good, np.full(20, 9.0)), played(poor, np.full(20, 1.0)), None)
    # 60 % of the trajectories: all of the first parent's and a few of the other's, which weigh nothing
    states = jnp.asarray(good, jnp.float32)
    assert float(jnp.mean(jax.nn.sigmoid(selector(states)))) > 0.95
    expert = Expert(selector, x, y, "argmax")
    child, loss = SMALL.imitate(key, SMALL.student(key, x), expert, states, np.zeros(200, np.float32), 200)
    apart = float(jnp.mean(child.policy.distribution(states).kl(x.distribution(states))))
    assert apart < 0.05 < float(jnp.mean(y.distribution(states).kl(x.distribution(states))))
    assert float(loss) < 0.1


@pytest.mark.parametrize("discrete", [False, True])
def test_the_expert_acts_as_the_parent_that_it_follows(discrete):
    x = policy(1, discrete)
    y = policy(2, discrete)
    s = jnp.array([0.3, -0.2])
    zero = Selector(jax.tree.map(jnp.zeros_like, VNetwork(jax.random.key(0), 2, (4,), "tanh")), None)  # p_x = 1/2
    noise = jnp.array([0.5, -0.5, 0.0])
    follows_x = Expert(zero, x, y, "sample").explore(s, noise.at[2].set(0.4))
    follows_y = Expert(zero, x, y, "sample").explore(s, noise.at[2].set(0.6))
    assert np.array_equal(follows_x, x.explore(s, noise))
    assert np.array_equal(follows_y, y.explore(s, noise))


def test_a_soft_child_learns_from_both_parents_by_their_shares():
    zero = Selector(jax.tree.map(jnp.zeros_like, VNetwork(jax.random.key(0), 2, (4,), "tanh")), None)
    expert = Expert(zero, policy(1), policy(2), "soft")
    s = jnp.ones((5, 2))
    assert np.asarray(expert.share(s, jnp.linspace(0.0, 1.0, 5))).tolist() == [0.5] * 5
    assert np.asarray(Expert(zero, policy(1), policy(2), "sample").share(s, jnp.linspace(0.0, 1.0, 5))).tolist() == [
        *(1.0, 1.0, 0.0, 0.0, 0.0)
    ]


def test_the_child_minimises_the_kl_from_itself_to_the_expert():
    """One step of Adam goes by the sign of the gradient of KL(child || parent), not of the other direction."""
    key = jax.random.key(0)
    x = policy(1)
    student = SMALL.student(jax.random.key(5), x)
    states = jnp.asarray(np.random.default_rng(0).normal(size=(64, 2)), jnp.float32)
    zero = Selector(jax.tree.map(jnp.zeros_like, VNetwork(key, 2, (4,), "tanh")), None)
    one = StateSpace(epochs=1, rate=1e-3, batch_size=64)
    child, _ = one.imitate(key, student, Expert(zero, x, x, "sample"), states, np.zeros(64, np.float32), 64)

    def loss(p):
        return jnp.mean(p.distribution(states).kl(x.distribution(states)))

    gradient = jax.grad(loss)(student.policy)
    expected = jax.tree.map(lambda w, g: w - 1e-3 * g / (jnp.abs(g) + 1e-8), student.policy, gradient)
    assert all(
        np.allclose(a, b, atol=1e-5)
        for a, b in zip(jax.tree.leaves(child.policy), jax.tree.leaves(expected), strict=True)
    )


def test_a_whole_crossover_takes_ten_thousand_transitions_and_as_many_of_the_student_as_of_the_expert():
    full = StateSpace()
    assert full.frames == (5000, *(500,) * 10)
    assert sum(full.frames[1:]) / full.expert_frames == 1.0  # "the ratio is linearly increased from 0 to 1"
    assert StateSpace(expert_alone=True).frames == (5000, *(500,) * 9)


@pytest.mark.parametrize(("granularity", "share"), [("weight", 0.5), ("unit", 0.5), ("layer", 0.5)])
def test_each_weight_of_a_parameter_space_child_comes_from_a_parent(granularity, share):
    def make(seed):
        return StochasticPolicy(jax.random.key(seed), 10, 4, (64, 64))

    x = make(1)
    y = make(2)
    child = ParameterSpace(granularity).child(jax.random.key(3), x, y)
    rows = zip(jax.tree.leaves(child), jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
    assert all(np.all((c == a) | (c == b)) for c, a, b in rows)
    of_x = np.asarray(child.hidden[1].weight == x.hidden[1].weight)
    if granularity == "weight":
        assert of_x.mean() == pytest.approx(share, abs=0.03)
    if granularity == "unit":
        assert set(of_x.mean(axis=0).tolist()) == {0.0, 1.0}
    if granularity == "layer":
        assert of_x.mean() in (0.0, 1.0)
