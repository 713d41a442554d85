"""The costs of a machine and a task: seconds per step of each kind, and the lengths of episodes."""

import time
from collections.abc import Callable
from dataclasses import replace

import jax

from genepool import buffer
from genepool.algorithms.assemble import assembled
from genepool.environments.task import Task
from genepool.networks import Actor
from genepool.types import Candidate, Individual
from genepool.workers.local import LocalWorkers
from genepool.workers.virtual import Costs

# the AES-RL authors' machine, fitted to their Table 1 for HalfCheetah: minutes per million steps, so microseconds * 60
AUTHORS = Costs(critic=119 * 60e-6, actor=63 * 60e-6, environment=17 * 60e-6)


def measure_costs(
    critic_step: Callable[[int], None],
    actor_step: Callable[[int], None],
    environment_step: Callable[[int], None],
    steps: int = 500,
) -> Costs:
    """Seconds per step of each kind on this machine. Each callable takes a number of steps and waits for them."""

    def seconds(take: Callable[[int], None]) -> float:
        take(steps)  # compiles
        best = float("inf")
        for _ in range(3):
            begun = time.perf_counter()
            take(steps)
            best = min(best, time.perf_counter() - begun)
        return best / steps

    return Costs(seconds(critic_step), seconds(actor_step), seconds(environment_step))


def costs_of(preset: str, task: Task) -> Costs:
    """Seconds per critic step, actor step and environment step of a preset's sizes on this machine."""
    algorithm = assembled(preset, task, {"replay": 20_000})
    learner = algorithm.learner
    workers = LocalWorkers(task)
    state = algorithm.init(jax.random.key(0))
    actor = algorithm.policies(state)["champion"]
    try:
        (outcome,) = workers.map([Candidate(Individual(actor, None), (0,))])
        replay = buffer.record(state.experience.replay, outcome.transitions)
        teacher = learner.teacher(state.learner.inner)
        key = jax.random.key(1)

        def critic_step(steps: int) -> None:
            jax.block_until_ready(learner.update_critic(key, state.learner.inner, actor, replay, steps))

        def actor_step(steps: int) -> None:
            jax.block_until_ready(learner.improve(key, actor, teacher, replay.data.observation, replay.size, steps))

        played = 0

        def environment_step(steps: int) -> None:
            nonlocal played
            while played < steps:
                (outcome,) = workers.map([Candidate(Individual(actor, None), (played,))])
                played += outcome.frames

        gradients = measure_costs(critic_step, actor_step, lambda steps: None)
        environment_step(1)
        begun = time.perf_counter()
        played = 0
        environment_step(2_000)
        return replace(gradients, environment=(time.perf_counter() - begun) / played)
    finally:
        workers.close()


def measure_lengths(task: Task, episodes: int = 20, seed: int = 0) -> list[int]:
    """The lengths of some episodes, each played by a new untrained actor."""
    keys = jax.random.split(jax.random.key(seed), episodes)
    workers = LocalWorkers(task)
    actors = [Actor(key, task.observation_size, task.action_size, (64, 64)) for key in keys]
    try:
        outcomes = workers.map([Candidate(Individual(actor, None), (seed + k,)) for k, actor in enumerate(actors)])
    finally:
        workers.close()
    return [outcome.frames for outcome in outcomes]
