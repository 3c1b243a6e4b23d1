"""`python -m launch status`: what became of each cell, read from the run folders alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from core import process_records
from core.errors import ConfigError
from launch.config import STAGES
from launch.folder import KIND, CellFolder, Launch, Outcome

LOST = 60.0  # seconds without a sign of life


def status(runs: Path) -> str:
    """All launches of a runs folder, the newest last, or the one launch whose folder is given.

    Raises:
        ConfigError: there is none.
    """
    own = [runs] if (runs / "cells").is_dir() else list((runs / KIND).glob("*/cells"))
    folders = [p if p == runs else p.parent for p in own]
    if not folders:
        raise ConfigError(
            f"runs is {str(runs)!r}: no launch is there. Give the folder of a launch's "
            "artefacts (runs=DIR), or one of its runs/launches/."
        )
    folders.sort(key=lambda folder: folder.stat().st_mtime)
    return "\n\n".join(_launch(Launch(folder)) for folder in folders)


def _launch(launch: Launch) -> str:
    rows = [(own, *state(cell)) for own, cell in launch.named_cells()]
    counts = Counter(name for _, name, _ in rows)
    head = f"{launch.folder}: " + ", ".join(f"{n} {name}" for name, n in counts.items())
    wide = max((len(own) for own, *_ in rows), default=0)
    lines = [f"  {own:{wide}}  {name:8} {more}".rstrip() for own, name, more in rows]
    return "\n".join([head, *lines])


def state(cell: CellFolder) -> tuple[str, str]:
    """`waiting`, `running`, `done` or `failed`, and what there is to say about it."""
    running, outcome = cell.read_running(), cell.read_outcome()
    if running is not None:
        now, quiet = running
        where = f"on {now.host}" + (f", job {now.job}" if now.job else "")
        if quiet < LOST:
            return "running", f"{_progress(cell)}{where}"
        return "failed", (
            f"no sign of life for {_duration(quiet)} ({_progress(cell)}{where}): its process "
            "ended without a word. Run the same command again to resume."
        )
    if outcome is None or outcome.state in ("waiting", "stopped"):
        return "waiting", _waits(cell, outcome or Outcome("waiting"))
    return outcome.state, outcome.error or ""


def _waits(cell: CellFolder, outcome: Outcome) -> str:
    """What the cell waits for, as far as is known here."""
    if outcome.error:
        return f"stopped: {outcome.error}"
    following = STAGES[STAGES.index(outcome.stage) + 1] if outcome.stage else STAGES[0]
    done = [f"{outcome.stage} done"] if outcome.stage else []
    jobs = cell.read_jobs()
    job = [f"{following}: job {jobs[following]}"] if following in jobs else []
    return "; ".join([*done, *job])


def _progress(cell: CellFolder) -> str:
    now = process_records.read_progress(cell.folder)
    if now is None:
        return ""
    share = f"/{now.total} {now.unit} ({now.n / now.total:.0%})" if now.total else f" {now.unit}"
    left = f", {_duration(now.seconds_left)} left" if now.seconds_left is not None else ""
    return f"{now.title}: {now.n}{share}{left}; "


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
