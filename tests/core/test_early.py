"""From the first import on a signal ends a command, and a launcher's death its processes."""

import ctypes
import os
import re
import runpy
import signal
import subprocess
import sys
from importlib import import_module

import psutil
import pytest
from torch.distributed.elastic.multiprocessing.api import SignalException

from contamination.core import process_startup
from contamination.core.parent_process import (
    LAUNCHER_PID_VARIABLE,
    TORCHRUN_MODULE,
    command_ending_with_parent,
    end_with_parent,
    run_command_from_argv,
)
from contamination.core.process_startup import PACKAGES, check_import_name, lazy_exports
from contamination.core.terminal import wrap_text
from tests.forks import in_fork, run_in_fork

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
        (True, ["training", "-h"], ""),
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


@LINUX
def test_a_process_gets_the_signal_that_it_asked_for_when_its_parent_dies():
    def signal_at_the_parents_death():
        end_with_parent(signal.SIGUSR1, os.getppid())
        number = ctypes.c_int()
        ctypes.CDLL(None).prctl(2, ctypes.byref(number))  # PR_GET_PDEATHSIG
        return signal.Signals(number.value).name

    assert in_fork(signal_at_the_parents_death) == "SIGUSR1"


def test_on_other_systems_a_process_does_not_end_with_its_parent(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", None)  # it has no prctl
    end_with_parent(signal.SIGKILL, os.getpid())


def test_the_command_that_ends_with_this_process_names_it():
    assert command_ending_with_parent(["sleep", "9"]) == [
        *(sys.executable, "-m", "contamination.core.parent_process", str(os.getpid())),
        *("sleep", "9"),
    ]  # fmt: skip


@LINUX
@pytest.mark.parametrize(
    "call", [["sleep", "9"], [sys.executable, "-m", "other"], ["python", "-m", TORCHRUN_MODULE]]
)
def test_a_command_takes_the_place_of_the_process_that_ends_with_its_parent(monkeypatch, call):
    def execvp(file, words):
        number = ctypes.c_int()
        ctypes.CDLL(None).prctl(2, ctypes.byref(number))
        is_named = os.environ[LAUNCHER_PID_VARIABLE] == str(os.getpid())
        print([file, words, signal.Signals(number.value).name, is_named])

    monkeypatch.setattr(os, "execvp", execvp)
    process = run_in_fork(run_command_from_argv, "parent_process", str(os.getpid()), *call)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout == f"{[call[0], call, 'SIGTERM', True]}\n"


@LINUX
@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGINT])
def test_torchrun_runs_in_this_process_and_ends_as_its_signal_says(monkeypatch, number):
    def main(words):
        is_named = os.environ[LAUNCHER_PID_VARIABLE] == str(os.getpid())
        print(words, signal.getsignal(signal.SIGINT) == signal.SIG_DFL, is_named)
        if number:
            raise SignalException("stopped", number)

    monkeypatch.setattr("torch.distributed.run.main", main)
    words = ["--nproc-per-node", "2", "train.py"]
    call = [str(os.getpid()), sys.executable, "-m", TORCHRUN_MODULE, *words]
    process = run_in_fork(run_command_from_argv, "parent_process", *call)
    status = 128 + number if number else 0
    assert (process.returncode, process.stderr) == (status, "")
    assert process.stdout == f"{words} True True\n"


MESSAGE = "stopped: {} was received. Run the same command again to resume.\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("rank", "words", "is_told"),
    [
        (None, ["-m", "training"], True),
        ("0", ["-m", "training"], False),
        (None, ["/bin/contamination", "-sc", "install=bash"], False),
    ],
)
def test_a_process_with_nothing_to_save_exits_at_once(monkeypatch, number, rank, words, is_told):
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr(sys, "orig_argv", ["python", *words])
    process = run_in_fork(lambda: process_startup._exit_at_once(number, None))
    assert (process.returncode, process.stdout) == (128 + number, "")
    assert process.stderr == MESSAGE.format(number.name) * is_told


@pytest.mark.parametrize(
    ("run_id", "recorded", "is_recorded"),
    [("x", "7", True), ("x", None, False), (None, "7", False)],
)
def test_the_launcher_of_a_process_is_torchrun_or_its_parent(
    monkeypatch, run_id, recorded, is_recorded
):
    for name, value in (("TORCHELASTIC_RUN_ID", run_id), (LAUNCHER_PID_VARIABLE, recorded)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert process_startup._launcher_pid() == (7 if is_recorded else os.getppid())


@pytest.mark.parametrize(
    ("argv", "orig_argv", "is_ours"),
    [
        (["-m"], ["python", "-m", "training"], True),
        (["-m", "seed=1"], ["python", "-m", "training", "seed=1"], True),
        (["-m", "seed=1"], ["python", "-m", "contamination.audits", "seed=1"], True),
        (["-m", "seed=1"], ["python", "-m", "pytest", "seed=1"], False),
        (["/usr/bin/contamination", "train"], ["python", "/usr/bin/contamination", "train"], True),
        (["/usr/bin/pytest", "training"], ["python", "/usr/bin/pytest", "training"], False),
        (["contamination.py"], ["python", "contamination.py"], False),
    ],
)
def test_the_commands_of_this_project_are_known_by_their_words(
    monkeypatch, argv, orig_argv, is_ours
):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", orig_argv)
    assert process_startup._is_project_command() == is_ours


def test_a_name_is_imported_from_its_module_when_it_is_used():
    get = lazy_exports("contamination.core", {"wrap_text": "terminal"})
    assert get("wrap_text") is wrap_text
    message = r"^module 'contamination\.core' has no attribute 'fit_columns'$"
    with pytest.raises(AttributeError, match=message):
        get("fit_columns")


@pytest.mark.parametrize("package", ["detection", "contaminations.detection", "contamination"])
def test_only_a_package_of_the_projects_name_exports_names(package):
    message = (
        f"{package} is imported by the name of its folder, which would create a second copy of "
        f"each class: import contamination.{package} instead."
    )
    for check in (check_import_name, lambda name: lazy_exports(name, {})):
        with pytest.raises(ImportError, match=f"^{re.escape(message)}$"):
            check(package)


def test_a_package_may_be_run_under_its_folders_name(tmp_path, monkeypatch):
    folder = tmp_path / "runnable"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from contamination.core.process_startup import check_import_name\n"
        "check_import_name('runnable')\n"
    )
    (folder / "__main__.py").write_text("print('run')")
    monkeypatch.syspath_prepend(str(tmp_path))
    process = run_in_fork(lambda: runpy.run_module("runnable", run_name="__main__") and 0)
    assert (process.returncode, process.stdout, process.stderr) == (0, "run\n", "")
    with pytest.raises(ImportError, match="runnable is imported by the name of its folder"):
        import_module("runnable")
