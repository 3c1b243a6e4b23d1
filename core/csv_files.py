"""CSV files that a spreadsheet opens as text and numbers, never as formulas."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What a spreadsheet takes for the start of a formula."""


def write_csv(path: Path, table: pd.DataFrame, *, more: bool = False) -> None:
    """Write the table without its index, or `more` rows below those of a table like it.

    A text that starts like a formula gets a single quote before it (OWASP, "CSV injection");
    numbers stay numbers.
    """
    safe = table.rename(columns=_text)
    for place in range(safe.shape[1]):
        if safe.dtypes.iloc[place].kind not in "biufcmM":
            safe.isetitem(place, safe.iloc[:, place].map(_text))
    how = {"mode": "a", "header": False} if more else {}
    safe.to_csv(path, index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC, **how)


def _text(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell
