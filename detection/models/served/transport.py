"""The content of an answer over HTTP, decompressed within a limit."""

from __future__ import annotations

import asyncio
import os
import weakref
import zlib
from collections.abc import Callable, Coroutine, Iterable, Iterator
from queue import SimpleQueue
from threading import Event, Lock, Thread, local
from typing import Any, TypeVar

import httpx

from contamination.core.environment import environment_fault
from contamination.core.errors import ConfigError

GZIP = ("gzip", "x-gzip")
"""The names of the coding that an answer may have; both mean the same (RFC 9110, 8.4.1.3)."""
BEGIN = b"\x1f\x8b"
"""How a gzip member begins (RFC 1952, 2.3.1)."""


class Content:
    """The content of an answer, decompressed as it comes, and never beyond a limit.

    Args:
        codings: the answer's Content-Encoding; empty where nothing is compressed.
        most: bytes that are read at most, both as they are sent and once decompressed.

    Attributes:
        is_readable: whether the coding is gzip or none: others may expand without bound.
    """

    def __init__(self, codings: str, most: int) -> None:
        names = [name.strip().lower() for name in codings.split(",")]
        coded = [name for name in names if name not in ("", "identity")]
        self.is_readable = not coded or (len(coded) == 1 and coded[0] in GZIP)
        self._gzip = _member() if coded else None
        self._most, self._received, self._content = most, 0, bytearray()

    @property
    def is_too_long(self) -> bool:
        """Whether more came than may."""
        return max(self._received, len(self._content)) > self._most

    def add(self, part: bytes) -> None:
        """Take the next part.

        Raises:
            httpx.DecodingError: it is not gzip, or stands behind its end.
        """
        self._received += len(part)
        if self._gzip is None:
            self._content += part
            return
        while part and not self.is_too_long:
            if self._gzip.eof:
                self._next_member(part)
            part = self._decompress(part)

    def _next_member(self, part: bytes) -> None:
        """Begin another member, of which gzip content may have several (RFC 1952, 2.2)."""
        if not part.startswith(BEGIN[: len(part)]):
            raise httpx.DecodingError("it has bytes behind the end of its gzip content")
        self._gzip = _member()

    def _decompress(self, part: bytes) -> bytes:
        """Take what belongs to the member; returns what stands behind it."""
        assert self._gzip is not None
        try:
            # one byte more than allowed shows that the content is too long
            self._content += self._gzip.decompress(part, self._most + 1 - len(self._content))
        except zlib.error as error:
            raise httpx.DecodingError(f"it is not gzip: {error}") from error
        return self._gzip.unused_data

    def whole(self) -> bytes:
        """All of it.

        Raises:
            httpx.DecodingError: its gzip content has no end.
        """
        if self._gzip is not None and self._received and not self._gzip.eof:
            raise httpx.DecodingError("its gzip content has no end")
        return bytes(self._content)


def _member() -> zlib._Decompress:
    return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)


T = TypeVar("T")


class Sessions:
    """The session of each process that asks the server.

    Args:
        where: the config field and its value, for errors.
        connect: makes the connections.

    Raises:
        ConfigError: proxies or certificates that the environment names can't be used.
    """

    def __init__(self, where: str, connect: Callable[[], httpx.AsyncClient]) -> None:
        self._where, self._connect = where, connect
        self._by_process: dict[int, _Session] = {}
        self._session()

    def run(self, ask: Callable[[httpx.AsyncClient], Coroutine[Any, Any, T]]) -> T:
        """The result of what asks over this process's connections."""
        session = self._session()
        asked = asyncio.run_coroutine_threadsafe(ask(session.http), session.loop)
        try:
            return asked.result()
        finally:
            asked.cancel()  # where a signal interrupts the wait

    def _session(self) -> _Session:
        process = os.getpid()
        if process not in self._by_process:
            # no lock, which could be held at a fork: of two sessions made at once one is dropped
            self._by_process.setdefault(process, _Session(self._connected()))
        return self._by_process[process]

    def _connected(self) -> httpx.AsyncClient:
        try:
            return self._connect()
        except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
            raise ConfigError(f"{self._where}: {environment_fault(error)}") from None


class _Session:
    """Connections of one process, and the loop that they are used in."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http, self.loop = http, asyncio.new_event_loop()
        Thread(target=_run, args=(self.loop,), daemon=True).start()
        weakref.finalize(self, _close, os.getpid(), http, self.loop).atexit = False


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _close(process: int, http: httpx.AsyncClient, loop: asyncio.AbstractEventLoop) -> None:
    async def close() -> None:
        await http.aclose()
        loop.stop()

    if process == os.getpid():  # in a fork the loop has no thread
        asyncio.run_coroutine_threadsafe(close(), loop)


J = TypeVar("J")


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
