"""SIGTERM and SIGINT (Ctrl-C) end the work at any moment, whatever code is running.

The signal raises a `StoppedError` in the main thread. Python drops what is raised in a callback or
a destructor: there it is raised again a little later. Two things could still keep it from ending
the process: a library may swallow the error, though it is no `Exception`, and Python handles no
signal while C code runs. So a second thread, which the system wakes at once, ends the process where
it still lives GRACE_SECONDS later. Everything on disk is as after a kill:
unfinished, never half-finished, and the same command resumes it.
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
AGAIN_SECONDS = 1.0
"""A second Ctrl-C this much later ends what had still wanted to save."""


@dataclass
class _Stop:
    """What came, and who answers it. One at a time in a process: signals belong to the process."""

    number: int | None = None  # of the signal that came
    since: float = 0.0
    dropped: bool = False
    """Whether the error was raised where Python drops it."""
    answers: list[Callable[[], None]] = field(default_factory=list)
    last_words: list[Callable[[StoppedError], None]] = field(default_factory=list)

    def error(self, where: str = "") -> StoppedError:
        """The error that says which one; another process of several may have got it."""
        number = signal.Signals(self.number or signal.SIGTERM)
        where = where or ". What is finished is kept: run the same command again to resume."
        return StoppedError(f"{number.name} came{where}", 128 + number)


_stop: _Stop | None = None


def stopped(where: str = "") -> StoppedError:
    """The error that ends `deferred` work: "SIGTERM came" and where it stands then."""
    return (_stop or _Stop()).error(where and f" {where}")


@contextmanager
def obeyed() -> Iterator[None]:
    """Within it SIGTERM and SIGINT end the work; inside another one it does nothing.

    Raises:
        StoppedError: one came, also where the work then ended by itself.
    """
    global _stop
    if _stop is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    stop = _stop = _Stop()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    before = {number: signal.signal(number, _handle) for number in SIGNALS}
    fd_before = signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    hook, sys.unraisablehook = sys.unraisablehook, _unraisable
    watch = threading.Thread(target=_watch, args=(wake, stop), name="stopping", daemon=True)
    watch.start()
    try:
        yield
        if stop.number is not None:
            raise stop.error()
    finally:
        _stop = None
        sys.unraisablehook = hook
        signal.set_wakeup_fd(fd_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.write(woken, b"\0")  # wakes the thread, which then ends
        watch.join()
        os.close(woken)
        os.close(wake)


@contextmanager
def deferred(answer: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Within it a signal raises nothing: the work looks for it, and saves before it ends.

    Outside `obeyed`, or in a thread, no signal is looked for. When one comes `answer` is called.

    Yields:
        Whether one came.
    """
    stop = _stop if threading.current_thread() is threading.main_thread() else None
    if stop is None:
        yield lambda: False
        return
    stop.answers.append(answer)
    try:
        if stop.number is not None:
            answer()
        yield lambda: stop.number is not None
    finally:
        stop.answers.remove(answer)
        stop.since = time.monotonic()


@contextmanager
def last_words(say: Callable[[StoppedError], None]) -> Iterator[None]:
    """Within it `say` is called before the process is ended without unwinding."""
    words = [] if _stop is None else _stop.last_words
    words.append(say)
    try:
        yield
    finally:
        words.remove(say)


def _handle(number: int, frame: FrameType | None) -> None:
    stop = _stop
    if stop is None:
        return
    if stop.number is None:
        stop.number, stop.since = number, time.monotonic()
        if not stop.answers:
            raise stop.error()
        for answer in stop.answers:
            answer()
    elif number == signal.SIGINT and time.monotonic() > stop.since + AGAIN_SECONDS:
        raise stop.error()


def _unraisable(found: sys.UnraisableHookArgs) -> None:
    """What Python calls with an error that it is going to drop."""
    if _stop is not None and isinstance(found.exc_value, StoppedError):
        _stop.dropped = True
    else:
        sys.__unraisablehook__(found)


def _watch(wake: int, stop: _Stop) -> None:
    """End the process where a signal that came is not answered in time."""
    while True:
        came = os.read(wake, 1)
        if _stop is not stop:
            return
        known = next((n for n in SIGNALS if n == came[0]), None)
        if known is None:  # another signal, which has a handler of its own
            continue
        since = time.monotonic()
        while time.monotonic() < max(since, stop.since) + GRACE_SECONDS or stop.answers:
            time.sleep(0.2)
            if _stop is not stop:
                return
            if stop.dropped:
                stop.number, stop.dropped = None, False
                signal.pthread_kill(threading.main_thread().ident or 0, known)
        stop.number = stop.number or known
        _end(stop)


def _end(stop: _Stop) -> None:
    error = stop.error()
    for say in stop.last_words:
        with suppress(Exception):
            say(error)
    with suppress(Exception):
        print(f"stopped: {error}", file=sys.stderr, flush=True)
    os._exit(error.status)


_fork = threading.local()


def _hold() -> None:
    """Before a fork: a signal to the new process waits until it has forgotten this one's pipe."""
    _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _go_on() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def _forget() -> None:
    """A forked process answers signals as any other does."""
    global _stop
    if _stop is not None:
        _stop = None
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _go_on()


os.register_at_fork(before=_hold, after_in_parent=_go_on, after_in_child=_forget)
