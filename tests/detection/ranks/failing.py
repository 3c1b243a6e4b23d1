"""A share of a pass that raises an error, for a process that imports no more than this."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Failing:
    """Like `detection.workers.Slice`; None: there is nothing to do."""

    error: Exception | None

    def run(self, number: int) -> list[object]:
        """The results, which there are none of."""
        if self.error is not None:
            raise self.error
        return []
