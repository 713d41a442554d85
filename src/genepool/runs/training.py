"""Training from beginning to end: a run is iterated over, one generation at a time, and resumes to the last bit."""

import importlib.util
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from genepool.algorithms import ALGORITHMS
from genepool.environments.task import Task, find
from genepool.errors import UserError
from genepool.runs.folder import Folder, circumstances, default_path
from genepool.runs.parts import described, rebuilt
from genepool.runs.policy import Policy
from genepool.runs.tensorboard import Events
from genepool.schedule import SCHEDULES, Algorithm, Clock, Workers
from genepool.trees import host_random
from genepool.types import Candidate, Individual, Outcome
from genepool.workers.local import LocalWorkers

SECONDS_BETWEEN_CHECKPOINTS = 180.0


class Run:
    """A training run. It trains while it is iterated over, and goes on to its end when its champion is asked for."""

    def __init__(
        self, folder: Folder, algorithm: Algorithm, workers: Workers | str | None = None, address: str | None = None
    ):
        config = folder.config
        self.folder, self.algorithm = folder, algorithm
        self.preset, self.seed, self.frames_wanted = config["preset"], config["seed"], config["frames"]
        self.schedule = algorithm.schedule
        self._key = jax.random.key(self.seed)
        self._restore()
        self.workers = open_workers(workers or config.get("workers", "local"), algorithm.task, address)
        self.where = getattr(self.workers, "name", type(self.workers).__name__)
        # tests are played here where the workers are busy with candidates that nobody waits for
        self._testers = self.workers if self.schedule == "synchronous" else LocalWorkers(algorithm.task)
        self.clock = Clock()
        self.events = Events(folder.path) if config.get("tensorboard") else None
        self.stopped = False

    def _restore(self) -> None:
        fresh = self.algorithm.init(jax.random.fold_in(self._key, 0))
        found = self.folder.load_checkpoint(fresh)
        if found:  # whoever was out when it was written is asked for again
            found = (replace(found[0], roll=found[0].roll.lose()), found[1])
        self.state, facts = found or (fresh, {"generation": 0, "frames": 0, "ledger": {}, "wall": 0.0})
        self.generation, self.frames, self.ledger = facts["generation"], facts["frames"], facts["ledger"]
        self.wall = facts["wall"]
        self._saved = (self.generation if found else -1, time.monotonic())  # of the last checkpoint
        self.folder.keep_records(self.generation)

    @property
    def done(self) -> bool:
        """Whether the frames asked for have been played."""
        return self.frames >= self.frames_wanted

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Train, handing out each generation's record, until the frames are played or `stop` is called."""
        try:
            while not self.done and not self.stopped:
                record = self._generation()
                self.folder.append(record)
                if self.events:
                    self.events.write(record)
                if time.monotonic() - self._saved[1] > SECONDS_BETWEEN_CHECKPOINTS:
                    self.save()
                self.clock.phase = "between"
                yield record
            self.save()
            self.clock.phase = "done" if self.done else "stopped"
        except BaseException:
            # between generations, and until any outcome is told, the state is whole; later its replay is half written
            if self.clock.phase == "between" or (self.clock.phase == "acting" and self.schedule == "synchronous"):
                self.save()
            raise
        finally:
            self.workers.close()
            self._testers.close()

    def stop(self) -> None:
        """Stop after the generation that is under way; everything is saved then."""
        self.stopped = True

    @property
    def champion(self) -> Policy:
        """The fittest policy of the last generation. Trains first what is still to be trained."""
        for _ in self:
            pass
        return self.policy()

    def policy(self) -> Policy:
        """The best policy as the run stands now: the population's champion, or the learner where it is alone."""
        actor = next(iter(self.algorithm.policies(self.state).values()))
        facts = {"task": self.algorithm.task.id, "preset": self.preset, "seed": self.seed, "frames": self.frames}
        return Policy(jax.tree.map(jax.numpy.asarray, actor), self.algorithm.task.spaces, facts)

    def save(self) -> None:
        """Write a checkpoint and the champion, unless this generation's are there."""
        if self.generation == 0 or self._saved[0] == self.generation:
            return
        with self.clock("saving"):
            facts = {"generation": self.generation, "frames": self.frames, "ledger": self.ledger, "wall": self.wall}
            self.folder.save_checkpoint(self.generation, self.state, facts)
            self.policy().save(self.folder.champion_file)
        self._saved = (self.generation, time.monotonic())

    def _generation(self) -> dict[str, Any]:
        begun = time.perf_counter()
        self.clock.clear()
        k_generation, k_test = jax.random.split(jax.random.fold_in(self._key, self.generation + 1))
        left, train_on = self.frames_wanted - self.frames, SCHEDULES[self.schedule]
        self.state, outcomes = train_on(self.algorithm, self.workers, k_generation, self.state, self.clock, left)
        self.generation += 1
        self.frames += sum(outcome.frames for outcome in outcomes)
        with self.clock("testing"):
            tests = self._tests(k_test)
        self._count([*outcomes, *tests])
        moments = [round(self.wall + moment - begun, 3) for moment in self.clock.moments]
        self.wall += time.perf_counter() - begun
        return self._record(outcomes, tests) | ({"moments": moments} if moments else {})

    def _tests(self, key: jax.Array) -> list[Outcome]:
        """Fresh episodes of the policies worth testing, at the algorithm's own intervals and at the end."""
        if self.generation % self.algorithm.test_every and not self.done:
            return []
        rng = host_random(key)
        seeds = lambda: tuple(rng.integers(2**31 - 1, size=self.algorithm.test_episodes).tolist())
        policies = self.algorithm.policies(self.state).items()
        return self._testers.map(
            [Candidate(Individual(actor, None), seeds(), purpose=f"{name} test") for name, actor in policies]
        )

    def _count(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            purpose = outcome.candidate.purpose
            self.ledger[purpose] = self.ledger.get(purpose, 0) + outcome.frames
            if outcome.reference_frames:
                self.ledger["reference"] = self.ledger.get("reference", 0) + outcome.reference_frames

    def _record(self, outcomes: Sequence[Outcome], tests: Sequence[Outcome]) -> dict[str, Any]:
        fitness = [o.fitness for o in outcomes if o.candidate.purpose == "fitness"]
        return {
            "generation": self.generation,
            "frames": self.frames,
            "true_frames": sum(self.ledger.values()),
            "ledger": dict(self.ledger),
            "fitness": fitness,
            **{o.candidate.purpose.replace(" ", "_"): list(o.returns) for o in tests},
            **self.algorithm.report(self.state, outcomes),
            "candidates": [_ancestry(o) for o in outcomes],
            **({"events": self.clock.events} if self.clock.events else {}),
            "seconds": {phase: round(seconds, 4) for phase, seconds in self.clock.seconds.items()},
            "wall": round(self.wall, 3),
        }


def _ancestry(outcome: Outcome) -> dict[str, Any]:
    candidate = outcome.candidate
    return {
        "number": candidate.number,
        "purpose": candidate.purpose,
        "origin": candidate.origin,
        "parents": list(candidate.parents),
        "operators": list(candidate.operators),
        "returns": list(outcome.returns),
        "frames": outcome.frames,
        **({"reference": list(outcome.reference_returns)} if outcome.reference_returns else {}),
    }


def train(
    algorithm: Algorithm,
    frames: float = 1_000_000,
    seed: int = 0,
    run: str | Path | None = None,
    preset: str | None = None,
    workers: Workers | str = "local",
    tensorboard: bool = False,
    address: str | None = None,
) -> Run:
    """Begin a run of `frames` counted frames in a new run folder.

    Nothing is trained yet: iterate over the run, or ask for its `champion`.
    """
    frames = _positive(frames)
    if seed < 0:
        raise UserError(f"the seed must be 0 or more, not {seed}")
    preset = preset or type(algorithm).__name__.lower()
    folder = Folder(run or default_path(preset, algorithm.task.id, seed))
    own = {"preset": preset, "task": algorithm.task.id, "frames": frames, "seed": seed, "engine": algorithm.task.engine}
    own |= {"tensorboard": tensorboard, "schedule": algorithm.schedule}
    own["workers"] = workers if isinstance(workers, str) else "local"  # your own must be given again
    own |= {"algorithm": described(algorithm)} | circumstances(algorithm.task.versions())
    folder.check_new()
    opened = open_workers(workers, algorithm.task, address)  # before the folder is made, for they may be refused
    try:
        folder.create(own)
        return Run(folder, algorithm, opened)
    except BaseException:
        opened.close()
        raise


def _positive(frames: float) -> int:
    if not (math.isfinite(frames) and frames >= 1):
        raise UserError(f"frames must be a positive number, not {frames}")
    return int(frames)


def resume(
    run: str | Path,
    task: str | Callable[[], Any] | Task | None = None,
    frames: float | None = None,
    workers: Workers | str | None = None,
    address: str | None = None,
) -> Run:
    """Go on with a run from its last checkpoint, exactly as if it had never stopped.

    A run on an environment of the user's own needs `task` again, for a run folder holds no code. `frames` trains it
    further than it was first meant to.
    """
    folder = Folder(run)
    algorithm = rebuild_algorithm(folder.config, task)
    if frames is not None:
        folder.extend(_positive(frames))
    return Run(folder, algorithm, workers, address)


def worker_count(workers: str) -> int | None:
    """N of "ray:N", nothing for "local"."""
    kind, _, count = workers.partition(":")
    if workers == "local":
        return None
    if kind != "ray" or not count.isdigit() or int(count) < 1:
        raise UserError(f"there are no workers {workers!r}: choose local, or ray:N for N workers of a Ray cluster")
    if importlib.util.find_spec("ray") is None:
        raise UserError("Ray is not installed: pip install 'genepool[cluster]', or use --workers local")
    return int(count)


def open_workers(workers: Workers | str, task: Task, address: str | None = None) -> Workers:
    """The workers by name; your own as they are."""
    if not isinstance(workers, str):
        return workers
    count = worker_count(workers)
    if count is None:
        return LocalWorkers(task)
    from genepool.workers.ray import RayWorkers

    return RayWorkers(task, count, address)


def rebuild_algorithm(config: dict[str, Any], task: str | Callable[[], Any] | Task | None = None) -> Algorithm:
    """The algorithm that a configuration describes."""
    description = dict(config["algorithm"])
    stored = description.get("task", {})
    own = stored.get("make") is not None or ":" in stored.get("id", "")
    if own and task is None:
        raise UserError(
            f"the run's task {stored['id']!r} is code of your own: give it again with --task module:function"
        )
    if description["part"] not in ALGORITHMS:
        raise UserError(
            f"the configuration names an algorithm {description['part']!r} that is not here: it is from another version"
        )
    description["task"] = stored | {"make": None}
    algorithm = rebuilt(description, ALGORITHMS[description["part"]])
    if own:
        algorithm = replace(algorithm, task=replace(algorithm.task, make=find(task).make))
    return algorithm
