"""A report of some runs: every figure and table that their records allow, as files and on one page."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from genepool.analysis.records.reading import read_all
from genepool.analysis.records.systems import Group, grouped
from genepool.analysis.report import ancestry as descent_figures
from genepool.analysis.report import page, tables
from genepool.analysis.report import population as population_figures
from genepool.analysis.report import scores as figures
from genepool.analysis.report import sweeps as sweep_figures
from genepool.analysis.report import time as machine_figures
from genepool.errors import UserError

FIGURES = {  # each with what is missing where it cannot be drawn
    figures.learning_curves: "learning curves (no tests)",
    figures.finals: "final scores (no tests)",
    figures.clocks: "scores against the clock (no tests, or no times)",
    sweep_figures.shares: None,
    sweep_figures.sweeps: None,
    population_figures.population: "the population (no fitness)",
    population_figures.policies: None,
    population_figures.clones: "the learner's clones (none joined a population)",
    population_figures.origins: "taught beside untaught (one kind only)",
    descent_figures.lineages: "the champion's lineage (nobody has parents: a strategy draws everyone anew)",
    descent_figures.operators: "what operators did (no parents, and no mean played beside anyone)",
    machine_figures.strategy: "series of the strategy (none)",
    machine_figures.losses: "losses (no learner)",
    machine_figures.time: "where the time went (no seconds)",
    machine_figures.schedule: "who was out while who was told (no asynchronous run)",
}
TABLES = {figures.finals: tables.final_table, population_figures.clones: tables.clones_table}
TABLES |= {descent_figures.lineages: tables.descent_table, machine_figures.time: tables.time_table}


class Made(NamedTuple):
    """What was written."""

    page: Path
    runs: int
    figures: int
    left_out: dict[str, str]


def report(paths: Sequence[Path], out: Path) -> Made:
    """Read the runs, draw all there is to draw, and write it into the folder `out`."""
    histories, damaged = read_all(paths)
    if not histories:
        raise UserError(f"none of the {len(paths)} runs can be read: {next(iter(damaged.values()))}")
    groups, doubled = grouped(histories)
    left_out = damaged | doubled
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {out}: {error.strerror}; give another --out") from None
    runs = tables.runs_table(groups)
    runs.write(out / "runs.csv")
    head = [page.paragraph(_opening(groups))]
    if left_out:
        head += [page.paragraph("Left out:"), page.bullets([f"{name}: {reason}" for name, reason in left_out.items()])]
    sections, drawn = [], 0
    for group in groups:
        blocks, count = _section(group, out)
        sections.append((group.slug, group.name, blocks))
        drawn += count
    sections.append(("runs", "The runs", [page.table(runs, "runs")]))
    path = out / "index.html"
    path.write_text(page.page("genepool report", head, sections))
    return Made(path, sum(len(group.runs) for group in groups), drawn, left_out)


def _opening(groups: Sequence[Group]) -> str:
    runs = sum(len(group.runs) for group in groups)
    tasks = (
        f"{len(groups)} pairs of task and engine, which are not compared with each other"
        if len(groups) > 1
        else groups[0].name
    )
    return f"{runs} run{'s' * (runs > 1)} on {tasks}. Every number here comes from the records of these runs, but for those that name a paper."


def _section(group: Group, out: Path) -> tuple[list[str], int]:
    """The blocks of a group, and how many figures are among them."""
    versions = group.versions
    blocks = [page.bullets(tables.sentences(group))]
    if versions:
        differ = " These are several: their numbers may differ for that alone." if len(versions) > 1 else ""
        blocks.append(page.paragraph(f"Played with {'; '.join(versions)}.{differ}", "note"))
    for system in group.systems:
        if system.settings:
            own = ", ".join(f"{path} = {value}" for path, value in system.settings.items())
            blocks.append(page.paragraph(f"{system.label}: {own}", "note"))
    missing, count = [], 0
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
            table.write(out / f"{group.slug}-{table.name}.csv")
            blocks.append(page.table(table, f"{group.slug}-{table.name}"))
    if missing:
        blocks.append(page.paragraph(f"Not in these records, and so not drawn: {'; '.join(missing)}.", "note"))
    return blocks, count
