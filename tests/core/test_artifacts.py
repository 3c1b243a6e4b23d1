import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from core import artifacts
from core.artifacts import MANIFEST, Built, build, building, is_complete, locate, open_artifact
from core.config import runtime
from core.errors import ArtifactError


@dataclass(frozen=True)
class Settings:
    size: int = 1
    workers: int = runtime(1)


def make(text):
    def write(folder):
        (folder / "data.txt").write_text(text)
        return Built(["data.txt"], {"rows": 1})

    return write


def test_the_name_follows_the_config_and_the_inputs_but_not_how_it_runs(tmp_path):
    names = {
        locate(tmp_path, "corpus", "a", Settings(size, workers), {"x": x}).name
        for size in (1, 2)
        for workers in (1, 2)
        for x in ("p", "q")
    }
    assert len(names) == 4


def test_a_complete_folder_is_not_made_again(tmp_path):
    folder = tmp_path / "corpus" / "a-1"
    first = build(folder, Settings(), {"x": "p"}, make("one"))
    again = build(folder, Settings(), {"x": "p"}, make("two"))
    assert (folder / "data.txt").read_text() == "one"
    assert first == again
    assert first.config() == {"size": 1, "workers": 1}


def test_the_digest_is_the_contents(tmp_path):
    digests = [
        build(tmp_path / kind / name, Settings(), {}, make(text)).digest
        for kind, name, text in [("a", "1", "x"), ("b", "2", "x"), ("a", "3", "y")]
    ]
    assert digests[0] == digests[1] != digests[2]


def test_a_killed_stage_leaves_no_manifest(tmp_path):
    def killed(folder):
        (folder / "data.txt").write_text("half")
        raise KeyboardInterrupt

    folder = tmp_path / "corpus" / "a-1"
    with pytest.raises(KeyboardInterrupt):
        build(folder, Settings(), {}, killed)
    with pytest.raises(ArtifactError, match="unfinished"):
        open_artifact(folder, "corpus")
    build(folder, Settings(), {}, make("whole"))
    assert open_artifact(folder, "corpus").counts == {"rows": 1}


def test_a_folder_of_another_kind_or_schema_is_refused(tmp_path):
    folder = tmp_path / "corpus" / "a-1"
    build(folder, Settings(), {}, make("x"))
    with pytest.raises(ArtifactError, match="not a model"):
        open_artifact(folder, "model")
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, "schema": 99}))
    with pytest.raises(ArtifactError, match="schema 99"):
        open_artifact(folder, "corpus")
    with pytest.raises(ArtifactError, match="does not exist"):
        open_artifact(tmp_path / "nowhere", "corpus")


HOLDER = """
import sys, time
from pathlib import Path
from core.artifacts import building
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
    monkeypatch.setattr(artifacts, "LEASE", 1.5)

    def make(folder):
        (lease,) = (tmp_path / ".locks").glob("*.lease")
        lease.unlink()  # as one does that takes it over
        time.sleep(2)
        (folder / "a.txt").write_text("a")
        return Built(["a.txt"])

    folder = tmp_path / "corpus" / "a-1"
    with pytest.raises(ArtifactError, match="Run the same command again"):
        build(folder, {"x": 1}, {}, make)
    assert not is_complete(folder)
