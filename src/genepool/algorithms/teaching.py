"""What the coupling `Lessons` is made of.

Which individuals take a lesson (CEM-RL; AES-RL, Eq. 3), the critics that give lessons, and random play before them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import equinox as eqx
import jax
import numpy as np
from jax import Array

from genepool import trees
from genepool.algorithms.in_flight import InFlight, draw_seeds
from genepool.buffer import Buffer
from genepool.errors import check_at_least
from genepool.learning.lessons import GradientLesson
from genepool.learning.offpolicy import random_player
from genepool.networks import Actor, SquashedGaussian, deterministic
from genepool.parts import part
from genepool.protocols import Teacher
from genepool.types import Candidate, Individual


@part
class FirstHalf:
    """CEM-RL: the first individuals of every generation take a lesson. Each has a mirrored twin without one."""

    taught: int = 5  # n_grad: how many

    def __post_init__(self):
        check_at_least(1, self, "taught")

    def chance(self, place: int, with_lesson: int, without: int) -> float:
        """The probability that the individual in this place of its generation takes a lesson."""
        return float(place < self.taught)


@part
class Controlled:
    """AES-RL Eq. 3: p_rl = clip(-K (n_rl / (n_rl + n_es) - p_des) + 1/2, 0, 1), which keeps the share near p_des."""

    share: float = 0.5  # p_des: the share of individuals that take a lesson
    gain: float = 50.0  # K
    unbiased: bool = True  # p_des in place of the printed 1/2, which settles at p_des + (1/2 - p_des) / K
    taught: ClassVar[int] = 1  # how many individuals' values the critics learn, if not the mean's

    def chance(self, place: int, with_lesson: int, without: int) -> float:
        """The probability that the next individual takes a lesson."""
        rest = self.share if self.unbiased else 0.5
        return min(1.0, max(0.0, -self.gain * (with_lesson / (with_lesson + without) - self.share) + rest))


class LearnerWithTeachers(eqx.Module):
    """The learner, and the frozen critics that give lessons."""

    inner: Any
    teachers: tuple[Any, ...]

    @property
    def updates(self) -> np.ndarray:
        """Critic steps so far."""
        return self.inner.updates

    def learn(
        self, learner: Teacher[Any], key: Array, policies: Sequence[Any], replay: Buffer, steps: int, kept: int
    ) -> "LearnerWithTeachers":
        """Critic steps in equal blocks, one for the value of each policy. The critics of the last blocks are kept."""
        inner = self.inner
        teachers: list[Any] = []
        for k, policy in enumerate(policies):
            block = steps // (len(policies) - k)
            steps -= block
            inner = learner.update_critic(jax.random.fold_in(key, k), inner, policy, replay, block)
            teachers.append(learner.teacher(inner))
        return LearnerWithTeachers(inner, tuple(teachers[-kept:]))

    def lesson(
        self, learner: Teacher[Any], key: Array, place: int, replay: Buffer, steps: np.ndarray
    ) -> GradientLesson:
        """A lesson of so many steps on the replay's states, by the critic for this place of a generation."""
        data = np.asarray(jax.random.key_data(key))
        teacher = self.teachers[place % len(self.teachers)]
        return GradientLesson(learner, data, teacher, replay.data.observation, replay.size, np.asarray(steps))


class Warming(Protocol):
    """The fields of a coupling's state that say how many frames it has and will have."""

    frames: np.ndarray
    lengths: np.ndarray
    in_flight: InFlight


def expects_warmup(state: Warming, lost: int, warmup: int, horizon: int) -> bool:
    """Whether the warm-up is still short of frames, counting those that candidates at work are expected to add."""
    at_work = int(state.in_flight.asked - state.in_flight.told_count) - lost
    lengths = state.lengths[state.lengths > 0]
    expected = at_work * float(lengths.mean() if len(lengths) else horizon)
    return bool(state.frames + expected < warmup)


def random_play(
    key: Array,
    rng: np.random.Generator,
    champion: Actor | SquashedGaussian,
    horizon: int,
    trials: int,
    member: Candidate | None,
) -> Candidate:
    """An episode of random actions. A `member` keeps its reference, and the return is credited to its weights."""
    player, noise = random_player(key, deterministic(champion), horizon)
    seeds = draw_seeds(rng, trials)[:1]
    individual = Individual(player, None)
    if member is None:
        return Candidate(individual, seeds, noise, purpose="warm-up")
    weights = trees.flat(member.individual.actor)
    return replace(member, individual=individual, seeds=seeds, noise=noise, purpose="warm-up", credited=weights)
