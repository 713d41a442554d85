"""Which runs belong together: those on one task by one engine, and among them those of one system with one configuration."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from genepool.analysis.records.history import History

SHOWN = 3  # settings in a system's name


@dataclass(frozen=True)
class System:
    """Runs that differ in nothing but their seeds."""

    label: str
    runs: tuple[History, ...]  # by seed
    settings: dict[str, Any]  # in which it differs from others of its preset here
    place: int = 0  # among all labels, for its colour

    @property
    def preset(self) -> str:
        """The preset that it was made from."""
        return self.runs[0].config["preset"]

    @property
    def counted(self) -> tuple[History, ...]:
        """The runs whose ends are compared: those that are finished, or all as they stand while none is."""
        return tuple(run for run in self.runs if run.finished) or self.runs

    @property
    def seeds(self) -> str:
        """How many seeds, and which, in words."""
        numbers = sorted(run.config["seed"] for run in self.counted)
        few = len(numbers) < 7 or numbers != list(range(numbers[0], numbers[-1] + 1))
        which = ", ".join(map(str, numbers)) if few else f"{numbers[0]} to {numbers[-1]}"
        return f"{len(numbers)} seed{'s' * (len(numbers) > 1)} ({which})"


@dataclass(frozen=True)
class Group:
    """Systems on one task by one engine: what may be compared."""

    task: str
    engine: str
    systems: tuple[System, ...]

    @property
    def name(self) -> str:
        """The task and the engine."""
        return f"{self.task} ({self.engine})"

    @property
    def slug(self) -> str:
        """The same as part of a file's name."""
        return "".join(c if c.isalnum() or c in "-_." else "-" for c in f"{self.task}-{self.engine}")

    @property
    def runs(self) -> list[History]:
        """The runs of all systems."""
        return [run for system in self.systems for run in system.runs]

    @property
    def versions(self) -> list[str]:
        """Versions of the engine and of MuJoCo that its runs had."""
        named = lambda versions: ", ".join(
            f"{name} {versions[name]}" for name in dict.fromkeys((self.engine, "mujoco")) if name in versions
        )
        return sorted({named(run.config.get("versions", {})) for run in self.runs} - {""})


def grouped(histories: Sequence[History]) -> tuple[list[Group], dict[str, str]]:
    """The runs by task and engine and then by system, and of those that say nothing new why, by name."""
    groups, left_out = [], {}
    for task, engine in sorted({(run.config["task"], run.config["engine"]) for run in histories}):
        here = [run for run in histories if (run.config["task"], run.config["engine"]) == (task, engine)]
        systems = []
        for preset in dict.fromkeys(run.config["preset"] for run in here):
            systems += _systems(preset, [run for run in here if run.config["preset"] == preset], left_out)
        groups.append(Group(task, engine, tuple(systems)))
    labels = list(dict.fromkeys(system.label for group in groups for system in group.systems))
    placed = lambda system: replace(system, place=labels.index(system.label))
    return [replace(group, systems=tuple(map(placed, group.systems))) for group in groups], left_out


def _systems(preset: str, runs: list[History], left_out: dict[str, str]) -> list[System]:
    """The runs of a preset apart by what their configurations differ in."""
    described = [settings(run.config) for run in runs]
    apart = _apart(described)
    kinds: dict[tuple, list[History]] = {}
    for run, own in zip(runs, described, strict=True):
        kinds.setdefault(tuple(str(own.get(path)) for path in apart), []).append(run)
    systems, labels = [], set()
    for values, members in sorted(kinds.items()):
        differing = dict(zip(apart, values, strict=True))
        label = _label(preset, differing)
        label = label if label not in labels else f"{label} {len(labels) + 1}"
        labels.add(label)
        systems.append(System(label, _by_seed(members, left_out), differing))
    return systems


def _by_seed(runs: list[History], left_out: dict[str, str]) -> tuple[History, ...]:
    """One run for each seed, the longest. The same seed gives the same bits: a second run is no second sample."""
    seeds: dict[Any, History] = {}
    for run in sorted(runs, key=lambda run: (-run.frames[-1], run.name)):
        # what many workers do depends on who is done first as well
        chance = run.config.get("schedule") == "asynchronous" and run.config.get("workers", "local") != "local"
        kept = seeds.setdefault((run.config["seed"], run.name if chance else ""), run)
        if kept is not run:
            left_out[run.name] = f"has the seed of {kept.name} and its configuration, and so its bits: no second sample"
    return tuple(sorted(seeds.values(), key=lambda run: (run.config["seed"], run.name)))


def settings(config: dict[str, Any]) -> dict[str, Any]:
    """Every hyper-parameter by its path, and the workers where they are part of the result."""
    flat: dict[str, Any] = {}

    def walk(path: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(f"{path}.{name}" if path else name, inner)
        else:
            flat[path] = value

    walk("", {name: value for name, value in config["algorithm"].items() if name != "task"})
    walk(
        "task", {k: v for k, v in (config["algorithm"].get("task") or {}).items() if k not in ("id", "engine", "make")}
    )
    if config.get("schedule") == "asynchronous":
        flat["workers"] = config.get("workers", "local")
    return flat


def _apart(described: list[dict[str, Any]]) -> list[str]:
    """The paths in which they differ; of a part that is another one only that it is."""
    paths = dict.fromkeys(path for own in described for path in own)
    differing = [path for path in paths if len({str(own.get(path)) for own in described}) > 1]
    parts = [path.removesuffix("part") for path in differing if path.endswith(".part")]
    inside = lambda path: any(path.startswith(part) and path != f"{part}part" for part in parts)
    return [path for path in differing if not inside(path)]


def _label(preset: str, differing: dict[str, Any]) -> str:
    words = [f"{path.removesuffix('.part').removeprefix('evolver.')} {value}" for path, value in differing.items()]
    more = [f"and {len(words) - SHOWN} more"] * (len(words) > SHOWN)
    return ", ".join([preset, *words[:SHOWN], *more])
