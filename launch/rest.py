"""How long the rest of a sweep will take, by what its finished cells' runs took.

It is for cells that run one after another on the same devices. What the first cell made for all is
not made again, so later cells say more than the first about those to come.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import mean

from launch.costs import read_costs
from launch.folder import CellFolder, Launch

SHARED = {
    *("inject base", "inject validation", "train base", "train reference", "train masked_lm"),
    "detect clean",
}
"""Runs that cells usually share: where the first cell alone is known, the others lack these."""


@dataclass(frozen=True)
class Rest:
    """Seconds that are left when a run begins: of that run, and of all that follows."""

    now: float
    later: float


def rest(launch: Launch, cell: CellFolder, run: str) -> Rest | None:
    """What is left when the cell begins `run`, such as "train study"; None: not known yet."""
    cells = launch.ordered()
    names = [one.folder.name for one in cells]
    if cell.folder.name not in names:
        return None
    number = names.index(cell.folder.name)
    done = [_took(one) for n, one in enumerate(cells) if n != number and _is_done(one)]
    order = list(dict.fromkeys(name for took in done for name in took))
    if run not in order:
        return None
    at, (first, *others) = order.index(run), done
    now = mean(took[run] for took in done if run in took)
    own = {**_took(cell), run: now}

    def expected(name: str) -> float:
        """Of a run of a cell to come: as in this cell, if it is past it, and in others."""
        seen = [took.get(name, 0.0) for took in others]
        seen += [own.get(name, 0.0)] * (order.index(name) <= at)
        return mean(seen) if seen else first.get(name, 0.0) * (name not in SHARED)

    waiting = sum(not _is_done(one) for one in cells[number + 1 :])
    later = sum(map(expected, order[at + 1 :])) + waiting * sum(map(expected, order))
    return Rest(now, later)


def _is_done(cell: CellFolder) -> bool:
    outcome = cell.read_outcome()
    return outcome is not None and outcome.state == "done"


def _took(cell: CellFolder) -> dict[str, float]:
    """Seconds of each of its runs; 0, and left out, of those that it found made."""
    took: dict[str, float] = defaultdict(float)
    for cost in read_costs(cell.folder):
        took[f"{cost.stage} {cost.run}"] += cost.seconds
    return took
