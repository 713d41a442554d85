"""What couplings with a learner share: the replay, the gradient steps owed, exploration noise, the learner's memory."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar

import equinox as eqx
import numpy as np
from jax import Array

from genepool import buffer
from genepool.algorithms.in_flight import Asked, draw_seeds
from genepool.environments.task import Task
from genepool.protocols import Actor, Learner
from genepool.types import Candidate, Individual, Outcome


class Experience(eqx.Module):
    """What a learner learns from, and how many gradient steps it should have taken."""

    replay: buffer.Buffer
    memory: buffer.Buffer  # the learner's own genetic memory: its exploring episodes. Its clones inherit it
    noise: np.ndarray  # the last row of exploration noise; the noise of the next episode continues from it
    owed: np.ndarray  # gradient steps that should have been taken since the start, whether they were or not

    def collected(
        self, recorded: Sequence[Outcome], counted: Sequence[Outcome], warmup: int, rate: float
    ) -> "Experience":
        """`recorded` outcomes go to the replay. `rate` gradient steps are owed for every frame of the `counted` ones.

        The two ring buffers are written in place: do not use the old experience again.
        """
        replay = self.replay
        memory = self.memory
        noise = self.noise
        for outcome in recorded:
            replay = buffer.record(replay, outcome.transitions)
        for outcome in counted:
            if outcome.candidate.purpose == "exploration":
                memory = buffer.record(memory, outcome.transitions)
                assert outcome.candidate.noise is not None  # of `exploration`, below
                noise = outcome.candidate.noise[outcome.frames - 1]
        frames = sum(outcome.frames for outcome in counted)
        steps = int(rate * frames) if int(replay.size) > warmup else 0
        return replace(self, replay=replay, memory=memory, noise=noise, owed=self.owed + steps)

    def exploration(
        self,
        key: Array,
        learner: Learner[Any],
        state: Any,
        horizon: int,
        rng: np.random.Generator,
        frames_so_far: int | None = None,
    ) -> Candidate:
        """An episode of the learner with noise, or with random actions if `frames_so_far` is still small.

        Without `frames_so_far`, the number of rows in the replay counts.
        """
        frames_so_far = int(self.replay.size) if frames_so_far is None else frames_so_far
        actor, noise = learner.explore(key, state, self.noise, horizon, frames_so_far)
        return Candidate(Individual(actor, None), draw_seeds(rng, 1), noise, purpose="exploration", origin="learning")

    def clone(self, actor: Actor) -> Individual:
        """The learner's actor and memory, to join a population."""
        return Individual(actor, self.memory)


def new_experience(task: Task, replay: int, memory: int) -> Experience:
    """An experience before the first frame. `replay` and `memory` are the capacities of its two ring buffers."""
    sizes = (task.observation_size, task.action_size)
    return Experience(
        replay=buffer.empty(replay, *sizes),
        memory=buffer.empty(memory, *sizes),
        noise=np.zeros(task.action_size, np.float32),
        owed=np.zeros((), np.int64),
    )


def with_seeds(candidate: Candidate, rng: np.random.Generator, trials: int) -> Candidate:
    """The candidate with a seed for each of its episodes and for each of its reference's."""
    own = draw_seeds(rng, trials)
    return replace(candidate, seeds=own, reference_seeds=draw_seeds(rng, candidate.reference_episodes))


def available(asked: Sequence[Asked], members: Sequence[Candidate]) -> list[Asked]:
    """Those asked for, up to the first member that the evolver cannot give yet."""
    places = [k for k, one in enumerate(asked) if one.place >= 0]
    return list(asked[: places[len(members)]] if len(members) < len(places) else asked)


def of_purpose(outcomes: Sequence[Outcome], purpose: str) -> list[Outcome]:
    """The outcomes that were played for this purpose."""
    return [outcome for outcome in outcomes if outcome.candidate.purpose == purpose]


class LearningState(Protocol):
    """The state of a coupling with a learner, a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    learner: Any
    experience: Experience


class Learns(Protocol):
    """A coupling with a learner."""

    @property
    def learner(self) -> Learner[Any]:
        """The learner."""
        ...

    def steps_owed(self, state: Any) -> int:
        """The gradient steps owed."""
        ...


S = TypeVar("S", bound=LearningState)

# Methods that several couplings have. Each takes the coupling as `self`.


def steps_owed(self: object, state: LearningState) -> int:
    """The gradient steps that should have been taken by now and were not."""
    return int(state.experience.owed) - int(state.learner.updates)


def learn(self: Learns, key: Array, state: S) -> S:
    """The state after the gradient steps owed."""
    steps = self.steps_owed(state)
    if not steps:
        return state
    return replace(state, learner=self.learner.update(key, state.learner, state.experience.replay, steps))


def learning_phase(self: object, state: object) -> str:
    """The only one: learning."""
    return "learning"


def nothing_more(self: object, state: object) -> int:
    """None: a generation is asked for in one go."""
    return 0
