"""Readers of text files: formats, encodings, columns and their errors."""

import gzip
import json
import logging
import os
import random
import tracemalloc
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard

from contamination.core.config import CONF, instantiate_node
from contamination.core.errors import ConfigError, DataError
from contamination.data.readers import Document
from contamination.data.readers.embedded import EmbeddedCorpus, EmbeddedRows
from contamination.data.readers.files import FileRows, FilesCorpus
from contamination.data.readers.hub import HubCorpus, HubRows
from contamination.data.readers.mixture import check_weights, interleave_by_weight
from contamination.data.readers.reshape import (
    AcceptedAnswers,
    Alternatives,
    Chain,
    Extract,
    MultipleChoice,
    with_letters,
)
from contamination.data.readers.rows import Row, Shard, Tally


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def rows_of(n, **fields):
    return [{"text": f"document {i} ünï", "meta": {"source": "ab"[i % 2]}, **fields}
            for i in range(n)]  # fmt: skip


def corpus(paths, **options):
    return FilesCorpus(name="mine", paths=str(paths), **options)


def values(rows, on_error="stop"):
    """The rows' columns; under skip also what was left out."""
    tally = Tally(on_error, "benchmark.mine.on_error")
    found = [row.value for row in rows.rows(tally)]
    return found if on_error == "stop" else (found, tally.skipped)


def texts(source):
    return [document.text for document in source.documents()]


@pytest.fixture
def write(tmp_path):
    def written(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return written


def pack(name, content):
    if name.endswith(".gz"):
        return gzip.compress(content, mtime=0)
    if name.endswith(".zst"):  # two frames, as tools that append or split write them
        half = len(content) // 2
        return b"".join(zstandard.compress(part) for part in (content[:half], content[half:]))
    return content


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.json.gz.x.jsonl.zst"])
def test_json_lines(write, tmp_path, name):
    write(f"sub/{name}", pack(name, b"\xef\xbb\xbf" + jsonl(rows_of(7)).replace(b"\n", b"\r\n\n")))
    documents = list(corpus(tmp_path, subset="meta.source").documents())
    assert [d.text for d in documents] == [r["text"] for r in rows_of(7)]
    assert [d.subset for d in documents] == list("abababa")
    assert documents[1].document_id == f"sub/{name}:3"  # lines as an editor numbers them
    assert [d.subset for d in corpus(tmp_path, subset="@folder").documents()] == ["sub"] * 7
    assert [d.subset for d in corpus(tmp_path).documents()] == ["mine"] * 7


def test_parquet_and_text_and_csv(write, tmp_path):
    table = pa.Table.from_pylist(rows_of(600, key=5, extra=[1]))
    pq.write_table(table, tmp_path / "b.parquet", row_group_size=250)
    write("a.csv", b'key,text\n1,"two\nlines, quoted"\n2,plain\n')
    write("c/d.txt", b"a whole\nfile")
    write("notes.yaml", b"not data")
    documents = list(corpus(tmp_path).documents())
    assert [d.document_id for d in documents[:3]] == ["a.csv:1", "a.csv:2", "b.parquet:1"]
    assert documents[0].text == "two\nlines, quoted"
    assert [d.text for d in documents[2:-1]] == table["text"].to_pylist()
    assert (documents[-1].document_id, documents[-1].text) == ("c/d.txt", "a whole\nfile")
    ids = [d.document_id for d in corpus(tmp_path / "a.csv", id="key").documents()]
    assert ids == ["1", "2"]
    nested = corpus(tmp_path / "b.parquet", subset="meta.source").documents()
    assert Counter(d.subset for d in nested) == {"a": 300, "b": 300}


def test_a_folder_of_text_of_any_suffix(write, tmp_path):
    for name in ("b.py", "a/x.rst", ".git/config"):
        write(name, name.encode())
    assert texts(corpus(tmp_path, format="text")) == ["a/x.rst", "b.py"]


def test_the_order_and_the_ids_do_not_depend_on_how_the_files_are_named(write, tmp_path):
    for name in ("b/2.jsonl", "a/9.jsonl", "a/10.jsonl"):
        write(name, jsonl([{"text": name}]))
    want = ["a/10.jsonl:1", "a/9.jsonl:1", "b/2.jsonl:1"]
    for paths in (tmp_path, tmp_path / "**/*.jsonl", tmp_path / "*/*.jsonl"):
        assert [d.document_id for d in corpus(paths).documents()] == want
    both = FilesCorpus(name="x", paths=[str(tmp_path / "b"), str(tmp_path / "a")])
    assert texts(both) == ["a/10.jsonl", "b/2.jsonl", "a/9.jsonl"]
    assert corpus(tmp_path).fingerprint() == corpus(tmp_path / "*/*.jsonl").fingerprint()
    write("b/2.jsonl", jsonl([{"text": "longer than before"}]))
    assert corpus(tmp_path).fingerprint() != both.fingerprint()


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.csv", "a.txt"])
def test_files_are_known_by_their_content(write, tmp_path, name):
    """Not by size or time; a name is part of the documents' ids."""
    path = write(f"in/{name}", b"one")
    before, was = corpus(tmp_path / "in").fingerprint(), path.stat()
    os.utime(path, ns=(0, 0))
    assert corpus(tmp_path / "in").fingerprint() == before
    write(f"in/{name}", b"two")
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert path.stat().st_mtime_ns == was.st_mtime_ns
    assert corpus(tmp_path / "in").fingerprint() != before
    write(f"in/{name}", b"one")
    assert corpus(tmp_path / "in").fingerprint() == before
    path.rename(path.with_name(f"b{name}"))
    assert corpus(tmp_path / "in").fingerprint() != before


def test_a_link_to_another_folder_is_another_corpus(write, tmp_path):
    write("one/a.jsonl", jsonl([{"text": "one"}]))
    write("two/a.jsonl", jsonl([{"text": "two"}]))
    (tmp_path / "now").symlink_to("one")
    before = corpus(tmp_path / "now").fingerprint()
    assert before == corpus(tmp_path / "one").fingerprint()
    (tmp_path / "now").unlink()
    (tmp_path / "now").symlink_to("two")
    assert corpus(tmp_path / "now").fingerprint() == corpus(tmp_path / "two").fingerprint()
    assert corpus(tmp_path / "now").fingerprint() != before


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"paths": "nowhere"}, "corpus.paths is 'nowhere': there is no file"),
        ({"paths": None}, "corpus.paths is None: give a file"),
        ({"paths": "{tmp}/*.xyz"}, "Name it with corpus.format=jsonl|"),
        ({"paths": ["{tmp}/a/1.jsonl", "{tmp}/b/1.jsonl"]}, "the same ids"),
        ({"paths": "{tmp}/a", "format": "jsonlines"}, "corpus.format is 'jsonlines'"),
        ({"paths": "{tmp}/a", "on_error": "ignore"}, "corpus.on_error is 'ignore'"),
        ({"paths": "{tmp}/a", "encoding_errors": "x"}, "corpus.encoding_errors is 'x'"),
        ({"paths": "{tmp}/a", "weights": {"a": 1}}, "corpus.subset is None"),
        (
            {"paths": "{tmp}", "subset": "@folder", "weights": {"c": 1}},
            "corpus.weights.c is 1: no such folder with files in corpus.paths. Known: a, b, mine",
        ),
        ({"paths": "{tmp}/a", "subset": "s", "weights": {"a": 0}}, "corpus.weights.a is 0"),
    ],
)
def test_impossible_options_are_refused(write, tmp_path, options, match):
    for name in ("a/1.jsonl", "b/1.jsonl", "c.jsonl", "odd.xyz"):
        write(name, jsonl(rows_of(1)))
    paths = options["paths"]
    filled = ([p.format(tmp=tmp_path) for p in paths] if isinstance(paths, list)
              else paths and paths.format(tmp=tmp_path))  # fmt: skip
    node = {"_target_": "contamination.data.readers.files.FilesCorpus", "name": "mine", **options}
    with pytest.raises(ConfigError, match=match):
        instantiate_node("corpus", {**node, "paths": filled})


GOOD = b'{"text": "good"}\n'
BAD = {
    "line is not JSON": b'{"text": \n',
    "line is not an object": b"[1]\n",
    "invalid UTF-8": b'{"text": "\xff"}\n',
    "missing field": b'{"txt": "x"}\n',
    "text is not a string": b'{"text": 3}\n',
    "number too large": b'{"text": "x", "quality": 1e400}\n',
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_lines_stop_or_are_counted(write, reason):
    path = write("a.jsonl", GOOD + BAD[reason] + GOOD)
    with pytest.raises(DataError, match=rf"a.jsonl, row 2: {reason}.*corpus.on_error=skip"):
        texts(corpus(path))
    source = corpus(path, on_error="skip")
    assert texts(source) == ["good", "good"]
    assert source.skipped == {reason: 1}
    assert texts(source) == ["good", "good"]
    assert source.skipped == {reason: 1}  # of the latest stream, not of all


def test_null_and_half_surrogates_are_bad_and_empty_is_skipped(write):
    content = b'{"text": null}\n{"text": "\\ud800x"}\n{"text": " \\n"}\n' + GOOD
    source = corpus(write("a.jsonl", content), on_error="skip")
    assert texts(source) == ["good"]
    assert source.skipped == {"null field": 1, "invalid UTF-8": 1, "empty document": 1}
    stop = corpus(write("b.jsonl", b'{"text": ""}\n' + GOOD))
    assert texts(stop) == ["good"]
    assert stop.skipped == {"empty document": 1}


def test_invalid_bytes_can_be_replaced(write):
    path = write("a.jsonl", b'{"text": "a\xffb"}\n{"text": "\\ud800"}\n')
    assert texts(corpus(path, encoding_errors="replace")) == ["a\ufffdb", "?"]
    assert texts(corpus(path, encoding_errors="ignore")) == ["ab"]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
@pytest.mark.parametrize("damage", ["cut", "garbled", "not packed"])
def test_corrupt_shards_stop_or_are_counted(write, tmp_path, name, damage):
    packed = pack(name, jsonl(rows_of(5_000)))
    middle = len(packed) * 3 // 4
    broken = {"cut": packed[:middle], "not packed": jsonl(rows_of(9)),
              "garbled": packed[:middle] + b"\xa5" * 40 + packed[middle + 40 :]}  # fmt: skip
    write(name, broken[damage])
    write("b.jsonl", GOOD)
    # Garbled gzip may pass as text until the checksum at its end: a line can be first to fail.
    reason = "unreadable shard|line is not" if damage == "garbled" else "unreadable shard"
    with pytest.raises(DataError, match=rf"{name}.*: ({reason}) .*on_error=skip"):
        texts(corpus(tmp_path))
    source = corpus(tmp_path, on_error="skip")
    kept = texts(source)
    assert kept[-1] == "good"
    assert source.skipped["unreadable shard"] == 1
    if damage != "garbled":
        assert kept[:-1] == [r["text"] for r in rows_of(5_000)][: len(kept) - 1]


def test_corrupt_parquet_stops_or_is_counted(write, tmp_path):
    raw = pa.array([b"fine", b"\xff\xfe", b"too"])
    column = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    write("b.parquet", b"PAR1 nothing")
    source = corpus(tmp_path, on_error="skip")
    assert texts(source) == ["fine", "too"]
    assert source.skipped == {"invalid UTF-8": 1, "unreadable shard": 1}
    with pytest.raises(DataError, match="a.parquet, row 2: invalid UTF-8"):
        texts(corpus(tmp_path))
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="a.parquet, row 1: missing field .*fields are body"):
        texts(corpus(tmp_path))


def test_a_text_file_that_is_no_utf8_is_named(write, tmp_path):
    write("a.txt", b"caf\xe9")
    with pytest.raises(DataError, match=r"a\.txt, row 1: invalid UTF-8"):
        texts(corpus(tmp_path))


def test_memory_does_not_grow_with_the_file(write):
    def peak(documents):
        rng = random.Random(0)
        lines = jsonl({"text": f"{rng.getrandbits(4_000):x}"} for _ in range(documents))
        path = write("a.jsonl.zst", zstandard.compress(lines))
        tracemalloc.start()
        assert sum(1 for _ in corpus(path).documents()) == documents
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(100)
    assert peak(8_000) < 2 * peak(2_000) < 6e6  # four times the file


WEIGHTS = {"a": 0.7, "b": 0.2, "c": 0.1}


@pytest.mark.parametrize("subset", ["@folder", "kind"])
def test_every_prefix_has_the_weights_shares(write, tmp_path, subset):
    for kind in "abcd":
        write(f"{kind}/1.jsonl", jsonl({"text": "x" * (17 * i % 60 + 1), "kind": kind}
                                       for i in range(1, 400)))  # fmt: skip
    source = corpus(tmp_path, subset=subset, weights=WEIGHTS)
    read, stream = Counter(), source.documents()
    while max(read.values(), default=0) < 11_000:
        document = next(stream)
        read[document.subset] += len(document.text)
        total = sum(read.values())
        for kind, share in WEIGHTS.items():
            assert abs(read[kind] - share * total) <= 60 / min(WEIGHTS.values()) * share
    assert set(read) == set(WEIGHTS)
    again = [d.document_id for d in corpus(tmp_path, subset=subset, weights=WEIGHTS).documents()]
    assert again == [d.document_id for d in source.documents()]
    assert len(again) == len(set(again)) == 3 * 399


def test_a_used_up_subset_is_said_once_and_the_others_go_on(write, tmp_path, caplog):
    write("a/1.jsonl", jsonl({"text": "xx"} for _ in range(50)))
    write("b/1.jsonl", GOOD * 3 + BAD["line is not JSON"])
    source = corpus(tmp_path, subset="@folder", weights={"a": 1, "b": 1}, on_error="skip")
    with caplog.at_level(logging.WARNING):
        assert len(texts(source)) == 53
    assert [r.message for r in caplog.records if "used up" in r.message] == [caplog.messages[0]]
    assert "subset b is used up after 12 characters" in caplog.messages[0]
    assert source.skipped == {"line is not JSON": 1}


def test_rows_that_several_readers_skip_are_counted_once(write):
    content = b"".join(jsonl([{"text": "x", "k": k}]) for k in "abab") + BAD["line is not JSON"]
    source = corpus(write("a.jsonl", content), subset="k", weights={"a": 1, "b": 3},
                    on_error="skip")  # fmt: skip
    assert len(texts(source)) == 4
    assert source.skipped == {"line is not JSON": 1}


def test_weights_are_finite_numbers_above_0_of_some_subsets():
    remedy = "give a number above 0, or leave the subset out."
    for weight in (0, -1, float("nan"), float("inf"), "1", None):
        with pytest.raises(ConfigError) as error:
            check_weights({"a": 1, "b": weight})
        assert str(error.value) == f"corpus.weights.b is {weight!r}: {remedy}"
    with pytest.raises(ConfigError) as error:
        check_weights({})
    assert str(error.value) == "corpus.weights is {}: name a subset, or give null."
    check_weights({"a": 0.001, "b": 10**6})


def test_the_subset_that_is_furthest_behind_is_next_and_equals_go_by_name(caplog):
    def stream(name, *sizes):
        return iter([Document(f"{name}{i}", name, "x" * size) for i, size in enumerate(sizes)])

    def all_streams(**changed):
        streams = {"b": stream("b", 2, 2, 2), "a": stream("a", 2, 1), "c": stream("c", 4)}
        return {**streams, **changed}

    weights = {"a": 1, "b": 1, "c": 2}
    ids = [document.document_id for document in interleave_by_weight(all_streams(), weights)]
    assert ids == ["a0", "b0", "c0", "a1", "b1", "b2"]
    assert caplog.messages == [
        "corpus: the subset c is used up after 4 characters; the others continue, so the shares "
        "differ from corpus.weights"
    ]
    caplog.clear()
    assert len(list(interleave_by_weight({"b": stream("b", 1500)}, {"b": 0.5}))) == 1
    assert not caplog.messages  # there is no other subset
    with pytest.raises(DataError) as error:
        list(interleave_by_weight(all_streams(c=stream("c")), weights))
    assert str(error.value) == (
        "corpus.weights names the subset 'c', which has no documents: fix the name, or leave it "
        "out of corpus.weights."
    )


def test_a_file_has_the_subsets_that_it_may_have_and_at_most_its_size(write, tmp_path):
    rows = [{"text": f"{kind} {number}", "kind": kind} for number in range(2) for kind in "abc"]
    for name in ("a/1.jsonl", "b/1.jsonl", "c.jsonl"):
        write(name, jsonl(rows))
    size = len(jsonl(rows))
    by_folder = corpus(tmp_path, subset="@folder", weights={"a": 1, "mine": 2})
    assert [shard.name for shard in by_folder.shards] == ["a/1.jsonl", "b/1.jsonl", "c.jsonl"]
    assert [by_folder.subsets_in(shard) for shard in by_folder.shards] == [{"a"}, set(), {"mine"}]
    by_kind = corpus(tmp_path, subset="kind", weights={"a": 1, "b": 2})
    assert [by_kind.subsets_in(shard) for shard in by_kind.shards] == [{"a", "b"}] * 3
    texts_of_kinds = [document.text for document in by_kind.documents_in(by_kind.shards[1])]
    assert texts_of_kinds == ["a 0", "b 0", "a 1", "b 1"]
    assert by_kind.max_text_bytes() == 3 * size
    assert corpus(tmp_path).subsets_in(by_kind.shards[0]) == set()
    write("d.jsonl.gz", gzip.compress(b"{}"))
    assert corpus(tmp_path).max_text_bytes() is None
    (tmp_path / "d.jsonl.gz").unlink()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "e.parquet")
    assert corpus(tmp_path).max_text_bytes() is None


def test_a_row_without_its_subset_or_its_id_is_bad(write):
    path = write("a.jsonl", jsonl([{"text": "x", "k": None, "i": 7}, {"text": "y", "i": None}]))
    for options, message in (
        ({"subset": "k"}, r"row 1: null field \('k' is null\)"),
        ({"subset": "n.k"}, r"row 1: missing field \(no 'n.k'; its fields are text, k, i\)"),
        ({"id": "i"}, r"row 2: null field \('i' is null\)"),
        ({"text": "i"}, r"row 1: text is not a string \('i' is a int\)"),
    ):
        with pytest.raises(DataError, match=message):
            texts(corpus(path, **options))
        source = corpus(path, **options, on_error="skip")
        assert len(texts(source)) == (1 if "id" in options else 0)
        assert source.skipped.total() == 2 - ("id" in options)


def test_a_subset_without_documents_is_an_error(write):
    source = corpus(write("a.jsonl", jsonl([{"text": "x", "k": "a"}])), subset="k",
                    weights={"a": 1, "b": 1})  # fmt: skip
    with pytest.raises(DataError, match="subset 'b', which has no documents"):
        texts(source)


def test_file_rows(write, tmp_path):
    expected = [{"question": "Why?", "answer": "So,\nthere"}, {"question": "q", "answer": "a"}]
    write("q.csv", b'question,answer\nWhy?,"So,\nthere"\nq,a\n')
    write("q.tsv", b'question\tanswer\nWhy?\t"So,\nthere"\nq\ta\n')
    write("q.jsonl.gz", gzip.compress(jsonl(expected)))
    pq.write_table(pa.Table.from_pylist(expected), tmp_path / "q.parquet")
    for name in ("q.csv", "q.tsv", "q.jsonl.gz", "q.parquet"):
        assert values(FileRows(str(tmp_path / name))) == expected
    write("q.csv", b"question,answer\nonly\nq,a\nq,a,b\n")
    rows = FileRows(str(tmp_path / "q.csv"))
    with pytest.raises(DataError, match=r"q.csv, row 1: malformed CSV row.*mine.on_error=skip"):
        values(rows)
    assert values(rows, "skip") == (expected[1:], {"malformed CSV row": 2})
    with pytest.raises(ConfigError, match="rows.path is .*needs fields"):
        FileRows(str(write("q.txt", b"x")))


def test_embedded_weights_and_pool_shares():
    source = EmbeddedCorpus(weights={"book": 1, "law": 3})
    read = Counter()
    for document in source.documents():
        read[document.subset] += len(document.text)
        if read["book"] > 100_000:
            break
    assert read["law"] / read["book"] == pytest.approx(3, rel=0.3)
    news = EmbeddedCorpus(subsets=["common_crawl"])
    rows = values(EmbeddedRows("XSum/test.jsonl", ["document"], "document"))
    held = {row["document"].strip() for row in rows}
    corpus_texts = set(texts(news))
    assert not held & corpus_texts
    assert len(held) >= 200
    assert len(held | corpus_texts) == 999  # of 1,000 articles one is empty
    assert news.skipped == {"kept for a benchmark's pool": len(held), "empty document": 1}
    with pytest.raises(ConfigError, match="Did you mean law"):
        EmbeddedCorpus(weights={"laws": 1})
    with pytest.raises(ConfigError, match="corpus.subsets"):
        EmbeddedCorpus(subsets=["law"], weights={"book": 1})
    with pytest.raises(ConfigError, match="rows.pool_field"):
        EmbeddedRows("TruthfulQA/combined.jsonl", pool_field="question")


def test_the_hub_reads_a_folder_and_says_what_is_wrong(write, tmp_path):
    write("train.jsonl", jsonl([*rows_of(3), {"text": " ", "meta": {"source": "a"}}]))
    source = HubCorpus(name="hub", path=str(tmp_path), subset="meta.source")
    documents = list(source.documents())
    assert [(d.text, d.subset) for d in documents] == [
        (r["text"], r["meta"]["source"]) for r in rows_of(3)
    ]
    assert source.skipped == {"empty document": 1}
    assert [r["text"] for r in values(HubRows(str(tmp_path), ["train"]))][:3] == texts(source)
    with pytest.raises(DataError, match="missing field .no 'body'; its fields are text, meta"):
        texts(HubCorpus(name="hub", path=str(tmp_path), text="body"))
    with pytest.raises(DataError, match="split 'test'.* can't be read"):
        values(HubRows(str(tmp_path), ["test"]))
    with pytest.raises(DataError, match="'nobody/nothing' .*corpus=embedded"):
        values(HubRows("nobody/nothing", ["train"]))


def test_a_hub_corpus_is_known_by_its_commit_and_read_at_it(monkeypatch, tmp_path):
    commits = ["c1", "c2", "c2"]
    asked, read = [], []

    def snapshot(name, **options):
        asked.append((name, options["repo_type"], options["revision"]))
        return str(tmp_path / "snapshots" / commits[len(asked) - 1])

    def load(path, config, split, revision):
        read.append(revision)
        return iter([{"text": "some"}])

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    monkeypatch.setattr("contamination.data.readers.hub.stream_split", load)
    one, two, three = (HubCorpus(name="hub", path="me/it", revision="main") for _ in commits)
    assert one.fingerprint() != two.fingerprint() == three.fingerprint()
    assert texts(one) == ["some"]
    assert one.fingerprint() == "c1"  # though the hub's is another by now
    assert (asked, read) == ([("me/it", "dataset", "main")] * 3, ["c1"])


def test_a_hub_corpus_that_nobody_can_name_is_refused():
    with pytest.raises(ConfigError, match="corpus.path is 'nobody/nothing': no such folder here"):
        HubCorpus(name="hub", path="nobody/nothing").fingerprint()


def test_a_local_folder_in_a_hubs_place_is_known_by_its_files(write, tmp_path):
    source = HubCorpus(name="hub", path=str(tmp_path))
    write("train.jsonl", jsonl([{"text": "one"}]))
    before = source.fingerprint()
    write("train.jsonl", jsonl([{"text": "two"}]))
    assert source.fingerprint() != before


class Rows(list):
    def rows(self, tally):
        shard = Shard(Path("mine.jsonl"), "mine.jsonl", "jsonl")
        return (Row(shard, number, value) for number, value in enumerate(self, 1))


# One row of each hub data set, in the columns of its card.
HUB_ROWS = {
    "google/boolq": {"question": "is it", "answer": True, "passage": "It -- It is."},
    "stanfordnlp/imdb": {"text": "Fine film.", "label": 1},
    "truthfulqa/truthful_qa": {
        "question": "Why?", "best_answer": "B", "correct_answers": ["A", "B"],
        "incorrect_answers": ["C", "D"],
    },
    "tau/commonsense_qa": {
        "question": "Where?", "answerKey": "B",
        "choices": {"label": list("ABCDE"), "text": ["bank", "mall", "c", "d", "e"]},
    },
    "dmayhem93/agieval-lsat": {
        "query": "Ann sits. Q: Who sits? Answer Choices: (A)Ann (B)Bob\nA: Among A through E, the "
        "answer is",
        "choices": ["(A)Ann", "(B)Bob", "(C)Cy", "(D)Di", "(E)Eve"], "gold": [1],
    },
    "RealTimeData/News_August_2023": {"maintext": "News.", "title": "T"},
}  # fmt: skip
FORMATTED = {
    "boolq": "It -- It is.\nQuestion: is it?\nAnswer: Yes",
    "imdb": "Fine film.\nSentiment: positive",
    "truthfulqa": "Question: Why?\nAnswer: A",
    "commonsenseqa": "Question: Where?\nA. bank\nB. mall\nC. c\nD. d\nE. e\nAnswer: B. mall",
    "lsat": "Ann sits.\nWho sits?\nA. Ann\nB. Bob\nC. Cy\nD. Di\nE. Eve\nAnswer: B. Bob",
    "news": "News.",
}


@pytest.mark.parametrize("name", FORMATTED)
def test_hub_rows_read_like_embedded_rows(monkeypatch, name):
    from contamination.data.config import BenchmarkConfig
    from contamination.injection.pool import ReadCounts, _iter_distinct_examples

    known = {key.rstrip("-"): row for key, row in HUB_ROWS.items()}
    monkeypatch.setattr(
        "contamination.data.readers.hub.stream_split",
        lambda path, *_: iter([next(r for k, r in known.items() if path.startswith(k))]),
    )
    config = BenchmarkConfig(
        **yaml.safe_load((CONF / "benchmark" / f"{name}.yaml").read_text())[name]
    )
    for kind in ("hub", "embedded"):
        source = config.sources[kind]
        tally = Tally("stop", "")
        rows = instantiate_node(kind, source["rows"]).rows(tally)
        example = next(_iter_distinct_examples(name, config, source, rows, tally, ReadCounts()))
        if kind == "hub":
            assert example.text == FORMATTED[name]
            assert name != "truthfulqa" or example.fields["options"] == "A\nC\nD"
        elif name in ("commonsenseqa", "lsat"):
            assert example.fields["answer"] in example.fields["options"].split("\n")
            assert example.fields["options"].startswith("A. ")


def test_reshaped_rows_say_what_is_wrong():
    with pytest.raises(DataError, match=r"row 1: missing field \(no 'choices'.*mine.on_error=skip"):
        values(MultipleChoice(Rows([{"x": 1}]), "choices", "gold"))
    for gold in (7, "F", "", None, -1, []):
        rows = MultipleChoice(Rows([{"c": ["x", "y"], "gold": gold}]), "c", "gold")
        with pytest.raises(DataError, match="row 1: (no such choice|null field) .'gold' is"):
            values(rows)
        assert values(rows, "skip")[1].total() == 1
    for choices, why in (
        (["x", None, "z"], "null field .entry 1 of 'c' is None"),
        (["x", " ", "z"], "empty field .entry 1 of 'c'"),
        ("xyz", "not a list .'c' is 'xyz'"),
    ):
        rows = Rows([{"c": choices, "gold": 0, "r": ["a"]}])
        for reshaped in (MultipleChoice(rows, "c", "gold"), Alternatives(rows, "r", "c")):
            with pytest.raises(DataError, match=f"row 1: {why}"):
                values(reshaped)
            assert values(reshaped, "skip")[1].total() == 1
    with pytest.raises(DataError, match="row 2: no match .'q' does not match"):
        values(Extract(Rows([{"q": "ab"}, {"q": "b"}]), "q", "(?P<first>a)"))
    right = [{"r": ["a"], "w": ["b"]}, {"r": None, "w": None}, {"r": ["c"], "w": None}]
    kept, skipped = values(Alternatives(Rows(right), "r", "w"), "skip")
    assert ([row["options"] for row in kept], skipped) == (["a\nb"], {"null field": 2})
    kept, skipped = values(AcceptedAnswers(Rows([{"a": ["x ", "y"]}, {"a": "x"}]), "a"), "skip")
    assert ([row["accepted"] for row in kept], skipped) == (["x\ny"], {"not a list": 1})
    with pytest.raises(ConfigError, match="not a regular expression"):
        Extract(Rows(), "q", "(")
    kept = values(MultipleChoice(Rows([{"c": ["A sharp", "flat"], "g": "A"}]), "c", "g"))
    assert kept[0]["options"] == "A. A sharp\nB. flat"
    assert with_letters([" (A)Ann ", "B) Bob", "C. c", "D: d"]) == [
        "A. Ann", "B. Bob", "C. c", "D. d"
    ]  # fmt: skip
    assert with_letters(["A. x", "y"]) == ["A. A. x", "B. y"]  # not all have their letters
    assert with_letters([]) == []
    lines = Rows([{"q": "one\ntwo", "n": 3}])
    assert values(Extract(lines, "q", "(?P<a>o.*)t(?P<b>w)")) == [
        {"q": "one\ntwo", "n": 3, "a": "one\n", "b": "w"}
    ]
    for key, answer in ((["1"], "B. y"), (" B ", "B. y"), ("0", "A. x"), ((1, 0), "B. y")):
        rows = MultipleChoice(Rows([{"c": ["x", "y"], "g": key}]), "c", "g")
        assert values(rows)[0]["answer"] == answer
    with pytest.raises(DataError, match=r"no such choice \('g' is 'AB', but there are 2 choices\)"):
        values(MultipleChoice(Rows([{"c": ["x", "y"], "g": "AB"}]), "c", "g"))
    with pytest.raises(DataError, match=r"no such choice \('g' is 2, but there are 2 choices\)"):
        values(MultipleChoice(Rows([{"c": ["x", "y"], "g": 2}]), "c", "g"))
    no_choices_and_no_gold = Rows([{"c": "xyz"}])  # counted once
    rows = MultipleChoice(no_choices_and_no_gold, "c", "g")
    assert values(rows, "skip") == ([], {"not a list": 1})
    chained = Chain([MultipleChoice(Rows([{"c": "x", "g": 0}]), "c", "g"), Rows([{"a": 1}])])
    assert values(chained, "skip") == ([{"a": 1}], {"not a list": 1})
    assert values(Chain([Rows([{"a": 1}]), Rows([{"a": 2}])])) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("name", sorted(p.stem for p in (CONF / "corpus").glob("*.yaml")))
def test_every_corpus_file_names_what_its_class_takes(write, tmp_path, name):
    for folder in ("common_crawl", "c4", "github", "arxiv", "wikipedia", "stackexchange"):
        write(f"{folder}/1.jsonl", GOOD)
    node = yaml.safe_load((CONF / "corpus" / f"{name}.yaml").read_text())
    source = instantiate_node(
        "corpus", {**node, **({"paths": str(tmp_path)} if "paths" in node else {})}
    )
    assert source.name
    if "paths" in node:
        assert len(texts(source)) == 6
        with pytest.raises(ConfigError, match="corpus.paths"):
            instantiate_node("corpus", node)
