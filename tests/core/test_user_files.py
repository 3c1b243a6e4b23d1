"""Output goes to files, pipes and devices, and replaces nothing but files."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from contamination.core import user_files
from contamination.core.errors import ConfigError, DataError
from contamination.core.output_paths import check_output_file
from contamination.core.user_files import (
    atomic_output_file,
    is_pipe_or_device,
    open_to_read,
    output_refusal_reason,
)

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
