"""Published results and the verdict on ours: sources are named, equal tasks are compared, a broken learner is found."""

import json
import shlex
from dataclasses import replace

import pytest

from genepool import cli
from genepool.analysis.verify.band import difference, find_band, judge, score_at
from genepool.analysis.verify.published import published_returns
from genepool.cli.commands import verify
from genepool.cli.commands.train import chosen
from genepool.errors import UserError

POINTS = published_returns()
CHEETAH = ("td3", "HalfCheetah-v5", 100_000)


def flat(level, frames=100_000):
    """A learning curve that is tested on the way and reaches this return."""
    return [(frames // 2, 0.5 * level), (frames, level), (2 * frames, 9 * level)]


def genepool(capsys, *words):
    code = cli.main([str(word) for word in words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_every_published_number_has_its_source():
    assert len(POINTS) > 150
    for point in POINTS:
        assert point.source
        assert point.seeds >= 1 or point.source == "AES-RL Table 3"  # of those that it cites it does not say
        assert point.networks
        assert point.metric.partition(":")[0] in ("test", "best", "training")
        assert (point.spread is None) == (point.spread_is == "")


def test_the_settings_of_the_references_are_options_of_their_presets():
    known = {(p.system, p.settings) for p in POINTS if p.settings}
    assert {system for system, _ in known} == {"ddpg", "td3", "sac"}
    for system, settings in known:
        algorithm, _ = chosen("train", [system, "Pendulum-v1", *shlex.split(settings)])
        assert algorithm.activation == "relu"
        assert algorithm.learner.critic_activation == "relu"


def test_a_band_goes_from_the_lowest_mean_less_its_spread_to_the_highest_plus_its_own():
    band = find_band(*CHEETAH, POINTS)
    assert len(band.points) == 3
    assert band.low == pytest.approx(5241.8 - 553.7)  # Spinning Up gives no spread and is given the largest
    assert band.high == pytest.approx(5513.5 + 553.7)
    assert band.caution == ""
    assert "sfujim" in band.settings.source


def test_returns_of_training_and_the_best_on_the_way_are_never_made_into_a_band():
    used = find_band("td3", "HalfCheetah-v5", 1_000_000, POINTS).points
    assert used
    assert all(point.metric.startswith("test") for point in used)
    assert not any("tianshou" in point.source for point in used)


@pytest.mark.parametrize(
    ("levels", "inside"),
    [((5000, 5400, 5800), True), ((4500, 5000, 5500), True), ((6500, 6200, 6100), False), ((3000, 3100, 2900), False)],
)
def test_curves_are_judged_by_their_mean_over_seeds_at_the_frames_asked_for(levels, inside):
    verdict = judge(find_band(*CHEETAH, POINTS), [flat(level) for level in levels], 100_000)
    assert verdict.inside is inside
    assert verdict.score == pytest.approx(sum(levels) / 3)


def test_a_curve_that_is_no_number_is_outside():
    assert not judge(find_band(*CHEETAH, POINTS), [flat(float("nan"))], 100_000).inside


def test_a_run_without_a_test_near_the_frames_is_not_judged():
    with pytest.raises(UserError, match="nearest to 100,000 frames is at 50,000"):
        score_at([(50_000, 1.0)], 100_000)


@pytest.mark.parametrize(
    ("task", "versions", "same"),
    [
        ("HalfCheetah", ("v1", "v5"), True),
        ("Swimmer", ("v4", "v5"), True),
        ("Hopper", ("v2", "v4"), True),
        ("Hopper", ("v5", "v4"), False),
        ("Walker2d", ("v3", "v5"), False),
        ("Ant", ("v3", "v4"), False),
        ("Humanoid", ("v4", "v5"), False),
        ("Reacher", ("v2", "v5"), False),
        ("HalfCheetah", ("v5", "rllab"), False),
    ],
)
def test_versions_that_are_not_the_same_task_are_known(task, versions, same):
    assert (difference(task, *versions) == "") is same


def test_other_versions_are_never_compared_silently():
    band = find_band("td3", "Hopper-v5", 100_000, POINTS)
    assert "Hopper-v5 is not Hopper-v1" in band.caution
    lines = verify.verdict_lines("td3", "Hopper-v5", 100_000, band, judge(band, [flat(700.0)] * 3, 100_000))
    assert any("CAUTION" in line and "healthy reward" in line for line in lines)
    assert find_band("td3", "Hopper-v4", 100_000, POINTS).caution == ""
    mixed = [replace(point, version="v5") if "sfujim" in point.source else point for point in POINTS]
    assert [p.version for p in find_band("td3", "Hopper-v5", 100_000, mixed).points] == ["v5"]


def test_every_source_is_named_and_few_seeds_are_said_to_be_few():
    band = find_band(*CHEETAH, POINTS)
    text = "\n".join(verify.verdict_lines(*CHEETAH, band, judge(band, [flat(5400.0)], 100_000)))
    assert all(point.source in text for point in band.points)
    assert "inside the band 4688 to 6067" in text
    assert "3 seeds or more, not of 1" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("td3 Reacher-v5 --frames 1e5", "td3 has Ant, HalfCheetah, Hopper"),
        ("es HalfCheetah-v5 --frames 1e5", "HalfCheetah has aes-rl, cem"),
        ("td3 HalfCheetah-v5 --frames 150000", "take one of 50,000, 100,000"),
        ("td3 HalfCheetah-v5", "--frames needs a whole number"),
        ("td3 HalfCheetah-v5 --frames 1e5 --seeds none", "--seeds needs a whole number"),
        ("td3 HalfCheetah-v5 --frames 1e5 --seed 3", "give --seeds and --runs"),
        ("td33 HalfCheetah-v5 --frames 1e5", "did you mean td3"),
        ("td3 HalfCheetah-v5 --frames 1e5 --reference nowhere.csv", "no table of references"),
    ],
)
def test_what_cannot_be_verified_is_said_in_one_line(words, said, capsys):
    code, _, err = genepool(capsys, "verify", *words.split())
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_options_given_win_over_the_references():
    settings = ["--hidden", "256", "256", "--no-layer-norm", "--activation", "relu"]
    assert verify.without(settings, ["--hidden=64"]) == ["--no-layer-norm", "--activation", "relu"]
    assert verify.without(settings, ["--layer-norm", "--seed", "3"]) == [
        "--hidden",
        "256",
        "256",
        "--activation",
        "relu",
    ]


def test_a_finished_seed_is_not_trained_again_and_an_unfinished_one_goes_on(tmp_path, capsys, monkeypatch):
    called = []

    def finish(words, at):
        """Stands for training: leaves a run folder tested at so many frames."""
        folder = tmp_path / words[words.index("--run") + 1] if "--run" in words else tmp_path / words[0]
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({"algorithm": {}, "preset": "td3"}))
        record = {"frames": at, "learner_test": [5300.0, 5500.0]}
        (folder / "metrics.jsonl").write_text(json.dumps(record) + "\n")
        return 0

    def train(words):
        called.append("train " + words[words.index("--seed") + 1])
        return finish(words, 100_000)

    def resume(words):
        called.append("resume " + words[0][-2:])
        return finish(words, 100_000)

    monkeypatch.setattr(verify.train, "main", train)
    monkeypatch.setattr(verify.resume, "main", resume)
    words = ("verify", "td3", "HalfCheetah-v5", "--frames", "1e5", "--runs", tmp_path)
    code, out, _ = genepool(capsys, *words)
    assert code == 0
    assert called == ["train 0", "train 1", "train 2"]
    assert "settings of github.com/sfujim/TD3" in out
    assert "5400.0, the mean of 5400.0, 5400.0, 5400.0" in out
    called.clear()
    (stopped,) = (path for path in tmp_path.iterdir() if path.name.endswith("-s1"))
    (stopped / "metrics.jsonl").write_text(json.dumps({"frames": 40_000, "learner_test": [1.0]}) + "\n")
    code, out, _ = genepool(capsys, *words)
    assert code == 0
    assert called == ["resume s1"]
    assert out.count("was trained before") == 2
    called.clear()
    genepool(capsys, *words, "--learner.tau", "1")
    assert called == ["train 0", "train 1", "train 2"]  # other options never find these runs


SWINGING_UP = """system,task,version,frames,value,spread,spread_is,seeds,metric,networks,settings,source
ddpg,Pendulum,v1,5000,-152.1,94.3,std over episodes,1,test: mean of 750 episodes,32-32 ReLU,,a pendulum that is swung up
"""
SMALL = [
    *("--engine", "gymnasium", "--hidden", "32", "32", "--no-layer-norm", "--activation", "relu", "--replay", "10000"),
    *("--test-every", "25", "--test-episodes", "10", "--learner.critic-hidden", "32", "32"),
    *("--learner.batch-size", "64", "--learner.actor-rate", "1e-3", "--learner.critic-rate", "3e-3"),
    *("--learner.warmup", "600", "--learner.random-frames", "600", "--learner.discount", "0.98"),
    *("--learner.noise.theta", "1", "--learner.noise.sigma", "1", "--learner.noise.scale", "0.1"),
    *("--learner.gradient-clip", "1e9"),
]


@pytest.mark.parametrize(("tau", "place"), [("0.01", "inside"), ("1", "outside")])
def test_a_learner_without_a_slow_target_is_found_outside_and_one_with_it_inside(tau, place, tmp_path, capsys):
    """With tau = 1 there is no target network: targets are the online networks."""
    (tmp_path / "reference.csv").write_text(SWINGING_UP)
    words = ["ddpg", "Pendulum-v1", "--frames", "5000", "--seeds", "1", "--reference", tmp_path / "reference.csv"]
    code, out, _ = genepool(capsys, "verify", *words, "--runs", tmp_path, "--learner.tau", tau, *SMALL)
    assert f"{place} the band -246 to -58" in out
    assert code == (place == "outside")
