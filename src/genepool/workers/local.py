"""Local workers: all the episodes of a generation, played side by side on this machine."""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from genepool.acting.batch import CAPACITY, Crowd, index
from genepool.cores import last_cache, map_on_cores
from genepool.environments.task import Task
from genepool.errors import EpisodeFailed, UserError
from genepool.protocols import Engine
from genepool.types import Candidate, Individual, LearningResult, Outcome, Transitions
from genepool.workers import processes as crew

# Bytes of weights that a core reads in turn: half its share of the last cache. More would come from memory in every step; with fewer
# it is more Python than reading. Beyond these bounds nothing was gained where it was tried.
MOST = 32 * 2**20
CACHE = min(max(last_cache() // 2, 8 * 2**20), MOST)


class Ticket(NamedTuple):
    """An episode to be played, or a stream of them."""

    actor: Any
    noise: np.ndarray | None
    seed: int
    steps: int = 0  # of a stream: episodes are played on and on until so many; none: one whole episode


class LocalWorkers:
    """Plays candidates on one task, in this process, and in others beside it unless it is to be alone.

    An outcome does not depend on who is played beside it, nor where.

    To the asynchronous schedule it is one worker, and learning is done when it is asked for: the serial loop.
    """

    name = "local"
    learning = False

    def __init__(self, task: Task, alone: bool = False):
        self.task, self._alone = task, alone
        self._engines: list[Engine] = []  # those that nobody plays with
        self._submitted: deque[Candidate] = deque()
        self._learnt: deque[LearningResult] = deque()

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Play all candidates, after their perturbations and lessons; the outcomes in the order of the candidates."""
        individuals = individuals_to_play(candidates)
        tickets = []
        for candidate, individual in zip(candidates, individuals, strict=True):
            tickets += own_tickets(candidate, individual)
            tickets += [Ticket(candidate.reference, None, seed) for seed in candidate.reference_seeds]
        played = self._play(tickets)
        outcomes = []
        for candidate, individual in zip(candidates, individuals, strict=True):
            own, played = played[: len(candidate.seeds)], played[len(candidate.seeds) :]
            reference, played = played[: len(candidate.reference_seeds)], played[len(candidate.reference_seeds) :]
            rows = Transitions(*(np.concatenate(column) for column in zip(*(p.transitions for p in own), strict=True)))
            frames = sum(sum(p.lengths) for p in reference)
            lengths = tuple(length for p in own for length in p.lengths)
            outcomes.append(Outcome(candidate, individual, returns(own), rows, returns(reference), frames, lengths))
        return outcomes

    def _play(self, tickets: list[Ticket]) -> list["Played"]:
        """What comes of each ticket. A crew plays several batches side by side, this process one of them."""
        if not tickets:
            return []
        cores = 1 if self._alone else self.task.threads
        count = hands(cores, len(tickets))
        batches, mates, begun = batched(tickets, count), crew.take(count - 1), time.perf_counter()
        waiting = deque(sorted(enumerate(batches), key=lambda numbered: -len(numbered[1])))  # so that all end together
        played: list[list[Played]] = [[] for _ in batches]

        def work(play: Callable[[list[Ticket]], list[Played] | None]) -> None:
            while waiting:
                try:
                    k, batch = waiting.popleft()
                except IndexError:  # another was quicker
                    return
                try:
                    several = play(batch)
                except BaseException:  # Ctrl-C, or an episode that failed: nobody need play on
                    waiting.clear()
                    raise
                if several is None:  # by a mate that is lost
                    waiting.append((k, batch))
                    return
                played[k] = several

        here = partial(self._play_here, max(1, cores // count))
        try:
            with ThreadPoolExecutor(count) as pool:
                there = [pool.submit(work, partial(mate.play, self.task)) for mate in mates]
                work(here)
            for mate in there:
                mate.result()
            work(here)  # what a mate could not play
        finally:
            crew.give(mates)
        if len(mates) < count - 1:
            crew.miss(count - 1, time.perf_counter() - begun)
        return [one for several in played for one in several]

    def _play_here(self, threads: int, batch: list[Ticket]) -> list["Played"]:
        engine = self._engines.pop() if self._engines else self.task.open()
        try:
            return play(self.task, engine, threads, batch)
        finally:
            self._engines.append(engine)

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

    def learn_in_background(self, learn: Callable[[Array, Any], Any], key: Array, state: Any, steps: int) -> None:
        """Learn here and now; the result is handed out next."""
        self._learnt.append(LearningResult(jax.block_until_ready(learn(key, state).learner)))

    def next(self, wait: bool) -> Outcome | LearningResult | None:
        """What was learnt, or what comes of the candidate that was submitted."""
        if self._learnt:
            return self._learnt.popleft()
        return self.map([self._submitted.popleft()])[0] if wait and self._submitted else None

    def close(self) -> None:
        """Free the environments."""
        while self._engines:
            self._engines.pop().close()


def hands(cores: int, episodes: int) -> int:
    """Processes that play so many episodes: each has as many as there are processes, or it would be more Python than physics."""
    return min(cores, math.isqrt(episodes))


def individuals_to_play(candidates: Sequence[Candidate]) -> list[Individual]:
    """The candidates' individuals, perturbed first and then after their lessons. All cores share the work."""

    def changed(candidate: Candidate) -> Individual:
        actor = candidate.individual.actor
        if candidate.perturbation is not None:
            actor = candidate.perturbation(actor)
        if candidate.lesson is not None:
            actor = candidate.lesson(actor)
        return candidate.individual._replace(actor=actor)

    if all(candidate.perturbation is None and candidate.lesson is None for candidate in candidates):
        return [candidate.individual for candidate in candidates]
    return map_on_cores(changed, candidates)


def batched(tickets: list[Ticket], crew: int) -> list[list[Ticket]]:
    """The tickets in order, in batches of about the same size, as many for each of a crew."""
    heaviest = max(sum(4 * np.size(leaf) for leaf in jax.tree.leaves(ticket.actor)) for ticket in tickets)
    most = min(max(CACHE // heaviest, 1), CAPACITY)
    count = min(crew * -(-len(tickets) // (most * crew)), len(tickets))
    borders = [len(tickets) * k // count for k in range(count + 1)]
    return [tickets[begin:end] for begin, end in pairwise(borders)]


class Played(NamedTuple):
    """What came of a ticket: the transitions of its episodes one after the other, and how long each was."""

    transitions: Transitions
    lengths: tuple[int, ...]
    cut: bool  # whether the last one was still under way when the stream ended


class End(NamedTuple):
    """The end of an episode."""

    step: int  # counted from the beginning of the stream
    terminated: bool
    observation: np.ndarray  # the last one


def own_tickets(candidate: Candidate, individual: Individual) -> list[Ticket]:
    """What a candidate plays itself."""
    steps = candidate.steps or (0,) * len(candidate.seeds)
    own = candidate.noise is not None and candidate.noise.ndim == 3
    noises = candidate.noise if own else (candidate.noise,) * len(candidate.seeds)
    return [Ticket(individual.actor, *ticket) for ticket in zip(noises, candidate.seeds, steps, strict=True)]


def returns(played: Sequence[Played]) -> tuple[float, ...]:
    """The undiscounted return of each episode; of those that were cut short, only where there are no others."""
    sums, whole = [], []
    for p in played:
        ends = np.cumsum(p.lengths)
        for begin, end in zip(ends - p.lengths, ends, strict=True):
            sums.append(float(np.sum(p.transitions.reward[begin:end], dtype=np.float64)))
            whole.append(not p.cut or end < ends[-1])
    return tuple(value for value, kept in zip(sums, whole, strict=True) if kept) or tuple(sums)


def play(task: Task, engine: Engine, threads: int, tickets: Sequence[Ticket]) -> list[Played]:
    """One episode per ticket, or a stream of episodes, each with its own actor and its own noise on the actions, if any."""
    n, spaces, seeds = len(tickets), task.spaces, [ticket.seed for ticket in tickets]
    streams = np.array([ticket.steps > 0 for ticket in tickets])
    length = np.array([ticket.steps or task.horizon for ticket in tickets])  # the most steps that each can take
    longest = int(length.max())
    crowd = Crowd([t.actor for t in tickets], [t.noise for t in tickets], spaces.observation_size, spaces.action_size)
    observations = np.zeros((longest + 1, n, spaces.observation_size), np.float32)
    actions = np.zeros((longest, n, spaces.action_size), np.float32)
    rewards = np.zeros((longest, n), np.float32)
    ends: list[list[End]] = [[] for _ in tickets]
    limit = np.minimum(length, task.horizon)  # the step by which each must end or begin anew
    live = np.arange(n, dtype=np.int32)
    t, rows, next_limit = 0, slice(n), int(limit.min())
    try:
        observations[0] = engine.begin(seeds, threads)
        _inspect(task, "an observation", observations[:1], seeds, 0)
        for t in range(longest):
            action = actions[t, rows] = crowd.act(observations[t], live, t)
            observation, reward, terminated, truncated = engine.step(spaces.to_environment(action), live)
            observations[t + 1, rows], rewards[t, rows] = observation, reward
            _inspect(task, "an observation", observations[t + 1 : t + 2], seeds, t + 1)
            if t + 1 < next_limit and not (any(terminated.tolist()) or any(truncated.tolist())):
                continue  # of a few, NumPy's any takes ten times as long
            over = terminated | truncated | (limit[live] <= t + 1)
            for place in np.flatnonzero(over):
                ends[live[place]].append(End(t + 1, bool(terminated[place]), observation[place].copy()))
            anew = live[over & streams[live] & (length[live] > t + 1)]
            if len(anew):
                observations[t + 1, anew] = engine.restart(anew)
                _inspect(task, "an observation", observations[t + 1 : t + 2], seeds, 0)
                limit[anew] = np.minimum(length[anew], t + 1 + task.horizon)
            if over.sum() > len(anew):
                live = live[~over | (streams[live] & (length[live] > t + 1))]
                if not len(live):
                    break
                rows = index(live.tolist())
            next_limit = int(limit[live].min())
    except EpisodeFailed as fault:
        cause = fault.__cause__
        where = f"in the episode with seed {seeds[fault.episode]}, step {t + 1}"
        raise UserError(f"{task.id} raised {type(cause).__name__} {where}: {cause}") from cause
    _inspect(task, "a reward", rewards, seeds, 1)  # no action depends on them, so all at once
    tables = (observations, actions, rewards)
    return [_played(task, bool(streams[k]), ends[k], *(table[:, k] for table in tables)) for k in range(n)]


def _played(
    task: Task, stream: bool, ends: list[End], observations: np.ndarray, actions: np.ndarray, rewards: np.ndarray
) -> Played:
    """What came of one ticket, of its own observations, actions and rewards, in order of the steps."""
    at = [end.step for end in ends]
    lengths, total = tuple(np.diff([0, *at]).tolist()), at[-1]
    following, terminated = observations[1 : total + 1], np.zeros(total, np.float32)
    if len(at) > 1:  # what came after an end is another episode's
        following = following.copy()
        following[np.array(at) - 1] = [end.observation for end in ends]
    terminated[np.array(at) - 1] = [end.terminated for end in ends]
    cut = stream and not terminated[-1] and lengths[-1] < task.horizon
    if task.truncation_is_terminal:
        terminated[np.array(at)[: len(at) - cut] - 1] = 1.0
    rows = Transitions(observations[:total], actions[:total], rewards[:total], following, terminated)
    return Played(rows, lengths, cut)


def _inspect(task: Task, what: str, values: np.ndarray, seeds: Sequence[int], first: int) -> None:
    """Refuse what is not a number, [steps, episodes, ...], before it gets into a memory or a network."""
    # a sum of squares is not finite unless all are, and costs a fraction of looking at each
    if math.isfinite(np.vdot(values, values)):
        return
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        step, episode = bad[0, :2].tolist()
        raise UserError(
            f"{task.id} returned {what} that is not finite in the episode with seed {seeds[episode]}, step {first + step}"
        )
