"""Reports and comparisons of runs, from folders made by hand: what is drawn, what is left out, and what is said of both."""

import base64
import contextlib
import csv
import io
import json
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from browser import chromium, measured
from made_runs import AES, GPO, PDERL, aes_records, gpo_records, pderl_records, write_run

from genepool import cli
from genepool.algorithms import PRESETS
from genepool.analysis import history, published
from genepool.analysis.curves import moving_average
from genepool.analysis.lineage import effects, lineage
from genepool.analysis.machine_figures import clock, spans
from genepool.analysis.population_figures import clone_rates
from genepool.analysis.reading import find, read, read_all
from genepool.analysis.sweep_figures import sweeps
from genepool.analysis.systems import grouped
from genepool.errors import UserError
from genepool.evolution.genetic import FATES
from genepool.runs.folder import Folder

PNG = b"\x89PNG"


def genepool(capsys, *words):
    """Run a command in this process: its exit code and what it printed."""
    code = cli.main([str(word) for word in words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def row(number, parents=(), operators=(), fitness=0.0, origin="evolution", purpose="fitness", **more):
    """A candidate of a record."""
    return {
        "number": number,
        "purpose": purpose,
        "origin": origin,
        "parents": list(parents),
        "operators": list(operators),
        "returns": [fitness],
        "frames": 10,
    } | more


def record(frames, candidates=(), **more):
    """A record with these candidates."""
    return {
        "frames": frames,
        "true_frames": frames,
        "fitness": [one["returns"][0] for one in candidates],
        "candidates": list(candidates),
        "wall": 1.0,
    } | more


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two tasks, two engines, three systems, and the runs that reports have to live with."""
    root = tmp_path_factory.mktemp("runs")
    for seed in range(4):
        write_run(root / f"pderl-{seed}", pderl_records(seed, 25, 6), seed=seed)
        write_run(root / f"erl-{seed}", pderl_records(seed + 10, 25, 6, level=-300), preset="erl", seed=seed)
    write_run(root / "gym", pderl_records(20, 25, 6, level=5000), engine="gymnasium")
    write_run(root / "going", pderl_records(21, 12, 6, level=9000), seed=7, frames=10**7)
    for seed in range(2):
        own = {"preset": "aes-rl", "task": "Walker2d-v5", "schedule": "asynchronous", "workers": "ray:5"}
        write_run(root / f"aes-{seed}", aes_records(seed, 15), seed=seed, algorithm=AES, **own)
    crashed = write_run(root / "crashed", pderl_records(22, 15, 6), seed=8) / "metrics.jsonl"
    crashed.write_text(crashed.read_text()[:-200])
    damaged = write_run(root / "damaged", pderl_records(23, 3, 6), seed=9)
    (damaged / "config.json").write_text('{"preset": "pderl", ')
    write_run(root / "begun", [], seed=10)
    write_run(root / "twin", pderl_records(0, 10, 6), seed=0)
    return root


@pytest.fixture(scope="module")
def made(runs, tmp_path_factory):
    """The report on all of them: its folder, the page as text, and what was printed."""
    out, printed = tmp_path_factory.mktemp("made") / "report", io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert cli.main(["report", str(runs), "--out", str(out)]) == 0
    return out, (out / "index.html").read_text(), printed.getvalue()


def table(out, name):
    with (out / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_holds_its_pictures_and_needs_nothing_from_elsewhere(made):
    out, page, _ = made
    assert "<script" not in page
    assert not re.search(r"https?://", page)
    sources = re.findall(r"src='([^']*)'", page)
    assert len(sources) > 20
    for source in sources:
        assert base64.b64decode(source.removeprefix("data:image/png;base64,")).startswith(PNG)
    links = re.findall(r'href="([^"#]+)"', page)
    assert all((out / link).is_file() for link in links if link != "data:,")
    pictures, tables = sorted(out.glob("*.png")), {path.stem for path in out.glob("*.csv")}
    assert len(pictures) == len(sources)
    assert {path.stem for path in pictures} <= tables
    assert all(len((out / f"{path.stem}.csv").read_text().splitlines()) > 1 for path in pictures)


def test_tasks_and_engines_are_grouped_and_never_mixed(made, runs):
    out, page, _ = made
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == ["Hopper-v5 (envpool)", "Hopper-v5 (gymnasium)", "Walker2d-v5 (envpool)", "The runs"]
    rows = {
        row["system"]: row for row in table(out, "Hopper-v5-envpool-final-table") if row["whose"].startswith("ours")
    }
    for preset in ("pderl", "erl"):
        finals = [read(Folder(runs / f"{preset}-{seed}")).final() for seed in range(4)]
        assert float(rows[preset]["mean"].replace(",", "")) == pytest.approx(np.mean(finals), rel=1e-3)
        assert rows[preset]["seeds"] == "4"
    (alone,) = (row for row in table(out, "Hopper-v5-gymnasium-final-table") if row["whose"].startswith("ours"))
    assert float(alone["mean"].replace(",", "")) == pytest.approx(read(Folder(runs / "gym")).final(), rel=1e-3)


def test_a_run_that_is_not_finished_is_shown_and_does_not_count_beside_those_that_are(made):
    out, page, _ = made
    states = {row["run"]: row["state"] for row in table(out, "runs")}
    assert states["going"] == states["crashed"] == "not finished"
    assert states["pderl-0"] == "finished"
    assert "2 of 10 runs not finished, of which 0 count." in page
    curves = table(out, "Hopper-v5-envpool-learning-curves")
    assert {row["seeds"] for row in curves} == {"4"}


def test_of_a_crashed_run_all_but_the_cut_line_is_read(runs):
    lines = (runs / "crashed" / "metrics.jsonl").read_text().splitlines()
    assert len(read(Folder(runs / "crashed")).frames) == len(lines) - 1 == 14


def test_what_cannot_be_read_is_named_with_its_reason(made):
    out, page, printed = made
    for said in (page, printed):
        assert "damaged/config.json is damaged" in said
        assert "begun has no generation yet" in said
    assert printed.splitlines()[-1] == f"{out / 'index.html'} (13 runs, {len(list(out.glob('*.png')))} figures)"


def test_a_second_run_of_a_seed_is_no_second_sample(made):
    _, page, _ = made
    assert "twin: has the seed of pderl-0" in page


@pytest.mark.parametrize("command", [["report"], ["compare", "--against"]])
def test_an_empty_folder_is_one_clear_line(command, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    code, _, complaint = genepool(
        capsys, command[0], tmp_path / "empty", *command[1:], *[tmp_path / "empty"] * len(command[1:])
    )
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
    code, _, said = genepool(capsys, *(word.format(runs=runs) for word in words))
    assert code == 2
    assert said.startswith("genepool: ")
    assert said.count("\n") == 1
    assert complaint in said


def test_records_that_are_not_ours_are_damage_and_no_crash(tmp_path):
    for k, line in enumerate(('{"generation": 1}', "[1, 2]", '{"frames": 3, "candidates": [{}]}', "{")):
        path = write_run(tmp_path / str(k), pderl_records(0, 1))
        (path / "metrics.jsonl").write_text(line + "\n")
        with pytest.raises(UserError, match="is damaged"):
            read(Folder(path))


def test_runs_are_found_in_folders_of_folders_and_by_patterns(tmp_path):
    for place in ("a/pderl/s0", "a/erl/s0", "b/s1"):
        write_run(tmp_path / place, pderl_records(0, 1))
    assert len(find([tmp_path])) == 3
    assert find([tmp_path / "a" / "*" / "s0"]) == [tmp_path / "a" / "erl" / "s0", tmp_path / "a" / "pderl" / "s0"]
    assert find([tmp_path / "b", tmp_path / "b" / "s1"]) == [tmp_path / "b" / "s1"]
    histories, _ = read_all(find([tmp_path / "a"]))
    assert [run.name for run in histories] == ["erl/s0", "pderl/s0"]


def test_the_rates_of_the_learners_clones_sum_to_100_percent(runs, made):
    assert FATES == history.FATES
    run = read(Folder(runs / "pderl-1"))
    rates, begun = clone_rates(run), run.fates.sum(axis=1) > 0
    assert begun.any()
    assert not begun.all()
    assert np.allclose(rates[begun].sum(axis=1), 100.0)
    assert np.isnan(rates[~begun]).all()
    final = [row for row in table(made[0], "Hopper-v5-envpool-clones-table") if row["whose"] == "ours"]
    for row in final:
        assert sum(float(row[f"{fate}, %"].split()[0]) for fate in FATES) == pytest.approx(100.0, abs=0.2)


def test_a_final_score_is_the_mean_of_the_last_ten_tests_as_the_authors_have_it(runs):
    run = read(Folder(runs / "erl-2"))
    tests = [np.mean(one["champion_test"]) for one in Folder(runs / "erl-2").records]
    assert run.final() == pytest.approx(np.mean(tests[-10:]))
    assert run.final(run.frames[3]) == pytest.approx(np.mean(tests[:4]))
    assert np.allclose(run.smoothed(), moving_average(tests))


def test_the_lineage_of_a_history_made_by_hand(tmp_path):
    #  0   1   2       first generation: drawn, of which 2 has no descendants
    #  |\  |
    #  3  4     5      3 is 0 kept, 4 is the child of 0 and 1, 5 is the learner's clone
    #      \    |
    #        6     7   6 is the child of 4 and 5, the champion; 7 is 3 mutated
    generations = [
        [row(0, fitness=5.0), row(1, fitness=3.0), row(2, fitness=1.0)],
        [row(3, [0], ["elite"], 4.0), row(4, [0, 1], ["row copy"], 2.0), row(5, origin="learning", fitness=6.0)],
        [row(6, [4, 5], ["row copy", "gaussian"], 9.0), row(7, [3], ["gaussian"], 8.0)],
    ]
    clones = dict.fromkeys(FATES, 0)
    records = [record(100 * k, tried, clones=clones) for k, tried in enumerate(generations, 1)]
    path = write_run(tmp_path / "run", records)
    tried = read(Folder(path)).candidates
    tree = lineage(tried)
    assert tried.number[tree.champion] == 6
    assert tried.number[tree.ancestors].tolist() == [0, 1, 4, 5, 6]
    assert {tuple(pair) for pair in tried.number[tree.links]} == {(4, 6), (5, 6), (0, 4), (1, 4)}
    assert tried.number[tree.line].tolist() == [6, 5]  # back to the fitter parent, the clone, whose line begins there
    assert tree.steps(tried) == {"row copy + gaussian": 1, "learner's clone": 1}
    found = {effect.maker: effect for effect in effects(tried)}
    assert found.keys() == {"elite", "row copy", "row copy + gaussian", "gaussian"}
    assert found["row copy + gaussian"].gain.tolist() == [3.0]  # beside the fitter of its parents
    assert found["row copy"].gain.tolist() == [-3.0]
    assert found["gaussian"].better == 1.0


def test_a_strategy_has_no_lineage_and_is_seen_beside_its_mean(runs, made):
    tried = read(Folder(runs / "aes-0")).candidates
    assert lineage(tried) is None
    found = {effect.maker: effect for effect in effects(tried)}
    assert found.keys() == {"drawn", "lesson"}
    assert found["lesson"].gain.mean() > found["drawn"].gain.mean()  # as it was made
    assert "nobody has parents" in made[1]


def test_parents_that_are_not_on_record_are_not_invented(tmp_path):
    tried = [row(6, [99], ["gaussian"], 0.0), row(5, [5, 2], ["gaussian"], 1.0)]
    tree = lineage(read(Folder(write_run(tmp_path / "run", [record(1, tried)]))).candidates)
    assert tree.champion == 1
    assert tree.line.tolist() == [1]
    assert len(tree.links) == 0


def test_who_was_out_while_who_was_told(tmp_path):
    events = ["ask 0", "ask 1", "tell 1", "ask 2", "learnt", "tell 0", "ask 3", "tell 2"]
    path = write_run(tmp_path / "run", [record(1, [row(0)], events=events)])
    bars, learnt = spans(read(Folder(path)))
    # candidate, lane, asked, told; 2 takes the lane that 1 left, 3 that of 0 and is still out
    assert sorted(bars) == [(0, 0, 0, 5), (1, 1, 1, 2), (2, 1, 3, 7), (3, 0, 6, 8)]
    assert learnt == [4]
    at, timed = clock(read(Folder(path)))
    assert (at(5), at(8), timed) == (5.0, 8.0, False)
    assert min(begin for _, _, begin, _ in spans(read(Folder(path)), most=3)[0]) == 5


def test_where_the_moments_of_events_are_on_record_they_stand_where_the_clock_says(tmp_path):
    records = [record(1, [row(0)], events=["ask 0", "tell 0"], moments=[0.5, 2.5])]
    path = write_run(tmp_path / "run", [*records, record(2, [row(1)], events=["ask 1"], moments=[3.0])])
    at, timed = clock(read(Folder(path)))
    assert timed
    assert [at(place) for place in range(4)] == [0.5, 2.5, 3.0, 3.0]  # who is still out, is so until the last event


@pytest.mark.parametrize("moments", ["x", [1.0, 2.0], ["soon"]])
def test_moments_that_are_none_or_not_of_the_events_are_damage(moments, tmp_path):
    path = write_run(tmp_path / "run", [record(1, [row(0)], events=["ask 0"], moments=moments)])
    with pytest.raises(UserError, match="is damaged: record 1"):
        read(Folder(path))


def test_runs_of_one_preset_with_other_settings_are_other_systems(tmp_path):
    other = PDERL | {"evolver": PDERL["evolver"] | {"mutation": {"part": "Proximal", "sigma": 0.05}}}
    kind = PDERL | {"evolver": PDERL["evolver"] | {"mutation": {"part": "Gaussian", "strength": 0.1}}}
    for seed, algorithm in enumerate((PDERL, PDERL, other)):
        write_run(tmp_path / "sigma" / str(seed), pderl_records(seed, 2), seed=seed, algorithm=algorithm)
    write_run(tmp_path / "kind" / "0", pderl_records(0, 2), algorithm=PDERL)
    write_run(tmp_path / "kind" / "1", pderl_records(1, 2), algorithm=kind, seed=1)
    labels = {}
    for name in ("sigma", "kind"):
        (group,), _ = grouped(read_all(find([tmp_path / name]))[0])
        labels[name] = {system.label: len(system.runs) for system in group.systems}
    assert labels["sigma"] == {"pderl, mutation.sigma 0.05": 1, "pderl, mutation.sigma 0.1": 2}
    assert labels["kind"] == {"pderl, mutation Gaussian": 1, "pderl, mutation Proximal": 1}


def test_a_number_that_was_varied_is_drawn_as_a_sweep(tmp_path):
    for k, sigma in enumerate((0.01, 0.1, 1.0)):
        own = PDERL | {"evolver": PDERL["evolver"] | {"mutation": {"part": "Proximal", "sigma": sigma}}}
        write_run(tmp_path / str(k), pderl_records(k, 12, 5, level=100 * k), algorithm=own)
    (group,), _ = grouped(read_all(find([tmp_path]))[0])
    drawing = sweeps(group)
    assert [row[:3] for row in drawing.rows] == [("pderl", "evolver.mutation.sigma", s) for s in (0.01, 0.1, 1.0)]
    assert [row[4] for row in drawing.rows] == [run.final() for run in group.runs]
    assert drawing.png().startswith(PNG)


def test_a_population_of_learners_with_little_on_record_is_reported_all_the_same(tmp_path, capsys):
    for seed in range(2):
        for preset, level in (("gpo", 0.0), ("single", -400.0)):
            own = {"preset": preset, "task": "AntRllab-v0", "algorithm": GPO, "seed": seed}
            write_run(tmp_path / "runs" / f"{preset}-{seed}", gpo_records(seed, level=level), **own)
    for name in ("out", "again"):
        assert genepool(capsys, "report", tmp_path / "runs", "--out", tmp_path / name)[0] == 0
    out = tmp_path / "out"
    for file in out.iterdir():  # the same runs make the same page, to the last bit
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes(), file.name
    shares = {row["system"]: float(row["share"]) for row in table(out, "AntRllab-v0-envpool-shares")}
    assert shares["gpo"] == 1.0 > shares["single"] > 0.0
    policies = [row for row in table(out, "AntRllab-v0-envpool-policies") if row["system"] == "gpo"]
    assert [int(row["rank"]) for row in policies] == list(range(1, 9))
    returns = [float(row["mean"]) for row in policies]
    assert returns == sorted(returns, reverse=True)
    page = (out / "index.html").read_text()
    assert "the learner&#x27;s clones (none joined a population)" in page
    sources = {row["whose"] for row in table(out, "AntRllab-v0-envpool-final-table")}
    assert "GPO Table 1, AntRllab" in sources


def test_published_numbers_stand_beside_the_same_system_with_the_same_parts(tmp_path):
    fixed = AES | {"evolver": AES["evolver"] | {"variance_rule": {"part": "FixedN"}}}
    own = {"preset": "aes-rl", "task": "HalfCheetah-v5", "schedule": "asynchronous"}
    write_run(tmp_path / "0", aes_records(0, 2), algorithm=AES, **own)
    write_run(tmp_path / "1", aes_records(1, 2), algorithm=fixed, seed=1, **own)
    (group,), _ = grouped(read_all(find([tmp_path]))[0])
    found = {system.runs[0].name: [(n.source, n.value) for n in published.beside(system)] for system in group.systems}
    assert found == {"0": [("AES-RL Table 3", 12550.0)], "1": [("AES-RL Table 2", 12128.0)]}


def test_every_published_number_is_whole():
    numbers = published.numbers()
    assert {number.system for number in numbers} <= set(PRESETS) | {"ppo", "gpo", "single", "joint"}
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
    code, said, _ = genepool(capsys, "compare", *sides, "--out", tmp_path / "compare.png")
    assert code == 0
    assert "Hopper-v5 (envpool), at 84,000 frames" in said
    assert "going is the shortest run and sets the frames" in said
    code, said, _ = genepool(capsys, "compare", *sides, "--frames", "175000", "--out", tmp_path / "compare.png")
    assert "at 175,000 frames" in said
    assert "left out: going: was last tested at 84,000 frames" in said
    assert "pderl scores higher than erl (p = 0.029, 4 against 4 seeds)." in said
    assert "cannot have less than 0.029" in said
    assert (tmp_path / "compare.png").read_bytes().startswith(PNG)


def test_two_seeds_against_two_decide_nothing_and_are_told_so(runs, capsys, tmp_path):
    sides = [runs / "pderl-0", runs / "pderl-1", "--against", runs / "erl-0", runs / "erl-1"]
    _, said, _ = genepool(capsys, "compare", *sides, "--out", tmp_path / "compare.png")
    assert "2 against 2 seeds cannot decide" in said
    assert "Train 4 or more of each." in said


def test_a_comparison_over_tasks_keeps_each_task_to_itself(runs, tmp_path, capsys):
    for seed in range(2):
        write_run(tmp_path / f"other-{seed}", pderl_records(seed, 25, 6), preset="erl", task="Walker2d-v5", seed=seed)
        write_run(tmp_path / f"own-{seed}", pderl_records(seed, 25, 6, level=10**6), task="Walker2d-v5", seed=seed)
    a, b = [f"{runs}/pderl-*", f"{tmp_path}/own-*"], [f"{runs}/erl-*", f"{tmp_path}/other-*"]
    code, said, _ = genepool(capsys, "compare", *a, "--against", *b, "--out", tmp_path / "compare.png")
    assert code == 0
    assert re.findall(r"^(\S+ \(envpool\)), at", said, re.MULTILINE) == ["Hopper-v5 (envpool)", "Walker2d-v5 (envpool)"]
    assert "Over 2 tasks: P(A>B) 1.00" in said
    assert "2 tests were made" in said


def test_a_report_of_many_runs_is_quick_and_small(tmp_path):
    records = [list(pderl_records(seed, 100)) for seed in range(2)]
    for k in range(10):
        write_run(tmp_path / "runs" / str(k), records[k % 2], preset=("pderl", "erl")[k % 2], seed=k)
    words = ["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    # its own peak, for that of a child in the parent's books is also the parent's
    code = (
        "import sys, time; from pathlib import Path; from genepool import cli; "
        "assert cli.main(sys.argv[1:]) == 0; print(time.process_time()); print(Path('/proc/self/status').read_text())"
    )
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert time.perf_counter() - begun < 60  # on a machine that is busy with other tests
    peak = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("VmHWM:"))
    assert int(peak) < 1024 * 1024  # KB
    seconds = next(float(line) for line in done.stdout.splitlines() if line.replace(".", "", 1).isdigit())
    assert seconds < 20


def test_the_page_fits_phones_and_desktops_in_a_real_browser(made, tmp_path):
    browser, why_not = chromium()
    if not browser:
        pytest.skip(why_not)
    out, page, _ = made
    found, console = measured(browser, out / "index.html", tmp_path, widths=(390, 1280))
    assert [seen["width"] for seen in found] == [390, 1280]
    for seen in found:
        assert seen["scroll"] <= seen["width"]
        assert seen["over"] == 0
        assert seen["images"] == page.count("<img ")
        assert seen["broken"] == 0
    assert console == []


@pytest.mark.parametrize(
    ("modules", "library"),
    [
        ("genepool.runs.training, genepool.commands.train, genepool.commands.drive", "matplotlib"),
        ("genepool.analysis.report, genepool.analysis.comparison", "jax"),
    ],
)
def test_training_needs_nothing_of_reports_nor_the_other_way_round(modules, library):
    code = f"import sys, {modules}; print({library!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_a_record_keeps_its_series_whatever_they_are_called(tmp_path):
    made_up = [
        record(k, [row(k)], champion_test=[1.0], zeta=k, waves=[1.0, 3.0], words="no", nothing=None)
        for k in range(1, 4)
    ]
    run = read(Folder(write_run(tmp_path / "run", made_up)))
    assert run.scalars.keys() == {"zeta", "waves"}
    assert run.scalars["zeta"].tolist() == [1.0, 2.0, 3.0]
    assert run.scalars["waves"].tolist() == [2.0, 2.0, 2.0]
    assert json.loads((run.path / "config.json").read_text()) == run.config
