"""Kill a run at any moment: resumed, it is the run that was never interrupted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from genepool.runs.folder import CLOCKED

SCRIPT = Path(__file__).parents[1] / "killed_run.py"


def records(folder):
    """The metrics in every field but those that tell the time."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in CLOCKED} for row in rows]


def play(folder, moment, preset="pderl"):
    return subprocess.run([sys.executable, SCRIPT, folder, moment, preset], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    answer = play(folder, "never")
    assert answer.returncode == 0, answer.stderr
    return folder


def test_the_same_seed_gives_the_same_metrics_to_the_last_bit(uninterrupted, tmp_path):
    assert play(tmp_path / "again", "never").returncode == 0
    assert records(tmp_path / "again") == records(uninterrupted)
    champions = [(folder / "champion.safetensors").read_bytes() for folder in (tmp_path / "again", uninterrupted)]
    assert champions[0] == champions[1]


@pytest.mark.parametrize("moment", ["acting", "learning", "saving", "twice"])
def test_a_run_killed_while_it_is(moment, uninterrupted, tmp_path):
    folder = tmp_path / "run"
    assert play(folder, moment).returncode == -9
    assert len(records(folder)) < len(records(uninterrupted))
    assert len(list(folder.rglob("*.tmp"))) == (moment == "saving")
    answer = play(folder, "never")
    assert answer.returncode == 0, answer.stderr
    assert records(folder) == records(uninterrupted)
    generations = [record["generation"] for record in records(folder)]
    assert generations == list(range(1, len(generations) + 1))
    assert 1 <= len(list((folder / "checkpoints").iterdir())) <= 2
    assert not list(folder.rglob("*.tmp"))
    assert (folder / "champion.safetensors").read_bytes() == (uninterrupted / "champion.safetensors").read_bytes()


@pytest.fixture(scope="module")
def asynchronous(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "asynchronous"
    answer = play(folder, "never", "aes_rl")
    assert answer.returncode == 0, answer.stderr
    return folder


@pytest.mark.parametrize("moment", ["acting", "learning"])
def test_an_asynchronous_run_killed_while_it_is(moment, asynchronous, tmp_path):
    """What was out is issued again, and on one worker the run is the one that was never interrupted."""
    folder = tmp_path / "run"
    assert play(folder, moment, "aes_rl").returncode == -9
    assert 1 <= len(records(folder)) < len(records(asynchronous))
    answer = play(folder, "never", "aes_rl")
    assert answer.returncode == 0, answer.stderr
    assert records(folder) == records(asynchronous)
    assert any(candidate["operators"] == ["lesson"] for row in records(folder) for candidate in row["candidates"])
    assert (folder / "champion.safetensors").read_bytes() == (asynchronous / "champion.safetensors").read_bytes()


@pytest.mark.parametrize("moment", ["acting", "learning"])
def test_a_run_of_gpo_killed_within_a_crossover(moment, genetic, tmp_path):
    """The iteration is lived again from its beginning, the crossover with it."""
    folder = tmp_path / "run"
    assert play(folder, moment, "gpo").returncode == -9
    assert 1 <= len(records(folder)) < len(records(genetic))
    answer = play(folder, "never", "gpo")
    assert answer.returncode == 0, answer.stderr
    assert records(folder) == records(genetic)
    assert (folder / "champion.safetensors").read_bytes() == (genetic / "champion.safetensors").read_bytes()


@pytest.fixture(scope="module")
def genetic(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "genetic"
    answer = play(folder, "never", "gpo")
    assert answer.returncode == 0, answer.stderr
    return folder
