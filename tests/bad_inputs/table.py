"""All rows, by their names."""

from __future__ import annotations

from collections import Counter

from tests.bad_inputs import analysis, building, detection, injection, launching, training
from tests.bad_inputs.row import Row


def _named(rows: list[Row]) -> dict[str, Row]:
    """The rows by name; of several with the same words the second is called 2, and so on."""
    seen: Counter[str] = Counter()
    found = {}
    for row in rows:
        seen[row.name] += 1
        found[f"{row.name} {seen[row.name]}" if seen[row.name] > 1 else row.name] = row
    return found


ROWS = _named(
    [
        *injection.ROWS,
        *training.ROWS,
        *detection.ROWS,
        *building.ROWS,
        *analysis.ROWS,
        *launching.ROWS,
    ]
)
