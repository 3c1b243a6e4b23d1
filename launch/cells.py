"""A launch on disk: its cells, what became of each, and the code that it runs.

::

    runs/launches/<name>-<hash of the command's overrides>/
    ├── config.yaml              what the command said, for the report
    ├── code-<hash>/             the code as it was: REVISION, changes.diff, the packages, conf/
    ├── cells.json               which cells there are
    ├── jobs/                    batch scripts and logs, with SLURM
    └── cells/<hash of the cell's overrides>/
        ├── overrides.json       what tells the cell from the others
        ├── config.yaml          its whole configuration, resolved
        ├── stages/<name>/       the configuration of a stage started as processes of its own
        ├── jobs.json            its SLURM jobs
        ├── running.json         while it runs: where; touched every few seconds
        ├── progress.json        how far it is
        ├── slices/2-of-8/       the same of a job that makes a slice of the detection
        ├── costs.jsonl          each run's wall time and devices
        ├── begun-<process>.json the run that has not ended; after a kill it stays
        └── outcome.json         done, with its artefacts' folders; or failed, and why
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from omegaconf import DictConfig, OmegaConf

from contamination.analysis.config import CellPaths
from contamination.core import process_records
from contamination.core.artifacts import file_name
from contamination.core.errors import ArtifactError, StoppedError, UserError
from contamination.core.files import read_sealed, sealed, write_text
from contamination.core.signals import last_words, obeyed
from contamination.core.stored_files import check_name, typed
from contamination.launch.run_records import beating, read_costs
from contamination.launch.saved_config import load_config

T = TypeVar("T")
KIND = "launches"
SLICE = re.compile(r"\d+/\d+")
RUNTIME = ("launch.", "cluster.", "cluster=", "verify=")
"""How overrides begin that say where and how far, not what."""


@dataclass(frozen=True)
class _Overrides:
    """What `overrides.json` holds."""

    overrides: list[str]


@dataclass(frozen=True)
class _Cells:
    """What `cells.json` holds: the names of the cells' folders."""

    cells: list[str]


@dataclass(frozen=True)
class Outcome:
    """What became of a cell."""

    state: str  # `done`, `failed`, `stopped` by a signal, or `waiting` for its next stage
    stage: str | None = None  # the last one that was finished, where it waits
    paths: dict[str, Any] | None = None  # its artefacts' folders, where it is done
    error: str | None = None  # why it failed or stopped, in one paragraph
    content: dict[str, str] | None = None  # the digests of what it was made of, where it is done


@dataclass(frozen=True)
class Running:
    """Where a cell runs."""

    host: str
    pid: int
    job: str | None  # of SLURM
    stage: str | None  # that the job is for; None: all
    since: float  # seconds of the epoch


@dataclass(frozen=True)
class CellFolder:
    """One cell's folder."""

    folder: Path

    def register(self, overrides: Sequence[str]) -> None:
        """Say that the cell is to be run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write("overrides", {"overrides": list(overrides)})

    def read_overrides(self) -> list[str]:
        """The overrides by which the cell differs from the others."""
        registered = self._typed("overrides", _Overrides)
        return registered.overrides if registered else []

    def read_outcome(self) -> Outcome | None:
        """What became of it; None: nothing yet. A line feed in its error counts as a blank."""
        outcome = self._typed("outcome", Outcome)
        if outcome is None or outcome.error is None:
            return outcome
        return replace(outcome, error=" ".join(outcome.error.split()))

    def read_jobs(self) -> dict[str, str]:
        """Its SLURM jobs by their stage; those of slices as `detect 2/8`."""
        return self._typed("jobs", dict[str, str]) or {}

    def slice(self, words: str) -> CellFolder:
        """The records of a slice of its detection, such as 2/8."""
        return CellFolder(self.folder / "slices" / words.replace("/", "-of-"))

    def slices(self) -> list[CellFolder]:
        """The records of all slices that have jobs; of folders here, not of links to others."""
        words = [name.split()[1:] for name in self.read_jobs()]
        slices = [self.slice(word[0]) for word in words if word and SLICE.fullmatch(word[0])]
        home = Path(os.path.realpath(self.folder)) / "slices"
        return [s for s in slices if os.path.realpath(s.folder) == str(home / s.folder.name)]

    def read_cost(self) -> dict[str, Any]:
        """Wall time and GPU hours of its runs in all, where some were recorded."""
        costs = read_costs(self.folder)
        hours = sum(cost.gpu_hours for cost in costs)
        return {"seconds": sum(c.seconds for c in costs), "gpu_hours": hours} if costs else {}

    def read_running(self) -> tuple[Running, float] | None:
        """Where it runs, and the seconds since its last sign of life."""
        with suppress(FileNotFoundError):
            quiet = time.time() - (self.folder / "running.json").stat().st_mtime
            running = self._typed("running", Running)
            return None if running is None else (running, quiet)
        return None

    def write_jobs(self, jobs: Mapping[str, str]) -> None:
        """Write which SLURM jobs it has, by their stage."""
        self._write("jobs", dict(jobs))

    def write_outcome(self, outcome: Outcome) -> None:
        """Write what became of it."""
        self._write("outcome", asdict(outcome))

    def write_waiting(self) -> None:
        """Write that it waits for its jobs; what a killed process left says nothing any more."""
        (self.folder / "running.json").unlink(missing_ok=True)
        self.write_outcome(Outcome("waiting"))

    def write_failure(self, error: BaseException) -> None:
        """Write why it failed or was stopped."""
        state = "stopped" if isinstance(error, StoppedError) else "failed"
        kind = "" if isinstance(error, UserError | StoppedError) else f"{type(error).__name__}: "
        self.write_outcome(Outcome(state, error=f"{kind}{error}"))

    @contextmanager
    def record_run(self, stage: str | None = None) -> Iterator[None]:
        """Within it this process runs the cell: its folder says so, and why where it ends badly."""
        job = os.environ.get("SLURM_JOB_ID")
        now = Running(socket.gethostname(), os.getpid(), job, stage, time.time())
        process_records.forget(self.folder)
        before = self.read_outcome()
        if before is not None and before.state != "done":
            (self.folder / "outcome.json").unlink(missing_ok=True)
        process_records.leave_in(self.folder)
        with obeyed(), self._living(now), last_words(self.write_failure):
            try:
                yield
            except (Exception, StoppedError) as error:
                with suppress(OSError):  # of a full disk
                    self.write_failure(error)
                raise
            finally:
                process_records.leave_in(None)

    @contextmanager
    def _living(self, now: Running) -> Iterator[None]:
        """Show every few seconds that this process lives."""
        file = self.folder / "running.json"

        def beat() -> None:
            if file.exists():
                os.utime(file)
            else:  # another process of the same cell has ended
                self._write("running", asdict(now))

        self._write("running", asdict(now))
        try:
            with beating(beat):
                yield
        finally:
            if self._read("running") == asdict(now):
                file.unlink(missing_ok=True)

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        write_text(self.folder / f"{name}.json", sealed(value))

    def _read(self, name: str) -> dict[str, Any] | None:
        """What was written; None: nothing, or it is damaged, which is to know nothing as well."""
        return self._typed(name, dict[str, Any])

    def _typed(self, name: str, kind: type[T]) -> T | None:
        """What was written, as an object of the kind; None as for `_read`."""
        with suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError):
            read: T = typed(read_sealed(self.folder / f"{name}.json"), kind)
            return read
        return None


@dataclass(frozen=True)
class Launch:
    """One launch's folder."""

    folder: Path

    @staticmethod
    def named(runs: str, name: str, overrides: Sequence[str]) -> Launch:
        """The folder of the same command at any time."""
        return Launch((Path(runs) / KIND / f"{file_name(name)}-{digest(overrides)}").resolve())

    def register(self, cells: Sequence[Sequence[str]]) -> None:
        """Say which cells there are, by their overrides; those of an earlier sweep are left out."""
        for overrides in cells:
            self.cell(overrides).register(overrides)
        names = [digest(overrides) for overrides in cells]
        write_text(self.folder / "cells.json", sealed({"cells": names}))

    def read_config(self) -> DictConfig:
        """What the command said, with the runs folder as it is called here."""
        saved = load_config(self.folder)
        return cast(DictConfig, OmegaConf.merge(saved, {"runs": str(self.folder.parents[1])}))

    def cell(self, overrides: Sequence[str]) -> CellFolder:
        """The folder of a cell with these overrides."""
        return CellFolder(self.folder / "cells" / digest(overrides))

    def cells(self) -> list[CellFolder]:
        """All cells, in the order of their overrides.

        Raises:
            ArtifactError: it is not known which they are.
        """
        found = [CellFolder(path.parent) for path in self.folder.glob("cells/*/overrides.json")]
        names = self._names()
        found = [cell for cell in found if cell.folder.name in names or not names]
        return sorted(found, key=CellFolder.read_overrides)

    def ordered(self) -> list[CellFolder]:
        """All cells, in the sweep's own order; none where it is not known."""
        return [CellFolder(self.folder / "cells" / name) for name in self._names()]

    def place(self, cell: CellFolder) -> str:
        """Such as "cell 2 of 3", in the sweep's own order; empty where that is not known."""
        names = self._names()
        if len(names) < 2 or cell.folder.name not in names:
            return ""
        return f"cell {names.index(cell.folder.name) + 1} of {len(names)}"

    def _names(self) -> list[str]:
        """The cells' folders, in the sweep's own order; none where it is not known."""
        file = self.folder / "cells.json"
        try:
            if not file.exists():
                return []
            names: list[str] = typed(read_sealed(file), _Cells).cells
            for name in names:
                check_name(name)
            return names
        except (OSError, ValueError) as error:
            raise ArtifactError(
                f"{file} is damaged ({error}): give the launch's command again, which writes it."
            ) from error

    def named_cells(self) -> list[tuple[str, CellFolder]]:
        """All cells, each with what tells it from the others."""
        cells = [(cell, cell.read_overrides()) for cell in self.cells()]
        shared = set.intersection(*(set(words) for _, words in cells)) if cells else set()
        own = [" ".join(word for word in words if word not in shared) for _, words in cells]
        return [(name or "the only cell", cell) for name, (cell, _) in zip(own, cells, strict=True)]

    def words(self, cell: CellFolder) -> str:
        """What tells a cell from the others; empty where it is not registered."""
        return next((own for own, one in self.named_cells() if one.folder == cell.folder), "")

    def done_paths(self) -> list[CellPaths]:
        """The artefacts of the cells that ended well, with what their runs took."""
        found = []
        for cell, paths in self.done():
            try:
                found.append(typed({**paths, **cell.read_cost()}, CellPaths))
            except ValueError as error:
                raise ArtifactError(
                    f"{cell.folder / 'outcome.json'} is damaged ({error}): give the launch's "
                    "command again, which writes it."
                ) from error
        return found

    def done(self) -> list[tuple[CellFolder, dict[str, Any]]]:
        """The cells that ended well, with their artefacts' folders."""
        outcomes = [(cell, cell.read_outcome()) for cell in self.cells()]
        return [(cell, own.paths) for cell, own in outcomes if own is not None and own.paths]


def digest(overrides: Sequence[str]) -> str:
    """A name for some overrides, whatever their order, and wherever and how far they are run."""
    kept = sorted(o for o in overrides if not o.lstrip("+~").startswith(RUNTIME))
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:12]
