"""The main function of a worker process: it plays the batches that it is sent, until the sender is gone."""

import os
import signal
import sys
from contextlib import suppress
from functools import partial
from io import BufferedReader

from genepool.acting.episodes import play
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.protocols import Engine
from genepool.workers.processes import receive, send
from genepool.xla import apply_settings


def main() -> None:
    """Read batches from standard input and write their results to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    inlet = sys.stdin.buffer
    assert isinstance(inlet, BufferedReader)  # the stubs do not say so
    outlet = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # so that what an environment prints is not read as a result
    engines: dict[Task, Engine] = {}
    answer = partial(send, outlet)
    with suppress(EOFError, BrokenPipeError):
        apply_settings(receive(inlet))
        answer(True)
        while True:
            try:
                task, batch = receive(inlet)
                if task not in engines:
                    engines[task] = task.open()
                answer(play(task, engines[task], 1, batch))
            except UserError as error:
                answer(error)
            except (AttributeError, ImportError):  # an actor of a class that only the other process knows
                answer(None)
