"""GenerationalGA: what a generation becomes, where the learner's clone goes, what is counted."""

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import ClassVar

import equinox as eqx
import jax
import numpy as np
import pytest
from tiny_ga import KEY, QUICK, Mean, asked, equal, first_generation, play, started

from genepool import buffer, trees
from genepool.errors import UserError
from genepool.evolution.genetic.crossover import Distillation, ElementCopy, RowCopy
from genepool.evolution.genetic.generational import FATES, GenerationalGA
from genepool.evolution.genetic.selection import Mating
from genepool.protocols import Evolver


@pytest.fixture(scope="module")
def first(individual):
    return first_generation(individual)


@pytest.fixture(scope="module")
def played(rows):
    return partial(play, rows)


@pytest.fixture(scope="module")
def generations(first, played):
    """Many generations with random fitness: [(fitness, numbers, state bred from them)]."""

    def run(evolver, n, seed=0):
        rng = np.random.default_rng(seed)
        state = started(evolver, first)
        history = []
        for g in range(n):
            fitness = rng.permutation(10) + 0.5
            outcomes = played(evolver, state, fitness, 10 * g)
            state = evolver.tell(jax.random.key(1000 * seed + g), state, outcomes, None)
            history.append((fitness, np.arange(10 * g, 10 * g + 10), state))
        return history

    return run


def indifferent(s, a):
    return 0.0 * s[..., 0]


@pytest.mark.parametrize("crossover", [Mean(2), Distillation(epochs=1)], ids=["two children", "distillation"])
def test_elites_are_copied_bit_by_bit_with_their_new_memory(first, played, crossover):
    evolver = replace(QUICK, elite_fraction=0.2, crossover=crossover)
    outcomes = played(evolver, started(evolver, first), [3, 1, 9, 4, 8, 2, 0, 7, 5, 6], number=100)
    state = evolver.tell(KEY, started(evolver, first), outcomes, jax.tree_util.Partial(indifferent))
    copies = {c.parents: c for c in asked(evolver, state) if c.operators == ("elite",)}
    assert set(copies) == {(102,), (104,)}  # the fittest two
    for slot in (2, 4):
        tried = outcomes[slot]
        copy = copies[100 + slot,].individual
        equal(copy.actor, tried.individual.actor)
        expected = buffer.record(jax.tree.map(jax.numpy.array, tried.individual.memory), tried.transitions)
        equal(copy.memory, expected)
    equal(evolver.champion(state), outcomes[2].individual.actor)
    equal(trees.take(state.members.actor, int(state.top)), outcomes[2].individual.actor)


@pytest.mark.parametrize(("children", "fraction"), [(1, 0.1), (2, 0.1), (1, 0.3), (2, 0.3)])
def test_a_population_keeps_its_size_and_all_parents_were_in_the_generation_before(generations, children, fraction):
    evolver = replace(QUICK, elite_fraction=fraction, crossover=Mean(children))
    for _, numbers, state in generations(evolver, 10):
        candidates = asked(evolver, state)
        assert len(candidates) == 10
        assert sum(c.operators == ("elite",) for c in candidates) == evolver.elites
        for c in candidates:
            assert set(c.parents) <= set(numbers.tolist())
            assert len(c.parents) == (2 if "mean" in c.operators else 1)


@pytest.mark.parametrize("children", [1, 2])
def test_what_is_said_to_have_been_done_was_done(generations, children):
    evolver = replace(QUICK, crossover=Mean(children))
    for (_, _, before), (_, numbers, state) in pairwise(generations(evolver, 6)):
        for c in asked(evolver, state):
            weights = [np.asarray(before.members.actor.output.weight[parent - numbers[0]]) for parent in c.parents]
            expected = np.mean(weights, axis=0) + ("shift" in c.operators)
            np.testing.assert_allclose(c.individual.actor.output.weight, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("fraction", "mutations", "children"), [(0.1, 8.1, 4.07), (0.2, 7.2, 3.17), (0.3, 6.3, 2.13)], ids=["1", "2", "3"]
)
def test_a_generation_has_the_reference_numbers_of_mutations_and_distilled_children(
    generations, fraction, mutations, children
):
    history = generations(replace(QUICK, elite_fraction=fraction), 120)
    counts = [(state.mutated.sum(), state.crossed.sum()) for _, _, state in history]
    np.testing.assert_allclose(np.mean(counts, axis=0), (mutations, children), atol=0.4)  # over 4 standard errors


@pytest.mark.parametrize("self_pairs", [False, True])
def test_none_mates_with_itself_unless_self_pairs_are_allowed(generations, self_pairs):
    evolver = replace(QUICK, mating=Mating(self_pairs=self_pairs))
    parents = [state.parents[state.crossed] for _, _, state in generations(evolver, 30)]
    selfed = sum(int((pair[:, 0] == pair[:, 1]).sum()) for pair in parents)
    assert (selfed > 0) == self_pairs


@dataclass(frozen=True)
class Witness(Mating):
    """Remembers the fitness that the pairs are scored with."""

    scored_with: ClassVar[list] = []

    def pairs(self, rng, slots, fitness, distance, n, generation):
        self.scored_with.append(np.array(fitness))
        return super().pairs(rng, slots, fitness, distance, n, generation)


@pytest.mark.parametrize("stale", [False, True])
def test_an_elite_s_copy_is_scored_with_its_own_fitness_or_when_stale_with_that_of_the_one_it_replaced(
    generations, stale
):
    Witness.scored_with.clear()
    history = generations(replace(QUICK, stale_elite_fitness=stale, mating=Witness()), 8)
    for (fitness, _, state), scored in zip(history, Witness.scored_with, strict=True):
        expected = np.where(state.elite & (not stale), fitness.max(), fitness)
        np.testing.assert_array_equal(scored, expected)
        assert fitness[state.elite] < fitness.max()  # the copy went to a slot that had not won


@pytest.mark.parametrize(
    ("rule", "worst", "slot"),
    [  # copies of elites lie in slots 3 (the champion's) and 6
        ("worst_non_elite", 5, 5),
        ("worst_non_elite", 3, 8),
        ("worst_non_elite", 6, 8),
        ("worst_but_champion", 5, 5),
        ("worst_but_champion", 3, 4),
        ("worst_but_champion", 6, 6),
        ("worst", 3, 3),
    ],
)
def test_the_learner_s_clone_goes_to_the_slot_of_the_rule(first, individual, rule, worst, slot):
    evolver = replace(QUICK, sync_slot=rule)
    fitness = np.array([5.0, 6, 7, 8, 9, 10, 11, 12, 1, 13])
    fitness[worst] = 0.0
    elite = np.isin(np.arange(10), (3, 6))
    state = eqx.tree_at(lambda b: (b.fitness, b.elite, b.top), started(evolver, first), (fitness, elite, np.int32(3)))
    newcomer = individual(77, n=6, capacity=8, hidden=(4,))
    joined = evolver.inject(state, newcomer)
    for k, c in enumerate(asked(evolver, joined)):
        assert c.origin == ("learning" if k == slot else "evolution")
        equal(c.individual, newcomer if k == slot else trees.take(first, k))
    np.testing.assert_array_equal(joined.elite, elite & (np.arange(10) != slot))
    assert asked(evolver, joined)[slot].parents == ()


def test_the_champion_s_successor_wraps_around_the_last_slot(first, individual):
    evolver = replace(QUICK, sync_slot="worst_but_champion")
    state = eqx.tree_at(lambda b: (b.fitness, b.top), started(evolver, first), (-np.arange(10.0), np.int32(9)))
    assert evolver.inject(state, individual(77, n=6, capacity=8, hidden=(4,))).clone.argmax() == 0


def test_the_learner_s_clones_are_counted_by_what_becomes_of_them(first, individual, played):
    newcomer = individual(77, n=6, capacity=8, hidden=(4,))
    fates = []
    state = started(QUICK, first)
    for rank in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) * 2:
        state = QUICK.inject(eqx.tree_at(lambda b: b.fitness, state, np.arange(10.0)), newcomer)
        slot = int(state.clone.argmax())
        fitness = np.insert(np.delete(np.arange(10.0), 9 - rank), slot, 9.0 - rank)
        state = QUICK.tell(jax.random.key(len(fates)), state, played(QUICK, state, fitness, 100), None)
        stayed = not state.crossed[slot] and state.parents[slot].tolist() == [100 + slot, -1]
        fates.append("elite" if rank == 0 else "selected" if stayed else "discarded")
        assert FATES[int(state.fate)] == fates[-1]
        assert state.fates.tolist() == [fates.count(fate) for fate in FATES]
    assert min(state.fates) >= 2  # each has happened
    state = QUICK.tell(KEY, state, played(QUICK, state, np.arange(10.0)), None)
    assert int(state.fate) == -1
    assert sum(state.fates) == 20


def test_the_report_names_the_last_fate_and_counts_all(first, individual, played):
    state = started(QUICK, first)
    assert QUICK.report(state, []) == {"clone": None, "clones": {"elite": 0, "selected": 0, "discarded": 0}}
    state = QUICK.inject(state, individual(77, n=6, capacity=8, hidden=(4,)))
    state = QUICK.tell(KEY, state, played(QUICK, state, -np.abs(np.arange(10) - int(state.clone.argmax()))), None)
    assert QUICK.report(state, []) == {"clone": "elite", "clones": {"elite": 1, "selected": 0, "discarded": 0}}


@pytest.mark.parametrize(
    ("rule", "tried", "slot"),
    [  # the worst first: 5, 3, 8, 6, and then the others; copies of elites lie in slots 3 (the champion's) and 6
        ("worst_non_elite", [5], 8),
        ("worst_non_elite", [5, 8, 0, 1, 2, 4, 7, 9], 3),
        ("worst_but_champion", [5], 8),
        ("worst_but_champion", [5, 8], 6),
        ("worst_but_champion", [0, 1, 2, 4, 5, 6, 7, 8, 9], 3),
        ("worst", [5], 3),
        ("worst", [5, 3], 8),
    ],
)
def test_a_clone_never_overwrites_a_slot_that_was_tried(first, individual, played, rule, tried, slot):
    evolver = replace(QUICK, sync_slot=rule)
    fitness = np.array([5.0, 6, 7, 1, 9, 0, 3, 12, 2, 13])
    elite = np.isin(np.arange(10), (3, 6))
    state = eqx.tree_at(lambda s: (s.fitness, s.elite, s.top), started(evolver, first), (fitness, elite, np.int32(3)))
    outcomes = played(evolver, state, range(10))
    state = evolver.tell(KEY, state, [outcomes[k] for k in tried], None)
    joined = evolver.inject(state, individual(77, n=6, capacity=8, hidden=(4,)))
    assert np.flatnonzero(joined.clone).tolist() == [slot]
    for k in tried:
        equal(trees.take(joined.members, k), trees.take(state.members, k))


def test_a_clone_is_followed_only_if_it_was_the_clone_that_was_tried(first, individual, played):
    state = started(QUICK, first)
    asked_before = played(QUICK, state, range(10))  # out as ordinary members when the clone comes
    state = QUICK.inject(state, individual(77, n=6, capacity=8, hidden=(4,)))
    assert int(QUICK.tell(KEY, state, asked_before, None).fates.sum()) == 0
    assert int(QUICK.tell(KEY, state, played(QUICK, state, range(10)), None).fates.sum()) == 1


@dataclass(frozen=True)
class Own:
    """A crossover without `needs_critic`."""

    children = 1


@pytest.mark.parametrize(
    ("crossover", "needed"), [(Distillation(), True), (RowCopy(), False), (ElementCopy(), False), (Own(), False)]
)
def test_it_needs_a_critic_if_its_crossover_does(crossover, needed):
    assert GenerationalGA(crossover=crossover).needs_critic is needed


def test_it_is_an_evolver():
    assert isinstance(QUICK, Evolver)
    assert QUICK.takes_lessons
    assert QUICK.has_upcoming


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"population": 0}, "population is 0: a genetic algorithm needs 2 individuals or more"),
        ({"population": 1}, "population is 1: a genetic algorithm needs 2 individuals or more"),
        ({"tournament": 0}, "tournament is 0: it needs 1 individual or more"),
        ({"elite_fraction": 0.7}, "elite_fraction is 0.7: it must lie between 0 and 0.5"),
        ({"mutation_probability": -1}, "mutation_probability is -1: it must lie between 0 and 1"),
    ],
)
def test_a_refused_setting_is_named_with_its_value(options, message):
    with pytest.raises(UserError) as refused:
        GenerationalGA(**options)
    assert str(refused.value) == message
