"""A launch on disk: its cells, the status of each, and the code that it runs.

::

    runs/launches/<name>-<hash of the command's overrides>/
    ├── config.yaml              the command's configuration, for the report
    ├── code-<hash>/             the code as it was: REVISION, changes.diff, the packages, conf/
    ├── cells.json               the names of the cells' folders
    ├── jobs/                    batch scripts and logs, with SLURM
    └── cells/<hash of the cell's overrides>/
        ├── overrides.json       the overrides that distinguish the cell from the others
        ├── config.yaml          its whole configuration, resolved
        ├── stages/<name>/       the configuration of a stage started as processes of its own
        ├── jobs.json            its SLURM jobs
        ├── running.json         while it runs: host and process; touched every few seconds
        ├── progress.json        its progress
        ├── slices/2-of-8/       the same for a job that makes a slice of the detection
        ├── costs.jsonl          each run's wall time and devices
        ├── begun-<process>.json a run that has not ended; it stays if the process is killed
        └── outcome.json         done, with its artefacts' folders; or failed, with the reason
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
from contamination.core.artifacts import path_part_of
from contamination.core.errors import ArtifactError, StoppedError, UserError
from contamination.core.files import hashed_json, read_verified_json, write_text_atomically
from contamination.core.signals import (
    call_before_exit,
    restore_stopped_error,
    stop_on_signals,
)
from contamination.core.stored_files import check_name_inside_folder, parse_typed
from contamination.launch.run_records import keep_beating, read_costs
from contamination.launch.saved_config import load_config

T = TypeVar("T")
KIND = "launches"
SLICE_PATTERN = re.compile(r"\d+/\d+")
RUNTIME_OVERRIDES = ("launch.", "cluster.", "cluster=", "verify=")
"""Prefixes of overrides that say where a cell runs and up to which stage, not what it makes."""


@dataclass(frozen=True)
class _Overrides:
    """The content of `overrides.json`."""

    overrides: list[str]


@dataclass(frozen=True)
class _Cells:
    """The content of `cells.json`: the names of the cells' folders."""

    cells: list[str]


@dataclass(frozen=True)
class Outcome:
    """How a cell's latest run ended."""

    state: str  # `done`, `failed`, `stopped` by a signal, or `waiting` for its next stage
    stage: str | None = None  # the last finished stage, if it is waiting
    paths: dict[str, Any] | None = None  # its artefacts' folders, if it is done
    error: str | None = None  # why it failed or stopped, in one paragraph
    content: dict[str, str] | None = None  # the digests of its inputs, if it is done


@dataclass(frozen=True)
class Running:
    """The process that runs a cell."""

    host: str
    pid: int
    job: str | None  # the SLURM job
    stage: str | None  # the stage up to which it runs; None: all stages
    since: float  # its start, in seconds since the epoch


@dataclass(frozen=True)
class CellFolder:
    """One cell's folder."""

    folder: Path

    def register(self, overrides: Sequence[str]) -> None:
        """Creates the folder and records the overrides that distinguish the cell."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_record("overrides", {"overrides": list(overrides)})

    def read_overrides(self) -> list[str]:
        """Returns the overrides that distinguish the cell from the others."""
        record = self._read_record("overrides", _Overrides)
        return record.overrides if record else []

    def read_outcome(self) -> Outcome | None:
        """Returns the outcome, its error on one line; None before the cell has ended once."""
        outcome = self._read_record("outcome", Outcome)
        if outcome is None or outcome.error is None:
            return outcome
        return replace(outcome, error=" ".join(outcome.error.split()))

    def read_jobs(self) -> dict[str, str]:
        """Returns the cell's SLURM jobs by stage; jobs of slices are called `detect 2/8`."""
        return self._read_record("jobs", dict[str, str]) or {}

    def slice_folder(self, fraction: str) -> CellFolder:
        """Returns the records of a slice of the cell's detection, such as `2/8`."""
        return CellFolder(self.folder / "slices" / fraction.replace("/", "-of-"))

    def slice_folders(self) -> list[CellFolder]:
        """Returns the records of all slices that have jobs, without links to other folders."""
        words_after_stage = [name.split()[1:] for name in self.read_jobs()]
        slices = [
            self.slice_folder(word[0])
            for word in words_after_stage
            if word and SLICE_PATTERN.fullmatch(word[0])
        ]
        home = Path(os.path.realpath(self.folder)) / "slices"
        return [
            cell for cell in slices if os.path.realpath(cell.folder) == str(home / cell.folder.name)
        ]

    def read_total_cost(self) -> dict[str, Any]:
        """Returns the total wall time and GPU hours of the cell's runs; empty without a record."""
        costs = read_costs(self.folder)
        hours = sum(cost.gpu_hours for cost in costs)
        return {"seconds": sum(c.seconds for c in costs), "gpu_hours": hours} if costs else {}

    def read_running(self) -> tuple[Running, float] | None:
        """Returns the process that runs the cell and the seconds since its last heartbeat."""
        with suppress(FileNotFoundError):
            seconds_silent = time.time() - (self.folder / "running.json").stat().st_mtime
            running = self._read_record("running", Running)
            return None if running is None else (running, seconds_silent)
        return None

    def write_jobs(self, jobs: Mapping[str, str]) -> None:
        """Records the cell's SLURM jobs by stage."""
        self._write_record("jobs", dict(jobs))

    def write_outcome(self, outcome: Outcome) -> None:
        """Records the outcome."""
        self._write_record("outcome", asdict(outcome))

    def write_waiting(self) -> None:
        """Records that the cell waits for its jobs, and removes what a killed process left."""
        (self.folder / "running.json").unlink(missing_ok=True)
        self.write_outcome(Outcome("waiting"))

    def write_failure(self, error: BaseException) -> None:
        """Records why the cell failed or was stopped."""
        state = "stopped" if isinstance(error, StoppedError) else "failed"
        class_prefix = (
            "" if isinstance(error, UserError | StoppedError) else f"{type(error).__name__}: "
        )
        self.write_outcome(Outcome(state, error=f"{class_prefix}{error}"))

    @contextmanager
    def record_run(self, stage: str | None = None) -> Iterator[None]:
        """Records that this process runs the cell, and the reason if it fails or is stopped."""
        job = os.environ.get("SLURM_JOB_ID")
        this_process = Running(socket.gethostname(), os.getpid(), job, stage, time.time())
        process_records.clear_records(self.folder)
        last_outcome = self.read_outcome()
        if last_outcome is not None and last_outcome.state != "done":
            (self.folder / "outcome.json").unlink(missing_ok=True)
        process_records.set_records_folder(self.folder)
        with (
            stop_on_signals(),
            self._keep_running_record(this_process),
            call_before_exit(self.write_failure),
        ):
            try:
                with restore_stopped_error():
                    yield
            except (Exception, StoppedError) as error:
                with suppress(OSError):  # a full disk
                    self.write_failure(error)
                raise
            finally:
                process_records.set_records_folder(None)

    @contextmanager
    def _keep_running_record(self, this_process: Running) -> Iterator[None]:
        """Keeps `running.json` up to date while this process runs the cell."""
        running_file = self.folder / "running.json"

        def touch_or_rewrite() -> None:
            if running_file.exists():
                os.utime(running_file)
            else:  # another process of the same cell has ended and removed it
                self._write_record("running", asdict(this_process))

        self._write_record("running", asdict(this_process))
        try:
            with keep_beating(touch_or_rewrite):
                yield
        finally:
            if self._read_record("running", Running) == this_process:
                running_file.unlink(missing_ok=True)

    def _write_record(self, record_name: str, value: Mapping[str, Any]) -> None:
        write_text_atomically(self.folder / f"{record_name}.json", hashed_json(value))

    def _read_record(self, record_name: str, record_class: type[T]) -> T | None:
        """Returns the record of this name as `record_class`; None if it is missing or damaged."""
        with suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError):
            record: T = parse_typed(
                read_verified_json(self.folder / f"{record_name}.json"), record_class
            )
            return record
        return None


@dataclass(frozen=True)
class Launch:
    """One launch's folder."""

    folder: Path

    @staticmethod
    def of_command(runs: str, name: str, overrides: Sequence[str]) -> Launch:
        """Returns the launch of a command: the same command always has the same folder."""
        return Launch(
            (Path(runs) / KIND / f"{path_part_of(name)}-{overrides_digest(overrides)}").resolve()
        )

    def register(self, cells: Sequence[Sequence[str]]) -> None:
        """Records the cells, by their overrides, in place of those of earlier sweeps."""
        for overrides in cells:
            self.cell(overrides).register(overrides)
        names = [overrides_digest(overrides) for overrides in cells]
        write_text_atomically(self.folder / "cells.json", hashed_json({"cells": names}))

    @property
    def is_registered(self) -> bool:
        """Whether the launch was begun: `register` has been called."""
        return (self.folder / "cells.json").exists()

    def read_config(self) -> DictConfig:
        """What the command said, with the runs folder as it is called here."""
        saved = load_config(self.folder)
        return cast(DictConfig, OmegaConf.merge(saved, {"runs": str(self.folder.parents[1])}))

    def cell(self, overrides: Sequence[str]) -> CellFolder:
        """Returns the cell with these overrides."""
        return CellFolder(self.folder / "cells" / overrides_digest(overrides))

    def cells(self) -> list[CellFolder]:
        """Returns all cells in the order of their overrides.

        Raises:
            ArtifactError: `cells.json`, which names them, is damaged.
        """
        names = self._cell_folder_names()
        folders = [path.parent for path in self.folder.glob("cells/*/overrides.json")]
        cells = [CellFolder(folder) for folder in folders if folder.name in names or not names]
        return sorted(cells, key=CellFolder.read_overrides)

    def cells_in_sweep_order(self) -> list[CellFolder]:
        """Returns all cells in the sweep's order; empty if `cells.json` is missing."""
        return [CellFolder(self.folder / "cells" / name) for name in self._cell_folder_names()]

    def describe_position(self, cell: CellFolder) -> str:
        """Returns, for example, "cell 2 of 3"; empty for a single cell or an unknown order."""
        names = self._cell_folder_names()
        if len(names) < 2 or cell.folder.name not in names:
            return ""
        return f"cell {names.index(cell.folder.name) + 1} of {len(names)}"

    def _cell_folder_names(self) -> list[str]:
        """Returns the names of the cells' folders in the sweep's order; empty if unknown."""
        cells_file = self.folder / "cells.json"
        try:
            if not cells_file.exists():
                return []
            names: list[str] = parse_typed(read_verified_json(cells_file), _Cells).cells
            for name in names:
                check_name_inside_folder(name)
            return names
        except (OSError, ValueError) as error:
            raise ArtifactError(
                f"{cells_file} is damaged ({error}): give the launch's command again, which writes "
                "it."
            ) from error

    def named_cells(self) -> list[tuple[str, CellFolder]]:
        """Returns all cells, each with the overrides that not all cells have as its name."""
        cells = self.cells()
        overrides = [cell.read_overrides() for cell in cells]
        common = set.intersection(*map(set, overrides)) if cells else set()
        names = [
            " ".join(word for word in cell_overrides if word not in common)
            for cell_overrides in overrides
        ]
        return [(name or "the only cell", cell) for name, cell in zip(names, cells, strict=True)]

    def cell_name(self, cell: CellFolder) -> str:
        """Returns the cell's name, as in `named_cells`; empty if it is not registered."""
        names = {other.folder: name for name, other in self.named_cells()}
        return names.get(cell.folder, "")

    def done_cell_paths(self) -> list[CellPaths]:
        """Returns the artefacts' folders of finished cells, with the cost of their runs."""
        cell_paths = []
        for cell, paths in self.done_cells():
            try:
                cell_paths.append(parse_typed({**paths, **cell.read_total_cost()}, CellPaths))
            except ValueError as error:
                raise ArtifactError(
                    f"{cell.folder / 'outcome.json'} is damaged ({error}): give the launch's "
                    "command again, which writes it."
                ) from error
        return cell_paths

    def done_cells(self) -> list[tuple[CellFolder, dict[str, Any]]]:
        """Returns the cells that are done, with their artefacts' folders."""
        outcomes = [(cell, cell.read_outcome()) for cell in self.cells()]
        return [
            (cell, outcome.paths)
            for cell, outcome in outcomes
            if outcome is not None and outcome.paths
        ]


def overrides_digest(overrides: Sequence[str]) -> str:
    """Returns a hash of the overrides that say what is made, independent of their order."""
    identity = sorted(o for o in overrides if not o.lstrip("+~").startswith(RUNTIME_OVERRIDES))
    return hashlib.sha256("\n".join(identity).encode()).hexdigest()[:12]
