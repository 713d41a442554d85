"""The small runs that `benchmarks.same_bits` compares: every preset, its variants, and what their records must show."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Case:
    """A small run: the arguments of `genepool train`, and what its records must show."""

    preset: str
    options: str
    shows: str = ""  # words that must occur in its records, see `shown`
    task: str = "Hopper-v5"  # some of its short episodes end early, others at the limit
    frames: int | None = 700
    stopped: int | None = None  # frames after which the run ends, to be resumed
    other_spelling: str | None = None  # the options for a checkout that refuses the first spelling

    def commands(self, options: str, folder: Path) -> list[list[str]]:
        """The arguments of each call of genepool, in order."""
        first = self.stopped or self.frames
        words = ["train", self.preset, self.task, *options.split(), "--seed", "3", "--run", str(folder)]
        calls = [words + (["--frames", str(first)] if first else [])]
        if self.stopped:
            again = ["--task", self.task] if ":" in self.task else []
            calls.append(["resume", str(folder), "--frames", str(self.frames), *again])
        return calls


BRIEF = "--max-steps 60 --test-episodes 2 --hidden 8 8 "
REPLAY = BRIEF + "--replay 2000 --learner.batch-size 16 "
GENETIC = REPLAY + "--population 4 --trials 2 --memory 300 --learner.warmup 64 "
ALONE = REPLAY + "--learner.warmup 64 --test-every 2 "
CRITIC = "--learner.critic-hidden 8 8 "
LESSONS = REPLAY + CRITIC + "--evolver.population 4 "
CEM = LESSONS + "--lessons.taught 2 --warmup 100 "
RANK = LESSONS + "--warmup 60 --critic-head-start 60 "
AES = RANK + "--reference-episodes 2 "
PAIRS = "--evolver.pairs 3 --test-every 1 "
PHASES = PAIRS + "--evolver.injected 1 --sac-episodes 2 --gradient-interval 1 --learner.warmup 32 "
ESAC = REPLAY + CRITIC + PHASES
RANDOM = "--learner.random-frames 32 "
PPO = BRIEF + "--batch 120 --test-every 2 "
SHARED = PPO + "--population 3 "
CROSSOVER = (
    "--crossover.iterations 1 --crossover.selector-epochs 2 --crossover.expert-frames 100 "
    "--crossover.student-frames 20 --crossover.dagger 2 --crossover.epochs 2 "
)
GPO = SHARED + "--rounds 2 --iterations 2 "
PRESETS = {
    "erl": Case("erl", GENETIC, "updates RowCopy Gaussian elite clone exploration"),
    "perl": Case("perl", GENETIC, "updates RowCopy Proximal elite clone exploration"),
    "derl": Case("derl", GENETIC, "updates Distillation Gaussian elite clone exploration"),
    "pderl": Case("pderl", GENETIC, "updates Distillation Proximal elite clone exploration"),
    "cem-rl": Case("cem-rl", CEM, "updates lesson"),
    "aes-rl": Case("aes-rl", AES, "updates lesson warm-up reference"),
    "one-plus-one-es": Case("one-plus-one-es", AES, "updates lesson warm-up reference"),
    "rank-es": Case("rank-es", RANK, "updates lesson warm-up"),
    "esac": Case("esac", ESAC + RANDOM, "updates phases winner mother learner exploration", frames=900),
    "gpo": Case("gpo", GPO + CROSSOVER, "updates couples expert student StateSpace PPO", frames=None),
    "single": Case("single", SHARED, "updates PPO", frames=1000),
    "joint": Case("joint", BRIEF + "--batch 240 ", "updates PPO"),
    "ddpg": Case("ddpg", ALONE, "updates exploration", frames=300),
    "td3": Case("td3", ALONE + CRITIC, "updates exploration", frames=300),
    "sac": Case("sac", ALONE + CRITIC + "--learner.random-frames 64 ", "updates exploration", frames=300),
    "ppo": Case("ppo", PPO, "updates PPO", frames=480),
    "a2c": Case("a2c", PPO, "updates A2C", frames=480),
    "cem": Case("cem", BRIEF + "--evolver.population 4 --trials 2 "),
    "es": Case("es", BRIEF + PAIRS, "mother"),
}


def _varied(name: str, options: str = "", **fields: Any) -> Case:
    """A preset's case with more options, or other fields."""
    case = PRESETS[name]
    return replace(case, options=case.options + options, **fields)


AT_ONCE = "--schedule asynchronous "
CASES = PRESETS | {
    "pderl, asynchronous": _varied("pderl", AT_ONCE, shows="updates Distillation Proximal clone exploration"),
    "cem-rl, asynchronous": _varied("cem-rl", AT_ONCE),
    "esac, asynchronous": _varied("esac", AT_ONCE),
    "aes-rl, synchronous": _varied("aes-rl", "--schedule synchronous "),
    "pderl, resumed": _varied("pderl", stopped=200),
    "pderl, asynchronous and resumed": _varied(
        "pderl", AT_ONCE, shows="updates Distillation Proximal clone exploration", stopped=200
    ),
    "cem-rl, resumed": _varied("cem-rl", stopped=230),
    "cem-rl, asynchronous and resumed": _varied("cem-rl", AT_ONCE, stopped=230),
    "aes-rl, resumed": _varied("aes-rl", stopped=230),
    "one-plus-one-es, resumed": _varied("one-plus-one-es", stopped=230),
    "rank-es, resumed": _varied("rank-es", stopped=230),
    "esac, resumed": _varied("esac", stopped=200),
    "esac, asynchronous and resumed": _varied("esac", AT_ONCE, stopped=200),
    "gpo, resumed": _varied("gpo", stopped=700, frames=1700),
    "td3, resumed": _varied("td3", stopped=150),
    "sac, resumed": _varied("sac", stopped=150),
    "ddpg, resumed": _varied("ddpg", stopped=150),
    "ppo, resumed": _varied("ppo", stopped=150),
    "cem, resumed": _varied("cem", stopped=200),
    "es, resumed": _varied("es", stopped=200),
    "pderl on Swimmer": _varied("pderl", "--sync-period 1 ", task="Swimmer-v5", frames=1300),
    "esac on HalfCheetah": _varied("esac", task="HalfCheetah-v5", frames=1500),
    "pderl on a task of one's own": _varied("pderl", "--sync-period 1 ", task="tasks:Reach", stopped=200),
    "es on the cyclic MDP": _varied("es", task="CyclicMDP-v0", frames=60),
    "gpo on the cyclic MDP": _varied("gpo", task="CyclicMDP-v0"),
    "pderl with TD3": _varied("pderl", "--learner td3 " + CRITIC),
    "cem-rl with SAC": _varied("cem-rl", "--learner sac "),
    "cem-rl with Sep-CMA-ES": _varied("cem-rl", "--evolver sep-cma-es "),
    "cem-rl, newest critic": _varied("cem-rl", "--target-policy mean --lesson-critic newest --critic-chunk 50 "),
    "aes-rl, references kept": _varied("aes-rl", "--reference-cache "),
    "aes-rl, other rules": _varied("aes-rl", "--mean-rule absolute-baseline --variance-rule fixed-n --warmup-told "),
    "esac, a phase at a time": _varied("esac", "--learns-after phase --share-experience "),
    "esac with TD3": Case("esac", ESAC + "--learner td3 ", "updates phases learner exploration", frames=900),
    "gpo by A2C, no sharing": Case(
        "gpo", GPO + CROSSOVER + "--mutation a2c --no-sharing ", "couples student A2C", frames=None
    ),
    "gpo, weights crossed": Case("gpo", GPO + "--crossover parameter-space ", "couples ParameterSpace", frames=None),
    "cem-rl, ray": _varied("cem-rl", "--workers ray:2 "),
    "esac, ray": _varied("esac", "--workers ray:2 "),
    "pderl, ray": _varied("pderl", "--workers ray:2 "),
}
