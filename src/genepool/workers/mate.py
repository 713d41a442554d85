"""The far side of a crew: a process that plays the batches it is sent, until nobody is there to send any."""

import os
import pickle
import signal
import sys
from contextlib import suppress

from genepool.environments.task import Engine, Task
from genepool.errors import UserError
from genepool.machine import adopt
from genepool.workers.local import play


def main() -> None:
    """Answer batches on standard input with what comes of them, on standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that hired this one
    inlet, outlet = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what an environment prints is no answer
    engines: dict[Task, Engine] = {}

    def say(what: object) -> None:
        pickle.dump(what, outlet, protocol=pickle.HIGHEST_PROTOCOL)
        outlet.flush()

    with suppress(EOFError, BrokenPipeError):
        adopt(pickle.load(inlet))
        say(True)
        while True:
            message = pickle.load(inlet)
            try:
                task, batch = pickle.loads(message)
                if task not in engines:
                    engines[task] = task.open()
                say(play(task, engines[task], 1, batch))
            except UserError as error:
                say(error)
            except (AttributeError, ImportError):  # an actor of a class that only the other process knows
                say(None)
