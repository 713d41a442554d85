"""What GPO keeps of a played candidate: a policy's batch, or the states of an expert or student.

Both are written in place: the state that was given must not be used again.
"""

import numpy as np

from genepool.algorithms.gpo.genetics import ParentTrajectories
from genepool.algorithms.gpo.state import GPOState
from genepool.learning.returns import batch_of
from genepool.types import Outcome


def store_batch(state: GPOState, slot: int, outcome: Outcome, horizon: int, iteration: int) -> None:
    """Keep the batch of the policy in this slot. A child drops the scores of the policy that it replaced."""
    rows = batch_of(outcome, horizon)
    for column, part in zip(state.batch, rows, strict=True):
        column[slot] = part
    if state.learner.are_children:
        state.scores[slot] = np.nan
    state.scores[slot] = np.append(state.scores[slot, 1:], outcome.fitness)
    state.numbers[slot] = outcome.candidate.number
    if state.crossover_data is not None and state.crossover_data.played.returns.size:
        played = ParentTrajectories(*(column[slot] for column in state.crossover_data.played))
        _store_trajectories(played, iteration, rows.observation, outcome)


def _store_trajectories(played: ParentTrajectories, iteration: int, observation: np.ndarray, outcome: Outcome) -> None:
    """Write this iteration's trajectories over those of the oldest iteration that is kept."""
    size = len(observation)
    begin = iteration * size % len(played.returns)
    part = slice(begin, begin + size)
    begins: np.ndarray = np.cumsum(outcome.lengths) - outcome.lengths
    returns = np.add.reduceat(outcome.transitions.reward.astype(np.float64), begins)
    played.observation[part] = observation
    played.returns[part] = np.repeat(returns, outcome.lengths)
    played.starts[part] = False
    played.starts[begin + begins] = True


def store_states(state: GPOState, slot: int, outcome: Outcome, frames: tuple[int, ...]) -> None:
    """Keep the states of an expert or student, and the number that chooses the parent to imitate in each.

    `frames` are the sizes of a crossover's collections.
    """
    collection = int(state.learner.imitation)
    begin = sum(frames[:collection])
    part = slice(begin, begin + frames[collection])
    candidate = outcome.candidate
    assert candidate.noise is not None  # experts and students draw all their actions
    chooses = [noise[:steps, -1] for noise, steps in zip(candidate.noise, candidate.steps, strict=True)]
    state.breeding_data.states[slot, part] = outcome.transitions.observation
    state.breeding_data.uniform[slot, part] = np.concatenate(chooses)
