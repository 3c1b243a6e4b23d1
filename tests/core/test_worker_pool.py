"""Worker processes: their threads, and their end."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing.context import SpawnProcess

import pytest

from contamination.core.errors import StoppedError
from contamination.core.signals import stop_on_signals
from contamination.core.worker_pool import _initialize_worker, worker_pool
from tests.forks import in_fork

COMMAND = """
import sys, time
from contamination.core.errors import StoppedError
from contamination.core.signals import stop_on_signals
from contamination.core.worker_pool import worker_pool

def work(data):
    time.sleep(30)

if __name__ == "__main__":
    data = [bytes(100_000)] * 20  # more than the pipe to the workers takes
    with stop_on_signals(), worker_pool(2) as pool:
        print("starting", flush=True)
        if sys.argv[1] == "waits":
            list(pool.map(work, data))
        else:
            for part in data:
                pool.submit(work, part)
else:  # a worker imports this script, too
    time.sleep(1)
"""


OF_OTHERS = "spawn_main", "SpawnProcess", "Exception in thread"
"""In the tracebacks of workers and of the pool's thread; the command itself raises its error."""


def said_after(folder, seconds, send, how="waits"):
    """Starts the command and sends it a signal; what it says until all its processes have ended."""
    script = folder / "command.py"
    script.write_text(COMMAND)
    with subprocess.Popen(
        [sys.executable, script, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as command:  # fmt: skip
        assert command.stdout.readline() == "starting\n"
        time.sleep(seconds)
        send(command.pid)
        try:
            return command.communicate(timeout=40)[1]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(command.pid, signal.SIGKILL)


def test_a_worker_tokenizes_with_one_thread(monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    with worker_pool(1) as pool:
        assert pool.submit(os.getenv, "TOKENIZERS_PARALLELISM").result() == "false"
        start_method = "__import__('multiprocessing').get_start_method()"
        assert pool.submit(eval, start_method).result() == "spawn"
        assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN
        assert pool.submit(os.getppid).result() == os.getpid()


def blocked_signals():
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_ctrl_c_is_blocked_in_a_worker_until_it_ignores_ctrl_c(monkeypatch):
    masks, start = [], SpawnProcess.start

    def record_and_start(self):
        masks.append(blocked_signals())
        start(self)

    monkeypatch.setattr(SpawnProcess, "start", record_and_start)
    blocked_before = blocked_signals()
    with worker_pool(2) as pool:
        assert blocked_signals() == blocked_before
        assert signal.SIGINT not in pool.submit(signal.pthread_sigmask, 0, []).result()
    assert masks == [blocked_before | {signal.SIGINT}] * len(masks)
    assert 1 <= len(masks) <= 2
    assert blocked_signals() == blocked_before


def worker_settings():
    """Those of a worker's process, which began with SIGINT blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    _initialize_worker(os.getppid())
    end_signal = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(end_signal))  # PR_GET_PDEATHSIG
    threads, handler = os.environ["TOKENIZERS_PARALLELISM"], signal.getsignal(signal.SIGINT)
    return f"{threads} {handler!r} {signal.SIGINT in blocked_signals()} {end_signal.value}"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells of a parent's death")
def test_a_worker_ignores_ctrl_c_and_ends_with_its_parent():
    assert in_fork(worker_settings) == f"false {signal.SIG_IGN!r} False {int(signal.SIGKILL)}"


def begin(pool, calls):
    """Submits the calls, the first of which then runs."""
    assert pool.submit(os.getpid).result() != os.getpid()
    jobs = [pool.submit(*call) for call in calls]
    while not (jobs[0].running() or jobs[0].done()):
        time.sleep(0.01)
    return jobs


WORK = [(time.sleep, 0.2)] * 60  # more than end before the pool does
ENDLESS = [(time.sleep, 30)] * 6


@pytest.mark.parametrize("error", [None, ValueError])
def test_the_end_of_the_context_waits_for_the_work_that_has_begun(error):
    with suppress(ValueError), worker_pool(1) as pool:
        jobs = begin(pool, WORK)
        if error:
            raise error
    assert (jobs[0].done(), jobs[0].cancelled(), jobs[-1].cancelled()) == (True, False, True)
    assert jobs[0].result() is None


def test_a_shutdown_finishes_all_calls_unless_they_are_cancelled():
    pool = worker_pool(1)
    jobs = begin(pool, WORK[:4])
    pool.shutdown()
    assert [(job.done(), job.cancelled()) for job in jobs] == [(True, False)] * 4


def check_all_ended(jobs, began):
    assert isinstance(jobs[0].exception(0), BrokenProcessPool)
    # The pool's thread sees first that it is shut down or that its process has ended.
    assert jobs[-1].cancelled() or isinstance(jobs[-1].exception(0), BrokenProcessPool)
    assert not multiprocessing.active_children()
    assert time.monotonic() - began < 20  # the work takes 30


def test_an_interrupt_ends_the_work_at_once():
    began = time.monotonic()
    with suppress(KeyboardInterrupt), worker_pool(1) as pool:
        jobs = begin(pool, ENDLESS)
        raise KeyboardInterrupt
    check_all_ended(jobs, began)


def test_an_interrupt_while_the_pool_waits_ends_the_work_at_once(monkeypatch):
    shutdown = ProcessPoolExecutor.shutdown

    def interrupted(self, wait=True, *, cancel_futures=False):
        if wait:
            raise KeyboardInterrupt
        shutdown(self, wait, cancel_futures=cancel_futures)

    monkeypatch.setattr(ProcessPoolExecutor, "shutdown", interrupted)
    began, pool = time.monotonic(), worker_pool(1)
    jobs = begin(pool, ENDLESS)
    with pytest.raises(KeyboardInterrupt):
        pool.shutdown()
    check_all_ended(jobs, began)


def stopped_pool():
    """What is said of a signal that the work drops before it ends its pool."""
    began = time.monotonic()
    try:
        with stop_on_signals():
            pool = worker_pool(1)
            jobs = begin(pool, ENDLESS)
            with suppress(StoppedError):
                signal.raise_signal(signal.SIGTERM)
            pool.shutdown()
            return "not stopped"
    except StoppedError as error:
        check_all_ended(jobs, began)
        return str(error)


def test_a_stopped_process_does_not_wait_for_its_pool():
    assert in_fork(stopped_pool).startswith("SIGTERM was received.")


def stopped_submission():
    """The error of a call to a pool during which a signal is received."""
    submitted = []

    def submit(self, function, *args, **kwargs):
        signal.raise_signal(signal.SIGINT)
        submitted.append((function, args, kwargs))
        return Future()

    ProcessPoolExecutor.submit = submit
    words = ""
    try:
        with stop_on_signals(), worker_pool(1) as pool:
            pool.submit(sorted, [2, 1], reverse=True)
            words = "not stopped "
    except StoppedError as error:
        words += str(error)
    assert submitted == [(sorted, ([2, 1],), {"reverse": True})]
    return words


def test_a_signal_during_a_submission_stops_after_it():
    assert in_fork(stopped_submission).startswith("SIGINT was received. Finished work is kept")


@pytest.mark.parametrize("how", ["waits", "leaves"])
@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.7, 2.5])
def test_ctrl_c_ends_all_processes_with_one_message(tmp_path, seconds, how):
    said = said_after(tmp_path, seconds, lambda pid: os.killpg(pid, signal.SIGINT), how)
    assert not any(text in said for text in OF_OTHERS)
    assert said.rstrip().splitlines()[-1].endswith("run the same command again to resume.")


@pytest.mark.parametrize("how", ["waits", "leaves"])
def test_a_signal_to_the_parent_alone_ends_the_workers_at_once(tmp_path, how):
    began = time.monotonic()
    said = said_after(tmp_path, 3, lambda pid: os.kill(pid, signal.SIGTERM), how)
    assert not any(text in said for text in OF_OTHERS)
    assert "SIGTERM was received" in said
    assert time.monotonic() - began < 25  # the work takes 30


@pytest.mark.parametrize("seconds", [0.3, 2.5])
def test_the_end_of_the_parent_ends_a_worker_that_is_still_starting(tmp_path, seconds):
    said_after(tmp_path, seconds, lambda pid: os.kill(pid, signal.SIGKILL))
