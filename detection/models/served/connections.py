"""Connections of each process, decompression with a limit, and threads that can be stopped."""

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

from contamination.core.errors import ConfigError
from contamination.core.network_environment import describe_environment_fault

GZIP = ("gzip", "x-gzip")
"""The accepted names of the coding; both mean the same (RFC 9110, 8.4.1.3)."""
GZIP_MAGIC = b"\x1f\x8b"
"""The first bytes of a gzip member (RFC 1952, 2.3.1)."""
MAX_MEMBERS = 1000
"""The maximum number of members of gzip content: each takes time, even if it is empty."""


class Content:
    """The content of an answer, decompressed as it arrives and bounded in size.

    Args:
        codings: the answer's Content-Encoding; empty if it is not compressed.
        limit: the maximum number of bytes, both as sent and after decompression.

    Attributes:
        is_readable: whether the coding is gzip or none; others may expand without bound.
    """

    def __init__(self, codings: str, limit: int) -> None:
        names = [name.strip().lower() for name in codings.split(",")]
        coded = [name for name in names if name not in ("", "identity")]
        self.is_readable = not coded or (len(coded) == 1 and coded[0] in GZIP)
        self._gzip = _new_decompressor() if coded else None
        self._limit, self._received, self._content = limit, 0, bytearray()
        self._members = 1

    @property
    def exceeds_limit(self) -> bool:
        """Whether the content exceeds the limit."""
        return max(self._received, len(self._content)) > self._limit

    def add(self, chunk: bytes) -> None:
        """Adds the next chunk.

        Raises:
            httpx.DecodingError: the chunk is not gzip, or comes after the end of the content.
        """
        self._received += len(chunk)
        if self._gzip is None:
            self._content += chunk
            return
        while chunk and not self.exceeds_limit:
            if self._gzip.eof:
                chunk = chunk.lstrip(b"\0")  # padding, which gzip -d ignores as well
                if not chunk:
                    return
                self._begin_gzip_member(chunk)
            chunk = self._decompress(chunk)

    def _begin_gzip_member(self, chunk: bytes) -> None:
        """Begins another member, of which gzip content may have several (RFC 1952, 2.2)."""
        if not chunk.startswith(GZIP_MAGIC[: len(chunk)]):
            raise httpx.DecodingError("it has bytes after the end of its gzip content")
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise httpx.DecodingError(f"its gzip content has more than {MAX_MEMBERS} members")
        self._gzip = _new_decompressor()

    def _decompress(self, chunk: bytes) -> bytes:
        """Decompresses the bytes of the current member; returns the bytes after it."""
        assert self._gzip is not None
        try:
            # one byte more than allowed shows that the content is too long
            self._content += self._gzip.decompress(chunk, self._limit + 1 - len(self._content))
        except zlib.error as error:
            raise httpx.DecodingError(f"it is not gzip: {error}") from error
        return self._gzip.unused_data

    def whole(self) -> bytes:
        """Returns the whole content.

        Raises:
            httpx.DecodingError: the gzip content has no end.
        """
        if self._gzip is not None and self._received and not self._gzip.eof:
            raise httpx.DecodingError("its gzip content has no end")
        return bytes(self._content)


def _new_decompressor() -> zlib._Decompress:
    return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)


T = TypeVar("T")


class Sessions:
    """One session per process that sends requests.

    Args:
        where: the config field and its value, for errors.
        connect: creates the HTTP client.

    Raises:
        ConfigError: the environment names proxies or certificates that can't be used.
    """

    def __init__(self, where: str, connect: Callable[[], httpx.AsyncClient]) -> None:
        self._where, self._connect = where, connect
        self._by_process: dict[int, _Session] = {}
        self._process_session()

    def run(self, ask: Callable[[httpx.AsyncClient], Coroutine[Any, Any, T]]) -> T:
        """Returns the result of a coroutine that uses this process's connections."""
        session = self._process_session()
        future = asyncio.run_coroutine_threadsafe(ask(session.http), session.loop)
        try:
            return future.result()
        finally:
            future.cancel()  # if a signal interrupts the wait

    def _process_session(self) -> _Session:
        process = os.getpid()
        if process not in self._by_process:
            # without a lock, which could be held at a fork; if two are created, one is dropped
            self._by_process.setdefault(process, _Session(self._open_connections()))
        return self._by_process[process]

    def _open_connections(self) -> httpx.AsyncClient:
        try:
            return self._connect()
        except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
            raise ConfigError(f"{self._where}: {describe_environment_fault(error)}") from None


class _Session:
    """The connections of one process, and their event loop in a thread of its own."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http, self.loop = http, asyncio.new_event_loop()
        Thread(target=_run_loop, args=(self.loop,), daemon=True).start()
        weakref.finalize(self, _close_session, os.getpid(), http, self.loop).atexit = False


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _close_session(process: int, http: httpx.AsyncClient, loop: asyncio.AbstractEventLoop) -> None:
    async def close() -> None:
        await http.aclose()
        loop.stop()

    if process == os.getpid():  # in a fork the loop has no thread
        asyncio.run_coroutine_threadsafe(close(), loop)


J = TypeVar("J")


class _ThreadState(local):
    """State of the current thread.

    Attributes:
        stop: set once the thread's results are no longer needed.
    """

    stop = Event()


_thread_state = _ThreadState()


def is_stopped() -> bool:
    """Returns whether the thread's results are no longer needed."""
    return _thread_state.stop.is_set()


def wait_for_stop(seconds: float) -> bool:
    """Waits; returns True as soon as the thread's results are no longer needed."""
    return _thread_state.stop.wait(seconds)


def run_in_parallel(
    work: Callable[[J], T], jobs: Iterable[J], workers: int
) -> Iterator[tuple[int, T]]:
    """Yields each job's index and result in order of completion; raises the first error.

    The threads are daemons, so that one that waits for a slow server does not keep a stopped
    process alive. After an error no request is retried.
    """
    remaining, lock, stop = enumerate(jobs), Lock(), Event()
    results: SimpleQueue[tuple[int, Any, BaseException | None] | None] = SimpleQueue()

    def run() -> None:
        index, _thread_state.stop = 0, stop
        try:
            while not stop.is_set():
                with lock:
                    index, job = next(remaining)
                results.put((index, work(job), None))
        except StopIteration:
            results.put(None)
        except BaseException as error:
            results.put((index, None, error))

    for _ in range(workers):
        Thread(target=run, daemon=True).start()
    try:
        while workers:
            outcome = results.get()
            if outcome is None:
                workers -= 1
                continue
            index, result, error = outcome
            if error is not None:
                raise error
            yield index, result
    finally:
        stop.set()
