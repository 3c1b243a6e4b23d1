"""The controls beside every figure: the clean checkpoint and the blind baseline.

Neither can know a member, so each must score 0.5 within its interval. One look a method decides:
all members, mean over benchmarks. (A verdict for each benchmark and dose as well would stamp one
sound report in two, by chance alone.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.cells import CLEAN
from analysis.inference.baseline import BLIND
from analysis.inference.groups import ANY
from analysis.inference.results import ALL

if TYPE_CHECKING:
    import pandas as pd

CHANCE = 0.5


def control_rows(results: pd.DataFrame) -> pd.DataFrame:
    """AUROC of the clean checkpoint and the blind baseline: all members, mean over benchmarks."""
    deciding = (
        (results["metric"] == "auroc")
        & (results["checkpoint"] == CLEAN)
        & (results["benchmark"] == ALL)
        & (results["occurrences"] == ANY)
    )
    return results[deciding]


def off_controls(results: pd.DataFrame) -> pd.DataFrame:
    """The controls whose interval leaves 0.5 out."""
    rows = control_rows(results)
    return rows[(rows["ci_low"] > CHANCE) | (rows["ci_high"] < CHANCE)]


def stamp(results: pd.DataFrame) -> str | None:
    """What a figure or report must say where a control is off, or None."""
    off = off_controls(results)
    if off.empty:
        return None
    named = ", ".join(
        f"{'blind baseline' if row.method == BLIND else f'clean {row.method}'} "
        f"{row.value:.2f} [{row.ci_low:.2f}, {row.ci_high:.2f}]"
        for row in off.itertuples()
    )
    return (
        f"CONTROL OFF: {named} leaves 0.5 out: by chance, or because members and non-members "
        "differ in themselves."
    )
