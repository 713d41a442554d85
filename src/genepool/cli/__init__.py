"""The command line. Each command is a file in `commands/`, imported when it is called."""

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from genepool.cli.commands import train
from genepool.errors import UserError, did_you_mean

HELP = """\
genepool trains control policies by evolution and gradient learning together.

usage: genepool COMMAND ...

  train PRESET TASK   train a policy; every hyper-parameter is an option (genepool train PRESET --help)
  resume RUN          go on with a run from its last checkpoint, exactly as if it had never stopped
  evaluate RUN        play the champion of a run on fresh episodes
  plot RUN...         draw the learning curves of one or several runs; --figure for the figures of ESAC's paper
  watch RUN...        film the champions of one or several runs, side by side
  operators RUN       what crossover and mutation do to a run's population: children are bred, played and drawn
  runs [FOLDER]       a table of the runs in a folder
  report RUN...       figures and tables of all that the records of some runs show, on one page
  compare RUN... --against RUN...
                      two groups of runs side by side, with a test of the difference
  simulate SYSTEM TASK
                      how fast cem-rl, p-cem-rl or aes-rl would be on how many workers, on a simulated clock
  estimate PRESET TASK
                      how long a run will take on this machine, and how much memory, from a short measurement
  verify PRESET TASK  train some seeds, and say whether their mean lies in the band of published results

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
            raise UserError(f"there is no command {argv[0]!r}{did_you_mean(argv[0], COMMANDS)}: see genepool --help")
        if argv[0] == "resume":
            recall_flags(argv[1:])
        sys.path.append(os.getcwd())  # a task of the user's own may be in the current folder
        return importlib.import_module(f"genepool.cli.commands.{argv[0]}").main(argv[1:])
    except UserError as error:
        print(f"genepool: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("genepool: stopped at once; `genepool resume` goes on from the last checkpoint", file=sys.stderr)
        return 130


def recall_flags(words: Sequence[str]) -> None:
    """Set XLA's flags as the resumed run had them, before JAX is imported: the same bits need the same flags.

    Flags that are set already stay.
    """
    for config in (Path(word) / "config.json" for word in words):
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
            os.environ.setdefault("XLA_FLAGS", json.loads(config.read_text()).get("xla_flags", ""))
