"""What `make` installs, with a pip that refuses what can't be had."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")

OWN = "--editable .[embedded]"
DEVELOPMENT = "--editable .[embedded,build,dev]"
AT_HAND = "torch==1.2+cpu"
CPU, FROM_INDEX, PROJECT = (AT_HAND, False), (AT_HAND, True), (OWN, False)  # end, PyTorch's index?
# The Python of the system, as it makes a venv, and that venv's own, as it is asked for pip.
PYTHON = """#!/bin/sh
if [ "$2" = venv ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; exit; fi
echo "$@" >> "$CALLS"
case "$@" in $REFUSED) exit 1;; esac
"""


@pytest.fixture
def make(tmp_path):
    """Runs the install; returns its output and the arguments of each call of pip."""
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)

    def run(refused, torch, target=".installed"):
        venv, calls = tmp_path / "venv", tmp_path / "calls"
        done = subprocess.run(
            [
                "make",
                "--silent",
                f"PYTHON={python}",
                f"VENV={venv}",
                f"TORCH={torch}",
                "TORCH_VERSION=1.2",
                str(venv / target),
            ],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": os.environ["PATH"], "CALLS": str(calls), "REFUSED": refused},
        )
        said = done.stdout + done.stderr
        return done.returncode, said, calls.read_text().splitlines()

    return run


def calls_match(calls, *expected):
    return len(calls) == len(expected) and all(
        call.endswith(end) and ("--extra-index-url" in call) == pytorch
        for call, (end, pytorch) in zip(calls, expected, strict=True)
    )


@pytest.mark.parametrize(
    ("torch", "refused", "expected"),
    [
        ("cuda", "nothing", [PROJECT]),
        ("cpu", "nothing", [CPU, PROJECT]),
        ("cpu", "*disable-pip-version-check torch==*", [CPU, FROM_INDEX, PROJECT]),
        ("cpu", "*torch==*", [CPU, FROM_INDEX, PROJECT]),
    ],
    ids=["gpu", "at hand", "on PyTorch's index", "nowhere"],
)
def test_where_torch_comes_from(make, torch, refused, expected):
    status, said, calls = make(refused, torch)
    assert status == 0
    assert calls_match(calls, *expected), calls
    assert ("No CPU build" in said) == (refused == "*torch==*")


def test_a_failure_of_the_project_itself_is_one(make):
    status, _, calls = make("*editable*", "cpu")
    assert status != 0
    assert calls_match(calls, CPU, PROJECT)


def test_the_test_tools_are_installed_on_top_of_what_the_quickstart_needs(make):
    status, _, calls = make("nothing", "cuda", ".installed-dev")
    assert status == 0
    assert calls_match(calls, PROJECT, (DEVELOPMENT, False))
