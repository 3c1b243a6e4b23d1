"""A sweep's beginning: its folder, its cells, the code that they run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from core.command import combinations
from core.lease import no_empty_folders
from launch import slurm, snapshot
from launch.folder import Launch
from launch.saved_config import save_config

CODE = "CONTAMINATION_CODE"  # tells a cell of a sweep, in whatever process, the sweep's snapshot


class Sweep(Callback):
    """Hydra's callback around a sweep. What it raises Hydra only warns of: it concludes nothing."""

    begun: DictConfig | None = None  # the sweep's configuration
    code: Path | None = None  # its snapshot, in the launch's folder; None: a dry run
    failed: Exception | None = None  # why there is none

    def on_multirun_start(self, config: DictConfig, **_: object) -> None:
        """Name the sweep and its cells."""
        Sweep.begun = config
        if not config.launch.dry_run:
            try:
                words = list(config.hydra.overrides.task)
                Sweep.code = begin(config, words, combinations(config) or [])
            except Exception as error:  # each cell says it; Hydra's warning would come before
                Sweep.failed = error
                return
            os.environ[CODE] = str(Sweep.code)


def begin(config: DictConfig, overrides: Sequence[str], cells: Sequence[Sequence[str]]) -> Path:
    """Make the launch's folder, with its cells registered and the code as it is: the snapshot.

    The command's own `overrides` name the launch; `config` is without what varies among the cells.
    """
    launch = Launch.named(config.runs, config.name, overrides)
    with no_empty_folders(launch.folder):
        launch.folder.mkdir(parents=True, exist_ok=True)
    code = snapshot.take(launch.folder)
    if config.cluster.kind != "slurm" or not slurm.queued(launch.cells()):
        save_config(launch.folder, config, code / "conf")  # which a queued report is going to read
    launch.register(cells)
    return code
