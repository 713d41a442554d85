"""The papers' tables at the papers' own budgets: plans of training runs for `benchmarks.results`, tier after tier.

    python -m benchmarks.results --plan benchmarks.papers:TIER_1 --runs runs/papers --results results/papers

Each tier may be run on its own and stopped at any time; what is finished is not trained again. EARLY is the part of
tier 1 that is trained first, with the short runs and the first seeds of GPO's tasks at the front.

Every row has the engine that its presets take by themselves, so that the numbers are those of a user who gives no
options: `mujoco`, our own batches of Gymnasium's robots, for HalfCheetah, Hopper, Swimmer and Walker2d; `gymnasium`
for rllab's robots, which no other engine has; `envpool` for Ant, LunarLander and DM Control.
"""

from dataclasses import replace

from benchmarks.results import ERLS, Row

# GPO says nothing of lambda, of an episode's value at its time limit and of the scale of observations. The presets have what is
# used today; "as rllab" has what the framework had that the paper was made with.
RLLAB = "--mutation.advantages.gae 1 --mutation.advantages.no-bootstrap --no-normalise"
GPO = {"GPO": "gpo", "Single": "single", "Joint": "joint"}
GPO |= {f"{name} as rllab": f"{preset} {RLLAB}" for name, preset in tuple(GPO.items())}
A2C = {f"{name} with A2C": f"{words} --mutation a2c" for name, words in GPO.items() if "rllab" not in name}
ABLATIONS = {  # GPO's Figure 5: C crossover, S selection, M data sharing; GPO itself and Single are in the rows above
    "GPO base": "gpo --no-crossover --no-selection --no-sharing",
    "GPO base C": "gpo --no-selection --no-sharing",
    "GPO base S": "gpo --no-crossover --no-sharing",
    "GPO base CS": "gpo --no-sharing",
    "GPO base M": "gpo --no-crossover --no-selection",
    "GPO base MS": "gpo --no-crossover",
    "GPO base MC": "gpo --no-selection",
}

# AES-RL's Table 2: ten pairs of rules for the mean and the variance
RULES = {"one-plus-one-ES": "one-plus-one-es", "rank-ES": "rank-es"}
RULES |= {
    f"AES-RL {mean} {variance}": f"aes-rl --mean-rule {mean} --variance-rule {variance}"
    for variance in ("adaptive-n", "fixed-n")
    for mean in ("linear-range", "sigmoid-range", "absolute-baseline", "relative-baseline")
}

# ESAC's published commands: ten pairs, networks of 256, SAC with target critics, crossover without effect, tuning by ranks at
# intervals. With ten pairs, 20 million frames of the population are a thousand generations, the paper's "million steps" at a
# thousand for a generation; the strategy alone is trained with the paper's fifty pairs too.
AUTHORS = "esac --evolver.pairs 10 --crossover none --evolver.tuned interval --evolver.tuning.sees ranked"
AUTHORS += " --hidden 256 256 --learner.critics twin --learner.critic-hidden 256 256"
STRATEGIES = {"ES": "es", "ES of ten pairs": "es --evolver.pairs 10"}
AGAINST_ESAC = STRATEGIES | {"ESAC as its authors ran it": AUTHORS, "SAC": "sac"}

TABLE_1 = "GPO's Table 1: GPO, Single and Joint"
TIER_1 = (
    Row(GPO, "Walker2dRllab", 8_000_000, 2, f"{TABLE_1} 1465, 541, 810", engine="gymnasium"),
    Row(GPO, "HalfCheetahRllab", 8_000_000, 2, f"{TABLE_1} 2101, 1524, 1766", engine="gymnasium"),
    Row(GPO, "HopperHillyRllab", 8_000_000, 2, f"{TABLE_1} 894, 509, 905", engine="gymnasium"),
    Row(
        {"TD3 with tanh actors": "td3", "CEM-RL": "cem-rl"}
        | {"AES-RL": "aes-rl", "AES-RL of one reference episode": "aes-rl --reference-episodes 1"},
        "HalfCheetah-v5",
        1_000_000,
        1,
        "AES-RL's Table 3: TD3 9630, CEM-RL 10725, AES-RL 12550",
        engine="mujoco",
    ),
    Row(
        {"ERL": "erl", "PDERL": "pderl"},
        "Swimmer-v5",
        2_000_000,
        3,
        "PDERL's Table 1: ERL 334, PDERL 337",
        engine="mujoco",
    ),
    Row({"PDERL": "pderl"}, "HalfCheetah-v5", 6_000_000, 1, "PDERL's Table 1: 13522", engine="mujoco"),
    Row(
        AGAINST_ESAC,
        "LunarLanderContinuous-v3",
        5_000_000,
        1,
        "ESAC's Table 1: ESAC 286, ES 74; its SAC's 67 is probably no return of episodes",
    ),
    Row(  # a run of SAC holds its own million of the table: the curve at a twentieth of the frames
        AGAINST_ESAC,
        "Swimmer-v5",
        20_000_000,
        1,
        "ESAC's Table 1: ESAC 345, ES 254, SAC 32 at a million frames of its own",
        engine="mujoco",
    ),
)

TIER_2 = (
    Row(GPO, "Walker2dHillyRllab", 8_000_000, 2, f"{TABLE_1} 1140, 467, 1045", engine="gymnasium"),
    Row(GPO, "HalfCheetahHillyRllab", 8_000_000, 2, f"{TABLE_1} 1235, 661, 1033", engine="gymnasium"),
    Row(GPO, "HopperRllab", 8_000_000, 2, f"{TABLE_1} 903, 457, 923", engine="gymnasium"),
    Row(GPO, "SwimmerRllab", 8_000_000, 2, f"{TABLE_1} 99, 96, 95", engine="gymnasium"),
    Row(GPO, "AntRllab", 8_000_000, 2, f"{TABLE_1} 1338, 394, 1215", engine="gymnasium"),
    Row(GPO, "InvertedDoublePendulumRllab", 8_000_000, 2, f"{TABLE_1} 4648, 4706, 4540", engine="gymnasium"),
    Row(
        {name: ERLS[name] for name in ("PERL", "DERL")},
        "Swimmer-v5",
        2_000_000,
        2,
        "PDERL's Table 1: PERL 327, DERL 333",
        engine="mujoco",
    ),
    Row({"ERL": "erl"}, "HalfCheetah-v5", 6_000_000, 1, "PDERL's Table 1: 10963", engine="mujoco"),
    Row(RULES, "HalfCheetah-v5", 200_000, 1, "the order in AES-RL's Table 2", engine="mujoco"),
    Row(RULES, "Swimmer-v5", 200_000, 1, "the order in AES-RL's Table 2", engine="mujoco"),
)

RLLAB_TASKS = tuple(row.task for row in TIER_1 + TIER_2 if row.systems is GPO)
TIER_3 = (
    *(Row(A2C, task, 8_000_000, 2, "GPO's Table 2", engine="gymnasium") for task in RLLAB_TASKS),
    *(
        Row({"ERL": "erl", "PDERL": "pderl"}, task, frames, 1, "PDERL's Table 1", engine=engine)
        for task, frames, engine in (
            ("Hopper-v5", 4_000_000, "mujoco"),
            ("Walker2d-v5", 6_000_000, "mujoco"),
            ("Ant-v5", 6_000_000, "envpool"),
        )
    ),
    *(
        Row({"ESAC as its authors ran it": AUTHORS}, task, 20_000_000, 1, "ESAC's Table 1, DM Control")
        for task in ("HumanoidStand", "HumanoidWalk", "HumanoidRun", "CheetahRun", "WalkerWalk", "FishUpright")
    ),
    *(
        Row(ABLATIONS, task, 8_000_000, 2, "GPO's Figure 5", also_shown=("GPO", "Single"), engine="gymnasium")
        for task in ("Walker2dRllab", "AntRllab")
    ),
    *(replace(row, seeds=2) for row in TIER_1 if row.seeds == 1),  # the first is tier 1's and not trained again
)


def _only(row: Row, *systems: str, seeds: int | None = None) -> Row:
    """The row with some of its systems and of its seeds."""
    return replace(row, systems={name: row.systems[name] for name in systems or row.systems}, seeds=seeds or row.seeds)


_gpo = tuple(row for row in TIER_1 if row.systems is GPO)
_cheetah, _swimmer = TIER_1[3:5]
_lander, _swimming = TIER_1[6:8]
EARLY = (
    *(_only(row, seeds=1) for row in _gpo),
    *_gpo,
    *(_only(row, *STRATEGIES) for row in (_lander, _swimming)),
    _only(_cheetah, "TD3 with tanh actors", "CEM-RL"),
    _only(_swimmer, "ERL"),
    *(_only(row, "SAC") for row in (_lander, _swimming)),
)
