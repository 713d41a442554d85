"""What holds of every preset, and of every evolver with every learner in every coupling."""

import json
from itertools import product

import jax
import numpy as np
import pytest
from tasks import Reach
from tiny import KEY, LENGTH, copied, leaves, same

import genepool
from genepool.algorithms.assemble import assembled
from genepool.algorithms.choices import missing_methods
from genepool.algorithms.presets import PRESETS
from genepool.environments import task as tasks
from genepool.parts import described
from genepool.runs.rebuilding import rebuild_algorithm
from genepool.workers import processes

TINY = {"test_episodes": 1, "max_steps": LENGTH}
SMALL = TINY | {"hidden": (4,), "replay": 2_000}
LEARNER = {"learner.batch_size": 8, "learner.critic_hidden": (4,)}
EARLY = {"learner.warmup": 10}
SOFT = {"learner.random_frames": 10}
INJECTION = SMALL | LEARNER | EARLY | {"population": 4, "memory": 50}
LESSONS = SMALL | LEARNER | {"population": 4, "warmup": 40}
SIDE_BY_SIDE = LESSONS | {"warmup": 100, "critic_head_start": 10, "critic_chunk": 20}
AES = SIDE_BY_SIDE | {"scale": 5.0, "reference_episodes": 2}
PHASES = SMALL | LEARNER | EARLY | {"sac_episodes": 2, "gradient_interval": 1, "final_chance": 1.0}
POLICY = TINY | {"hidden": (4,), "batch": 60, "mutation.epochs": 2, "mutation.critic.minibatches": 1}
CROSSOVER = {"iterations": 1, "selector_epochs": 2, "expert_frames": 40, "student_frames": 20, "dagger": 1, "epochs": 2}
GENETIC = {"rounds": 3, "iterations": 1, "population": 3} | {f"crossover.{k}": v for k, v in CROSSOVER.items()}
OPTIONS = {
    "erl": INJECTION,
    "perl": INJECTION,
    "derl": INJECTION,
    "pderl": INJECTION | {"sync_period": 1},
    "cem-rl": LESSONS | {"taught": 2},
    "aes-rl": AES,
    "one-plus-one-es": AES,
    "rank-es": SIDE_BY_SIDE,
    "esac": PHASES | SOFT | {"pairs": 3, "injected": 1},
    "gpo": POLICY | GENETIC,
    "single": POLICY | {"population": 3},
    "joint": POLICY,
    "ddpg": SMALL | LEARNER | EARLY,
    "td3": SMALL | LEARNER | EARLY,
    "sac": SMALL | LEARNER | EARLY | SOFT,
    "ppo": POLICY | {"mutation.minibatches": 2},
    "a2c": {name: value for name, value in POLICY.items() if name != "mutation.epochs"},
    "cem": TINY | {"hidden": (4,), "population": 4},
    "es": TINY | {"hidden": (4,), "pairs": 3},
}


def made(name):
    return assembled(name, Reach, OPTIONS[name])


EVERY = pytest.mark.parametrize("name", PRESETS)
SYNCHRONOUS = pytest.mark.parametrize("name", [name for name in PRESETS if made(name).schedule == "synchronous"])


def loop(algorithm, generations):
    """The README's training loop: the state and all outcomes."""
    workers = genepool.LocalWorkers(algorithm.task)
    state = algorithm.init(KEY)
    played = []
    for g in range(generations):
        state, outcomes = genepool.generation(algorithm, workers, jax.random.fold_in(KEY, g), state)
        played += outcomes
    workers.close()
    return state, played


def asked_and_tried(algorithm, state, n):
    """The outcomes of the next candidates, and the state after asking."""
    candidates, state = algorithm.ask(KEY, state, n)
    return genepool.LocalWorkers(algorithm.task, alone=True).map(candidates), state


def numbers(outcomes):
    return [outcome.candidate.number for outcome in outcomes]


# -- every preset


def test_there_are_nineteen_presets_and_all_are_tried_here():
    assert len(PRESETS) == 19
    assert list(OPTIONS) == list(PRESETS)


@EVERY
def test_a_preset_is_an_algorithm_by_its_own_name(name):
    algorithm = made(name)
    assert missing_methods(algorithm, genepool.Algorithm) == []
    assert isinstance(algorithm, genepool.Algorithm)
    assert algorithm.preset == name
    assert algorithm.budget > 0
    assert json.dumps(algorithm.settings())


@EVERY
def test_a_preset_that_was_written_as_json_is_read_as_the_same(name):
    algorithm = made(name)
    config = {"algorithm": json.loads(json.dumps(described(algorithm)))}
    read = rebuild_algorithm(config, task=Reach)
    assert read == algorithm
    assert described(read) == described(algorithm)


@EVERY
def test_the_readmes_loop_trains_a_generation_and_another(name):
    algorithm = made(name)
    state, outcomes = loop(algorithm, 2)
    assert len(outcomes) >= 2 * algorithm.generation_size
    assert sorted(numbers(outcomes)) == list(range(len(outcomes)))
    assert int(state.in_flight.told_count) == len(outcomes)
    assert not np.any(state.in_flight.out)
    assert all(outcome.frames >= LENGTH and np.isfinite(outcome.fitness) for outcome in outcomes)
    if algorithm.schedule == "synchronous":
        assert (algorithm.steps_owed(state), algorithm.still_to_ask(state)) == (0, 0)
    assert json.dumps(algorithm.report(state, outcomes))
    policies = algorithm.policies(state)
    for policy in (algorithm.champion(state), *policies.values()):
        assert np.asarray(policy(np.ones(1, np.float32))).shape == (1,)
    assert all(np.isfinite(leaf).all() for leaf in leaves(policies))


@EVERY
def test_the_key_determines_every_bit_of_two_generations(name):
    assert same(loop(made(name), 2)[0], loop(made(name), 2)[0])


@pytest.fixture(scope="module")
def worker_process():
    """A worker process that is ready."""
    process = processes.WorkerProcess()
    process.starting.join()
    assert process.ready
    yield process
    process.close()


@EVERY
def test_the_outcomes_do_not_depend_on_the_number_of_processes(name, worker_process, monkeypatch):
    monkeypatch.setattr(processes, "pool", processes.ProcessPool([worker_process]))
    monkeypatch.setattr(tasks, "cores", lambda: 2)
    algorithm = made(name)
    candidates, _ = algorithm.ask(KEY, algorithm.init(KEY), 4)
    two, one = (genepool.LocalWorkers(algorithm.task, alone=alone).map(candidates) for alone in (False, True))
    for there, here in zip(two, one, strict=True):
        assert (there.returns, there.reference_returns) == (here.returns, here.reference_returns)
        assert same((there.transitions, there.individual), (here.transitions, here.individual))


# -- told in portions, doubled, lost


@SYNCHRONOUS
def test_outcomes_told_in_two_portions_or_backwards_give_the_same_state(name):
    algorithm = made(name)
    outcomes, state = asked_and_tried(algorithm, loop(algorithm, 1)[0], algorithm.generation_size)
    half = len(outcomes) // 2
    once, backwards = (algorithm.tell(KEY, copied(state), outcomes[::step]) for step in (1, -1))
    portions = algorithm.tell(KEY, algorithm.tell(KEY, copied(state), outcomes[:half]), outcomes[half:])
    assert same(once, backwards)
    assert same(once, portions)


@SYNCHRONOUS
def test_the_later_portion_may_be_told_first(name):
    """Only the order of the replay's rows differs."""
    algorithm = made(name)
    outcomes, state = asked_and_tried(algorithm, loop(algorithm, 1)[0], algorithm.generation_size)
    half = len(outcomes) // 2
    once = algorithm.tell(KEY, copied(state), outcomes)
    portions = algorithm.tell(KEY, algorithm.tell(KEY, copied(state), outcomes[half:]), outcomes[:half])
    assert same(algorithm.champion(once), algorithm.champion(portions))
    assert algorithm.steps_owed(once) == algorithm.steps_owed(portions)
    following = [algorithm.ask(KEY, after, algorithm.generation_size)[0] for after in (once, portions)]
    assert same(*([(c.individual.actor, c.seeds) for c in candidates] for candidates in following))


@EVERY
def test_doubled_outcomes_are_ignored(name):
    algorithm = made(name)
    outcomes, state = asked_and_tried(algorithm, algorithm.init(KEY), algorithm.generation_size)
    once = algorithm.tell(KEY, copied(state), outcomes)
    assert same(once, algorithm.tell(KEY, copied(state), [*outcomes, *outcomes]))
    assert same(once, algorithm.tell(KEY, copied(once), outcomes))
    assert int(once.in_flight.told_count) == len(outcomes)


@EVERY
def test_lost_candidates_are_issued_again_as_what_they_were(name):
    algorithm = made(name)
    outcomes, state = asked_and_tried(algorithm, algorithm.init(KEY), algorithm.generation_size)
    state = algorithm.forget_workers(algorithm.tell(KEY, state, outcomes[1::2]))
    again, state = asked_and_tried(algorithm, state, len(outcomes[::2]))
    facts = [[(c.number, c.place, c.purpose) for c in (o.candidate for o in some)] for some in (outcomes[::2], again)]
    assert facts[0] == facts[1]
    state = algorithm.tell(KEY, state, [*again, *outcomes])  # what was lost may come back, too
    assert int(state.in_flight.told_count) == algorithm.generation_size
    assert not np.any(state.in_flight.out)


# -- every evolver with every learner in every coupling

COUPLINGS = {  # the preset whose coupling it is; few options, for each evolver has its own
    "injection": ("erl", SMALL | LEARNER | EARLY | {"memory": 50}),
    "lessons": ("cem-rl", SMALL | LEARNER | {"warmup": 20, "memory": 50, "taught": 2}),
    "phases": ("esac", PHASES | {"memory": 50}),
}
EVOLVERS = {name: {"population": 4} for name in ("generational-ga", "steady-state-ga", "cem", "rank-es", "sep-cma-es")}
EVOLVERS |= {"asynchronous-es": {"population": 4, "evolver.scale": 5.0, "reference_episodes": 1}}
EVOLVERS |= {"openai-es": {"pairs": 3, "injected": 1}}
LEARNERS = {"ddpg": {}, "td3": {}, "sac": SOFT}
ALL = list(product(COUPLINGS, EVOLVERS, LEARNERS))
REFUSED = [("lessons", evolver, learner) for evolver in ("openai-es", "open-es") for learner in LEARNERS]


def composed(coupling, evolver, learner):
    """The coupling with an evolver and a learner, on the coupling's own schedule, tiny."""
    if evolver in ("sep-cma-es", "open-es"):
        pytest.importorskip("evosax")
    preset, options = COUPLINGS[coupling]
    chosen = {"evolver": evolver, "learner": learner, "schedule": "synchronous"}
    return assembled(preset, Reach, options | chosen | LEARNERS[learner] | EVOLVERS.get(evolver, {"population": 4}))


def test_there_are_63_compositions_of_which_three_are_refused():
    assert len(ALL) == 63
    assert len(set(ALL) - set(REFUSED)) == 60


@pytest.mark.parametrize("composition", REFUSED, ids="-".join)
def test_a_lesson_is_refused_to_an_evolver_that_estimates_a_gradient_and_another_one_is_named(composition):
    with pytest.raises(
        genepool.UserError, match="a lesson would move them: use --evolver cem, or a preset without lessons"
    ) as refusal:
        composed(*composition)
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize("composition", [c for c in ALL if c not in REFUSED], ids="-".join)
def test_every_other_composition_trains_a_generation_and_takes_gradient_steps(composition):
    """It only runs code: that nothing fails, that steps are taken and that all weights are numbers."""
    algorithm = composed(*composition)
    state, outcomes = loop(algorithm, 1)
    assert len(outcomes) >= algorithm.generation_size
    assert int(state.learner.updates) > 0
    assert all(np.isfinite(leaf).all() for leaf in leaves(algorithm.policies(state)))
