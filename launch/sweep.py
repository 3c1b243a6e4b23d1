"""A sweep: many cells that share what they can, and one report.

`python -m launch -m …` runs a cell for each combination, one after the other or side by side
(`hydra/launcher=joblib`). A cell that fails does not stop the others. Each leaves a record::

    runs/sweeps/<name>-<hash of the command's overrides>/<hash of the cell's overrides>.json

The same command again goes on where it was stopped: finished artefacts are reused.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from analysis.config import CellPaths
from core.artifacts import Artifact, write_text
from core.errors import ConfigError, StoppedError, UserError
from launch import pipeline
from training.world import asked_processes

SWEEP = "CONTAMINATION_SWEEP"  # tells a cell, in whatever process, the sweep's folder
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """What became of one cell.

    Attributes:
        overrides: what tells the cell from the others.
        cell: its artefacts' folders; None: it failed.
        error: why, in one paragraph.
    """

    overrides: Sequence[str]
    cell: dict[str, Any] | None = None
    error: str | None = None


class Sweep(Callback):
    """Hydra's callback around a sweep. What it raises Hydra only warns of, so it concludes nothing.

    Attributes:
        begun: the sweep's configuration and folder.
    """

    begun: tuple[DictConfig, Path] | None = None

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Name the sweep, and forget what an earlier run of it recorded."""
        overrides = list(config.hydra.overrides.task)
        name = f"{config.name}-{_digest(overrides)}"
        folder = (Path(config.runs) / "sweeps" / name).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.json"):
            old.unlink(missing_ok=True)
        os.environ[SWEEP] = str(folder)
        Sweep.begun = config, folder


def conclude() -> int:
    """After a sweep: one report on all cells that ended well; the others are named.

    Returns the exit status: 0, or 1 where a cell has no result. Without a sweep: 0.
    """
    if Sweep.begun is None:
        return 0
    os.environ.pop(SWEEP, None)
    config, folder = Sweep.begun
    records = read_records(folder)
    done = [CellPaths(**r.cell) for r in records if r.cell is not None]
    failed = [r for r in records if r.cell is None]
    if done:
        pipeline.report(config, done)
    shared = set.intersection(*(set(r.overrides) for r in records)) if records else set()
    for record in failed:
        own = [o for o in record.overrides if o not in shared]
        log.error("failed: %s: %s", " ".join(own) or "the only cell", record.error)
    log.info("sweep: %d of %d cells done.", len(done), len(records))
    return int(bool(failed))


def run(config: DictConfig) -> Artifact | None:
    """One cell: with its own report, or, within a sweep, with a record of what became of it."""
    if asked_processes() > 1:
        raise ConfigError(
            f"WORLD_SIZE is {asked_processes()}: python -m launch is one process. Start the "
            "training alone with torchrun (torchrun … -m training), then run this again: it finds "
            "the model trained."
        )
    if SWEEP not in os.environ:
        return pipeline.run(config)
    overrides = list(HydraConfig.get().overrides.task)
    _write(Record(overrides, error="its process ended before it did"))
    try:
        _write(Record(overrides, cell=asdict(pipeline.run_cell(pipeline.plan(config)))))
    except StoppedError:
        raise
    except UserError as error:
        _write(Record(overrides, error=str(error)))
    except Exception as error:  # one cell's mistake must not end the others
        log.error("%s", traceback.format_exc())
        _write(Record(overrides, error=f"{type(error).__name__}: {error}"))
    return None


def _write(record: Record) -> None:
    place = Path(os.environ[SWEEP]) / f"{_digest(record.overrides)}.json"
    write_text(place, json.dumps(asdict(record), indent=1))


def read_records(folder: Path) -> list[Record]:
    """What each cell of a sweep left, in the order of the overrides."""
    found = [Record(**json.loads(path.read_text())) for path in folder.glob("*.json")]
    return sorted(found, key=lambda record: list(record.overrides))


def _digest(overrides: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(overrides)).encode()).hexdigest()[:12]
