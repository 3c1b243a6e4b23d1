"""The cost of a cell's runs: wall time and devices, recorded when each run ends.

A run that is killed can't record its cost. Then the file that says when it began stays; it was last
touched a few seconds before the end.
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
from contamination.core.files import hashed_json, read_verified_json, write_text_atomically
from contamination.core.integrity import MANIFEST
from contamination.core.stored_files import parse_json, parse_typed, read_text

HEARTBEAT_SECONDS = 5.0
"""Seconds between two heartbeats."""
LOST_SECONDS = 60.0
"""Seconds without a heartbeat after which a process on another machine counts as dead."""


def is_process_dead(host: str, pid: int, seconds_silent: float) -> bool:
    """Returns whether a process has died, given the seconds since its last heartbeat."""
    is_lost = seconds_silent > LOST_SECONDS
    return is_lost or (host == socket.gethostname() and not psutil.pid_exists(pid))


@contextmanager
def keep_beating(beat: Callable[[], None]) -> Iterator[None]:
    """Call `beat` from a thread every few seconds within the context; ignore errors of the disk."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(HEARTBEAT_SECONDS):
            with suppress(OSError):  # a record that can't be written must not end the work
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
    """The cost of one run of a stage; with several nodes each records its own."""

    stage: str  # `inject`, `train` or `detect`
    run: str  # which of the stage's runs, such as `base`
    seconds: float  # wall time, including time spent waiting for another launch
    devices: int  # in use meanwhile
    device: str  # `cuda` or `cpu`
    made: str | None  # the artefact's folder; None: it did not end well, or was a slice
    killed: bool = False  # then the seconds end with its last heartbeat

    @property
    def gpu_hours(self) -> float:
        """Devices × hours; 0 without GPUs."""
        return self.devices * self.seconds / 3600 if self.device == "cuda" else 0.0


@dataclass(frozen=True)
class _Begun:
    """A run that has not ended: its process, its start, and what is known of its cost."""

    host: str
    pid: int
    began: float
    cost: Cost


def make_and_record_cost(
    folder: Path, stage: str, run_name: str, devices: int, make: Callable[[], Made]
) -> Made:
    """Returns what `make` returns; records the run's cost in the cell's folder if it worked."""
    began = time.time()
    artifact: Made | None = None
    device = "cuda" if stage != "inject" and _has_gpu() else "cpu"
    cost = Cost(stage, run_name, 0.0, devices, device, None)
    with _keep_begun_file(folder, cost, began):
        try:
            artifact = make()
            return artifact
        finally:
            if artifact is None or (artifact.path / MANIFEST).stat().st_mtime >= began:
                folder_name = None if artifact is None else str(artifact.path.resolve())
                _append_cost(folder, replace(cost, seconds=time.time() - began, made=folder_name))


def _has_gpu() -> bool:
    """Whether torch can use a GPU; torch, slow to import, is not asked without a GPU's driver."""
    if "torch" not in sys.modules and not any(
        any(Path("/dev").glob(device_pattern)) for device_pattern in DRIVERS
    ):
        return False
    import torch

    return torch.cuda.is_available()


@contextmanager
def _keep_begun_file(folder: Path, cost: Cost, began: float) -> Iterator[None]:
    """Keeps a file, within the context, with the start and the last heartbeat of the run."""
    who = {"host": socket.gethostname(), "pid": os.getpid(), "began": began}
    begun_file = folder / f"{BEGUN}{who['host']}-{who['pid']}-{began:.0f}.json"
    with suppress(OSError):  # a full disk must not end the work
        write_text_atomically(begun_file, hashed_json({**who, "cost": asdict(cost)}))
    try:
        with keep_beating(lambda: os.utime(begun_file)):
            yield
    finally:
        begun_file.unlink(missing_ok=True)


def _append_cost(folder: Path, cost: Cost) -> None:
    with suppress(OSError), (folder / FILE).open("a") as stream:
        stream.write(json.dumps(asdict(cost)) + "\n")


def read_costs(folder: Path) -> list[Cost]:
    """Returns the costs recorded in a cell's folder in order, then killed runs, then its slices'.

    Torn lines are skipped, and slices that are links are ignored.
    """
    slices = [path for path in sorted(folder.glob("slices/*")) if not path.is_symlink()]
    return [cost for path in (folder, *slices) for cost in _read_costs_of_folder(path)]


def _read_costs_of_folder(folder: Path) -> list[Cost]:
    costs = []
    with suppress(FileNotFoundError, ValueError):
        for line in read_text(folder / FILE).splitlines():
            with suppress(ValueError):
                costs.append(parse_typed(parse_json(line), Cost))
    return [*costs, *_iter_killed_run_costs(folder)]


def _iter_killed_run_costs(folder: Path) -> Iterator[Cost]:
    """Yields the runs whose process died without recording a cost, up to its last heartbeat."""
    for file in sorted(folder.glob(f"{BEGUN}*.json")):
        with suppress(FileNotFoundError, ValueError):  # the run has just ended, or it is damaged
            last_beat, begun = file.stat().st_mtime, parse_typed(read_verified_json(file), _Begun)
            if is_process_dead(begun.host, begun.pid, time.time() - last_beat):
                seconds = max(0.0, last_beat - begun.began)
                yield replace(begun.cost, seconds=seconds, killed=True)
