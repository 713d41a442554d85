"""A crew: processes that play beside this one, for the threads of one process take turns at all that is Python.

A process takes a while to start, so none is hired before this one has played alone for as long. Who has no mates yet, or loses
one, plays alone and gets the same bits.
"""

import atexit
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.xla import process_settings

PATIENCE = 5.0  # seconds of playing alone before mates are hired
START = "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); from genepool.workers.process_main import main; main()"

_lock = threading.Lock()
_free: list["Mate"] = []  # those that nobody plays with
_hired = 0
_alone = 0.0  # seconds that could have been shared


class Mate:
    """Another process that plays batches. It ends with this one."""

    def __init__(self):
        shared, pipe = process_settings(), subprocess.PIPE
        environment = os.environ | shared["environment"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", START],
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            env=environment,
            pipesize=2**20,  # bytes that one side need not wait for the other with
        )
        self.ready = False
        self.greeting = threading.Thread(target=self._greet, args=(shared,), name="mate", daemon=True)
        self.greeting.start()

    def _greet(self, shared: dict[str, Any]) -> None:
        try:
            pickle.dump(shared["path"], self.process.stdin)
            send(self.process.stdin, shared)
            self.ready = receive(self.process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            self.close()

    def play(self, task: Task, batch: Sequence[Any]) -> list[Any] | None:
        """What comes of the tickets of a batch; none, if it cannot be played there."""
        try:
            send(self.process.stdin, (task, batch))
            answer = receive(self.process.stdout)
        except (OSError, EOFError, AttributeError, TypeError, pickle.PickleError):
            answer = None
        if isinstance(answer, UserError):
            raise answer
        if answer is None:
            self.close()
        return answer

    def peak(self) -> int:
        """The most bytes of memory that it has held; nothing where the system does not say."""
        status = Path(f"/proc/{self.process.pid}/status")
        return 1024 * int(status.read_text().partition("VmHWM:")[2].split()[0]) if self.ready and status.exists() else 0

    def close(self) -> None:
        """End the process."""
        self.ready = False
        self.process.kill()
        self.process.wait()


def send(pipe: BinaryIO, what: Any) -> None:
    """Write something, its arrays from where they are: no other thread can go on while they are copied into a pickle."""
    arrays: list[pickle.PickleBuffer] = []
    frame = pickle.dumps(what, protocol=5, buffer_callback=arrays.append)
    contents = [array.raw() for array in arrays]
    pickle.dump((frame, [content.nbytes for content in contents]), pipe)
    for content in contents:
        pipe.write(content)
    pipe.flush()


def receive(pipe: BinaryIO) -> Any:
    """Read what was sent, to its end even if it cannot be understood."""
    frame, sizes = pickle.load(pipe)
    contents = [np.empty(size, np.uint8) for size in sizes]
    for content in contents:
        if pipe.readinto(content) < content.nbytes:
            raise EOFError
    return pickle.loads(frame, buffers=contents)


def take(count: int) -> list[Mate]:
    """At most so many mates that are free and ready."""
    with _lock:
        ready = [mate for mate in _free if mate.ready][:count]
        _free[:] = [mate for mate in _free if mate not in ready]
        return ready


def give(mates: Sequence[Mate]) -> None:
    """Let others have them."""
    with _lock:
        _free.extend(mates)


def miss(count: int, seconds: float) -> None:
    """Take note that so many mates were missing for so long, and hire them if that is often so."""
    global _alone
    with _lock:
        _alone += seconds
        if _alone > PATIENCE:
            _hire(count)


def gather(count: int) -> list[Mate]:
    """Hire so many now, and wait until they are ready or lost; all that nobody plays with."""
    with _lock:
        _hire(count)
        mates = list(_free)
    for mate in mates:
        mate.greeting.join()
    return mates


def _hire(count: int) -> None:
    global _hired
    while _hired < count:  # one that was lost is not replaced
        _free.append(Mate())
        _hired += 1


@atexit.register
def _dismiss() -> None:
    for mate in _free:
        mate.close()


if hasattr(os, "register_at_fork"):  # a copy of this process must not talk to its mates
    os.register_at_fork(after_in_child=_free.clear)
