"""Ray workers: candidates are tried in other processes, on this machine or on a cluster.

Where many are awaited together a worker is handed several at a time, which it plays side by side. What is sent for each
is said in `wire`; back come returns, transitions and, after a lesson, the actor.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array

from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.types import Candidate, LearningResult, Outcome, Transitions
from genepool.workers.ray.cluster import join, start
from genepool.workers.ray.jobs import Call, Errand, Hand, Timing
from genepool.workers.ray.player import Played, Player
from genepool.workers.ray.wire import Sender, dumps, loads
from genepool.xla import process_settings

LOSSES = 5  # how often in a row a candidate may be lost with its worker
START = 120.0  # seconds for the first worker to start
PATIENCE = 300.0  # seconds that any candidate may take, whatever the others took
ROUNDS = 4  # how often each worker is sent out at least while a generation is awaited, so that all end together


class RayWorkers:
    """Plays candidates on `count` Ray workers; a lost candidate is issued again, and its second outcome is ignored.

    Without an address it starts a cluster of its own that only this machine and this user reach; with one ("auto": the
    one that runs here) it joins. Candidates that take longer than `deadline` seconds each are taken from their worker; by
    default twenty times what the longest took, and 300 seconds at least.
    """

    def __init__(self, task: Task, count: int, address: str | None = None, deadline: float | None = None):
        if count < 1:
            raise UserError(f"there must be one worker at least, not {count}")
        self.task, self.count, self.address, self.deadline = task, count, address, deadline
        self.name = f"ray:{count}"
        self.timings: deque[Timing] = deque(maxlen=10_000)
        self._hands: list[Hand] = []
        self._longest = 0.0
        self._open()

    @property
    def idle(self) -> int:
        """Workers that are ready and have nothing to do."""
        self._attend(0.0)
        return max(0, max(1, sum(hand.ready for hand in self._hands)) - len(self._out))

    @property
    def busy(self) -> int:
        """Candidates that were submitted and not handed out yet."""
        return len(self._out) + sum(isinstance(done, Outcome) for done in self._done)

    def map(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Try them all; their outcomes, in the same order, whoever was done first."""
        calls: list[Call] = []
        try:
            share = max(1, len(candidates) // (ROUNDS * self.count))
            calls += [self._issue(candidate, share) for candidate in candidates]
            self._dispatch()
            while any(call.outcome is None for call in calls):
                self._attend()
            return [call.outcome for call in calls]
        finally:
            self._out.difference_update(calls)

    def submit(self, candidate: Candidate) -> None:
        """Have it tried by the next worker that is free."""
        self._issue(candidate, submitted=True)

    def learn_in_background(self, learn: Callable[[Array, Any], Any], key: Array, state: Any, steps: int) -> None:
        """Learn in a thread, from a copy: the next tell writes the replay of `state` in place."""
        if self.learning:
            raise RuntimeError("learning is under way already")
        self._open()
        events, self.learning = self._events, True
        state = jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, Array | np.ndarray) else leaf, state)

        def work() -> None:
            try:
                events.put(partial(self._learnt, LearningResult(jax.block_until_ready(learn(key, state).learner))))
            except BaseException as error:
                events.put(partial(self._learnt, error))

        threading.Thread(target=work, name="learner").start()

    def next(self, wait: bool) -> Outcome | LearningResult | None:
        """What is done and was not handed out yet; if there is nothing, wait for it or say None."""
        self._attend(0.0)
        while wait and not self._done and (self._out or self.learning):
            self._attend()
        done = self._done.popleft() if self._done else None
        if isinstance(done, LearningResult):  # not before: the next learning must begin from it
            self.learning = False
        return done

    def close(self) -> None:
        """Stop the workers, and the cluster if it was started here. What is still at work is lost."""
        if self._hands:
            ray = _ray()
            for hand in self._hands if ray.is_initialized() else ():
                with suppress(ray.exceptions.RayError):  # if somebody else shut Ray down, they are gone
                    ray.kill(hand.player)
            self._hands, self.learning = [], False
            self._out.clear()
            self._waiting.clear()
            if self._guest:
                ray.shutdown()

    def _open(self) -> None:
        """Start the workers, and wait for as many as find a place now."""
        if self._hands:
            return
        ray = _ray()
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()  # what other threads have to say
        self._waiting: deque[Call] = deque()
        self._out: set[Call] = set()  # at work or waiting
        self._done: deque[Outcome | LearningResult] = deque()
        self._sender = Sender(ray.put, ray.get)
        self.learning = False
        self._guest = not ray.is_initialized()
        if self._guest:
            start(ray, self.count) if self.address is None else join(ray, self.address)
        places = max(1, min(self.count, int(ray.available_resources().get("CPU", 0))))
        kind = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=0)(Player)
        player = partial(kind.remote, process_settings(), dumps(self.task), ray.get)
        self._hands = [Hand(player()) for _ in range(self.count)]
        try:
            self._await(places)
        except BaseException:
            self.close()
            raise

    def _await(self, places: int) -> None:
        for hand in self._hands:
            self._greet(hand)
        late = time.monotonic() + START
        while sum(hand.ready for hand in self._hands) < places and time.monotonic() < late:
            self._attend(late - time.monotonic())
        if not any(hand.ready for hand in self._hands):
            raise UserError(f"no worker could start within {START:.0f} s: is there a free CPU in the cluster?")

    def _issue(self, candidate: Candidate, share: int = 1, submitted: bool = False) -> Call:
        self._open()
        call = Call(candidate, *self._sender.pack(candidate), share, submitted)
        self._out.add(call)
        self._waiting.append(call)
        if len(self._waiting) >= share:
            self._dispatch()
        return call

    def _dispatch(self) -> None:
        """Give what waits to whoever is free."""
        for hand in self._hands:
            if hand.errand is None and (calls := self._together()):
                parcel = [(call.message, call.references) for call in calls]
                self._send(hand, calls, hand.player.play.remote(parcel), self._played)

    def _together(self) -> list[Call]:
        """What waits, as many as the first may be sent with."""
        calls: list[Call] = []
        while self._waiting and (not calls or len(calls) < min(calls[0].share, self._waiting[0].share)):
            call = self._waiting.popleft()
            if call in self._out:  # else its outcome came after all
                calls.append(call)
        return calls

    def _greet(self, hand: Hand) -> None:
        """Have a worker say that it is there, when it is."""
        self._send(hand, [], hand.player.greet.options(max_task_retries=-1).remote(), self._greeted)

    def _send(self, hand: Hand, calls: list[Call], reference: Any, then: Callable[..., None]) -> None:
        hand.errand, events = Errand(calls, time.monotonic()), self._events
        reply = partial(then, hand, hand.errand)
        reference.future().add_done_callback(lambda future: events.put(partial(reply, future, time.monotonic())))

    def _attend(self, seconds: float | None = None) -> None:
        """Wait for something to happen, until the next deadline or for some seconds at most, and deal with it."""
        if not self._hands:
            return
        limit = self.deadline or max(PATIENCE, 20 * self._longest)
        due = lambda errand: errand.begun + limit * len(errand.calls) - time.monotonic()
        waits = [due(hand.errand) for hand in self._hands if hand.errand and hand.errand.calls]
        waits += [seconds] if seconds is not None else []
        try:
            self._events.get(timeout=max(0.0, min(waits)) if waits else None)()
            while True:
                self._events.get_nowait()()
        except queue.Empty:
            pass
        for hand in self._hands:
            if hand.errand and hand.errand.calls and due(hand.errand) < 0.0:
                _ray().kill(hand.player, no_restart=False)
                self._lost(hand, f"was not done within {limit:.0f} s")

    def _greeted(self, hand: Hand, errand: Errand, future: Any, now: float) -> None:
        if errand is not hand.errand:
            return
        if future.exception() is None:
            hand.errand = None
            self._dispatch()
        else:  # it can never start, and stays away for good
            hand.dead = True
            if all(hand.dead for hand in self._hands):
                raise UserError(f"no worker can start: {str(future.exception()).strip().splitlines()[-1]}")

    def _played(self, hand: Hand, errand: Errand, future: Any, now: float) -> None:
        ours, error = errand is hand.errand, future.exception()
        if error is not None and _is_loss(error):
            if ours:  # else it was given up before, and issued again
                self._lost(hand, "was lost with its worker")
            return
        if ours:
            hand.errand = None
            self._dispatch()
        wanted = self._out.intersection(errand.calls)
        self._out -= wanted
        if not wanted:  # these are second outcomes
            return
        if error is not None:
            raise error
        results, seconds = future.result(), now - errand.begun
        if isinstance(results, str):
            raise UserError(results)
        self._longest = max(self._longest, seconds / len(errand.calls))
        for call, played in zip(errand.calls, results, strict=True):
            if call in wanted:
                self._accept(call, played, seconds)

    def _accept(self, call: Call, played: Played, seconds: float) -> None:
        candidate, individual = call.candidate, call.candidate.individual
        if played.actor is not None:
            individual = individual._replace(actor=loads(played.actor))
        elif candidate.perturbation is not None:
            individual = individual._replace(actor=candidate.perturbation(individual.actor))
        rows = Transitions(*(np.array(column) for column in played.transitions))  # writable, and free of Ray's store
        call.outcome = Outcome(candidate, individual, played.returns, rows, *played.reference, played.lengths)
        self.timings.append(Timing(candidate.number, seconds, *played.seconds))
        if call.submitted:
            self._done.append(call.outcome)

    def _lost(self, hand: Hand, how: str) -> None:
        """Issue the worker's candidates again, each by itself. Whoever is free has to say that it is still there: a node may have left."""
        calls, hand.errand = hand.errand.calls, None
        for other in self._hands:
            if other.errand is None:
                self._greet(other)
        for call in reversed([call for call in calls if call in self._out]):
            call.share, call.losses = 1, call.losses + 1  # one of them may be the reason
            if call.losses == LOSSES:
                self._out.discard(call)
                raise UserError(
                    f"candidate {call.candidate.number} {how}, {LOSSES} times in a row: out of memory, or stuck?"
                )
            self._waiting.appendleft(call)

    def _learnt(self, learnt: LearningResult | BaseException) -> None:
        if isinstance(learnt, BaseException):
            self.learning = False
            raise learnt
        self._done.append(learnt)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed: pip install 'genepool[cluster]'") from None
    return ray


def _is_loss(error: BaseException) -> bool:
    """Whether the call was lost on the way, rather than failed by its own fault."""
    kinds = _ray().exceptions
    return not isinstance(error, kinds.RayTaskError) or isinstance(error.cause, kinds.RayError)
