"""A server of models as a process: started for a test, stopped with all that it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

PLACE = Path(os.environ.get("SERVERS", Path(__file__).parents[2] / ".servers"))
"""Where tests/servers/make.sh puts an environment for each server."""
START = 600
"""Seconds that a server may take to start; vLLM takes some two minutes on two cores."""


@contextmanager
def running(
    command: Sequence[str],
    port: int,
    log: Path,
    settings: Mapping[str, str],
    ready: str = "models",
) -> Iterator[str]:
    """The address of a server once it answers.

    Args:
        command: what starts it.
        port: where it then listens.
        log: a file for what it says.
        settings: environment variables.
        ready: what answers with 200 below the address, once it is ready.

    Raises:
        RuntimeError: it ends, or does not answer in time.
    """
    with log.open("wb") as out:
        server = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **settings, "PYTHONPATH": ""},
            start_new_session=True,  # it starts processes of its own, which are stopped with it
        )
    url = f"http://127.0.0.1:{port}/v1"
    try:
        _wait(server, f"{url}/{ready}", log)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end and server.poll() is None:
        try:
            if httpx.get(address).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(1)
    raise RuntimeError(f"{server.args!r} did not start: {log.read_text()[-2000:]}")


def free_port() -> int:
    """A port where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
