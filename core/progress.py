"""One progress bar for all stages: lively on a terminal, rare lines in a log file."""

from __future__ import annotations

import sys
import time
from typing import Any

from tqdm import tqdm

from core import process_records

INTERVAL = 2.0  # seconds between two records of progress


class _Bar(tqdm):  # type: ignore[type-arg]
    """A bar that those can see as well who look at the run's folder."""

    told = 0.0

    def update(self, n: float | None = 1) -> Any:
        shown = super().update(n)
        if not self.disable and time.monotonic() - self.told > INTERVAL:
            self._tell()
        return shown

    def close(self) -> None:
        if not self.disable:  # closed already
            self._tell()
        super().close()

    def _tell(self) -> None:
        self.told = time.monotonic()
        now = self.format_dict
        since, left = now["n"] - now["initial"], None
        if now["total"] and since:
            left = (now["total"] - now["n"]) * now["elapsed"] / since
        title = str(now["prefix"]).rstrip(": ")
        process_records.record_progress(
            process_records.Progress(title, int(now["n"]), now["total"], now["unit"], left)
        )


def progress(**options: Any) -> Any:
    """A `tqdm` bar with the given options; its rate is of the whole run, without `initial`."""
    interval = 0.2 if sys.stderr.isatty() else 15.0
    return _Bar(
        mininterval=interval, maxinterval=interval, dynamic_ncols=True, smoothing=0, **options
    )
