"""Connections to a server, and the event loop in which a request can be ended at any point.

Neither survives a fork: the loop's thread runs in the first process alone, and two processes would
read from the same sockets. Each process has a session of its own, made with its first request.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Coroutine
from threading import Thread
from typing import Any, TypeVar

import httpx

from core.environment import environment_fault
from core.errors import ConfigError

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
