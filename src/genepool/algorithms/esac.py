"""ESAC (Suri et al. 2020, Algorithm 1): an evolution strategy beside a soft actor-critic that learns at selected times.

Every g generations, with a probability that falls, the learner plays episodes of its own and learns from them; copies of
its actor are members of every generation. Without a learner it is the evolution strategy alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import numpy as np
import tyro
from jax import Array

from genepool import buffer, trees
from genepool.algorithms.roll import Roll, draw_seeds, new_roll
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.evolution.winners import WinnersES, WinnersState
from genepool.learning.ddpg import DDPG
from genepool.learning.lessons import check_replay
from genepool.learning.sac import SAC
from genepool.learning.td3 import TD3
from genepool.networks import Activation, Actor, Initial
from genepool.types import Candidate, Individual, Outcome

MEMBER, EXPLORING = 1, 2  # what a candidate is out as


class ESACState(eqx.Module):
    """Everything that training changes. `ask` and `tell` never write `learner`; `learn` writes nothing else."""

    strategy: WinnersState
    learner: Any
    replay: buffer.Buffer | None
    noise: np.ndarray  # the last row of exploration noise, from which the next episode's goes on
    owed: np.ndarray  # gradient steps that ought to have been taken by now
    episodes: np.ndarray  # of the learner's phase, still to be played
    phases: np.ndarray  # of the learner, so far
    maxima: np.ndarray  # [100]: the best return of each of the last generations, NaN where there are fewer
    roll: Roll


@dataclass(frozen=True)
class ESAC:
    """The ESAC loop. Without a learner it is the evolution strategy alone."""

    task: Annotated[Task, tyro.conf.arg(name="")]
    evolver: WinnersES = field(default_factory=WinnersES)
    learner: SAC | TD3 | DDPG | None = field(default_factory=lambda: SAC(critics="value"))
    sac_episodes: int = 5  # E: episodes of the learner in a phase
    gradient_interval: int = 5  # g: generations between two chances of a phase
    final_chance: float = 0.1  # p_sac falls from 1 to this
    chance_decay: float = 1.2e6  # nominal steps in which what is above it falls to 1/e
    learns_after: Literal["episode", "phase"] = "episode"  # each of the learner's episodes, or all of a phase (paper)
    share_experience: bool = False  # the population's transitions go to the replay too, as ERL's do
    trials: int = 1  # episodes per member, whose mean return is its fitness
    replay: int = 1_000_000  # transitions in the learner's replay
    hidden: tuple[int, ...] = (512, 512)  # units of the actor's hidden layers
    layer_norm: bool = False  # of the actor's hidden layers
    activation: Activation = "relu"  # of the actor's hidden layers
    initial: Initial = "xavier"  # how its weights are drawn
    updates_per_frame: float = 1.0  # gradient steps of the learner per frame of its own
    asynchronous: Annotated[bool, tyro.conf.Suppress] = False  # whether every outcome is told as it comes
    test_episodes: int = 10  # fresh episodes in each test; never counted as training
    test_every: int = 10  # generations between two tests; the last is always tested

    def __post_init__(self):
        counts = ("sac_episodes", "gradient_interval", "trials", "replay", "test_episodes", "test_every")
        small = [name for name in counts if getattr(self, name) < 1]
        if small or self.updates_per_frame < 0:
            raise UserError(
                f"{(small or ['updates_per_frame'])[0].replace('_', ' ')} is too small: it must be 1 or more"
            )
        if not self.hidden or min(self.hidden) < 1:
            raise UserError("hidden needs the units of one layer or more, each 1 or more")
        if not 0 <= self.final_chance <= 1 or self.chance_decay <= 0:
            raise UserError("the final chance lies between 0 and 1, and its decay takes more than 0 steps")
        if self.learner is not None:
            check_replay(self.learner, self.replay)

    @property
    def generation(self) -> int:
        """Members in a generation: both of every pair."""
        return self.evolver.population

    @property
    def schedule(self) -> str:
        """The algorithm's own schedule."""
        return "asynchronous" if self.asynchronous else "synchronous"

    def scheduled(self, schedule: str) -> "ESAC":
        """The same on this schedule."""
        return replace(self, asynchronous=schedule == "asynchronous")

    def settings(self) -> dict[str, Any]:
        """What papers give per task, for the reader."""
        evolver = self.evolver
        own = {"pairs": evolver.pairs, "sigma": evolver.sigma, "rate": evolver.rate}
        return own | ({"SAC episodes": self.sac_episodes} if self.learner else {})

    def init(self, key: Array) -> ESACState:
        """A mother, and a learner with an actor of its own."""
        k_mother, k_strategy, k_actor, k_learner = jax.random.split(key, 4)
        sizes = self.task.observation_size, self.task.action_size
        learner = replay = None
        if self.learner:
            learner = self.learner.init(k_learner, self._new_actor(k_actor))
            replay = buffer.empty(self.replay, *sizes)
        zero = np.zeros((), np.int64)
        return ESACState(
            strategy=self.evolver.init(k_strategy, trees.flat(self._new_actor(k_mother))),
            learner=learner,
            replay=replay,
            noise=np.zeros(sizes[1], np.float32),
            owed=zero,
            episodes=zero,
            phases=zero,
            maxima=np.full(100, np.nan),
            roll=new_roll(),
        )

    def _new_actor(self, key: Array) -> Actor:
        sizes = self.task.observation_size, self.task.action_size
        return Actor(key, *sizes, self.hidden, self.layer_norm, self.activation, self.initial)

    @property
    def _like(self) -> Actor:
        return _template(
            self.task.observation_size, self.task.action_size, self.hidden, self.layer_norm, self.activation
        )

    def chance(self, nominal: int) -> float:
        """p_sac(T) = 0.1 + 0.9 exp(-T / 1.2e6), of the nominal steps T. The formula is the code's; the paper has none."""
        return self.final_chance + (1.0 - self.final_chance) * math.exp(-nominal / self.chance_decay)

    def nominal(self, state: ESACState) -> int:
        """T, the steps that the paper counts: one episode's time limit per generation, however many are played."""
        return int(state.strategy.generation) * self.task.horizon

    def ask(self, key: Array, state: ESACState, n: int) -> tuple[list[Candidate], ESACState]:
        """The next n to try: the learner's episodes while a phase is on, else members of the population."""
        k_seeds, k_noise = jax.random.split(key)
        rng, like = trees.host_random(k_seeds), self._like
        numbers, roll = state.roll.call(n)
        strategy, episodes = state.strategy, int(state.episodes)
        kinds = []
        for number in numbers:
            lost = state.roll.kind(number)  # a lost one is asked for again as what it was
            kinds.append(lost or (EXPLORING if episodes else MEMBER))
            episodes -= kinds[-1] == EXPLORING and not lost
            roll = roll.mark(number, kinds[-1])
        actor = jax.tree.map(np.asarray, self.learner.actor(state.learner)) if self.learner else None
        members, strategy = self.evolver.ask(strategy, kinds.count(MEMBER), like, actor)
        candidates = []
        for k, (number, kind) in enumerate(zip(numbers, kinds, strict=True)):
            if kind == MEMBER:
                candidate = replace(members.pop(0), seeds=draw_seeds(rng, self.trials))
            else:
                k_episode, horizon = jax.random.fold_in(k_noise, k), self.task.horizon
                # the code acts at random for the first nominal steps, not for the first of the learner's own
                player, noise = self.learner.explore(
                    k_episode, state.learner, state.noise, horizon, self.nominal(state)
                )
                candidate = Candidate(
                    Individual(player, None), draw_seeds(rng, 1), noise, purpose="exploration", origin="learning"
                )
            candidates.append(replace(candidate, number=number, version=int(roll.told)))
        return candidates, replace(state, strategy=strategy, episodes=np.asarray(episodes), roll=roll)

    def tell(self, key: Array, state: ESACState, outcomes: Sequence[Outcome]) -> ESACState:
        """The learner's episodes go to its replay; a generation that is whole moves the mother.

        The replay is written in place: the state that was given must not be used again.
        """
        outcomes, roll = state.roll.accept(outcomes)
        replay, noise, owed = state.replay, state.noise, state.owed
        explored = [o for o in outcomes if o.candidate.purpose == "exploration"]
        members = [o for o in outcomes if o.candidate.purpose == "fitness"]
        if self.learner:
            for outcome in outcomes if self.share_experience else explored:
                replay = buffer.record(replay, outcome.transitions)
            for outcome in explored:
                noise = outcome.candidate.noise[outcome.frames - 1]
            if int(replay.size) > self.learner.warmup:
                owed = owed + int(self.updates_per_frame * sum(o.frames for o in explored))
        state = replace(state, replay=replay, noise=noise, owed=owed, roll=roll)
        while members:
            room = self.generation - int(state.strategy.count)
            strategy = self.evolver.tell(state.strategy, members[:room])
            state, members = replace(state, strategy=strategy), members[room:]
            if self.evolver.whole(strategy):
                state = self._closed(jax.random.fold_in(key, len(members)), state)
        return state

    def _closed(self, key: Array, state: ESACState) -> ESACState:
        """A generation is over: whether the learner has a phase now is drawn, then the strategy moves."""
        k_chance, k_close = jax.random.split(key)
        generation, horizon = int(state.strategy.generation) + 1, self.task.horizon
        phase = (
            self.learner is not None
            and generation % self.gradient_interval == 0
            and trees.host_random(k_chance).random() < self.chance(generation * horizon)
        )  # 12
        best = state.strategy.best_returns.max()
        maxima = np.append(state.maxima[1:], best if np.isfinite(best) else np.nan)
        return replace(
            state,
            strategy=self.evolver.close(k_close, state.strategy, self._like, horizon, phase),
            episodes=state.episodes + self.sac_episodes * phase,
            phases=state.phases + phase,
            maxima=maxima,
        )

    def stage(self, state: Any) -> str:
        """It has one: learning."""
        return "learning"

    def further(self, state: ESACState) -> int:
        """The learner's episodes of a phase: one, then learning, then the next; or all of them before it learns."""
        left = int(state.episodes)
        return min(1, left) if self.learns_after == "episode" else left

    def due(self, state: ESACState) -> int:
        """As many gradient steps as the learner had frames of its own."""
        return int(state.owed) - int(state.learner.updates) if self.learner else 0

    def learn(self, key: Array, state: ESACState) -> ESACState:
        """Take the gradient steps that are due."""
        steps = self.due(state)
        if not steps:
            return state
        return replace(state, learner=self.learner.update(key, state.learner, state.replay, steps))  # 18-23

    def policies(self, state: ESACState) -> dict[str, Actor]:
        """What is worth testing: the best of the last generation, played anew; the mother; the learner's actor."""
        mother = trees.unflat(np.asarray(state.strategy.mother), self._like)
        if not self.learner:
            return {"champion": mother}
        champion = trees.unflat(state.strategy.champion, self._like)
        return {"champion": champion, "mother": mother, "learner": self.learner.actor(state.learner)}

    def report(self, state: ESACState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """What a record of the generation says besides its outcomes. The paper's own count and score are only derived."""
        maxima = state.maxima[~np.isnan(state.maxima)]
        report = {
            "nominal_steps": self.nominal(state),
            "pop_max_ma100": float(maxima.mean()) if len(maxima) else None,
        } | self.evolver.report(state.strategy)
        if self.asynchronous:
            before = int(state.roll.told) - len(outcomes)
            report["staleness"] = [before + k - o.candidate.version for k, o in enumerate(outcomes)]
        if self.learner:
            report |= {"phases": int(state.phases)} | self.learner.report(state.learner)
        return report


@lru_cache(maxsize=8)
def _template(*shape: Any) -> Actor:
    """Any actor of this shape."""
    return jax.tree.map(np.asarray, Actor(jax.random.key(0), *shape))
