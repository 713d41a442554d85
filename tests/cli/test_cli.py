"""The command line: what a user does first, and one clear line with exit code 2 for what cannot be done."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from genepool import cli, ddpg
from genepool import train as train_from_python
from genepool.algorithms.presets import PRESETS
from genepool.cli import recall_flags

TINY = [
    "--population",
    "4",
    "--memory",
    "200",
    "--hidden",
    "8",
    "8",
    "--replay",
    "5000",
    "--updates-per-frame",
    "0.05",
    "--max-steps",
    "40",
    "--test-episodes",
    "2",
]


def genepool(capsys, *words):
    """Run a command in this process: its exit code and what it printed."""
    try:
        code = cli.main([str(word) for word in words])
    except SystemExit as stop:
        code = stop.code or 0
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small finished run."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    words = ["train", "pderl", "Pendulum-v1", "--engine", "gymnasium", "--frames", "600", "--run", str(folder), *TINY]
    assert cli.main(words) == 0
    return folder


def test_training_leaves_a_run_folder_with_everything_in_it(run):
    assert {p.name for p in run.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "checkpoints",
        "champion.safetensors",
        "curve.png",
    }
    config = json.loads((run / "config.json").read_text())
    assert config["preset"] == "pderl"
    assert config["engine"] == "gymnasium"
    assert config["algorithm"]["evolver"]["crossover"]["part"] == "Distillation"
    assert {"gymnasium", "jax", "genepool"} <= config["versions"].keys()
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert records[-1]["frames"] >= 600 > records[-2]["frames"]
    for record in records:
        assert record["frames"] == record["ledger"]["fitness"] + record["ledger"]["exploration"]
        assert record["true_frames"] == sum(record["ledger"].values())
        assert len(record["fitness"]) == 4
        assert len(record["champion_test"]) == len(record["learner_test"]) == 2
        assert {"breeding", "acting", "learning", "testing"} <= record["seconds"].keys()


def test_a_finished_run_is_evaluated_plotted_and_listed(run, capsys, tmp_path):
    code, out, _ = genepool(capsys, "evaluate", run, "--episodes", "3")
    assert code == 0
    assert "return" in out
    assert genepool(capsys, "evaluate", run, "--episodes", "3")[1] == out
    assert genepool(capsys, "plot", run, run, "--out", tmp_path / "two.png")[0] == 0
    assert (tmp_path / "two.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = genepool(capsys, "runs", run.parent)
    assert code == 0
    assert "Pendulum-v1" in out


def test_help_lists_every_hyper_parameter_with_its_meaning_and_the_papers_default(capsys):
    code, out, _ = genepool(capsys, "train", "pderl", "Hopper-v5", "--help")
    assert code == 0
    flat = " ".join(out.replace("│", " ").split())
    for words in (
        "--evolver.elite-fraction",
        "psi",
        "--trials INT xi",
        "default: 3",
        "--evolver.mutation.sigma",
        "N_C",
        "--learner.tau",
        "kappa",
    ):
        assert words in flat
    out = genepool(capsys, "--help")[1]
    assert all(f"  {preset} " in out for preset in PRESETS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("fly", "no command 'fly'"),
        ("train", "usage"),
        ("train pdrl Hopper-v5", "did you mean pderl"),
        ("train pderl", "train what?"),
        ("train pderl Hoper-v5", "did you mean Hopper-v5"),
        ("train pderl HalfCheetah-v9", "did you mean HalfCheetah-v5"),
        ("train pderl no_such_module:make", "cannot import 'no_such_module'"),
        ("train pderl Pong-v5", "Discrete actions"),
        ("train pderl Blackjack-v1 --engine gymnasium", "Tuple observations"),
        ("train pderl Hopper-v5 --frames -5", "frames must be a positive number"),
        ("train pderl Hopper-v5 --frames many", "could not convert"),
        ("train pderl Hopper-v5 --seed -1", "seed must be 0 or more"),
        ("train pderl Hopper-v5 --flavour sweet", "--flavour"),
        ("train pderl Hopper-v5 --engine bullet", "no engine 'bullet'"),
        (
            "train pderl Hopper-v5 --learner none",
            "injection needs a learner: for an evolver alone take the preset cem or es",
        ),
        (
            "train pderl Hopper-v5 --crossover grafting",
            "choose row-copy, element-copy, distillation or module:Class of your own",
        ),
        ("train pderl Hopper-v5 --elite-fraction 2", "must lie between 0 and 0.5"),
        ("train pderl Hopper-v5 --trials 0", "trials"),
        ("train pderl Hopper-v5 --max-steps 0", "max steps is 0: it must be 1 or more"),
        ("train pderl Hopper-v5 --hidden 0", "hidden"),
        ("train pderl Hopper-v5 --learner.batch-size 0", "batch size is 0: it must be 1 or more"),
        ("train pderl Hopper-v5 --crossover.batch-size 0", "batch size is 0: it must be 1 or more"),
        ("train pderl Hopper-v5 --mutation.batch-size 0", "batch size is 0: it must be 1 or more"),
        ("resume nowhere", "no run folder nowhere"),
        ("evaluate nowhere", "no run folder nowhere"),
        ("plot nowhere", "no run folder nowhere"),
        ("runs nowhere", "no runs in nowhere"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(words, said, capsys):
    code, out, err = genepool(capsys, *words.split())
    if words == "train":
        assert (code, said in out) == (0, True)
        return
    assert code == 2
    assert err.startswith("genepool: ")
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_a_run_folder_that_exists_is_never_written_to(run, capsys):
    before = {p: p.stat().st_mtime_ns for p in run.rglob("*")}
    code, _, err = genepool(capsys, "train", "pderl", "Pendulum-v1", "--engine", "gymnasium", "--run", run, *TINY)
    assert code == 2
    assert "genepool resume" in err
    code, _, err = genepool(capsys, "resume", run)
    assert code == 2
    assert "finished" in err
    assert {p: p.stat().st_mtime_ns for p in run.rglob("*")} == before


def test_help_comes_before_jax_is_imported():
    code = "import sys, genepool.cli; genepool.cli.main(['--help']); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_ctrl_c_finishes_the_generation_saves_and_says_how_to_go_on(tmp_path):
    command = [sys.executable, "-m", "genepool.cli"]
    words = [
        "train",
        "erl",
        "Pendulum-v1",
        "--engine",
        "gymnasium",
        "--frames",
        "1e6",
        "--run",
        tmp_path / "run",
        *TINY,
    ]
    process = subprocess.Popen(
        [*command, *words], stdout=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "200"}
    )
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert "genepool resume" in out
    checkpoints = list((tmp_path / "run" / "checkpoints").iterdir())
    assert int(checkpoints[0].stem) == metrics.read_text().count("\n")


def test_a_run_of_the_command_line_has_the_bits_of_the_same_run_from_python(tmp_path):
    words = ["train", "ddpg", "Pendulum-v1", "--engine", "gymnasium", "--frames", "1000", "--run", tmp_path / "words"]
    subprocess.run([sys.executable, "-m", "genepool.cli", *words], check=True, capture_output=True)
    algorithm = ddpg("Pendulum-v1", engine="gymnasium")
    run = train_from_python(algorithm, 1_000, run=tmp_path / "python", display=False)
    losses = [record["critic_loss"] for record in run.folder.records]
    assert losses[-1] is not None
    recorded = (tmp_path / "words" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["critic_loss"] for line in recorded] == losses


def test_a_resumed_run_has_the_flags_that_it_was_begun_with_unless_others_are_set(monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text('{"xla_flags": "--recorded"}')

    def flags(*words):
        recall_flags(words)
        return os.environ.pop("XLA_FLAGS", None)

    monkeypatch.setenv("XLA_FLAGS", "--mine")
    assert flags(str(tmp_path)) == "--mine"
    assert flags("--frames", "1e6", str(tmp_path)) == "--recorded"
    assert flags(str(tmp_path / "nowhere")) is None
    (tmp_path / "config.json").write_text('{"xla_flags": null}')
    assert flags(str(tmp_path)) is None
