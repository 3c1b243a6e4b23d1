"""What files hold: digests that are remembered, and when they must not be."""

import hashlib
import json
import os
import threading
import time
from pathlib import Path

import pytest

from contamination.core import hashing as hashing_module
from contamination.core import process_records
from contamination.core.errors import DataError
from contamination.core.hashing import (
    MIN_CACHED_BYTES,
    combined_digest,
    digests_by_name,
    file_digest,
    file_digests_of_folder,
)

OLD = 10 * 10**9  # nanoseconds


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own place for what is remembered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "contamination-testbed" / "digests"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are really hashed, from now on."""
    read: list[str] = []
    whole = hashing_module._hash_file

    def hashing(path: Path, *options: object) -> str:
        read.append(path.name)
        return whole(path, *options)  # type: ignore[arg-type]

    monkeypatch.setattr(hashing_module, "_hash_file", hashing)
    return read


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ten seconds later than the files' change times say."""
    now = time.time_ns
    monkeypatch.setattr(hashing_module.time, "time_ns", lambda: now() + OLD)


def large(path: Path, fill: bytes = b"a") -> Path:
    path.write_bytes(fill * MIN_CACHED_BYTES)
    return path


def until_the_clock_has_ticked(path: Path) -> None:
    """A file that is changed from now on has another change time than `path`."""
    probe = path.with_name("probe")
    while True:
        probe.touch()
        if probe.stat().st_ctime_ns > path.stat().st_ctime_ns:
            return


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_large_file_is_read_once(tmp_path, reads, later):
    path = large(tmp_path / "model")
    assert file_digest(path) == file_digest(path) == sha256(path)
    assert reads == ["model"]
    assert file_digest(path, use_cache=False) == sha256(path)
    assert reads == ["model", "model"]


def test_a_small_file_is_always_read(tmp_path, reads, later, cache):
    path = tmp_path / "rows"
    path.write_bytes(b"a" * (MIN_CACHED_BYTES - 1))
    assert file_digest(path) == file_digest(path) == sha256(path)
    assert reads == ["rows", "rows"]
    assert not cache.exists()


def test_what_is_read_anew_is_not_remembered(tmp_path, later, cache):
    file_digest(large(tmp_path / "checkpoint"), use_cache=False)
    assert not cache.exists()


def test_a_change_of_the_same_size_and_time_is_seen(tmp_path, later):
    path = large(tmp_path / "corpus")
    before, was = file_digest(path), path.stat()
    until_the_clock_has_ticked(path)
    large(path, b"b")
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    now = path.stat()
    assert (now.st_size, now.st_mtime_ns) == (was.st_size, was.st_mtime_ns)
    assert file_digest(path) == sha256(path) != before


def test_a_file_put_in_the_place_of_another_is_seen(tmp_path, later):
    path, other = large(tmp_path / "corpus"), large(tmp_path / "other", b"b")
    before, was = file_digest(path), path.stat()
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    other.replace(path)
    assert file_digest(path) == sha256(path) != before


def test_a_link_to_another_file_is_seen(tmp_path, reads, later):
    one, two, link = large(tmp_path / "one"), large(tmp_path / "two", b"b"), tmp_path / "link"
    link.symlink_to(one)
    assert file_digest(link) == file_digest(one)
    link.unlink()
    link.symlink_to(two)
    assert file_digest(link) == sha256(two)
    assert reads == ["link", "link"]  # the file itself was known by its link


def test_a_touched_file_is_read_again_and_has_the_same_digest(tmp_path, reads, later):
    path = large(tmp_path / "corpus")
    before = file_digest(path)
    until_the_clock_has_ticked(path)
    os.utime(path, ns=(0, 0))
    assert file_digest(path) == before
    assert len(reads) == 2


def test_a_file_that_was_changed_just_now_is_not_remembered(tmp_path, reads, cache):
    path = large(tmp_path / "fresh")
    os.utime(path, ns=(0, 0))  # its change time tells
    file_digest(path)
    assert not cache.exists()


def test_a_file_from_the_future_is_not_remembered(tmp_path, later, cache):
    path = large(tmp_path / "fresh")
    os.utime(path, ns=(0, time.time_ns() + 10**12))
    file_digest(path)
    assert not cache.exists()


@pytest.mark.parametrize("field", ["size", "mtime_ns", "ctime_ns", "inode", "path", "time_ns"])
def test_a_record_of_another_file_or_time_is_not_trusted(field, tmp_path, reads, later, cache):
    path = large(tmp_path / "corpus")
    file_digest(path)
    (place,) = cache.iterdir()
    record = json.loads(place.read_text())
    if field == "time_ns":
        forged = record["ctime_ns"]
    else:
        forged = "/elsewhere" if field == "path" else record[field] + 1
    place.write_text(json.dumps({**record, field: forged, "sha256": "0" * 64}))
    assert file_digest(path) == sha256(path)
    assert len(reads) == 2


@pytest.mark.parametrize(
    "garbled", [b"", b"{", b"\xff", b"[]", b"null", b'{"sha256": "0"}', b"\x00" * 4096, None]
)
def test_a_garbled_record_is_no_record(garbled, tmp_path, later, cache):
    path = large(tmp_path / "corpus")
    file_digest(path)
    (place,) = cache.iterdir()
    whole = json.loads(place.read_text())
    place.write_bytes(json.dumps({**whole, "sha256": "x"}).encode() if garbled is None else garbled)
    assert file_digest(path) == sha256(path)
    assert json.loads(place.read_text())["sha256"] == sha256(path)


def test_a_place_that_cannot_be_written_costs_time_alone(tmp_path, reads, later):
    (tmp_path / "cache").write_text("a file where the folder should be")
    path = large(tmp_path / "corpus")
    assert file_digest(path) == file_digest(path) == sha256(path)
    assert len(reads) == 2


def test_a_full_disk_leaves_no_record(tmp_path, later, cache, monkeypatch):
    def full(self, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    path = large(tmp_path / "corpus")
    assert file_digest(path) == sha256(path)


@pytest.mark.parametrize("given", ["", "relative"])
def test_the_default_place_is_below_the_home_folder(given, tmp_path, later, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    file_digest(large(tmp_path / "corpus"))
    assert len(list((tmp_path / "home/.cache/contamination-testbed/digests").iterdir())) == 1


def changing(monkeypatch: pytest.MonkeyPatch, path: Path, times: int) -> None:
    """The file grows while it is read, so many times."""
    state, left = hashing_module._file_state, [times]

    def grown(stream: object) -> object:
        found = state(stream)  # type: ignore[arg-type]
        if left[0]:
            left[0] -= 1
            with path.open("ab") as more:
                more.write(b"more")
        return found

    monkeypatch.setattr(hashing_module, "_file_state", grown)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "growing"
    path.write_bytes(b"a" * 100)
    changing(monkeypatch, path, times=100)
    with pytest.raises(DataError, match="growing changes while it is read"):
        file_digest(path, use_cache=False)


def test_a_file_that_has_changed_once_is_read_again(tmp_path, monkeypatch):
    path = tmp_path / "grown"
    path.write_bytes(b"a" * 100)
    changing(monkeypatch, path, times=1)
    assert file_digest(path, use_cache=False) == sha256(path)
    assert path.stat().st_size == 104


def test_a_folder_has_its_files_by_name(tmp_path, reads, later):
    (tmp_path / "data/in").mkdir(parents=True)
    large(tmp_path / "data/in/weights")
    (tmp_path / "data/config").write_text("{}")
    found = file_digests_of_folder(tmp_path / "data")
    assert found == {
        "config": hashlib.sha256(b"{}").hexdigest(),
        "in/weights": hashlib.sha256(b"a" * MIN_CACHED_BYTES).hexdigest(),
    }
    whole = hashing_module.folder_digest(tmp_path / "data")
    assert whole == combined_digest(found) == combined_digest(dict(reversed(found.items())))
    assert sorted(reads) == ["config", "config", "weights"]
    (tmp_path / "data/config").rename(tmp_path / "data/in/config")
    assert (
        hashing_module.folder_digest(tmp_path / "data") != whole
    )  # the same bytes by another name


def test_what_a_signal_leaves_is_gone_on_with(tmp_path, reads, later, monkeypatch):
    files = {str(n): large(tmp_path / f"shard{n}", b"%d" % n) for n in range(8)}
    monkeypatch.setattr(hashing_module, "THREADS", 1)
    hashing = hashing_module._hash_file

    def killed(path: Path, *options: object) -> str:
        if path.name == "shard5":
            raise KeyboardInterrupt
        return hashing(path, *options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(hashing_module, "_hash_file", killed)
        with pytest.raises(KeyboardInterrupt):
            digests_by_name(files)
    assert reads[:5] == [f"shard{n}" for n in range(5)]
    reads.clear()
    assert digests_by_name(files) == {name: sha256(path) for name, path in files.items()}
    assert set(reads).isdisjoint({f"shard{n}" for n in range(5)})


def test_hashing_ends_at_a_signal_within_a_block(tmp_path, monkeypatch):
    """The main thread is interrupted while others read: they do not read to the end."""
    reading, blocks = threading.Event(), []
    monkeypatch.setattr(hashing_module, "BLOCK_BYTES", 1)

    class Interrupted(dict):  # type: ignore[type-arg]
        def items(self):  # the results are asked for after the jobs were given out
            yield from super().items()
            assert reading.wait(10)
            raise KeyboardInterrupt

    hashing = hashing_module._hash_file

    def slowly(path: Path, remembered: bool, tell: object) -> str:
        def told(read: int) -> None:
            blocks.append(read)
            reading.set()
            time.sleep(1e-4)
            tell(read)  # type: ignore[operator]

        return hashing(path, remembered, told)

    monkeypatch.setattr(hashing_module, "_hash_file", slowly)
    path = large(tmp_path / "corpus")
    with pytest.raises(KeyboardInterrupt):
        hashing_module._hash_files(Interrupted(one=path), use_cache=False)
    assert 0 < len(blocks) < MIN_CACHED_BYTES / 2


def test_much_to_read_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(hashing_module, "MIN_PROGRESS_BYTES", 3 * MIN_CACHED_BYTES)
    process_records.set_records_folder(tmp_path)
    try:
        digests_by_name({"1": large(tmp_path / "1"), "2": large(tmp_path / "2")})
        assert process_records.read_progress(tmp_path) is None
        digests_by_name({n: large(tmp_path / n) for n in "123"})
        shown = process_records.read_progress(tmp_path)
    finally:
        process_records.set_records_folder(None)
    assert shown is not None
    assert (shown.title, shown.n, shown.total) == (
        "hashing",
        3 * MIN_CACHED_BYTES,
        3 * MIN_CACHED_BYTES,
    )
