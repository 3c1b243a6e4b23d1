"""The real vLLM on a CPU: started for a model folder, stopped at the end.

`python -m tests.servers.vllm FOLDER` serves one until it is interrupted.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import PLACE, free_port, running

VLLM = PLACE / "vllm" / "bin" / "vllm"
NAME = "served"
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
    port = free_port()
    options = ["--served-model-name", NAME, "--dtype", "float32", "--enforce-eager"]
    options += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(context)]
    command = [str(VLLM), "serve", str(folder), *options, "--generation-config", "vllm"]
    with running(command, port, log, SETTINGS) as url:
        yield url


if __name__ == "__main__":
    with serving(sys.argv[1], Path("vllm.log")) as address:
        print(address, flush=True)
        signal.pause()
