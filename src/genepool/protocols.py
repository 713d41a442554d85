"""What a part must offer. Nothing else is asked of it."""

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
    """Proposes individuals and learns from their fitness. Knows no learner: a critic is a function it is handed.

    A place is a number in the evolver's own sequence 0, 1, 2, ...; a generation is `population` of them. Outcomes are told
    in any portions and in any order.
    """

    population: int  # candidates in a generation
    needs_critic: bool  # whether `ask` or `tell` use the critic
    takes_lessons: bool  # whether an individual that learnt before it was tried may be told
    has_upcoming: bool  # whether it knows who comes next, and says so by `upcoming(state, n)`

    def init(self, key: Array, new_individual: Callable[[int], Individual]) -> S:
        """A new state. `new_individual(k)` makes the k-th new individual."""
        ...

    def ask(self, key: Array, state: S, places: Sequence[int], critic: Critic | None) -> tuple[list[Candidate], S]:
        """A candidate for each of these places; for the first of them only, where the others must wait for outcomes."""
        ...

    def tell(self, key: Array, state: S, outcomes: Sequence[Outcome], critic: Critic | None) -> S:
        """The state after these outcomes."""
        ...

    def inject(self, state: S, newcomer: Individual) -> S:
        """The state with a clone of the learner among those that are tried next."""
        ...

    def champion(self, state: S) -> Actor:
        """The policy that stands for all: the fittest, or the mean of a search distribution."""
        ...

    def report(self, state: S, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """What a record says of the evolver, of these outcomes since the last one."""
        ...


@runtime_checkable
class Strategy(Protocol[S]):
    """A search distribution over flat vectors. `evolution.adapter` makes an `Evolver` of it."""

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
        """The state after some vectors, their fitness and that of the mean they are compared with."""
        ...

    def mean(self, state: S) -> np.ndarray:
        """The mean."""
        ...

    def report(self, state: S) -> dict[str, Any]:
        """What a record says of it."""
        ...


@runtime_checkable
class Learner(Protocol[L]):
    """An off-policy actor-critic learner. Its state has `updates`, the gradient steps so far."""

    warmup: int  # no learning until the replay holds more than this

    def init(self, key: Array, actor: Any) -> L:
        """A learner that begins with this actor."""
        ...

    def actor(self, state: L) -> Any:
        """The policy learnt so far, deterministic."""
        ...

    def critic(self, state: L) -> Critic:
        """Q(s, a)."""
        ...

    def explore(self, key: Array, state: L, last: Array, steps: int, seen: int) -> tuple[Any, np.ndarray]:
        """The actor of an exploring episode and the noise on its actions, which follows the row `last`. `seen` rows are in the replay."""
        ...

    def update(self, key: Array, state: L, replay: Buffer, steps: int) -> L:
        """Gradient steps of critic and actor together."""
        ...

    def report(self, state: L) -> dict[str, Any]:
        """Losses and gradient steps, for the record."""
        ...


@runtime_checkable
class Teacher(Learner[L], Protocol[L]):
    """A learner that gives lessons: others may climb its critic."""

    def individual(self, key: Array, actor: Any) -> Any:
        """What evolves, made of a new actor: SAC adds the spread of its distribution."""
        ...

    def teacher(self, state: L) -> Any:
        """What `improve` needs, frozen: the critic (SAC: and its temperature)."""
        ...

    def update_critic(self, key: Array, state: L, policy: Any, replay: Buffer, steps: int) -> L:
        """Gradient steps of the critic alone, towards the value of the given policy."""
        ...

    def improve(self, key: Array, actor: Any, teacher: Any, states: Array, filled: Array, steps: int) -> Any:
        """The actor after gradient steps up the frozen critic, on states drawn from the first `filled` rows."""
        ...


@runtime_checkable
class Algorithm(Protocol[S]):
    """What to try (`ask`), what to make of it (`tell`), and how to learn from it (`learn`): all that a schedule and a run ask for.

    `ask` and `tell` never write `state.learner`; `learn` writes nothing else. The state given to `tell` must not be used again.
    """

    preset: str  # the name it goes by
    task: Task
    schedule: str  # "synchronous" or "asynchronous"
    generation: int  # candidates in a generation, or between two records
    budget: float  # frames that it is trained for where nothing is said
    test_episodes: int
    test_every: int  # generations

    def settings(self) -> dict[str, Any]:
        """The settings that its paper gives per task, for the reader."""
        ...

    def init(self, key: Array) -> S:
        """A new state."""
        ...

    def ask(self, key: Array, state: S, n: int) -> tuple[list[Candidate], S]:
        """The next n to try; fewer where outcomes or gradient steps must come first."""
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
        """How many more candidates belong to this generation, now that its others were told and learnt from."""
        ...

    def forget_workers(self, state: S) -> S:
        """The state with all candidates that are out to be issued again: after a checkpoint was read, none is at work."""
        ...

    def champion(self, state: S) -> Any:
        """The policy to take home."""
        ...

    def policies(self, state: S) -> dict[str, Any]:
        """The policies worth testing, by name; the champion or, where it is alone, the learner."""
        ...

    def report(self, state: S, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """What a record of the generation says besides its outcomes."""
        ...


class Workers(Protocol):
    """Where candidates are tried, and where learning goes on meanwhile.

    Candidates that are submitted, and the learning, come back by `next` in the order in which they are done.
    """

    name: str
    idle: int  # how many more candidates could be at work
    busy: int  # how many are
    learning: bool  # whether learning is under way, or done and not handed out yet

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Try them all; their outcomes, in the same order."""
        ...

    def submit(self, candidate: Candidate) -> None:
        """Have it tried."""
        ...

    def learn_in_background(self, learn: Callable[[Array, Any], Any], key: Array, state: Any, steps: int) -> None:
        """Have `learn(key, state)` done, which takes `steps` gradient steps."""
        ...

    def next(self, wait: bool) -> Outcome | LearningResult | None:
        """What is done and was not handed out yet; if there is nothing, wait for it or return None.

        With no candidate at work and no learning under way, None at once.
        """
        ...

    def close(self) -> None:
        """Free what they hold."""
        ...


class Engine(Protocol):
    """Plays episodes side by side. What an episode brings depends on its seed and its actions alone."""

    def begin(self, seeds: Sequence[int], threads: int) -> np.ndarray:
        """Start one episode per seed, on at most so many threads of its own; the first observations."""
        ...

    def restart(self, which: np.ndarray) -> np.ndarray:
        """Start the next episode of these, given by index, whose random numbers go on where they were; the first observations."""
        ...

    def step(self, actions: np.ndarray, live: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Step the live episodes, given by index, and no others: observations, rewards, terminated, truncated of each.

        A time limit that the task's spaces name is the caller's to watch; an engine need not call it truncated.
        """
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...
