"""What a cell's runs cost: wall time and devices, recorded as they end, killed ones excepted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from core.artifacts import Artifact
from core.wholeness import MANIFEST

FILE = "costs.jsonl"


@dataclass(frozen=True)
class Cost:
    """One run of a stage; several nodes each record their own."""

    stage: str  # `inject`, `train` or `detect`
    run: str  # which of the stage's runs, such as `base`
    seconds: float  # wall time, waiting for another launch included
    devices: int  # held meanwhile
    device: str  # `cuda` or `cpu`
    made: str | None  # the artefact's folder; None: it did not end well

    @property
    def gpu_hours(self) -> float:
        """Devices × hours, of GPUs."""
        return self.devices * self.seconds / 3600 if self.device == "cuda" else 0.0


def recorded(
    folder: Path, stage: str, run: str, devices: int, make: Callable[[], Artifact]
) -> Artifact:
    """What `make` gives; the cell's folder gets the cost, unless it was there already."""
    import torch

    began, made = time.time(), None
    device = "cuda" if torch.cuda.is_available() and stage != "inject" else "cpu"
    try:
        made = make()
        return made
    finally:
        if made is None or (made.path / MANIFEST).stat().st_mtime >= began:
            name = None if made is None else str(made.path.resolve())
            _write(folder, Cost(stage, run, time.time() - began, devices, device, name))


def _write(folder: Path, cost: Cost) -> None:
    with suppress(OSError), (folder / FILE).open("a") as stream:  # a full disk ends no work
        stream.write(json.dumps(asdict(cost)) + "\n")


def read_costs(folder: Path) -> list[Cost]:
    """What was recorded in a cell's folder, in its order; a torn line is left out."""
    found = []
    with suppress(FileNotFoundError):
        for line in (folder / FILE).read_text().splitlines():
            with suppress(ValueError, TypeError):
                found.append(Cost(**json.loads(line)))
    return found


def total(costs: Sequence[Cost], stage: str) -> float:
    """Seconds of a stage's runs, one after another."""
    return sum(cost.seconds for cost in costs if cost.stage == stage)
