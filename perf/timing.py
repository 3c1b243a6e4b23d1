"""Side-by-side timing and peak memory, for the scripts of this folder."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch


def median_seconds(*ways: Callable[[], object], repeats: int = 7) -> list[float]:
    """Median seconds of the first way, then the others' median ratios to it, repeat by repeat."""
    seconds: list[list[float]] = [[] for _ in ways]
    for repeat in range(repeats + 2):
        for way, times in zip(ways, seconds, strict=True):
            start = time.perf_counter()
            way()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if repeat >= 2:  # the first ones warm up
                times.append(time.perf_counter() - start)
    first, *others = seconds
    pairs = [[b / a for a, b in zip(first, times, strict=True)] for times in others]
    return [statistics.median(times) for times in (first, *pairs)]


def peak_memory(way: Callable[[], object]) -> float:
    """The most MiB that a call holds above what is held before: the device's, or the process's."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        way()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    ctypes.CDLL(None).malloc_trim(0)  # what earlier calls freed, which would be taken again unseen
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on (Linux, glibc)
    resident = _status("VmRSS")
    way()
    return (_status("VmHWM") - resident) / 2**10


def _status(field: str) -> int:
    """A line of the process's status, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
