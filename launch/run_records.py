"""What a cell's runs cost: wall time and devices, recorded as they end.

A run that was killed records nothing: the file that says when it began stays, touched for the last
time a few seconds before the end.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

import psutil

from contamination.core.artifacts import Artifact
from contamination.core.files import read_sealed, sealed, write_text
from contamination.core.integrity import MANIFEST
from contamination.core.stored_files import parse_json, read_text, typed

BEAT = 5.0
"""Seconds between two signs of life."""
LOST = 60.0
"""Seconds without one after which a process of another machine counts as dead."""


def is_dead(host: str, pid: int, quiet: float) -> bool:
    """Whether a process has ended without a word, or has given no sign for so many seconds."""
    return quiet > LOST or (host == socket.gethostname() and not psutil.pid_exists(pid))


@contextmanager
def beating(beat: Callable[[], None]) -> Iterator[None]:
    """Within it a thread calls `beat` every few seconds, whatever the disk says to it."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(BEAT):
            with suppress(OSError):  # whoever looks on must not end the work
                beat()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


Made = TypeVar("Made", bound=Artifact | None)
FILE, BEGUN = "costs.jsonl", "begun-"
DRIVERS = ("nvidia*", "nvhost*", "kfd", "dxg")
"""Device files of drivers that torch's `cuda` devices use: NVIDIA, Jetson, ROCm, WSL."""


@dataclass(frozen=True)
class Cost:
    """One run of a stage; several nodes each record their own."""

    stage: str  # `inject`, `train` or `detect`
    run: str  # which of the stage's runs, such as `base`
    seconds: float  # wall time, waiting for another launch included
    devices: int  # held meanwhile
    device: str  # `cuda` or `cpu`
    made: str | None  # the artefact's folder; None: it did not end well, or was a slice
    killed: bool = False  # the seconds are then up to its last sign of life

    @property
    def gpu_hours(self) -> float:
        """Devices × hours, of GPUs."""
        return self.devices * self.seconds / 3600 if self.device == "cuda" else 0.0


@dataclass(frozen=True)
class _Begun:
    """A run that has not ended: which process makes it, since when, and what of it is known."""

    host: str
    pid: int
    began: float
    cost: Cost


def recorded(folder: Path, stage: str, run: str, devices: int, make: Callable[[], Made]) -> Made:
    """Return what `make` returns; record the run's cost in the cell's folder if it did any work."""
    began = time.time()
    made: Made | None = None
    device = "cuda" if stage != "inject" and _has_gpu() else "cpu"
    cost = Cost(stage, run, 0.0, devices, device, None)
    with _begun(folder, cost, began):
        try:
            made = make()
            return made
        finally:
            if made is None or (made.path / MANIFEST).stat().st_mtime >= began:
                name = None if made is None else str(made.path.resolve())
                _write(folder, replace(cost, seconds=time.time() - began, made=name))


def _has_gpu() -> bool:
    """Whether torch can use a GPU; torch, slow to import, is not asked without a GPU's driver."""
    if "torch" not in sys.modules and not any(any(Path("/dev").glob(name)) for name in DRIVERS):
        return False
    import torch

    return torch.cuda.is_available()


@contextmanager
def _begun(folder: Path, cost: Cost, began: float) -> Iterator[None]:
    """Within it a file says that the run has begun, and shows that this process lives."""
    who = {"host": socket.gethostname(), "pid": os.getpid(), "began": began}
    file = folder / f"{BEGUN}{who['host']}-{who['pid']}-{began:.0f}.json"
    with suppress(OSError):  # a full disk ends no work
        write_text(file, sealed({**who, "cost": asdict(cost)}))
    try:
        with beating(lambda: os.utime(file)):
            yield
    finally:
        file.unlink(missing_ok=True)


def _write(folder: Path, cost: Cost) -> None:
    with suppress(OSError), (folder / FILE).open("a") as stream:
        stream.write(json.dumps(asdict(cost)) + "\n")


def read_costs(folder: Path) -> list[Cost]:
    """What was recorded in a cell's folder, in its order, and then what was killed.

    Those of its slices follow; a link among them is none. A torn line is left out.
    """
    slices = [place for place in sorted(folder.glob("slices/*")) if not place.is_symlink()]
    return [cost for place in (folder, *slices) for cost in _recorded(place)]


def _recorded(folder: Path) -> list[Cost]:
    """The same without those of slices."""
    found = []
    with suppress(FileNotFoundError, ValueError):
        for line in read_text(folder / FILE).splitlines():
            with suppress(ValueError):
                found.append(typed(parse_json(line), Cost))
    return [*found, *_killed(folder)]


def _killed(folder: Path) -> Iterator[Cost]:
    """The runs whose process has died without a word, up to its last sign of life."""
    for file in sorted(folder.glob(f"{BEGUN}*.json")):
        with suppress(FileNotFoundError, ValueError):  # it ends, or is damaged
            last, begun = file.stat().st_mtime, typed(read_sealed(file), _Begun)
            if is_dead(begun.host, begun.pid, time.time() - last):
                yield replace(begun.cost, seconds=max(0.0, last - begun.began), killed=True)
