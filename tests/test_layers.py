"""The layers of genepool, read from the imports: what each folder may import. Imports inside functions count too."""

import subprocess
import sys
from pathlib import Path

import pytest

import genepool
from benchmarks import import_graph
from benchmarks.import_graph import imports, modules

GROUND = {"types", "trees", "errors", "parts", "cores", "xla"}
FIRST = GROUND | {"buffer", "networks", "optimiser", "environments"}
OFFERED = {"protocols"} | FIRST  # what a part of the user's own may count on
LOOPS = OFFERED | {"evolution", "learning", "algorithms"}
PLAYING = {"protocols", "types", "environments", "errors", "parts", "cores", "xla"}
RUNS = LOOPS | {"schedule", "acting", "workers"}
MAY_IMPORT = {  # each part may also import itself
    "__init__": {"algorithms"},  # the table of presets, which knows no JAX
    "types": GROUND,
    "trees": GROUND,
    "errors": GROUND,
    "cores": set(),
    "xla": set(),
    "parts": {"errors"},
    "protocols": {"types", "buffer", "environments"},
    "buffer": GROUND,
    "networks": GROUND,
    "optimiser": GROUND,
    "environments": GROUND,
    "evolution": OFFERED,
    "learning": OFFERED,
    "algorithms": LOOPS,
    "schedule": PLAYING,
    "acting": PLAYING,
    "workers": PLAYING | {"acting"},
    "runs": RUNS,
    "analysis": RUNS | {"runs"},
    "follow": {"errors", "protocols", "runs", "analysis"},
    "cli": RUNS | {"runs", "analysis", "follow"},
}


def importers(library):
    return {path for path, names in modules().items() if any(name.split(".")[0] == library for name in names)}


def test_the_reader_of_imports_sees_every_form():
    source = """
import a.b
from genepool import buffer
from genepool.types import Outcome
from . import c
def late():
    from ..d import e
    importlib.import_module("f.g")
"""
    expected = {"a.b", "genepool.buffer", "genepool.types", "genepool.runs", "genepool.d", "f.g"}
    assert set(imports(source, "genepool.runs")) == expected


def test_every_module_imports_only_the_layers_below_it():
    wrong = []
    for path, names in modules().items():
        part = Path(path).with_suffix("").parts[0]
        allowed = MAY_IMPORT.get(part, set()) | {part}
        parts = {name.split(".")[1] for name in names if name.startswith("genepool.")}
        wrong += [f"{path} imports {other}" for other in sorted(parts - allowed)]
    assert wrong == []


def test_no_folder_and_no_module_imports_itself_through_others():
    assert import_graph.cycles(import_graph.folder_graph()) == []
    assert import_graph.cycles(import_graph.module_graph()) == []


def test_a_circle_of_imports_is_found_wherever_it_begins():
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": set()}
    assert import_graph.cycles(graph) == [{"b", "c"}]


def test_the_graph_in_contributing_is_that_of_the_code():
    text = (import_graph.REPOSITORY / "CONTRIBUTING.md").read_text()
    assert (
        import_graph.mermaid(import_graph.without_shortcuts(import_graph.grouped(import_graph.folder_graph()))) in text
    )


def test_evolution_and_learning_do_not_know_each_other():
    for path, names in modules().items():
        for part, other in (("evolution", "learning"), ("learning", "evolution")):
            if path.startswith(part + "/"):
                assert not any(name.startswith(f"genepool.{other}") for name in names), path


@pytest.mark.parametrize("path", ["schedule.py", "workers/local.py", "workers/virtual.py"])
def test_schedule_and_workers_need_no_library_but_jax_and_numpy(path):
    libraries = {name.split(".")[0] for name in modules()[path]} - set(sys.stdlib_module_names)
    assert libraries <= {"genepool", "jax", "numpy"}


@pytest.mark.parametrize(
    ("library", "home"),
    [
        (
            "gymnasium",
            {
                "environments/engines/gymnasium.py",
                *(f"environments/tasks/{name}.py" for name in ("cyclic", "hills", "rllab")),
            },
        ),
        (
            "mujoco",
            {
                *(f"environments/engines/{name}.py" for name in ("gymnasium", "mujoco")),
                *(f"environments/tasks/{name}.py" for name in ("hills", "rllab")),
            },
        ),
        ("envpool", {"environments/engines/envpool.py"}),
        ("numba", {"networks/row_product.py"}),
        ("ray", {"workers/ray/driver.py"}),
        ("cloudpickle", {"workers/ray/wire.py"}),
        ("sklearn", {"analysis/operators/visitation.py"}),
        ("av", {"analysis/film/film.py"}),
        ("PIL", {"analysis/film/camera.py", "analysis/film/film.py"}),
        ("torch", set()),
    ],
)
def test_a_library_is_imported_in_its_one_home_only(library, home):
    assert importers(library) == home


@pytest.mark.parametrize("library", ["matplotlib", "scipy"])
def test_what_figures_need_is_imported_under_analysis_only(library):
    assert importers(library)
    assert all(path.startswith("analysis/") for path in importers(library))


def test_tyro_is_imported_in_the_command_line_only():
    assert "cli/options.py" in importers("tyro")
    assert all(path.startswith("cli/") for path in importers("tyro"))


@pytest.mark.parametrize("library", ["tensorboardX", "ray"])
def test_a_service_is_imported_by_one_module_at_most(library):
    assert len(importers(library)) <= 1


def test_importing_the_package_and_its_command_line_does_not_import_jax():
    code = "import sys, genepool, genepool.cli; print({'jax', 'equinox', 'gymnasium', 'envpool'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"


def test_every_public_name_resolves():
    assert genepool.__all__
    for name in genepool.__all__:
        assert getattr(genepool, name).__name__ == name
    assert set(dir(genepool)) >= set(genepool.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = genepool.no_such_name
