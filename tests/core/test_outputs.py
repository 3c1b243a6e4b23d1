"""Standard output whose reader goes, or can't show every sign."""

import errno
import os
import subprocess
import sys

import pytest

from contamination.core.process_startup import make_output_unbreakable
from tests.forks import in_fork

CODE = """
import logging, sys
from contamination.core.process_startup import make_output_unbreakable
make_output_unbreakable()
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
logging.info("–")
for number in range(20_000):
    logging.info("line %d", number)
print("done", file=sys.stderr)
"""


def run(*, read, code=CODE, **environment):
    """What the program says on standard error, and, or the beginning of it, on standard output."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    own = {**os.environ, **environment}
    with subprocess.Popen([sys.executable, "-c", code], env=own, **pipes) as program:
        shown = program.stdout.read(read)
        program.stdout.close()
        said = program.stderr.read()
    assert program.returncode == 0
    return shown, said.decode()


def test_work_goes_on_in_silence_where_the_reader_has_gone():
    assert run(read=5) == ("–\nl".encode(), "done\n")


def test_a_sign_that_the_encoding_lacks_ends_nothing():
    shown, said = run(read=-1, PYTHONIOENCODING="ascii")
    assert (shown[:9], said) == (b"?\nline 0\n", "done\n")


def test_an_output_keeps_its_encoding_and_its_own_way_with_signs_that_it_lacks(
    tmp_path, monkeypatch
):
    out, err = tmp_path / "out", tmp_path / "err"
    with (
        out.open("w", encoding="latin-1", errors="strict") as stdout,
        err.open("w", encoding="latin-1", errors="backslashreplace") as stderr,
    ):
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "stderr", stderr)
        make_output_unbreakable()
        print("ü–\r\x07")
        print("ü–\r\x07", file=sys.stderr)
    assert out.read_bytes() == b"\xfc?\\r\\x07\n"
    assert err.read_bytes() == b"\xfc\\u2013\r\\x07\n"  # progress bars redraw their line


CONTROLS = r"""
import logging, sys
from contamination.core.process_startup import make_output_unbreakable
make_output_unbreakable()
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
print("printed \x1b]0;pwned\x07")
logging.info("logged %s", "\x1b[2J")
sys.stderr.write("\rbar\x1b[A\n")
print("said \x1b[31m", file=sys.stderr)
"""


def test_control_characters_reach_no_output_but_for_those_of_progress_bars():
    shown, said = run(read=-1, code=CONTROLS)
    assert shown.decode() == "printed \\x1b]0;pwned\\x07\nlogged \\x1b[2J\n"
    assert said == "\rbar\x1b[A\nsaid \\x1b[31m\n"


def test_an_output_that_a_full_disk_refuses_is_said():
    code = (
        "import sys; from contamination.core.process_startup import make_output_unbreakable; "
        "from contamination.core.cli import run_tool as said; "
        "make_output_unbreakable(); sys.exit(said(lambda: print('a\\nb')))"
    )
    call = [sys.executable, "-c", code]
    with open("/dev/full", "w") as full:
        run = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    words = "error: standard output: No space left on device."
    assert (run.returncode, run.stderr[: len(words)]) == (2, words)
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_after_its_reader_has_gone_an_output_takes_all_that_is_printed(monkeypatch, stream):
    receiving, sending = os.pipe()
    with os.fdopen(sending, "w") as output, os.fdopen(receiving) as reader:
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, output)
        make_output_unbreakable()
        file = getattr(sys, stream)
        print("first", file=file)
        assert reader.readline() == "first\n"
        reader.close()
        assert file.write("second\n") == 7
        assert file.buffer.raw.write(b"third") == 5  # to /dev/null
        assert os.readlink(f"/proc/self/fd/{sending}") == os.devnull
        del file
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, output)
        os.fstat(sending)  # it is still open


@pytest.mark.parametrize(
    ("number", "name"), [(1, "standard output"), (2, "standard error"), (None, "standard output")]
)
def test_a_full_disk_is_an_error_once_and_names_the_output(number, name):
    def print_twice():
        full = os.open("/dev/full", os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(full, descriptor)
        sys.stdout = os.fdopen(full if number is None else 1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        make_output_unbreakable()
        stream = sys.stderr if number == 2 else sys.stdout
        try:
            print("first", file=stream)
        except OSError as error:
            print("second", file=stream)
            return f"{error.errno} {error.strerror} {error.filename}"
        return "no error"

    assert in_fork(print_twice) == f"{errno.ENOSPC} {os.strerror(errno.ENOSPC)} {name}"
