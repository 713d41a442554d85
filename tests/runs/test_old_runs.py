"""Runs of version 0.1.0: their records and champions are read, and to resume them is refused without a loss.

tests/old_run.json holds what that version wrote for a small run of ERL: configuration, records, the champion's bytes.
"""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from made_runs import aes_records, command, gpo_records, pderl_records, table, write_run

import genepool
from genepool.analysis.report.esac import sensitivity
from genepool.runs.folder import Folder

OLD = json.loads(Path(__file__).with_name("old_run.json").read_text())
OBSERVATIONS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.5], [-1.0, 0.0, -2.0]])
ACTIONS = [[0.4504365921020508], [0.5184173583984375], [0.341655969619751]]  # of the champion, by version 0.1.0

TASK = {"part": "Task", "truncation_is_terminal": False, "max_steps": None, "make": None}
NAMES = {  # what version 0.1.0 called the parts of its presets
    "pderl": {"part": "ERL", "evolver": {"part": "Generational", "mutation": {"part": "Proximal", "sigma": 0.1}}},
    "td3": {"part": "ERL", "evolver": None, "learner": {"part": "TD3"}, "sync_period": 10},
    "aes-rl": {
        "part": "TaughtES",
        "evolver": {"part": "AsynchronousES", "mean_rule": {"part": "RelativeBaseline"}},
        "reference_episodes": 5,
        "asynchronous": True,
    },
    "cem": {"part": "TaughtES", "evolver": {"part": "CEM"}, "learner": None, "asynchronous": False},
    "esac": {
        "part": "ESAC",
        "evolver": {"part": "WinnersES", "sigma": 0.005, "tuning": {"part": "AMT", "clip": 0.0001, "sees": "raw"}},
        "asynchronous": False,
    },
    "gpo": {"part": "GPO", "mutation": {"part": "PPO"}, "crossover": {"part": "StateSpace"}},
}
RECORDS = {"aes-rl": aes_records, "gpo": gpo_records}


def write_old(path, config=OLD["config"]):
    """The run as version 0.1.0 left it, with a checkpoint of which only that version knows the layout."""
    (path / "checkpoints").mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in OLD["records"]))
    (path / "champion.safetensors").write_bytes(base64.b64decode(OLD["champion"]))
    (path / "checkpoints" / "00000002.safetensors").write_bytes(b"the state of version 0.1.0")
    return path


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def old(tmp_path):
    return write_old(tmp_path / "runs" / "erl")


def test_its_champion_acts_as_it_did(old):
    policy = genepool.load(old)
    assert policy.facts == {"task": "Pendulum-v1", "preset": "erl", "seed": 4, "frames": 2000}
    np.testing.assert_allclose(policy.predict(OBSERVATIONS)[0], ACTIONS, rtol=1e-5)


def test_its_champion_is_evaluated(old, capsys):
    code, said, complaint = command(capsys, "evaluate", old, "--episodes", 3)
    assert (code, complaint) == (0, "")
    assert "erl on Pendulum-v1, champion at 2,000 frames" in said
    assert "3 episodes, seed 0" in said


def test_it_is_listed_among_the_runs_with_its_last_tests(old, capsys):
    code, said, complaint = command(capsys, "runs", old.parent)
    assert (code, complaint) == (0, "")
    champion, learner = (np.mean(OLD["records"][-1][f"{who}_test"]) for who in ("champion", "learner"))
    row = next(line.split() for line in said.splitlines() if line.split()[0] == "erl")
    assert row == ["erl", "erl", "Pendulum-v1", "4", "2,000", "2,000", f"{champion:.1f}", f"{learner:.1f}"]


def test_its_learning_curve_and_its_updates_are_drawn(old, capsys):
    for words, name in (((), "curve.png"), (("--figure", "updates"), "updates.png")):
        code, _, complaint = command(capsys, "plot", old, *words)
        assert (code, complaint) == (0, "")
        assert (old / name).read_bytes().startswith(b"\x89PNG")


def test_it_is_reported(old, capsys, tmp_path):
    code, said, complaint = command(capsys, "report", old, "--out", tmp_path / "report")
    assert (code, complaint) == (0, "")
    assert "(1 run" in said
    (row,) = table(tmp_path / "report", "runs")
    assert row["state"] == "finished"


@pytest.mark.parametrize("words", [(), ("--frames", "9000"), ("--workers", "ray:2")])
def test_to_resume_it_is_refused_in_a_line_that_names_its_version_and_nothing_is_lost(old, words, capsys):
    before = contents(old)
    code, said, complaint = command(capsys, "resume", old, *words)
    assert (code, said, complaint.count("\n")) == (2, "", 1)
    assert complaint.startswith(f"genepool: {old} was trained by genepool 0.1.0, whose checkpoints")
    assert "resume it with that version, or train it anew" in complaint
    assert contents(old) == before


def test_to_study_its_operators_is_refused_as_to_resume_it_is(old, capsys):
    before = contents(old)
    code, _, complaint = command(capsys, "operators", old)
    assert (code, complaint.count("\n")) == (2, 1)
    assert "was trained by genepool 0.1.0" in complaint
    assert contents(old) == before


@pytest.mark.parametrize("versions", [{}, {"genepool": "0.0.9"}, {"genepool": "0.1"}])
def test_what_is_older_still_or_says_no_version_is_refused_too(versions, tmp_path):
    config = OLD["config"] | {"versions": versions}
    folder = write_old(tmp_path / "run", config)
    named = versions.get("genepool", "an older version")
    with pytest.raises(genepool.UserError, match=f"was trained by genepool {named}, whose checkpoints"):
        genepool.resume(folder)


def test_runs_whose_parts_have_their_old_names_are_reported_with_all_their_systems(tmp_path, capsys):
    for preset, algorithm in NAMES.items():
        own = {"preset": preset, "algorithm": algorithm | {"task": TASK}, "versions": {"genepool": "0.1.0"}}
        own["schedule"] = "asynchronous" if algorithm.get("asynchronous") else "synchronous"
        for seed in range(2):
            records = RECORDS.get(preset, pderl_records)(seed, 6)
            write_run(tmp_path / "runs" / f"{preset}-{seed}", records, seed=seed, **own)
    code, said, complaint = command(capsys, "report", tmp_path / "runs", "--out", tmp_path / "report")
    assert (code, complaint) == (0, "")
    assert f"({2 * len(NAMES)} runs," in said
    rows = table(tmp_path / "report", "Hopper-v5-envpool-final-table")
    ours = {row["system"]: row["seeds"] for row in rows if row["whose"].startswith("ours")}
    assert ours == dict.fromkeys(NAMES, "2")


def test_the_clips_of_runs_whose_tuning_has_its_old_name_are_drawn(tmp_path):
    algorithm = NAMES["esac"] | {"task": TASK}
    run = write_run(tmp_path / "run", pderl_records(0, 6), preset="esac", algorithm=algorithm)
    (by_clip,) = sensitivity([Folder(run)]).values()
    assert list(by_clip) == [0.0001]
