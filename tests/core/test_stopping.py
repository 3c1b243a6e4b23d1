"""SIGTERM and Ctrl-C end the work whatever code runs, and work that saves may save."""

import os
import signal
import sys
import threading
import traceback
from tempfile import TemporaryFile

import pytest

from contamination.core import signals
from contamination.core.errors import StoppedError
from tests.forks import in_fork

SECONDS = 40
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
    """The exit status and the two outputs of the code in a fork, sent the signals once ready."""
    sys.stdout.flush()
    sys.stderr.flush()
    receiving, sending = os.pipe()
    with TemporaryFile() as errors:
        child = os.fork()
        if not child:
            signal.alarm(SECONDS)
            os._exit(run_in_child(code, sending, errors.fileno()))
        os.close(sending)
        try:
            with os.fdopen(receiving) as output:
                assert output.readline() == "ready\n"
                for number in numbers:
                    os.kill(child, number)
                printed = output.read()
        finally:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        errors.seek(0)
        return status, printed, errors.read().decode()


def run_in_child(code, *files):
    """Returns the exit status of the code, which prints to the files."""
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
    os.close(files[0])
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    try:
        exec(START + code, {"__name__": "__main__"})
        return 0
    except SystemExit as end:
        return end.code
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


RESUME = "Finished work is kept: run the same command again to resume.\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", WORK)
def test_a_signal_ends_any_work(kind, number):
    assert run(WORK[kind] + CALL, number) == (
        128 + number, "", f"stopped: {number.name} was received. {RESUME}"
    )  # fmt: skip


def test_other_errors_that_python_drops_are_printed_as_usual():
    code = """
class Held:
    def __del__(self):
        raise ValueError("dropped")

def work():
    held = Held()
    del held
    ready()
"""
    status, _, error = run(code + CALL)
    assert status == 0
    assert error.startswith("Exception ignored ")  # the words that follow are those of a version
    assert "<function Held.__del__" in error
    assert error.endswith("ValueError: dropped\n")


@pytest.mark.parametrize("kind", ["loop", "swallowed"])
def test_a_signal_that_has_a_handler_of_its_own_stops_nothing(kind):
    handled = "signal.signal(signal.SIGUSR1, lambda *_: None)\n"
    assert run(handled + WORK[kind] + CALL, signal.SIGUSR1, signal.SIGTERM) == (
        143, "", f"stopped: SIGTERM was received. {RESUME}"
    )  # fmt: skip


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
        time.sleep(10)
        print("not stopped")
    finally:
        time.sleep(0.5)
        print("unwound")
"""
    assert run(code + CALL, signal.SIGTERM) == (
        143, "unwound\n", f"stopped: SIGTERM was received. {RESUME}"
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
    stopped = (130, "", f"stopped: SIGINT was received. {RESUME}")
    assert run(code + again + CALL, signal.SIGINT) == stopped
    replaced = """
def replacing(work=work):
    try:
        work()
    except BaseException:
        raise TypeError("can't compare")
work = replacing
"""
    assert run(code + replaced + again + CALL, signal.SIGINT) == stopped


@pytest.mark.parametrize(
    ("second_signal", "again_seconds"), [("SIGTERM", 0), ("SIGINT", 5)], ids=["SIGTERM", "too soon"]
)
def test_deferred_work_survives_a_second_signal_that_asks_no_more(second_signal, again_seconds):
    saving = f"time.sleep(0.1); signal.raise_signal(signal.{second_signal}); time.sleep(0.1)"
    code = DEFERRED.replace("time.sleep(SAVING)", saving)
    code = f"stopping.AGAIN_SECONDS = {again_seconds}\n" + code
    assert run(code + CALL, signal.SIGINT) == (
        130, "saved\n", "stopped: SIGINT was received at step 3 of 9.\n"
    )  # fmt: skip


def test_last_words_are_said_before_a_hard_end():
    code = """
def work():
    with stopping.call_before_exit(lambda error: print("too late", flush=True)):
        pass
    with (
        stopping.call_before_exit(lambda error: 1 / 0),
        stopping.call_before_exit(lambda error: print(error, error.status, flush=True)),
    ):
        threading.Timer(0.8, ready).start()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""
    message = f"SIGINT was received. {RESUME}"
    assert run(code + CALL, signal.SIGINT) == (
        130, message.replace("\n", " 130\n"), f"stopped: {message}"
    )  # fmt: skip


def test_forked_processes_that_are_ended_at_once_stop_nobody_else():
    code = """
def work():
    for _ in range(100):
        child = os.fork()
        if not child:
            time.sleep(20)
            os._exit(0)
        os.kill(child, signal.SIGTERM)
        assert os.waitpid(child, 0)[1] == signal.SIGTERM
    time.sleep(1.5)
    ready()
    return 0
"""
    assert run(code + CALL) == (0, "", "")


def test_a_forked_process_has_the_default_handlers_and_none_of_the_pipe():
    code = """
def work():
    child = os.fork()
    if not child:
        handlers = [signal.getsignal(number) for number in stopping.SIGNALS]
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        is_default = handlers == [signal.SIG_DFL, signal.default_int_handler]
        os._exit(int((is_default, mask, signal.set_wakeup_fd(-1)) == (True, set(), -1)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
    ready()
"""
    assert run(code + CALL) == (0, "", "")


def test_handlers_are_put_back():
    code = """
before = [signal.getsignal(number) for number in stopping.SIGNALS]
assert said(lambda: None) == 0
assert [signal.getsignal(number) for number in stopping.SIGNALS] == before
assert signal.set_wakeup_fd(-1) == -1
ready()
"""
    assert run(code) == (0, "", "")


def signal_states():
    """What the functions that ask for a signal return at each point of work that defers one."""
    calls, answers = [], [signals.is_stopping()]
    with signals.defer_signals() as is_received:
        answers.append(is_received())  # outside of `stop_on_signals`
    try:
        with signals.stop_on_signals():
            answers.append(signals.is_stopping())
            with signals.defer_signals(lambda: calls.append("at once")) as is_received:
                answers.append(is_received())
                signal.raise_signal(signal.SIGINT)
                answers += [is_received(), signals.is_stopping()]
                with signals.defer_signals(lambda: calls.append("later")):
                    answers.append([*calls])
                in_thread = threading.Thread(target=lambda: answers.append(asked_for_a_signal()))
                in_thread.start()
                in_thread.join()
            answers.append(signals.is_stopping())
    except StoppedError as error:
        answers.append(str(error))
    return repr([*answers, signals.is_stopping()])


def asked_for_a_signal():
    with signals.stop_on_signals(), signals.defer_signals() as is_received:
        return is_received()


def test_a_deferred_signal_is_reported_until_the_work_ends():
    assert in_fork(signal_states) == repr([
        *(False, False, False, False, True, False),
        *(["at once", "later"], False, True, f"SIGINT was received. {RESUME.strip()}", False),
    ])  # fmt: skip


def test_where_no_signals_are_handled_the_error_names_sigterm():
    error = signals.stopped_error()
    assert (str(error), error.status) == (f"SIGTERM was received. {RESUME.strip()}", 143)
    assert str(signals.stopped_error("at step 3.")) == "SIGTERM was received at step 3."


def test_without_a_signal_errors_are_as_they_were_raised():
    with signals.stop_on_signals():
        handler = signal.getsignal(signal.SIGTERM)
        with pytest.raises(TypeError, match=r"^own$"), signals.stop_on_signals():
            raise TypeError("own")
        assert signal.getsignal(signal.SIGTERM) == handler != signal.SIG_DFL
    with pytest.raises(TypeError, match=r"^own$"), signals.stop_on_signals():
        raise TypeError("own")
