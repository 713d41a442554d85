"""Training: a run is iterated over, one generation at a time. After a resume it gives the same bits."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from genepool.environments.task import Task
from genepool.errors import check_seed
from genepool.parts import described
from genepool.protocols import Algorithm, Workers
from genepool.runs.folder import Folder, circumstances, default_path
from genepool.runs.policy import Policy
from genepool.runs.rebuilding import check_resumable, positive, rebuild_algorithm
from genepool.runs.tensorboard import Events
from genepool.schedule import Clock, generation
from genepool.trees import host_random
from genepool.types import Candidate, Individual, Outcome
from genepool.workers.local import LocalWorkers
from genepool.workers.named import open_workers

SECONDS_BETWEEN_CHECKPOINTS = 180.0


class Run:
    """A training run. Iterating over it trains; asking for its champion trains to the end."""

    def __init__(
        self, folder: Folder, algorithm: Algorithm, workers: Workers | str | None = None, address: str | None = None
    ):
        self._is_used = True  # until the end of __init__: a run that could not be made must not warn
        config = folder.config
        self.folder = folder
        self.algorithm = algorithm
        self.preset = config["preset"]
        self.seed = config["seed"]
        self.frames_wanted = config["frames"]
        self.schedule = algorithm.schedule
        self._key = jax.random.key(self.seed)
        self._restore()
        self.workers = open_workers(workers or config.get("workers", "local"), algorithm.task, address)
        self.where = getattr(self.workers, "name", type(self.workers).__name__)
        # an asynchronous run leaves candidates at work, so its tests are played in this process
        self._testers = self.workers if self.schedule == "synchronous" else LocalWorkers(algorithm.task)
        self.clock = Clock()
        self.events = Events(folder.path) if config.get("tensorboard") else None
        self.stopped = False
        self._is_used = False

    def __del__(self):
        if not getattr(self, "_is_used", True) and not self.done:
            warnings.warn(
                f"the run {self.folder.path} was never iterated over, so nothing was trained: iterate over it "
                "(for record in run: ...), or call genepool.train, which trains to the end",
                stacklevel=2,
            )

    def _restore(self) -> None:
        """Take state and counts from the newest checkpoint, or begin anew."""
        fresh = self.algorithm.init(jax.random.fold_in(self._key, 0))
        found = self.folder.load_checkpoint(fresh)
        if found:  # candidates that were out when the checkpoint was written are issued again
            found = (self.algorithm.forget_workers(found[0]), found[1])
        self.state, facts = found or (fresh, {"generation": 0, "frames": 0, "ledger": {}, "wall": 0.0})
        self.generation = facts["generation"]
        self.frames = facts["frames"]
        self.ledger = facts["ledger"]
        self.wall = facts["wall"]
        self._saved_generation = self.generation if found else -1  # of the last checkpoint
        self._saved_at = time.monotonic()
        self.folder.keep_records(self.generation)

    @property
    def done(self) -> bool:
        """Whether all frames have been played."""
        return self.frames >= self.frames_wanted

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Train, and yield the record of each generation, until all frames are played or `stop` is called."""
        self._is_used = True
        try:
            while not self.done and not self.stopped:
                record = self._generation()
                self.folder.append(record)
                if self.events:
                    self.events.write(record)
                if time.monotonic() - self._saved_at > SECONDS_BETWEEN_CHECKPOINTS:
                    self.save()
                self.clock.phase = "between"
                yield record
            self.save()
            self.clock.phase = "done" if self.done else "stopped"
        except BaseException:
            # the state is consistent between generations and until the first `tell`; later its replay is half written
            if self.clock.phase == "between" or (self.clock.phase == "acting" and self.schedule == "synchronous"):
                self.save()
            raise
        finally:
            self.workers.close()
            self._testers.close()

    def stop(self) -> None:
        """Stop after the current generation, and save everything then."""
        self.stopped = True

    @property
    def champion(self) -> Policy:
        """The champion at the end of training. Trains to the end first."""
        for _ in self:
            pass
        return self.policy()

    def policy(self) -> Policy:
        """The best policy so far: the population's champion, or the learner if it is alone."""
        actor = self.algorithm.champion(self.state)
        facts = {"task": self.algorithm.task.id, "preset": self.preset, "seed": self.seed, "frames": self.frames}
        return Policy(jax.tree.map(jax.numpy.asarray, actor), self.algorithm.task.spaces, facts)

    def save(self) -> None:
        """Write a checkpoint and the champion, unless this generation has them already."""
        if self.generation == 0 or self._saved_generation == self.generation:
            return
        with self.clock("saving"):
            facts = {"generation": self.generation, "frames": self.frames, "ledger": self.ledger, "wall": self.wall}
            self.folder.save_checkpoint(self.generation, self.state, facts)
            self.policy().save(self.folder.champion_file)
        self._saved_generation = self.generation
        self._saved_at = time.monotonic()

    def _generation(self) -> dict[str, Any]:
        """Train one generation, test it, and return its record."""
        begun = time.perf_counter()
        self.clock.clear()
        k_generation, k_test = jax.random.split(jax.random.fold_in(self._key, self.generation + 1))
        left = self.frames_wanted - self.frames
        self.state, outcomes = generation(self.algorithm, self.workers, k_generation, self.state, self.clock, left)
        self.generation += 1
        self.frames += sum(outcome.frames for outcome in outcomes)
        with self.clock("testing"):
            tests = self._tests(k_test)
        self._count([*outcomes, *tests])
        moments = [round(self.wall + moment - begun, 3) for moment in self.clock.moments]
        self.wall += time.perf_counter() - begun
        return self._record(outcomes, tests) | ({"moments": moments} if moments else {})

    def _tests(self, key: jax.Array) -> list[Outcome]:
        """Fresh episodes of the algorithm's policies, every `test_every` generations and at the end."""
        if self.generation % self.algorithm.test_every and not self.done:
            return []
        rng = host_random(key)
        candidates = []
        for name, actor in self.algorithm.policies(self.state).items():
            seeds = tuple(rng.integers(2**31 - 1, size=self.algorithm.test_episodes).tolist())
            candidates.append(Candidate(Individual(actor, None), seeds, purpose=f"{name} test"))
        return self._testers.map(candidates)

    def _count(self, outcomes: Sequence[Outcome]) -> None:
        """Add the frames of each outcome to the ledger, under the purpose of its candidate."""
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
    """What a record says of a candidate: its origin, its parents, and its returns."""
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


def start(
    algorithm: Algorithm,
    frames: float | None = None,
    seed: int = 0,
    run: str | Path | None = None,
    workers: Workers | str = "local",
    tensorboard: bool = False,
    address: str | None = None,
) -> Run:
    """Begin a run of `frames` counted frames in a new run folder. None: as many as the algorithm's budget.

    Iterating over the run trains it, and yields a record for each generation:

        for record in genepool.start(genepool.pderl("Swimmer-v5"), frames=100_000):
            print(record["frames"], max(record["fitness"]))
    """
    frames = positive(algorithm.budget if frames is None else frames)
    check_seed(seed)
    folder = Folder(run or default_path(algorithm.preset, algorithm.task.id, seed))
    config = {
        "preset": algorithm.preset,
        "task": algorithm.task.id,
        "frames": frames,
        "seed": seed,
        "engine": algorithm.task.engine,
        "tensorboard": tensorboard,
        "schedule": algorithm.schedule,
        "workers": workers if isinstance(workers, str) else "local",  # the user's own must be given again
        "algorithm": described(algorithm),
    }
    config |= circumstances(algorithm.task.versions())
    folder.check_new()
    opened = open_workers(workers, algorithm.task, address)  # before the folder is made: workers may be refused
    try:
        folder.create(config)
        return Run(folder, algorithm, opened)
    except BaseException:
        opened.close()
        raise


def resume(
    run: str | Path,
    task: str | Callable[[], Any] | Task | None = None,
    frames: float | None = None,
    workers: Workers | str | None = None,
    address: str | None = None,
    parts: Sequence[type] = (),
) -> Run:
    """Go on with a run from its last checkpoint, exactly as if it had never stopped. Iterate over the returned run.

    A run folder holds no code. For an environment of your own give `task` again; for parts of your own give their
    classes as `parts`. `frames` replaces the number of frames that the run was started with.
    """
    folder = Folder(run)
    config = folder.config
    check_resumable(folder.path, config)
    algorithm = rebuild_algorithm(config, task, parts)
    if frames is not None:
        folder.extend(positive(frames))
    return Run(folder, algorithm, workers, address)
