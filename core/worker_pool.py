"""A pool of processes that work for this one and end with it.

At Ctrl-C, which the terminal sends to all of them, only this process says that it was stopped.
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess

from contamination.core.parent_process import end_with_parent


class _Worker(SpawnProcess):
    def start(self) -> None:
        """Starts the process, which receives SIGINT when `_initialize_worker` has been called."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _WorkerContext(SpawnContext):
    Process = _Worker


def worker_pool(processes: int) -> ProcessPoolExecutor:
    """Returns a pool of new processes, each with one thread for tokenizers.

    They are not forks, which would copy the locks of this process's threads.
    """
    return ProcessPoolExecutor(processes, _WorkerContext(), initializer=_initialize_worker)


def _initialize_worker() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    end_with_parent(signal.SIGKILL, os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
