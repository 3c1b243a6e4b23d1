"""Lines of any length: whole, in linear time, up to a stated length."""

import json

import numpy as np
import pytest

from contamination.core.errors import DataError
from contamination.data.readers import rows as rows_module
from contamination.data.readers.rows import (
    ReadOptions,
    Shard,
    Tally,
    describe_skipped,
    read_file,
)


class Counted(bytes):
    """A block that counts the bytes that were copied to put others before it."""

    copied = 0

    def __radd__(self, before):
        Counted.copied += len(before) + len(self)
        return bytes(before) + bytes(self)


def test_lines_are_those_of_split_wherever_blocks_end(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    whole = bytes(rng.choice([10, 97, 98], size=2000, p=[0.05, 0.5, 0.45]).astype(np.uint8))
    (tmp_path / "a").write_bytes(whole)
    for size in (1, 2, 7, 64, 5000):
        monkeypatch.setattr(rows_module, "BLOCK_BYTES", size)
        assert list(rows_module._iter_lines(tmp_path / "a")) == [
            *whole.split(b"\n")[:-1],
            *last(whole),
        ]


def last(whole):
    return [end] if (end := whole.rpartition(b"\n")[2]) else []


def test_a_long_line_is_not_copied_once_a_block(tmp_path, monkeypatch):
    blocks = [Counted(b"x" * 1000) for _ in range(500)]
    monkeypatch.setattr(rows_module, "_iter_decompressed_blocks", lambda path: iter(blocks))
    monkeypatch.setattr(Counted, "copied", 0)
    assert list(map(len, rows_module._iter_lines(tmp_path))) == [500_000]
    assert Counted.copied <= 500_000


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_a_line_beyond_the_limit_is_counted_and_the_rest_is_read(tmp_path, monkeypatch, format):
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", 16)
    monkeypatch.setattr(rows_module, "MAX_LINE_BYTES", 100)
    texts = ["one", "x" * 200, "three"]
    rows = texts if format == "csv" else [json.dumps({"text": text}) for text in texts]
    lines = ["text", *rows] if format == "csv" else rows
    (tmp_path / "a").write_text("\n".join(lines) + "\n")
    shard = Shard(tmp_path / "a", "a", format)
    tally = Tally("skip", "on_error")
    found = [row.value["text"] for row in read_file(shard, ReadOptions(tally))]
    assert found == ["one", "three"]
    assert tally.skipped == {"line too long": 1}
    with pytest.raises(DataError, match=r"a, (row|line) [23]: line too long \(more than 100 bytes"):
        list(read_file(shard, ReadOptions(Tally("stop", "on_error"))))


def test_a_limit_is_named_by_the_field_that_sets_it(tmp_path):
    (tmp_path / "a.jsonl").write_text('"' + "x" * 20 + '"\n["y"]\n3\n')
    shard = Shard(tmp_path / "a.jsonl", "a.jsonl", "jsonl")
    options = {"line_bytes": 21, "limit": "source.max_text_bytes"}
    with pytest.raises(DataError) as error:
        list(read_file(shard, ReadOptions(Tally("stop", "my.field"), **options)))
    assert str(error.value) == (
        f"{shard.path}, row 1: line too long (more than source.max_text_bytes=21 bytes). Fix it, "
        "or set my.field=skip to leave such input out and count it."
    )
    tally = Tally("skip", "my.field")
    rows = [*read_file(shard, ReadOptions(tally, bare="text", line_bytes=22))]
    assert [(row.number, row.value) for row in rows] == [
        (1, {"text": "x" * 20}), (2, {"text": ["y"]})
    ]  # fmt: skip
    assert describe_skipped(tally.skipped) == "skipped 1 × line is not an object"
    assert describe_skipped({"a": 2, "b": 1}) == "skipped 2 × a, 1 × b"
    assert describe_skipped({}) == ""


@pytest.mark.parametrize(
    ("error", "reason"),
    [(OSError(), "OSError()"), (OSError(" one\ntwo "), "one"), (EOFError("cut off"), "cut off")],
)
def test_a_file_that_cannot_be_read_says_why_in_a_line(tmp_path, monkeypatch, error, reason):
    def fail(shard, reading):
        raise error
        yield

    monkeypatch.setattr(rows_module, "READER_BY_FORMAT", {"csv": fail})
    with pytest.raises(DataError) as raised:
        list(read_file(Shard(tmp_path, "a", "csv"), ReadOptions(Tally("stop", "my.field"))))
    assert str(raised.value).startswith(
        f"{tmp_path}: unreadable shard ({reason}). Fix it, or set my"
    )


def test_a_quote_within_a_field_of_a_table_is_an_error(tmp_path):
    (tmp_path / "a.csv").write_text('text,label\n"a"b,1\n')
    shard = Shard(tmp_path / "a.csv", "a.csv", "csv")
    with pytest.raises(DataError, match=r"a\.csv: unreadable shard \(line 2: ',' expected"):
        list(read_file(shard, ReadOptions(Tally("stop", "my.field"))))


def test_items_are_grouped_up_to_a_size():
    groups = rows_module.group_by_size(["aa", "b", "ccc", "d", "e"], len, 3)
    assert [*groups] == [["aa", "b"], ["ccc"], ["d", "e"]]
    assert [*rows_module.group_by_size([], len, 3)] == []
