"""Of several processes one makes a folder, and a dead one's turn passes on."""

import logging
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from contamination.core import lock
from contamination.core.artifacts import WrittenFiles, build_or_open, is_complete
from contamination.core.errors import ArtifactError
from contamination.core.lock import LOCKS_FOLDER, exclusive_build, lease_path

HOLDER = """
import sys, time
from pathlib import Path
from contamination.core.lock import exclusive_build as building
with building(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_dead_builders_turn_is_taken_over_at_once(tmp_path):
    folder = tmp_path / "corpus" / "a-1"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.wait()
    holder.stdout.close()
    began = time.monotonic()
    with exclusive_build(folder):
        assert time.monotonic() - began < 10


def test_of_two_builders_one_makes_and_the_other_finds(tmp_path):
    made = []

    def make(folder):
        made.append(folder)
        time.sleep(1.5)  # the other has said that it waits
        (folder / "a.txt").write_text("a")
        return WrittenFiles(["a.txt"])

    folder = tmp_path / "corpus" / "a-1"
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(build_or_open, folder, {"x": 1}, {}, make) for _ in range(2)]
    assert both[0].result() == both[1].result()
    assert made == [folder]


def test_who_was_taken_for_dead_commits_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "LEASE_SECONDS", 1.5)

    def make(folder):
        (file,) = (tmp_path / ".locks").glob("*.lease")
        file.unlink()  # as one does that takes it over
        time.sleep(2)
        (folder / "a.txt").write_text("a")
        return WrittenFiles(["a.txt"])

    folder = tmp_path / "corpus" / "a-1"
    with pytest.raises(ArtifactError, match="Run the same command again"):
        build_or_open(folder, {"x": 1}, {}, make)
    assert not is_complete(folder)


FAR = "filelock/2\npid=7\nhost=far\nmode={}\ntoken=ab\nduration={}\n".format


def test_what_is_no_lease_is_taken_over(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(lock, "LEASE_SECONDS", 1.5)
    contents = ["", "garbled\n\x00", "filelock/2\nmode=lea", "4711\nfar\n", FAR("lfase", 1.5),
                FAR("exclusive", 1.5), FAR("lease", 44.0)]  # fmt: skip
    folders = [tmp_path / "corpus" / f"a-{n}" for n in range(len(contents))]
    (tmp_path / LOCKS_FOLDER).mkdir()
    for folder, content in zip(folders, contents, strict=True):
        lease_path(folder).write_text(content)

    def hold(folder):
        with exclusive_build(folder):
            return lease_path(folder).read_text()

    with caplog.at_level(logging.INFO), ThreadPoolExecutor(len(contents)) as pool:
        held = list(pool.map(hold, folders))
    assert all(text.startswith(f"filelock/2\npid={os.getpid()}\n") for text in held)
    assert not any((tmp_path / LOCKS_FOLDER).iterdir())
    assert all(str(lease_path(folder)) in caplog.text for folder in folders)


def test_a_holder_that_is_stopped_for_a_while_keeps_its_lease(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "LEASE_SECONDS", 1.0)
    folder = tmp_path / "corpus" / "a-1"
    code = HOLDER.replace(
        "with", "import contamination.core.lock; contamination.core.lock.LEASE_SECONDS = 1.0\nwith"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE)
    with holder.stdout, ThreadPoolExecutor(1) as pool:
        assert holder.stdout.readline() == b"held\n"
        holder.send_signal(signal.SIGSTOP)
        waiting = pool.submit(build_or_open, folder, {}, {}, lambda folder: WrittenFiles([]))
        time.sleep(3)  # three leases
        late = waiting.done()
        holder.kill()
        holder.wait()
        waiting.result()
    assert not late


def test_who_waits_names_the_holder(tmp_path, caplog):
    folder = tmp_path / "corpus" / "a-1"

    def wait():
        with exclusive_build(folder):
            pass

    with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.INFO):
        with exclusive_build(folder):
            waiting = pool.submit(wait)
            time.sleep(1.5)
        waiting.result()
    assert f"waiting for process {os.getpid()} on" in caplog.text
