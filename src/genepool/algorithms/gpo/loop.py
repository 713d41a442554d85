"""Genetic policy optimization (Gangwani and Peng 2018, Algorithm 1), and without its genetics PPO and A2C alone.

A round mutates every policy by several iterations of a policy gradient. Then it selects couples, and the child of each
couple takes a slot of the next population. `learn` is Algorithm 1; `ask` and `tell` play what its phase needs.
"""

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import repeat
from typing import Any, Literal

import jax
import numpy as np
from jax import Array

from genepool import trees
from genepool.algorithms import choices
from genepool.algorithms.gpo import genetics, recording
from genepool.algorithms.gpo.couples import Fittest
from genepool.algorithms.gpo.imitation import ParameterSpace, StateSpace
from genepool.algorithms.gpo.mutation import mutate, share_anew
from genepool.algorithms.gpo.sharing import Sharing
from genepool.algorithms.gpo.state import GPOLearner, GPOState, Phase, new_state
from genepool.algorithms.in_flight import MEMBER, draw_seeds, forget_workers
from genepool.environments.task import Task
from genepool.errors import UserError, check_at_least
from genepool.learning.ppo import A2C, PPO, Member, Report
from genepool.networks.stochastic import StochasticPolicy, draw_noise
from genepool.parts import part
from genepool.types import Candidate, Individual, Outcome


@part
class GPO:
    """The GPO loop. With one round it has no genetics: policies that learn on their own, or one alone."""

    task: Task
    mutation: PPO | A2C = field(default_factory=PPO)
    crossover: StateSpace | ParameterSpace | None = field(default_factory=StateSpace)  # none: the stronger's copy
    selection: Fittest | None = field(default_factory=Fittest)  # none: couples are drawn
    sharing: Sharing | None = field(default_factory=Sharing)  # none: each policy learns from its own rows alone
    population: int = 8  # m: policies
    rounds: int = 12  # k: rounds; the last ends without crossover
    iterations: int = 36  # iterations of the mutation in a round
    batch: int = 2_048  # B: transitions of each policy in an iteration
    final_crossover: bool = False  # whether the last round ends with crossover too
    hidden: tuple[int, ...] = (64, 64)  # units of the policies' hidden layers
    normalise: bool = True  # scale observations by those played so far; the scale is saved with the policy
    output_scale: float = 1.0  # factor on the first weights of the policies' output layer
    test_episodes: int = 10  # fresh episodes in each test of the champion; never counted as training
    test_every: int = 10  # iterations between two tests; the last is always tested
    schedule: Literal["synchronous"] = "synchronous"  # policies that share data must play the same iteration
    preset: str = "gpo"  # the name of this system

    def __post_init__(self):
        check_at_least(1, self, "population", "rounds", "iterations", "batch", "test_episodes", "test_every")
        choices.check_network(self)
        if self.schedule != "synchronous":
            raise UserError("gpo is synchronous only, for its policies share their data: use the synchronous schedule")
        if self.crossovers and self.population < 2:
            raise UserError("population is 1: a couple needs two policies; use a population of 2 or more, or 1 round")
        most = max(getattr(self.mutation, "minibatches", 1), self.mutation.critic.minibatches)
        if self.batch < most:
            raise UserError(f"a batch of {self.batch} has fewer rows than its {most} minibatches: give a larger batch")

    @property
    def generation_size(self) -> int:
        """Candidates in an iteration: one of each policy."""
        return self.population

    @property
    def budget(self) -> int:
        """Transitions of all rounds, with those of experts and students."""
        played = self.rounds * self.iterations * self.batch
        return self.population * (played + self.crossovers * sum(self._collections))

    @property
    def crossovers(self) -> int:
        """Rounds that end with a crossover."""
        return self.rounds - 1 + self.final_crossover

    @property
    def _collections(self) -> tuple[int, ...]:
        """Transitions of each collection of states for a child, in order."""
        return self.crossover.frames if self.crossover else ()

    @property
    def _discrete(self) -> bool:
        return self.task.spaces.first is not None

    @property
    def _state_space(self) -> StateSpace:
        assert isinstance(self.crossover, StateSpace)  # no other crossover has experts and students
        return self.crossover

    def settings(self) -> dict[str, Any]:
        """What the reader wants to know first."""
        own = {"mutation": type(self.mutation).__name__, "population": self.population, "batch": self.batch}
        return own | ({"rounds": self.rounds, "iterations": self.iterations} if self.crossovers else {})

    def init(self, key: Array) -> GPOState:  # line 1
        """New policies with their critics. Each policy is the same in a population of any size."""
        m = self.population
        sizes = self.task.observation_size, self.task.action_size
        members = [self._new_member(jax.random.fold_in(key, slot)) for slot in range(m)]
        crossover = data = None
        if self.crossovers:
            played = 0
            if isinstance(self.crossover, StateSpace):
                played = min(self.crossover.iterations, self.iterations) * self.batch
            crossover = genetics.new_crossover_state(key, self.crossover, members[0].policy, m)
            data = genetics.new_crossover_data(m, played, sum(self._collections), sizes[0])
        return new_state(members, self.batch, *sizes, crossover, data)

    def _new_member(self, key: Array) -> Member:
        k_policy, k_critic = jax.random.split(key)
        sizes = self.task.observation_size, self.task.action_size
        shape = self.hidden, self._discrete, self.normalise
        return self.mutation.init(k_critic, StochasticPolicy(k_policy, *sizes, *shape, output_scale=self.output_scale))

    def ask(self, key: Array, state: GPOState, n: int) -> tuple[list[Candidate], GPOState]:
        """The next n to play: the policies for their mutation, or the experts or students of a crossover.

        Fewer at the end of a collection: what comes next depends on what this one plays.
        """
        begin = int(state.in_flight.told_count) // self.population * self.population
        asked = state.in_flight.upcoming(n, repeat((MEMBER, -1)))
        asked = [one for one in asked if one.number < begin + self.population]
        candidates = [self._candidate(key, state, one.number) for one in asked]
        return candidates, replace(state, in_flight=state.in_flight.issue(asked))

    def _candidate(self, key: Array, state: GPOState, number: int) -> Candidate:
        learner = state.learner
        slot = number % self.population
        rng = trees.host_random(jax.random.fold_in(key, slot))
        steps = self.streams(self._collections[int(learner.imitation)] if learner.imitates else self.batch)
        shape = len(steps), max(steps), self.task.action_size
        noise = draw_noise(rng, shape, self._discrete)
        if learner.imitates:  # the last number chooses the parent that the expert follows
            noise = np.concatenate([noise, rng.random((*shape[:2], 1), np.float32)], axis=2)
        purpose, policy = self._player(learner, slot)
        return Candidate(
            Individual(policy, None),
            draw_seeds(rng, len(steps)),
            noise,
            steps=steps,
            purpose=purpose,
            origin="learning",
            number=number,
            version=int(state.in_flight.told_count),
            **({} if learner.imitates else self._ancestry(state, slot)),
        )

    def streams(self, frames: int) -> tuple[int, ...]:
        """So many transitions in streams of about equal length, each at least an episode long if there are enough."""
        count = max(1, frames // self.task.horizon)
        return tuple(frames * (k + 1) // count - frames * k // count for k in range(count))

    def _player(self, learner: GPOLearner, slot: int) -> tuple[str, Any]:
        """The purpose of this slot's candidate, and its policy."""
        policies = learner.members.policy
        if not learner.imitates:
            return "fitness", trees.take(policies, slot)
        if learner.imitation == 0:
            return "expert", learner.breeding.expert(self._state_space, policies, slot)
        return "student", trees.take(learner.breeding.children, slot)

    def _ancestry(self, state: GPOState, slot: int) -> dict[str, Any]:
        """The numbers of the candidates that this policy was made from, and the operator that made it.

        A child is made from the candidates of its two parents. A mutated policy is made from the candidate that held
        it before the mutation. A new policy has neither parents nor operator.
        """
        learner = state.learner
        if learner.are_children:
            operator = type(self.crossover).__name__ if self.crossover else "Copy"
            parents = learner.breeding.couples[slot]
            return {"parents": tuple(int(state.numbers[parent]) for parent in parents), "operators": (operator,)}
        if state.numbers[slot] < 0:  # no candidate has played for this policy yet
            return {}
        return {"parents": (int(state.numbers[slot]),), "operators": (type(self.mutation).__name__,)}

    def tell(self, key: Array, state: GPOState, outcomes: Sequence[Outcome]) -> GPOState:
        """Keep what was played. It is written in place: the state that was given must not be used again."""
        outcomes, in_flight = state.in_flight.accept(outcomes)
        iteration = int(state.learner.iteration) % self.iterations
        for outcome in outcomes:
            slot = outcome.candidate.number % self.population
            if outcome.candidate.purpose == "fitness":
                recording.store_batch(state, slot, outcome, self.task.horizon, iteration)
            else:
                recording.store_states(state, slot, outcome, self._collections)
        return replace(state, in_flight=in_flight)

    def learning_phase(self, state: GPOState) -> str:
        """The phase of `learn` as records name it; empty if candidates must be played first."""
        return Phase(int(state.learner.phase)).record_name if state.is_ready else ""

    def steps_owed(self, state: GPOState) -> int:
        """The gradient steps of each policy in the next `learn`. A phase without any counts as one."""
        owed = self.mutation.steps if state.learner.phase == Phase.MUTATE else 1
        return owed if state.is_ready else 0

    def still_to_ask(self, state: GPOState) -> int:
        """The experts or students of the crossover that goes on."""
        return self.population if state.learner.imitates else 0

    def learn(self, key: Array, state: GPOState) -> GPOState:  # lines 2 to 11
        """Algorithm 1, as far as what was played allows: one phase."""
        if not state.is_ready:
            return state
        phase = Phase(int(state.learner.phase))
        if phase is Phase.MUTATE:  # line 3
            learner = self._mutate(key, state)
        elif phase is Phase.SELECT:  # line 4
            learner = self._select(key, state)
        elif phase is Phase.START_CROSSOVER:  # lines 6 to 9
            learner = self._start_crossover(key, state)
        else:
            learner = self._imitate(key, state)
        used = learner.collections + phase.needs_play
        return replace(state, learner=replace(learner, collections=used))

    def _mutate(self, key: Array, state: GPOState) -> GPOLearner:
        """One iteration of MUTATE. The last of a round leads to SELECT; the last round has no end."""
        learner = state.learner
        if learner.iteration % self.iterations == 0:
            learner = share_anew(learner, self.sharing, state.batch)
        learner = mutate(key, self.mutation, self.sharing, learner, state.batch)
        learner = replace(learner, iteration=learner.iteration + 1)
        ends = learner.iteration == self.iterations and learner.round < self.crossovers
        return learner.entering(Phase.SELECT) if ends else learner

    def _select(self, key: Array, state: GPOState) -> GPOLearner:
        """SELECT: the couples that have a child."""
        learner = state.learner
        left = 1.0 - float(learner.round) / max(1, self.crossovers - 1)
        known = state.scores[:, -1], learner.members.policy, state.batch.observation
        couples = genetics.select(key, self.selection, *known, left)
        return replace(learner, crossover=replace(learner.breeding, couples=couples)).entering(Phase.START_CROSSOVER)

    def _start_crossover(self, key: Array, state: GPOState) -> GPOLearner:
        """CROSSOVER begins: an expert and a student of each couple, or at once a child that needs none."""
        learner = state.learner
        known = learner.breeding, learner.members.policy, state.scores[:, -1]
        if not isinstance(self.crossover, StateSpace):
            return _breed(learner, genetics.plain_children(key, self.crossover, *known), state.scores[:, -1])
        crossover = genetics.make_experts(key, self.crossover, *known, state.breeding_data)
        return replace(learner, crossover=crossover, imitation=np.zeros((), np.int64)).entering(Phase.IMITATE)

    def _imitate(self, key: Array, state: GPOState) -> GPOLearner:
        """CROSSOVER goes on: an iteration of DAgger. After the last one the students are the children."""
        learner = state.learner
        crossover = learner.breeding
        if learner.imitation > 0 or self._state_space.expert_alone:  # else the students play before they learn
            count = sum(self._collections[: int(learner.imitation) + 1])
            known = self._state_space, crossover, learner.members.policy, state.breeding_data
            crossover = genetics.imitate_experts(key, *known, count)
        learner = replace(learner, crossover=crossover, imitation=learner.imitation + 1)
        if learner.imitation < len(self._collections):
            return learner
        return _breed(learner, crossover.children, state.scores[:, -1])

    def best_member(self, state: GPOState) -> int:
        """The member that earned most in the latest iterations of the round.

        Of children that have not played yet, it is the one whose parents earned most.
        """
        means = state.mean_scores()
        if state.learner.are_children and not state.is_ready:
            means = means[state.learner.breeding.couples].sum(axis=1)
        return int(np.argmax(means))

    forget_workers = forget_workers

    def champion(self, state: GPOState) -> StochasticPolicy:
        """The policy of the best member."""
        return trees.take(state.learner.members.policy, self.best_member(state))

    def policies(self, state: GPOState) -> dict[str, StochasticPolicy]:
        """The policy to test: the champion, without noise."""
        return {"champion": self.champion(state)}

    def report(self, state: GPOState, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """What a record of the iteration says besides its outcomes."""
        learner = state.learner
        mutations = int(learner.round) * self.iterations + int(learner.iteration)
        own = {"round": int(learner.round) + 1, "iteration": mutations, "champion": self.best_member(state)}
        own |= {"updates": mutations * self.mutation.steps, "near": learner.shares_with.sum(axis=1).tolist()}
        if any(o.candidate.purpose == "expert" for o in outcomes) or (learner.round and not self._collections):
            own["couples"] = learner.breeding.couples.tolist()
        figures = {name: learner.reports[:, k].tolist() for k, name in enumerate(Report._fields)}
        return own | {"beta": np.asarray(learner.members.beta).tolist()} | figures


def _breed(learner: GPOLearner, children: StochasticPolicy, fitness: np.ndarray) -> GPOLearner:  # line 10
    """The children take the population's place, and the next round begins."""
    members = genetics.children_as_members(learner.members, children, learner.breeding.stronger(fitness))
    learner = replace(learner, members=members, round=learner.round + 1, iteration=np.zeros((), np.int64))
    return learner.entering(Phase.MUTATE)
