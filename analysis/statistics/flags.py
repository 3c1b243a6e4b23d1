"""What is out of the ordinary about the scores behind a report.

Columns (`COLUMNS`):

- `flag`: what a method's scores fell back on, or why texts are not ranked (these have an empty
  `method`, count once for all methods, and are in no estimate of their cell); empty for the rest.
- `texts`, `of`: how many of the cell's examples.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis.cells import CONTAMINATED, Cell
from detection.flags import said

COLUMNS = ("condition", "cell", "checkpoint", "method", "variant", "flag", "texts", "of")


def flags_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """One row a cell, checkpoint, method and flag."""
    parts = [
        counts.assign(condition=cell.condition, cell=cell.name, checkpoint=checkpoint)
        for cell in cells
        for checkpoint, counts in cell.flags.items()
    ]
    return pd.concat(parts, ignore_index=True)[list(COLUMNS)]


def notes(flags: pd.DataFrame, condition: str) -> Sequence[str]:
    """A line a flag of the condition's contaminated models, counted over their seeds."""
    rows = flags[(flags["condition"] == condition) & (flags["checkpoint"] == CONTAMINATED)]
    sizes = rows.groupby("cell")["of"].first()
    texts = rows.groupby(["method", "variant", "flag"])["texts"].sum()
    return said(texts.reset_index().assign(of=sizes.sum()))
