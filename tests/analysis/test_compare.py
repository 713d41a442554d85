"""Which runs are compared, with which published numbers, and what the comparison says."""

import re

import numpy as np
import pytest
from made_runs import AES, PDERL, aes_records, command, pderl_records, write_all_kinds, write_run

from genepool.algorithms.presets import PRESETS
from genepool.analysis.records.reading import find, read_all
from genepool.analysis.records.systems import group_runs
from genepool.analysis.report.sweeps import sweeps
from genepool.analysis.verify.published import numbers_for, published_numbers

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write_all_kinds(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("words", [["report"], ["compare", "--against"]])
def test_an_empty_folder_is_one_clear_line(words, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    name, *sides = words
    empty = tmp_path / "empty"
    code, _, complaint = command(capsys, name, empty, *sides, *[empty] * len(sides))
    assert code == 2
    assert complaint.count("\n") == 1
    assert "there are no runs in" in complaint


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["report"], "report on what?"),
        (["report", "no-such-folder"], "there is no no-such-folder"),
        (["compare", "{runs}/pderl-0"], "compare what?"),
        (["compare", "{runs}/pderl-0", "--against", "{runs}/pderl-0"], "pderl-0 is on both sides"),
        (["compare", "{runs}/pderl-0", "--against", "{runs}/gym"], "task and engine must be the same"),
        (["compare", "{runs}/pderl-0", "--against", "{runs}/begun"], "side B has no run to compare: begun"),
        (["report", "{runs}/damaged", "{runs}/begun"], "none of the 2 runs can be read"),
    ],
)
def test_a_mistake_is_one_clear_line(words, complaint, runs, capsys):
    code, _, said = command(capsys, *(word.format(runs=runs) for word in words))
    assert code == 2
    assert said.startswith("genepool: ")
    assert said.count("\n") == 1
    assert complaint in said


def test_runs_of_one_preset_with_other_settings_are_other_systems(tmp_path):
    other = PDERL | {"evolver": PDERL["evolver"] | {"mutation": {"part": "Proximal", "sigma": 0.05}}}
    kind = PDERL | {"evolver": PDERL["evolver"] | {"mutation": {"part": "Gaussian", "strength": 0.1}}}
    for seed, algorithm in enumerate((PDERL, PDERL, other)):
        write_run(tmp_path / "sigma" / str(seed), pderl_records(seed, 2), seed=seed, algorithm=algorithm)
    write_run(tmp_path / "kind" / "0", pderl_records(0, 2), algorithm=PDERL)
    write_run(tmp_path / "kind" / "1", pderl_records(1, 2), algorithm=kind, seed=1)
    labels = {}
    for name in ("sigma", "kind"):
        (group,), _ = group_runs(read_all(find([tmp_path / name]))[0])
        labels[name] = {system.label: len(system.runs) for system in group.systems}
    assert labels["sigma"] == {"pderl, mutation.sigma 0.05": 1, "pderl, mutation.sigma 0.1": 2}
    assert labels["kind"] == {"pderl, mutation Gaussian": 1, "pderl, mutation Proximal": 1}


def test_a_number_that_was_varied_is_drawn_as_a_sweep(tmp_path):
    for k, sigma in enumerate((0.01, 0.1, 1.0)):
        own = PDERL | {"evolver": PDERL["evolver"] | {"mutation": {"part": "Proximal", "sigma": sigma}}}
        write_run(tmp_path / str(k), pderl_records(k, 12, 5, level=100 * k), algorithm=own)
    (group,), _ = group_runs(read_all(find([tmp_path]))[0])
    drawing = sweeps(group)
    assert [row[:3] for row in drawing.rows] == [("pderl", "evolver.mutation.sigma", s) for s in (0.01, 0.1, 1.0)]
    assert [row[4] for row in drawing.rows] == [run.final() for run in group.runs]
    assert drawing.png().startswith(PNG)


def test_published_numbers_are_for_the_same_system_with_the_same_parts(tmp_path):
    fixed = AES | {"evolver": AES["evolver"] | {"variance_rule": {"part": "FixedN"}}}
    own = {"preset": "aes-rl", "task": "HalfCheetah-v5", "schedule": "asynchronous"}
    write_run(tmp_path / "0", aes_records(0, 2), algorithm=AES, **own)
    write_run(tmp_path / "1", aes_records(1, 2), algorithm=fixed, seed=1, **own)
    (group,), _ = group_runs(read_all(find([tmp_path]))[0])
    found = {system.runs[0].name: [(n.source, n.value) for n in numbers_for(system)] for system in group.systems}
    assert found == {"0": [("AES-RL Table 3", 12550.0)], "1": [("AES-RL Table 2", 12128.0)]}


def test_every_published_number_is_whole():
    numbers = published_numbers()
    assert {number.system for number in numbers} <= set(PRESETS)
    assert all(number.source and number.caveat and np.isfinite(number.value) for number in numbers)
    assert all(number.spread is None or (number.spread >= 0 and number.spread_kind) for number in numbers)
    value = {(n.system, n.task, n.metric, n.source): n.value for n in numbers}
    assert len(value) + 6 * 2 == len(numbers)  # AES-RL's Table 2 has seven pairs of rules under one name
    assert value["pderl", "HalfCheetah-v2", "return", "PDERL Table 1"] == 13522
    assert value["esac", "Swimmer-v2", "pop_max_ma100", "ESAC Table 1"] == 345.44
    assert value["gpo", "Walker2dRllab", "return", "GPO Table 2"] == 444.7
    rates = [n.value for n in numbers if (n.system, n.task) == ("pderl", "Ant-v2") and n.metric.startswith("clones")]
    assert sum(rates) == pytest.approx(100.0, abs=0.5)


def test_a_comparison_is_made_at_frames_that_all_runs_have(runs, capsys, tmp_path):
    sides = [f"{runs}/pderl-*", f"{runs}/going", "--against", f"{runs}/erl-*"]
    code, said, _ = command(capsys, "compare", *sides, "--out", tmp_path / "compare.png")
    assert code == 0
    assert "Hopper-v5 (envpool), at 84,000 frames" in said
    assert "going is the shortest run and sets the frames" in said
    code, said, _ = command(capsys, "compare", *sides, "--frames", "175000", "--out", tmp_path / "compare.png")
    assert "at 175,000 frames" in said
    assert "left out: going: was last tested at 84,000 frames" in said
    assert "pderl scores higher than erl (p = 0.029, 4 against 4 seeds)." in said
    assert "cannot have less than 0.029" in said
    assert (tmp_path / "compare.png").read_bytes().startswith(PNG)


def test_two_seeds_against_two_decide_nothing_and_the_text_says_so(runs, capsys, tmp_path):
    sides = [runs / "pderl-0", runs / "pderl-1", "--against", runs / "erl-0", runs / "erl-1"]
    _, said, _ = command(capsys, "compare", *sides, "--out", tmp_path / "compare.png")
    assert "2 against 2 seeds cannot decide" in said
    assert "Train 4 or more of each." in said


def test_a_comparison_over_tasks_keeps_each_task_to_itself(runs, tmp_path, capsys):
    for seed in range(2):
        write_run(tmp_path / f"other-{seed}", pderl_records(seed, 25, 6), preset="erl", task="Walker2d-v5", seed=seed)
        write_run(tmp_path / f"own-{seed}", pderl_records(seed, 25, 6, level=10**6), task="Walker2d-v5", seed=seed)
    a = [f"{runs}/pderl-*", f"{tmp_path}/own-*"]
    b = [f"{runs}/erl-*", f"{tmp_path}/other-*"]
    code, said, _ = command(capsys, "compare", *a, "--against", *b, "--out", tmp_path / "compare.png")
    assert code == 0
    assert re.findall(r"^(\S+ \(envpool\)), at", said, re.MULTILINE) == ["Hopper-v5 (envpool)", "Walker2d-v5 (envpool)"]
    assert "Over 2 tasks: P(A>B) 1.00" in said
    assert "2 tests were made" in said
