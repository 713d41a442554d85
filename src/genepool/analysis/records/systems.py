"""Which runs belong to one group: first by task and engine, then by system, that is, by preset and settings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from genepool.analysis.records.history import History
from genepool.runs.folder import file_name

SHOWN = 3  # settings in a system's name


@dataclass(frozen=True)
class SystemRuns:
    """The runs of one system: they differ only in their seeds."""

    label: str
    runs: tuple[History, ...]  # by seed
    settings: dict[str, Any]  # those in which it differs from the other systems of its preset
    colour_index: int = 0  # among all labels

    @property
    def preset(self) -> str:
        """The preset that it was made from."""
        return self.runs[0].config["preset"]

    @property
    def counted(self) -> tuple[History, ...]:
        """The runs whose final scores are compared: the finished ones, or all if none is finished."""
        return tuple(run for run in self.runs if run.finished) or self.runs

    @property
    def seeds(self) -> str:
        """How many seeds, and which, in words."""
        numbers = sorted(run.config["seed"] for run in self.counted)
        listed = len(numbers) < 7 or numbers != list(range(numbers[0], numbers[-1] + 1))
        which = ", ".join(map(str, numbers)) if listed else f"{numbers[0]} to {numbers[-1]}"
        return f"{len(numbers)} seed{'s' * (len(numbers) > 1)} ({which})"

    @property
    def legend(self) -> str:
        """Its label and its seeds."""
        return f"{self.label}, {self.seeds}"


@dataclass(frozen=True)
class TaskRuns:
    """All systems on one task by one engine: only these may be compared."""

    task: str
    engine: str
    systems: tuple[SystemRuns, ...]

    @property
    def name(self) -> str:
        """The task and the engine."""
        return f"{self.task} ({self.engine})"

    @property
    def slug(self) -> str:
        """The same as part of a file's name."""
        return file_name(f"{self.task}-{self.engine}")

    @property
    def runs(self) -> list[History]:
        """The runs of all systems."""
        return [run for system in self.systems for run in system.runs]

    @property
    def versions(self) -> list[str]:
        """The different versions of the engine and of MuJoCo that its runs had."""
        return sorted({self._versions(run) for run in self.runs} - {""})

    def _versions(self, run: History) -> str:
        versions = run.config.get("versions", {})
        names = dict.fromkeys((self.engine, "mujoco"))
        return ", ".join(f"{name} {versions[name]}" for name in names if name in versions)


def group_runs(histories: Sequence[History]) -> tuple[list[TaskRuns], dict[str, str]]:
    """The runs by task and engine and then by system; and the runs that add nothing, each with the reason."""
    groups = []
    left_out: dict[str, str] = {}
    for task, engine in sorted({(run.config["task"], run.config["engine"]) for run in histories}):
        here = [run for run in histories if (run.config["task"], run.config["engine"]) == (task, engine)]
        systems = []
        for preset in dict.fromkeys(run.config["preset"] for run in here):
            systems += _systems(preset, [run for run in here if run.config["preset"] == preset], left_out)
        groups.append(TaskRuns(task, engine, tuple(systems)))
    labels = list(dict.fromkeys(system.label for group in groups for system in group.systems))
    return [_coloured(group, labels) for group in groups], left_out


def _coloured(group: TaskRuns, labels: list[str]) -> TaskRuns:
    """The group, each system with the index of its label."""
    systems = (replace(system, colour_index=labels.index(system.label)) for system in group.systems)
    return replace(group, systems=tuple(systems))


def _systems(preset: str, runs: list[History], left_out: dict[str, str]) -> list[SystemRuns]:
    """The runs of a preset, split by the settings in which they differ."""
    described = [settings(run.config) for run in runs]
    paths = _differing_paths(described)
    by_values: dict[tuple[str, ...], list[History]] = {}
    for run, own in zip(runs, described, strict=True):
        by_values.setdefault(tuple(str(own.get(path)) for path in paths), []).append(run)
    systems = []
    labels: set[str] = set()
    for values, members in sorted(by_values.items()):
        differing = dict(zip(paths, values, strict=True))
        label = _label(preset, differing)
        label = label if label not in labels else f"{label} {len(labels) + 1}"
        labels.add(label)
        systems.append(SystemRuns(label, _by_seed(members, left_out), differing))
    return systems


def _by_seed(runs: list[History], left_out: dict[str, str]) -> tuple[History, ...]:
    """One run for each seed, the longest: the same seed gives the same bits, so a second run is no second sample."""
    seeds: dict[Any, History] = {}
    for run in sorted(runs, key=lambda run: (-run.frames[-1], run.name)):
        # with several asynchronous workers, the order in which they finish is part of the result
        by_chance = run.config.get("schedule") == "asynchronous" and run.config.get("workers", "local") != "local"
        kept = seeds.setdefault((run.config["seed"], run.name if by_chance else ""), run)
        if kept is not run:
            left_out[run.name] = f"has the seed of {kept.name} and its configuration, and so its bits: no second sample"
    return tuple(sorted(seeds.values(), key=lambda run: (run.config["seed"], run.name)))


def settings(config: dict[str, Any]) -> dict[str, Any]:
    """Every hyper-parameter by its path, and the workers if the result depends on them."""
    flat: dict[str, Any] = {}

    def walk(path: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(f"{path}.{name}" if path else name, inner)
        else:
            flat[path] = value

    algorithm = config["algorithm"]
    task = algorithm.get("task") or {}
    walk("", {name: value for name, value in algorithm.items() if name != "task"})
    walk("task", {name: value for name, value in task.items() if name not in ("id", "engine", "make")})
    if config.get("schedule") == "asynchronous":
        flat["workers"] = config.get("workers", "local")
    return flat


def _differing_paths(described: list[dict[str, Any]]) -> list[str]:
    """The paths in which they differ. If a part differs, its own settings are not listed."""
    paths = dict.fromkeys(path for own in described for path in own)
    differing = [path for path in paths if len({str(own.get(path)) for own in described}) > 1]
    parts = [path.removesuffix("part") for path in differing if path.endswith(".part")]
    return [path for path in differing if not _is_inside(path, parts)]


def _is_inside(path: str, parts: list[str]) -> bool:
    return any(path.startswith(part) and path != f"{part}part" for part in parts)


def _label(preset: str, differing: dict[str, Any]) -> str:
    words = [f"{path.removesuffix('.part').removeprefix('evolver.')} {value}" for path, value in differing.items()]
    more = [f"and {len(words) - SHOWN} more"] * (len(words) > SHOWN)
    return ", ".join([preset, *words[:SHOWN], *more])
