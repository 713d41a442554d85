"""The noise of the exploring episodes: Ornstein-Uhlenbeck noise goes on between them, Gaussian noise has no memory."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np

from genepool.algorithms.alone import LearnerAlone
from genepool.learning.ddpg import DDPG
from genepool.learning.exploration import GaussianNoise, OrnsteinUhlenbeck
from genepool.types import Outcome

KEY = jax.random.key(0)


def test_the_lasting_deviation_is_that_of_the_closed_form():
    process = OrnsteinUhlenbeck()
    noise = np.asarray(process.draw(KEY, np.zeros(200), 2000))[100:]  # 100 steps forget the beginning
    closed_form = process.scale * process.sigma / np.sqrt(1 - (1 - process.theta) ** 2)
    np.testing.assert_allclose(noise.std(), closed_form, rtol=0.01)
    np.testing.assert_allclose(closed_form, 0.114, atol=5e-4)
    np.testing.assert_allclose(noise.mean(), 0.0, atol=0.005)
    np.testing.assert_allclose((noise[1:] * noise[:-1]).mean() / noise.var(), 0.85, atol=0.01)


def test_without_kicks_the_noise_decays_by_theta():
    last = np.array([1.0, -0.4])
    noise = OrnsteinUhlenbeck(theta=0.25, sigma=0.0).draw(KEY, last, 6)
    np.testing.assert_allclose(noise, 0.75 ** np.arange(1, 7)[:, None] * last, rtol=1e-5)


def test_noise_goes_on_from_the_last_row():
    process = OrnsteinUhlenbeck()
    last = np.array([2.0, -1.0])
    beyond = process.draw(KEY, last, 6) - process.draw(KEY, np.zeros(2), 6)  # the same kicks
    np.testing.assert_allclose(beyond, 0.85 ** np.arange(1, 7)[:, None] * last, atol=1e-6)


def test_gaussian_noise_has_the_scale_and_no_memory_of_the_last_row():
    noise = np.asarray(GaussianNoise(0.2).draw(KEY, np.zeros(2), 20_000))
    np.testing.assert_allclose(noise.std(axis=0), 0.2, rtol=0.03)
    np.testing.assert_allclose((noise[1:] * noise[:-1]).mean() / noise.var(), 0.0, atol=0.03)
    np.testing.assert_array_equal(noise, GaussianNoise(0.2).draw(KEY, np.array([5.0, -5.0]), 20_000))


def test_an_episode_takes_the_noise_up_where_the_last_one_ended(rows):
    task = SimpleNamespace(observation_size=3, action_size=2, horizon=20)
    calm = DDPG(noise=OrnsteinUhlenbeck(sigma=0.0))  # without kicks, what comes next is known
    algorithm = LearnerAlone(task, learner=calm, hidden=(4,), replay=1_000)
    state = algorithm.init(KEY)
    state = replace(state, experience=replace(state.experience, noise=np.array([1.0, -1.0])))
    (explorer,), state = algorithm.ask(KEY, state, 1)
    played = Outcome(explorer, explorer.individual, (0.0,), rows(7))  # over after 7 of 20 steps
    state = algorithm.tell(KEY, state, [played])
    (explorer,), _ = algorithm.ask(KEY, state, 1)
    np.testing.assert_allclose(explorer.noise[:, 0], 0.85 ** np.arange(8, 28), rtol=1e-5)
