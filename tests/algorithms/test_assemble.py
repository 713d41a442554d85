"""How an algorithm is put together: exchanged parts keep the preset's settings, and options win over presets."""

import inspect
import pydoc
from dataclasses import fields, replace

import numpy as np
import pytest
from tasks import Reach
from tiny import KEY, LENGTH, generations, same

import genepool
from genepool import CEM, DDPG, SAC, TD3, GenerationalGA, OpenAIES, SteadyStateGA, cli, follow
from genepool.algorithms.assemble import assembled, exchanged
from genepool.algorithms.presets import FUNCTIONS, PRESETS
from genepool.errors import UserError
from genepool.evolution.genetic.mutation import Proximal
from genepool.parts import field_comments
from genepool.runs import training

ACTOR = {"hidden": (8, 8), "test_episodes": 2, "max_steps": LENGTH}
SMALL = ACTOR | {"replay": 2_000}
SOFT = SAC(batch_size=8, warmup=20, random_frames=0)


@pytest.fixture
def shell(monkeypatch):
    """The algorithm that `genepool` with these words would train."""

    def assembled_by(words):
        heard = []
        monkeypatch.setattr(training, "start", lambda algorithm, **_: heard.append(algorithm))
        monkeypatch.setattr(follow, "follow", lambda run: 0)
        assert cli.main(words.split()) == 0
        return heard[0]

    return assembled_by


# -- a part that is exchanged keeps every setting and sibling that the preset gave


def test_a_steady_state_population_breeds_by_pderls_operators(shell):
    """It bred by ERL's under PDERL's name."""
    algorithm = shell("train pderl Hopper-v5 --evolver steady-state-ga")
    assert type(algorithm.evolver) is SteadyStateGA
    assert (algorithm.schedule, algorithm.preset) == ("asynchronous", "pderl")
    assert type(algorithm.evolver.crossover).__name__ == "Distillation"
    assert (type(algorithm.evolver.mutation), algorithm.evolver.mutation.sigma) == (Proximal, 0.1)
    assert (algorithm.evolver.elite_fraction, algorithm.trials, algorithm.sync_period) == (0.2, 3, 1)


def test_to_name_the_part_that_is_there_changes_nothing(shell):
    for preset, words in [
        ("esac", "--learner sac"),
        ("aes-rl", "--learner td3"),
        ("pderl", "--mutation proximal --crossover distillation --evolver generational-ga"),
        ("cem-rl", "--evolver cem --lessons first-half"),
        ("gpo", "--mutation ppo"),
    ]:
        named = shell(f"train {preset} Hopper-v5 {words}")
        plain = shell(f"train {preset} Hopper-v5")
        assert named == plain, preset


def test_a_sibling_of_a_part_that_is_exchanged_keeps_its_settings():
    assert genepool.pderl("Hopper-v5", sigma=0.01, mutation="proximal").evolver.mutation.sigma == 0.01
    assert genepool.pderl("Ant-v5", crossover="row-copy").evolver.mutation.sigma == 0.01
    assert genepool.aes_rl("Hopper-v5", learner="sac").learner.batch_size == 256
    assert genepool.aes_rl("Hopper-v5", mean_rule="linear-range").evolver.scale == 600.0


def test_the_fields_that_a_part_was_given_win_over_the_preset_and_the_others_do_not():
    learner = SAC(warmup=20)
    algorithm = genepool.esac("Hopper-v5", learner=learner)
    assert (algorithm.learner.warmup, algorithm.learner.critics, algorithm.learner.critic_hidden) == (
        20,
        "value",
        (512, 512),
    )
    assert genepool.esac("Hopper-v5", learner=SAC(critics="twin")).learner.critics == "twin"


def test_every_option_given_wins_whatever_part_it_belongs_to():
    evolver = GenerationalGA(population=12, elite_fraction=0.25)
    algorithm = genepool.pderl("Hopper-v5", evolver=evolver, crossover="row-copy", sigma=0.02, elite_fraction=0.3)
    assert (algorithm.evolver.population, algorithm.evolver.elite_fraction) == (12, 0.3)
    assert type(algorithm.evolver.crossover).__name__ == "RowCopy"
    assert algorithm.evolver.mutation.sigma == 0.02
    for preset in ("erl", "perl", "derl", "pderl"):
        made = assembled(preset, "Hopper-v5", {"evolver": evolver, "crossover": "element-copy"})
        assert (made.evolver.population, type(made.evolver.crossover).__name__) == (12, "ElementCopy")


def test_an_option_is_a_dotted_path_or_its_unambiguous_end():
    paths = ("evolver.mutation.sigma", "mutation.sigma", "sigma")
    assert {genepool.pderl("Hopper-v5", **{path: 0.03}).evolver.mutation.sigma for path in paths} == {0.03}
    with pytest.raises(
        UserError, match=r"'batch_size' may be .*mutation\.batch_size or learner\.batch_size: say which"
    ) as refusal:
        genepool.pderl("Hopper-v5", batch_size=64)
    assert "\n" not in str(refusal.value)
    assert genepool.pderl("Hopper-v5", **{"crossover.batch_size": 64}).evolver.crossover.batch_size == 64


def test_python_and_the_shell_make_the_same_system(shell):
    written = shell("train pderl Hopper-v5 --evolver cem --learner sac --evolver.population 12 --learner.discount 0.9")
    assert written == genepool.pderl("Hopper-v5", evolver=CEM(population=12), learner=SAC(discount=0.9))
    assert shell("train gpo Hopper-v5 --mutation a2c --no-sharing --no-crossover") == genepool.gpo(
        "Hopper-v5", mutation="a2c", sharing=None, crossover=None
    )


# -- parts that do not fit are refused in one line; what may be put together trains


@pytest.mark.parametrize(
    ("preset", "options", "said"),
    [
        ("ddpg", {"evolver": CEM()}, "ddpg has no option 'evolver'"),
        ("cem-rl", {"evolver": OpenAIES()}, "use --evolver cem, or a preset without lessons"),
        ("cem", {"evolver": GenerationalGA(crossover=genepool.Distillation())}, "critic"),
        ("cem", {"evolver": None}, "needs an evolver"),
        ("pderl", {"learner": None}, "for an evolver alone take the preset cem or es"),
        ("pderl", {"evolver": None}, "for a learner alone take the preset ddpg, td3 or sac"),
        ("pderl", {"evolver": DDPG()}, "DDPG is no evolver"),
        ("pderl", {"learner": CEM()}, "CEM is no learner"),
        ("pderl", {"mutation": Reach}, "is no mutation: a part is a frozen dataclass"),
        ("pderl", {"flavour": "sweet"}, "pderl has no option 'flavour'"),
    ],
)
def test_parts_that_do_not_fit_are_refused_in_one_line(preset, options, said):
    with pytest.raises(UserError) as refusal:
        assembled(preset, Reach, options)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("preset", "options"),
    [
        ("cem-rl", SMALL | {"learner": DDPG(batch_size=8, warmup=20), "warmup": 50}),
        ("cem", ACTOR | {"evolver": GenerationalGA(population=4)}),
        ("esac", SMALL | {"evolver": CEM(population=4), "learner": SOFT, "sac_episodes": 1}),
    ],
)
def test_what_ended_in_a_traceback_trains(preset, options):
    *_, (_, outcomes) = generations(assembled(preset, Reach, options), 3)
    assert all(np.isfinite(outcome.fitness) for outcome in outcomes)


@pytest.mark.parametrize(
    ("preset", "options", "said"),
    [
        ("erl", {"updates_per_frame": -0.5}, "updates per frame is -0.5: it must be 0 or more"),
        ("erl", {"population": 0}, "population"),
        ("cem", {"population": 0}, "population"),
        ("cem-rl", {"population": 0}, "population"),
        ("aes-rl", {"population": 0}, "population"),
        ("esac", {"pairs": 0}, "pairs"),
    ],
)
def test_a_message_names_the_setting_that_is_wrong_and_what_it_may_be(preset, options, said):
    with pytest.raises(UserError, match=said) as refusal:
        assembled(preset, Reach, options)
    assert "variance" not in str(refusal.value)


# -- names


@pytest.mark.parametrize("python_name", FUNCTIONS)
def test_an_algorithm_knows_the_name_of_its_preset(python_name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    algorithm = getattr(genepool, python_name)("Pendulum-v1")
    assert algorithm.preset == FUNCTIONS[python_name]
    run = genepool.start(algorithm, frames=100)
    run.stop()
    assert list(run) == []
    assert run.folder.path.name.startswith(f"{FUNCTIONS[python_name]}-Pendulum-v1-s0-")


def test_an_environment_has_the_same_name_from_python_and_from_the_shell(shell):
    assert genepool.erl(Reach).task.id == shell("train erl tasks:Reach").task.id == "tasks:Reach"


def test_a_system_with_other_parts_keeps_its_name_and_what_was_set():
    algorithm = genepool.pderl(Reach, sigma=0.03, **SMALL, **{"learner.warmup": 100})
    other = exchanged(algorithm, {"learner": "td3", "learner.batch_size": 8, "learner.warmup": 100})
    assert (other.preset, other.evolver, other.hidden) == ("pderl", algorithm.evolver, (8, 8))
    assert (type(other.learner), other.learner.batch_size) == (TD3, 8)


# -- what a user reads


@pytest.mark.parametrize("python_name", FUNCTIONS)
def test_help_of_a_preset_shows_every_option_with_its_meaning(python_name):
    function = getattr(genepool, python_name)
    shown = pydoc.plain(pydoc.render_doc(function))
    algorithm = function("Pendulum-v1")
    holders = [algorithm, *(getattr(algorithm, name) for name in ("evolver", "learner") if hasattr(algorithm, name))]
    for holder in holders:
        meanings = field_comments(type(holder))
        for name in {field.name for field in fields(holder)} - {"task", "preset"}:
            assert f"{name}: {meanings[name]}" in shown
    assert list(inspect.signature(function).parameters) == ["task", "options"]


def test_help_of_a_part_shows_every_field_with_its_meaning_and_default():
    shown = pydoc.plain(pydoc.render_doc(genepool.TD3))
    meanings = field_comments(TD3)
    for field in fields(TD3):
        assert meanings[field.name]
        assert f"{field.name}: {meanings[field.name]}" in shown
    assert "default: 0.99" in shown
    assert "tyro" not in shown
    assert "Annotated" not in shown


def test_presets_are_listed_in_one_table():
    assert len(PRESETS) == 19
    assert {FUNCTIONS[name] for name in FUNCTIONS} == set(PRESETS)


def test_candidates_say_what_they_are_in_fields_and_not_in_words():
    """What a record shows of a candidate may be worded anew without a change of what is learnt."""
    algorithm = genepool.esac(Reach, pairs=4, injected=1, sac_episodes=1, gradient_interval=2, learner=SOFT, **SMALL)
    workers = genepool.LocalWorkers(algorithm.task)
    states = []
    for worded in (False, True):
        candidates, state = algorithm.ask(KEY, algorithm.init(KEY), algorithm.generation_size)
        outcomes = workers.map(candidates)
        if worded:
            outcomes = [replace(one, candidate=replace(one.candidate, operators=("anything",))) for one in outcomes]
        states.append(algorithm.tell(KEY, state, outcomes))
    assert same(*states)
