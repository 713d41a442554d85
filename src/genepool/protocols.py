"""The methods and fields that each kind of part must have. Nothing else is required."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from jax import Array

from genepool.buffer import Buffer
from genepool.environments.task import Task
from genepool.types import Candidate, Individual, LearningResult, Outcome

Actor = Callable[[Array], Array]
Critic = Callable[[Array, Array], Array]
S = TypeVar("S")
L = TypeVar("L")


@runtime_checkable
class Evolver(Protocol[S]):
    """Proposes individuals and learns from their fitness. It knows no learner: a critic is a function it is given.

    Its candidates have places 0, 1, 2, ... in one sequence; `population` of them are a generation. `tell` accepts
    outcomes in any portions and in any order.
    """

    @property
    def population(self) -> int:
        """Candidates in a generation."""
        ...

    @property
    def needs_critic(self) -> bool:
        """Whether `ask` or `tell` use the critic."""
        ...

    @property
    def takes_lessons(self) -> bool:
        """Whether it may be told of individuals that had a lesson before they were tried."""
        ...

    @property
    def has_upcoming(self) -> bool:
        """Whether it has `upcoming(state, n)`, the actors of the next n individuals."""
        ...

    def init(self, key: Array, new_individual: Callable[[int], Individual]) -> S:
        """A new state. `new_individual(k)` makes the k-th new individual."""
        ...

    def ask(self, key: Array, state: S, places: Sequence[int], critic: Critic | None) -> tuple[list[Candidate], S]:
        """A candidate for each of these places. Fewer, from the first, if the others must wait for outcomes."""
        ...

    def tell(self, key: Array, state: S, outcomes: Sequence[Outcome], critic: Critic | None) -> S:
        """The state after these outcomes."""
        ...

    def inject(self, state: S, newcomer: Individual) -> S:
        """The state in which this clone of the learner is tried soon."""
        ...

    def champion(self, state: S) -> Actor:
        """The policy to report: the fittest, or the mean of a search distribution."""
        ...

    def report(self, state: S, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """What a record says of the evolver. The outcomes are those since the last record."""
        ...


class Foresight(Evolver[S], Protocol[S]):
    """An evolver that knows who comes next: its `has_upcoming` is true."""

    def upcoming(self, state: S, n: int) -> list[Actor]:
        """The actors of the next n individuals."""
        ...


@runtime_checkable
class Strategy(Protocol[S]):
    """A search distribution over flat vectors. `evolution.distribution.adapter` makes an `Evolver` of it."""

    population: int
    needs_reference: bool  # whether an outcome is compared with the fitness of the mean
    takes_lessons: bool
    has_upcoming: bool  # whether its state has `sample`, rows that are handed out in order

    def init(self, key: Array, mean: np.ndarray) -> S:
        """A distribution around this mean."""
        ...

    def ask(self, key: Array, state: S, n: int) -> tuple[np.ndarray, S]:
        """The next n vectors, [n, d]."""
        ...

    def tell(self, key: Array, state: S, results: Any) -> S:
        """The state after these `Results`: vectors, their fitness, and the mean's fitness if it is needed."""
        ...

    def mean(self, state: S) -> np.ndarray:
        """The mean."""
        ...

    def report(self, state: S) -> dict[str, Any]:
        """What a record says of the strategy."""
        ...


@runtime_checkable
class Learner(Protocol[L]):
    """An off-policy actor-critic learner. Its state has `updates`, the gradient steps so far."""

    def init(self, key: Array, actor: Any) -> L:
        """A learner that starts from this actor."""
        ...

    def actor(self, state: L) -> Any:
        """The current policy, deterministic."""
        ...

    def critic(self, state: L) -> Critic:
        """Q(s, a)."""
        ...

    def explore(self, key: Array, state: L, last: Any, steps: int, frames_so_far: int) -> tuple[Any, np.ndarray]:
        """The actor of an exploring episode, and noise on its actions that continues from NumPy's row `last`."""
        ...

    def update(self, key: Array, state: L, replay: Buffer, steps: int) -> L:
        """The state after gradient steps of critic and actor."""
        ...

    def report(self, state: L) -> dict[str, Any]:
        """What a record says of the learner: losses and gradient steps."""
        ...

    @property
    def warmup(self) -> int:
        """No learning until the replay holds more rows than this."""
        ...


@runtime_checkable
class Teacher(Learner[L], Protocol[L]):
    """A learner that gives lessons: others take gradient steps on its critic."""

    def individual(self, key: Array, actor: Any) -> Any:
        """The policy that evolves, made from a new actor: SAC adds the spread of its distribution."""
        ...

    def teacher(self, state: L) -> Any:
        """What `improve` needs, frozen: the critic; of SAC also its temperature."""
        ...

    def update_critic(self, key: Array, state: L, policy: Any, replay: Buffer, steps: int) -> L:
        """The state after gradient steps of the critic alone, towards the value of this policy."""
        ...

    def improve(self, key: Array, actor: Any, teacher: Any, states: Array, state_count: Array, steps: int) -> Any:
        """The actor after gradient steps up the frozen critic, on states from the first `state_count` rows."""
        ...


@runtime_checkable
class Algorithm(Protocol[S]):
    """A coupling: what to try (`ask`), what follows from the outcomes (`tell`), and gradient steps (`learn`).

    `ask` and `tell` never write `state.learner`; `learn` writes nothing else. Do not use a state again after `tell`.
    """

    preset: str  # its name
    task: Task
    schedule: str  # "synchronous" or "asynchronous"
    generation_size: int  # candidates in a generation, or between two records
    budget: float  # frames to train for by default
    test_episodes: int
    test_every: int  # generations

    def settings(self) -> dict[str, Any]:
        """The settings that its paper gives per task, to be shown."""
        ...

    def init(self, key: Array) -> S:
        """A new state."""
        ...

    def ask(self, key: Array, state: S, n: int) -> tuple[list[Candidate], S]:
        """The next n to try; fewer if outcomes or gradient steps must come first."""
        ...

    def tell(self, key: Array, state: S, outcomes: Sequence[Outcome]) -> S:
        """The state after these outcomes, in any portions and in any order."""
        ...

    def learn(self, key: Array, state: S) -> S:
        """The state after the gradient steps owed."""
        ...

    def steps_owed(self, state: S) -> int:
        """How many gradient steps `learn` would take now."""
        ...

    def learning_phase(self, state: S) -> str:
        """The name under which the seconds of `learn` are counted now."""
        ...

    def still_to_ask(self, state: S) -> int:
        """How many more candidates this generation has, after `tell` and `learn`; usually 0."""
        ...

    def forget_workers(self, state: S) -> S:
        """The state in which all candidates that are out are issued again: after a resume no worker has them."""
        ...

    def champion(self, state: S) -> Any:
        """The policy that training returns."""
        ...

    def policies(self, state: S) -> dict[str, Any]:
        """The policies to test, by name. The champion or the learner is one of them."""
        ...

    def report(self, state: S, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """What a generation's record says besides its outcomes."""
        ...


class Workers(Protocol):
    """Where candidates are tried, and where learning runs in the background.

    `next` returns submitted candidates' outcomes and the learning's result, each as soon as it is done.
    """

    name: str

    @property
    def idle(self) -> int:
        """How many more candidates it can take now."""
        ...

    @property
    def busy(self) -> int:
        """How many candidates are at work."""
        ...

    @property
    def learning(self) -> bool:
        """Whether learning is at work, or done and not returned yet."""
        ...

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Try all candidates. Their outcomes, in the same order."""
        ...

    def submit(self, candidate: Candidate) -> None:
        """Start to try the candidate."""
        ...

    def learn_in_background(self, learn: Callable[[Array, Any], Any], key: Array, state: Any, steps: int) -> None:
        """Start `learn(key, state)`, which takes `steps` gradient steps."""
        ...

    def next(self, wait: bool) -> Outcome | LearningResult | None:
        """The next result that is done. If none is, wait for one or return None.

        None at once if neither a candidate nor learning is at work.
        """
        ...

    def close(self) -> None:
        """Free all resources."""
        ...


class Engine(Protocol):
    """Plays a batch of episodes at once. An episode depends on its seed and its actions alone."""

    def begin(self, seeds: Sequence[int], threads: int) -> np.ndarray:
        """Start one episode per seed, with at most so many threads. The first observations."""
        ...

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Start the next episodes of these indices, whose random numbers continue. The first observations."""
        ...

    def step(self, actions: np.ndarray, live: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Step the episodes of the indices `live` and no others: observations, rewards, terminated, truncated.

        The caller watches the time limit of the task's spaces; an engine need not report it as truncated.
        """
        ...

    def close(self) -> None:
        """Free all resources."""
        ...
