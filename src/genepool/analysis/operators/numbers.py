"""The operator study in numbers: a row for every policy that was played, as CSV and summed up in a short table."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, stdev
from typing import Any

import numpy as np

from genepool.analysis.operators.families import Family, PolicyEpisodes
from genepool.analysis.operators.visitation import divergence, first_two

LOW = 0.4  # of the first policy's return: the table counts the policies below it


@dataclass(frozen=True)
class PolicyResult:
    """The numbers of one policy of a family."""

    study: str  # crossover, mutation or magnitude
    parents: str  # their indices in the population
    policy: str
    returns: tuple[float, ...]  # one per episode
    relative: float | None  # mean return / that of the family's first, if that earned more than 0
    divergences: tuple[float, ...]  # KL(parent || policy) in nats, for parent 1 and parent 2 if there are two
    itself: float | None  # of a parent, KL between its odd and its even episodes: the effect of chance alone

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(np.mean(self.returns))

    @property
    def is_parent(self) -> bool:
        """Whether it is a parent of the family."""
        return is_parent(self.policy)


def is_parent(policy: str) -> bool:
    """Whether the policy of this name is a parent."""
    return policy.startswith("parent")


def results_of(
    study: str, families: Sequence[Family], played: Sequence[dict[str, PolicyEpisodes]]
) -> list[PolicyResult]:
    """The numbers of a study."""
    found = []
    for family, group in zip(families, played, strict=True):
        first = next(iter(group.values())).mean
        planes = {policy: first_two(one.all_states) for policy, one in group.items()}
        parents = [policy for policy in group if is_parent(policy)]
        for policy, one in group.items():
            relative = one.mean / first if first > 0 else None
            divergences = tuple(0.0 if p == policy else divergence(planes[p], planes[policy]) for p in parents)
            itself = _divergence_from_itself(one) if policy in parents else None
            found.append(PolicyResult(study, family.name, policy, one.returns, relative, divergences, itself))
    return found


def _divergence_from_itself(one: PolicyEpisodes) -> float | None:
    if len(one.states) < 2:
        return None
    return divergence(first_two(np.concatenate(one.states[::2])), first_two(np.concatenate(one.states[1::2])))


def write(found: Sequence[PolicyResult], facts: dict[str, Any], path: Path) -> None:
    """Write all rows. Each row repeats the facts of the run and the study."""
    own = ("study", "parents", "policy", "mean_return", "std_return", "relative")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*own, "kl_parent_1", "kl_parent_2", "kl_itself", "returns", *facts])
        for row in found:
            spread = stdev(row.returns) if len(row.returns) > 1 else None
            divergences = (*row.divergences, None)[:2]
            numbers = (row.mean, spread, row.relative, *divergences, row.itself)
            cells = ["" if number is None else f"{number:.6g}" for number in numbers]
            returns = " ".join(f"{value:.6g}" for value in row.returns)
            writer.writerow([row.study, row.parents, row.policy, *cells, returns, *facts.values()])


def table(found: Sequence[PolicyResult], title: str) -> Any:
    """The results of one study, summed up over its families."""
    from rich.table import Table

    policies = list(dict.fromkeys(row.policy for row in found))
    first = policies[0]
    head = (
        title,
        "return",
        f"/ {first}",
        "least",
        "most",
        f"below {100 * LOW:.0f} %",
        "at least 1",
        f"KL({first} || it)",
    )
    drawn = Table(*head, box=None, header_style="dim")
    for policy in policies:
        drawn.add_row(policy, *_cells([row for row in found if row.policy == policy], first))
    return drawn


def _cells(rows: Sequence[PolicyResult], first: str) -> list[str]:
    """The cells of one policy: its rows over all families."""
    is_first = rows[0].policy == first
    ratios = [row.relative for row in rows if row.relative is not None]
    cells = [f"{median(row.mean for row in rows):.1f}"]
    if ratios and not is_first:
        cells += [f"{value:.2f}" for value in (median(ratios), min(ratios), max(ratios))]
        cells += [f"{sum(ratio < LOW for ratio in ratios)} of {len(ratios)}"]
        cells += [f"{sum(ratio >= 1 for ratio in ratios)} of {len(ratios)}"]
    else:
        cells += [""] * 5
    itself = [row.itself for row in rows if row.itself is not None]
    if is_first:
        return [*cells, f"itself {median(itself):.3g}" if itself else ""]
    return [*cells, f"{median(row.divergences[0] for row in rows):.3g}"]
