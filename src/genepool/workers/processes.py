"""Worker processes of this machine: they play batches of rollouts while this process plays others.

Threads would not do: in one process they take turns at all that is Python. A process takes seconds to start, so the
first ones start only after this process has played alone for as long. Without worker processes, or after one is lost,
this process plays alone and gets the same bits.
"""

import atexit
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import IO, Any

import numpy as np

from genepool.acting.episodes import Rollout, RolloutResult
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.xla import process_settings

PATIENCE = 5.0  # seconds of playing alone before processes are started
PIPE_BYTES = 2**20  # what one side can write before the other reads
START = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from genepool.workers.process_main import main; main()"
)


class WorkerProcess:
    """Another process that plays batches of rollouts. It ends with this one."""

    def __init__(self):
        settings = process_settings()
        self.process = subprocess.Popen(
            [sys.executable, "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | settings["environment"],
            pipesize=PIPE_BYTES,
        )
        # pipes are buffered, though the stubs do not say so
        assert isinstance(self.process.stdin, BufferedWriter)
        assert isinstance(self.process.stdout, BufferedReader)
        self._inlet = self.process.stdin
        self._outlet = self.process.stdout
        self.ready = False
        self.starting = threading.Thread(target=self._start, args=(settings,), name="worker process", daemon=True)
        self.starting.start()

    def _start(self, settings: dict[str, Any]) -> None:
        try:
            pickle.dump(settings["path"], self._inlet)
            send(self._inlet, settings)
            self.ready = receive(self._outlet)
        except (OSError, EOFError, pickle.UnpicklingError):
            self.close()

    def play(self, task: Task, batch: Sequence[Rollout]) -> list[RolloutResult] | None:
        """The results of a batch; None if it cannot be played there. The process is closed then."""
        try:
            send(self._inlet, (task, batch))
            answer = receive(self._outlet)
        except (OSError, EOFError, AttributeError, TypeError, pickle.PickleError):
            answer = None
        if isinstance(answer, UserError):
            raise answer
        if answer is None:
            self.close()
        return answer

    def peak(self) -> int:
        """The most bytes of memory that it has held; 0 where the system does not say."""
        status = Path(f"/proc/{self.process.pid}/status")
        if not self.ready or not status.exists():
            return 0
        return 1024 * int(status.read_text().partition("VmHWM:")[2].split()[0])

    def close(self) -> None:
        """End the process."""
        self.ready = False
        self.process.kill()
        self.process.wait()


class ProcessPool:
    """The worker processes that no caller uses now. It is safe to use from several threads."""

    def __init__(self, free: Sequence[WorkerProcess] = ()):
        self._free = list(free)
        self._started = len(self._free)
        self._seconds_alone = 0.0
        self._lock = threading.Lock()

    def acquire(self, count: int) -> list[WorkerProcess]:
        """At most `count` processes that are ready. Give them back by `release`."""
        with self._lock:
            ready = [process for process in self._free if process.ready][:count]
            self._free = [process for process in self._free if process not in ready]
            return ready

    def release(self, acquired: Sequence[WorkerProcess]) -> None:
        """Make them free for others."""
        with self._lock:
            self._free.extend(acquired)

    def report_missing(self, count: int, seconds: float) -> None:
        """Count the seconds that were played with fewer than `count` processes; after enough of them, start `count`."""
        with self._lock:
            self._seconds_alone += seconds
            if self._seconds_alone > PATIENCE:
                self._start(count)

    def start_now(self, count: int) -> list[WorkerProcess]:
        """Start `count` processes and wait until they are ready or lost. All that are free."""
        with self._lock:
            self._start(count)
            free = list(self._free)
        for process in free:
            process.starting.join()
        return free

    def forget(self) -> None:
        """Drop all processes without closing them."""
        self._free.clear()

    def close(self) -> None:
        """End all processes that are free."""
        for process in self._free:
            process.close()

    def _start(self, count: int) -> None:
        while self._started < count:  # a lost process is not replaced
            self._free.append(WorkerProcess())
            self._started += 1


pool = ProcessPool()
atexit.register(pool.close)
if hasattr(os, "register_at_fork"):  # a fork of this process must not talk to its worker processes
    os.register_at_fork(after_in_child=pool.forget)


def send(pipe: IO[bytes] | BufferedWriter, what: object) -> None:
    """Write an object, its arrays straight from memory: no other thread could run while they were pickled."""
    arrays: list[pickle.PickleBuffer] = []
    frame = pickle.dumps(what, protocol=5, buffer_callback=arrays.append)
    contents = [array.raw() for array in arrays]
    pickle.dump((frame, [content.nbytes for content in contents]), pipe)
    for content in contents:
        pipe.write(content)
    pipe.flush()


def receive(pipe: BufferedReader) -> Any:
    """Read what `send` wrote, to its end even if it cannot be unpickled."""
    frame, sizes = pickle.load(pipe)
    contents = [np.empty(size, np.uint8) for size in sizes]
    for content in contents:
        if pipe.readinto(content.data) < content.nbytes:
            raise EOFError
    return pickle.loads(frame, buffers=contents)
