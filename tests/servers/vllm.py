"""The real vLLM on a CPU: started for a model folder, stopped at the end.

`python -m tests.servers.vllm FOLDER` serves one until it is interrupted.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

PLACE = Path(os.environ.get("SERVERS", Path(__file__).parents[2] / ".servers")) / "vllm"
VLLM = PLACE / "bin" / "vllm"
NAME = "served"
START = 600
"""Seconds that it may take to start; some two minutes on two cores."""
SETTINGS = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GB
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


@contextmanager
def serving(folder: Path | str, log: Path, context: int = 1024) -> Iterator[str]:
    """The address at which vLLM serves the folder, in float32, as NAME.

    Args:
        folder: a Hugging Face folder.
        log: a file for what it says.
        context: the most tokens that it takes.
    """
    port = _free_port()
    options = ["--served-model-name", NAME, "--dtype", "float32", "--enforce-eager"]
    options += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(context)]
    command = [str(VLLM), "serve", str(folder), *options, "--generation-config", "vllm"]
    with log.open("wb") as out:
        server = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **SETTINGS, "PYTHONPATH": ""},
            start_new_session=True,  # it starts processes of its own, which are stopped with it
        )
    url = f"http://127.0.0.1:{port}/v1"
    try:
        _wait(server, url, log)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end and server.poll() is None:
        try:
            if httpx.get(f"{url}/models").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(1)
    raise RuntimeError(f"vLLM did not start: {log.read_text()[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    with serving(sys.argv[1], Path("vllm.log")) as address:
        print(address, flush=True)
        signal.pause()
