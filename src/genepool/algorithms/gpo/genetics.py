"""How a population of GPO's becomes the next (Gangwani and Peng 2018, Algorithms 1 and 2): couples, experts, students, children."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool import trees
from genepool.algorithms.gpo.couples import Fittest, random_couples
from genepool.algorithms.gpo.imitation import Expert, ParameterSpace, Played, Selector, StateSpace, Student
from genepool.cores import map_on_cores
from genepool.learning.ppo import Member
from genepool.networks import VNetwork
from genepool.networks.stochastic import StochasticPolicy
from genepool.optimiser import adam_init


class Genetics(eqx.Module):
    """The couples of the last selection and what their children learn by."""

    couples: np.ndarray  # [m, 2]
    selectors: Selector | None  # [m]
    students: Student | None  # [m]

    def expert(self, crossover: StateSpace, policies: StochasticPolicy, place: int) -> Expert:
        """What the child of a couple is to imitate: now one parent, now the other."""
        x, y = (trees.take(policies, parent) for parent in self.couples[place])
        return Expert(trees.take(self.selectors, place), x, y, crossover.choice)

    def stronger(self, fitness: np.ndarray) -> np.ndarray:
        """Of every couple, who brought more; of equals the first."""
        return self.couples[np.arange(len(self.couples)), fitness[self.couples].argmax(axis=1)]


class Archive(eqx.Module):
    """What the policies played in the latest iterations, by which experts are made; and what children are to imitate."""

    observation: np.ndarray  # [m, iterations * B, |S|]
    returns: np.ndarray  # [m, iterations * B], of the trajectory that holds the row
    first: np.ndarray  # [m, iterations * B], where trajectories begin
    states: np.ndarray  # [m, expert's and student's frames, |S|]
    uniform: np.ndarray  # [m, ...]: what decides which parent is imitated in each


def new_genetics(
    key: Array, crossover: StateSpace | ParameterSpace | None, policy: StochasticPolicy, m: int
) -> Genetics:
    """No couples yet, and room for what they will need."""
    selector = student = None
    if isinstance(crossover, StateSpace):
        network = VNetwork(key, policy.sizes[0], crossover.selector_hidden, "tanh")
        selector, student = Selector(network, policy.scale), Student(policy, adam_init(policy))
    stacked = trees.stack([Genetics(np.zeros(2, np.int64), selector, student)] * m)
    return replace(stacked, couples=np.zeros((m, 2), np.int64))


def new_archive(m: int, played: int, imitated: int, observation_size: int) -> Archive:
    """Room for so many rows of each policy, and for so many that its child imitates."""
    return Archive(
        np.zeros((m, played, observation_size), np.float32),
        np.zeros((m, played), np.float32),
        np.zeros((m, played), bool),
        np.zeros((m, imitated, observation_size), np.float32),
        np.zeros((m, imitated), np.float32),
    )


def select(
    key: Array,
    selection: Fittest | None,
    fitness: np.ndarray,
    policies: StochasticPolicy,
    states: np.ndarray,
    left: float,
) -> np.ndarray:
    """SELECT: couples by what their policies brought in the last iteration, or drawn, [m, 2]."""
    m = len(fitness)
    if selection is None:
        return random_couples(trees.host_random(key), m)
    return selection(fitness, divergence(policies, states) if selection.diversity else np.zeros((m, m)), left)


def experts(
    key: Array,
    crossover: StateSpace,
    genetics: Genetics,
    policies: StochasticPolicy,
    fitness: np.ndarray,
    archive: Archive,
) -> Genetics:
    """The selectors of all couples, and students that have learnt nothing from them yet."""
    rows = zip(archive.observation, archive.returns, archive.first, strict=True)
    played, stronger = [Played(*row) for row in rows], genetics.stronger(fitness)

    def make(i: int) -> tuple[Selector, Student]:
        k_select, k_student = jax.random.split(jax.random.fold_in(key, i))
        x, y = genetics.couples[i]
        better = trees.take(policies, stronger[i])
        selector = crossover.select(k_select, played[x], played[y], better.scale)
        return selector, crossover.student(k_student, better)

    made = map_on_cores(make, range(len(fitness)))
    return Genetics(genetics.couples, *(trees.stack(part) for part in zip(*made, strict=True)))


def imitate(
    key: Array, crossover: StateSpace, genetics: Genetics, policies: StochasticPolicy, archive: Archive, count: int
) -> Genetics:
    """The students after they imitated their experts in the first `count` states of the archive."""

    def learn(i: int) -> Student:
        student, expert = trees.take(genetics.students, i), genetics.expert(crossover, policies, i)
        return crossover.imitate(
            jax.random.fold_in(key, i), student, expert, archive.states[i], archive.uniform[i], count
        )[0]

    return replace(genetics, students=trees.stack(map_on_cores(learn, range(len(genetics.couples)))))


def plain_children(
    key: Array, crossover: ParameterSpace | None, genetics: Genetics, policies: StochasticPolicy, fitness: np.ndarray
) -> StochasticPolicy:
    """Children that imitate nobody: a mixture of the parents' weights, or the stronger's copy."""
    if crossover is None:
        return trees.stack([trees.take(policies, i) for i in genetics.stronger(fitness)])
    children = []
    for i, couple in enumerate(genetics.couples):
        parents = (trees.take(policies, parent) for parent in couple)
        children.append(crossover.child(jax.random.fold_in(key, i), *parents))
    return trees.stack(children)


def heirs(members: Member, children: StochasticPolicy, stronger: np.ndarray) -> Member:
    """The children as members, with the critic and the penalty of the stronger parent and a new optimiser."""
    heritage = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[stronger]), members)
    fresh = jax.tree.map(jnp.zeros_like, members.optimiser)
    return replace(heritage, policy=jax.tree.map(jnp.asarray, children), optimiser=fresh)


@jax.jit
def _kl_matrix(policies: StochasticPolicy, states: Array) -> Array:
    def row(i: Array) -> Array:
        pick = lambda k: jax.tree.map(lambda leaf: leaf[k], policies)
        own = pick(i).distribution(states[i])
        return jax.lax.map(lambda j: jnp.mean(own.kl(pick(j).distribution(states[i]))), jnp.arange(states.shape[0]))

    return jax.lax.map(row, jnp.arange(states.shape[0]))


def divergence(policies: StochasticPolicy, states: np.ndarray) -> np.ndarray:
    """[m, m]: mean over the states of i of KL(pi_i || pi_j)."""
    return np.asarray(_kl_matrix(policies, states))
