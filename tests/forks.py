"""What a function does in a forked process, which has imported all that this one has."""

import logging
import os
import signal
import subprocess
import sys
import traceback
from tempfile import TemporaryFile

SECONDS = 120


def in_fork(function):
    """What the function returns in a forked process, or the name of its error."""
    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        try:
            words = function()
        except BaseException as error:
            words = type(error).__name__
        try:
            os.write(sending, words.encode())
        finally:
            os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as stream:
        words = stream.read()
    assert os.waitpid(child, 0)[1] == 0
    return words


def run_in_fork(function, *words, cwd=None, **environment):
    """A command in a forked process: as `subprocess.run`, less the seconds of its imports.

    Args:
        function: the command, whose result or SystemExit is the status.
        words: its `sys.argv`.
        cwd: its folder; None: this one.
        environment: variables that it has as well.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with TemporaryFile() as out, TemporaryFile() as err:
        child = os.fork()
        if not child:
            signal.alarm(SECONDS)
            os._exit(_run_command(function, words, cwd, environment, (out, err)))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        outputs = []
        for file in (out, err):
            file.seek(0)
            outputs.append(file.read().decode())
    return subprocess.CompletedProcess(words, status, *outputs)


def _run_command(function, words, cwd, environment, files):
    """Returns the status of a command that writes to these files."""
    from hydra.core.global_hydra import GlobalHydra

    for number, file in enumerate(files, 1):
        os.dup2(file.fileno(), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    status = 1
    try:
        logging.root.handlers.clear()  # of the test that runs
        GlobalHydra.instance().clear()
        os.chdir(cwd or ".")
        os.environ.update(environment)
        sys.argv = [*words]
        status = function()
    except SystemExit as end:
        status = end.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return int(status or 0)
