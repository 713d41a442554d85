"""Reports of runs, from folders made by hand: what the page shows, and what it leaves out with which reason."""

import base64
import contextlib
import io
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from browser import chromium, measured
from made_runs import GPO, command, gpo_records, pderl_records, table, write_all_kinds, write_run

from genepool import cli
from genepool.analysis.records import history
from genepool.analysis.records.lineage import effects, lineage
from genepool.analysis.records.reading import read
from genepool.analysis.report.population import clone_rates
from genepool.evolution.genetic.shared import FATES
from genepool.runs.folder import Folder

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write_all_kinds(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def made(runs, tmp_path_factory):
    """The report on all of them: its folder, the page as text, and what was printed."""
    out = tmp_path_factory.mktemp("made") / "report"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert cli.main(["report", str(runs), "--out", str(out)]) == 0
    return out, (out / "index.html").read_text(), printed.getvalue()


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
    pictures = sorted(out.glob("*.png"))
    tables = {path.stem for path in out.glob("*.csv")}
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


def test_an_unfinished_run_is_shown_and_does_not_count_if_others_are_finished(made):
    out, page, _ = made
    states = {row["run"]: row["state"] for row in table(out, "runs")}
    assert states["going"] == states["crashed"] == "not finished"
    assert states["pderl-0"] == "finished"
    assert "2 of 10 runs not finished, of which 0 count." in page
    curves = table(out, "Hopper-v5-envpool-learning-curves")
    assert {row["seeds"] for row in curves} == {"4"}


def test_what_cannot_be_read_is_named_with_its_reason(made):
    out, page, printed = made
    for said in (page, printed):
        assert "damaged/config.json is damaged" in said
        assert "begun has no generation yet" in said
    assert printed.splitlines()[-1] == f"{out / 'index.html'} (13 runs, {len(list(out.glob('*.png')))} figures)"


def test_a_second_run_of_a_seed_is_no_second_sample(made):
    _, page, _ = made
    assert "twin: has the seed of pderl-0" in page


def test_the_rates_of_the_learners_clones_sum_to_100_percent(runs, made):
    assert FATES == history.FATES
    run = read(Folder(runs / "pderl-1"))
    rates = clone_rates(run)
    begun = run.fates.sum(axis=1) > 0
    assert begun.any()
    assert not begun.all()
    assert np.allclose(rates[begun].sum(axis=1), 100.0)
    assert np.isnan(rates[~begun]).all()
    final = [row for row in table(made[0], "Hopper-v5-envpool-clones-table") if row["whose"] == "ours"]
    for row in final:
        assert sum(float(row[f"{fate}, %"].split()[0]) for fate in FATES) == pytest.approx(100.0, abs=0.2)


def test_a_strategy_has_no_lineage_and_is_compared_with_its_mean(runs, made):
    tried = read(Folder(runs / "aes-0")).candidates
    assert lineage(tried) is None
    found = {effect.maker: effect for effect in effects(tried)}
    assert found.keys() == {"drawn", "lesson"}
    assert found["lesson"].gain.mean() > found["drawn"].gain.mean()  # as it was made
    assert "no candidate has parents" in made[1]


def test_a_population_of_learners_with_little_on_record_is_reported_all_the_same(tmp_path, capsys):
    for seed in range(2):
        for preset, level in (("gpo", 0.0), ("single", -400.0)):
            own = {"preset": preset, "task": "AntRllab-v0", "algorithm": GPO, "seed": seed}
            write_run(tmp_path / "runs" / f"{preset}-{seed}", gpo_records(seed, level=level), **own)
    for name in ("out", "again"):
        assert command(capsys, "report", tmp_path / "runs", "--out", tmp_path / name)[0] == 0
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


def test_a_report_of_many_runs_is_quick_and_small(tmp_path):
    records = [list(pderl_records(seed, 100)) for seed in range(2)]
    for k in range(10):
        write_run(tmp_path / "runs" / str(k), records[k % 2], preset=("pderl", "erl")[k % 2], seed=k)
    words = ["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    # the child reads its own peak: what the system reports of a child to its parent includes the parent's
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
        ("genepool.runs.training, genepool.cli.commands.train, genepool.follow", "matplotlib"),
        ("genepool.analysis.report.build, genepool.analysis.report.comparison", "jax"),
    ],
)
def test_training_needs_nothing_of_reports_nor_reports_of_training(modules, library):
    code = f"import sys, {modules}; print({library!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"
