"""A pool of processes that work for this one and end with it.

At Ctrl-C, which the terminal sends to all of them, only this process says that it was stopped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess
from types import TracebackType
from typing import Any

from contamination.core.parent_process import end_with_parent
from contamination.core.signals import defer_signals, is_stopping, stopped_error


class _Worker(SpawnProcess):
    def start(self) -> None:
        """Starts the process with SIGINT blocked; `_initialize_worker` ignores SIGINT."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _WorkerContext(SpawnContext):
    Process = _Worker


class _WorkerPool(ProcessPoolExecutor):
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or issubclass(kind, Exception):
            self.shutdown(cancel_futures=True)
        else:  # such as KeyboardInterrupt
            self._end_at_once()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submits a call. A signal does not interrupt the start of a worker process.

        Raises:
            StoppedError: a signal was received.
        """
        with defer_signals():
            future = super().submit(fn, *args, **kwargs)
        if is_stopping():
            raise stopped_error()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the processes: after their work, or at once if a signal ends this process's work."""
        if is_stopping():
            self._end_at_once()
            return
        try:
            super().shutdown(wait, cancel_futures=cancel_futures)
        except BaseException:
            self._end_at_once()
            raise

    def _end_at_once(self) -> None:
        """Ends the processes without waiting for their work."""
        executor: Any = self  # its private attributes have no types
        processes = [*(executor._processes or {}).values()]
        manager_thread, results = executor._executor_manager_thread, executor._result_queue
        # First, so that the manager thread drops cancelled calls before it notices that a process
        # has ended: setting the exception of a cancelled call is an error.
        super().shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        if results is not None:  # else the thread waits for the rest of a partly written result
            results._writer.close()
        if manager_thread is not None:
            manager_thread.join()


def worker_pool(processes: int) -> ProcessPoolExecutor:
    """Returns a pool of new processes, each with one thread for tokenizers.

    They are not forks, which would copy the locks of this process's threads. The end of the pool's
    context cancels the calls that have not begun.
    """
    context, parent = _WorkerContext(), (os.getpid(),)
    return _WorkerPool(processes, context, initializer=_initialize_worker, initargs=parent)


def _initialize_worker(parent_pid: int) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    end_with_parent(signal.SIGKILL, parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
