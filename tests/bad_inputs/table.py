"""All rows, by their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from tests.bad_inputs import analysis, building, detection, injection, launching, training
from tests.bad_inputs.row import Row

DEFAULT = 1
"""So many rows of one command and field are default tests; others of them are slow ones."""


def _thinned(rows: Iterable[Row]) -> list[Row]:
    """The rows; what others show of a command and a field, too, is left to the slow tests."""
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for row in rows:
        key = row.command, row.words[0]
        seen[key] += not row.slow
        found.append(replace(row, slow=row.slow or seen[key] > DEFAULT))
    return found


def _named(rows: list[Row]) -> dict[str, Row]:
    """The rows by name; of several with the same words the second is called 2, and so on."""
    seen: Counter[str] = Counter()
    found = {}
    for row in rows:
        seen[row.name] += 1
        found[f"{row.name} {seen[row.name]}" if seen[row.name] > 1 else row.name] = row
    return found


ROWS = _named(
    _thinned(
        [
            *injection.ROWS,
            *training.ROWS,
            *detection.ROWS,
            *building.ROWS,
            *analysis.ROWS,
            *launching.ROWS,
        ]
    )
)
