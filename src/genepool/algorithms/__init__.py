"""The loops, as ask, tell and learn, and the presets that choose their parts."""

from genepool.algorithms.erl import ERL
from genepool.algorithms.esac import ESAC
from genepool.algorithms.gpo import GPO
from genepool.algorithms.presets import (
    a2c,
    aes_rl,
    cem,
    cem_rl,
    ddpg,
    derl,
    erl,
    es,
    esac,
    gpo,
    joint,
    one_plus_one_es,
    pderl,
    perl,
    ppo,
    rank_es,
    sac,
    single,
    td3,
)
from genepool.algorithms.taught import TaughtES

ALGORITHMS = {"ERL": ERL, "TaughtES": TaughtES, "ESAC": ESAC, "GPO": GPO}
PRESETS = {
    preset.__name__.replace("_", "-"): preset
    for preset in (
        *(erl, perl, derl, pderl, cem_rl, aes_rl, one_plus_one_es, rank_es, esac, gpo, single, joint),
        *(ddpg, td3, sac, ppo, a2c, cem, es),
    )
}
