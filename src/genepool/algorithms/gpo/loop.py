"""Genetic policy optimization (Gangwani and Peng 2018, Algorithm 1), and without its genetics PPO and A2C alone.

A population of policies is mutated by policy gradients, several iterations a round, in which those near each other share what
they play; then couples are selected, and each couple's child, which imitates now one parent and now the other, takes a
place in the next population.
"""

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import repeat
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genepool import trees
from genepool.algorithms import choices
from genepool.algorithms.gpo import genetics as breeding
from genepool.algorithms.gpo.couples import Fittest
from genepool.algorithms.gpo.imitation import ParameterSpace, StateSpace
from genepool.algorithms.gpo.sharing import Sharing
from genepool.algorithms.in_flight import MEMBER, InFlight, draw_seeds, forget_workers, new_in_flight
from genepool.cores import map_on_cores
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.learning.ppo import A2C, PPO, Member, Report, Shared
from genepool.learning.returns import Batch, batch_of
from genepool.networks.stochastic import StochasticPolicy, draw_noise
from genepool.parts import part
from genepool.types import Candidate, Individual, Outcome

SCORES = 10  # iterations whose mean return says who is the champion


class GPOLearner(eqx.Module):
    """The population. `learn` writes it and nothing else."""

    members: Member  # [m]
    near: np.ndarray  # [m, m]: S_i, fixed for the round
    genetics: breeding.Genetics | None
    reports: np.ndarray  # [m, ...]: of each member's last update
    iterations: np.ndarray  # mutations so far
    selected: np.ndarray  # rounds after which couples were selected
    fitted: np.ndarray  # rounds whose couples have an expert
    imitated: np.ndarray  # DAgger iterations so far
    bred: np.ndarray  # rounds whose children took the population's place


class GPOState(eqx.Module):
    """Everything that training changes. `ask` and `tell` never write `learner`."""

    learner: GPOLearner
    batch: Batch  # [m, B, ...]: what was played last
    archive: breeding.Archive | None
    scores: np.ndarray  # [m, SCORES]: mean returns of the latest iterations of the round, NaN where there are fewer
    numbers: np.ndarray  # [m]: the candidates that last played for each policy
    arrived: np.ndarray  # outcomes of the stage so far
    iterations: np.ndarray  # batches of the whole population so far
    collected: np.ndarray  # experts' and students' so far
    in_flight: InFlight


@part
class GPO:
    """The GPO loop. With one round it has no genetics: policies that learn on their own, or one alone."""

    task: Task
    mutation: PPO | A2C = field(default_factory=PPO)
    crossover: StateSpace | ParameterSpace | None = field(default_factory=StateSpace)  # none: the stronger's copy
    selection: Fittest | None = field(default_factory=Fittest)  # none: couples are drawn
    sharing: Sharing | None = field(default_factory=Sharing)  # none: everyone learns from its own rows
    population: int = 8  # m: policies
    rounds: int = 12  # k: rounds; the last ends without crossover
    iterations: int = 36  # iterations of the mutation in a round
    batch: int = 2_048  # B: transitions of each policy in an iteration
    final_crossover: bool = False  # whether the last round ends with crossover too
    hidden: tuple[int, ...] = (64, 64)  # units of the policies' hidden layers
    normalise: bool = True  # scale observations by what was seen so far; it is saved with the policy
    output_scale: float = 1.0  # what the first weights of the policies' output layer are multiplied by
    test_episodes: int = 10  # fresh episodes in each test of the champion; never counted as training
    test_every: int = 10  # iterations between two tests; the last is always tested
    schedule: Literal["synchronous"] = "synchronous"  # policies that share what they play go in step
    preset: str = "gpo"  # the name of this system

    def __post_init__(self):
        choices.check_counts(self, "population", "rounds", "iterations", "batch", "test_episodes", "test_every")
        choices.check_network(self)
        if self.schedule != "synchronous":
            raise UserError("gpo shares what policies play in the same iteration: it is synchronous only")
        if self._breeds and self.population < 2:
            raise UserError("one policy has nobody to mate with: take a population of 2 or more, or 1 round")
        most = max(getattr(self.mutation, "minibatches", 1), self.mutation.critic.minibatches)
        if self.batch < most:
            raise UserError(f"a batch of {self.batch} cannot be split into {most} minibatches")

    @property
    def generation(self) -> int:
        """Candidates in an iteration: one of each policy."""
        return self.population

    @property
    def budget(self) -> int:
        """Transitions of all rounds, those of experts and students among them."""
        played = self.rounds * self.iterations * self.batch
        return self.population * (played + self.crossovers * sum(self._frames))

    @property
    def crossovers(self) -> int:
        """Rounds that end with one."""
        return self.rounds - 1 + self.final_crossover

    @property
    def _breeds(self) -> bool:
        return self.crossovers > 0

    @property
    def _frames(self) -> tuple[int, ...]:
        """What is collected for a child, one time after the other."""
        return self.crossover.frames if self.crossover else ()

    def settings(self) -> dict[str, Any]:
        """What the reader wants to know first."""
        own = {"mutation": type(self.mutation).__name__, "population": self.population, "batch": self.batch}
        return own | ({"rounds": self.rounds, "iterations": self.iterations} if self._breeds else {})

    def init(self, key: Array) -> GPOState:
        """New policies with their critics; each is the same however many there are."""
        m, sizes = self.population, (self.task.observation_size, self.task.action_size)
        made = [self._member(jax.random.fold_in(key, i)) for i in range(m)]
        members, zero, archive, genetics = trees.stack(made), np.zeros((), np.int64), None, None
        if self._breeds:
            kept = min(self.crossover.iterations, self.iterations) * self.batch if self._frames else 0
            genetics = breeding.new_genetics(key, self.crossover, made[0].policy, m)
            archive = breeding.new_archive(m, kept, sum(self._frames), sizes[0])
        reports = np.zeros((m, len(Report._fields)), np.float32)
        learner = GPOLearner(members, np.eye(m, dtype=bool), genetics, reports, *(zero,) * 5)
        widths = (sizes[:1], sizes[1:], (), sizes[:1], (), (), ())
        batch = Batch(*(np.zeros((m, self.batch, *width), np.float32) for width in widths))
        scores, numbers = np.full((m, SCORES), np.nan), np.full(m, -1, np.int64)
        return GPOState(learner, batch, archive, scores, numbers, zero, zero, zero, new_in_flight(m))

    def _member(self, key: Array) -> Member:
        k_policy, k_critic = jax.random.split(key)
        sizes = self.task.observation_size, self.task.action_size
        shape = self.hidden, self._discrete, self.normalise
        return self.mutation.init(k_critic, StochasticPolicy(k_policy, *sizes, *shape, output_scale=self.output_scale))

    @property
    def _discrete(self) -> bool:
        return self.task.spaces.first is not None

    def _collects(self, state: GPOState) -> int | None:
        """Which of a crossover's collections is on: 0 the expert's, later ones the students'. None: the policies themselves play."""
        if state.learner.fitted == state.learner.bred or not self._frames:
            return None
        return int(state.collected - state.learner.bred * len(self._frames))

    def streams(self, frames: int) -> tuple[int, ...]:
        """So many transitions as streams of about the same length, none shorter than an episode can be if they suffice for one."""
        count = max(1, frames // self.task.horizon)
        return tuple(frames * (k + 1) // count - frames * k // count for k in range(count))

    def ask(self, key: Array, state: GPOState, n: int) -> tuple[list[Candidate], GPOState]:
        """The next n to play: policies for their mutation, or the experts and students of a crossover.

        Fewer where the population is complete: what comes next depends on what it plays.
        """
        first = int(state.in_flight.told_count) // self.population * self.population
        asked = state.in_flight.upcoming(n, repeat((MEMBER, -1)))
        asked = [one for one in asked if one.number < first + self.population]
        at = self._collects(state)
        candidates = []
        for number in (one.number for one in asked):
            place = number % self.population
            rng = trees.host_random(jax.random.fold_in(key, place))
            steps = self.streams(self.batch if at is None else self._frames[at])
            shape = len(steps), max(steps), self.task.action_size
            noise = draw_noise(rng, shape, self._discrete)
            if at is not None:  # by the last number a parent is chosen
                noise = np.concatenate([noise, rng.random((*shape[:2], 1), np.float32)], axis=2)
            candidates.append(
                Candidate(
                    Individual(self._player(state, place, at), None),
                    draw_seeds(rng, len(steps)),
                    noise,
                    steps=steps,
                    purpose="fitness" if at is None else "student" if at else "expert",
                    origin="learning",
                    number=number,
                    version=int(state.in_flight.told_count),
                    **(self._ancestry(state, place) if at is None else {}),
                )
            )
        return candidates, replace(state, in_flight=state.in_flight.issue(asked))

    def _player(self, state: GPOState, place: int, at: int | None) -> Any:
        learner = state.learner
        if at is None:
            return trees.take(learner.members.policy, place)
        genetics, policies = learner.genetics, learner.members.policy
        return trees.take(genetics.students.policy, place) if at else genetics.expert(self.crossover, policies, place)

    def _ancestry(self, state: GPOState, place: int) -> dict[str, Any]:
        """Whose child or successor the policy is."""
        done = int(state.iterations)
        if not done:
            return {}
        if done % self.iterations == 0 and done // self.iterations <= self.crossovers:
            parents, by = (
                state.learner.genetics.couples[place],
                type(self.crossover).__name__ if self.crossover else "Copy",
            )
            return {"parents": tuple(int(state.numbers[parent]) for parent in parents), "operators": (by,)}
        return {"parents": (int(state.numbers[place]),), "operators": (type(self.mutation).__name__,)}

    def tell(self, key: Array, state: GPOState, outcomes: Sequence[Outcome]) -> GPOState:
        """Keep what was played until the whole population's is there.

        It is written in place: the state that was given must not be used again.
        """
        outcomes, in_flight = state.in_flight.accept(outcomes)
        state = replace(state, in_flight=in_flight, arrived=state.arrived + len(outcomes))
        for outcome in outcomes:
            mutating = outcome.candidate.purpose == "fitness"
            state = self._played(state, outcome) if mutating else self._observed(state, outcome)
        if state.arrived < self.population:
            return state
        state = replace(state, arrived=state.arrived - self.population)
        if self._collects(state) is None:
            return replace(state, iterations=state.iterations + 1)
        return replace(state, collected=state.collected + 1)

    def _played(self, state: GPOState, outcome: Outcome) -> GPOState:
        place, rows = outcome.candidate.number % self.population, batch_of(outcome, self.task.horizon)
        batch = Batch(*(_with(column, place, part) for column, part in zip(state.batch, rows, strict=True)))
        within = int(state.iterations) % self.iterations
        scores = state.scores.copy()
        if within == 0 and state.iterations // self.iterations <= self.crossovers:
            scores[place] = np.nan  # a new policy
        scores[place] = np.append(scores[place, 1:], outcome.fitness)
        numbers, archive = _with(state.numbers, place, outcome.candidate.number), state.archive
        if archive is not None and archive.returns.size:
            ends, begin = np.cumsum(outcome.lengths), within * self.batch % archive.returns.shape[1]
            sums = np.add.reduceat(outcome.transitions.reward.astype(np.float64), ends - outcome.lengths)
            part, first = slice(begin, begin + self.batch), np.zeros(self.batch, bool)
            first[ends - outcome.lengths] = True
            archive = replace(
                archive,
                observation=_with(archive.observation, (place, part), rows.observation),
                returns=_with(archive.returns, (place, part), np.repeat(sums, outcome.lengths)),
                first=_with(archive.first, (place, part), first),
            )
        return replace(state, batch=batch, scores=scores, numbers=numbers, archive=archive)

    def _observed(self, state: GPOState, outcome: Outcome) -> GPOState:
        """An expert's or a student's states, with what decides the parent that is imitated in each."""
        place, at = outcome.candidate.number % self.population, self._collects(state)
        begin = sum(self._frames[:at])
        part = (place, slice(begin, begin + self._frames[at]))
        drawn = [
            noise[:steps, -1] for noise, steps in zip(outcome.candidate.noise, outcome.candidate.steps, strict=True)
        ]
        archive = replace(
            state.archive,
            states=_with(state.archive.states, part, outcome.transitions.observation),
            uniform=_with(state.archive.uniform, part, np.concatenate(drawn)),
        )
        return replace(state, archive=archive)

    def learning_phase(self, state: GPOState) -> str:
        """What there is to learn now: the mutation, the selection of couples, a part of the crossover, or nothing."""
        learner = state.learner
        if learner.iterations < state.iterations:
            return "learning"
        breedings = min(int(learner.iterations) // self.iterations, self.crossovers)
        if learner.selected < breedings:
            return "selecting"
        if learner.fitted < learner.selected or learner.imitated < state.collected:
            return "crossover"
        return ""

    def steps_owed(self, state: GPOState) -> int:
        """The gradient steps of each policy in the next `learn`; of a crossover that takes none, one."""
        phase = self.learning_phase(state)
        return {"": 0, "learning": self.mutation.steps}.get(phase, 1)

    def still_to_ask(self, state: GPOState) -> int:
        """The experts or students of a crossover that is under way."""
        return 0 if self._collects(state) is None else self.population

    def learn(self, key: Array, state: GPOState) -> GPOState:
        """Do what there is to learn."""
        phase = self.learning_phase(state)
        if not phase:
            return state
        do = {"learning": self._mutated, "selecting": self._selected, "crossover": self._crossed}[phase]
        return replace(state, learner=do(key, state))

    def _mutated(self, key: Array, state: GPOState) -> GPOLearner:
        """One iteration of MUTATE: every policy on what all of them played, each by one compiled call on a core of its own.

        As one program for all of them, updates on two cores take a fifth longer (`benchmarks/parts.py`, `stacked`).
        """
        learner, m = state.learner, self.population
        members = [trees.take(learner.members, i) for i in range(m)]
        judged = map_on_cores(
            lambda i: self.mutation.judge(members[i], Batch(*(column[i] for column in state.batch))), range(m)
        )
        shared = Shared(*(jnp.stack(column) for column in zip(*(given for _, given, _ in judged), strict=True)))
        near = learner.near
        if self.sharing and int(learner.iterations) % self.iterations == 0:  # before the round's first update
            near = self.sharing.near(breeding.divergence(learner.members.policy, state.batch.observation))

        def improve(i: int) -> tuple[Member, Report]:
            k, (member, _, returns) = jax.random.fold_in(key, i), judged[i]
            return self.mutation.improve(k, member, i, shared, returns, near[i], self.sharing)

        improved = map_on_cores(improve, range(m))
        reports = np.array([report for _, report in improved], np.float32)
        return replace(
            learner,
            members=trees.stack([member for member, _ in improved]),
            near=near,
            reports=reports,
            iterations=learner.iterations + 1,
        )

    def _selected(self, key: Array, state: GPOState) -> GPOLearner:
        learner = state.learner
        left = 1.0 - float(learner.selected) / max(1, self.crossovers - 1)
        known = state.scores[:, -1], learner.members.policy, state.batch.observation
        genetics = replace(learner.genetics, couples=breeding.select(key, self.selection, *known, left))
        return replace(learner, genetics=genetics, selected=learner.selected + 1)

    def _crossed(self, key: Array, state: GPOState) -> GPOLearner:
        """CROSSOVER, as far as it can go: make the experts; have the students imitate them; let the children in."""
        learner, fitness, archive = state.learner, state.scores[:, -1], state.archive
        policies, genetics = learner.members.policy, learner.genetics
        if learner.fitted < learner.selected:
            learner = replace(learner, fitted=learner.fitted + 1)
            if not isinstance(self.crossover, StateSpace):
                return self._bred(
                    learner, fitness, breeding.plain_children(key, self.crossover, genetics, policies, fitness)
                )
            made = breeding.experts(key, self.crossover, genetics, policies, fitness, archive)
            return replace(learner, genetics=made)
        at = int(learner.imitated - learner.bred * len(self._frames))
        if at or self.crossover.expert_alone:  # else they play before they learn
            genetics = breeding.imitate(key, self.crossover, genetics, policies, archive, sum(self._frames[: at + 1]))
        learner = replace(learner, genetics=genetics, imitated=learner.imitated + 1)
        return self._bred(learner, fitness, genetics.students.policy) if at + 1 == len(self._frames) else learner

    def _bred(self, learner: GPOLearner, fitness: np.ndarray, children: StochasticPolicy) -> GPOLearner:
        """The children take the population's place."""
        members = breeding.heirs(learner.members, children, learner.genetics.stronger(fitness))
        return replace(learner, members=members, bred=learner.bred + 1)

    def best_member(self, state: GPOState) -> int:
        """The member that earned most in the latest iterations of the round; of children that have not played yet, whose parents did."""
        means = np.array([np.mean(row[~np.isnan(row)]) if np.isfinite(row).any() else -np.inf for row in state.scores])
        if state.learner.bred and state.learner.bred * self.iterations == state.iterations:
            means = means[state.learner.genetics.couples].sum(axis=1)
        return int(np.argmax(means))

    forget_workers = forget_workers

    def champion(self, state: GPOState) -> StochasticPolicy:
        """The policy of the best member."""
        return trees.take(state.learner.members.policy, self.best_member(state))

    def policies(self, state: GPOState) -> dict[str, StochasticPolicy]:
        """What is worth testing: the champion, without noise."""
        return {"champion": self.champion(state)}

    def report(self, state: GPOState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """What a record of the iteration says besides its outcomes."""
        learner, names = state.learner, Report._fields
        figures = {name: learner.reports[:, k].tolist() for k, name in enumerate(names)}
        own = {
            "round": int(learner.bred) + 1,
            "iteration": int(learner.iterations),
            "champion": self.best_member(state),
        }
        own |= {"updates": int(learner.iterations) * self.mutation.steps, "near": learner.near.sum(axis=1).tolist()}
        if any(o.candidate.purpose == "expert" for o in outcomes) or (learner.bred and not self._frames):
            own["couples"] = learner.genetics.couples.tolist()
        return own | {"beta": np.asarray(learner.members.beta).tolist()} | figures


def _with(array: np.ndarray, at: Any, value: Any) -> np.ndarray:
    """The array with the value written to it, in place."""
    array[at] = value
    return array
