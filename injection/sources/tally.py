"""Input that can't be used: stop at it, or leave it out and count it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from core.errors import DataError, require

ON_ERROR = ("stop", "skip")
EMPTY = "empty document"


class Tally:
    """Decides on each piece of bad input, and counts what was left out.

    Attributes:
        skipped: reason → number.
    """

    def __init__(self, on_error: str, option: str) -> None:
        """Stop or skip, as `on_error` says; `option` is its name in the config."""
        require(on_error in ON_ERROR, option, on_error, f"choose from {', '.join(ON_ERROR)}.")
        self.skipped: Counter[str] = Counter()
        self._stop, self._option = on_error == "stop", option

    def bad(self, reason: str, where: str, detail: str) -> None:
        """Count one unusable row or shard.

        Raises:
            DataError: `on_error` is stop.
        """
        if self._stop:
            raise DataError(
                f"{where}: {reason} ({detail}). Mend it, or set {self._option}=skip to leave such "
                "input out and count it."
            )
        self.skipped[reason] += 1

    def empty(self) -> None:
        """Count a document without text: never an error, large corpora all have some."""
        self.skipped[EMPTY] += 1


def skips(skipped: Mapping[str, int]) -> str:
    """What was left out, in words; empty where nothing was."""
    return "skipped " + ", ".join(f"{n} × {why}" for why, n in skipped.items()) if skipped else ""
