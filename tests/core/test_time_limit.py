"""An alarm that ends a loop, gives back what it took, and leaves quick work alone."""

import signal
import threading
import time

import pytest

from contamination.core.user_files import time_limit


def late():
    return TimeoutError("too late")


def loop():
    while True:
        pass


def test_a_loop_ends_with_the_error_and_the_alarm_with_it():
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimeoutError, match="too late"), time_limit(0.05, late):
        loop()
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_work_in_time_has_no_error():
    with time_limit(0.05, late):
        pass
    time.sleep(0.1)


def test_the_alarm_of_the_caller_goes_on():
    def work():
        with time_limit(5, late):
            pass
        loop()

    with pytest.raises(TimeoutError, match="outer"), time_limit(0.1, lambda: TimeoutError("outer")):
        work()


def test_in_another_thread_there_is_no_limit():
    ended = []

    def work():
        with time_limit(0.01, late):
            time.sleep(0.05)
            ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended == [True]
