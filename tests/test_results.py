"""The plan of results: it survives a kill and repeats nothing, and what it leaves behind says nothing of the machine."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks import papers, results, results_page
from benchmarks.results import PLAN, Row, jobs_of
from benchmarks.runs import jobs, runner, tables
from benchmarks.runs.jobs import Job
from genepool.environments.lookup import find

SCRIPT = Path(__file__).with_name("simulated_plan.py")
ROOT = Path(__file__).parent.parent


def launch(folder, *words, pace=0.05):
    """The runner in a process of its own, whose runs are ten generations of so many seconds and train nothing."""
    paths = [str(ROOT), str(ROOT / "src"), str(SCRIPT.parent), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, SCRIPT, "--runs", folder / "runs", "--results", folder / "results", *words]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "SIMULATED_PACE": str(pace)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def wait_for(condition, seconds=20.0):
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds
        time.sleep(0.05)


def generations(folder):
    """Generation numbers that each run lived through, as its program counted them, in order."""
    return {path.stem: path.read_text().split() for path in sorted((folder / "runs").glob("*.lived"))}


def test_a_runner_that_is_killed_goes_on_and_repeats_nothing(tmp_path):
    process = launch(tmp_path, "--jobs", "1")
    lived = tmp_path / "runs" / "second-Reach-0k-s0.lived"
    wait_for(lambda: lived.exists() and len(lived.read_text().split()) >= 2)
    process.kill()
    process.wait()
    assert (tmp_path / "results" / "first-Reach-0k-s0" / "curve.csv").exists()
    again = launch(tmp_path, "--jobs", "2")
    out = again.communicate(timeout=60)[0]
    assert again.returncode == 0, out
    assert "first-Reach-0k-s0: begins" not in out
    whole = [str(k) for k in range(1, 11)]
    assert generations(tmp_path) == dict.fromkeys(
        (f"{name}-Reach-0k-s{seed}" for name in ("first", "second") for seed in (0, 1)), whole
    )
    finished = launch(tmp_path)
    assert "4 of 4 done; running: nothing" in finished.communicate(timeout=60)[0]
    assert finished.returncode == 0


def test_ctrl_c_has_the_runs_save_themselves(tmp_path):
    process = launch(tmp_path, "--jobs", "2", "--only", "*-s0", pace=0.5)  # neither is over before it is told
    lived = tmp_path / "runs" / "first-Reach-0k-s0.lived"
    wait_for(lambda: lived.exists() and len(lived.read_text().split()) >= 2)
    process.send_signal(signal.SIGINT)
    out = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert "first-Reach-0k-s0: saved at" in out
    assert launch(tmp_path, "--only", "*-s0").communicate(timeout=60)[0].count("done in") == 2
    assert set(map(len, generations(tmp_path).values())) == {10}


def test_a_run_that_another_runner_is_at_is_left_to_it(tmp_path):
    first, second = launch(tmp_path, "--only", "*-s0"), launch(tmp_path, "--only", "*-s0")
    for process in (first, second):
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert set(map(len, generations(tmp_path).values())) == {10}


def test_a_run_that_fails_does_not_keep_the_others(tmp_path):
    process = launch(tmp_path, "--jobs", "1", "--plan", "simulated_plan:FAILING")
    out = process.communicate(timeout=60)[0]
    assert process.returncode == 1
    assert "broken-Reach-0k-s0: FAILED" in out
    assert "first-Reach-0k-s0: done" in out


def test_the_cost_of_a_run_is_that_of_all_processes_that_trained_it(tmp_path):
    process = launch(tmp_path, "--only", "first-*-s0", pace=0.5)
    lived = tmp_path / "runs" / "first-Reach-0k-s0.lived"
    wait_for(lambda: lived.exists() and len(lived.read_text().split()) >= 2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    launch(tmp_path, "--only", "first-*-s0").communicate(timeout=60)
    notes = dict(line.split() for line in lived.with_suffix(".cost").read_text().splitlines())
    assert len(notes) == 2
    assert min(map(float, notes.values())) > 0.0
    config = json.loads((tmp_path / "results" / "first-Reach-0k-s0" / "config.json").read_text())
    assert config["cost"]["cpu_seconds"] == pytest.approx(sum(map(float, notes.values())), abs=0.1)
    assert config["cost"]["wall_seconds"] == 1.0


def test_of_each_process_the_last_whole_note_of_its_cost_counts(tmp_path):
    job = Job("first", "cem", "Reach", 100, 0)
    assert jobs.cpu_seconds(job, tmp_path) is None
    (tmp_path / "first.cost").write_text("1 10.00\n1 12.50\n2 3.00\n2 4")  # the machine was lost while it wrote
    assert jobs.cpu_seconds(job, tmp_path) == 15.5


BUSY = "import time\nwhile time.process_time() < 0.5: pass\n"
HELPED = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"


def test_the_cost_of_a_process_includes_that_of_its_helpers(tmp_path):
    job = Job("helped", "cem", "Reach", 100, 0)
    trainer = jobs.Trainer(job, tmp_path, subprocess.Popen([sys.executable, "-c", HELPED]))
    wait_for(trainer.ended)
    assert trainer.process.returncode == 0
    assert 0.5 <= jobs.cpu_seconds(job, tmp_path) < 2.0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not say what a session has cost")
def test_the_cost_is_noted_while_a_process_runs_with_that_of_its_helpers(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "NOTE", 0.0)
    job = Job("helped", "cem", "Reach", 100, 0)
    command = [sys.executable, "-c", HELPED.replace("0.5", "60")]
    trainer = jobs.Trainer(job, tmp_path, subprocess.Popen(command, start_new_session=True))
    try:
        wait_for(lambda: not trainer.ended() and jobs.cpu_seconds(job, tmp_path) > 0.3)
    finally:
        os.killpg(trainer.process.pid, signal.SIGKILL)
    before = jobs.cpu_seconds(job, tmp_path)
    wait_for(trainer.ended)  # the helper is not waited for any more, and still counted
    assert jobs.cpu_seconds(job, tmp_path) >= before


def test_a_run_that_a_plan_names_twice_is_trained_once(tmp_path):
    job = Job("first", "cem", "Reach", 100, 0)
    assert runner.Runner([job, job], tmp_path, tmp_path, 2).waiting == [job]


@pytest.mark.parametrize("tier", ["TIER_1", "TIER_2", "TIER_3"])
def test_a_tier_of_the_papers_names_no_run_twice_and_takes_the_engine_that_a_task_takes_by_itself(tier):
    plan = getattr(papers, tier)
    jobs = jobs_of(plan)
    assert len({job.name for job in jobs}) == len(jobs)
    assert {row.task: row.engine for row in plan} == {row.task: find(row.task).engine for row in plan}


def test_what_of_the_papers_is_trained_early_is_of_the_first_tier():
    assert set(jobs_of(papers.EARLY)) < set(jobs_of(papers.TIER_1))


def test_the_plan_has_no_two_runs_of_the_same_name_and_every_seed_of_it():
    jobs = jobs_of(PLAN)
    assert len({job.name for job in jobs}) == len(jobs) == sum(row.seeds * len(row.systems) for row in PLAN)
    assert [job.name for job in jobs[:4]] == [
        "td3-HalfCheetah-v5-100k-s0",
        "sac-HalfCheetah-v5-100k-s0",
        "ddpg-HalfCheetah-v5-100k-s0",
        "td3-HalfCheetah-v5-100k-s1",
    ]
    assert "--learner.critic-hidden" in jobs[2].options


def test_all_runs_of_the_plan_and_all_results_are_of_one_engine():
    """Another engine has another version of MuJoCo."""
    asked = {job.options[job.options.index("--engine") + 1] for job in jobs_of(PLAN)}
    configs = [json.loads(path.read_text()) for path in sorted((ROOT / "results").glob("*/config.json"))]
    assert asked == {config["engine"] for config in configs} == {"envpool"}


def test_one_run_is_chosen_by_its_name_and_not_those_whose_names_end_alike(capsys, tmp_path):
    assert results.main(["--list", "--only", "sac-Swimmer*", "--runs", str(tmp_path)]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["sac-Swimmer-v5-1000k-s0"]


def test_a_preset_that_is_not_here_is_left_out(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(results, "PLAN", (Row({"Later": "not-yet"}, "Swimmer-v5", 1000, 1, "nothing"),))
    assert results.main(["--runs", str(tmp_path), "--results", str(tmp_path), "--list"]) == 0
    assert "no preset 'not-yet' here" in capsys.readouterr().out
    assert results.main(["--runs", str(tmp_path), "--results", str(tmp_path)]) == 0
    assert "left out" in capsys.readouterr().out


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A real run of a few seconds, run by the runner."""
    folder = tmp_path_factory.mktemp("results")
    process = launch(folder, "--plan", "simulated_plan:REAL")
    out = process.communicate(timeout=120)[0]
    assert process.returncode == 0, out
    return folder


def test_a_run_leaves_its_tests_and_its_configuration_without_a_trace_of_the_machine(trained):
    kept = trained / "results" / "cem-Pendulum-v1-0k-s0"
    with (kept / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == tables.COLUMNS
    assert [row["who"] for row in rows] == ["champion"] * len(rows)
    assert int(rows[-1]["frames"]) == int(rows[-1]["training_frames"]) >= 200
    assert int(rows[-1]["true_frames"]) == int(rows[-1]["frames"]) + 2 * 20 * len(rows)
    assert len(rows[-1]["returns"].split()) == 2
    text = (kept / "config.json").read_text()
    assert str(trained) not in text
    assert str(Path.home()) not in text
    assert str(ROOT) not in text
    assert json.loads(text)["cost"]["cpu_seconds"] > 0.0
    assert json.loads(text)["command"].startswith("genepool train cem Pendulum-v1 --frames 200 --seed 0 --max-steps 20")


@pytest.mark.filterwarnings("ignore:No artists with labels")
def test_a_run_with_a_single_test_is_drawn_as_a_point(tmp_path):
    seeds = [results_page.Seed(np.array([1e6]), np.array([1e6]), np.array([level]), 1.0) for level in (10.0, 20.0)]
    row = Row({"ES": "es"}, "Swimmer-v5", 1_000_000, 2, "each other")
    inks = []
    for name, shown in (("points", seeds), ("none", [])):
        results_page.draw(row, {"ES": shown}, {}, tmp_path / f"{name}.png")
        with Image.open(tmp_path / f"{name}.png") as picture:
            red, _, blue = np.moveaxis(np.asarray(picture.convert("RGB"), int), 2, 0)
            inks.append(int(np.sum(blue > red + 60)))
    assert inks[0] > inks[1] + 150  # two dots and a diamond, beside the legend's line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "nobody"], "no run of the plan is named 'nobody'"),
        (["--plan", "no_such_module:PLAN", "--list"], "there is no plan 'no_such_module:PLAN'"),
        (["--plan", "benchmarks.results:NONE", "--list"], "there is no plan 'benchmarks.results:NONE'"),
        (["--plan", ":", "--list"], "there is no plan ':'"),
    ],
)
def test_a_plan_or_a_run_that_is_not_there_is_one_line_and_exit_code_2(words, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        results.main(words)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_systems_are_compared_at_the_training_frames_that_both_have_played():
    tests, returns = np.array([10.0, 20.0]), np.array([0.0, 100.0])
    shown = {  # AES-RL's paper does not count the episodes of the mean
        "AES-RL": [results_page.Seed(tests, np.array([10.0, 110.0]), returns, 1.0)],
        "TD3": [results_page.Seed(tests, tests, returns, 1.0)],
    }
    row = Row({"AES-RL": "aes-rl", "TD3": "td3"}, "Swimmer-v5", 20, 1, "each other")
    text = "\n".join(results_page.section(row, shown, [], "curve.png"))
    assert "at 20 training frames" in text
    assert "| AES-RL | 1 | 100 | 100 | 10 | 0.00 |" in text
    assert "| TD3 | 1 | 100 | 100 | 100 | 0.00 |" in text


def test_where_a_seed_has_no_test_near_the_page_says_so_and_compares_at_frames_that_every_seed_has():
    seed = lambda *tests: results_page.Seed(np.array(tests), np.array(tests), np.array(tests), 1.0)
    row = Row({"ES": "es", "SAC": "sac"}, "Swimmer-v5", 1000, 2, "each other")
    shown = {"ES": [seed(100.0, 500.0), seed(100.0, 600.0)], "SAC": [seed(100.0, 1000.0), seed(100.0, 700.0)]}
    text = "\n".join(results_page.section(row, shown, [], "curve.png"))
    assert "at 500 training frames" in text
    assert "| ES | 2 | no test near | none, none | 500 ± 0 | 0.00 |" in text
    assert "| SAC | 2 | 1000 | 1000, none | 500 ± 0 | 0.00 |" in text


def test_the_page_is_made_of_what_is_there(trained, tmp_path):
    curve = (trained / "results" / "cem-Pendulum-v1-0k-s0" / "curve.csv").read_text()
    for seed in (0, 1):
        path = tmp_path / "results" / f"cem-Swimmer-v5-0k-s{seed}" / "curve.csv"
        path.parent.mkdir(parents=True)
        path.write_text(curve)
    (tmp_path / "results" / "account.md").write_text("We agree with ourselves.\n")
    plan = (
        Row({"CEM": "cem"}, "Swimmer-v5", 240, 3, "the paper"),
        Row({"TD3": "td3"}, "Hopper-v5", 100_000, 1, "the band", as_published=True),
    )
    text = results_page.page(plan, tmp_path / "results", tmp_path / "docs")
    assert "We agree with ourselves." in text
    assert "CEM 2 of 3 seeds" in text
    assert "351 ± 9, unknown seeds, Swimmer-v2, AES-RL Table 3" in text
    assert "TD3: not trained yet, to be compared with the band -93 to 1537" in text
    assert "Hopper-v5 is not Hopper-v1" in text
    assert (tmp_path / "docs" / "results" / "cem-Swimmer-v5.png").read_bytes().startswith(b"\x89PNG")
