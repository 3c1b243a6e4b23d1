"""A sign of life every few seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

BEAT = 5.0
"""Seconds between two signs of life."""
LOST = 60.0
"""Seconds without one after which a process counts as dead."""


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
