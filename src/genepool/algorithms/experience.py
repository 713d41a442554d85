"""Replay, gradient steps owed, the exploration noise that goes on, the learner's own memory: what couplings share."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import numpy as np
from jax import Array

from genepool import buffer
from genepool.algorithms.in_flight import Asked, draw_seeds
from genepool.environments.task import Task
from genepool.types import Candidate, Individual, Outcome


class Experience(eqx.Module):
    """What a learner learns from, and how much of it is still to be learnt."""

    replay: buffer.Buffer
    memory: buffer.Buffer  # the learner's own genetic memory: its exploring episodes, which its clones take along
    noise: np.ndarray  # the last row of exploration noise, from which the next episode's goes on
    owed: np.ndarray  # gradient steps that ought to have been taken by now

    def collected(
        self, recorded: Sequence[Outcome], counted: Sequence[Outcome], warmup: int, rate: float
    ) -> "Experience":
        """With the `recorded` outcomes in the replay, and `rate` steps more owed for every frame of those `counted`.

        The rings are written in place: the experience that was given must not be used again.
        """
        replay, memory, noise = self.replay, self.memory, self.noise
        for outcome in recorded:
            replay = buffer.record(replay, outcome.transitions)
        for outcome in counted:
            if outcome.candidate.purpose == "exploration":
                memory = buffer.record(memory, outcome.transitions)
                noise = outcome.candidate.noise[outcome.frames - 1]
        frames = sum(outcome.frames for outcome in counted)
        steps = int(rate * frames) if int(replay.size) > warmup else 0
        return replace(self, replay=replay, memory=memory, noise=noise, owed=self.owed + steps)

    def exploration(
        self, key: Array, learner: Any, state: Any, horizon: int, rng: np.random.Generator, seen: int | None = None
    ) -> Candidate:
        """An episode of the learner with noise. It acts at random while `seen` frames are few; none: those in the replay."""
        seen = int(self.replay.size) if seen is None else seen
        actor, noise = learner.explore(key, state, self.noise, horizon, seen)
        return Candidate(Individual(actor, None), draw_seeds(rng, 1), noise, purpose="exploration", origin="learning")

    def clone(self, actor: Any) -> Individual:
        """The learner's actor with the learner's memory, as a newcomer to a population."""
        return Individual(actor, self.memory)


def new_experience(task: Task, replay: int, memory: int) -> Experience:
    """Nothing was played yet."""
    sizes = task.observation_size, task.action_size
    rings = buffer.empty(replay, *sizes), buffer.empty(memory, *sizes)
    return Experience(*rings, np.zeros(sizes[1], np.float32), np.zeros((), np.int64))


def with_seeds(candidate: Candidate, rng: np.random.Generator, trials: int) -> Candidate:
    """The candidate with a seed for each of its episodes, then for each of its reference's."""
    own = draw_seeds(rng, trials)
    return replace(candidate, seeds=own, reference_seeds=draw_seeds(rng, candidate.reference_episodes))


def served(asked: Sequence[Asked], members: Sequence[Candidate]) -> list[Asked]:
    """The candidates up to the first member that the evolver does not give yet."""
    places = [k for k, one in enumerate(asked) if one.place >= 0]
    return list(asked[: places[len(members)]] if len(members) < len(places) else asked)


def of_purpose(outcomes: Sequence[Outcome], purpose: str) -> list[Outcome]:
    """Those that were played for this purpose."""
    return [outcome for outcome in outcomes if outcome.candidate.purpose == purpose]


# The methods that couplings with one learner and one replay have in common; each takes the coupling as `self`.


def steps_owed(self: Any, state: Any) -> int:
    """The gradient steps that ought to have been taken by now and were not."""
    return int(state.experience.owed) - int(state.learner.updates)


def learn(self: Any, key: Array, state: Any) -> Any:
    """The state after the gradient steps owed."""
    steps = self.steps_owed(state)
    if not steps:
        return state
    return replace(state, learner=self.learner.update(key, state.learner, state.experience.replay, steps))


def learning_phase(self: Any, state: Any) -> str:
    """There is one: learning."""
    return "learning"


def nothing_more(self: Any, state: Any) -> int:
    """None: a generation is asked for at once."""
    return 0
