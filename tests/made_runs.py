"""Run folders made by hand, with records like those that training writes: what reports are tested with."""

import csv
import json

import numpy as np

from genepool import cli

FATES = ("elite", "selected", "discarded")
PDERL = {
    "part": "Injection",
    "task": {"part": "Task", "id": "", "engine": ""},
    "evolver": {"part": "GenerationalGA", "mutation": {"part": "Proximal", "sigma": 0.1}},
    "learner": {"part": "DDPG"},
}
AES = {
    "part": "Lessons",
    "task": {"part": "Task", "id": "", "engine": ""},
    "evolver": {
        "part": "AsynchronousES",
        "mean_rule": {"part": "RelativeBaseline"},
        "variance_rule": {"part": "AdaptiveN"},
    },
    "learner": {"part": "TD3"},
}
GPO = {"part": "GPO", "task": {"part": "Task"}, "mutation": {"part": "PPO"}, "sharing": True}


def write_run(path, records, preset="pderl", task="Hopper-v5", engine="envpool", seed=0, frames=None, **config):
    """A run folder with these records; by default it is finished."""
    path.mkdir(parents=True)
    records = list(records)
    played = records[-1]["frames"] if records else 1
    config = {
        "preset": preset,
        "task": task,
        "frames": frames or played,
        "seed": seed,
        "engine": engine,
        "schedule": "synchronous",
        "workers": "local",
        "algorithm": PDERL,
        "versions": {engine: "1.2.5"},
        "machine": {"cores": 2},
    } | config
    (path / "config.json").write_text(json.dumps(config))
    (path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def pderl_records(seed=0, generations=30, population=10, omega=5, level=0.0):
    """Generations of a population whose fitness rises, bred from one another, with the learner's clone every omega."""
    rng = np.random.default_rng(seed)
    frames = 0
    fates = [0, 0, 0]
    previous = None
    for g in range(generations):
        numbers = g * (population + 1) + np.arange(population)
        rise = 1000.0 * (1 - np.exp(-g / 30)) + level
        fitness = rise + rng.normal(0, 120, population)
        candidates = []
        fate = None
        for slot in range(population):
            is_clone = previous is not None and slot == 1 and g % omega == 0
            parents, operators = ([], []) if previous is None or is_clone else _bred(rng, slot, previous, fitness)
            if is_clone:
                fate = int(rng.integers(3))
                fates[fate] += 1
            origin = "learning" if is_clone else "evolution"
            candidates.append(_candidate(numbers[slot], fitness[slot], "fitness", origin, parents, operators))
        candidates.append(_candidate(numbers[-1] + 1, rise / 2, "exploration", "learning", [], []))
        frames += 1000 * (population + 1)
        yield {
            "generation": g + 1,
            "frames": frames,
            "true_frames": 2 * frames,
            "ledger": {"fitness": frames},
            "fitness": fitness.tolist(),
            "champion_test": (rise + rng.normal(100, 40, 5)).tolist(),
            "learner_test": (rise + rng.normal(0, 80, 5)).tolist(),
            "clone": None if fate is None else FATES[fate],
            "clones": dict(zip(FATES, fates, strict=True)),
            "critic_loss": None if g == 0 else 5.0 + 100 * float(np.exp(-g / 10)),
            "actor_loss": -rise / 10,
            "updates": frames,
            "candidates": candidates,
            "seconds": {"breeding": 0.5, "acting": 1.0, "learning": 6.0 + rng.random(), "testing": 0.6},
            "wall": round(8.6 * (g + 1), 3),
        }
        previous = numbers


def _bred(rng, slot, previous, fitness):
    """The parents and operators of a candidate: an elite, a child of two, or a mutant."""
    if slot == 0:
        return [int(previous[np.argsort(fitness)[::-1]][0])], ["elite"]
    if slot < 5:
        parents = [int(parent) for parent in rng.choice(previous, 2, replace=False)]
        return parents, ["distillation"] + ["proximal"] * bool(rng.random() < 0.9)
    return [int(rng.choice(previous))], ["proximal"] * bool(rng.random() < 0.9)


def aes_records(seed=0, generations=30, workers=5):
    """Generations of an asynchronous strategy with references, half of them with lessons, told as episodes end."""
    rng = np.random.default_rng(seed)
    frames = 0
    number = 0
    in_flight = []
    for g in range(generations):
        rise = 800.0 * (1 - np.exp(-g / 30))
        candidates = []
        events = []
        staleness = []
        while len(candidates) < 10:
            while len(in_flight) < workers:
                in_flight.append(number)
                events.append(f"ask {number}")
                number += 1
            accepted = in_flight.pop(int(rng.integers(len(in_flight))))
            events.append(f"tell {accepted}")
            if rng.random() < 0.2:
                events.append("learnt")
            candidates.append(_with_reference(rng, accepted, rise))
            staleness.append(int(rng.integers(workers)))
        frames += 10_000
        yield {
            "generation": g + 1,
            "frames": frames,
            "true_frames": 6 * frames,
            "ledger": {"fitness": frames},
            "fitness": [one["returns"][0] for one in candidates],
            "champion_test": (rise + rng.normal(20, 30, 10)).tolist(),
            "staleness": staleness,
            "p": rng.random(10).tolist(),
            "mean_fitness": [rise] * 10,
            "taught": 5 * g,
            "untaught": 5 * g,
            "variance": 1e-3 * float(np.exp(-g / 10)) + 1e-5,
            "critic_loss": 3.0,
            "actor_loss": -rise / 5,
            "updates": frames,
            "candidates": candidates,
            "events": events,
            "seconds": {"breeding": 0.2, "acting": 3.0, "learning": 1.0, "testing": 0.4},
            "wall": 4.7 * (g + 1),
        }


def _with_reference(rng, number, rise):
    """A candidate of an asynchronous strategy, with a lesson or without, and its reference's returns."""
    lesson = bool(rng.random() < 0.5)
    fitness = rise + rng.normal(80 * lesson, 100)
    own = _candidate(number, fitness, "fitness", "learning" if lesson else "evolution", [], ["lesson"] * lesson)
    return own | {"reference": (rise + rng.normal(0, 60, 5)).tolist()}


def gpo_records(seed=0, generations=12, policies=8, level=0.0):
    """Generations of a population of learners, whose records hold little but the return of each."""
    rng = np.random.default_rng(seed)
    for g in range(generations):
        rise = 900.0 * (g + 1) / generations + level
        yield {
            "generation": g + 1,
            "frames": 650_000 * (g + 1),
            "fitness": (rise + rng.normal(0, 90, policies)).tolist(),
            "seconds": {"mutate": 250.0, "select": 70.0, "crossover": 60.0},
            "wall": 385.0 * (g + 1),
        }


def _candidate(number, fitness, purpose, origin, parents, operators):
    return {
        "number": int(number),
        "purpose": purpose,
        "origin": origin,
        "parents": parents,
        "operators": operators,
        "returns": [float(fitness)],
        "frames": 1000,
    }


def row(number, parents=(), operators=(), fitness=0.0, origin="evolution", purpose="fitness", **more):
    """A candidate of a record."""
    return {
        "number": number,
        "purpose": purpose,
        "origin": origin,
        "parents": list(parents),
        "operators": list(operators),
        "returns": [fitness],
        "frames": 10,
    } | more


def record(frames, candidates=(), **more):
    """A record with these candidates."""
    return {
        "frames": frames,
        "true_frames": frames,
        "fitness": [one["returns"][0] for one in candidates],
        "candidates": list(candidates),
        "wall": 1.0,
    } | more


def write_all_kinds(root):
    """Two tasks, two engines, three systems, and runs that are unfinished, damaged, empty or doubled."""
    for seed in range(4):
        write_run(root / f"pderl-{seed}", pderl_records(seed, 25, 6), seed=seed)
        write_run(root / f"erl-{seed}", pderl_records(seed + 10, 25, 6, level=-300), preset="erl", seed=seed)
    write_run(root / "gym", pderl_records(20, 25, 6, level=5000), engine="gymnasium")
    write_run(root / "going", pderl_records(21, 12, 6, level=9000), seed=7, frames=10**7)
    for seed in range(2):
        own = {"preset": "aes-rl", "task": "Walker2d-v5", "schedule": "asynchronous", "workers": "ray:5"}
        write_run(root / f"aes-{seed}", aes_records(seed, 15), seed=seed, algorithm=AES, **own)
    crashed = write_run(root / "crashed", pderl_records(22, 15, 6), seed=8) / "metrics.jsonl"
    crashed.write_text(crashed.read_text()[:-200])
    damaged = write_run(root / "damaged", pderl_records(23, 3, 6), seed=9)
    (damaged / "config.json").write_text('{"preset": "pderl", ')
    write_run(root / "begun", [], seed=10)
    write_run(root / "twin", pderl_records(0, 10, 6), seed=0)
    return root


def table(out, name):
    """The rows of a table of a report."""
    with (out / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def command(capsys, *words):
    """Run a command of genepool in this process: its exit code and what it printed."""
    code = cli.main([str(word) for word in words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err
