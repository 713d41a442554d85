"""Lessons as CEM-RL has them: who takes one when and from which critic, what is counted; presets, bits and runs."""

import json
import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from tasks import Reach
from tiny import KEY, LENGTH, TEACHER, Uneven, aes_rl, cem_rl, generations, leaves, rank_es, same

import genepool
from genepool import trees
from genepool.evolution.distribution.asynchronous import AsynchronousES
from genepool.learning.td3 import TD3
from genepool.parts import part
from genepool.runs import checkpoint


@part
class Listening(TD3):
    """A learner that writes down what it is asked to do, and does it."""

    heard = []  # noqa: RUF012, shared on purpose: parts are frozen

    def update_critic(self, key, state, policy, replay, steps):
        self.heard.append(("critic", steps, trees.flat(policy)))
        return super().update_critic(key, state, policy, replay, steps)

    def improve(self, key, actor, teacher, states, state_count, steps):
        self.heard.append(("lesson", steps, trees.flat(actor)))
        return super().improve(key, actor, teacher, states, state_count, steps)


@pytest.fixture
def heard():
    Listening.heard.clear()
    return Listening.heard


LISTENING = Listening(batch_size=8, critic_hidden=(8, 8))


def steps_of(heard, name):
    return [steps for kind, steps, _ in heard if kind == name]


# -- a generation of CEM-RL


def test_a_generation_of_cem_rl_has_the_steps_of_its_paper(heard):
    """Each block has S_prev // 5 critic steps, each lesson S_prev actor steps, once the warm-up is over."""
    counts = []
    for state, outcomes in generations(cem_rl(learner=LISTENING, warmup=200), 4):
        with_lesson = [o.candidate.lesson is not None for o in outcomes]
        updates = int(state.learner.updates)
        counts.append((steps_of(heard, "critic"), steps_of(heard, "lesson"), with_lesson, updates))
        heard.clear()
    frames = 10 * LENGTH
    none = [False] * 10
    half = [True] * 5 + [False] * 5
    assert counts[0] == ([], [], none, 0)  # exactly the warm-up, and that is not enough
    assert counts[1] == ([frames // 5] * 5, [], none, frames)  # the critics are ready for the next generation
    assert counts[2] == ([frames // 5] * 5, [frames] * 5, half, 2 * frames)
    assert counts[3] == ([frames // 5] * 5, [frames] * 5, half, 3 * frames)


def test_where_the_frames_do_not_divide_the_blocks_are_rounded_down(heard):
    before = 0
    for state, outcomes in generations(cem_rl(Uneven, learner=LISTENING, warmup=0, max_steps=20), 3):
        frames = sum(o.frames for o in outcomes)
        assert steps_of(heard, "critic") == [frames // 5] * 5
        assert steps_of(heard, "lesson") == ([before] * 5 if before else [])
        before = frames
        heard.clear()
        assert int(state.learner.updates) == int(state.experience.owed)


def test_the_critics_learn_the_value_of_the_individuals_that_take_the_next_lessons_as_they_were_sampled(heard):
    learnt = None
    for state, outcomes in generations(cem_rl(learner=LISTENING, warmup=0), 3):
        if learnt is not None:
            asked = [trees.flat(o.candidate.individual.actor) for o in outcomes]
            np.testing.assert_array_equal(asked[:5], learnt)
        learnt = np.stack([policy for kind, _, policy in heard if kind == "critic"])
        np.testing.assert_array_equal(learnt, state.evolver.strategy_state.sample[:5])
        heard.clear()


def test_the_first_half_takes_lessons_and_their_mirror_twins_none_and_the_evolver_is_told_of_all_as_they_were_tried():
    (before, _), (state, outcomes) = generations(cem_rl(warmup=0), 2)
    sampled = np.stack([trees.flat(o.candidate.individual.actor) for o in outcomes])
    tried = np.stack([trees.flat(o.individual.actor) for o in outcomes])
    mean = before.evolver.strategy_state.mean
    np.testing.assert_allclose(sampled[5:] - mean, -(sampled[:5] - mean), atol=1e-6)
    assert all(np.abs(tried[:5] - sampled[:5]).max(axis=1) > 1e-3)
    np.testing.assert_array_equal(tried[5:], sampled[5:])
    assert [o.candidate.origin for o in outcomes] == ["learning"] * 5 + ["evolution"] * 5
    assert [o.candidate.operators for o in outcomes] == [("lesson",)] * 5 + [()] * 5
    best = np.argsort([-o.fitness for o in outcomes], kind="stable")[:5]  # the distribution moved to what was tried
    weights = np.log(6 / np.arange(1, 6)) / np.log(6 / np.arange(1, 6)).sum()
    np.testing.assert_allclose(state.evolver.strategy_state.mean, weights @ tried[best], atol=1e-5)


def test_on_the_synchronous_schedule_a_critic_of_the_mean_catches_up_in_chunks(heard):
    algorithm = cem_rl(learner=LISTENING, warmup=0, target_policy="mean", critic_chunk=64)
    for state, _ in generations(algorithm, 2):
        assert steps_of(heard, "critic") == [64, 64, 64, 8]  # the 200 frames of a generation
        for kind, _, policy in heard:
            if kind == "critic":
                np.testing.assert_array_equal(policy, state.evolver.strategy_state.mean)
        heard.clear()


# -- bits


@pytest.mark.parametrize("make", [lambda: cem_rl(warmup=0), aes_rl], ids=["cem_rl", "aes_rl"])
def test_the_same_seed_gives_the_same_bits(make):
    for (one, a), (other, b) in zip(generations(make(), 3), generations(make(), 3), strict=True):
        assert same(one, other)
        assert [o.returns for o in a] == [o.returns for o in b]
    assert not same(one, next(generations(make(), 1, seed=1))[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: cem_rl(warmup=0),
        aes_rl,
        lambda: rank_es(warmup=0),
        lambda: cem_rl(warmup=0, evolver=genepool.Evosax("Sep_CMA_ES")),
    ],
    ids=["cem_rl", "aes_rl", "rank_es", "sep_cma_es"],
)
def test_a_state_is_read_back_as_it_was_written_and_goes_on_to_the_same_bits(make, tmp_path):
    algorithm = make()
    *_, (state, _) = generations(algorithm, 2)
    checkpoint.save(tmp_path / "state.safetensors", state, {})
    back, _ = checkpoint.load(tmp_path / "state.safetensors", algorithm.init(jax.random.key(1)))
    assert same(state, back)
    workers = genepool.LocalWorkers(algorithm.task)
    one, other = (genepool.generation(algorithm, workers, KEY, start)[0] for start in (state, back))
    assert same(one, other)


def test_an_outcome_that_is_told_twice_changes_nothing():
    for algorithm in (aes_rl(warmup=0, critic_head_start=0), cem_rl(warmup=0)):
        workers = genepool.LocalWorkers(algorithm.task)
        candidates, state = algorithm.ask(KEY, algorithm.init(KEY), 3)
        outcomes = workers.map(candidates)
        state = algorithm.tell(KEY, state, [*outcomes, outcomes[1]])
        before = [leaf.copy() for leaf in leaves(state)]
        after = algorithm.tell(KEY, state, outcomes)
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, leaves(after), strict=True))
        assert int(after.experience.replay.size) == 3 * LENGTH


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
    cem, aes, td3 = (preset("HalfCheetah-v5") for preset in (genepool.cem_rl, genepool.aes_rl, genepool.td3))
    assert (cem.evolver.population, cem.lessons.taught, cem.warmup) == (10, 5, 10_000)
    assert (cem.learner.batch_size, cem.replay, cem.random_warmup) == (100, 1_000_000, False)
    assert (aes.learner.batch_size, aes.replay, aes.random_warmup) == (256, 200_000, True)
    assert (aes.evolver.reference_episodes, aes.target_policy, aes.critic_chunk) == (5, "mean", 1000)
    assert (aes.evolver.initial_variance, aes.evolver.variance_floor) == (1e-3, 1e-5)
    assert (td3.learner.policy_delay, td3.learner.noise.scale, td3.learner.warmup) == (2, 0.1, 10_000)
    for algorithm in (cem, aes, td3):
        assert (algorithm.hidden, algorithm.activation, algorithm.layer_norm) == ((400, 300), "tanh", False)
        assert (algorithm.learner.critic_hidden, algorithm.learner.critic_activation) == ((400, 300), "leaky_relu")


@pytest.mark.parametrize(
    ("preset", "options", "said"),
    [
        (genepool.aes_rl, {"scael": 3.0}, "scael"),
        (genepool.cem_rl, {"evolver": AsynchronousES(), "target_policy": "individual"}, "does not know who comes next"),
        (genepool.aes_rl, {"reference_episodes": 0}, "reference_episodes is 0"),
        (genepool.cem_rl, {"learner": None}, "lessons needs a learner"),
        (genepool.cem_rl, {"learner": genepool.Gaussian()}, "Gaussian is no teacher: it has no"),
        (genepool.cem_rl, {"evolver": genepool.OpenAIES()}, "a lesson would move them"),
        (genepool.cem_rl, {"evolver": genepool.GenerationalGA(), "warmup_told": True}, "leave warmup told out"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(preset, options, said):
    with pytest.raises(genepool.UserError, match=said) as refusal:
        preset(Reach, **options)
    assert "\n" not in str(refusal.value)


def test_with_an_evolver_that_does_not_know_who_comes_next_the_critic_learns_the_mean_s_value(heard):
    algorithm = cem_rl(evolver=AsynchronousES(scale=5.0, reference_episodes=1), learner=LISTENING, warmup=0)
    for state, _ in generations(algorithm, 2):
        learnt = [policy for kind, _, policy in heard if kind == "critic"]
        assert len(learnt) == 1
        np.testing.assert_array_equal(learnt[0], state.evolver.strategy_state.mean)
        heard.clear()


# -- runs

TINY = {"hidden": (8, 8), "replay": 2_000, "test_episodes": 2, "learner": replace(TEACHER, warmup=20)}
WITH_TD3 = TINY | {"layer_norm": False, "population": 4, "memory": 100, "sync_period": 1}
ONLY_RUN = {
    "td3": lambda: genepool.td3(Reach, **TINY),
    "cem": lambda: genepool.cem(Reach, hidden=(8, 8)),
    "cem with Open_ES": lambda: genepool.cem(Reach, hidden=(8, 8), evolver=genepool.Evosax("Open_ES", population=6)),
    "cem_rl": lambda: cem_rl(warmup=0),
    "aes_rl": aes_rl,
    "one_plus_one_es": lambda: genepool.one_plus_one_es(Reach, **TINY, warmup=40, critic_head_start=0),
    "rank_es": rank_es,
    "pderl, asynchronous": lambda: genepool.pderl(Reach, **WITH_TD3, schedule="asynchronous"),
    "erl with td3": lambda: genepool.erl(Reach, **WITH_TD3),
    "cem_rl, asynchronous": lambda: cem_rl(warmup=0, schedule="asynchronous"),
    "aes_rl, synchronous": lambda: aes_rl(schedule="synchronous"),
    "absolute, fixed": lambda: aes_rl(
        evolver=AsynchronousES(genepool.AbsoluteBaseline(), genepool.FixedN(), scale=5.0), warmup=0
    ),
}


@pytest.mark.parametrize("name", ONLY_RUN)
def test_a_run_of_two_generations_has_records_that_json_can_hold(name, tmp_path):
    """Only runs the code: no law of learning is tested here."""
    run = genepool.start(ONLY_RUN[name](), frames=1_000_000, run=tmp_path / "run")
    for record in run:
        assert json.loads(json.dumps(record)) == record
        assert all(math.isfinite(fitness) for fitness in record["fitness"])
        if record["generation"] == 2:
            run.stop()
    assert run.generation == 2
    assert len(run.folder.records) == 2
