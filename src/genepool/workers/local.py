"""Local workers: all the episodes of a generation, played side by side in this process."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jax import Array

from genepool.environments.task import Engine, Task
from genepool.errors import EpisodeFailed, UserError
from genepool.machine import cores
from genepool.types import Candidate, Individual, Learnt, Outcome, Transitions

CAPACITY = 64  # episodes that a core plays at once; of more, one batch after the other
CACHE = 8 * 2**20  # bytes of weights that a core reads in turn: more would come from memory in every step
LANES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, CAPACITY)  # sizes that programs are compiled for

Ticket = tuple[Any, np.ndarray | None, int]  # an episode's actor, noise and seed


class LocalWorkers:
    """Plays candidates on one task, in this process. An outcome does not depend on who is played beside it.

    To the asynchronous schedule it is one worker, and learning is done when it is asked for: the serial loop.
    """

    name, studying = "local", False

    def __init__(self, task: Task):
        self.task = task
        self._engines: list[Engine] = []  # those that nobody plays with
        self._submitted: deque[Candidate] = deque()
        self._learnt: deque[Learnt] = deque()

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Have every candidate take its lesson and play its episodes; the outcomes in the order of the candidates."""
        individuals = taught(candidates)
        tickets = []
        for candidate, individual in zip(candidates, individuals, strict=True):
            tickets += [(individual.actor, candidate.noise, seed) for seed in candidate.seeds]
            tickets += [(candidate.reference, None, seed) for seed in candidate.reference_seeds]
        episodes = self._play(tickets)
        outcomes = []
        for candidate, individual in zip(candidates, individuals, strict=True):
            own, episodes = episodes[: len(candidate.seeds)], episodes[len(candidate.seeds) :]
            beside, episodes = episodes[: len(candidate.reference_seeds)], episodes[len(candidate.reference_seeds) :]
            rows = Transitions(*(np.concatenate(column) for column in zip(*own, strict=True)))
            frames = sum(len(episode.reward) for episode in beside)
            outcomes.append(Outcome(candidate, individual, returns(own), rows, returns(beside), frames))
        return outcomes

    def _play(self, tickets: list[Ticket]) -> list[Transitions]:
        """An episode for each ticket: all cores play one batch together, or each plays batches of its own."""
        if not tickets:
            return []
        threads = self.task.threads
        batches = batched(tickets, threads)
        crew = min(threads, len(batches))

        def go(batch: list[Ticket]) -> list[Transitions]:
            try:
                engine = self._engines.pop()
            except IndexError:
                engine = self.task.open()
            try:
                return play(self.task, engine, threads // crew, *zip(*batch, strict=True))
            finally:
                self._engines.append(engine)

        if crew == 1:
            return [episode for batch in batches for episode in go(batch)]
        with ThreadPoolExecutor(crew) as pool:
            return [episode for episodes in pool.map(go, batches) for episode in episodes]

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
        while self._engines:
            self._engines.pop().close()


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


def batched(tickets: list[Ticket], crew: int) -> list[list[Ticket]]:
    """The tickets in order: in one batch if they fit, else in batches of about the same size, as many for each of a crew."""
    heaviest = max(sum(4 * np.size(leaf) for leaf in jax.tree.leaves(actor)) for actor, _, _ in tickets)
    most = min(max(CACHE // heaviest, 1), CAPACITY)
    if len(tickets) <= most:
        return [tickets]
    count = min(crew * -(-len(tickets) // (most * crew)), len(tickets))
    borders = [len(tickets) * k // count for k in range(count + 1)]
    return [tickets[begin:end] for begin, end in pairwise(borders)]


def returns(episodes: Sequence[Transitions]) -> tuple[float, ...]:
    """The undiscounted return of each episode."""
    return tuple(float(np.sum(episode.reward, dtype=np.float64)) for episode in episodes)


def play(
    task: Task,
    engine: Engine,
    threads: int,
    actors: Sequence[Any],
    noises: Sequence[np.ndarray | None],
    seeds: Sequence[int],
) -> list[Transitions]:
    """One episode per seed, each with its own actor and its own noise on the actions, if any."""
    n, horizon, spaces = len(seeds), task.horizon, task.spaces
    crowd = Crowd(actors, noises, spaces.observation_size, spaces.action_size)
    observations = np.zeros((horizon + 1, n, spaces.observation_size), np.float32)
    actions = np.zeros((horizon, n, spaces.action_size), np.float32)
    rewards = np.zeros((horizon, n), np.float32)
    length, terminal = np.full(n, horizon), np.zeros(n, np.float32)
    live = np.arange(n, dtype=np.int32)
    t, rows = 0, slice(n)
    try:
        observations[0] = engine.begin(seeds, threads)
        _inspect(task, observations[0], rewards[0], seeds, live, 0)
        for t in range(horizon):
            action = actions[t, rows] = crowd.act(observations[t], live, t)
            observation, reward, terminated, truncated = engine.step(spaces.to_environment(action), live)
            _inspect(task, observation, reward, seeds, live, t + 1)
            observations[t + 1, rows], rewards[t, rows] = observation, reward
            over = terminated | truncated
            if over.any():
                length[live[over]], terminal[live[over]] = t + 1, terminated[over]
                live = live[~over]
                if not len(live):
                    break
                rows = index(live.tolist())
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
    # a sum of squares is not finite unless all are, and costs a fraction of looking at each
    if math.isfinite(np.vdot(observation, observation) + np.vdot(reward, reward)):
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
            Group(_program(structure, observation_size), episodes, actors, noises, (observation_size, action_size))
            for (structure, _), episodes in kinds.items()
        ]
        self._action_size = action_size

    def act(self, observations: np.ndarray, live: np.ndarray, t: int) -> np.ndarray:
        """The actions of the live episodes' players in step t, [len(live), |A|], within [-1, 1]."""
        actions = np.empty((len(live), self._action_size), np.float32)
        for group in self._groups:
            group.act(observations, live, t, actions)
        return actions


class Group:
    """Those of a crowd that are built alike. Each episode has a lane: a row of every array of one program."""

    def __init__(
        self,
        program: Any,
        episodes: Sequence[int],
        actors: Sequence[Any],
        noises: Sequence[np.ndarray | None],
        sizes: tuple[int, int],
    ):
        self._program, self._sizes = program, sizes
        self._leaves = {k: jax.tree.leaves(actors[k]) for k in episodes}
        self._noises = {k: noises[k] for k in episodes if noises[k] is not None}
        self._lanes: list[int] = []
        self._live: np.ndarray | None = None

    def act(self, observations: np.ndarray, live: np.ndarray, t: int, actions: np.ndarray) -> None:
        """Write the actions of its live episodes' players in step t where they stand among all that are live."""
        if live is not self._live:  # who plays changes seldom
            self._follow(live)
        if not self._playing:
            return
        self._inputs[: len(self._lanes), : self._sizes[0]] = observations[self._seen]
        for lane, noise in self._noise:
            self._inputs[lane, self._sizes[0] :] = noise[t]
        actions[self._places] = np.asarray(self._program(self._inputs, *self._weights))[self._taken]

    def _follow(self, live: np.ndarray) -> None:
        """Take note of who is live. When half the lanes are of no use, the rest move to a smaller program."""
        places = {k: place for place, k in enumerate(live.tolist()) if k in self._leaves}
        self._live, self._playing = live, bool(places)
        if not places:
            return
        if not self._lanes or 2 * len(places) <= len(self._lanes):
            self._lanes, n = list(places), next(n for n in LANES if n >= len(places))
            self._seen = index(self._lanes)
            self._inputs = np.zeros((n, sum(self._sizes)), np.float32)  # observation, then noise
            self._noise = [(lane, self._noises[k]) for lane, k in enumerate(self._lanes) if k in self._noises]
            columns = zip(*(self._leaves[k] for k in self._lanes), strict=True)
            self._weights = jax.device_put([_lanes(column, n) for column in columns])
        self._places = index(list(places.values()))
        self._taken = index([lane for lane, k in enumerate(self._lanes) if k in places])


def index(rising: list[int]) -> slice | np.ndarray:
    """What picks these rows of an array: a slice if none between them is left out, for it costs a third."""
    first, end = rising[0], rising[-1] + 1
    return slice(first, end) if end - first == len(rising) else np.array(rising)


def _lanes(leaves: Sequence[np.ndarray], n: int) -> np.ndarray:
    """A leaf of n actors, zero where there is none. It begins where JAX takes it as it is, without a copy."""
    shape = (n, *np.shape(leaves[0]))
    memory = np.zeros(math.prod(shape) + 16, np.float32)
    begin = -memory.ctypes.data % 64 // 4
    whole = memory[begin : begin + math.prod(shape)].reshape(shape)
    for lane, leaf in zip(whole, leaves, strict=False):
        lane[...] = leaf
    return whole


@lru_cache(maxsize=32)
def _program(structure: Any, observation_size: int) -> Any:
    """The actions of all lanes, of their inputs and the leaves of their actors, [lanes, ...].

    A lane's bits depend on nothing but what is in it: products are made lane by lane, all else number by number. That
    is so of XLA's own kernels, on one thread; those of its library YNN sum in an order that depends on the size of all.
    """

    def one(row: Array, *leaves: Array) -> Array:
        return jax.tree.unflatten(structure, leaves).explore(row[:observation_size], row[observation_size:])

    options = {"xla_cpu_multi_thread_eigen": False, "xla_cpu_experimental_ynn_fusion_type": ""}
    return jax.jit(jax.vmap(one), compiler_options=options)
