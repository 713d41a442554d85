"""Generational: what a generation becomes, where the learner's clone goes, and what is counted."""

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import ClassVar

import equinox as eqx
import jax
import numpy as np
import pytest

from genepool import buffer, trees
from genepool.algorithms.erl import ERL
from genepool.evolution.crossover import Distillation
from genepool.evolution.genetic import FATES, Generational
from genepool.evolution.selection import Mating
from genepool.types import Individual, Outcome

KEY = jax.random.key(0)
equal = partial(jax.tree.map, np.testing.assert_array_equal)


@dataclass(frozen=True)
class Shift:
    """A mutation that is seen everywhere and quickly compiled."""

    def __call__(self, key, x):
        return Individual(jax.tree.map(lambda leaf: leaf + 1.0, x.actor), x.memory)


@dataclass(frozen=True)
class Mean:
    """A crossover that is seen everywhere and quickly compiled, of one or two children."""

    children: int = 1

    def __call__(self, key, x, y, critic):
        return (Individual(jax.tree.map(lambda a, b: (a + b) / 2, x.actor, y.actor), x.memory),) * self.children


QUICK = Generational(crossover=Mean(), mutation=Shift())


@pytest.fixture(scope="module")
def first(individual):
    """A first generation of ten."""
    return trees.stack([individual(k, n=0, capacity=8, hidden=(4,)) for k in range(10)])


@pytest.fixture(scope="module")
def played(rows):
    """Outcomes of a brood with this fitness; candidates are numbered from `number`."""

    def play(evolver, brood, fitness, number=0):
        candidates = [replace(c, number=number + k) for k, c in enumerate(asked(evolver, brood))]
        return [
            Outcome(c, c.individual, (float(f),), rows(3, first=10 * c.number))
            for c, f in zip(candidates, fitness, strict=True)
        ]

    return play


@pytest.fixture(scope="module")
def generations(first, played):
    """Many generations with random fitness: [(fitness, numbers, brood bred from them)]."""

    def live(evolver, n, seed=0):
        rng, brood, lived = np.random.default_rng(seed), evolver.init(first), []
        for g in range(n):
            fitness = rng.permutation(10) + 0.5
            outcomes = played(evolver, brood, fitness, 10 * g)
            brood = evolver.tell(jax.random.key(1000 * seed + g), brood, outcomes, None)
            lived.append((fitness, np.arange(10 * g, 10 * g + 10), brood))
        return lived

    return live


def asked(evolver, brood):
    return evolver.ask(KEY, brood, range(evolver.population), None)[0]


def indifferent(s, a):
    return 0.0 * s[..., 0]


@pytest.mark.parametrize("crossover", [Mean(2), Distillation(epochs=1)], ids=["two children", "distillation"])
def test_elites_are_copied_bit_by_bit_with_all_that_they_lived_through(first, played, crossover):
    evolver = replace(QUICK, elite_fraction=0.2, crossover=crossover)
    outcomes = played(evolver, evolver.init(first), [3, 1, 9, 4, 8, 2, 0, 7, 5, 6], number=100)
    brood = evolver.tell(KEY, evolver.init(first), outcomes, jax.tree_util.Partial(indifferent))
    copies = {c.parents: c for c in asked(evolver, brood) if c.operators == ("elite",)}
    assert set(copies) == {(102,), (104,)}  # the fittest two
    for slot in (2, 4):
        tried, copy = outcomes[slot], copies[100 + slot,].individual
        equal(copy.actor, tried.individual.actor)
        lived = buffer.record(jax.tree.map(jax.numpy.array, tried.individual.memory), tried.transitions)
        equal(copy.memory, lived)
    equal(brood.champion, outcomes[2].individual.actor)
    equal(trees.take(brood.members.actor, int(brood.top)), outcomes[2].individual.actor)


@pytest.mark.parametrize(("children", "fraction"), [(1, 0.1), (2, 0.1), (1, 0.3), (2, 0.3)])
def test_a_population_keeps_its_size_and_everyone_has_parents_among_those_told(generations, children, fraction):
    evolver = replace(QUICK, elite_fraction=fraction, crossover=Mean(children))
    for _, numbers, brood in generations(evolver, 10):
        candidates = asked(evolver, brood)
        assert len(candidates) == 10
        assert sum(c.operators == ("elite",) for c in candidates) == evolver.elites
        for c in candidates:
            assert set(c.parents) <= set(numbers.tolist())
            assert len(c.parents) == (2 if "mean" in c.operators else 1)


@pytest.mark.parametrize("children", [1, 2])
def test_what_is_said_to_have_been_done_was_done(generations, children):
    evolver = replace(QUICK, crossover=Mean(children))
    for (_, _, before), (_, numbers, brood) in pairwise(generations(evolver, 6)):
        for c in asked(evolver, brood):
            weights = [np.asarray(before.members.actor.output.weight[parent - numbers[0]]) for parent in c.parents]
            expected = np.mean(weights, axis=0) + ("shift" in c.operators)
            np.testing.assert_allclose(c.individual.actor.output.weight, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("fraction", "mutations", "children"), [(0.1, 8.1, 4.07), (0.2, 7.2, 3.17), (0.3, 6.3, 2.13)], ids=["1", "2", "3"]
)
def test_a_generation_has_the_reference_numbers_of_mutations_and_distilled_children(
    generations, fraction, mutations, children
):
    lived = generations(replace(QUICK, elite_fraction=fraction), 120)
    counts = [(brood.mutated.sum(), brood.crossed.sum()) for _, _, brood in lived]
    np.testing.assert_allclose(np.mean(counts, axis=0), (mutations, children), atol=0.4)  # over 4 standard errors


@pytest.mark.parametrize("self_pairs", [False, True])
def test_nobody_mates_with_itself_unless_self_pairs_are_allowed(generations, self_pairs):
    evolver = replace(QUICK, mating=Mating(self_pairs=self_pairs))
    parents = [brood.parents[brood.crossed] for _, _, brood in generations(evolver, 30)]
    selfed = sum(int((pair[:, 0] == pair[:, 1]).sum()) for pair in parents)
    assert (selfed > 0) == self_pairs


@dataclass(frozen=True)
class Witness(Mating):
    """Remembers the fitness that the pairs are scored with."""

    seen: ClassVar[list] = []

    def pairs(self, rng, slots, fitness, distance, n, generation):
        self.seen.append(np.array(fitness))
        return super().pairs(rng, slots, fitness, distance, n, generation)


@pytest.mark.parametrize("stale", [False, True])
def test_an_elite_s_copy_is_scored_with_its_own_fitness_or_when_stale_with_that_of_whom_it_replaced(generations, stale):
    Witness.seen.clear()
    lived = generations(replace(QUICK, stale_elite_fitness=stale, mating=Witness()), 8)
    for (fitness, _, brood), scored in zip(lived, Witness.seen, strict=True):
        expected = np.where(brood.elite & (not stale), fitness.max(), fitness)
        np.testing.assert_array_equal(scored, expected)
        assert fitness[brood.elite] < fitness.max()  # the copy went to a slot that had not won


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
    evolver, fitness = replace(QUICK, sync_slot=rule), np.array([5.0, 6, 7, 8, 9, 10, 11, 12, 1, 13])
    fitness[worst] = 0.0
    elite = np.isin(np.arange(10), (3, 6))
    brood = eqx.tree_at(lambda b: (b.fitness, b.elite, b.top), evolver.init(first), (fitness, elite, np.int32(3)))
    newcomer = individual(77, n=6, capacity=8, hidden=(4,))
    joined = evolver.inject(brood, newcomer)
    for k, c in enumerate(asked(evolver, joined)):
        assert c.origin == ("learning" if k == slot else "evolution")
        equal(c.individual, newcomer if k == slot else trees.take(first, k))
    np.testing.assert_array_equal(joined.elite, elite & (np.arange(10) != slot))
    assert asked(evolver, joined)[slot].parents == ()


def test_the_champion_s_successor_wraps_around_the_last_slot(first, individual):
    evolver = replace(QUICK, sync_slot="worst_but_champion")
    brood = eqx.tree_at(lambda b: (b.fitness, b.top), evolver.init(first), (-np.arange(10.0), np.int32(9)))
    assert evolver.inject(brood, individual(77, n=6, capacity=8, hidden=(4,))).clone.argmax() == 0


def test_the_learner_s_clones_are_counted_by_what_becomes_of_them(first, individual, played):
    newcomer = individual(77, n=6, capacity=8, hidden=(4,))
    fates, brood = [], QUICK.init(first)
    for rank in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) * 2:
        brood = QUICK.inject(eqx.tree_at(lambda b: b.fitness, brood, np.arange(10.0)), newcomer)
        slot = int(brood.clone.argmax())
        fitness = np.insert(np.delete(np.arange(10.0), 9 - rank), slot, 9.0 - rank)
        brood = QUICK.tell(jax.random.key(len(fates)), brood, played(QUICK, brood, fitness, 100), None)
        stayed = not brood.crossed[slot] and brood.parents[slot].tolist() == [100 + slot, -1]
        fates.append("elite" if rank == 0 else "selected" if stayed else "discarded")
        assert FATES[int(brood.fate)] == fates[-1]
        assert brood.fates.tolist() == [fates.count(fate) for fate in FATES]
    assert min(brood.fates) >= 2  # each has happened
    brood = QUICK.tell(KEY, brood, played(QUICK, brood, np.arange(10.0)), None)
    assert int(brood.fate) == -1
    assert sum(brood.fates) == 20


def test_a_part_of_a_generation_is_refused(first, played):
    brood = QUICK.init(first)
    outcomes = played(QUICK, brood, range(10))
    with pytest.raises(ValueError, match="all 10 outcomes"):
        QUICK.tell(KEY, brood, outcomes[:9], None)


def test_outcomes_may_be_told_in_any_order(rows):
    task = SimpleNamespace(observation_size=3, action_size=2, horizon=9)
    loop = ERL(task, replace(QUICK, population=4), hidden=(4,), memory=8, replay=1_000)
    start, states = jax.tree.map(np.asarray, loop.init(KEY)), []  # on the host, where `tell` cannot overwrite it
    for order in ([0, 1, 2, 3, 4], [3, 0, 4, 2, 1]):
        candidates, state = loop.ask(KEY, start, 5)
        outcomes = [
            Outcome(c, c.individual, (float(c.number % 3),), rows(4 + c.number, 10 * c.number)) for c in candidates
        ]
        states.append(loop.tell(KEY, state, [outcomes[k] for k in order]))
    equal(*states)
