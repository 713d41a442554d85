"""Evolution strategies whose individuals are taught: CEM-RL (Pourchot and Sigaud 2019) and AES-RL (Lee et al. 2020).

A search distribution hands out individuals; some of them take a lesson, gradient steps against a frozen critic, before
they are tried; everybody's transitions train the critic. Whether generations are awaited (CEM-RL, P-CEM-RL) or every
outcome is told as it comes (AES-RL) is up to the schedule. Without a learner it is the strategy alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

import equinox as eqx
import jax
import numpy as np
import tyro
from jax import Array

from genepool import buffer, trees
from genepool.algorithms.roll import Roll, draw_seeds, new_roll
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.evolution.asynchronous import AsynchronousES, RankES
from genepool.evolution.distribution import CEM, Told
from genepool.evolution.strategies import Evosax
from genepool.learning.lessons import Lesson
from genepool.learning.sac import SAC
from genepool.learning.td3 import TD3, random_player
from genepool.networks import Activation, Actor, SquashedGaussian, deterministic
from genepool.types import Candidate, Individual, Outcome

WARMING, UNTAUGHT, TAUGHT = 1, 2, 3  # what a candidate is out as
KNOWN = 64  # episodes of one and the same mean that are remembered


@dataclass(frozen=True)
class FirstHalf:
    """CEM-RL: the first individuals of every generation are taught; each has an untaught mirror twin."""

    taught: int = 5  # n_grad: how many

    def chance(self, place: int, taught: int, untaught: int) -> float:
        """The probability that the individual in this place of its generation is taught."""
        return float(place < self.taught)


@dataclass(frozen=True)
class Controlled:
    """AES-RL Eq. 3: p_rl = clip(-K (n_rl / (n_rl + n_es) - p_des) + 1/2, 0, 1), which keeps the share near p_des."""

    share: float = 0.5  # p_des: the share of individuals to be taught
    gain: float = 50.0  # K
    unbiased: bool = True  # p_des in place of the printed 1/2, which settles at p_des + (1/2 - p_des) / K
    taught: ClassVar[int] = 1  # how many of a sample the critic learns the value of, where it does

    def chance(self, place: int, taught: int, untaught: int) -> float:
        """The probability that the next individual is taught."""
        rest = self.share if self.unbiased else 0.5
        return min(1.0, max(0.0, -self.gain * (taught / (taught + untaught) - self.share) + rest))


class Teaching(eqx.Module):
    """The learner, and the critics that lessons are taken from."""

    inner: Any
    teachers: tuple[Any, ...]

    @property
    def updates(self) -> np.ndarray:
        """Critic steps so far."""
        return self.inner.updates


class TaughtState(eqx.Module):
    """Everything that training changes. `ask` and `tell` never write `learner`; `learn` writes nothing else."""

    strategy: Any
    learner: Teaching | None
    replay: buffer.Buffer | None
    owed: np.ndarray  # critic steps that ought to have been taken by now
    frames: np.ndarray
    lengths: np.ndarray  # [N]: frames of the last individuals, oldest first
    counts: np.ndarray  # [2]: individuals taught and untaught, both from 1 (Eq. 3)
    known: np.ndarray  # [KNOWN]: returns of the mean as it stands, NaN where there are fewer
    moved: np.ndarray  # how many outcomes had been told when the mean moved last
    log: np.ndarray  # [256, 3] by candidate: p, fitness of the mean, staleness
    roll: Roll


@dataclass(frozen=True)
class TaughtES:
    """The loop of CEM-RL and AES-RL; which of the two it is, its fields say."""

    task: Annotated[Task, tyro.conf.arg(name="")]
    evolver: CEM | AsynchronousES | RankES | Evosax = field(default_factory=CEM)  # the search distribution
    learner: TD3 | SAC | None = field(default_factory=TD3)  # the teacher
    lessons: FirstHalf | Controlled = field(default_factory=FirstHalf)  # who is taught
    trials: int = 1  # episodes per individual, whose mean return is its fitness
    warmup: int = 10_000  # frames before the critic begins to learn
    random_warmup: bool = False  # till then actions are random and not told; else the strategy goes on alone
    warmup_told: bool = False  # as the authors' code: what random actions bring is told as an individual's own
    catch_up: bool = False  # the critic then takes steps for the warm-up's frames too
    critic_head_start: int = 0  # critic steps before the first lesson
    min_utd: float = 0.0  # nobody is asked for while the critic has taken less than this share of the steps it owes
    # whose value the critics learn: the untaught individuals' one after the other (CEM-RL), or the mean's (AES-RL)
    target_policy: Literal["individual", "mean"] = "individual"
    # the critic of a lesson: as it stood after the individual's own block (CEM-RL), or the newest (P-CEM-RL's code)
    lesson_critic: Literal["own_block", "newest"] = "own_block"
    critic_chunk: int = 1_000  # the most critic steps for one and the same mean
    reference_episodes: int = 5  # of the mean beside every individual, where the strategy compares with it
    reference_cache: bool = False  # count episodes of the same mean that are known already
    replay: int = 1_000_000  # transitions in the replay
    hidden: tuple[int, ...] = (400, 300)  # units of the actor's hidden layers
    layer_norm: bool = False  # of the actor's hidden layers
    activation: Activation = "tanh"  # of the actor's hidden layers
    asynchronous: Annotated[bool, tyro.conf.Suppress] = False  # whether every outcome is told as it comes
    test_episodes: int = 10  # fresh episodes in each test of the mean; never counted as training
    test_every: int = 1  # generations between two tests; the last is always tested

    def __post_init__(self):
        counts = ("trials", "replay", "critic_chunk", "test_episodes", "test_every")
        small = [name for name in counts if getattr(self, name) < 1]
        if small:
            raise UserError(f"{small[0].replace('_', ' ')} is too small: it must be 1 or more")
        if not self.hidden or min(self.hidden) < 1:
            raise UserError("hidden needs the units of one layer or more, each 1 or more")
        if self.warmup < 0 or self.critic_head_start < 0 or self.lessons.taught < 1:
            raise UserError("the warm-up and the critic's head start are 0 or more, the taught individuals 1 or more")
        if not 0.0 <= self.min_utd <= 1.0:
            raise UserError("min utd lies between 0 and 1: the critic never takes more steps than there are frames")
        if self.learner and self.target_policy == "individual" and not self.evolver.samples_ahead:
            raise UserError("this evolver draws no samples ahead: take --target-policy mean")
        if self.evolver.compares and not 1 <= self.reference_episodes <= KNOWN:
            raise UserError(f"this evolver compares with the mean: it needs 1 to {KNOWN} reference episodes")

    @property
    def generation(self) -> int:
        """Candidates in a generation, or between two records."""
        return self.evolver.population

    def settings(self) -> dict[str, Any]:
        """What papers give per task, for the reader."""
        own = {"scale": getattr(self.evolver, "scale", None)}
        if self.learner:
            own |= {"share taught": getattr(self.lessons, "share", None), "batch": self.learner.batch_size}
        return {name: value for name, value in own.items() if value is not None}

    @property
    def schedule(self) -> str:
        """The algorithm's own schedule."""
        return "asynchronous" if self.asynchronous else "synchronous"

    def scheduled(self, schedule: str) -> "TaughtES":
        """The same on this schedule."""
        return replace(self, asynchronous=schedule == "asynchronous")

    def init(self, key: Array) -> TaughtState:
        """A distribution around a new actor, and a new learner."""
        k_actor, k_strategy, k_learner = jax.random.split(key, 3)
        actor = _new_actor(k_actor, *self._shape)
        learner = replay = None
        if self.learner:
            inner = self.learner.init(k_learner, actor)
            learner = Teaching(inner, (self.learner.teacher(inner),) * self._blocks)
            replay = buffer.empty(self.replay, self.task.observation_size, self.task.action_size)
        zero = np.zeros((), np.int64)
        return TaughtState(
            strategy=self.evolver.init(k_strategy, trees.flat(actor)),
            learner=learner,
            replay=replay,
            owed=zero,
            frames=zero,
            lengths=np.zeros(self.generation, np.int64),
            counts=np.ones(2, np.int64),
            known=np.full(KNOWN, np.nan),
            moved=zero,
            log=np.full((256, 3), np.nan),
            roll=new_roll(),
        )

    @property
    def _blocks(self) -> int:
        """Critics that are kept for lessons."""
        own = self.target_policy == "individual" and self.lesson_critic == "own_block"
        return self.lessons.taught if own else 1

    def ask(self, key: Array, state: TaughtState, n: int) -> tuple[list[Candidate], TaughtState]:
        """The next n to try: random play during the warm-up, individuals with and without lessons after it."""
        if self.learner and state.learner.updates < self.min_utd * state.owed:
            return [], state
        k_sample, k_rest = jax.random.split(key)
        numbers, roll = state.roll.call(n)
        counts = state.counts.copy()
        for number in numbers:  # a candidate that was lost counts once
            kind = state.roll.kind(number)
            counts -= [kind == TAUGHT, kind == UNTAUGHT]
        out, mean_length = int(roll.asked - roll.told) - n, state.lengths[state.lengths > 0]
        expected = out * float(mean_length.mean() if len(mean_length) else self.task.horizon)
        warming = self.random_warmup and state.frames + expected < self.warmup
        sampled = not warming or self.warmup_told
        vectors, strategy = self.evolver.ask(k_sample, state.strategy, n) if sampled else (None, state.strategy)
        mean, candidates = self._actor(self.evolver.mean(state.strategy)), []
        for k, number in enumerate(numbers):
            k_lesson, k_seeds = jax.random.split(jax.random.fold_in(k_rest, k))
            rng = trees.host_random(k_seeds)
            seeds = draw_seeds(rng, self.trials)
            if warming:
                player, noise = random_player(k_lesson, deterministic(mean), self.task.horizon)
                credited = vectors[k] if self.warmup_told else None  # in a memory's place: it stays at home
                candidate = Candidate(Individual(player, credited), seeds[:1], noise, purpose="warm-up")
                kind = WARMING
            else:
                individual = Individual(self._actor(vectors[k]), None)
                place, ready = number % self.generation, self._ready(state)
                taught = ready and rng.random() <= self.lessons.chance(place, *counts) > 0.0
                kind = WARMING if not ready else TAUGHT if taught else UNTAUGHT
                counts += [kind == TAUGHT, kind == UNTAUGHT]
                candidate = Candidate(individual, seeds, origin="learning" if taught else "evolution")
                if taught:
                    candidate = replace(candidate, lesson=self._lesson(k_lesson, state, place), operators=("lesson",))
            if self.evolver.compares and sampled:
                candidate = replace(candidate, **self._reference(rng, state, mean))
            roll = roll.mark(number, kind)
            candidates.append(replace(candidate, number=number, version=int(state.roll.told)))
        return candidates, replace(state, strategy=strategy, counts=counts, roll=roll)

    @property
    def _shape(self) -> tuple[Any, ...]:
        """Of an individual's policy: SAC teaches distributions, and both of their heads evolve."""
        sizes = self.task.observation_size, self.task.action_size
        return isinstance(self.learner, SAC), *sizes, self.hidden, self.layer_norm, self.activation

    def _actor(self, vector: np.ndarray) -> Actor | SquashedGaussian:
        return trees.unflat(vector, _template(*self._shape))

    def _ready(self, state: TaughtState) -> bool:
        """Whether there is a critic to learn from."""
        if self.learner is None:
            return False
        return state.owed > 0 and state.learner.updates >= max(1, self.critic_head_start)

    def _lesson(self, key: Array, state: TaughtState, place: int) -> Lesson:
        """As many steps as the last generation had frames, CEM-RL's S_prev and AES-RL's sum of the last ten lengths."""
        teachers, ring = state.learner.teachers, state.replay
        data, steps = np.asarray(jax.random.key_data(key)), np.asarray(state.lengths.sum())
        teacher = teachers[place % len(teachers)]
        return Lesson(self.learner, data, teacher, ring.data.observation, ring.size, steps)

    def _reference(self, rng: np.random.Generator, state: TaughtState, mean: Actor) -> dict[str, Any]:
        """The mean as it stands, to be played beside the individual."""
        known = tuple(state.known[~np.isnan(state.known)].tolist()) if self.reference_cache else ()
        fresh = max(0, self.reference_episodes - len(known))
        return {"reference": mean, "reference_seeds": draw_seeds(rng, fresh), "reference_known": known}

    def tell(self, key: Array, state: TaughtState, outcomes: Sequence[Outcome]) -> TaughtState:
        """Everybody's transitions go to the replay; then the distribution moves.

        The replay is written in place: the state that was given must not be used again.
        """
        outcomes, roll = state.roll.accept(outcomes)
        if not outcomes:
            return state
        replay, frames = state.replay, sum(o.frames for o in outcomes)
        if self.learner:
            for outcome in outcomes:
                replay = buffer.record(replay, outcome.transitions)
        lengths = np.append(state.lengths, [o.frames for o in outcomes])[-self.generation :]
        state = replace(state, replay=replay, frames=state.frames + frames, lengths=lengths)
        told = [o for o in outcomes if o.candidate.purpose == "fitness" or self.warmup_told]
        if self.evolver.compares:
            for k, outcome in enumerate(told):
                state = self._compared(jax.random.fold_in(key, k), state, outcome, int(state.roll.told) + k)
        elif told:
            vectors = np.stack([_vector(o) for o in told])
            fitness = np.array([o.fitness for o in told])
            state = replace(state, strategy=self.evolver.tell(key, state.strategy, Told(vectors, fitness)))
            state = self._logged(state, told, int(state.roll.told), np.nan, np.nan)
        return replace(state, owed=self._owed(state, frames), roll=roll)

    def _owed(self, state: TaughtState, frames: int) -> np.ndarray:
        if self.learner is None or state.frames <= self.warmup:
            return state.owed
        if self.catch_up:
            return state.frames
        taught = self.lessons.taught if self.target_policy == "individual" else 1
        return state.owed + taught * (frames // taught)

    def _compared(self, key: Array, state: TaughtState, outcome: Outcome, told: int) -> TaughtState:
        """The mean after one outcome, judged by what the mean brought that was played beside it."""
        candidate = outcome.candidate
        reference = float(np.mean(candidate.reference_known + outcome.reference_returns))
        one = Told(_vector(outcome)[None], np.array([outcome.fitness]), np.array([reference]))
        strategy = self.evolver.tell(key, state.strategy, one)
        state = self._logged(state, [outcome], told, float(strategy.p), reference)
        if not np.array_equal(self.evolver.mean(strategy), self.evolver.mean(state.strategy)):
            return replace(state, strategy=strategy, known=np.full(KNOWN, np.nan), moved=np.asarray(told + 1))
        known = state.known
        if candidate.version >= int(state.moved):  # it was played beside the mean as it still stands
            known = np.append(outcome.reference_returns, known[~np.isnan(known)])[:KNOWN]
            known = np.append(known, np.full(KNOWN - len(known), np.nan))
        return replace(state, strategy=strategy, known=known)

    def _logged(
        self, state: TaughtState, outcomes: Sequence[Outcome], told: int, p: float, reference: float
    ) -> TaughtState:
        log = state.log.copy()
        for outcome in outcomes:
            staleness = told - outcome.candidate.version
            log[outcome.candidate.number % len(log)] = p, reference, staleness
        return replace(state, log=log)

    def due(self, state: TaughtState) -> int:
        """The critic steps of the next `learn`."""
        if self.learner is None:
            return 0
        steps = int(state.owed) - int(state.learner.updates)
        return steps if self.target_policy == "individual" else min(steps, self.critic_chunk)

    def stage(self, state: Any) -> str:
        """It has one: learning."""
        return "learning"

    def further(self, state: TaughtState) -> int:
        """Nothing: a generation is asked for at once."""
        return 0

    def learn(self, key: Array, state: TaughtState) -> TaughtState:
        """Take the critic steps that are due, and have the critics ready for the next lessons."""
        steps = self.due(state)
        if not steps:
            return state
        learner, inner = self.learner, state.learner.inner
        if self.target_policy == "mean":
            policies = [self.evolver.mean(state.strategy)]
        else:
            policies = list(state.strategy.sample[: self.lessons.taught])
        teachers, left = [], steps
        for k, policy in enumerate(policies):
            count = left // (len(policies) - k)
            left -= count
            actor = self._actor(policy)
            inner = learner.update_critic(jax.random.fold_in(key, k), inner, actor, state.replay, count)
            teachers.append(learner.teacher(inner))
        return replace(state, learner=Teaching(inner, tuple(teachers[-self._blocks :])))

    def policies(self, state: TaughtState) -> dict[str, Actor]:
        """What is worth testing: the mean, whose score both papers report."""
        return {"champion": deterministic(self._actor(self.evolver.mean(state.strategy)))}

    def report(self, state: TaughtState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """What a record of the generation says besides its outcomes."""
        told = [o for o in outcomes if o.candidate.purpose == "fitness"]
        rows = [state.log[o.candidate.number % len(state.log)].tolist() for o in told]
        report: dict[str, Any] = {"staleness": [row[2] for row in rows]}
        if self.evolver.compares:
            report |= {"p": [row[0] for row in rows], "mean_fitness": [row[1] for row in rows]}
        taught, untaught = (int(count) - 1 for count in state.counts)
        report |= {"taught": taught, "untaught": untaught} | self.evolver.report(state.strategy)
        if self.learner:
            report |= self.learner.report(state.learner.inner)
        return report


def _vector(outcome: Outcome) -> np.ndarray:
    """The weights that an outcome is told of: those that were tried, or those that a random episode is credited to."""
    return outcome.individual.memory if outcome.candidate.purpose == "warm-up" else trees.flat(outcome.individual.actor)


def _new_actor(key: Array, gaussian: bool, *shape: Any) -> Actor | SquashedGaussian:
    actor = Actor(key, *shape)
    return SquashedGaussian(jax.random.fold_in(key, 1), actor) if gaussian else actor


@lru_cache(maxsize=8)
def _template(*shape: Any) -> Actor | SquashedGaussian:
    """Any actor of this shape."""
    return jax.tree.map(np.asarray, _new_actor(jax.random.key(0), *shape))
