"""From the first import on a signal ends a command, and a launcher's death its processes."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from contamination.core import process_startup
from contamination.core.parent_process import (
    LAUNCHER_PID_VARIABLE,
    end_with_parent,
    run_command_from_argv,
)
from contamination.core.process_startup import PACKAGES
from tests.forks import run_in_fork

HOOK = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in ("numpy", "omegaconf", "torch", "pandas"):
            import os, signal, time
            {then}

sys.meta_path.insert(0, Finder())
"""
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="Linux tells of a parent's death")
SLEEP = "print('importing', flush=True); time.sleep(60)"


def run(call, environment):
    return subprocess.run(call, env=environment, capture_output=True, text=True, timeout=50)


@pytest.fixture
def environment(tmp_path):
    """Of a Python that does something when it comes to a library."""

    def hooked(then, **more):
        (tmp_path / "sitecustomize.py").write_text(HOOK.format(then=then))
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        kept = {k: v for k, v in os.environ.items() if k != "RANK"}
        return {**kept, "PYTHONPATH": path, **more}

    return hooked


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("package", PACKAGES)
def test_a_signal_during_the_imports_is_one_paragraph(environment, package, number):
    hooked = environment(f"os.kill(os.getpid(), signal.{number.name})")
    done = run([sys.executable, "-m", package, "--help"], hooked)
    assert (done.returncode, done.stdout) == (128 + number, "")
    assert done.stderr.startswith(f"stopped: {number.name} was received.")
    assert done.stderr.count("\n") == 1


def test_another_program_keeps_its_handlers():
    code = f"""
import signal
before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
import {", ".join(f"contamination.{package}" for package in PACKAGES)}
assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == before
"""
    subprocess.run([sys.executable, "-c", code, *PACKAGES], check=True, timeout=60)


@LINUX
def test_a_process_whose_launcher_dies_during_its_imports_ends(environment):
    call = f"import subprocess; subprocess.run([{sys.executable!r}, '-m', 'training'])"
    launcher = subprocess.Popen(
        [sys.executable, "-c", call], stdout=subprocess.PIPE, text=True,
        env=environment(SLEEP, RANK="0"),
    )  # fmt: skip
    with launcher:
        assert launcher.stdout.readline() == "importing\n"
        workers = psutil.Process(launcher.pid).children()
        launcher.kill()
        assert len(workers) == 1
        assert not psutil.wait_procs(workers, timeout=15)[1]


@LINUX
def test_a_process_whose_launcher_has_died_before_it_began_ends(environment):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    told = {"RANK": "0", "TORCHELASTIC_RUN_ID": "x", LAUNCHER_PID_VARIABLE: str(gone.pid)}
    done = run([sys.executable, "-m", "training"], environment(SLEEP, **told))
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == ""


@LINUX
@pytest.mark.parametrize(
    ("named_parent", "status"), [(os.getpid, 0), (os.getppid, -signal.SIGKILL)]
)
def test_a_process_ends_if_the_parent_that_it_is_to_end_with_is_no_longer_its_parent(
    named_parent, status
):
    parent = named_parent()
    child = os.fork()
    if not child:
        try:
            end_with_parent(signal.SIGKILL, parent)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status


def test_a_command_that_ends_with_its_parent_is_run_and_told_the_launchers_process_id():
    code = f"import os; print(os.environ[{LAUNCHER_PID_VARIABLE!r}] == str(os.getpid()))"
    call = [str(os.getpid()), sys.executable, "-ISc", code]
    done = run_in_fork(run_command_from_argv, "parent_process", *call)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@pytest.mark.parametrize(
    ("watched", "words", "printed"),
    [
        (True, ["training"], "Loading ...\n"),
        (False, ["training"], ""),
        (True, ["launch", "status"], ""),
        (True, ["training", "--help"], ""),
    ],
)
def test_a_terminal_is_told_at_once(monkeypatch, capfd, watched, words, printed):
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: watched)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", *words])
    process_startup._print_loading()
    assert capfd.readouterr().err == printed


@pytest.mark.parametrize("package", ["core", "detection"])
def test_a_package_is_not_imported_by_its_folders_name(package):
    call = [sys.executable, "-c", f"import {package}"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=50)
    assert done.returncode == 1
    assert f"import contamination.{package}" in done.stderr.splitlines()[-1]
