"""What the hub's caches hold is found and read without a network, in caches of their own."""

import json
import os
import shutil

import datasets
import pytest

from contamination.core import hub
from contamination.core.errors import DataError
from contamination.data.readers.hub import download_split, is_data_set_cached, stream_split

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
