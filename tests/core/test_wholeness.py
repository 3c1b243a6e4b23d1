"""A finished folder is opened only where it is what was written."""

import json
import os

import pytest

from contamination.core import hashing, integrity
from contamination.core.artifacts import (
    WrittenFiles,
    build_or_open,
    check_owning_run_folder,
    open_artifact,
)
from contamination.core.errors import ArtifactError, ConfigError
from contamination.core.integrity import MANIFEST

FILES = ("config.yaml", "data.txt", "lines.jsonl", "hf/model.bin", MANIFEST)


def make(folder):
    (folder / "hf").mkdir(exist_ok=True)
    (folder / "data.txt").write_text("one\n" * 100)
    (folder / "hf" / "model.bin").write_bytes(os.urandom(2 * hashing.MIN_CACHED_BYTES))
    (folder / "lines.jsonl").write_text('{"seconds": 1}\n')
    return WrittenFiles(["data.txt", "hf/model.bin"], {"rows": 100}, ["lines.jsonl"])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield build_or_open(tmp_path / "corpus" / "a-1", {"size": 1}, {}, make).path
    integrity.set_hash_policy(integrity.CHANGED)


def flip(file):
    held = bytearray(file.read_bytes())
    held[len(held) // 3] ^= 4
    file.write_bytes(held)


DAMAGE = {
    "a bit": flip,
    "zeros": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "truncated": lambda file: os.truncate(file, file.stat().st_size // 2),
    "emptied": lambda file: os.truncate(file, 0),
    "deleted": lambda file: file.unlink(),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_refused_by_name(folder, file, kind):
    open_artifact(folder, "corpus")
    DAMAGE[kind](folder / file)
    unfinished = (file, kind) == (MANIFEST, "deleted")
    said = "is unfinished" if unfinished else rf"a-1 is damaged: {file} .*rm -r \S+a-1\)"
    with pytest.raises(ArtifactError, match=said) as error:
        open_artifact(folder, "corpus")
    assert "\n" not in str(error.value)
    if not unfinished:  # nor does `build` make it again
        with pytest.raises(ArtifactError, match=said):
            build_or_open(folder, {"size": 1}, {}, make)


@pytest.mark.parametrize("text", ["[]", "3", "null", '{"schema": 4}', "{}", "\x00", "{"])
def test_any_other_manifest_is_damage(folder, text):
    (folder / MANIFEST).write_text(text)
    with pytest.raises(ArtifactError, match=f"damaged: {MANIFEST}"):
        open_artifact(folder, "corpus")


def test_another_programs_manifest_is_no_reason_to_remove_its_folder(folder):
    (folder / MANIFEST).write_text('{"manifest_version": 3}')
    with pytest.raises(ArtifactError, match="another program wrote") as raised:
        open_artifact(folder, "corpus")
    assert "rm " not in str(raised.value)


def test_each_entry_of_the_manifest_is_under_its_hash(folder):
    manifest = json.loads((folder / MANIFEST).read_text())
    for name in manifest:
        (folder / MANIFEST).write_text(json.dumps({**manifest, name: "other"}, indent=1) + "\n")
        with pytest.raises(ArtifactError, match=f"damaged: {MANIFEST}"):
            open_artifact(folder, "corpus")


def test_a_file_that_a_reader_of_the_whole_folder_would_find_is_refused(folder):
    (folder / "hf" / "adapter_config.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"damaged: hf/adapter_config.json was not written"):
        open_artifact(folder, "corpus")


@pytest.mark.parametrize("leads", ["a folder", "a file", "nowhere"])
def test_a_link_that_the_manifest_does_not_list_is_refused(folder, tmp_path, leads):
    target = tmp_path / "target"
    if leads != "nowhere":
        target.mkdir() if leads == "a folder" else target.write_text("x")
    (folder / "hf" / "more").symlink_to(target)
    with pytest.raises(ArtifactError, match=r"damaged: hf/more was not written"):
        open_artifact(folder, "corpus")


def test_hidden_files_and_files_at_the_top_are_nobodys_business(folder):
    (folder / "hf" / ".DS_Store").write_text("x")
    (folder / "notes.txt").write_text("x")
    open_artifact(folder, "corpus")


def test_what_a_killed_attempt_left_is_not_taken_over(tmp_path):
    left = tmp_path / "corpus" / "a-1" / "hf" / "left.json"
    left.parent.mkdir(parents=True)
    left.write_text("{}")
    build_or_open(tmp_path / "corpus" / "a-1", {}, {}, make)
    assert not left.exists()


def test_a_model_inside_a_damaged_folder_is_refused(folder):
    check_owning_run_folder(folder / "hf")
    flip(folder / "lines.jsonl")
    with pytest.raises(ArtifactError, match=r"damaged: lines.jsonl"):
        check_owning_run_folder(folder / "hf")


def test_a_folder_beside_a_foreign_manifest_is_no_artefact(tmp_path):
    (tmp_path / "llama" / "hf").mkdir(parents=True)
    (tmp_path / "llama" / MANIFEST).write_text('{"schema": "theirs"}')
    check_owning_run_folder(tmp_path / "llama" / "hf")


def keep_times(file, change):
    """Damage that leaves the file's size and times: of a disk, not by a program."""
    before = file.stat()
    change(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def hashed(monkeypatch):
    """The names of the files that are read from now on."""
    names = []
    hash_file = hashing._hash_file

    def record(path, *arguments):
        names.append(path.name)
        return hash_file(path, *arguments)

    monkeypatch.setattr(hashing, "_hash_file", record)
    return names


@pytest.mark.parametrize(
    ("policy", "first", "again"),
    [("always", 4, 4), ("changed", 4, 3), ("never", 0, 0)],
)  # fmt: skip
def test_the_policy_says_what_is_hashed(folder, monkeypatch, policy, first, again):
    large = folder / "hf" / "model.bin"
    monkeypatch.setattr(hashing, "MAX_CLOCK_TICK_NS", -(10**12))  # whatever the clock's tick
    integrity.set_hash_policy(policy)
    read = hashed(monkeypatch)
    for count in (first, again):
        integrity._state_when_checked.clear()  # as another process
        open_artifact(folder, "corpus")
        open_artifact(folder, "corpus")  # this one has checked it
        assert len(read) == count, read
        read.clear()
    keep_times(large, flip)
    if policy == "never":
        open_artifact(folder, "corpus")
    else:
        with pytest.raises(ArtifactError, match="model.bin has the SHA-256"):
            open_artifact(folder, "corpus")
    os.truncate(large, 5)
    with pytest.raises(ArtifactError, match="model.bin has 5 bytes, but 2,097,152 were written"):
        open_artifact(folder, "corpus")


def test_a_garbled_memory_convicts_no_file(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(hashing, "MAX_CLOCK_TICK_NS", -(10**12))
    integrity._state_when_checked.clear()
    open_artifact(folder, "corpus")
    (record,) = (tmp_path / "cache").rglob("*.json")
    kept = json.loads(record.read_text())
    record.write_text(json.dumps({**kept, "sha256": "0" * 64}))
    integrity._state_when_checked.clear()
    open_artifact(folder, "corpus")


def test_another_policy_is_refused():
    with pytest.raises(ConfigError, match=r"verify is 'sometimes': give one of always, changed"):
        integrity.set_hash_policy("sometimes")
