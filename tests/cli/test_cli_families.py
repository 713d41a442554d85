"""The command line of CEM-RL and AES-RL: schedules, rules and strategies by name; errors in one line."""

import json

import pytest

from genepool import cli, follow
from genepool.runs import training
from genepool.runs.folder import CLOCKED

TINY = {
    "--engine": "gymnasium",
    "--hidden": "8 8",
    "--replay": "2000",
    "--max-steps": "30",
    "--test-episodes": "2",
    "--learner.batch-size": "8",
    "--learner.critic-hidden": "8 8",
    "--warmup": "60",
    "--critic-head-start": "60",
    "--reference-episodes": "2",
    "--evolver.population": "4",
}
AES = [word for option, value in TINY.items() for word in (option, *value.split())]


def genepool(capsys, *words):
    """Run a command in this process: its exit code and what it printed."""
    try:
        code = cli.main([str(word) for word in words])
    except SystemExit as stop:
        code = stop.code or 0
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def config(folder):
    return json.loads((folder / "config.json").read_text())


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small finished run of AES-RL."""
    folder = tmp_path_factory.mktemp("runs") / "aes"
    assert cli.main(["train", "aes-rl", "Pendulum-v1", "--frames", "300", "--run", str(folder), *AES]) == 0
    return folder


def test_aes_rl_is_trained_evaluated_plotted_listed_and_resumed(run, capsys):
    assert config(run)["preset"] == "aes-rl"
    assert config(run)["schedule"] == "asynchronous"
    assert config(run)["workers"] == "local"
    *_, last = records(run)
    assert last["frames"] == last["ledger"]["warm-up"] + last["ledger"]["fitness"] >= 300
    assert last["ledger"]["reference"] == 2 * last["ledger"]["fitness"]
    assert "champion_test" in last
    moments = [moment for record in records(run) for moment in record["moments"]]
    assert len(moments) == sum(len(record["events"]) for record in records(run))
    assert moments == sorted(moments)
    assert moments[-1] <= last["wall"]
    code, out, _ = genepool(capsys, "evaluate", run, "--episodes", "3")
    assert (code, "return" in out) == (0, True)
    code, out, _ = genepool(capsys, "runs", run.parent)
    assert (code, "aes-rl" in out) == (0, True)
    code, out, _ = genepool(capsys, "resume", run, "--frames", "500")
    assert code == 0
    assert "asynchronous schedule, workers local" in out
    assert records(run)[-1]["frames"] >= 500
    assert records(run)[: len(records(run)) - 1][-1]["frames"] < 500
    code, _, err = genepool(capsys, "resume", run)
    assert (code, "finished" in err) == (2, True)


def test_the_same_command_gives_the_same_first_record_however_far_it_goes(run, capsys, tmp_path):
    words = ["train", "aes-rl", "Pendulum-v1", "--frames", "150", "--run", tmp_path / "again", *AES]
    assert genepool(capsys, *words)[0] == 0
    first = records(run)[0]
    again = records(tmp_path / "again")[0]
    assert first["frames"] < 150
    names = [name for name in first if name not in CLOCKED]
    assert {name: first[name] for name in names} == {name: again[name] for name in names}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "aes-rl --mean-rule linear-range --variance-rule fixed-n --evolver.mean-rule.p-minus 0.25",
            {"mean_rule": ("LinearRange", "p_minus", 0.25), "variance_rule": ("FixedN", "n", 10.0)},
        ),
        ("aes-rl --mean-rule absolute-baseline", {"mean_rule": ("AbsoluteBaseline", "printed", False)}),
        ("aes-rl --mean-rule=sigmoid-range", {"mean_rule": ("SigmoidRange", "signed", False)}),
        ("one-plus-one-es --variance-rule adaptive-n", {"variance_rule": ("AdaptiveN", "n_min", 1.0)}),
    ],
)
def test_rules_are_chosen_by_name_and_the_task_s_scale_stays(words, expected, monkeypatch):
    preset, *rest = words.split()
    algorithm = parsed(monkeypatch, "train", preset, "Hopper-v5", "--engine", "gymnasium", *rest)
    assert algorithm.evolver.scale == 600
    for field, (kind, name, value) in expected.items():
        rule = getattr(algorithm.evolver, field)
        assert (type(rule).__name__, getattr(rule, name)) == (kind, value)


def parsed(monkeypatch, *words):
    """The algorithm that a command would train."""
    heard = []
    monkeypatch.setattr(training, "start", lambda algorithm, **_: heard.append(algorithm))
    monkeypatch.setattr(follow, "follow", lambda run: 0)
    assert cli.main(list(words)) == 0
    return heard[0]


def test_a_strategy_of_evosax_is_chosen_by_name(monkeypatch):
    pytest.importorskip("evosax")
    words = "train cem-rl Hopper-v5 --engine gymnasium --evolver sep-cma-es --evolver.population 12 --evolver.std 0.1"
    algorithm = parsed(monkeypatch, *words.split())
    assert (algorithm.evolver.strategy, algorithm.evolver.population, algorithm.evolver.std) == ("Sep_CMA_ES", 12, 0.1)
    assert algorithm.learner is not None


def test_a_schedule_is_chosen_by_name(monkeypatch):
    def of(*words):
        return parsed(monkeypatch, "train", *words, "--engine", "gymnasium")

    assert of("aes-rl", "Hopper-v5").schedule == "asynchronous"
    assert of("aes-rl", "Hopper-v5", "--schedule", "synchronous").schedule == "synchronous"
    assert of("cem-rl", "Hopper-v5", "--schedule", "asynchronous").schedule == "asynchronous"
    pderl = of("pderl", "Hopper-v5", "--schedule", "asynchronous")
    assert (pderl.schedule, type(pderl.evolver).__name__) == ("asynchronous", "SteadyStateGA")
    assert (pderl.evolver.elite_fraction, pderl.trials) == (0.2, 3)  # what PDERL has for the task stays


@pytest.mark.parametrize("preset", ["sac", "pderl", "cem-rl", "aes-rl"])
def test_sac_is_chosen_by_name(preset, monkeypatch):
    words = [] if preset == "sac" else ["--learner", "sac"]
    options = ["--learner.critics", "value", "--learner.automatic", "--learner.target-entropy", "-2"]
    algorithm = parsed(monkeypatch, "train", preset, "Hopper-v5", "--engine", "gymnasium", *words, *options)
    learner = algorithm.learner
    assert type(learner).__name__ == "SAC"
    assert (learner.critics, learner.automatic, learner.target_entropy, learner.batch_size) == (
        "value",
        True,
        -2.0,
        256,
    )


def test_sac_is_trained_and_resumed(capsys, tmp_path):
    small = (
        "--hidden 8 8 --replay 2000 --max-steps 30 --test-episodes 2 --learner.critic-hidden 8 8 --learner.batch-size 8"
    )
    words = ["train", "sac", "Pendulum-v1", "--engine", "gymnasium", "--frames", "350", "--run", tmp_path / "run"]
    assert genepool(capsys, *words, *small.split(), "--learner.random-frames", "60")[0] == 0
    assert records(tmp_path / "run")[-1]["updates"] == 120  # of the episodes that left more than 256 in the replay
    assert genepool(capsys, "resume", tmp_path / "run", "--frames", "400")[0] == 0
    assert records(tmp_path / "run")[-1]["temperature"] == pytest.approx(0.2)
    assert genepool(capsys, "evaluate", tmp_path / "run", "--episodes", "2")[0] == 0


def test_another_strategy_takes_another_target_policy_with_it(monkeypatch):
    words = "train cem-rl Hopper-v5 --engine gymnasium --evolver asynchronous-es --target-policy mean"
    algorithm = parsed(monkeypatch, *words.split())
    assert (type(algorithm.evolver).__name__, algorithm.target_policy) == ("AsynchronousES", "mean")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train aes-lr Hopper-v5", "did you mean aes-rl"),
        ("train aes-rl Hopper-v5 --schedule sometimes", "invalid choice 'sometimes'"),
        ("train aes-rl Hopper-v5 --schedule", "Missing value for argument '--schedule'"),
        ("train aes-rl Hopper-v5 --mean-rule linear", "did you mean linear-range"),
        ("train esac Hopper-v5 --crosover none", "did you mean crossover"),
        (
            "train aes-rl Hopper-v5 --variance-rule none-such",
            "choose fixed-n, adaptive-n, success-rule or module:Class of your own",
        ),
        ("train cem-rl Hopper-v5 --mean-rule linear-range", "cem-rl has no option --mean-rule"),
        ("train td3 Hopper-v5 --lessons controlled", "td3 has no option --lessons"),
        ("train cem-rl Hopper-v5 --evolver no-such-es", "no evolver 'no-such-es'"),
        ("train cem-rl Hopper-v5 --evolver simple-ga", "no evolver 'simple-ga'"),
        ("train cem-rl Hopper-v5 --evolver simplega", "no mean"),
        ("train cem-rl Hopper-v5 --evolver asynchronous-es --target-policy individual", "take --target-policy mean"),
        ("train cem-rl Hopper-v5 --target-policy nobody", "nobody"),
        ("train cem-rl Hopper-v5 --learner ppo", "no learner 'ppo'"),
        ("train aes-rl Hopper-v5 --workers many", "no workers 'many'"),
        ("train aes-rl Hopper-v5 --workers ray", "no workers 'ray'"),
        ("train aes-rl Hopper-v5 --workers ray:0", "no workers 'ray:0'"),
        ("train aes-rl Hopper-v5 --workers ray:-3", "no workers 'ray:-3'"),
        ("train aes-rl Hopper-v5 --workers ray:two", "no workers 'ray:two'"),
        ("train aes-rl Hopper-v5 --workers ray:2 --address 127.0.0.1:1", "cannot join the cluster '127.0.0.1:1'"),
        ("train aes-rl Hopper-v5 --reference-episodes 0", "reference_episodes is 0"),
        ("train aes-rl Hopper-v5 --evolver.scale 0", "scale"),
        ("train cem-rl Hopper-v5 --evolver.population 1", "2 individuals"),
        ("train cem-rl Hopper-v5 --warmup -1", "warmup is -1"),
        ("train td3 Hopper-v5 --learner.policy-delay 0", "policy delay"),
        ("train td3 Hopper-v5 --learner.critic-hidden 0", "critic_hidden is (0,)"),
        ("train sac Hopper-v5 --learner.temperature -1", "temperature"),
        ("train sac Hopper-v5 --learner.critics three", "three"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = genepool(capsys, *words.split(), "--engine", "gymnasium")
    assert code == 2
    assert err.startswith("genepool: ")
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())  # and no run folder is left behind


def test_help_names_the_parts_that_may_be_chosen(capsys):
    code, out, _ = genepool(capsys, "train", "aes-rl", "Swimmer-v5", "--engine", "gymnasium", "--help")
    assert code == 0
    flat = " ".join(out.replace("│", " ").split())
    for words in ("linear-range", "success-rule", "sep-cma-es", "--schedule", "p_des", "default: 48", "--workers"):
        assert words in flat
