"""The operator study in numbers: a row for every policy that was played, as CSV and summed up in a short table."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, stdev
from typing import Any

import numpy as np

from genepool.analysis.operators.families import Family, Played
from genepool.analysis.operators.visitation import divergence, first_two


@dataclass(frozen=True)
class Row:
    """A policy of a family."""

    study: str  # crossover, mutation or magnitude
    parents: str  # their places in the population
    policy: str
    returns: tuple[float, ...]  # one per episode
    relative: float | None  # mean return / that of the family's first, where that earned more than 0
    divergences: tuple[float, ...]  # KL(parent || policy) in nats, for parent 1 and parent 2 if there are two
    itself: float | None  # of a parent, KL between its odd and its even episodes: what chance alone makes

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(np.mean(self.returns))


def rows(study: str, families: Sequence[Family], played: Sequence[dict[str, Played]]) -> list[Row]:
    """The numbers of a study. Those whose names begin with "parent" are the parents."""
    found = []
    for family, group in zip(families, played, strict=True):
        first = next(iter(group.values())).mean
        planes = {policy: first_two(np.concatenate(one.states)) for policy, one in group.items()}
        parents = [policy for policy in group if policy.startswith("parent")]
        for policy, one in group.items():
            relative = one.mean / first if first > 0 else None
            far = tuple(0.0 if p == policy else divergence(planes[p], planes[policy]) for p in parents)
            itself = _against_itself(one) if policy in parents else None
            found.append(Row(study, family.name, policy, one.returns, relative, far, itself))
    return found


def _against_itself(one: Played) -> float | None:
    if len(one.states) < 2:
        return None
    return divergence(first_two(np.concatenate(one.states[::2])), first_two(np.concatenate(one.states[1::2])))


def write(found: Sequence[Row], facts: dict[str, Any], path: Path) -> None:
    """Write all rows, with what they come from in every one."""
    own = "study", "parents", "policy", "mean_return", "std_return", "relative"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*own, "kl_parent_1", "kl_parent_2", "kl_itself", "returns", *facts])
        for row in found:
            spread = stdev(row.returns) if len(row.returns) > 1 else None
            far = (*row.divergences, None)[:2]
            numbers = row.mean, spread, row.relative, *far, row.itself
            cells = ["" if number is None else f"{number:.6g}" for number in numbers]
            returns = " ".join(f"{value:.6g}" for value in row.returns)
            writer.writerow([row.study, row.parents, row.policy, *cells, returns, *facts.values()])


def table(found: Sequence[Row], title: str) -> Any:
    """What the policies of one study brought, summed up over its families."""
    from rich.table import Table

    policies = list(dict.fromkeys(row.policy for row in found))
    first = policies[0]
    head = (title, "return", f"/ {first}", "least", "most", "below 40 %", "at least 1", f"KL({first} || it)")
    drawn = Table(*head, box=None, header_style="dim")
    for policy in policies:
        mine = [row for row in found if row.policy == policy]
        ratios = [row.relative for row in mine if row.relative is not None]
        cells = [f"{median(row.mean for row in mine):.1f}"]
        if ratios and policy != first:
            cells += [f"{value:.2f}" for value in (median(ratios), min(ratios), max(ratios))]
            cells += [f"{sum(test)} of {len(ratios)}" for test in ([r < 0.4 for r in ratios], [r >= 1 for r in ratios])]
        else:
            cells += [""] * 5
        own = [row.itself for row in mine if row.itself is not None]
        kl = median(row.divergences[0] for row in mine)
        cells.append(f"{kl:.3g}" if policy != first else f"itself {median(own):.3g}" if own else "")
        drawn.add_row(policy, *cells)
    return drawn
