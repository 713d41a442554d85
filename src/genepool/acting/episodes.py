"""Whole episodes of several actors, played in step: each step asks every actor, then steps every environment."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from genepool.acting.batch import ActorBatch, index
from genepool.environments.task import Task
from genepool.errors import EpisodeFailed, UserError
from genepool.protocols import Actor, Engine
from genepool.types import Transitions


class Rollout(NamedTuple):
    """One episode to play, or a stream of episodes: as many, one after the other, as fill `steps` steps."""

    actor: Actor
    noise: np.ndarray | None  # on the actions, [steps, width]
    seed: int
    steps: int = 0  # 0: one episode, not a stream


class RolloutResult(NamedTuple):
    """What a rollout gave: the transitions of its episodes one after the other, and the length of each episode."""

    transitions: Transitions
    lengths: tuple[int, ...]
    truncated: bool  # whether the stream ended in the middle of its last episode


class EpisodeEnd(NamedTuple):
    """The end of an episode."""

    step: int  # counted from the beginning of the rollout
    terminated: bool
    observation: np.ndarray  # the last one


class Running:
    """The rollouts that still run, the step by which the episode of each must end, and the ends so far."""

    def __init__(self, rollouts: Sequence[Rollout], horizon: int):
        self._horizon = horizon
        self._length = np.array([rollout.steps or horizon for rollout in rollouts])
        self._limit = np.minimum(self._length, horizon)  # the step by which the episode must end
        self.streams = np.array([rollout.steps > 0 for rollout in rollouts])  # whether each rollout is a stream
        self.longest = int(self._length.max())
        self.live = np.arange(len(rollouts), dtype=np.int32)  # the indices of the rollouts that still run
        self.columns: slice | np.ndarray = slice(len(rollouts))  # `live`, as the quickest index
        self.next_limit = int(self._limit.min())
        self.ends: list[list[EpisodeEnd]] = [[] for _ in rollouts]

    def end_episodes(
        self, step: int, observation: np.ndarray, terminated: np.ndarray, truncated: np.ndarray
    ) -> np.ndarray:
        """Note the episodes that end with this step. Returns the indices of the streams that begin a new one."""
        over = terminated | truncated | (self._limit[self.live] <= step)
        for k in np.flatnonzero(over):
            end = EpisodeEnd(step, bool(terminated[k]), observation[k].copy())
            self.ends[self.live[k]].append(end)
        plays_on = self.streams[self.live] & (self._length[self.live] > step)
        restarting = self.live[over & plays_on]
        self._limit[restarting] = np.minimum(self._length[restarting], step + self._horizon)
        if over.sum() > len(restarting):
            self.live = self.live[~over | plays_on]
            if not len(self.live):
                return restarting
            self.columns = index(self.live.tolist())
        self.next_limit = int(self._limit[self.live].min())
        return restarting


class StepTable(NamedTuple):
    """What all rollouts saw and did, step by step."""

    observations: np.ndarray  # [steps + 1, rollouts, |S|]
    actions: np.ndarray  # [steps, rollouts, |A|]
    rewards: np.ndarray  # [steps, rollouts]


def play(task: Task, engine: Engine, threads: int, rollouts: Sequence[Rollout]) -> list[RolloutResult]:
    """Play all rollouts, each with its own actor, seed and noise. The results do not depend on one another."""
    n = len(rollouts)
    seeds = [rollout.seed for rollout in rollouts]
    observation_size = task.observation_size
    action_size = task.action_size
    actors = [rollout.actor for rollout in rollouts]
    noises = [rollout.noise for rollout in rollouts]
    batch = ActorBatch(actors, noises, observation_size, action_size)
    running = Running(rollouts, task.horizon)
    table = StepTable(
        np.zeros((running.longest + 1, n, observation_size), np.float32),
        np.zeros((running.longest, n, action_size), np.float32),
        np.zeros((running.longest, n), np.float32),
    )
    _play_to_the_end(task, engine, threads, seeds, batch, running, table)
    _check_finite(task, "a reward", table.rewards, seeds, 1)  # no action depends on rewards: one check for all
    return [
        _result(task, bool(running.streams[k]), running.ends[k], *(column[:, k] for column in table)) for k in range(n)
    ]


def _play_to_the_end(
    task: Task,
    engine: Engine,
    threads: int,
    seeds: Sequence[int],
    batch: ActorBatch,
    running: Running,
    table: StepTable,
) -> None:
    """Write every step into the table until no rollout runs."""
    observations, actions, rewards = table
    to_environment = task.spaces.to_environment
    t = 0
    try:
        observations[0] = engine.begin(seeds, threads)
        _check_finite(task, "an observation", observations[:1], seeds, 0)
        for t in range(running.longest):
            action = actions[t, running.columns] = batch.act(observations[t], running.live, t)
            observation, reward, terminated, truncated = engine.step(to_environment(action), running.live)
            observations[t + 1, running.columns] = observation
            rewards[t, running.columns] = reward
            _check_finite(task, "an observation", observations[t + 1 : t + 2], seeds, t + 1)
            # for so few values Python's any is quicker than NumPy's
            if t + 1 < running.next_limit and not (any(terminated.tolist()) or any(truncated.tolist())):
                continue
            restarting = running.end_episodes(t + 1, observation, terminated, truncated)
            if len(restarting):
                observations[t + 1, restarting] = engine.restart(restarting)
                _check_finite(task, "an observation", observations[t + 1 : t + 2], seeds, 0)
            if not len(running.live):
                break
    except EpisodeFailed as fault:
        cause = fault.__cause__
        where = f"in the episode with seed {seeds[fault.episode]}, step {t + 1}"
        raise UserError(f"{task.id} raised {type(cause).__name__} {where}: {cause}") from cause


def returns(results: Sequence[RolloutResult]) -> tuple[float, ...]:
    """The undiscounted return of each episode. Truncated episodes count only if no episode finished."""
    values: list[float] = []
    finished: list[float] = []
    for result in results:
        ends = np.cumsum(result.lengths)
        for begin, end in zip(ends - result.lengths, ends, strict=True):
            value = float(np.sum(result.transitions.reward[begin:end], dtype=np.float64))
            values.append(value)
            if not result.truncated or end < ends[-1]:
                finished.append(value)
    return tuple(finished) or tuple(values)


def _result(
    task: Task,
    stream: bool,
    ends: Sequence[EpisodeEnd],
    observations: np.ndarray,
    actions: np.ndarray,
    rewards: np.ndarray,
) -> RolloutResult:
    """The result of one rollout, from its own observations, actions and rewards, in order of the steps."""
    steps = np.array([end.step for end in ends])
    total = ends[-1].step
    lengths = tuple(np.diff([0, *steps]).tolist())
    following = observations[1 : total + 1]
    if len(ends) > 1:  # the observation after an end belongs to the next episode
        following = following.copy()
        following[steps - 1] = [end.observation for end in ends]
    terminated = np.zeros(total, np.float32)
    terminated[steps - 1] = [end.terminated for end in ends]
    truncated = stream and not terminated[-1] and lengths[-1] < task.horizon
    if task.truncation_is_terminal:
        terminated[steps[: len(steps) - truncated] - 1] = 1.0
    rows = Transitions(observations[:total], actions[:total], rewards[:total], following, terminated)
    return RolloutResult(rows, lengths, truncated)


def _check_finite(task: Task, what: str, values: np.ndarray, seeds: Sequence[int], first: int) -> None:
    """Refuse values that are not finite, [steps, rollouts, ...], before they reach a memory or a network."""
    # a finite sum of squares proves all finite, and is quicker than a look at each
    if math.isfinite(np.vdot(values, values)):
        return
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        step, episode = bad[0, :2].tolist()
        where = f"in the episode with seed {seeds[episode]}, step {first + step}"
        raise UserError(f"{task.id} returned {what} that is not finite {where}")
