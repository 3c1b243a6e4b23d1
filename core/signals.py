"""Lets SIGTERM and SIGINT (Ctrl-C) end the work at any time.

The signal raises a `StoppedError` in the main thread. If Python drops the error because it was
raised in a callback or a destructor, it is raised again a little later. Run folders on disk are
then unfinished but not damaged, and the same command resumes them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType

from contamination.core.errors import StoppedError

SIGNALS = (signal.SIGTERM, signal.SIGINT)
GRACE_SECONDS = 6.0
RECEIVED = " was received"
AGAIN_SECONDS = 1.0  # a second Ctrl-C after this time also ends work that defers signals


@dataclass
class _StopState:
    """The received signal and its callbacks. There is one per process, as for signals."""

    number: int | None = None  # of the received signal
    since: float = 0.0  # when it was received or the deferring work ended (monotonic seconds)
    is_raised: bool = False
    """Whether the error was raised, anywhere in the main thread."""
    is_dropped: bool = False
    """Whether the error was raised in a place where Python drops it."""
    callbacks: list[Callable[[], None]] = field(default_factory=list)
    exit_callbacks: list[Callable[[StoppedError], None]] = field(default_factory=list)

    def make_error(self, detail: str = "") -> StoppedError:
        """The error names the signal: SIGTERM if another process received it."""
        number = signal.Signals(self.number or signal.SIGTERM)
        detail = detail or ". Finished work is kept: run the same command again to resume."
        return StoppedError(f"{number.name}{RECEIVED}{detail}", 128 + number)


_stop: _StopState | None = None


def stopped_error(where: str = "") -> StoppedError:
    """Returns the error that the caller raises, "SIGTERM was received" and `where`."""
    stop = _stop or _StopState()
    stop.is_raised = True
    return stop.make_error(where and f" {where}")


def is_stopping() -> bool:
    """Returns whether a signal was received and no work defers it."""
    return _stop is not None and _stop.number is not None and not _stop.callbacks


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Lets SIGTERM and SIGINT end the body; a nested call does nothing.

    Raises:
        StoppedError: a signal was received, even if the body then ended by itself.
    """
    global _stop
    if _stop is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    stop = _stop = _StopState()
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    old_handlers = {number: signal.signal(number, _handle_signal) for number in SIGNALS}
    old_wakeup_fd = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    old_hook, sys.unraisablehook = sys.unraisablehook, _note_dropped_stop
    watcher = threading.Thread(
        target=_exit_after_grace_period, args=(read_end, stop), name="stopping", daemon=True
    )
    watcher.start()
    try:
        with restore_stopped_error():
            yield
        if stop.number is not None:
            raise stop.make_error()
    finally:
        _stop = None
        sys.unraisablehook = old_hook
        signal.set_wakeup_fd(old_wakeup_fd)
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        os.write(write_end, b"\0")  # wakes the thread, which then ends
        watcher.join()
        os.close(write_end)
        os.close(read_end)


@contextmanager
def restore_stopped_error() -> Iterator[None]:
    """Raises the StoppedError again in place of any error that the body raises after it.

    Libraries may replace it: NumPy raises a TypeError without a cause if a signal comes while it
    compares structured arrays.
    """
    try:
        yield
    except Exception as error:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if _stop is None or not _stop.is_raised or not in_main_thread:
            raise
        raise _stop.make_error() from error


@contextmanager
def defer_signals(callback: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Lets the body check whether a signal was received, so that it can save before it ends.

    The signal raises no error in the body. Outside `stop_on_signals` and in threads other than the
    main thread, no signal is reported.

    Args:
        callback: called when the signal is received.

    Yields:
        A function that returns whether a signal was received.
    """
    stop = _stop if threading.current_thread() is threading.main_thread() else None
    if stop is None:
        yield lambda: False
        return
    stop.callbacks.append(callback)
    try:
        if stop.number is not None:
            callback()
        yield lambda: stop.number is not None
    finally:
        stop.callbacks.remove(callback)
        if not stop.callbacks:
            stop.since = time.monotonic()


@contextmanager
def call_before_exit(callback: Callable[[StoppedError], None]) -> Iterator[None]:
    """Call `callback` if a signal ends the process at once, without unwinding the body."""
    exit_callbacks = [] if _stop is None else _stop.exit_callbacks
    exit_callbacks.append(callback)
    try:
        yield
    finally:
        exit_callbacks.remove(callback)


def _handle_signal(number: int, frame: FrameType | None) -> None:
    stop = _stop
    if stop is None:
        return
    if stop.number is None:
        stop.number, stop.since = number, time.monotonic()
        if not stop.callbacks:
            stop.is_raised = True
            raise stop.make_error()
        for callback in stop.callbacks:
            callback()
    elif number == signal.SIGINT and time.monotonic() > stop.since + AGAIN_SECONDS:
        stop.is_raised = True
        raise stop.make_error()


def _note_dropped_stop(unraisable: sys.UnraisableHookArgs) -> None:
    """The hook that Python calls with an error that it drops."""
    if _stop is not None and isinstance(unraisable.exc_value, StoppedError):
        _stop.is_dropped = True
    else:
        sys.__unraisablehook__(unraisable)


def _exit_after_grace_period(read_end: int, stop: _StopState) -> None:
    """Ends the process if it still runs GRACE_SECONDS after a signal, which wakes this thread.

    This happens if a library has caught the error, or if C code is running, during which Python
    handles no signals.
    """
    while True:
        received = os.read(read_end, 1)[0]
        if _stop is not stop:
            return
        number = next((number for number in SIGNALS if number == received), None)
        if number is None:  # a signal with another handler
            continue
        start = time.monotonic()
        while time.monotonic() < max(start, stop.since) + GRACE_SECONDS or stop.callbacks:
            time.sleep(0.2)
            if _stop is not stop:
                return
            if stop.is_dropped:
                stop.number, stop.is_dropped = None, False
                signal.pthread_kill(threading.main_thread().ident or 0, number)
        stop.number = stop.number or number
        _exit_process(stop)


def _exit_process(stop: _StopState) -> None:
    error = stop.make_error()
    for callback in stop.exit_callbacks:
        with suppress(Exception):
            callback(error)
    with suppress(Exception):
        print(f"stopped: {error}", file=sys.stderr, flush=True)
    os._exit(error.status)


_fork = threading.local()


def _block_signals_before_fork() -> None:
    """Delays signals to the new process until it has reset its handlers."""
    _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _unblock_signals_after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def _reset_handlers_after_fork() -> None:
    """A forked process gets the default handlers, and does not use this process's pipe."""
    global _stop
    if _stop is not None:
        _stop = None
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _unblock_signals_after_fork()


os.register_at_fork(
    before=_block_signals_before_fork,
    after_in_parent=_unblock_signals_after_fork,
    after_in_child=_reset_handlers_after_fork,
)
