"""A report of some runs: every figure and table that their records allow, as files and on one page."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from genepool.analysis.records.reading import read_all
from genepool.analysis.records.systems import TaskRuns, group_runs
from genepool.analysis.report import ancestry, page, population, scores, sweeps, tables, time
from genepool.errors import UserError

FIGURES = {  # each with what the page names as missing if it cannot be drawn
    scores.learning_curves: "learning curves (no tests)",
    scores.finals: "final scores (no tests)",
    scores.clocks: "scores against the clock (no tests, or no times)",
    sweeps.shares: None,
    sweeps.sweeps: None,
    population.population: "the population (no fitness)",
    population.policies: None,
    population.clones: "the learner's clones (none joined a population)",
    population.origins: "the learner's individuals against the others (one kind only)",
    ancestry.lineages: "the champion's lineage (no candidate has parents: a strategy draws all anew)",
    ancestry.operator_effects: "what operators did (no parents, and no mean was played)",
    time.strategy: "series of the strategy (none)",
    time.losses: "losses (no learner)",
    time.time_by_phase: "where the time went (no seconds)",
    time.schedule: "which candidates were in flight when (no asynchronous run)",
}
TABLES = {
    scores.finals: tables.final_table,
    population.clones: tables.clones_table,
    ancestry.lineages: tables.ancestry_table,
    time.time_by_phase: tables.time_table,
}


class Written(NamedTuple):
    """What was written."""

    page: Path
    runs: int
    figures: int
    left_out: dict[str, str]


def report(paths: Sequence[Path], out: Path) -> Written:
    """Read the runs, draw all figures that their records allow, and write them into the folder `out`."""
    histories, damaged = read_all(paths)
    if not histories:
        raise UserError(f"none of the {len(paths)} runs can be read: {next(iter(damaged.values()))}")
    groups, doubled = group_runs(histories)
    left_out = damaged | doubled
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {out}: {error.strerror}; give another --out") from None
    head = [page.paragraph(_opening(groups))]
    if left_out:
        head += [page.paragraph("Left out:"), page.bullets([f"{name}: {reason}" for name, reason in left_out.items()])]
    sections = []
    drawn = 0
    for group in groups:
        blocks, count = _section(group, out)
        sections.append((group.slug, group.name, blocks))
        drawn += count
    sections.append(("runs", "The runs", [_written_table(tables.runs_table(groups), out, "")]))
    path = out / "index.html"
    path.write_text(page.page("genepool report", head, sections))
    return Written(path, sum(len(group.runs) for group in groups), drawn, left_out)


def _opening(groups: Sequence[TaskRuns]) -> str:
    runs = sum(len(group.runs) for group in groups)
    tasks = groups[0].name
    if len(groups) > 1:
        tasks = f"{len(groups)} pairs of task and engine, which are not compared with each other"
    return (
        f"{runs} run{'s' * (runs > 1)} on {tasks}. Every number here comes from the records of these runs, "
        "except those that name a paper."
    )


def _section(group: TaskRuns, out: Path) -> tuple[list[str], int]:
    """The blocks of a group, and how many figures are among them."""
    blocks = _notes(group)
    missing = []
    count = 0
    for draw, lack in FIGURES.items():
        drawing = draw(group)
        if drawing is None:
            missing += [lack] * bool(lack)
            continue
        file = f"{group.slug}-{drawing.name}"
        png = drawing.png()
        (out / f"{file}.png").write_bytes(png)
        drawing.write_table(out / f"{file}.csv")
        blocks.append(page.picture(drawing, png, file))
        count += 1
        table = TABLES[draw](group) if draw in TABLES else None
        if table is not None:
            blocks.append(_written_table(table, out, f"{group.slug}-"))
    if missing:
        blocks.append(page.paragraph(f"Not in these records, and so not drawn: {'; '.join(missing)}.", "note"))
    return blocks, count


def _notes(group: TaskRuns) -> list[str]:
    """What the runs of a group show in words, the versions they were played with, and the systems' settings."""
    blocks = [page.bullets(tables.sentences(group))]
    versions = group.versions
    if versions:
        caution = " These are several: their numbers may differ for that alone." if len(versions) > 1 else ""
        blocks.append(page.paragraph(f"Played with {'; '.join(versions)}.{caution}", "note"))
    for system in group.systems:
        if system.settings:
            own = ", ".join(f"{path} = {value}" for path, value in system.settings.items())
            blocks.append(page.paragraph(f"{system.label}: {own}", "note"))
    return blocks


def _written_table(table: tables.Table, out: Path, prefix: str) -> str:
    """Write the table as CSV; its block of the page."""
    file = f"{prefix}{table.name}"
    table.write(out / f"{file}.csv")
    return page.table(table, file)
