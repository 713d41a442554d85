"""How a population of GPO's becomes the next (Gangwani and Peng 2018, Algorithm 1, lines 4 to 10).

Couples are selected. Each couple has an expert and a student that learns from it. The students are the children.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool import trees
from genepool.algorithms.gpo.couples import Fittest, random_couples
from genepool.algorithms.gpo.imitation import (
    Expert,
    ParameterSpace,
    ParentTrajectories,
    Selector,
    StateSpace,
    Student,
)
from genepool.cores import map_on_cores
from genepool.learning.ppo import Member
from genepool.networks import VNetwork
from genepool.networks.stochastic import Categorical, Normal, StochasticPolicy
from genepool.optimiser import adam_init


class CrossoverState(eqx.Module):
    """The couples that were selected last, and what their children learn by."""

    couples: np.ndarray  # [m, 2]
    selectors: Selector | None  # [m]
    students: Student | None  # [m]

    @property
    def children(self) -> StochasticPolicy:
        """[m]: the policies of the students."""
        assert self.students is not None
        return self.students.policy

    def expert(self, crossover: StateSpace, policies: StochasticPolicy, slot: int) -> Expert:
        """The expert of this couple: it follows one parent or the other, state by state."""
        x, y = (trees.take(policies, parent) for parent in self.couples[slot])
        assert self.selectors is not None
        return Expert(trees.take(self.selectors, slot), x, y, crossover.choice)

    def stronger(self, fitness: np.ndarray) -> np.ndarray:
        """[m]: the parent of each couple with the higher fitness; of equals the first."""
        return self.couples[np.arange(len(self.couples)), fitness[self.couples].argmax(axis=1)]


class CrossoverData(eqx.Module):
    """What was played for the crossover: trajectories to make experts by, and states to imitate them in."""

    played: ParentTrajectories  # [m, iterations * B, ...]: of each policy in the latest iterations
    states: np.ndarray  # [m, expert's and student's frames, |S|]
    uniform: np.ndarray  # [m, expert's and student's frames]: numbers that choose the parent to imitate


def new_crossover_state(
    key: Array, crossover: StateSpace | ParameterSpace | None, policy: StochasticPolicy, m: int
) -> CrossoverState:
    """No couples yet, and room for selectors and students of m couples."""
    selector = student = None
    if isinstance(crossover, StateSpace):
        network = VNetwork(key, policy.sizes[0], crossover.selector_hidden, "tanh")
        selector = Selector(network, policy.scale)
        student = Student(policy, adam_init(policy))
    stacked = trees.stack([CrossoverState(np.zeros(2, np.int64), selector, student)] * m)
    return replace(stacked, couples=np.zeros((m, 2), np.int64))


def new_crossover_data(m: int, played: int, imitated: int, observation_size: int) -> CrossoverData:
    """Room for `played` rows of each policy, and for `imitated` states of each couple."""
    trajectories = ParentTrajectories(
        observation=np.zeros((m, played, observation_size), np.float32),
        returns=np.zeros((m, played), np.float32),
        starts=np.zeros((m, played), bool),
    )
    states = np.zeros((m, imitated, observation_size), np.float32)
    return CrossoverData(trajectories, states, np.zeros((m, imitated), np.float32))


def select(
    key: Array,
    selection: Fittest | None,
    fitness: np.ndarray,
    policies: StochasticPolicy,
    states: np.ndarray,
    left: float,
) -> np.ndarray:
    """SELECT: couples [m, 2] by the returns of the last iteration, or drawn at random."""
    m = len(fitness)
    if selection is None:
        return random_couples(trees.host_random(key), m)
    return selection(fitness, divergence(policies, states) if selection.diversity else np.zeros((m, m)), left)


def make_experts(
    key: Array,
    crossover: StateSpace,
    state: CrossoverState,
    policies: StochasticPolicy,
    fitness: np.ndarray,
    data: CrossoverData,
) -> CrossoverState:
    """Fit the selector of each couple, and begin its student."""
    played = [ParentTrajectories(*row) for row in zip(*data.played, strict=True)]
    stronger = state.stronger(fitness)

    def make(slot: int) -> tuple[Selector, Student]:
        k_select, k_student = jax.random.split(jax.random.fold_in(key, slot))
        x, y = state.couples[slot]
        better = trees.take(policies, stronger[slot])
        selector = crossover.select(k_select, played[x], played[y], better.scale)
        return selector, crossover.student(k_student, better)

    made = map_on_cores(make, range(len(fitness)))
    return CrossoverState(state.couples, *(trees.stack(part) for part in zip(*made, strict=True)))


def imitate_experts(
    key: Array,
    crossover: StateSpace,
    state: CrossoverState,
    policies: StochasticPolicy,
    data: CrossoverData,
    count: int,
) -> CrossoverState:
    """The students after they imitated their experts in the first `count` states that were collected."""
    students = state.students
    assert students is not None

    def learn(slot: int) -> Student:
        student = trees.take(students, slot)
        expert = state.expert(crossover, policies, slot)
        k_slot = jax.random.fold_in(key, slot)
        return crossover.imitate(k_slot, student, expert, data.states[slot], data.uniform[slot], count)[0]

    return replace(state, students=trees.stack(map_on_cores(learn, range(len(state.couples)))))


def plain_children(
    key: Array,
    crossover: ParameterSpace | None,
    state: CrossoverState,
    policies: StochasticPolicy,
    fitness: np.ndarray,
) -> StochasticPolicy:
    """Children that need no expert: a mixture of the parents' weights, or a copy of the stronger parent."""
    if crossover is None:
        return trees.stack([trees.take(policies, parent) for parent in state.stronger(fitness)])
    children: list[StochasticPolicy] = []
    for slot, couple in enumerate(state.couples):
        parents = (trees.take(policies, parent) for parent in couple)
        children.append(crossover.child(jax.random.fold_in(key, slot), *parents))
    return trees.stack(children)


def children_as_members(members: Member, children: StochasticPolicy, stronger: np.ndarray) -> Member:
    """The children with a new optimiser, and with the critic and the penalty of the stronger parent."""

    def of_stronger(leaf: Array) -> Array:
        return jnp.asarray(np.asarray(leaf)[stronger])

    inherited = jax.tree.map(of_stronger, members)
    optimiser = jax.tree.map(jnp.zeros_like, members.optimiser)
    return replace(inherited, policy=jax.tree.map(jnp.asarray, children), optimiser=optimiser)


@jax.jit
def _kl_matrix(policies: StochasticPolicy, states: Array) -> Array:
    slots = jnp.arange(states.shape[0])

    def distribution(policy: Array, at: Array) -> Normal | Categorical:
        def pick(leaf: Array) -> Array:
            return leaf[policy]

        return jax.tree.map(pick, policies).distribution(states[at])

    def row(i: Array) -> Array:
        own = distribution(i, i)

        def kl(j: Array) -> Array:
            return jnp.mean(own.kl(distribution(j, i)))

        return jax.lax.map(kl, slots)

    return jax.lax.map(row, slots)


def divergence(policies: StochasticPolicy, states: np.ndarray) -> np.ndarray:
    """[m, m]: the mean of KL(pi_i || pi_j) over the states of i."""
    return np.asarray(_kl_matrix(policies, states))
