"""Standard output whose reader goes, or can't show every sign."""

import os
import subprocess
import sys

from contamination.core.process_startup import make_output_unbreakable

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
        print("ü–")
        print("ü–", file=sys.stderr)
    assert (out.read_bytes(), err.read_bytes()) == (b"\xfc?\n", b"\xfc\\u2013\n")


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
