"""The export of text: its lines against the documents' own texts, its ledger by plain slicing."""

import json
import logging
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contamination.core.artifacts import WrittenFiles, write_manifest
from contamination.injection.config import ExportStage
from contamination.injection.export.run import export_corpus, prove_finished_export
from contamination.injection.export.text_format import TextLines
from tests.injection.export import conftest
from tests.injection.export.conftest import COPIES, DOCUMENTS, EXAMPLES, SEPARATOR, node

KINDS = ["bytes", "bytes bos", "pieces", "pieces bos"]
TEXTS = {e[0]: e[1] for e in EXAMPLES}


def read(folder):
    lines = (folder / "documents.jsonl").read_bytes().decode().split("\n")
    assert lines.pop() == ""
    return [json.loads(line)["text"] for line in lines], pd.read_parquet(folder / "ledger.parquet")


def whole(kind):
    """Each document with its copies; a SentencePiece tokenizer puts a blank before each part."""
    blank = " " * kind.startswith("pieces")
    texts = [blank + document for document in DOCUMENTS]
    for number, place, example, _ in COPIES:
        copy = "".join(blank + part for part in (SEPARATOR, TEXTS[example], SEPARATOR))
        if place == 0:
            texts[number - 1] += copy
        else:
            at = place + len(blank)
            texts[number] = texts[number][:at] + copy + texts[number][at:]
    return texts


def sliced(folder):
    """What stands at the ledger's places, the parts of a copy joined."""
    lines, ledger = read(folder)
    found = {}
    for row in ledger.itertuples():
        assert 0 <= row.char_start <= row.char_end <= len(lines[row.line])
        key = row.example_id, row.copy
        found[key] = found.get(key, "") + lines[row.line][row.char_start : row.char_end]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_lines_are_the_documents_and_copies_stand_whole_in_them(exported, kind):
    corpus, made = exported("text", kind)
    lines, ledger = read(made.path)
    assert len(ledger) > len(COPIES)  # copies were split over sequences
    assert sliced(made.path) == {(e, copy): TEXTS[e] for _, _, e, copy in COPIES}
    if kind.endswith("bos"):
        *full, last = [text.removeprefix(" ") for text in whole(kind)]
        assert lines[:-1] == full
        assert last.startswith(lines[-1])  # the budget cut it
    else:
        assert "".join(whole(kind)).startswith("".join(lines))
        assert len(corpus.sequences) / 2 < len(lines) <= len(corpus.sequences)
    assert (made.counts["lost"], made.counts["elsewhere"]) == ({}, 1)
    assert made.counts["characters"] == sum(map(len, lines))
    assert "characters: all right" in str(prove_finished_export(made.path))


@pytest.mark.parametrize("kind", KINDS)
def test_a_character_that_a_copy_cuts_is_counted_and_said(exported, kind, caplog):
    copies = ((2, 0.5, "b", 0), (3, 0, "a", 0), (3, 4, "a", 1))  # the first one within a character
    with caplog.at_level(logging.WARNING):
        made = exported("text", kind, copies)[1]
    cut = sum(line.count("\ufffd") for line in read(made.path)[0])
    assert cut == (4 if kind.startswith("pieces") else 3)  # bytes of one character, or its halves
    assert made.counts["lost"] == {"characters that are U+FFFD, or cut": cut}
    assert f"differs from the corpus: {cut} × characters" in caplog.text
    assert "texts of the pool occur 1 times in documents" in caplog.text
    assert sliced(made.path) == {(e, copy): TEXTS[e] for _, _, e, copy in copies}


@pytest.mark.parametrize("kind", KINDS)
def test_no_line_ends_in_a_copy_whatever_the_blocks_are(kind, tmp_path, monkeypatch):
    """Short sequences, so that borders of blocks, copies and cut characters often meet."""
    tokenizer, rng = conftest.save_tokenizer(kind, tmp_path), np.random.default_rng(0)
    monkeypatch.setattr(conftest, "WIDTH", 4)
    ends = set()
    for run in range(16):
        monkeypatch.setattr(conftest, "SEPARATOR", SEPARATOR * (run // 4 % 2))
        place = rng.integers(3, 2 * len(DOCUMENTS[2]) - 4) / 2
        copies = [(2, 0.5, "b", 0), (2, place if place % 1 else int(place), "a", 0)]
        ids, owners = conftest.stream_of(tokenizer, copies)
        ids, owners = ids[run % 4 :][: len(ids) - 4], owners[run % 4 :][: len(ids) - 4]
        found = SimpleNamespace(
            tokenizer=tokenizer, sequence_tokens=4, ledger=conftest.ledger_of(owners),
            artifact=SimpleNamespace(counts={"tokens": len(ids)}),
        )  # fmt: skip
        cut = []
        for blocks in (1, 5, len(ids) // 4):
            parts = np.array_split(ids.reshape(-1, 4), blocks)
            found.iter_blocks = lambda parts=parts: iter(parts)
            lines = [*TextLines(found)]
            assert np.array_equal(np.concatenate([part for _, part in lines]), ids)
            cut.append([place for place, _ in lines])
        assert cut[0] == cut[1] == cut[2]
        for place in cut[0][1:]:
            assert owners[place] is None or owners[place] != owners[place - 1]
        ends |= {owners[place - 1] for place in cut[0][1:]}
    assert len(ends) > 1 or kind.endswith("bos")  # some lines end with a copy


@pytest.mark.parametrize("kind", ["bytes", "bytes bos"])
def test_a_special_token_in_a_copy_begins_no_line(kind, tmp_path, monkeypatch):
    text = "a <s> b"
    monkeypatch.setattr(conftest, "EXAMPLES", [("a", text, True, 1)])
    corpus = conftest.toy_corpus(tmp_path, kind, ((0, 21, "a", 0),))
    made = export_corpus(ExportStage(str(tmp_path), str(corpus.artifact.path), format=node("text")))
    assert sliced(made.path) == {("a", 0): "a  b"}
    words = "special tokens within a line", "copies whose text the tokenizer changes"
    assert made.counts["lost"] == dict.fromkeys(words, 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [" b a", "   b", "  "])
def test_a_text_that_begins_with_blanks_keeps_its_own(kind, text, tmp_path, monkeypatch):
    """Also behind the one that SentencePiece puts before it."""
    monkeypatch.setattr(conftest, "EXAMPLES", [("a", text, True, 1)])
    corpus = conftest.toy_corpus(tmp_path, kind, ((0, 21, "a", 0),))
    made = export_corpus(ExportStage(str(tmp_path), str(corpus.artifact.path), format=node("text")))
    assert sliced(made.path) == {("a", 0): text}


def test_texts_that_the_tokenizer_changes_are_counted(exported):
    made = exported("text", "lower case")[1]
    assert made.counts["lost"] == {"copies whose text the tokenizer changes": 2}  # those of `a`
    assert {*sliced(made.path).values()} == {TEXTS["a"].lower(), TEXTS["b"]}


def edited(change):
    def edit(folder):
        lines, ledger = read(folder)
        change(lines, ledger)
        text = "".join(json.dumps({"text": line}) + "\n" for line in lines)
        (folder / "documents.jsonl").write_text(text)
        ledger.to_parquet(folder / "ledger.parquet", index=False)

    return edit


def paste(lines, ledger):
    lines[-1] = lines[-1][: -len(TEXTS["c"])] + TEXTS["c"]


def spell(lines, ledger):
    row = ledger.iloc[0]
    lines[row.line] = lines[row.line].replace("A red", "A rad")


def shorten(lines, ledger):
    lines.pop()


def move(lines, ledger):
    ledger.loc[0, ["char_start", "char_end"]] += 1


EDITS = {
    spell: "a copy 0: line 0, characters",
    shorten: "characters, ",
    move: "differ from the example",
    paste: "2 texts of the pool besides the ledger's, but 1 were recorded",
}


@pytest.mark.parametrize("change", EDITS)
def test_what_was_edited_is_caught(exported, change, tmp_path):
    made = exported("text")[1]
    folder = Path(copytree(made.path, tmp_path / "export" / "edited"))
    edited(change)(folder)
    write_manifest(folder, made.inputs, WrittenFiles([*made.files], made.counts))
    failures = prove_finished_export(folder).failures
    assert any(EDITS[change] in line for line in failures), failures
