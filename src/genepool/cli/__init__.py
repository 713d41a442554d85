"""The command line. A command is a file in `commands/`, imported when it is called."""

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from genepool.cli.commands import train
from genepool.cli.options import nearest
from genepool.errors import UserError

HELP = """\
genepool trains control policies by evolution and gradient learning together.

usage: genepool COMMAND ...

  train PRESET TASK   train a policy; every hyper-parameter is an option (genepool train PRESET --help)
  resume RUN          go on with a run from its last checkpoint, exactly as if it had never stopped
  evaluate RUN        play the champion of a run on fresh episodes
  plot RUN...         draw the learning curves of one or several runs; --figure for ESAC's own
  watch RUN...        film the champions of one or several runs, side by side
  operators RUN       what crossover and mutation make of a run's own population, played and drawn
  runs [FOLDER]       a table of the runs that are there
  report RUN...       all that the records of some runs show, on one page of figures and tables
  compare RUN... --against RUN...
                      two groups of runs side by side, with a test of the difference
  simulate SYSTEM TASK
                      how fast cem-rl, p-cem-rl or aes-rl would be on how many workers, on a simulated clock
  estimate PRESET TASK
                      how long a run will take on this machine, and how much memory, from a short measurement
  verify PRESET TASK  train some seeds, and say whether they lie among what others have published

"""
COMMANDS = (
    *("train", "resume", "evaluate", "plot", "runs", "report", "compare", "operators", "watch"),
    *("simulate", "estimate", "verify"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(HELP + train.HELP, end="")
        return 0
    try:
        if argv[0] not in COMMANDS:
            raise UserError(f"there is no command {argv[0]!r}{nearest(argv[0], COMMANDS)}: see genepool --help")
        if argv[0] == "resume":
            recall_flags(argv[1:])
        sys.path.append(os.getcwd())  # a task of the user's own is looked for where the user stands
        return importlib.import_module(f"genepool.cli.commands.{argv[0]}").main(argv[1:])
    except UserError as error:
        print(f"genepool: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("genepool: stopped at once; `genepool resume` goes on from the last checkpoint", file=sys.stderr)
        return 130


def recall_flags(words: Sequence[str]) -> None:
    """XLA's flags as the run had them that is resumed, before JAX is imported: the same bits come of the same flags. What is set
    now stays.
    """
    for config in (Path(word) / "config.json" for word in words):
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
            os.environ.setdefault("XLA_FLAGS", json.loads(config.read_text()).get("xla_flags", ""))
