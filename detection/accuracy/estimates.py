"""Accuracy of members and non-members: the figures behind `detection.accuracy.summary`.

Members and non-members of a benchmark are resampled separately, and one resample serves a
benchmark's whole line: the difference's interval is of the draws' differences. A difference's
p-value is of random relabelings of members and non-members.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from core.bootstrap import resample
from core.estimates import Estimate, mean
from core.metrics import Scores
from core.seeds import derive
from core.significance import holm, p_value, relabelled

DRAWS, SEED = 1_000, 0
RELABELINGS = 9_999
HEADS = ("members", "non-members", "difference")
AVERAGE = "average"
Line = dict[str, Estimate]


def p_values(table: pd.DataFrame) -> dict[str, tuple[float, float | None]]:
    """By benchmark its difference's p-value and Holm's over all; for the average its own alone."""
    sides = {str(name): _sides(rows) for name, rows in table.groupby("benchmark")}
    both = {name: (m, n) for name, (m, n) in sides.items() if len(m) and len(n)}
    values = {name: float(m.mean() - n.mean()) for name, (m, n) in both.items()}
    nulls = {
        name: relabelled(m, n, RELABELINGS, derive(SEED, "relabelings", name))
        for name, (m, n) in both.items()
    }
    alone = np.array([p_value(values[name], nulls[name]) for name in both])
    pairs = zip(alone.tolist(), holm(alone).tolist(), strict=True)
    found: dict[str, tuple[float, float | None]] = dict(zip(both, pairs, strict=True))
    if len(both) == len(sides) > 1:
        value, null = np.mean(list(values.values())), np.mean(list(nulls.values()), axis=0)
        found[AVERAGE] = p_value(float(value), null), None
    return found


def lines(table: pd.DataFrame, *, wilson: bool = False) -> dict[str, Line]:
    """For each benchmark, and on average, the mean of `value` of each kind, and the difference.

    What is not there is left out: a difference needs both kinds. Members that were inserted no
    time are neither kind. With `wilson` the means are shares, which may be 0: their intervals are
    Wilson's (`core.estimates.intervals`), which then have a width as well.
    """
    groups = table.groupby("benchmark")
    found = {str(name): _line(str(name), rows, wilson=wilson) for name, rows in groups}
    whole = {h: [line[h] for line in found.values() if h in line] for h in HEADS}
    if len(found) > 1:
        found[AVERAGE] = {h: mean(e) for h, e in whole.items() if len(e) == len(found)}
    return found


def _sides(rows: pd.DataFrame) -> tuple[Scores, Scores]:
    """The values of the members that were inserted, and of the non-members."""
    members = rows.loc[rows["member"] & (rows["occurrences"] > 0), "value"]
    others = rows.loc[~rows["member"], "value"]
    return members.to_numpy(np.float64), others.to_numpy(np.float64)


def _line(name: str, rows: pd.DataFrame, *, wilson: bool) -> Line:
    members, others = _sides(rows)
    line: Line = {}
    seed = derive(SEED, "accuracy", name)
    drawn = resample(max(1, len(members)), max(1, len(others)), DRAWS, seed)
    if len(members):
        draws = drawn.members @ members / len(members)
        trials = len(members) if wilson else None
        line["members"] = Estimate(len(members), 0, float(members.mean()), draws, trials)
    if len(others):
        draws = drawn.nonmembers @ others / len(others)
        trials = len(others) if wilson else None
        line["non-members"] = Estimate(0, len(others), float(others.mean()), draws, trials)
    if len(line) == 2:
        a, b = line["members"], line["non-members"]
        sizes = len(members), len(others)
        line["difference"] = Estimate(*sizes, a.value - b.value, a.draws - b.draws)
    return line
