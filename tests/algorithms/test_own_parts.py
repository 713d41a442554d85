"""A user's own code, outside the package: a mutation, a learner, a coupling. Each trains, is killed and resumed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import my_parts
import numpy as np
import pytest
from own_learner import OneCritic
from tasks import Reach
from tiny import generations

import genepool
from genepool import cli
from genepool.errors import UserError
from genepool.runs.folder import CLOCKED

HERE = Path(__file__).parents[1]
SMALL = {"hidden": (8, 8), "replay": 2_000, "test_episodes": 2, "max_steps": 20}
POPULATION = SMALL | {"population": 4, "memory": 100, "learner.batch_size": 8, "mutation": my_parts.Mine(sigma=0.3)}
WORDS = "--hidden 8 8 --replay 2000 --test-episodes 2 --population 4 --memory 100 --learner.batch-size 8"
COUPLED = {
    "erl": {"population": 4, "memory": 100},
    "cem-rl": {"warmup": 100},
    "aes-rl": {"warmup": 100, "critic_head_start": 20, "scale": 5.0},
    "esac": {"pairs": 4, "injected": 1, "sac_episodes": 1, "gradient_interval": 2, "test_every": 1},
    "ddpg": {},
}


def records(folder):
    """The records of a run, without what is read off a clock."""
    rows = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in CLOCKED} for row in rows]


def shell(*words, kill_after=None):
    """`genepool` with these words in a process of its own, which kills itself when so many records were written."""
    code = [sys.executable, "-m", "genepool.cli"]
    if kill_after is not None:
        code = [sys.executable, HERE / "killed_command.py", str(kill_after)]
    done = subprocess.run(
        [str(word) for word in (*code, *words)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (0 if kill_after is None else -9), done.stderr
    return done


def refusal(*words, capsys):
    """The one line with which a command is refused."""
    assert cli.main([str(word) for word in words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("genepool: ")
    assert len(said.splitlines()) == 1
    return said


def test_a_hybrid_of_existing_parts_takes_five_lines(tmp_path):
    """CEM in PDERL's loop, with SAC as its learner."""
    from genepool import CEM, SAC

    learner = SAC(batch_size=8, critic_hidden=(8, 8), warmup=20, random_frames=0)
    hybrid = genepool.pderl(Reach, evolver=CEM(population=4), learner=learner, **SMALL)
    run = genepool.train(hybrid, frames=400, run=tmp_path / "run", display=False)

    assert (type(run.algorithm.evolver).__name__, run.preset) == ("CEM", "pderl")
    assert run.folder.records[-1]["updates"] > 0


def test_a_mutation_of_ones_own_trains_from_python_and_a_run_of_it_resumes_when_it_is_given_again(tmp_path):
    """As a user's script does: stop after two generations, then go on in a new run object."""
    whole = genepool.train(
        genepool.pderl(Reach, **POPULATION), frames=600, seed=5, run=tmp_path / "whole", display=False
    )
    begun = genepool.start(genepool.pderl(Reach, **POPULATION), frames=600, seed=5, run=tmp_path / "cut")
    for record in begun:
        if record["generation"] == 2:
            begun.stop()
    described = begun.folder.config["algorithm"]["evolver"]["mutation"]
    assert described == {"part": "my_parts:Mine", "sigma": 0.3, "rare": 3}
    with pytest.raises(UserError, match="code of your own: give it again with --part my_parts:Mine"):
        genepool.resume(tmp_path / "cut", task=Reach)
    for _ in genepool.resume(tmp_path / "cut", task=Reach, parts=[my_parts.Mine]):
        pass
    assert records(tmp_path / "cut") == records(whole.folder.path)


@pytest.mark.parametrize(
    ("command", "again", "killed"),
    [
        (f"pderl tasks:Reach --mutation my_parts:Mine --rare 5 {WORDS}", ["my_parts:Mine"], "mutation"),
        ("my_parts:mine tasks:Reach --learner.batch-size 8 --replay 2000", ["my_parts:RandomSearch"], "coupling"),
        (
            "my_parts:RandomSearch tasks:Reach --learner own_learner:OneCritic --learner.warmup 50 --generation-size 4",
            ["my_parts:RandomSearch", "own_learner:OneCritic"],
            "coupling and learner",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and "--" not in value else "",
)
def test_parts_of_ones_own_train_from_the_shell_and_go_on_after_kill_9(command, again, killed, tmp_path):
    words = ["train", *command.split(), "--frames", "700", "--seed", "3", "--max-steps", "20"]
    shell(*words, "--run", tmp_path / "whole")
    shell(*words, "--run", tmp_path / "cut", kill_after=3)
    assert 0 < len(records(tmp_path / "cut")) < len(records(tmp_path / "whole"))
    parts = [word for own in again for word in ("--part", own)]
    shell("resume", tmp_path / "cut", "--task", "tasks:Reach", *parts)
    assert records(tmp_path / "cut") == records(tmp_path / "whole")
    champions = [(tmp_path / name / "champion.safetensors").read_bytes() for name in ("cut", "whole")]
    assert champions[0] == champions[1]


@pytest.mark.parametrize("preset", COUPLED)
def test_a_learner_of_ones_own_trains_in_every_coupling(preset):
    learner = OneCritic(batch_size=8, critic_hidden=(8, 8), warmup=50)
    algorithm = genepool.algorithms.assemble.assembled(preset, Reach, SMALL | COUPLED[preset] | {"learner": learner})
    *_, (state, outcomes) = generations(algorithm, 6)
    assert type(algorithm.learner) is OneCritic
    assert int(state.learner.updates) > 0
    assert np.isfinite(algorithm.report(state, outcomes)["critic_loss"])


def test_the_own_parts_that_are_shown_stay_small():
    assert len((HERE / "own_learner.py").read_text().splitlines()) <= 80


def test_a_random_search_beside_a_learner_finds_the_way(tmp_path):
    algorithm = my_parts.mine(genepool.find(Reach))
    run = genepool.train(algorithm, frames=6_000, run=tmp_path / "run", display=False)
    assert run.folder.records[-1]["best"] > -4.0  # at best about -1.5; at rest -20


def test_an_own_class_that_is_called_as_ones_of_genepools_stays_ones_own(tmp_path):
    class Gaussian(my_parts.Mine):
        pass

    algorithm = genepool.erl(Reach, **POPULATION | {"mutation": Gaussian})
    run = genepool.train(algorithm, frames=100, run=tmp_path / "run", display=False)
    name = run.folder.config["algorithm"]["evolver"]["mutation"]["part"]
    assert name.startswith("test_own_parts:")
    with pytest.raises(UserError, match="code of your own"):
        genepool.resume(tmp_path / "run", task=Reach, frames=200)
    again = genepool.resume(tmp_path / "run", task=Reach, frames=200, parts=[Gaussian])
    assert type(again.algorithm.evolver.mutation) is Gaussian
    again.stop()
    assert list(again) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--mutation no_such_module:Mine", "cannot import 'no_such_module' of 'no_such_module:Mine'"),
        ("--mutation my_parts:NoSuch", "the module 'my_parts' has no 'NoSuch'"),
        ("--mutation my_parts:mine", "is no part"),
        ("--mutation tasks:Reach", "is no part"),
        ("--mutation own_learner:OneCritic", "OneCritic is no mutation: it has no method '__call__'"),
        ("--learner my_parts:Mine", "Mine is no learner: it has no method 'init'"),
        ("--evolver my_parts:Mine", "Mine is no evolver"),
        ("--mutation my_parts:Mine --mutation.breadth 2", "has no option --mutation.breadth"),
        ("--mutation my_parts:Mine --sigma", "Missing value for argument '--evolver.mutation.sigma'"),
        ("--batch-size 3", "--batch-size may be"),
    ],
)
def test_an_own_part_that_does_not_fit_is_refused_in_one_line(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in refusal("train", "pderl", "tasks:Reach", *words.split(), capsys=capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("coupling", "said"),
    [
        ("my_parts:none_such", "the module 'my_parts' has no 'none_such'"),
        ("my_parts:Mine", "Mine is no coupling"),
        ("own_learner:OneCritic", "OneCritic is no coupling"),
        ("no_such:mine", "cannot import 'no_such'"),
    ],
)
def test_an_own_coupling_that_is_none_is_refused_in_one_line(coupling, said, capsys):
    assert said in refusal("train", coupling, "tasks:Reach", capsys=capsys)
