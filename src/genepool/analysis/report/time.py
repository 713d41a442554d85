"""The machinery: series of the strategy and of the learner, where the time went, and who was out while who was told."""

from collections.abc import Callable, Sequence

import numpy as np

from genepool.analysis.records.history import ASK, LEARNT, TELL, History
from genepool.analysis.records.systems import Group, System
from genepool.analysis.report.curves import COLOURS
from genepool.analysis.report.drawing import Drawing, colour, count_frames, dash, legend_below, panels, thinned

LEARNING = ("critic_loss", "actor_loss", "entropy", "temperature", "updates")
LEARNING += ("surrogate", "kl", "beta", "effective", "max_ratio")  # of PPO and A2C
MEANINGS = {
    "p": "p: weight of an individual",
    "staleness": "staleness: tells between ask and tell",
    "variance": "variance, median over weights",
    "updates": "gradient steps so far",
    "taught": "individuals taught so far",
    "untaught": "individuals untaught so far",
    "mean_fitness": "fitness of the strategy's mean",
    "near": "policies that share with one",
    "effective": "least effective share of another's rows",
    "max_ratio": "largest weight of another's row",
    "phases": "phases of the learner so far",
    "nominal_steps": "nominal steps (ESAC's own count)",
    "pop_max_ma100": "best of a generation, mean of 100",
}
MOST = 60  # events in a picture of the schedule
KINDS = {"exploration": COLOURS[2], "warm-up": "#999999", "lesson": COLOURS[1]}


def strategy(group: Group) -> Drawing | None:
    """Sigma, variance, p, staleness: whatever numbers the records hold that are not the learner's."""
    return _series(group, "strategy", "The strategy, generation by generation", lambda name: name not in LEARNING)


def losses(group: Group) -> Drawing | None:
    """Losses, entropy and gradient steps of the learner (ESAC Figures 6, right, and 8)."""
    return _series(group, "learner", "The learner", lambda name: name in LEARNING)


def _series(group: Group, file: str, title: str, wanted) -> Drawing | None:
    names = [name for name in dict.fromkeys(n for run in group.runs for n in run.scalars) if wanted(name)]
    names = [name for name in names if any(np.isfinite(run.scalars.get(name, [np.nan])).any() for run in group.runs)]
    if not names:
        return None
    figure, found = panels(len(names), columns=3, width=3.6, height=2.6)
    rows = []
    for axes, name in zip(found, names, strict=True):
        lowest, highest = np.inf, -np.inf
        for system in group.systems:
            place = system.place
            known = [(run, np.isfinite(run.scalars[name])) for run in system.runs if name in run.scalars]
            known = [(run, at) for run, at in known if at.any()]
            for k, (run, at) in enumerate(known):
                values = run.scalars[name][at]
                label = system.label if k == 0 else None
                axes.plot(
                    run.frames[at], values, dash(place), color=colour(place), linewidth=0.9, alpha=0.8, label=label
                )
                lowest, highest = min(lowest, values.min()), max(highest, values.max())
                rows += [(system.label, run.name, name, *row) for row in thinned(run.frames[at], values)]
        if lowest > 0 and highest / lowest > 30 and name != "updates":
            axes.set_yscale("log")
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


def time(group: Group) -> Drawing | None:
    """Minutes per million frames in each phase (GPO Table 3, ESAC Figure 5)."""
    bars = [(label, runs) for label, runs in _by_workers(group.systems) if all(run.seconds for run in runs)]
    if not bars:
        return None
    phases = list(dict.fromkeys(phase for _, runs in bars for run in runs for phase in run.seconds))
    figure, (axes,) = panels(1, width=8.5, height=1.2 + 0.45 * len(bars), names=True)
    rows = []
    for place, (_, runs) in enumerate(bars):
        frames, generations = sum(run.frames[-1] for run in runs), sum(len(run.frames) for run in runs)
        spent = {phase: sum(run.seconds[phase].sum() for run in runs if phase in run.seconds) for phase in phases}
        rest = sum(run.wall[-1] for run in runs) - sum(spent.values())
        left = 0.0
        for k, (phase, seconds) in enumerate([*spent.items(), ("all else", max(0.0, rest))]):
            minutes = seconds / 60 / frames * 1e6
            shade = colour(k) if phase != "all else" else "#BBBBBB"
            axes.barh(place, minutes, left=left, color=shade, label=phase if place == 0 else None)
            left += minutes
            rows.append((bars[place][0], phase, seconds, seconds / generations, minutes))
        axes.annotate(f" {left:,.1f} min", (left, place), va="center", fontsize=8)
    axes.set_yticks(range(len(bars)), [label for label, _ in bars])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("wall-clock minutes per million frames, as the paper counts them")
    legend_below(figure, [axes], columns=6)
    return Drawing(
        "time",
        "Where the time went",
        "All seeds of a system on the same workers together. On an asynchronous schedule acting includes waiting, and learning goes on behind the rest.",
        figure,
        ("system", "phase", "seconds", "seconds_per_generation", "minutes_per_million_frames"),
        rows,
    )


def _by_workers(systems: Sequence[System]) -> list[tuple[str, list[History]]]:
    found: dict[str, list[History]] = {}
    for system in systems:
        for run in system.runs:
            found.setdefault(f"{system.label}, {run.config.get('workers', 'local')}", []).append(run)
    return list(found.items())


def schedule(group: Group) -> Drawing | None:
    """Who was out while who was told (AES-RL Figure 1): by the run's own clock, or by order of events where it kept none."""
    found = [(system, run) for system in group.systems for run in system.runs[:1] if len(run.events)]
    if not found:
        return None
    drawn = [spans(run) for _, run in found]
    most = max(lane for bars, _ in drawn for _, lane, _, _ in bars) + 1
    figure, all_axes = panels(len(found), columns=1, width=9.5, height=1.4 + 0.28 * most)
    rows = []
    for axes, (system, run), (bars, learnt) in zip(all_axes, found, drawn, strict=True):
        kinds = dict(zip(run.candidates.number.tolist(), run.candidates.maker.tolist(), strict=True))
        at, timed = clock(run)
        wide = (at(len(run.events)) - at(len(run.events) - MOST)) / 40  # enough to write a number in
        for number, lane, asked, told in bars:
            begin, end = at(asked), at(told)
            kind = run.candidates.makers[kinds[number]] if number in kinds else "still out"
            shade = "#DDDDDD" if kind == "still out" else KINDS.get(kind, COLOURS[0])
            name = kind if kind in KINDS or kind == "still out" else "individual"
            axes.barh(lane, end - begin, left=begin, height=0.75, color=shade, edgecolor="white", label=name)
            if end - begin >= wide:
                ink = "#333333" if kind == "still out" else "white"
                axes.annotate(str(number), ((begin + end) / 2, lane), ha="center", va="center", fontsize=6, color=ink)
            rows.append((system.label, run.name, number, lane + 1, begin, end, "seconds" if timed else "events", kind))
        for place in learnt:
            axes.axvline(at(place), color=COLOURS[3], linewidth=1.0, linestyle=":", label="learning handed in")
        lanes = max(lane for _, lane, _, _ in bars) + 1
        axes.set_yticks(range(lanes), [str(lane + 1) for lane in range(lanes)])
        axes.set(
            ylabel="out at once",
            title=f"{system.label}, seed {run.config['seed']}, workers {run.config.get('workers', 'local')}",
        )
        axes.set_xlabel("seconds of the run's clock" if timed else "order of events (not time: the records hold none)")
    legend_below(figure, all_axes, columns=5)
    return Drawing(
        "schedule",
        "Who was out while who was told",
        f"The last {MOST} events of each asynchronous system's first seed. A bar begins where a candidate is asked for and ends where "
        "it is told. Lanes are the lowest that were free, not the workers' own numbers.",
        figure,
        ("system", "run", "candidate", "lane", "asked_at", "told_at", "counted_in", "made_by"),
        rows,
    )


def clock(run: History) -> tuple[Callable[[int], float], bool]:
    """Where the places of events stand on an axis, and whether that is a clock's: all of them must have a moment."""
    timed = bool(np.isfinite(run.moments).all())
    marks = run.moments if timed else np.arange(len(run.events), dtype=float)
    after = marks[-1] if timed else float(len(run.events))
    return lambda place: float(marks[max(place, 0)]) if place < len(marks) else float(after), timed


def spans(run: History, most: int = MOST) -> tuple[list[tuple[int, int, int, int]], list[int]]:
    """Of the last events: candidate, lane, place of ask, place of tell; and the places at which learning was handed in."""
    begin = max(0, len(run.events) - most)
    out: dict[int, tuple[int, int]] = {}  # candidate -> lane, place of ask
    bars, learnt = [], []
    for place, (kind, number, _) in enumerate(run.events.tolist()):
        if kind == ASK:
            free = next(lane for lane in range(len(out) + 1) if lane not in {own for own, _ in out.values()})
            out[number] = free, place
        elif kind == TELL and number in out:
            lane, asked = out.pop(number)
            if place >= begin:
                bars.append((number, lane, max(asked, begin), place))
        elif kind == LEARNT and place >= begin:
            learnt.append(place)
    bars += [(number, lane, max(asked, begin), len(run.events)) for number, (lane, asked) in out.items()]
    return bars, learnt
