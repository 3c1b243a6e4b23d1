"""A sign of life every few seconds."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

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
