"""The Ornstein-Uhlenbeck noise of the exploring episodes."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np

from genepool.algorithms.erl import ERL
from genepool.learning.ddpg import DDPG
from genepool.learning.exploration import OrnsteinUhlenbeck
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
    process, last = OrnsteinUhlenbeck(), np.array([2.0, -1.0])
    beyond = process.draw(KEY, last, 6) - process.draw(KEY, np.zeros(2), 6)  # the same kicks
    np.testing.assert_allclose(beyond, 0.85 ** np.arange(1, 7)[:, None] * last, atol=1e-6)


def test_an_episode_takes_the_noise_up_where_the_last_one_ended(rows):
    task = SimpleNamespace(observation_size=3, action_size=2, horizon=20)
    calm = DDPG(noise=OrnsteinUhlenbeck(sigma=0.0))  # without kicks, what comes next is known
    loop = ERL(task, evolver=None, learner=calm, hidden=(4,), memory=8, replay=1_000)
    state = replace(loop.init(KEY), noise=np.array([1.0, -1.0]))
    (explorer,), state = loop.ask(KEY, state, 1)
    state = loop.tell(KEY, state, [Outcome(explorer, explorer.individual, (0.0,), rows(7))])  # over after 7 of 20 steps
    (explorer,), _ = loop.ask(KEY, state, 1)
    np.testing.assert_allclose(explorer.noise[:, 0], 0.85 ** np.arange(8, 28), rtol=1e-5)
