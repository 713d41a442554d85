"""A user's own parts, outside the package: a mutation, and a coupling of random search with a learner."""

from dataclasses import field, replace
from itertools import count
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np

from genepool import DDPG, Candidate, Individual, Task, part, trees
from genepool.algorithms import choices, experience
from genepool.algorithms.experience import Experience
from genepool.algorithms.in_flight import EXPLORING, MEMBER, InFlight, draw_seeds, forget_workers, new_in_flight
from genepool.networks import Actor


@part
class Mine:
    """Every weight of the child is moved."""

    sigma: float = 0.1  # std of the noise
    rare: int = 3  # one child in so many stays as its parent is

    def __call__(self, key, parent):
        """The child."""
        leaves, structure = jax.tree.flatten(parent.actor)
        keys = jax.random.split(key, len(leaves))
        scale = self.sigma * (jax.random.randint(key, (), 0, self.rare) > 0)
        moved = [x + scale * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
        return Individual(jax.tree.unflatten(structure, moved), parent.memory)


class SearchState(eqx.Module):
    """Everything that training changes."""

    best: Any  # the actor with the highest return so far
    height: np.ndarray  # that return
    learner: Any
    experience: Experience
    in_flight: InFlight


@part
class RandomSearch:
    """Of some actors around the best one, the best stays; a learner learns from all and is one of them."""

    task: Task
    learner: choices.AnyLearner = field(default_factory=DDPG)  # what learns from all transitions
    generation_size: int = 6  # actors, and the learner's exploration
    step: float = 0.1  # std of the noise on the best actor's weights
    replay: int = 100_000  # transitions in the learner's replay
    preset: str = "random-search"  # the name of this system
    schedule: ClassVar[str] = "synchronous"
    budget: ClassVar[float] = 1e5
    test_episodes: ClassVar[int] = 2
    test_every: ClassVar[int] = 1

    def settings(self):
        return {"step": self.step}

    def init(self, key):
        actor = Actor(key, *choices.sizes_of(self.task), (16, 16))
        made = experience.new_experience(self.task, self.replay, 1)
        return SearchState(
            actor, np.array(-np.inf), self.learner.init(key, actor), made, new_in_flight(self.generation_size)
        )

    def ask(self, key, state, n):
        def kinds(number):
            return EXPLORING if number % self.generation_size == 0 else MEMBER

        new = ((kinds(number), -1) for number in count(int(state.in_flight.asked)))
        asked = state.in_flight.upcoming(n, new)
        rng = trees.host_random(key)
        made = [self._candidate(jax.random.fold_in(key, one.number), state, one, rng) for one in asked]
        return made, replace(state, in_flight=state.in_flight.issue(asked))

    def _candidate(self, key, state, one, rng):
        if one.kind == EXPLORING:
            made = state.experience.exploration(key, self.learner, state.learner, self.task.horizon, rng)
        else:
            child = Mine(sigma=self.step)(key, Individual(state.best, None))
            made = Candidate(child, draw_seeds(rng, 1))
        return replace(made, number=one.number)

    def tell(self, key, state, outcomes):
        outcomes, in_flight = state.in_flight.accept(outcomes)
        collected = state.experience.collected(outcomes, outcomes, self.learner.warmup, 1.0)
        best = state.best
        height = state.height
        for outcome in outcomes:
            if outcome.fitness > height:
                best = outcome.candidate.individual.actor
                height = outcome.fitness
        return SearchState(best, np.array(height), state.learner, collected, in_flight)

    learn = experience.learn
    steps_owed = experience.steps_owed
    learning_phase = experience.learning_phase
    still_to_ask = experience.nothing_more
    forget_workers = forget_workers

    def champion(self, state):
        return state.best

    def policies(self, state):
        return {"champion": state.best, "learner": self.learner.actor(state.learner)}

    def report(self, state, outcomes):
        return {"best": float(state.height)} | self.learner.report(state.learner)


def mine(task):
    """The coupling for a task."""
    return RandomSearch(task, step=0.2)
