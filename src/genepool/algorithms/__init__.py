"""The loops, as ask, tell and learn, and the presets that choose their parts."""

from genepool.algorithms.erl import ERL
from genepool.algorithms.presets import ddpg, derl, erl, pderl, perl

ALGORITHMS = {"ERL": ERL}
PRESETS = {preset.__name__: preset for preset in (erl, perl, derl, pderl, ddpg)}
