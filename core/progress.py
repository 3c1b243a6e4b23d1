"""One progress bar for all stages: lively on a terminal, at most one line in a log file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from typing import Any

from tqdm import tqdm
from tqdm.utils import disp_len

from contamination.core import process_records
from contamination.core.terminal import about

INTERVAL = 2.0
"""Seconds between two records of progress."""
LONG = 15.0
"""Seconds: what is over sooner leaves no line in a log file."""
CELL, STAGE = "CONTAMINATION_CELL", "CONTAMINATION_STAGE"
"""What the bars of this process and of those that it starts are part of: "cell 2 of 3", "train"."""
SWEEP = "CONTAMINATION_SWEEP"
"""When the run of a stage should end, and the seconds of what follows it in the sweep (`ends`)."""
COUNT = "{desc} · {unit} {n_fmt}/{total_fmt}"
RUNNING = COUNT + " · {remaining} left{sweep} |{bar:10}| {rate_fmt}{postfix}"
DONE = COUNT + " in {elapsed}, {rate_fmt}{postfix}"
NUMBERS = 42
"""Columns that a title leaves to them, or the numbers come first (`NARROW`)."""
NARROW = {
    RUNNING: "{unit} {n_fmt}/{total_fmt} · {remaining} left{sweep} · {desc}",
    DONE: "{unit} {n_fmt}/{total_fmt} in {elapsed} · {desc}",
}
"""What a narrow terminal cuts off is at the end."""


@contextmanager
def within(name: str, words: str) -> Iterator[None]:
    """Within it titles begin with these words, of the cell (`CELL`) or of the stage (`STAGE`)."""
    before = os.environ.get(name)
    os.environ[name] = words
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def ends(now: float, later: float) -> str:
    """For `SWEEP`: a run that begins now takes so many seconds, and what follows it so many."""
    return f"{time.time() + now:.0f} {later:.0f}"


class _Bar(tqdm):  # type: ignore[type-arg]
    """A bar that those can see as well who look at the run's folder."""

    told = 0.0
    own = ""  # the title without the cell's
    of_part = 0  # how much is counted of a batch that is not finished

    @property
    def format_dict(self) -> dict[str, Any]:
        """With `sweep`, what is left of the sweep; numbers first where there is little room."""
        left = self._sweep_left(shown := super().format_dict)
        if shown["ncols"] and shown["ncols"] < disp_len(shown["prefix"]) + NUMBERS:
            shown["bar_format"] = NARROW[shown["bar_format"]]
        return {**shown, "sweep": "" if left is None else f", sweep {about(left)}"}

    def _sweep_left(self, shown: Mapping[str, Any]) -> float | None:
        """Seconds: of this run as it goes or as others went, whichever is more; of the later ones.

        None where that is not known.
        """
        words = os.environ.get(SWEEP)
        if not words:
            return None
        end, later = map(float, words.split())
        return max(_left(shown) or 0.0, end - time.time()) + later

    def update(self, n: float | None = 1) -> Any:
        counted, self.of_part = self.of_part, 0
        if counted:
            self.set_postfix_str(refresh=False)
        return self._advance((1 if n is None else n) - counted)

    def part(self, size: int, done: int, total: int) -> None:
        """Count a part of a batch of that size, by its rows; `update` then counts it whole."""
        self.set_postfix_str(f"batch of {size}: row {done:,}/{total:,}", refresh=False)
        share = size * done // max(total, 1)
        before, self.of_part = self.of_part, share
        self._advance(share - before)

    def _advance(self, n: float) -> Any:
        """By so much, but not beyond the total."""
        shown = super().update(n if self.total is None else min(n, self.total - self.n))
        if not self.disable and time.monotonic() - self.told > INTERVAL:
            self._tell()
        return shown

    def close(self) -> None:
        """The last line says how long it took and the mean rate."""
        if self.disable:  # closed already
            return
        self._tell()
        if self.total is not None and self.n >= self.total:
            self.bar_format = DONE
        said = "" if _is_watched() or self.format_dict["elapsed"] < LONG else f"{self}\n"
        super().close()
        sys.stderr.write(said)

    def _tell(self) -> None:
        self.told = time.monotonic()
        now = self.format_dict
        done, sweep = int(now["n"]), self._sweep_left(now)
        process_records.record_progress(
            process_records.Progress(self.own, done, now["total"], now["unit"], _left(now), sweep)
        )


def progress(*, desc: str | None, stage: str = "", **options: Any) -> Any:
    """A `tqdm` bar with the given options; its rate is of the whole run, without `initial`.

    Args:
        desc: what is done, in a word or two.
        stage: what that is part of, where no launcher says it (see `STAGE`).
        options: of tqdm. The unit is in the singular.
    """
    if _is_watched():
        shown: dict[str, Any] = {"mininterval": 0.2, "dynamic_ncols": True}
    else:
        shown = {"mininterval": float("inf"), "file": StringIO()}
    own = _title(os.environ.get(STAGE, stage), desc)
    title = _title(os.environ.get(CELL), own)
    bar = _Bar(desc=title, bar_format=RUNNING, smoothing=0, miniters=0, **shown, **options)
    bar.own = own
    return bar


def _left(shown: Mapping[str, Any]) -> float | None:
    """Seconds, at the mean rate so far; None: not known."""
    since, total = shown["n"] - shown["initial"], shown["total"]
    return (total - shown["n"]) * shown["elapsed"] / since if total and since else None


def _title(*words: str | None) -> str:
    return " · ".join(filter(None, words))


def _is_watched() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"  # which can't redraw a line
