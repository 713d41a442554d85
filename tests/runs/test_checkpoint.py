"""Files: what is written is read back; what is damaged or foreign is refused and never run."""

import json
import pickle

import jax
import numpy as np
import pytest
import safetensors.numpy
from tasks import Reach, Sick

import genepool
from genepool import buffer
from genepool.parts import described, rebuilt
from genepool.runs import checkpoint
from genepool.runs.folder import Folder
from genepool.types import Transitions


def small(task=Reach, **options):
    return genepool.pderl(
        task, population=4, memory=100, hidden=(8, 8), replay=2_000, updates_per_frame=0.05, **options
    )


@pytest.fixture
def folder(tmp_path):
    """A run with one checkpoint."""
    for _ in genepool.start(small(), frames=250, run=tmp_path / "run"):
        pass
    return Folder(tmp_path / "run")


def test_a_tree_comes_back_bit_for_bit_and_a_ring_is_stored_only_as_far_as_it_is_filled(tmp_path):
    rows = Transitions(
        *(np.random.default_rng(0).standard_normal((7, *width)).astype("f") for width in ((3,), (2,), (), (3,), ()))
    )
    tree = {"ring": buffer.record(buffer.empty(1000, 3, 2), rows), "count": np.array(5), "half": np.zeros(3, bool)}
    checkpoint.save(tmp_path / "file", tree, {"generation": 3})
    back, facts = checkpoint.load(tmp_path / "file", tree)
    assert facts == {"generation": 3}
    assert all(
        np.array_equal(a, b) and a.dtype == b.dtype
        for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(back), strict=True)
    )
    assert (tmp_path / "file").stat().st_size < 3000


def test_every_flipped_byte_of_a_file_is_noticed(tmp_path):
    checkpoint.save(tmp_path / "file", {"w": np.arange(6.0)}, {"generation": 3})
    whole = (tmp_path / "file").read_bytes()
    for place in range(0, len(whole)):
        (tmp_path / "file").write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            tree, facts = checkpoint.load(tmp_path / "file", {"w": np.arange(6.0)})
        except genepool.UserError:
            continue
        # white space between the header and the data carries nothing
        assert np.array_equal(tree["w"], np.arange(6.0))
        assert facts == {"generation": 3}


@pytest.mark.parametrize("harm", ["flipped", "truncated", "pickle", "foreign", "other", "empty"])
def test_resuming_from_a_bad_checkpoint_is_refused_and_nothing_is_touched(harm, folder):
    path = folder.checkpoints[-1]
    whole = path.read_bytes()
    if harm == "flipped":
        path.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
    elif harm == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif harm == "pickle":
        path.write_bytes(pickle.dumps({"os": "system"}))
    elif harm == "foreign":
        safetensors.numpy.save_file({"weight": np.zeros(3)}, path)
    elif harm == "other":
        checkpoint.save(path, {"weight": np.zeros(3)}, {"generation": 1})
    else:
        path.write_bytes(b"")
    before = {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()}
    with pytest.raises(genepool.UserError) as refusal:
        genepool.resume(folder.path, task=Reach)
    assert len(str(refusal.value).splitlines()) == 1
    assert path.name in str(refusal.value)
    assert {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()} == before


def test_a_configuration_is_rebuilt_as_it_was():
    algorithm = genepool.derl("Hopper-v5", mating=genepool.Mating(greedy=0.0, greedy_at_end=1.0), trials=2)
    assert rebuilt(json.loads(json.dumps(described(algorithm))), [type(algorithm)]) == algorithm


@pytest.mark.parametrize(
    ("part", "refusal"), [("os.system", "does not fit"), ("os:system", "code of your own: give it again")]
)
def test_a_configuration_cannot_name_code_to_be_run(part, refusal, folder):
    with pytest.raises(genepool.UserError, match="give it again"):
        genepool.resume(folder.path)
    config = folder.config
    config["algorithm"]["evolver"]["part"] = part
    folder.config_file.write_text(json.dumps(config))
    with pytest.raises(genepool.UserError, match=refusal):
        genepool.resume(folder.path, task=Reach)


@pytest.mark.parametrize("symptom", ["raise", "nan"])
def test_an_environment_that_fails_is_named_with_seed_and_step_and_the_run_survives(symptom, tmp_path, monkeypatch):
    monkeypatch.setattr(Sick, "symptom", symptom)
    monkeypatch.setattr(Sick, "episodes", 0)
    run = genepool.start(small(Sick), frames=10_000, run=tmp_path / "run")
    with pytest.raises(genepool.UserError, match=r"Sick .*seed \d+, step 7"):
        for _ in run:
            pass
    survived = genepool.resume(tmp_path / "run", task=Reach)
    assert survived.generation == len(Folder(tmp_path / "run").records) == 2


def test_a_longer_budget_goes_on_from_the_end(folder):
    frames = folder.records[-1]["frames"]
    run = genepool.resume(folder.path, task=Reach, frames=frames + 1)
    assert folder.config["frames"] == frames + 1
    assert [record["generation"] for record in run] == [len(folder.records)]
    assert genepool.resume(folder.path, task=Reach).done
