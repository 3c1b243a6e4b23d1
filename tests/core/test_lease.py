"""Of several processes one makes a folder, and a dead one's turn passes on."""

import logging
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from core import lease
from core.artifacts import Built, build, is_complete
from core.errors import ArtifactError
from core.lease import LOCKS, building

HOLDER = """
import sys, time
from pathlib import Path
from core.lease import building
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
    with building(folder):
        assert time.monotonic() - began < 10


def test_of_two_builders_one_makes_and_the_other_finds(tmp_path):
    made = []

    def make(folder):
        made.append(folder)
        time.sleep(1.5)  # the other has said that it waits
        (folder / "a.txt").write_text("a")
        return Built(["a.txt"])

    folder = tmp_path / "corpus" / "a-1"
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(build, folder, {"x": 1}, {}, make) for _ in range(2)]
    assert both[0].result() == both[1].result()
    assert made == [folder]


def test_who_was_taken_for_dead_commits_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "LEASE", 1.5)

    def make(folder):
        (file,) = (tmp_path / ".locks").glob("*.lease")
        file.unlink()  # as one does that takes it over
        time.sleep(2)
        (folder / "a.txt").write_text("a")
        return Built(["a.txt"])

    folder = tmp_path / "corpus" / "a-1"
    with pytest.raises(ArtifactError, match="Run the same command again"):
        build(folder, {"x": 1}, {}, make)
    assert not is_complete(folder)


@pytest.mark.parametrize("content", [b"", b"garbled\n\x00", b"filelock/2\nmode=lea"])
def test_an_empty_or_garbled_lease_is_taken_over(tmp_path, monkeypatch, caplog, content):
    monkeypatch.setattr(lease, "LEASE", 1.5)
    folder, file = tmp_path / "corpus" / "a-1", tmp_path / LOCKS / "corpus-a-1.lease"
    file.parent.mkdir()
    file.write_bytes(content)
    with caplog.at_level(logging.INFO), building(folder):
        assert file.read_text().startswith("filelock/2")
    assert not file.exists()
    assert str(folder) in caplog.text
    assert str(file) in caplog.text


def test_who_waits_names_the_holder(tmp_path, caplog):
    folder = tmp_path / "corpus" / "a-1"

    def wait():
        with building(folder):
            pass

    with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.INFO):
        with building(folder):
            waiting = pool.submit(wait)
            time.sleep(1.5)
        waiting.result()
    assert f"waiting for process {os.getpid()} on" in caplog.text
