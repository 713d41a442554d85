"""The far side of a crew: a process that plays the batches it is sent, until nobody is there to send any."""

import os
import signal
import sys
from contextlib import suppress
from functools import partial

from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.protocols import Engine
from genepool.workers import processes as crew
from genepool.workers.local import play
from genepool.xla import apply_settings


def main() -> None:
    """Answer batches on standard input with what comes of them, on standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that hired this one
    inlet, outlet = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what an environment prints is no answer
    engines: dict[Task, Engine] = {}
    say = partial(crew.send, outlet)
    with suppress(EOFError, BrokenPipeError):
        apply_settings(crew.receive(inlet))
        say(True)
        while True:
            try:
                task, batch = crew.receive(inlet)
                if task not in engines:
                    engines[task] = task.open()
                say(play(task, engines[task], 1, batch))
            except UserError as error:
                say(error)
            except (AttributeError, ImportError):  # an actor of a class that only the other process knows
                say(None)
