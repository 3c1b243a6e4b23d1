"""The controls beside every figure: the clean checkpoint and the blind baseline.

Neither can know a member, so each must score 0.5 within its interval. One look a method decides:
all members, mean over benchmarks. (A verdict for each benchmark and number of occurrences would
stamp one sound report in two, by chance alone.)
"""

from __future__ import annotations

import pandas as pd

from analysis.cells import CLEAN
from analysis.methods import BLIND
from analysis.statistics.groups import ANY
from analysis.statistics.results import ALL
from core.metrics import AUROC
from detection.blind import warning


def control_rows(results: pd.DataFrame) -> pd.DataFrame:
    """AUROC of the clean checkpoint and the blind baseline: all members, mean over benchmarks.

    None where some benchmark lacks members or non-members.
    """
    deciding = (
        (results["metric"] == AUROC.name)
        & (results["checkpoint"] == CLEAN)
        & (results["benchmark"] == ALL)
        & (results["occurrences"] == ANY)
        & (results["needs"] == "")
    )
    return results[deciding]


def off_controls(results: pd.DataFrame) -> pd.DataFrame:
    """The controls whose interval leaves 0.5 out."""
    rows = control_rows(results)
    return rows[(rows["ci_low"] > AUROC.guess) | (rows["ci_high"] < AUROC.guess)]


def stamp(results: pd.DataFrame) -> str | None:
    """What a figure or report must say where a control is off, or None."""
    off = off_controls(results)
    if off.empty:
        return None
    said = ["CONTROL OFF:"]
    texts = off["method"] == BLIND
    if clean := [
        f"clean {row.method} {row.value:.2f} [{row.ci_low:.2f}, {row.ci_high:.2f}]"
        for row in off[~texts].itertuples()
    ]:
        why = "leaves 0.5 out: by chance, or because members and non-members differ in themselves."
        said.append(f"{', '.join(clean)} {why}")
    blind = [warning(row.value, row.ci_low, row.ci_high) for row in off[texts].itertuples()]
    return " ".join([*said, *filter(None, blind)])
