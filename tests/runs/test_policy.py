"""Policies and learning curves: what comes out of a run."""

import json

import gymnasium
import numpy as np
import pytest
from tasks import Reach

import genepool
from genepool.analysis.records.statistics import moving_average


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    small = genepool.pderl(Reach, population=4, memory=100, hidden=(8, 8), replay=2_000, updates_per_frame=0.05)
    return genepool.start(small, frames=300, seed=2, run=tmp_path_factory.mktemp("runs") / "run", tensorboard=True)


def test_asking_for_the_champion_trains_to_the_end_and_the_file_holds_the_same(run):
    champion = run.champion
    assert run.done
    loaded = genepool.load(run.folder.path)
    observations = np.random.default_rng(0).standard_normal((5, 1)).astype(np.float32)
    assert np.array_equal(champion.predict(observations)[0], loaded.predict(observations)[0])
    assert loaded.facts["frames"] == run.frames


def test_predict_takes_one_observation_or_a_batch_and_answers_in_the_environments_range(run):
    policy = run.champion
    single, state = policy.predict(np.array([100.0]), state=None, episode_start=np.ones(1), deterministic=True)
    assert state is None
    assert single.shape == (1,)
    batch, _ = policy.predict(np.array([[100.0], [-100.0]]))
    assert batch.shape == (2, 1)
    assert np.abs(batch).max() <= 2.0
    assert np.allclose(batch[0], single, atol=1e-5)
    with pytest.raises(ValueError, match="shape"):
        policy.predict(np.zeros((2, 3)))


def test_a_policy_plays_a_plain_gymnasium_loop(run):
    environment = Reach()
    policy = run.champion
    observation, _ = environment.reset(seed=0)
    total = 0.0
    over = False
    while not over:
        action, _ = policy.predict(observation)
        assert environment.action_space.contains(action.astype(np.float32))
        observation, reward, terminated, truncated, _ = environment.step(action)
        total = total + reward
        over = terminated or truncated
    assert np.isfinite(total)


def test_actions_of_more_than_one_axis_reach_the_environment_in_their_own_shape(tmp_path):
    class Board(Reach):
        observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2, 2))
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (2, 3))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros((2, 2), np.float32), {}

        def step(self, action):
            assert action.shape == (2, 3)
            return np.zeros((2, 2), np.float32), 0.0, True, False, {}

    tiny = genepool.erl(Board, population=2, memory=10, hidden=(4,), replay=1_000)
    policy = genepool.train(tiny, frames=6, run=tmp_path / "run", display=False).champion
    assert policy.predict(np.zeros((2, 2)))[0].shape == (2, 3)
    assert policy.predict(np.zeros((5, 2, 2)))[0].shape == (5, 2, 3)


def test_tensorboard_events_are_written(run):
    assert run.done or run.champion
    assert list((run.folder.path / "tensorboard").glob("events.*"))


def test_a_checkpoint_is_no_policy_and_an_empty_folder_has_none(run, tmp_path):
    assert run.champion
    with pytest.raises(genepool.UserError, match="not a policy"):
        genepool.load(run.folder.checkpoints[-1])
    with pytest.raises(genepool.UserError, match="no champion"):
        genepool.load(tmp_path)
    with pytest.raises(genepool.UserError, match="no file"):
        genepool.load(tmp_path / "nothing.safetensors")


def test_the_moving_average_is_the_authors_mean_of_the_last_ten():
    values = np.arange(25.0)
    naive = [np.mean(values[max(0, k - 9) : k + 1]) for k in range(25)]
    assert np.allclose(moving_average(values), naive)


def test_every_record_is_json_without_nan(run):
    assert run.champion
    for line in run.folder.metrics_file.read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} in a record"))


def test_the_last_generation_is_tested_whatever_the_interval(tmp_path):
    algorithm = genepool.es(Reach, hidden=(4,), pairs=2)
    records = list(genepool.start(algorithm, frames=1_000, run=tmp_path / "run"))
    assert [record["generation"] for record in records if "champion_test" in record] == [10, 13]
    assert len(records) == 13
