"""A runs folder on a disk that can't be written."""

import os
import shlex
import subprocess
import sys

import pytest

from tests.bad_inputs.places import permitted
from tests.launch.started import ENVIRONMENT
from tests.small import SMALL, contents, launch

READ_ONLY = "mount --bind {0} {0} && mount -o remount,ro,bind {0} && exec {1}"


def launched(runs, *more):
    words = [sys.executable, "-m", "launch", *SMALL, f"runs={runs}", "wandb.mode=disabled", *more]
    script = READ_ONLY.format(shlex.quote(str(runs)), shlex.join(words))
    own = ["--user", "--map-root-user"] if os.geteuid() else []
    call = ["unshare", "--mount", *own, "sh", "-c", script]
    return subprocess.run(call, capture_output=True, text=True, env=ENVIRONMENT)


def tree(folder):
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.slow
@pytest.mark.skipif(not permitted(), reason="this process may not mount a disk")
def test_it_serves_what_is_finished_and_nothing_else(tmp_path):
    runs = tmp_path / "runs"
    report = launch(runs)
    made, before = contents(runs), tree(runs)

    again = launched(runs)
    assert again.returncode == 0, again.stderr[-3000:]
    assert f"report: {report.path}" in again.stdout + again.stderr
    assert (contents(runs), tree(runs)) == (made, before)

    other = launched(runs, "training.learning_rate=2e-3")
    said = other.stderr.strip().splitlines()
    assert other.returncode == 2, other.stderr[-3000:]
    assert "Traceback" not in other.stderr
    assert said[-1].startswith("error: ")
    assert "Read-only" in said[-1]
    assert str(runs) in said[-1]
    assert tree(runs) == before
