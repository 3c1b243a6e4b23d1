"""Output goes to files, pipes and devices, and replaces nothing but files."""

import errno
import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from contamination.core import user_files
from contamination.core.errors import ConfigError, DataError
from contamination.core.output_paths import (
    check_has_disk,
    check_output_file,
    check_writable_folder,
    disk_errors_as_data_errors,
    is_writable_folder,
)
from contamination.core.user_files import (
    atomic_output_file,
    is_pipe_or_device,
    open_to_read,
    output_refusal_reason,
)
from tests.forks import in_fork, run_in_fork

REPOSITORY = Path(__file__).resolve().parents[2]


def write(path, text="new"):
    with atomic_output_file(Path(path)) as part:
        part.write_text(text)


def pipe(folder):
    path = folder / "pipe"
    os.mkfifo(path)
    return path


def test_a_file_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with path.open() as reader:
        write(path)
        assert reader.read() == "old"
    assert path.read_text() == "new"
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_keeps_who_may_read_it(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o600)
    write(path)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o600)


@pytest.mark.parametrize("letter", ["a", "\u00e4"])
def test_a_file_may_have_as_long_a_name_as_the_disk_takes(tmp_path, letter):
    path = tmp_path / (letter * (255 // len(letter.encode())))
    write(path)
    assert path.read_text() == "new"
    check_output_file("out", path)
    with pytest.raises(ConfigError, match="its name has more than 255 bytes"):
        check_output_file("out", tmp_path / ("a" * 256))


def test_the_old_file_stays_after_an_error(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(TypeError), atomic_output_file(path) as part:
        part.write_text(None)
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_symbolic_link_stays_and_its_file_is_written(tmp_path, is_there):
    (tmp_path / "data").mkdir()
    path, link = tmp_path / "data" / "a.txt", tmp_path / "link"
    if is_there:
        path.write_text("old")
    link.symlink_to("data/a.txt")
    write(link)
    assert link.is_symlink()
    assert path.read_text() == "new"


# Devices are reached by links, so that a fault replaces the link and not the machine's device.


def test_a_full_device_is_an_error_and_is_not_replaced(tmp_path):
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    with pytest.raises(DataError, match=r"out is .*full': No space left on device"):
        write(link)
    assert stat.S_ISCHR(os.stat(link).st_mode)


def test_a_device_is_not_replaced(tmp_path):
    link = tmp_path / "nowhere"
    link.symlink_to("/dev/null")
    write(link)
    assert stat.S_ISCHR(os.stat(link).st_mode)


def test_a_device_without_a_link_is_not_replaced_either(tmp_path):
    path = tmp_path / "null"
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.stat("/dev/null").st_rdev)
        path.write_text("")
    except PermissionError:
        pytest.skip("this process may not make devices here")
    write(path)
    assert stat.S_ISCHR(os.stat(path).st_mode)


def test_a_named_pipe_is_written_into(tmp_path):
    path, texts = pipe(tmp_path), []
    reader = threading.Thread(target=lambda: texts.append(path.read_text()))
    reader.start()
    write(path, "x" * 200_000)  # more than a pipe holds
    reader.join()
    assert texts == ["x" * 200_000]
    assert path.is_fifo()


def test_a_named_pipe_that_nobody_reads_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(user_files, "PIPE_SECONDS", 0.1)
    path = pipe(tmp_path)
    with pytest.raises(DataError, match=r"out is .*pipe': no process reads .*waited 0.1 s"):
        write(path)
    assert path.is_fifo()


def test_a_reader_that_goes_is_an_error(tmp_path):
    path = pipe(tmp_path)
    reader = threading.Thread(target=lambda: path.open().close())
    reader.start()
    with pytest.raises(DataError, match="the process that read it has ended"):
        write(path, "x" * 2_000_000)
    reader.join()


def test_a_named_pipe_that_nobody_writes_to_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(user_files, "PIPE_SECONDS", 0.1)
    with pytest.raises(DataError, match=r"pipe: no process writes to this pipe \(waited 0.1 s"):
        open_to_read(pipe(tmp_path))


STDOUT = """
import os, sys
from pathlib import Path
from contamination.core.user_files import atomic_output_file as output_file
print("before")
with output_file(Path(sys.argv[1])) as part:
    part.write_text("content\\n")
print("after")
"""


@pytest.mark.parametrize(("name", "is_file"), [
    ("/dev/stdout", True), ("/proc/self/fd/1", True), ("stdout.txt", True),
    ("/dev/stdout", False), ("/dev/fd/1", False),
])  # fmt: skip
def test_standard_output_keeps_what_comes_before_and_after(tmp_path, name, is_file):
    """A shell's `> FILE` would be cut off by opening /dev/stdout again, or lost by replacing it."""
    with (tmp_path / "stdout.txt").open("wb") as file:
        run = subprocess.run(
            [sys.executable, "-c", STDOUT, name], cwd=tmp_path, check=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=file if is_file else subprocess.PIPE,
        )  # fmt: skip
    printed = (tmp_path / "stdout.txt").read_text() if is_file else run.stdout.decode()
    assert printed == "before\ncontent\nafter\n"


def test_what_output_can_go_to(tmp_path):
    (tmp_path / "file").touch()
    path = pipe(tmp_path)
    assert "folder" in output_refusal_reason(tmp_path)
    assert [output_refusal_reason(p) for p in (path, tmp_path / "file", tmp_path / "new")] == [
        "",
        "",
        "",
    ]
    assert is_pipe_or_device(path)
    assert not is_pipe_or_device(tmp_path / "file")
    assert not is_pipe_or_device(tmp_path / "new")


def print_around(name):
    print("before")
    write(name, "content\n")
    print("after")


def test_in_a_fork_standard_output_keeps_what_comes_before_and_after():
    process = run_in_fork(lambda: print_around("/dev/stdout"))
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout == "before\ncontent\nafter\n"


@pytest.mark.parametrize(
    ("mode", "is_output"),
    [(os.O_RDONLY, False), (os.O_WRONLY, True), (os.O_RDWR, True), (os.O_APPEND | os.O_RDWR, True)],
)
@pytest.mark.parametrize("number", [1, 9])
def test_a_file_that_a_shell_opened_for_output_is_written_into(tmp_path, number, mode, is_output):
    path, unopened = tmp_path / "a.txt", tmp_path / "b.txt"
    path.touch()
    unopened.touch()

    def opened_for_output():
        os.dup2(os.open(path, mode), number)
        return f"{is_pipe_or_device(path)} {is_pipe_or_device(unopened)}"

    assert in_fork(opened_for_output) == f"{is_output} False"


def test_a_socket_takes_no_output(tmp_path):
    path = tmp_path / "socket"
    os.mknod(path, stat.S_IFSOCK | 0o600)
    assert output_refusal_reason(path) == "it is a socket. Give a file or a named pipe."
    with pytest.raises(DataError, match=r"^out is '.*socket': it is a socket\. Give a file or a"):
        write(path)
    assert output_refusal_reason(tmp_path) == "it is a folder. Give a file."


def test_a_folder_can_be_created_below_a_folder_but_not_below_a_file(tmp_path):
    file, new_folder = tmp_path / "file", tmp_path / "new" / "folder"
    file.touch()
    check_writable_folder("out", new_folder)
    check_has_disk("runs", new_folder)
    assert not new_folder.parent.exists()
    assert is_writable_folder("")
    assert is_writable_folder(tmp_path / ("a" * 255))
    path = tmp_path / ("a" * 256)
    message = f"out is '{path}': {tmp_path} can't be written to, or a name is too long. Give "
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}another folder\\.$"):
        check_writable_folder("out", path)
    message = f"out is '{file / 'a'}': {file} is not a folder. Give another folder."
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        check_writable_folder("out", file / "a")
    check_has_disk("runs", file / "a")  # another check names the file


def test_no_folder_is_created_in_a_file_system_without_a_disk():
    message = "runs is '/proc/a/b': no folder can be created in /proc. Give a folder on a disk."
    with pytest.raises(ConfigError, match=f"^{message}$"):
        check_has_disk("runs", "/proc/a/b")
    assert not is_writable_folder("/proc/a")


def test_an_output_file_needs_a_folder_that_is_there(tmp_path):
    check_output_file("out", tmp_path / "a.txt")
    folder = tmp_path / "missing"
    message = f"out is '{folder / 'a'}': no file can be written in {folder}. Give another folder."
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        check_output_file("out", folder / "a")
    with pytest.raises(ConfigError, match=f"^out is '{tmp_path}': it is a folder. Give a file.$"):
        check_output_file("out", tmp_path)
    name = "a" * 256
    message = f"out is '{name}': its name has more than 255 bytes. Give a shorter one."
    with pytest.raises(ConfigError, match=f"^{message}$"):
        check_output_file("out", name)


FULL = (
    "No space left on device. Unfinished folders are not used: free space, and run the same "
    "command again."
)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "full"), f"runs: {FULL}"),
        (OSError(errno.ENOSPC, "full", "a.txt"), f"a.txt: {FULL}"),
        (OSError(errno.ENOSPC, "full", "a.txt", None, "b.txt"), f"b.txt: {FULL}"),
        (RuntimeError("I/O failed (os error 28)"), f"runs: {FULL}"),
    ],
)
def test_a_disk_error_names_the_file_or_the_folder_and_a_remedy(error, message):
    with pytest.raises(DataError) as caught, disk_errors_as_data_errors("runs"):
        raise error
    assert str(caught.value) == message
    assert caught.value.__cause__ is error


def test_other_errors_are_not_of_the_disk():
    with pytest.raises(DataError, match=f"^{FULL}$"), disk_errors_as_data_errors():
        raise OSError(errno.ENOSPC, "full")
    for error in (OSError(errno.EPIPE, "broken"), OSError("no number"), ValueError("os error 28")):
        with pytest.raises(type(error)) as caught, disk_errors_as_data_errors("runs"):
            raise error
        assert caught.value is error
