"""Time: series of the strategy and the learner, where the time went, and which candidates were in flight when."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from genepool.analysis.records.history import ASK, LEARN, TELL, History
from genepool.analysis.records.systems import SystemRuns, TaskRuns
from genepool.analysis.report.curves import COLOURS
from genepool.analysis.report.drawing import Drawing, colour, count_frames, dash, legend_below, panels, thinned

LEARNER_SERIES = ("critic_loss", "actor_loss", "entropy", "temperature", "updates")
LEARNER_SERIES += ("surrogate", "kl", "beta", "effective", "max_ratio")  # of PPO and A2C
MEANINGS = {
    "p": "p: weight of an individual",
    "staleness": "staleness: tells between ask and tell",
    "variance": "variance, median over weights",
    "updates": "gradient steps so far",
    "taught": "individuals with a lesson so far",
    "untaught": "individuals without a lesson so far",
    "mean_fitness": "fitness of the strategy's mean",
    "near": "policies that share with one",
    "effective": "least effective share of another's rows",
    "max_ratio": "largest weight of another's row",
    "phases": "phases of the learner so far",
    "nominal_steps": "nominal steps (ESAC's own count)",
    "pop_max_ma100": "best of a generation, mean of 100",
}
WIDE = 30  # ratio of values from which their axis is logarithmic
MOST = 60  # events in a picture of the schedule
IN_FLIGHT = "in flight"
KINDS = {"exploration": COLOURS[2], "warm-up": "#999999", "lesson": COLOURS[1]}
KINDS |= {IN_FLIGHT: "#DDDDDD"}
REST = "all else"


def strategy(group: TaskRuns) -> Drawing | None:
    """Sigma, variance, p, staleness: all numbers in the records that are not the learner's."""
    return _series(group, "strategy", "The strategy, generation by generation", of_learner=False)


def losses(group: TaskRuns) -> Drawing | None:
    """Losses, entropy and gradient steps of the learner (ESAC Figures 6, right, and 8)."""
    return _series(group, "learner", "The learner", of_learner=True)


def _series(group: TaskRuns, file: str, title: str, of_learner: bool) -> Drawing | None:
    names = dict.fromkeys(name for run in group.runs for name in run.scalars)
    names = [name for name in names if (name in LEARNER_SERIES) == of_learner]
    names = [name for name in names if any(np.isfinite(run.scalars.get(name, [np.nan])).any() for run in group.runs)]
    if not names:
        return None
    figure, found = panels(len(names), columns=3, width=3.6, height=2.6)
    rows = []
    for axes, name in zip(found, names, strict=True):
        rows += _draw_series(axes, group, name)
        axes.set_title(MEANINGS.get(name, name.replace("_", " ")), fontsize=9)
        count_frames(axes)
    legend_below(figure, found)
    return Drawing(
        file,
        title,
        "A line for each seed, as recorded; of a list in a record, its mean.",
        figure,
        ("system", "run", "series", "frames", "value"),
        rows,
    )


def _draw_series(axes: Any, group: TaskRuns, name: str) -> list[tuple]:
    """Draw one series of all runs; its rows."""
    lowest = np.inf
    highest = -np.inf
    rows = []
    for system in group.systems:
        look = {"color": colour(system.colour_index), "linewidth": 0.9, "alpha": 0.8}
        known = [(run, np.isfinite(run.scalars[name])) for run in system.runs if name in run.scalars]
        known = [(run, at) for run, at in known if at.any()]
        for k, (run, at) in enumerate(known):
            values = run.scalars[name][at]
            label = system.label if k == 0 else None
            axes.plot(run.frames[at], values, dash(system.colour_index), label=label, **look)
            lowest = min(lowest, values.min())
            highest = max(highest, values.max())
            rows += [(system.label, run.name, name, *row) for row in thinned(run.frames[at], values)]
    if lowest > 0 and highest / lowest > WIDE and name != "updates":
        axes.set_yscale("log")
    return rows


def time_by_phase(group: TaskRuns) -> Drawing | None:
    """Minutes per million frames in each phase (GPO Table 3, ESAC Figure 5)."""
    bars = [(label, runs) for label, runs in _by_workers(group.systems) if all(run.seconds for run in runs)]
    if not bars:
        return None
    phases = list(dict.fromkeys(phase for _, runs in bars for run in runs for phase in run.seconds))
    figure, (axes,) = panels(1, width=8.5, height=1.2 + 0.45 * len(bars), names=True)
    rows = []
    for y, (label, runs) in enumerate(bars):
        frames = sum(run.frames[-1] for run in runs)
        generations = sum(len(run.frames) for run in runs)
        spent = {phase: sum(run.seconds[phase].sum() for run in runs if phase in run.seconds) for phase in phases}
        rest = sum(run.wall[-1] for run in runs) - sum(spent.values())
        left = 0.0
        for k, (phase, seconds) in enumerate([*spent.items(), (REST, max(0.0, rest))]):
            minutes = seconds / 60 / frames * 1e6
            shade = colour(k) if phase != REST else "#BBBBBB"
            axes.barh(y, minutes, left=left, color=shade, label=phase if y == 0 else None)
            left += minutes
            rows.append((label, phase, seconds, seconds / generations, minutes))
        axes.annotate(f" {left:,.1f} min", (left, y), va="center", fontsize=8)
    axes.set_yticks(range(len(bars)), [label for label, _ in bars])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("wall-clock minutes per million frames, as the paper counts them")
    legend_below(figure, [axes], columns=6)
    return Drawing(
        "time",
        "Where the time went",
        "All seeds of a system on the same workers, pooled. On an asynchronous schedule acting includes waiting, "
        "and learning goes on in the background.",
        figure,
        ("system", "phase", "seconds", "seconds_per_generation", "minutes_per_million_frames"),
        rows,
    )


def _by_workers(systems: Sequence[SystemRuns]) -> list[tuple[str, list[History]]]:
    """The runs by system and workers."""
    found: dict[str, list[History]] = {}
    for system in systems:
        for run in system.runs:
            found.setdefault(f"{system.label}, {run.config.get('workers', 'local')}", []).append(run)
    return list(found.items())


class Flight(NamedTuple):
    """A candidate between its ask and its tell. `asked` and `accepted` are indices of events."""

    number: int
    row: int  # the lowest that was free
    asked: int
    accepted: int


def schedule(group: TaskRuns) -> Drawing | None:
    """Which candidates were in flight when (AES-RL Figure 1): by the run's clock, else by the order of events."""
    found = [(system, run) for system in group.systems for run in system.runs[:1] if len(run.events)]
    if not found:
        return None
    drawn = [flights(run) for _, run in found]
    most = max(flight.row for bars, _ in drawn for flight in bars) + 1
    figure, all_axes = panels(len(found), columns=1, width=9.5, height=1.4 + 0.28 * most)
    rows = []
    for axes, (system, run), (bars, learnt) in zip(all_axes, found, drawn, strict=True):
        rows += [(system.label, run.name, *row) for row in _draw_flights(axes, run, bars, learnt)]
        workers = run.config.get("workers", "local")
        axes.set(ylabel="in flight at once", title=f"{system.label}, seed {run.config['seed']}, workers {workers}")
    legend_below(figure, all_axes, columns=5)
    return Drawing(
        "schedule",
        "Which candidates were in flight when",
        f"The last {MOST} events of each asynchronous system's first seed. A bar begins where a candidate is asked for "
        "and ends where it is told. Rows are the lowest that were free, not the workers' own numbers.",
        figure,
        ("system", "run", "candidate", "row", "asked_at", "accepted_at", "counted_in", "made_by"),
        rows,
    )


def _draw_flights(axes: Any, run: History, bars: Sequence[Flight], learnt: Sequence[int]) -> list[tuple]:
    """A bar for each candidate and a line for each end of learning; the rows of the table."""
    makers = dict(zip(run.candidates.number.tolist(), run.candidates.maker.tolist(), strict=True))
    at, timed = clock(run)
    wide = (at(len(run.events)) - at(len(run.events) - MOST)) / 40  # enough to write a number in
    rows = []
    for number, row, asked, accepted in bars:
        begin = at(asked)
        end = at(accepted)
        kind = run.candidates.makers[makers[number]] if number in makers else IN_FLIGHT
        label = kind if kind in KINDS else "individual"
        look = {"color": KINDS.get(kind, COLOURS[0]), "edgecolor": "white", "label": label}
        axes.barh(row, end - begin, left=begin, height=0.75, **look)
        if end - begin >= wide:
            ink = "#333333" if kind == IN_FLIGHT else "white"
            axes.annotate(str(number), ((begin + end) / 2, row), ha="center", va="center", fontsize=6, color=ink)
        rows.append((number, row + 1, begin, end, "seconds" if timed else "events", kind))
    for event in learnt:
        axes.axvline(at(event), color=COLOURS[3], linewidth=1.0, linestyle=":", label="learning ended")
    count = max(flight.row for flight in bars) + 1
    axes.set_yticks(range(count), [str(row + 1) for row in range(count)])
    axes.set_xlabel("seconds of the run's clock" if timed else "order of events (not time: the records hold none)")
    return rows


def clock(run: History) -> tuple[Callable[[int], float], bool]:
    """From the index of an event to its place on the time axis, and whether that is in seconds.

    It is in seconds if all events have a moment; otherwise events are counted.
    """
    timed = bool(np.isfinite(run.moments).all())
    marks = run.moments if timed else np.arange(len(run.events), dtype=float)
    after = float(marks[-1] if timed else len(run.events))

    def at(event: int) -> float:
        return float(marks[max(event, 0)]) if event < len(marks) else after

    return at, timed


def flights(run: History, most: int = MOST) -> tuple[list[Flight], list[int]]:
    """The candidates in flight during the last `most` events, and the events at which learning ended."""
    begin = max(0, len(run.events) - most)
    in_flight: dict[int, tuple[int, int]] = {}  # by candidate: its row and the event of its ask
    bars = []
    learnt = []
    for event, (kind, number, _) in enumerate(run.events.tolist()):
        if kind == ASK:
            taken = {row for row, _ in in_flight.values()}
            in_flight[number] = next(row for row in range(len(in_flight) + 1) if row not in taken), event
        elif kind == TELL and number in in_flight:
            row, asked = in_flight.pop(number)
            if event >= begin:
                bars.append(Flight(number, row, max(asked, begin), event))
        elif kind == LEARN and event >= begin:
            learnt.append(event)
    bars += [Flight(number, row, max(asked, begin), len(run.events)) for number, (row, asked) in in_flight.items()]
    return bars, learnt
