"""ESAC's figures, from run folders made by hand: what is read, and one clear line where there is nothing to read."""

import json

import numpy as np
import pytest

from genepool import cli
from genepool.analysis.report.esac import mean_curve, sensitivity, updates
from genepool.errors import UserError
from genepool.runs.folder import Folder

TUNING = {"part": "AutomaticMutationTuning", "sees": "raw"}


def folder(path, records, preset="esac", seed=0, tuning=None, task="Swimmer-v5", evolver=True):
    """A run folder of these records."""
    algorithm = {"evolver": {"tuning": tuning} if evolver else None}
    path.mkdir(parents=True)
    config = {"preset": preset, "task": task, "engine": "envpool", "seed": seed, "algorithm": algorithm}
    (path / "config.json").write_text(json.dumps(config))
    (path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return Folder(path)


def esac(generation, slope=5):
    at = {"nominal_steps": 1_000 * generation, "frames": 20_000 * generation, "true_frames": 21_000 * generation}
    return at | {"updates": slope * generation}


def test_updates_are_counted_against_the_papers_steps_and_against_all_frames(tmp_path):
    ours = folder(tmp_path / "esac", [esac(g) for g in (1, 2, 3)])
    sac = folder(tmp_path / "sac", [{"frames": 1000, "true_frames": 1500, "updates": 990}], preset="sac", evolver=False)
    runs = updates([ours, sac])["Swimmer-v5 (envpool)"]
    assert runs["esac"][0].tolist() == [[1000, 2000, 3000], [21000, 42000, 63000], [5, 10, 15]]
    assert runs["sac"][0].tolist() == [[1000], [1500], [990]]  # its steps are its frames


def test_seeds_are_averaged_over_the_range_that_all_cover():
    x, y = mean_curve([np.array([[1.0, 3.0], [2.0, 6.0]]), np.array([[1.0, 2.0], [4.0, 8.0]])])
    assert (x[0], x[-1]) == (1.0, 2.0)
    np.testing.assert_allclose(y, 3.0 * x)


def test_the_return_of_a_zeta_is_that_of_the_last_ten_tests_of_its_runs(tmp_path):
    tests = [{"frames": k, "champion_test": [k, k + 2]} for k in range(20)]
    folders = [folder(tmp_path / str(k), tests, seed=k, tuning=TUNING | {"clip": 1e-4}) for k in range(2)]
    folders += [folder(tmp_path / "none", tests[:1])]
    assert sensitivity(folders) == {"Swimmer-v5 (envpool)": {1e-4: [15.5, 15.5], "no tuning": [1.0]}}


def test_the_command_draws_both(tmp_path, capsys):
    runs = []
    for k, clip in enumerate((1e-4, 1e-4, 1e-2)):
        records = [esac(g, slope=5 + k) | {"champion_test": [10.0 * g]} for g in range(1, 5 - k)]
        runs.append(str(folder(tmp_path / str(k), records, seed=k, tuning=TUNING | {"clip": clip}).path))
    for figure in ("updates", "sensitivity"):
        assert cli.main(["plot", *runs, "--figure", figure, "--out", str(tmp_path / f"{figure}.png")]) == 0
        assert (tmp_path / f"{figure}.png").read_bytes().startswith(b"\x89PNG")


def test_runs_that_have_nothing_to_draw_are_named(tmp_path):
    untested = folder(tmp_path / "untested", [esac(1) | {"updates": None}], tuning=TUNING | {"clip": 1e-4})
    with pytest.raises(UserError, match="no updates"):
        updates([untested])
    with pytest.raises(UserError, match="not tested yet"):
        sensitivity([untested])
    with pytest.raises(UserError, match="no run of ESAC"):
        sensitivity([folder(tmp_path / "sac", [], evolver=False)])
