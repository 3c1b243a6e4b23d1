"""An error in place of work that does not end: a pipe without a partner, a template that loops."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_SECONDS = 1.0
"""Python drops an exception raised in a destructor, so the alarm is repeated after this long."""


@contextmanager
def time_limit(seconds: float, error: Callable[[], Exception]) -> Iterator[None]:
    """Interrupt the body with `error()` if it has not ended after `seconds`.

    The alarm is a signal (SIGALRM). It interrupts Python code and system calls such as `open`, but
    not a long computation in C. Only the main thread receives signals: in another thread there is
    no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise error()

    handler = signal.signal(signal.SIGALRM, interrupt)
    start = time.monotonic()
    outer_seconds, outer_interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if outer_seconds:  # the caller's own alarm, at most a moment late
            left = outer_seconds - (time.monotonic() - start)
            signal.setitimer(signal.ITIMER_REAL, max(left, 0.001), outer_interval)
