"""One progress bar for all stages: lively on a terminal, rare lines in a log file."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

from core import signs


class _Bar(tqdm):  # type: ignore[type-arg]
    """A bar that those can see as well who look at the run's folder."""

    def display(self, *arguments: Any, **options: Any) -> Any:
        shown = super().display(*arguments, **options)
        now = self.format_dict
        done, total, rate = now["n"], now["total"], now["rate"]
        if not rate and done > now["initial"]:
            rate = (done - now["initial"]) / now["elapsed"]
        left = (total - done) / rate if total and rate else None
        signs.progress(signs.Progress(now["prefix"], int(done), total, now["unit"], left))
        return shown


def progress(**options: Any) -> Any:
    """A `tqdm` bar with the given options."""
    interval = 0.2 if sys.stderr.isatty() else 15.0
    return _Bar(mininterval=interval, maxinterval=interval, dynamic_ncols=True, **options)
