"""What lessons need: which individuals take one (CEM-RL; AES-RL, Eq. 3), the critics they are taken from, random play before."""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jax import Array

from genepool import trees
from genepool.algorithms.in_flight import draw_seeds
from genepool.errors import UserError
from genepool.learning.lessons import Lesson
from genepool.learning.offpolicy import random_player
from genepool.networks import deterministic
from genepool.parts import part
from genepool.types import Candidate, Individual


@part
class FirstHalf:
    """CEM-RL: the first individuals of every generation take a lesson; each has a mirror twin without one."""

    taught: int = 5  # n_grad: how many

    def __post_init__(self):
        if self.taught < 1:
            raise UserError(f"taught is {self.taught}: one individual or more takes a lesson")

    def chance(self, place: int, taught: int, untaught: int) -> float:
        """The probability that the individual in this place of its generation takes a lesson."""
        return float(place < self.taught)


@part
class Controlled:
    """AES-RL Eq. 3: p_rl = clip(-K (n_rl / (n_rl + n_es) - p_des) + 1/2, 0, 1), which keeps the share near p_des."""

    share: float = 0.5  # p_des: the share of individuals that take a lesson
    gain: float = 50.0  # K
    unbiased: bool = True  # p_des in place of the printed 1/2, which settles at p_des + (1/2 - p_des) / K
    taught: ClassVar[int] = 1  # how many of a sample the critic learns the value of, where it does

    def chance(self, place: int, taught: int, untaught: int) -> float:
        """The probability that the next individual takes a lesson."""
        rest = self.share if self.unbiased else 0.5
        return min(1.0, max(0.0, -self.gain * (taught / (taught + untaught) - self.share) + rest))


class LearnerWithTeachers(eqx.Module):
    """The learner, and its frozen critics that lessons are taken from."""

    inner: Any
    teachers: tuple[Any, ...]

    @property
    def updates(self) -> np.ndarray:
        """Critic steps so far."""
        return self.inner.updates

    def lesson(self, learner: Any, key: Array, place: int, replay: Any, steps: np.ndarray) -> Lesson:
        """A lesson of so many steps, from the critic for this place of a generation, on states of the replay as it stands."""
        data, teacher = np.asarray(jax.random.key_data(key)), self.teachers[place % len(self.teachers)]
        return Lesson(learner, data, teacher, replay.data.observation, replay.size, np.asarray(steps))


def random_play(
    key: Array, rng: np.random.Generator, champion: Any, horizon: int, trials: int, member: Candidate | None
) -> Candidate:
    """An episode of random actions. Of a `member` it keeps the weights, which are credited with it, and the reference."""
    player, noise = random_player(key, deterministic(champion), horizon)
    seeds = draw_seeds(rng, trials)[:1]
    if member is None:
        return Candidate(Individual(player, None), seeds, noise, purpose="warm-up")
    own, weights = Individual(player, None), trees.flat(member.individual.actor)
    return replace(member, individual=own, seeds=seeds, noise=noise, purpose="warm-up", credited=weights)
