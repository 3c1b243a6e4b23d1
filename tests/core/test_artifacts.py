"""Run folders: their names, manifests, and what is refused when one is opened."""

import hashlib
import json
import os
import socket
import subprocess
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product

import pytest

from contamination.core.artifacts import (
    WrittenFiles,
    build_or_open,
    check_owning_run_folder,
    check_run_folder,
    code_revision,
    is_complete,
    open_artifact,
    run_folder,
    write_manifest,
)
from contamination.core.config import runtime_field
from contamination.core.errors import ArtifactError, ConfigError
from contamination.core.files import (
    hashed_json,
    temporary_path,
    verified_json,
    write_text_atomically,
)
from contamination.core.integrity import MANIFEST, SCHEMA, errors_naming_folders
from contamination.core.models import resolve_model_path


@dataclass(frozen=True)
class Settings:
    size: int = 1
    workers: int = runtime_field(1)


def make(text):
    def write(folder):
        (folder / "data.txt").write_text(text)
        return WrittenFiles(["data.txt"], {"rows": 1})

    return write


def test_the_name_follows_the_config_and_the_inputs_but_not_how_it_runs(tmp_path):
    names = {
        run_folder(tmp_path, "corpus", "a", Settings(size, workers), {"x": x}).name
        for size in (1, 2)
        for workers in (1, 2)
        for x in ("p", "q")
    }
    assert len(names) == 4


def test_the_name_is_the_hash_of_its_parts_as_sorted_json(tmp_path):
    found = run_folder(
        tmp_path, "corpus", "-LLaMA 7B, AZaz09_v1.0X!", Settings(2), {"x": "p", "a": "q"}
    )
    parts = '"config": {"size": 2}, "inputs": {"a": "q", "x": "p"}, "kind": "corpus", "schema": '
    digest = hashlib.sha256(f"{{{parts}{SCHEMA}}}".encode()).hexdigest()
    assert found == tmp_path / "corpus" / f"LLaMA-7B-AZaz09-v1.0X-{digest[:12]}"


def test_the_owner_of_a_model_is_one_or_two_folders_above(tmp_path):
    folder = tmp_path / "model" / "a-1"
    build_or_open(folder, Settings(), {}, make("whole"))
    check_owning_run_folder(folder / "exports" / "step-1")
    (folder / "data.txt").write_text("WHOLE")
    for path in (folder / "hf", folder / "exports" / "step-1"):
        with pytest.raises(ArtifactError, match=r"data\.txt"):
            check_owning_run_folder(path)
    check_owning_run_folder(folder / "a" / "b" / "c")


def model(folder):
    """A finished training's folder, with a model."""

    def made(place):
        (place / "hf").mkdir()
        (place / "hf" / "config.json").write_text("{}")
        return WrittenFiles(["hf/config.json"])

    return build_or_open(folder, Settings(), {}, made).path


def test_a_model_that_is_a_link_to_elsewhere_is_refused(tmp_path):
    folder = model(tmp_path / "model" / "a-1")
    check_owning_run_folder(folder / "hf")
    (folder / "hf").rename(tmp_path / "hf")
    (folder / "hf").symlink_to(tmp_path / "hf")
    with pytest.raises(ArtifactError, match="hf/config.json is a link to a file outside"):
        check_owning_run_folder(folder / "hf")
    with pytest.raises(ArtifactError, match="hf/config.json is a link to a file outside"):
        resolve_model_path("model.path", str(folder / "hf"))


@pytest.mark.parametrize("name", ["exports/step-1", "other"])
def test_a_folder_that_the_manifest_does_not_list_is_refused(tmp_path, name):
    folder = model(tmp_path / "model" / "a-1")
    (folder / name).mkdir(parents=True)
    (folder / name / "config.json").write_text("{}")
    open_artifact(folder, "model")
    with pytest.raises(ArtifactError, match=f"{name} was not written by the stage"):
        check_owning_run_folder(folder / name)


def test_a_complete_folder_is_not_made_again(tmp_path):
    folder = tmp_path / "corpus" / "a-1"
    first = build_or_open(folder, Settings(), {"x": "p"}, make("one"))
    again = build_or_open(folder, Settings(), {"x": "p"}, make("two"))
    assert (folder / "data.txt").read_text() == "one"
    assert first == again
    assert (first.path, first.kind) == (folder, "corpus")
    assert first.config() == {"size": 1, "workers": 1}
    nested = {"cells": [Settings(2), ("a", {3: None})]}
    kept = build_or_open(tmp_path / "corpus" / "b-1", nested, {}, make("one")).config()
    assert kept == {"cells": [{"size": 2, "workers": 1}, ["a", {"3": None}]]}
    manifest = verified_json((folder / MANIFEST).read_text())
    made_by = version("contamination-testbed"), code_revision()
    assert (manifest["version"], manifest["revision"]) == made_by


def test_work_that_a_stopped_run_left_stays_where_the_next_is_refused(tmp_path):
    folder = tmp_path / "corpus" / "a-1"

    def stop(place):
        (place / "part.bin").write_text("half")
        raise KeyboardInterrupt

    def refuse(place):
        raise ConfigError("size is 1: give more.")

    with pytest.raises(KeyboardInterrupt):
        build_or_open(folder, Settings(), {}, stop)
    with pytest.raises(ConfigError):
        build_or_open(folder, Settings(), {}, refuse)
    assert (folder / "part.bin").read_text() == "half"


def test_a_checkout_that_only_holds_an_installation_is_not_its_revision(tmp_path, monkeypatch):
    file = tmp_path / "site-packages" / "core" / "artifacts.py"
    file.parent.mkdir(parents=True)
    file.write_text("")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    monkeypatch.setattr("contamination.core.artifacts.__file__", str(file))
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "other"]):
        subprocess.run([*git, *words], check=True)
    assert code_revision.__wrapped__() == "unknown"
    for words in (["add", "."], ["commit", "-q", "-m", "own"]):
        subprocess.run([*git, *words], check=True)
    assert len(code_revision.__wrapped__()) == 12


def test_the_digest_is_the_contents(tmp_path):
    digests = [
        build_or_open(tmp_path / kind / name, Settings(), {}, make(text)).digest
        for kind, name, text in [("a", "1", "x"), ("b", "2", "x"), ("a", "3", "y")]
    ]
    assert digests[0] == digests[1] != digests[2]


def test_a_killed_stage_leaves_no_manifest(tmp_path):
    def killed(folder):
        (folder / "data.txt").write_text("half")
        raise KeyboardInterrupt

    folder = tmp_path / "corpus" / "a-1"
    with pytest.raises(KeyboardInterrupt):
        build_or_open(folder, Settings(), {}, killed)
    with pytest.raises(ArtifactError, match="unfinished"):
        open_artifact(folder, "corpus")
    build_or_open(folder, Settings(), {}, make("whole"))
    assert open_artifact(folder, "corpus").counts == {"rows": 1}


def test_all_is_on_the_disk_before_the_manifest_has_its_name(tmp_path, monkeypatch):
    folder = tmp_path / "corpus" / "a-1"
    before, after = set(), set()

    def fsync(handle):
        (after if is_complete(folder) else before).add(os.fstat(handle).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    build_or_open(folder, Settings(), {}, make("x"))
    inodes = {path.name: path.stat().st_ino for path in (folder, *folder.iterdir())}
    assert {inodes[name] for name in ("config.yaml", "data.txt", MANIFEST)} <= before
    assert inodes[folder.name] in after


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_text_atomically(path, "old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_text_atomically(path, "new")
    assert path.read_text() == "old"


def test_no_two_processes_share_a_temporary_name(tmp_path, monkeypatch):
    names = set()
    for process, machine in product((1, 2), "ab"):
        monkeypatch.setattr(os, "getpid", lambda p=process: p)
        monkeypatch.setattr(socket, "gethostname", lambda m=machine: m)
        names |= {temporary_path(tmp_path / "one"), temporary_path(tmp_path / "two")}
    assert len(names) == 8
    assert all(name.parent == tmp_path and name.name.startswith(".") for name in names)


def test_a_folder_of_another_kind_or_schema_is_refused(tmp_path):
    folder = tmp_path / "corpus" / "a-1"
    build_or_open(folder, Settings(), {}, make("x"))
    with pytest.raises(ArtifactError, match="not a model"):
        open_artifact(folder, "model")
    manifest = verified_json((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(hashed_json({**manifest, "schema": 99}))
    with pytest.raises(ArtifactError, match="schema 99"):
        open_artifact(folder, "corpus")
    (folder / MANIFEST).write_text(json.dumps({"kind": "corpus", "schema": 3}))
    with pytest.raises(ArtifactError, match="schema 3"):
        open_artifact(folder, "corpus")
    with pytest.raises(ArtifactError, match="does not exist"):
        open_artifact(tmp_path / "nowhere", "corpus")


def finished_model(folder):
    def write(place):
        (place / "hf").mkdir()
        (place / "hf" / "config.json").write_text("{}")
        return WrittenFiles(["hf/config.json"])

    return build_or_open(folder, {"corpus_folder": "runs/corpus/x"}, {}, write).path


@pytest.mark.parametrize("gone", [(MANIFEST,), ("config.yaml",), (MANIFEST, "config.yaml")])
def test_a_model_whose_folder_has_lost_its_manifest_or_its_config_is_refused(tmp_path, gone):
    folder = finished_model(tmp_path / "model" / f"a-{'0' * 12}")
    check_owning_run_folder(folder / "hf")
    for name in gone:
        (folder / name).unlink()
    with pytest.raises(ArtifactError, match=rf"is damaged: {gone[0]} is missing"):
        check_owning_run_folder(folder / "hf")


def test_a_renamed_model_is_known_by_its_config(tmp_path):
    folder = finished_model(tmp_path / "mine")
    (folder / MANIFEST).unlink()
    with pytest.raises(ArtifactError, match=f"{MANIFEST} is missing"):
        check_owning_run_folder(folder / "hf")
    for config in ("name: my own project\n", "- no\n- mapping\n"):
        (folder / "config.yaml").write_text(config)
        check_owning_run_folder(folder / "hf")


def damaged_manifest(folder, **changed):
    manifest = verified_json((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(hashed_json({**manifest, **changed}))


NAMES = ["../../../pwn.txt", "/etc/passwd", "a/../../x", "..", "", "a\nb"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", ["files", "records"])
def test_a_manifest_names_files_inside_its_folder(tmp_path, name, part):
    folder = build_or_open(tmp_path / "corpus" / "a-1", Settings(), {}, make("x")).path
    manifest = verified_json((folder / MANIFEST).read_text())
    more = {part: {**manifest[part], name: "0" * 64}, "bytes": {**manifest["bytes"], name: 1}}
    damaged_manifest(folder, **more)
    with pytest.raises(ArtifactError, match="which is not a file name inside the folder"):
        open_artifact(folder, "corpus")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"digest": "../../x"}, "the hash is '../../x'"),
        ({"files": []}, "files is"),
        ({"bytes": {}}, "its lists of sizes and of hashes name different files"),
        ({"inputs": {"x": 3}}, "inputs.x is 3"),
        ({"counts": None}, "counts is null"),
        ({"kind": "\x1b[2J"}, "its kind is"),
        ({"schema": "4"}, "schema is"),
        ({"schema": 99, "kind": []}, "its kind is"),
    ],
)
def test_a_manifest_of_another_form_is_damage(tmp_path, changed, words):
    folder = build_or_open(tmp_path / "corpus" / "a-1", Settings(), {}, make("x")).path
    damaged_manifest(folder, **changed)
    with pytest.raises(ArtifactError, match=words):
        open_artifact(folder, "corpus")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_file_that_is_a_link_elsewhere_or_no_file_is_refused(tmp_path, kind):
    folder = build_or_open(tmp_path / "corpus" / "a-1", Settings(), {}, make("x")).path
    file = folder / "data.txt"
    file.rename(tmp_path / "elsewhere")
    if kind == "link":
        file.symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(file) if kind == "pipe" else file.mkdir()
    words = "a link to a file outside" if kind == "link" else "not a regular file"
    with pytest.raises(ArtifactError, match=rf"data\.txt is {words}"):
        open_artifact(folder, "corpus")


@pytest.mark.parametrize(
    ("name", "config", "is_ours"),
    [("a-0123456789ab", False, True), ("mine", True, True), ("mine", False, False)],
)
def test_a_folder_with_a_broken_manifest_is_known_by_its_name_or_its_config(
    tmp_path, name, config, is_ours
):
    folder = tmp_path / name
    folder.mkdir()
    (folder / MANIFEST).write_text("{")
    if config:
        (folder / "config.yaml").write_text("a: 1\n")
    with pytest.raises(ArtifactError, match="is damaged") if is_ours else nullcontext():
        check_run_folder(folder)


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: !!python/name:os.system", "[1]", "a: [", ""])
def test_a_config_that_is_no_plain_mapping_is_named(tmp_path, text):
    folder = build_or_open(tmp_path / "corpus" / "a-1", Settings(), {}, make("x")).path
    (folder / "config.yaml").write_text(text)
    write_manifest(folder, {}, WrittenFiles(["data.txt"]))
    with pytest.raises(ArtifactError, match=r"a-1 is damaged: config\.yaml can't be used: "):
        open_artifact(folder, "corpus").config()


def test_what_fails_because_of_a_stored_value_names_the_folder_and_the_place(tmp_path):
    words = r"^a, b: .*KeyError: 'x'; test_artifacts\.py, line "
    with pytest.raises(ArtifactError, match=words), errors_naming_folders("a", "b"):
        {}["x"]
    with pytest.raises(ArtifactError, match="^as it is$"), errors_naming_folders("a"):
        raise ArtifactError("as it is")
    with pytest.raises(FileNotFoundError), errors_naming_folders("a"):
        (tmp_path / "none").read_text()


@pytest.mark.parametrize("value", ["x" * 100_001, [1] * 200_000], ids=["text", "values"])
def test_a_config_that_could_not_be_read_again_is_refused_before_the_work(value, tmp_path):
    def make(folder):
        raise AssertionError

    folder = tmp_path / "thing" / "a"
    with pytest.raises(ConfigError, match=r"^a\.b (is 'x|has 200,001 of).* can be read:"):
        build_or_open(folder, {"a": {"b": value}}, {}, make)
    assert not (folder / "config.yaml").exists()


def test_a_missing_folder_is_named_in_one_line(tmp_path):
    with pytest.raises(ArtifactError, match="does not exist") as raised:
        open_artifact(tmp_path / "a\x1b[2J\nb", "scores")
    assert str(raised.value).isprintable()
