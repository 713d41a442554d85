"""The operator study: the operators' own children, all on the same episodes, the same numbers for the same seed."""

import csv
from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest
from tasks import Plane

from genepool import (
    Distillation,
    EvolverAlone,
    Gaussian,
    GenerationalGA,
    Proximal,
    RowCopy,
    buffer,
    cem,
    cli,
    gpo,
    pderl,
    trees,
)
from genepool.algorithms.gpo.imitation import StateSpace
from genepool.analysis.operators.families import Family, PolicyEvaluator, crossings, magnitudes, mutations
from genepool.analysis.operators.study import draw_figures, episodes_of, run_study
from genepool.analysis.operators.study_input import load
from genepool.errors import UserError
from genepool.evolution.genetic.shared import cross, mutate
from genepool.runs.training import start

pytestmark = pytest.mark.filterwarnings("ignore:the run .* was never iterated over")  # that it never trains is meant

TINY = {"population": 4, "memory": 60, "hidden": (4,), "replay": 1_000}
OPERATORS = {"crossover": Distillation(epochs=2, batch_size=16), "mutation": Proximal(0.05)}
KEY = jax.random.key(7)
HORIZON = 20  # steps of every episode of Plane
SIZE = {"pairs": 4, "episodes": 2, "sigmas": (0.05, 0.1)}  # the same in most tests, for every other is compiled anew


def saved(path, algorithm, change=lambda state: state):
    """A run folder with a checkpoint of an algorithm that never trained."""
    run = start(algorithm, 100, seed=3, run=path)
    run.workers.close()
    run.folder.save_checkpoint(2, change(run.state), {"generation": 2, "frames": 200, "ledger": {}, "wall": 0.0})
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory, rows):
    """PDERL with memories of 40 states, of which each individual has its own."""

    def remembered(state):
        evolver = state.evolver
        memory = buffer.record_each(evolver.members.memory, [rows(40, 100 * k) for k in range(4)])
        members = evolver.members._replace(memory=memory)
        return replace(state, evolver=replace(evolver, members=members, fitness=np.zeros(4)))

    return saved(tmp_path_factory.mktemp("runs") / "pderl", pderl(Plane, **TINY, **OPERATORS), remembered)


@pytest.fixture(scope="module")
def study_input(run):
    return load(run, Plane)


@pytest.fixture(scope="module")
def done(study_input):
    return run_study(study_input, seed=5, **SIZE)


def same(a, b):
    return all(np.array_equal(p, q) for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_the_input_of_a_study_is_the_runs_own(study_input):
    assert len(study_input.individuals) == 4
    assert study_input.missing == ""
    assert [breed.operator for breed in study_input.crossovers.values()] == [OPERATORS["crossover"], RowCopy()]
    assert study_input.mutations["proximal"] == OPERATORS["mutation"]
    assert study_input.facts == {
        **{"preset": "pderl", "task": "tasks:Plane", "engine": "gymnasium", "seed": 3},
        **{"generation": 2, "frames": 200},
    }
    assert [int(individual.memory.size) for individual in study_input.individuals] == [40] * 4


def test_the_children_of_a_crossover_are_the_operators_own(study_input):
    fitness = {0: 1.0, 1: 4.0, 2: 2.0, 3: 3.0}
    families = crossings(KEY, study_input, fitness, 6)
    assert len({family.name for family in families}) == 6
    for k, family in enumerate(families):
        i, j = map(int, family.name.split(" and "))
        assert fitness[i] > fitness[j]
        x = study_input.individuals[i]
        y = study_input.individuals[j]
        key = jax.random.fold_in(jax.random.split(KEY)[1], k)
        assert same(family.policies["parent 1"], x.actor)
        assert same(family.policies["parent 2"], y.actor)
        critic = study_input.crossovers["distillation"].critic
        assert same(family.policies["distillation"], cross(OPERATORS["crossover"], key, x, y, critic)[0].actor)
        assert same(family.policies["row copy"], cross(RowCopy(), key, x, y, None)[0].actor)


def test_the_children_of_a_mutation_are_the_operators_own(study_input):
    families = mutations(KEY, study_input, range(4), 4)
    assert sorted(family.name for family in families) == ["0", "1", "2", "3"]
    keys = jax.random.split(jax.random.split(KEY)[1], 4)
    parents = trees.stack([study_input.individuals[int(family.name)] for family in families])
    for name, operator in study_input.mutations.items():
        children = mutate(operator, keys, parents, np.ones(4, bool)).actor
        assert all(same(family.policies[name], trees.take(children, k)) for k, family in enumerate(families))


def test_children_of_growing_magnitude_go_on_in_one_direction(study_input):
    for family in magnitudes(KEY, study_input, range(4), 4, SIZE["sigmas"]):
        parent, near, far = (trees.flat(policy) for policy in family.policies.values())
        assert np.abs(near - parent).max() > 0
        np.testing.assert_allclose(far - parent, 2 * (near - parent), rtol=1e-3, atol=1e-5)


def test_a_study_is_the_same_for_the_same_seed(study_input, done):
    again = run_study(study_input, seed=5, **SIZE)
    assert all(again.parts[name].rows == part.rows for name, part in done.parts.items())
    other = run_study(study_input, seed=6, **SIZE)
    assert other.parts["crossover"].rows != done.parts["crossover"].rows


def test_the_episodes_that_are_played_are_those_that_are_announced(study_input, done):
    assert done.frames == HORIZON * episodes_of(study_input, **SIZE) == HORIZON * 2 * (4 + 4 * 6)


def test_all_are_played_on_the_same_episodes(study_input):
    copies = {str(k): jax.tree.map(np.copy, study_input.individuals[0].actor) for k in range(4)}
    group = PolicyEvaluator(study_input.task, 2, 0).evaluate([Family("", copies)])[0]
    assert len({one.returns for one in group.values()}) == 1
    assert len(set(group["0"].returns)) == 2
    assert [states.shape for states in group["0"].states] == [(HORIZON, 3)] * 2


def test_numbers_are_relative_to_the_parents(done):
    rows = done.parts["crossover"].rows
    assert {row.policy for row in rows} == {"parent 1", "parent 2", "distillation", "row copy"}
    assert all(row.relative is None for row in rows)  # none earns more than 0 on this task
    parents = [row for row in rows if row.policy == "parent 1"]
    children = [row for row in rows if not row.is_parent]
    assert all(row.divergences[0] == 0.0 and row.itself > 0.0 for row in parents)
    assert all(len(row.divergences) == 2 and min(row.divergences) > 0.0 for row in children)


def test_parents_may_be_drawn_from_the_fittest_only(study_input, done):
    means = {row.parents: row.mean for row in done.parts["mutation"].rows if row.policy == "parent"}
    chosen = run_study(study_input, seed=5, fittest=2, **SIZE).parts["mutation"].families
    assert {family.name for family in chosen} == set(sorted(means, key=means.get)[2:])


def test_the_command_draws_every_figure_and_leaves_the_run_as_it_was(run, capsys, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    words = ["--pairs", "4", "--episodes", "2", "--sigmas", "0.05", "0.1", "--embedding", "pca"]
    assert cli.main(["operators", str(run), *words, "--task", "tasks:Plane", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "playing 56 episodes" in out
    assert "1,120 frames of episodes" in out
    pictures = {path.stem for path in tmp_path.glob("*.png")}
    assert pictures == {"crossover", "visits_crossover", "embedding", "mutation", "visits_mutation", "magnitude"}
    rows = list(csv.DictReader((tmp_path / "operators.csv").open()))
    assert [row["study"] for row in rows] == ["crossover"] * 16 + ["mutation"] * 12 + ["magnitude"] * 12
    for row in rows:
        assert float(row["mean_return"]) == pytest.approx(np.mean([*map(float, row["returns"].split())]), rel=1e-4)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_what_a_run_lacks_is_named(tmp_path):
    def tried(state):
        return eqx.tree_at(lambda s: s.evolver.fitness, state, np.zeros(4))

    alone = EvolverAlone(pderl(Plane).task, GenerationalGA(population=4), memory=60, hidden=(4,))
    study_input = load(saved(tmp_path / "alone", alone, tried), Plane)
    assert "no critic" in study_input.missing
    assert [*study_input.crossovers, *study_input.mutations] == ["row copy", "proximal", "Gaussian"]
    study_input = load(saved(tmp_path / "cem", cem(Plane, population=4, hidden=(4,))), Plane)
    assert "no genetic memories" in study_input.missing
    assert [*study_input.crossovers, *study_input.mutations] == ["row copy", "Gaussian"]
    assert len(study_input.individuals) == 4


def test_the_rest_is_studied(study_input, done, tmp_path):
    row_copy = {"row copy": study_input.crossovers["row copy"]}
    less = study_input._replace(crossovers=row_copy, mutations={"Gaussian": Gaussian()})
    rest = run_study(less, seed=5, **SIZE)
    assert set(rest.parts) == {"crossover", "mutation"}
    assert rest.frames == HORIZON * episodes_of(less, **SIZE) == HORIZON * 2 * (4 + 4 * 2)
    kept = [row for row in done.parts["mutation"].rows if row.policy != "proximal"]
    assert rest.parts["mutation"].rows == kept
    assert len(draw_figures(rest, 0, "pca", tmp_path)) == 5


def test_a_gpo_run_is_bred_by_its_own_loop(tmp_path, rows):
    quick = StateSpace(selector_epochs=1, expert_frames=40, dagger=1, student_frames=20, epochs=1, iterations=2)
    algorithm = gpo(Plane, population=3, rounds=2, iterations=4, batch=40, hidden=(4,), crossover=quick)

    def played(state):
        trajectories = state.crossover_data.played
        trajectories.observation[:, :40] = np.stack([rows(40, 100 * k).observation for k in range(3)])
        trajectories.returns[:, :40] = np.arange(3)[:, None]
        trajectories.returns[:, 40:] = 99.0  # of another population
        trajectories.starts[:, ::20] = True
        return replace(state, learner=replace(state.learner, iteration=np.ones((), np.int64)))

    study_input = load(saved(tmp_path / "gpo", algorithm, played), Plane)
    assert (study_input.missing, study_input.mutations) == ("", {})
    crossover = study_input.crossovers["state space"]
    assert crossover.frames(4) == 6 * 60
    trajectories = crossover.state.crossover_data.played
    assert trajectories.returns[trajectories.starts].max() == 2.0
    before = jax.tree.map(np.copy, crossover.state.crossover_data)
    keys = list(jax.random.split(KEY, 4))
    children = crossover(keys, [(0, 1), (1, 2), (2, 0), (0, 1)])
    assert len({trees.flat(child).tobytes() for child in children}) == 4
    assert same(crossover.state.crossover_data, before)
    assert same(crossover(keys[:1], [(0, 1)]), children[:1])
    done = run_study(study_input, pairs=2, episodes=1, seed=0)
    policies = ["parent 1", "parent 2", "state space", "parameter space"]
    assert [row.policy for row in done.parts["crossover"].rows] == 2 * policies
    assert [path.stem for path in draw_figures(done, 1, "pca", tmp_path)] == [
        "crossover",
        "visits_crossover",
        "embedding",
    ]


def test_a_run_that_cannot_be_studied_says_so_in_one_line(tmp_path, capsys):
    run = start(pderl(Plane, **TINY), 100, run=tmp_path / "new")
    run.workers.close()
    assert cli.main(["operators", str(tmp_path / "new"), "--task", "tasks:Plane"]) == 2
    said = f"{tmp_path / 'new'} has no checkpoint yet: train it further, or give another run folder"
    assert capsys.readouterr().err == f"genepool: {said}\n"
    with pytest.raises(UserError, match="no run folder"):
        load(tmp_path / "nowhere")
