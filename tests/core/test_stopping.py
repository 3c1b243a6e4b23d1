"""SIGTERM and Ctrl-C end the work whatever code runs, and work that saves may save."""

import signal
import subprocess
import sys

import pytest

START = """
import hashlib, multiprocessing, os, signal, sys, threading, time
from contamination.core import signals as stopping
from contamination.core.cli import run_tool as said
stopping.GRACE_SECONDS = 1.0

def ready():
    print("ready", flush=True)
"""

WORK = {
    "loop": """
def work():
    ready()
    while True:
        pass
""",
    "broad except": """
def work():
    ready()
    while True:
        try:
            time.sleep(0.01)
        except Exception:
            pass
""",
    "swallowed": """
def work():
    ready()
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            pass
""",
    "swallowed, then done": """
def work():
    ready()
    try:
        time.sleep(60)
    except BaseException:
        pass
""",
    "replaced": """
def work():
    ready()
    try:
        time.sleep(60)
    except BaseException:
        pass
    raise TypeError("can't compare")
""",
    "replaced after it was deferred": """
def work():
    with stopping.defer_signals() as stopped:
        ready()
        while not stopped():
            time.sleep(0.01)
    try:
        raise stopping.stopped_error()
    except BaseException:
        raise TypeError("can't compare")
""",
    "C code": """
def work():
    threading.Timer(0.5, ready).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
""",
}
CALL = "sys.exit(said(work))"


def run(code, *numbers):
    """The exit status and the error output of the code, sent the signals once it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", START + code],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    for number in numbers:
        process.send_signal(number)
    out, error = process.communicate(timeout=50)
    return process.returncode, out, error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", WORK)
def test_a_signal_ends_any_work(kind, number):
    status, _, error = run(WORK[kind] + CALL, number)
    assert status == 128 + number
    assert error.startswith(f"stopped: {number.name} was received")
    assert error.count("\n") == 1


def test_what_is_raised_in_a_destructor_is_raised_again():
    code = """
class Held:
    def __del__(self):
        ready()
        time.sleep(1)

def work():
    stopping.GRACE_SECONDS = 40
    held = Held()
    try:
        del held
        time.sleep(30)
        print("not stopped")
    finally:
        print("unwound")
"""
    assert run(code + CALL, signal.SIGTERM) == (
        143, "unwound\n",
        "stopped: SIGTERM was received. Finished work is kept: run the same command again to "
        "resume.\n",
    )  # fmt: skip


DEFERRED = """
def work():
    with stopping.defer_signals() as stopped:
        ready()
        while not stopped():
            time.sleep(0.05)
        time.sleep(SAVING)
        print("saved", flush=True)
        raise stopping.stopped_error("at step 3 of 9.")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_deferred_work_saves_for_as_long_as_it_takes(number):
    code = DEFERRED.replace("SAVING", "2.5") + CALL
    assert run(code, number) == (
        128 + number, "saved\n", f"stopped: {number.name} was received at step 3 of 9.\n"
    )  # fmt: skip


def test_a_second_ctrl_c_ends_deferred_work():
    code = "stopping.AGAIN_SECONDS = 0\n" + DEFERRED.replace("SAVING", "60")
    again = """
threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
"""
    status, out, error = run(code + again + CALL, signal.SIGINT)
    assert (status, out) == (130, "")
    assert error.startswith("stopped: SIGINT was received.")


def test_last_words_are_said_before_a_hard_end():
    code = """
def work():
    with stopping.call_before_exit(lambda error: print(error.status, flush=True)):
        threading.Timer(0.5, ready).start()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""
    assert run(code + CALL, signal.SIGTERM)[:2] == (143, "143\n")


def test_forked_processes_that_are_ended_at_once_stop_nobody_else():
    code = """
def work():
    for _ in range(100):
        child = os.fork()
        if not child:
            time.sleep(60)
        os.kill(child, signal.SIGTERM)
        assert os.waitpid(child, 0)[1] == signal.SIGTERM
    time.sleep(1.5)
    ready()
    return 0
"""
    assert run(code + CALL)[0] == 0


def test_handlers_are_put_back():
    code = """
before = [signal.getsignal(number) for number in stopping.SIGNALS]
assert said(lambda: None) == 0
assert [signal.getsignal(number) for number in stopping.SIGNALS] == before
assert signal.set_wakeup_fd(-1) == -1
ready()
"""
    assert run(code)[0] == 0
