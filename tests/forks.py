"""What a function does in a forked process."""

import os
import signal


def in_fork(function):
    """What the function returns in a forked process, or the name of its error."""
    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(60)
        try:
            words = function()
        except BaseException as error:
            words = type(error).__name__
        os.write(sending, words.encode())
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as stream:
        words = stream.read()
    assert os.waitpid(child, 0)[1] == 0
    return words
