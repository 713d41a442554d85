"""Ray workers: candidates are tried in other processes, on this machine or on a cluster.

A worker gets several candidates at a time where a whole generation is awaited, and plays them as one batch. `wire` says
what is sent for each. Returns, transitions and, after a lesson, the actor come back.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import jax
import numpy as np
from jax import Array

from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.types import Candidate, LearningResult, Outcome, Transitions
from genepool.workers.ray.cluster import join, start
from genepool.workers.ray.jobs import Job, JobQueue, Reference, Reply, Request, Timing, WorkerHandle
from genepool.workers.ray.wire import Sender, dumps, loads
from genepool.workers.ray.worker import RayWorker
from genepool.xla import process_settings

LOSSES = 5  # how often in a row a candidate may be lost with its worker
START = 120.0  # seconds for the first worker to start
PATIENCE = 300.0  # the least seconds that each candidate may take, if no deadline is given
REQUESTS = 4  # per worker and generation, at least: small shares let all workers end together

OnAnswer = Callable[[WorkerHandle, Request, Future[Any], float], None]  # called with the answer, and when it came


class RayWorkers:
    """Plays candidates on `count` Ray workers. A lost candidate is issued again, and its second outcome is ignored.

    Without an address it starts a cluster of its own, which only this user can reach, from this machine. With one it
    joins that cluster; "auto" is the one that runs here. A worker that takes longer than `deadline` seconds for each of
    its candidates is restarted. The default is twenty times the longest time so far, and at least 300 seconds.
    """

    def __init__(self, task: Task, count: int, address: str | None = None, deadline: float | None = None):
        if count < 1:
            raise UserError(f"Ray needs 1 worker or more, not {count}")
        self.task = task
        self.count = count
        self.address = address
        self.deadline = deadline
        self.name = f"ray:{count}"
        self.timings: deque[Timing] = deque(maxlen=10_000)
        self._handles: list[WorkerHandle] = []
        self._longest = 0.0  # seconds per candidate
        self._open()

    @property
    def idle(self) -> int:
        """Workers that are ready and have nothing to do."""
        self._handle_events(0.0)
        return max(0, max(1, sum(handle.ready for handle in self._handles)) - len(self._jobs))

    @property
    def busy(self) -> int:
        """Submitted candidates whose outcome was not returned yet."""
        return len(self._jobs) + sum(isinstance(done, Outcome) for done in self._done)

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Try them all. The outcomes are in the candidates' order."""
        jobs: list[Job] = []
        try:
            share = max(1, len(candidates) // (REQUESTS * self.count))
            jobs += [self._issue(candidate, share) for candidate in candidates]
            self._dispatch()
            while any(job.outcome is None for job in jobs):
                self._handle_events()
            return [job.outcome for job in jobs if job.outcome is not None]
        finally:
            self._jobs.finish(jobs)

    def submit(self, candidate: Candidate) -> None:
        """Send it to the next worker that is free."""
        self._issue(candidate, submitted=True)

    def learn_in_background(self, learn: Callable[[Array, Any], Any], key: Array, state: Any, steps: int) -> None:
        """Learn in a thread, from a copy: the next tell writes the replay of `state` in place."""
        if self.learning:
            raise RuntimeError("learning is under way already")
        self._open()
        events = self._events
        self.learning = True
        state = jax.tree.map(_copied, state)

        def work() -> None:
            try:
                result = LearningResult(jax.block_until_ready(learn(key, state).learner))
                events.put(partial(self._accept_learning, result))
            except BaseException as error:
                events.put(partial(self._accept_learning, error))

        threading.Thread(target=work, name="learner").start()

    def next(self, wait: bool) -> Outcome | LearningResult | None:
        """A result that was not returned yet. If there is none, wait for it or return None."""
        self._handle_events(0.0)
        while wait and not self._done and (self._jobs or self.learning):
            self._handle_events()
        done = self._done.popleft() if self._done else None
        if isinstance(done, LearningResult):  # not before: the next learning must begin from this result
            self.learning = False
        return done

    def close(self) -> None:
        """Stop the workers, and Ray if it was started here. Jobs and learning under way are lost."""
        if not self._handles:
            return
        ray = _ray()
        for handle in self._handles if ray.is_initialized() else ():
            with suppress(ray.exceptions.RayError):  # if Ray was shut down meanwhile, the workers are gone
                ray.kill(handle.actor)
        self._handles = []
        self.learning = False
        self._jobs.clear()
        if self._started_ray:
            ray.shutdown()

    def _open(self) -> None:
        """Start the workers, and wait for as many as have a free core now."""
        if self._handles:
            return
        ray = _ray()
        self._events: queue.SimpleQueue[Callable[[], None]] = (
            queue.SimpleQueue()
        )  # from other threads, to be called here
        self._jobs = JobQueue()
        self._done: deque[Outcome | LearningResult] = deque()
        self._sender = Sender(ray.put, ray.get)
        self.learning = False
        self._started_ray = not ray.is_initialized()
        if self._started_ray:
            start(ray, self.count) if self.address is None else join(ray, self.address)
        free_cores = max(1, min(self.count, int(ray.available_resources().get("CPU", 0))))
        remote_class = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=0)(RayWorker)
        new_worker = partial(remote_class.remote, process_settings(), dumps(self.task), ray.get)
        self._handles = [WorkerHandle(new_worker()) for _ in range(self.count)]
        try:
            self._wait_for_workers(free_cores)
        except BaseException:
            self.close()
            raise

    def _wait_for_workers(self, count: int) -> None:
        for handle in self._handles:
            self._greet(handle)
        late = time.monotonic() + START
        while sum(handle.ready for handle in self._handles) < count and time.monotonic() < late:
            self._handle_events(late - time.monotonic())
        if not any(handle.ready for handle in self._handles):
            raise UserError(f"no worker started within {START:.0f} s: is there a free CPU in the cluster?")

    def _issue(self, candidate: Candidate, share: int = 1, submitted: bool = False) -> Job:
        self._open()
        job = Job(candidate, *self._sender.pack(candidate), share, submitted)
        self._jobs.add(job)
        if self._jobs.waiting >= share:
            self._dispatch()
        return job

    def _dispatch(self) -> None:
        """Send the jobs that wait to the workers that are free."""
        for handle in self._handles:
            if handle.request is None and (jobs := self._jobs.next_jobs()):
                packed = [(job.message, job.references) for job in jobs]
                self._send(handle, jobs, handle.actor.play.remote(packed), self._on_replies)

    def _greet(self, handle: WorkerHandle) -> None:
        """Ask a worker to answer once it has started."""
        self._send(handle, [], handle.actor.greet.options(max_task_retries=-1).remote(), self._on_greeting)

    def _send(self, handle: WorkerHandle, jobs: list[Job], reference: Reference, then: OnAnswer) -> None:
        """Note what the worker was sent; once Ray has the answer, `then` is called with it."""
        request = handle.request = Request(jobs, time.monotonic())
        events = self._events

        def answered(future: Future[Any]) -> None:
            events.put(partial(then, handle, request, future, time.monotonic()))

        reference.future().add_done_callback(answered)

    def _handle_events(self, seconds: float | None = None) -> None:
        """Wait for an event, until the next deadline or for at most `seconds`. Handle all that have come."""
        if not self._handles:
            return
        limit = self.deadline or max(PATIENCE, 20 * self._longest)

        def seconds_left(request: Request) -> float:
            return request.begun + limit * len(request.jobs) - time.monotonic()

        waits = [seconds_left(handle.request) for handle in self._handles if handle.request and handle.request.jobs]
        waits += [seconds] if seconds is not None else []
        try:
            self._events.get(timeout=max(0.0, min(waits)) if waits else None)()
            while True:
                self._events.get_nowait()()
        except queue.Empty:
            pass
        for handle in self._handles:
            if handle.request and handle.request.jobs and seconds_left(handle.request) < 0.0:
                _ray().kill(handle.actor, no_restart=False)
                self._repeat_jobs(handle, f"was not done within {limit:.0f} s")

    def _on_greeting(self, handle: WorkerHandle, request: Request, future: Future[Any], now: float) -> None:
        if request is not handle.request:
            return
        if future.exception() is None:
            handle.request = None
            self._dispatch()
            return
        handle.dead = True  # it cannot start, and its request stays unanswered
        if all(handle.dead for handle in self._handles):
            raise UserError(f"no worker can start: {str(future.exception()).strip().splitlines()[-1]}")

    def _on_replies(self, handle: WorkerHandle, request: Request, future: Future[Any], now: float) -> None:
        error = future.exception()
        latest = request is handle.request  # else its jobs were issued again, after a deadline
        if error is not None and _is_loss(error):
            if latest:
                self._repeat_jobs(handle, "was lost with its worker")
            return
        if latest:
            handle.request = None
            self._dispatch()
        finished = self._jobs.finish(request.jobs)
        if not finished:  # these are second outcomes
            return
        if error is not None:
            raise error
        replies = future.result()
        if isinstance(replies, str):
            raise UserError(replies)
        seconds = now - request.begun
        self._longest = max(self._longest, seconds / len(request.jobs))
        for job, reply in zip(request.jobs, replies, strict=True):
            if job in finished:
                self._accept(job, reply, seconds)

    def _accept(self, job: Job, reply: Reply, seconds: float) -> None:
        candidate = job.candidate
        individual = candidate.individual
        if reply.actor is not None:
            individual = individual._replace(actor=loads(reply.actor))
        elif candidate.perturbation is not None:
            individual = individual._replace(actor=candidate.perturbation(individual.actor))
        rows = Transitions(*(np.array(column) for column in reply.transitions))  # writable copies, not in Ray's store
        job.outcome = Outcome(candidate, individual, reply.returns, rows, *reply.reference, reply.lengths)
        self.timings.append(Timing(candidate.number, seconds, *reply.seconds))
        if job.submitted:
            self._done.append(job.outcome)

    def _repeat_jobs(self, handle: WorkerHandle, reason: str) -> None:
        """Issue the jobs of a lost worker again, and greet the workers that seem free: their node may be lost too."""
        assert handle.request is not None
        jobs = handle.request.jobs
        handle.request = None
        for other in self._handles:
            if other.request is None:
                self._greet(other)
        for job in self._jobs.repeat(jobs):
            if job.losses == LOSSES:
                self._jobs.finish([job])
                candidate = f"candidate {job.candidate.number}"
                raise UserError(f"{candidate} {reason}, {LOSSES} times in a row: out of memory, or stuck?")

    def _accept_learning(self, result: LearningResult | BaseException) -> None:
        if isinstance(result, BaseException):
            self.learning = False
            raise result
        self._done.append(result)


def _copied(leaf: object) -> object:
    """A leaf of a tree; if it is an array, a copy."""
    return leaf.copy() if isinstance(leaf, Array | np.ndarray) else leaf


def _ray() -> ModuleType:
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed: pip install 'genepool[cluster]'") from None
    return ray


def _is_loss(error: BaseException) -> bool:
    """Whether a request was lost with its worker, rather than failed by an error in it."""
    kinds = _ray().exceptions
    return not isinstance(error, kinds.RayTaskError) or isinstance(error.cause, kinds.RayError)
