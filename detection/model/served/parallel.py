"""Several jobs at once, in threads that stop together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from threading import Event, Lock, Thread, local
from typing import Any, TypeVar

J = TypeVar("J")
T = TypeVar("T")


class _Asking(local):
    """What the thread asks for.

    Attributes:
        stop: set once nobody waits for it any more.
    """

    stop = Event()


_asking = _Asking()


def is_stopped() -> bool:
    """Whether nobody waits for the thread's answers any more."""
    return _asking.stop.is_set()


def stopped_within(seconds: float) -> bool:
    """Wait so long; whether nobody waits for the thread's answers any more."""
    return _asking.stop.wait(seconds)


def in_parallel(work: Callable[[J], T], jobs: Iterable[J], workers: int) -> Iterator[tuple[int, T]]:
    """Each job's place and result as they come, of so many at once; the first error is raised.

    The threads are daemons: one that waits for a slow server keeps no process alive that is
    stopped. After an error no request is sent again.
    """
    left, lock, stop = enumerate(jobs), Lock(), Event()
    found: SimpleQueue[tuple[int, Any, BaseException | None] | None] = SimpleQueue()

    def run() -> None:
        place, _asking.stop = 0, stop
        try:
            while not stop.is_set():
                with lock:
                    place, job = next(left)
                found.put((place, work(job), None))
        except StopIteration:
            found.put(None)
        except BaseException as error:
            found.put((place, None, error))

    for _ in range(workers):
        Thread(target=run, daemon=True).start()
    try:
        while workers:
            one = found.get()
            if one is None:
                workers -= 1
                continue
            place, result, error = one
            if error is not None:
                raise error
            yield place, result
    finally:
        stop.set()
