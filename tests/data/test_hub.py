"""What the hub's caches hold is found and read without a network, in caches of their own."""

import hashlib
import json
import os
import shutil

import datasets
import pytest

from contamination.core import hub
from contamination.core.errors import DataError
from contamination.data.readers.hub import (
    HubCorpus,
    HubRows,
    download_split,
    hub_nodes,
    is_data_set_cached,
    stream_split,
)

ROWS = [{"question": f"Is {n} a number?"} for n in range(5)]
COMMIT = "c0ffee" * 6 + "c0ff"


@pytest.fixture
def data_sets(tmp_path, monkeypatch):
    """A cache of `datasets` that holds owner/name, as if it had come from the hub."""
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    cache = tmp_path / "cache"
    files = {"train": str(tmp_path / "rows.jsonl")}
    datasets.load_dataset("json", data_files=files, cache_dir=str(tmp_path / "made"))
    (info,) = tmp_path.glob("made/json/*/*/*/dataset_info.json")
    place = cache / "owner___name" / "default" / "0.0.0" / COMMIT
    shutil.copytree(info.parent, place)
    (shard,) = place.glob("json-*")
    shard.rename(place / shard.name.replace("json", "name"))
    known = {**json.loads(info.read_text()), "dataset_name": "name"}
    (place / "dataset_info.json").write_text(json.dumps(known))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", cache)
    return cache


def test_fetched_rows_are_streamed_from_the_cache(data_sets):
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert is_data_set_cached("owner/name")
    assert not is_data_set_cached("owner/other")
    download_split("owner/name", None, "train", None)
    assert list(stream_split("owner/name", None, "train", COMMIT)) == ROWS
    with pytest.raises(DataError, match="hub's data set 'owner/other' .* can't be read"):
        download_split("owner/other", None, "train", None)


def test_each_split_is_asked_for_by_its_names_and_named_in_errors(monkeypatch):
    requests = []

    def load(*names, **options):
        requests.append((names, options))
        if len(requests) > 2:
            raise ValueError("  it is gone\nfor good")
        return iter(ROWS)

    monkeypatch.setattr("datasets.load_dataset", load)
    names = ("owner/name", "short", "test", "v1")
    assert list(stream_split(*names)) == ROWS
    download_split(*names)
    options = {"split": "test", "revision": "v1"}
    streaming = {**options, "streaming": True}
    assert requests == [(names[:2], streaming), (names[:2], options)]
    for read in (lambda: list(stream_split(*names)), lambda: download_split(*names)):
        with pytest.raises(DataError) as error:
            read()
        assert str(error.value).startswith(
            "The hub's data set 'owner/name' (config 'short', split 'test', revision 'v1') can't "
            "be read: it is gone Check these names and the connection. Without a hub, use "
            "corpus=embedded and injection.benchmark_source=embedded."
        )
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: raise_error(KeyError()))
    with pytest.raises(DataError, match=r"can't be read: KeyError\(\) Check these"):
        download_split(*names)


def raise_error(error):
    raise error


def test_rows_of_the_hub_are_numbered_in_their_split(monkeypatch):
    requests = []

    def stream(*names):
        requests.append(names)
        return iter(ROWS[:2])

    monkeypatch.setattr("contamination.data.readers.hub.stream_split", stream)
    rows = [*HubRows("owner/name", ["a", "b"], "short", "v1").rows(None)]
    assert requests == [("owner/name", "short", split, "v1") for split in "ab"]
    assert [(row.where, row.shard.name, row.shard.format, row.value) for row in rows] == [
        (f"owner/name/{split}, row {number}", split, "hub", ROWS[number - 1])
        for split in "ab" for number in (1, 2)
    ]  # fmt: skip
    source = HubCorpus(name="x", path="owner/name", config="long", split="test", text="question")
    monkeypatch.setattr(HubCorpus, "_commit", COMMIT)
    documents = list(source.documents())
    assert requests[2:] == [("owner/name", "long", "test", COMMIT)]
    digest = hashlib.sha256(ROWS[0]["question"].encode()).hexdigest()
    assert documents[0].document_id == f"x-{digest[:16]}"
    with pytest.raises(
        DataError, match=r"^owner/name, row 1: missing field \(no 'text'; its fields"
    ):
        list(HubCorpus(name="x", path="owner/name").documents())


def test_the_hubs_sources_are_found_at_any_depth():
    targets = [f"contamination.data.readers.hub.{name}" for name in ("HubRows", "HubCorpus")]
    nodes = [{"_target_": target, "path": target} for target in targets]
    file_node = {"_target_": "contamination.data.readers.files.FileRows", "path": "x"}
    tree = {"a": [file_node, {"b": (nodes[0],)}], "c": {**nodes[1], "inner": nodes[0]}, "d": "text"}
    assert [*hub_nodes(tree)] == [nodes[0], tree["c"], nodes[0]]
    assert [*hub_nodes([file_node, None])] == []


def test_streamed_rows_are_not_copied_into_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in ROWS))
    assert list(stream_split(str(tmp_path / "rows"), None, "train", None)) == ROWS
    assert not [*tmp_path.rglob("*.arrow")]
    download_split(str(tmp_path / "rows"), None, "train", None)
    assert [*tmp_path.glob("cache/**/*.arrow")]


def test_fetched_files_are_found_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert hub.cached_snapshot("owner/name") is None
    place = tmp_path / "models--owner--name"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(COMMIT)
    (place / "snapshots" / COMMIT).mkdir(parents=True)
    assert hub.cached_snapshot("owner/name") == place / "snapshots" / COMMIT
    assert hub.cached_snapshot("owner/name", kind="dataset") is None
