"""What reports read of a run folder: damage, scores, lineage, and which candidates were in flight when."""

import json

import numpy as np
import pytest
from made_runs import pderl_records, record, row, write_all_kinds, write_run

from genepool.analysis.records.lineage import effects, lineage
from genepool.analysis.records.reading import find, read, read_all
from genepool.analysis.records.statistics import moving_average
from genepool.analysis.report.time import clock, flights
from genepool.errors import UserError
from genepool.evolution.genetic.shared import FATES
from genepool.runs.folder import Folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write_all_kinds(tmp_path_factory.mktemp("runs"))


def test_of_a_crashed_run_all_but_the_cut_line_is_read(runs):
    lines = (runs / "crashed" / "metrics.jsonl").read_text().splitlines()
    assert len(read(Folder(runs / "crashed")).frames) == len(lines) - 1 == 14


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
    assert found["row copy + gaussian"].gain.tolist() == [3.0]  # against the fitter of its parents
    assert found["row copy"].gain.tolist() == [-3.0]
    assert found["gaussian"].better == 1.0


def test_parents_that_are_not_on_record_are_not_invented(tmp_path):
    tried = [row(6, [99], ["gaussian"], 0.0), row(5, [5, 2], ["gaussian"], 1.0)]
    tree = lineage(read(Folder(write_run(tmp_path / "run", [record(1, tried)]))).candidates)
    assert tree.champion == 1
    assert tree.line.tolist() == [1]
    assert len(tree.links) == 0


def test_the_candidates_in_flight_are_those_between_their_ask_and_their_tell(tmp_path):
    events = ["ask 0", "ask 1", "tell 1", "ask 2", "learnt", "tell 0", "ask 3", "tell 2"]
    path = write_run(tmp_path / "run", [record(1, [row(0)], events=events)])
    bars, learnt = flights(read(Folder(path)))
    # candidate, row, asked, accepted; 2 takes the row that 1 left, 3 that of 0 and is still in flight
    assert sorted(bars) == [(0, 0, 0, 5), (1, 1, 1, 2), (2, 1, 3, 7), (3, 0, 6, 8)]
    assert learnt == [4]
    at, timed = clock(read(Folder(path)))
    assert (at(5), at(8), timed) == (5.0, 8.0, False)
    assert min(begin for _, _, begin, _ in flights(read(Folder(path)), most=3)[0]) == 5


def test_events_with_moments_on_record_stand_at_their_time(tmp_path):
    records = [record(1, [row(0)], events=["ask 0", "tell 0"], moments=[0.5, 2.5])]
    path = write_run(tmp_path / "run", [*records, record(2, [row(1)], events=["ask 1"], moments=[3.0])])
    at, timed = clock(read(Folder(path)))
    assert timed
    assert [at(place) for place in range(4)] == [
        0.5,
        2.5,
        3.0,
        3.0,
    ]  # a candidate in flight stays so until the last event


@pytest.mark.parametrize("moments", ["x", [1.0, 2.0], ["soon"]])
def test_moments_that_are_none_or_not_of_the_events_are_damage(moments, tmp_path):
    path = write_run(tmp_path / "run", [record(1, [row(0)], events=["ask 0"], moments=moments)])
    with pytest.raises(UserError, match="is damaged: record 1"):
        read(Folder(path))


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
