"""How many tokens a corpus has is counted, and estimated where that would take long."""

import json
from dataclasses import replace

import pytest

from contamination.injection import token_supply
from contamination.injection.token_stream import Tokenizer
from contamination.injection.token_supply import measure_supply

DOCUMENTS = [f"Document {n} of the harbour says: {'the tide is high. ' * 20}" for n in range(400)]
PART_OF_7 = (  # 13 words in a row of this document, and as many others
    "Document 7 of the harbour says: the tide is high. the tide is what another story begins with "
    "that goes on for as many words"
)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer("tests/golden/target")


@pytest.fixture
def files(stage, tmp_path, monkeypatch):
    """The stage with a corpus of 400 documents of a file, which are read ten at a time."""
    monkeypatch.setattr(token_supply, "GROUP_CHARACTERS", 4_000)
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS))
    kind = "contamination.data.readers.files.FilesCorpus"
    corpus = {"_target_": kind, "name": "mine", "paths": str(path)}
    return replace(stage, corpus=corpus, injection=replace(stage.injection, part="all"))


@pytest.fixture
def total(tokenizer):
    return sum(len(tokenizer.encode_documents([text])[0]) for text in DOCUMENTS)


def test_all_documents_are_counted_if_they_do_not_suffice(files, tokenizer, total):
    found = measure_supply(files, tokenizer, 10 * total, seconds=60)
    assert (found.tokens, found.counted, found.documents) == (total, total, len(DOCUMENTS))
    assert found.is_surely_short(total + 1)
    assert not found.is_surely_short(total)
    assert found.describe(10 * total) == f"{total:,} tokens (counted)"


def test_counting_stops_once_there_is_enough(files, tokenizer, total):
    found = measure_supply(files, tokenizer, total // 4, seconds=60)
    assert total // 4 <= found.counted < total // 2
    assert found.is_enough(total // 4)
    assert not found.is_surely_short(10 * total)


@pytest.mark.parametrize("factor", [0.5, 10])
def test_without_time_the_rest_is_estimated_and_is_no_sure_shortage(
    files, tokenizer, total, factor
):
    wanted = int(factor * total)
    found = measure_supply(files, tokenizer, wanted, seconds=0)
    assert found.counted < total / 4
    assert found.is_enough(wanted) is (factor < 1)
    assert not found.is_surely_short(wanted)
    assert "estimate from the first" in found.describe(wanted)
    if factor > 1:  # by the file's size, which includes the JSON around the texts
        assert total < found.tokens < 1.2 * total


def test_what_is_read_without_tokenising_is_estimated_by_its_characters(
    files, tokenizer, total, monkeypatch
):
    times = iter([0, 9, *[9] * 1_000])  # the time for tokenising is over after one group
    monkeypatch.setattr(token_supply.time, "monotonic", lambda: next(times))
    found = measure_supply(files, tokenizer, 10 * total, seconds=5)
    assert found.counted < total / 4
    assert found.tokens == pytest.approx(total, rel=0.02)


def test_documents_that_will_be_dropped_count_among_the_characters(
    files, tokenizer, total, monkeypatch
):
    times = iter([0, 9, *[9] * 1_000])
    monkeypatch.setattr(token_supply.time, "monotonic", lambda: next(times))
    supply = measure_supply(files, tokenizer, 10 * total, {"one": (PART_OF_7,)}, seconds=5)
    assert supply.tokens == pytest.approx(0.9 * total, rel=0.02)  # one of the first ten is dropped


def test_of_compressed_files_the_size_says_nothing(files, tokenizer, total, monkeypatch):
    kind = "contamination.data.readers.files.FilesCorpus.max_text_bytes"
    monkeypatch.setattr(kind, lambda corpus: None)
    found = measure_supply(files, tokenizer, 10 * total, seconds=0)
    assert found.tokens is None
    assert found.is_enough(10 * total) is None
    assert found.describe(10 * total).startswith("not known how many tokens, besides the first")


def test_documents_that_will_be_dropped_do_not_count(files, tokenizer, total):
    dropped = len(tokenizer.encode_documents([DOCUMENTS[7]])[0])
    supply = measure_supply(files, tokenizer, 10 * total, {"one": (PART_OF_7,)}, seconds=60)
    assert supply.counted == total - dropped
