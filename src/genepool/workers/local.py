"""Local workers: all the episodes of a generation, played side by side in this process."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool.environments.task import Engine, Task
from genepool.errors import EpisodeFailed, UserError
from genepool.machine import cores
from genepool.types import Candidate, Individual, Learnt, Outcome, Transitions

CAPACITY = 64  # episodes played at once; of more, one batch after the other


class LocalWorkers:
    """Plays candidates on one task, in this process. An outcome does not depend on who is played beside it.

    To the asynchronous schedule it is one worker, and learning is done when it is asked for: the serial loop.
    """

    name, studying = "local", False

    def __init__(self, task: Task):
        self.task = task
        self._engine: Engine | None = None
        self._submitted: deque[Candidate] = deque()
        self._learnt: deque[Learnt] = deque()

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Have every candidate take its lesson and play its episodes; the outcomes in the order of the candidates."""
        self._engine = self._engine or self.task.open()
        individuals = taught(candidates)
        tickets = []
        for candidate, individual in zip(candidates, individuals, strict=True):
            tickets += [(individual.actor, candidate.noise, seed) for seed in candidate.seeds]
            tickets += [(candidate.reference, None, seed) for seed in candidate.reference_seeds]
        episodes = []
        for begin in range(0, len(tickets), CAPACITY):
            actors, noises, seeds = zip(*tickets[begin : begin + CAPACITY], strict=True)
            episodes += play(self.task, self._engine, actors, noises, seeds)
        outcomes = []
        for candidate, individual in zip(candidates, individuals, strict=True):
            own, episodes = episodes[: len(candidate.seeds)], episodes[len(candidate.seeds) :]
            beside, episodes = episodes[: len(candidate.reference_seeds)], episodes[len(candidate.reference_seeds) :]
            rows = Transitions(*(np.concatenate(column) for column in zip(*own, strict=True)))
            frames = sum(len(episode.reward) for episode in beside)
            outcomes.append(Outcome(candidate, individual, returns(own), rows, returns(beside), frames))
        return outcomes

    @property
    def idle(self) -> int:
        """One, while nothing is submitted."""
        return 1 - len(self._submitted)

    @property
    def busy(self) -> int:
        """One, while something is."""
        return len(self._submitted)

    def submit(self, candidate: Candidate) -> None:
        """Play it when it is waited for."""
        self._submitted.append(candidate)

    def study(self, learn: Callable[[Array, Any], Any], key: Array, state: Any, steps: int) -> None:
        """Learn here and now; the result is the next thing that is done."""
        self._learnt.append(Learnt(jax.block_until_ready(learn(key, state))))

    def next(self, wait: bool) -> Outcome | Learnt | None:
        """What was learnt, or what comes of the candidate that was submitted."""
        if self._learnt:
            return self._learnt.popleft()
        return self.map([self._submitted.popleft()])[0] if wait and self._submitted else None

    def close(self) -> None:
        """Free the environments."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def taught(candidates: Sequence[Candidate]) -> list[Individual]:
    """The candidates' individuals after their lessons. Lessons are independent: each core gives its own."""

    def learn(candidate: Candidate) -> Individual:
        if candidate.lesson is None:
            return candidate.individual
        return candidate.individual._replace(actor=jax.block_until_ready(candidate.lesson(candidate.individual.actor)))

    if not any(candidate.lesson for candidate in candidates):
        return [candidate.individual for candidate in candidates]
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(learn, candidates))


def returns(episodes: Sequence[Transitions]) -> tuple[float, ...]:
    """The undiscounted return of each episode."""
    return tuple(float(np.sum(episode.reward, dtype=np.float64)) for episode in episodes)


def play(
    task: Task, engine: Engine, actors: Sequence[Any], noises: Sequence[np.ndarray | None], seeds: Sequence[int]
) -> list[Transitions]:
    """One episode per seed, each with its own actor and its own noise on the actions, if any."""
    n, horizon, spaces = len(seeds), task.horizon, task.spaces
    crowd = Crowd(actors, noises, spaces.observation_size, spaces.action_size)
    observations = np.zeros((horizon + 1, n, spaces.observation_size), np.float32)
    actions = np.zeros((horizon, n, spaces.action_size), np.float32)
    rewards = np.zeros((horizon, n), np.float32)
    length, terminal = np.full(n, horizon), np.zeros(n, np.float32)
    live = np.arange(n, dtype=np.int32)
    t = 0
    try:
        observations[0] = engine.begin(seeds)
        _inspect(task, observations[0], rewards[0], seeds, live, 0)
        for t in range(horizon):
            action = actions[t, live] = crowd.act(observations[t], live, t)
            observation, reward, terminated, truncated = engine.step(spaces.to_environment(action), live)
            _inspect(task, observation, reward, seeds, live, t + 1)
            observations[t + 1, live], rewards[t, live] = observation, reward
            over = terminated | truncated
            if over.any():
                length[live[over]], terminal[live[over]] = t + 1, terminated[over]
                live = live[~over]
                if not len(live):
                    break
    except EpisodeFailed as fault:
        cause, seed = fault.__cause__, seeds[fault.episode]
        raise UserError(
            f"{task.id} raised {type(cause).__name__} in the episode with seed {seed}, step {t + 1}: {cause}"
        ) from cause
    if task.truncation_is_terminal:
        terminal[:] = 1.0

    def episode(k: int) -> Transitions:
        end = length[k]
        terminated = np.zeros(end, np.float32)
        terminated[-1] = terminal[k]
        return Transitions(
            observations[:end, k], actions[:end, k], rewards[:end, k], observations[1 : end + 1, k], terminated
        )

    return [episode(k) for k in range(n)]


def _inspect(
    task: Task, observation: np.ndarray, reward: np.ndarray, seeds: Sequence[int], live: np.ndarray, step: int
) -> None:
    """Refuse what is not a number before it gets into a memory or a network."""
    # a sum is finite if all are, and one sum costs a tenth of looking at each
    if np.isfinite(observation.sum() + reward.sum()):
        return
    bad = ~(np.isfinite(observation).all(axis=1) & np.isfinite(reward))
    if bad.any():
        what = "an observation" if not np.isfinite(observation[bad]).all() else "a reward"
        raise UserError(
            f"{task.id} returned {what} that is not finite in the episode with seed {seeds[live[bad][0]]}, step {step}"
        )


class Crowd:
    """The actors of a batch of episodes, asked for their actions together, however differently they are built."""

    def __init__(
        self, actors: Sequence[Any], noises: Sequence[np.ndarray | None], observation_size: int, action_size: int
    ):
        kinds: dict[Any, list[int]] = {}
        for k, actor in enumerate(actors):
            leaves, structure = jax.tree.flatten(actor)
            kinds.setdefault((structure, tuple(np.shape(leaf) for leaf in leaves)), []).append(k)
        self._groups = [
            Group(
                _program(*kind, observation_size, action_size), episodes, actors, noises, observation_size, action_size
            )
            for kind, episodes in kinds.items()
        ]
        self._action_size = action_size

    def act(self, observations: np.ndarray, live: np.ndarray, t: int) -> np.ndarray:
        """The actions of the live episodes' players in step t, [len(live), |A|], within [-1, 1]."""
        actions = np.empty((len(live), self._action_size), np.float32)
        for group in self._groups:
            group.act(observations, live, t, actions)
        return actions


class Group:
    """Those of a crowd that are built alike.

    One compiled program of fixed shapes runs one actor after the other, and how many there are only changes how
    often it loops: so the bits of an action cannot depend on who else is there.
    """

    def __init__(
        self,
        program: Any,
        episodes: Sequence[int],
        actors: Sequence[Any],
        noises: Sequence[np.ndarray | None],
        observation_size: int,
        action_size: int,
    ):
        distinct = {id(actors[k]): actors[k] for k in episodes}
        slot = {identity: k for k, identity in enumerate(distinct)}
        flat = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(actor)]) for actor in distinct.values()]
        weights = np.zeros((CAPACITY, flat[0].size), np.float32)
        weights[: len(flat)] = flat
        self._weights = jax.device_put(weights)  # one array: every buffer handed to a program costs microseconds
        self._slots = {k: slot[id(actors[k])] for k in episodes}
        self._noise = {k: noises[k] for k in episodes if noises[k] is not None}
        self._inputs = np.zeros((CAPACITY, observation_size + action_size), np.float32)  # observation, then noise
        self._size = observation_size
        self._program = program
        self._live: np.ndarray | None = None

    def act(self, observations: np.ndarray, live: np.ndarray, t: int, actions: np.ndarray) -> None:
        """Write the actions of its live episodes' players in step t where they stand among all that are live."""
        if live is not self._live:  # who plays changes seldom
            self._live, self._places = live, [place for place, k in enumerate(live.tolist()) if k in self._slots]
            mine = live[self._places]
            plan = np.zeros((2, CAPACITY), np.int32)
            plan[0, : len(mine)], plan[1, : len(mine)] = mine, [self._slots[k] for k in mine.tolist()]
            self._plan, self._count = jax.device_put(plan), jax.device_put(np.int32(len(mine)))
        if not self._places:
            return
        self._inputs[: len(observations), : self._size] = observations
        for k, noise in self._noise.items():
            self._inputs[k, self._size :] = noise[t]
        acted = np.asarray(self._program(self._weights, self._plan, self._count, self._inputs))
        actions[self._places] = acted[: len(self._places)]


@lru_cache(maxsize=32)
def _program(structure: Any, shapes: tuple[tuple[int, ...], ...], observation_size: int, action_size: int) -> Any:
    """Compiled for one architecture: actions of `count` episodes, whose rows and actors the plan names."""
    ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()

    def actor(flat: Array) -> Any:
        parts = zip(shapes, [0, *ends], ends, strict=False)
        return jax.tree.unflatten(structure, [flat[begin:end].reshape(shape) for shape, begin, end in parts])

    def act(weights: Array, plan: Array, count: Array, inputs: Array) -> Array:
        def one(i, actions):
            row = inputs[plan[0, i]]
            action = actor(weights[plan[1, i]]).explore(row[:observation_size], row[observation_size:])
            return actions.at[i].set(action)

        return jax.lax.fori_loop(0, count, one, jnp.zeros((CAPACITY, action_size), jnp.float32))

    of = lambda shape, kind=jnp.float32: jax.ShapeDtypeStruct(shape, kind)
    weights, inputs = of((CAPACITY, ends[-1])), of((CAPACITY, observation_size + action_size))
    return jax.jit(act).lower(weights, of((2, CAPACITY), jnp.int32), of((), jnp.int32), inputs).compile()
