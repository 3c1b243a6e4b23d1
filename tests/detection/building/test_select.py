"""The selection of non-members with little n-gram overlap."""

import json
import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest

from contamination.core.cli import compose_stage
from contamination.core.errors import ConfigError, DataError
from contamination.core.task_runner import TaskRunner
from contamination.data.readers.files import FilesCorpus
from contamination.detection.building import datasheet
from contamination.detection.building.overlap_selection import (
    DocumentTexts,
    NgramSearch,
    PackedTexts,
    select_nonmembers,
)
from contamination.detection.config import SelectStage
from contamination.injection.token_stream import Tokenizer
from tests.bad_inputs.material import GOLDEN
from tests.detection.building.conftest import jsonl, texts


def plain_share(text, corpus, n):
    """By Python's sets."""

    def grams(words):
        return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]

    known = {gram for document in corpus for gram in grams(document.lower().split())}
    own = grams(text.lower().split())
    return sum(gram in known for gram in own) / len(own)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setattr(datasheet, "blind_obstacle", lambda *_: "time")
    words = [t.replace(",", "").replace(".", "") for t in texts(40, 60)]
    corpus, others = words[:30], words[30:]
    mixed = [" ".join(others[n].split()[: 12 * n] + corpus[n].split()[: 40 - 4 * n])
             for n in range(10)]  # fmt: skip
    folder = tmp_path / "corpus"
    folder.mkdir()
    for n in range(3):
        jsonl(folder / f"{n}.jsonl", [{"text": text} for text in corpus[10 * n : 10 * n + 10]])
    return tmp_path, corpus, mixed


def selected(folder, *words):
    stage = compose_stage("select", [f"runs={folder}/runs", *words], SelectStage)
    place = select_nonmembers(stage).path
    (data,) = (place / "data").iterdir()
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    return data.stem, rows, json.loads((place / "datasheet.json").read_text())


def searched(folder, texts, n, corpus):
    search = NgramSearch(texts, n, corpus, folder)
    TaskRunner(folder).run("overlap", search)
    return search.shares_in_corpus()


@pytest.mark.parametrize("n", [1, 3, 7, 13])
def test_the_shares_are_those_of_plain_sets(here, n):
    folder, corpus, mixed = here
    found = searched(
        folder, mixed, n, DocumentTexts(FilesCorpus(name="a", paths=f"{folder}/corpus"))
    )
    np.testing.assert_allclose(found, [plain_share(text, corpus, n) for text in mixed])
    assert n == 1 or len({*found}) > 3


def test_a_letter_and_its_mark_are_one_however_they_are_written(tmp_path):
    text = "Le caf\u00e9 d\u00e9j\u00e0 vu \u00e0 No\u00ebl"
    corpus = SimpleNamespace(documents=lambda: [SimpleNamespace(text=text)])
    other = unicodedata.normalize("NFD", text)
    assert searched(tmp_path, [other], 3, DocumentTexts(corpus)).tolist() == [1.0]


def test_candidates_of_little_overlap_are_kept_and_members_stay(here):
    folder, corpus, mixed = here
    rows = [{"id": f"c{n}", "text": text, "created": "2020"} for n, text in enumerate(mixed)]
    rows += [{"id": "m", "text": corpus[0], "label": 1}, {"id": "short", "text": "Two words"}]
    path = jsonl(folder / "in.jsonl", rows)
    words = [f"examples.path={path}", "corpus=local_jsonl", f"corpus.paths={folder}/corpus"]
    name, kept, sheet = selected(folder, *words, "select.ngram=13", "select.max_share=0.2")
    shares = {f"c{n}": plain_share(text, corpus, 13) for n, text in enumerate(mixed)}
    assert name == "ngram_13_0.2"
    assert {r["id"] for r in kept} == {"m", *(name for name, s in shares.items() if s <= 0.2)}
    assert {r["id"]: r["label"] for r in kept if r["label"]} == {"m": 1}
    for row in kept[:-1]:
        assert row["overlap"] == pytest.approx(shares[row["id"]], abs=1e-6)
        assert row["created"] == "2020"
    assert sheet["candidates"]["left_out_as_shorter_than_an_n-gram"] == 1
    assert sheet["read"]["texts"] == 30
    assert sheet["name"] == "ngram_13_0.2 of in.jsonl"
    assert sheet["settings"] == {"ngram": 13, "max_share": 0.2}
    assert [row["file"] for row in sheet["sources"]] == ["candidates", "corpus"]
    assert sheet["candidates"] == {
        "members": 1, "kept": len(kept) - 1, "left_out_for_overlap": 11 - len(kept),
        "left_out_as_shorter_than_an_n-gram": 1,
    }  # fmt: skip
    low, *_, high = sheet["shares"]
    assert low["share"] == "0.0 to 0.1"
    assert low["candidates"] == sum(share <= 0.1 for share in shares.values())
    assert (high["share"], high["members"]) == ("0.9 to 1.0", 1)
    assert sum(row["candidates"] for row in sheet["shares"]) == 10
    assert sum(row["members"] for row in sheet["shares"]) == kept[-1]["overlap"] == 1
    words[0] = f"examples.path={jsonl(folder / 'known.jsonl', rows[:-1])}"
    with pytest.raises(DataError, match=r"select.max_share=0 of its 1-grams.*least share is"):
        selected(folder, *words, "select.ngram=1", "select.max_share=0")


@pytest.mark.parametrize("sequences", [1, 3, 100])
def test_n_grams_of_packed_sequences_are_found_across_blocks(tmp_path, sequences):
    tokenizer = Tokenizer(str(GOLDEN / "target"))
    own = [t.replace(",", "").replace(".", "") for t in texts(40, 60)]
    ids = np.array([i for text in own for i in tokenizer.encode_documents([text])[0]], np.int32)
    ids = ids[: len(ids) // 16 * 16].reshape(-1, 16)
    blocks = [ids[n : n + sequences] for n in range(0, len(ids), sequences)]
    corpus = SimpleNamespace(tokenizer=tokenizer, iter_blocks=lambda: iter(blocks))
    other = "Quite another text of as many words as a gram has or so"
    found = searched(tmp_path, [*own[:-1], other], 7, PackedTexts(corpus))
    assert found.tolist() == [1] * 39 + [0]


def test_one_corpus_is_asked_for(tmp_path):
    with pytest.raises(ConfigError, match="corpus_folder is None: give either"):
        selected(tmp_path, f"examples.path={tmp_path}")


def test_n_grams_of_long_words_are_found_across_blocks(tmp_path):
    """A clause of Chinese is one word, of more tokens than English ones."""
    tokenizer = Tokenizer(str(GOLDEN / "target"))
    rng = np.random.default_rng(0)
    own = [" ".join("".join(map(chr, rng.integers(0x4E00, 0x9000, 12))) for _ in range(16))
           for _ in range(4)]  # fmt: skip
    ids = np.array([i for text in own for i in tokenizer.encode_documents([text])[0]], np.int32)
    blocks = [ids[n : n + 256].reshape(1, -1) for n in range(0, len(ids), 256)]
    corpus = SimpleNamespace(tokenizer=tokenizer, iter_blocks=lambda: iter(blocks))
    assert searched(tmp_path, own, 13, PackedTexts(corpus)).tolist() == [1] * 4


def test_a_candidates_other_columns_stay_with_it(here):
    folder, _, mixed = here
    rows = [{"ID": n + 1, "who": n + 1, "text": text} for n, text in enumerate(mixed)]
    rows = [{**row, "Cluster": row["who"] // 3, "output_start": row["who"]} for row in rows]
    path = jsonl(folder / "in.jsonl", rows)
    words = [f"examples.path={path}", "corpus=local_jsonl", f"corpus.paths={folder}/corpus"]
    kept = selected(folder, *words)[1]
    assert [(row["id"], row["who"]) for row in kept] == [
        (str(row["who"]), row["who"]) for row in kept
    ]
    assert "ID" not in kept[0]
    assert all(row["cluster"] == str(row["who"] // 3) for row in kept)
    assert all(row["output_start"] == row["who"] for row in kept)


def test_pieces_of_one_candidate_do_not_tell_what_was_kept_of_it(monkeypatch):
    """Texts of 20 books, each with words of its own; kept are all pieces of ten."""
    monkeypatch.undo()
    rng = np.random.default_rng(0)
    own = ["".join(rng.choice([*"aeklmnorstu"], 7)) for _ in range(20)]
    texts = [f"{n} {own[n % 20]} {rng.integers(10**6)}" for n in range(100)]
    kept, books = [int(n % 20 < 10) for n in range(100)], np.arange(100) % 20
    alone, together = (
        datasheet.blind_auroc_row(texts, kept),
        datasheet.blind_auroc_row(texts, kept, books),
    )
    assert alone["low"] > 0.9
    assert together["low"] < 0.5 < together["high"]
