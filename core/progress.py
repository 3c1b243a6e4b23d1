"""The progress bar of all stages: redrawn on a terminal; at most one line in a log file."""

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
from contamination.core.terminal import format_approximate_duration

RECORD_INTERVAL_SECONDS = 2.0
MIN_LOGGED_SECONDS = 15.0
"""Work that takes less time writes no line to a log file."""
OUTER_TITLE, STAGE = "CONTAMINATION_OUTER_TITLE", "CONTAMINATION_STAGE"
"""Environment variables with prefixes of all titles, such as "cell 2 of 3" and "train"."""
LATER_RUNS = "CONTAMINATION_LATER_RUNS"
"""Environment variable with the expected end of this run and of the runs after it; see
`describe_later_runs`."""
COUNT = "{desc} · {unit} {n_fmt}/{total_fmt}"
RUNNING = COUNT + " · {remaining} left{all_runs} |{bar:10}| {rate_fmt}{postfix}"
DONE = COUNT + " in {elapsed}, {rate_fmt}{postfix}"
NUMBERS_WIDTH = 42
"""Columns that the numbers need; if the title leaves fewer, `NARROW_FORMATS` are used."""
NARROW_FORMATS = {
    RUNNING: "{unit} {n_fmt}/{total_fmt} · {remaining} left{all_runs} · {desc}",
    DONE: "{unit} {n_fmt}/{total_fmt} in {elapsed} · {desc}",
}
"""Formats with the numbers first, for narrow terminals, which cut off the end of a line."""


@contextmanager
def set_in_environment(name: str, value: str) -> Iterator[None]:
    """Sets the environment variable `OUTER_TITLE`, `STAGE` or `LATER_RUNS` in this context."""
    outer_value = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if outer_value is not None:
            os.environ[name] = outer_value


def describe_later_runs(name: str, seconds: float, later_seconds: float) -> str:
    """Returns a value for `LATER_RUNS`.

    Args:
        name: one word for all runs together, which bars show before their remaining time.
        seconds: the expected duration of this run.
        later_seconds: the expected duration of the later runs.
    """
    return f"{name} {time.time() + seconds:.0f} {later_seconds:.0f}"


class _RecordedBar(tqdm):  # type: ignore[type-arg]
    """A bar that also records its progress for the launcher (`core.process_records`)."""

    last_record = 0.0  # monotonic seconds
    stage_title = ""  # the title without `OUTER_TITLE`
    partial_count = 0  # rows of the unfinished batch that are counted

    @property
    def format_dict(self) -> dict[str, Any]:
        """The values of the format: `all_runs` is the remaining time of all runs."""
        values = super().format_dict
        name, seconds_left = self._all_runs_left(values)
        if values["ncols"] and values["ncols"] < disp_len(values["prefix"]) + NUMBERS_WIDTH:
            values["bar_format"] = NARROW_FORMATS[values["bar_format"]]
        left = (
            "" if seconds_left is None else f", {name} {format_approximate_duration(seconds_left)}"
        )
        return {**values, "all_runs": left}

    def _all_runs_left(self, values: Mapping[str, Any]) -> tuple[str, float | None]:
        """The name of all runs and their remaining seconds, or None if these are unknown.

        The rest of this run is estimated from its rate and from its expected end; the larger
        estimate is used.
        """
        value = os.environ.get(LATER_RUNS)
        if not value:
            return "", None
        name, expected_end, later_seconds = value.split()
        seconds_left = max(_estimate_seconds_left(values) or 0.0, float(expected_end) - time.time())
        return name, seconds_left + float(later_seconds)

    def update(self, n: float | None = 1) -> Any:
        counted, self.partial_count = self.partial_count, 0
        if counted:
            self.set_postfix_str(refresh=False)
        return self._advance_up_to_total((1 if n is None else n) - counted)

    def count_batch_rows(self, batch_size: int, done: int, total: int) -> None:
        """Count the finished rows of a batch; `update` later counts the whole batch."""
        self.set_postfix_str(f"batch of {batch_size}: row {done:,}/{total:,}", refresh=False)
        count = batch_size * done // max(total, 1)
        self._advance_up_to_total(count - self.partial_count)
        self.partial_count = count

    def _advance_up_to_total(self, n: float) -> Any:
        """Count `n` more, but not beyond the total."""
        is_displayed = super().update(n if self.total is None else min(n, self.total - self.n))
        if not self.disable and time.monotonic() - self.last_record > RECORD_INTERVAL_SECONDS:
            self._record_progress()
        return is_displayed

    def close(self) -> None:
        """Shows the duration and the mean rate in the last line."""
        was_interrupted_at_start = not hasattr(self, "start_t")
        if was_interrupted_at_start or self.disable:  # the latter: closed already
            return
        self._record_progress()
        if self.total is not None and self.n >= self.total:
            self.bar_format = DONE
        is_logged = (
            not _is_stderr_redrawable() and self.format_dict["elapsed"] >= MIN_LOGGED_SECONDS
        )
        line = f"{self}\n" if is_logged else ""
        super().close()
        sys.stderr.write(line)

    def _record_progress(self) -> None:
        self.last_record = time.monotonic()
        values = self.format_dict
        process_records.record_progress(
            process_records.Progress(
                title=self.stage_title,
                n=int(values["n"]),
                total=values["total"],
                unit=values["unit"],
                seconds_left=_estimate_seconds_left(values),
                sweep_left=self._all_runs_left(values)[1],
            )
        )


def progress_bar(*, desc: str | None, stage: str = "", **options: Any) -> Any:
    """Returns a `tqdm` bar whose rate is the mean since its start, without `initial`.

    Args:
        desc: the work, in one or two words.
        stage: the stage; ignored if a launcher has set `STAGE`.
        options: options of tqdm. The unit is in the singular.
    """
    if _is_stderr_redrawable():
        display: dict[str, Any] = {"mininterval": 0.2, "dynamic_ncols": True}
    else:
        display = {"mininterval": float("inf"), "file": StringIO()}
    stage_title = _join_title(os.environ.get(STAGE, stage), desc)
    title = _join_title(os.environ.get(OUTER_TITLE), stage_title)
    bar = _RecordedBar(
        desc=title, bar_format=RUNNING, smoothing=0, miniters=0, **display, **options
    )
    bar.stage_title = stage_title
    return bar


def _estimate_seconds_left(bar_values: Mapping[str, Any]) -> float | None:
    """The estimate at the mean rate so far; None if it is unknown."""
    done, total = bar_values["n"] - bar_values["initial"], bar_values["total"]
    return (total - bar_values["n"]) * bar_values["elapsed"] / done if total and done else None


def _join_title(*parts: str | None) -> str:
    return " · ".join(filter(None, parts))


def _is_stderr_redrawable() -> bool:
    return (
        sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    )  # a dumb terminal can't redraw a line
