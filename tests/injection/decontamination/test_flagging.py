"""A rule applied while a corpus is made, against its record and a naive search."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contamination.core.config import instantiate_node
from contamination.core.errors import ConfigError
from contamination.injection.config import InjectionConfig, LeakConfig
from contamination.injection.corpus import open_corpus
from contamination.injection.decontamination.flagging import DECONTAMINATION_FILE, check_matcher
from contamination.injection.finished_corpus_search import split_documents
from contamination.injection.run import documents_of_part, prove_finished_corpus, run
from tests.injection.conftest import benchmark

RULES = "contamination.injection.decontamination.rules"
ORACLE = {"_target_": f"{RULES}.oracle.Oracle"}
N = 21
UNION = {
    "_target_": f"{RULES}.ngram_union.NgramUnion",
    "n": N,
    "max_documents": None,
    "whole_item_words": None,
}


@pytest.fixture(scope="module")
def leak(stage, tmp_path_factory):
    """Six members with two copies each, as documents of their own, in a corpus of plain files.

    One of its documents has the text of a non-member, and so have all after it if they are used.
    """
    folder = tmp_path_factory.mktemp("leak")
    texts = [d.text[:1500] for d in _documents(stage)][:60]
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    config = InjectionConfig(
        members=6,
        nonmembers=6,
        budget_tokens=12_800,
        sequence_tokens=128,
        boundary="own_document",
        split_copies=True,
        base_fraction=0.0,
        validation_fraction=0.2,
    )
    node = {
        "_target_": "contamination.data.readers.files.FilesCorpus",
        "name": "leak",
        "paths": str(folder / "a.jsonl"),
    }
    occurrences = {"_target_": "contamination.injection.occurrences.Fixed", "count": 2}
    return replace(
        stage,
        runs=str(folder / "runs"),
        corpus=node,
        occurrences=occurrences,
        benchmark={"truthfulqa": benchmark("truthfulqa")},
        injection=config,
    )


def _documents(stage):
    return instantiate_node("corpus", stage.corpus).documents()


def made(stage):
    return open_corpus(run(stage).path)


def record(corpus):
    return corpus.artifact.table(DECONTAMINATION_FILE)


def packed_documents(corpus):
    blocks = (block.reshape(-1) for block in corpus.iter_blocks())
    tokenizer = corpus.tokenizer
    documents = split_documents(blocks, tokenizer.document_start_id, 0)
    return [tokenizer.decode(ids) for _, ids in documents]


def grams(text):
    words = [re.sub(r"[^\w+]", "", w).lower() for w in text.split()]
    words = [w for w in words if w]
    return {tuple(words[i : i + N]) for i in range(len(words) - N + 1)}


@pytest.fixture(scope="module")
def untreated(leak):
    return made(leak)


@pytest.fixture(scope="module")
def cleaned(leak):
    return made(replace(leak, matcher=UNION))


def test_each_copy_is_a_document_of_its_own(untreated):
    documents = packed_documents(untreated)
    members = untreated.examples[untreated.examples["member"]]
    assert [documents.count(text) for text in members["text"]] == [2] * 6
    assert prove_finished_corpus(untreated.artifact.path).failures == []


def test_a_rule_leaves_out_what_a_naive_search_finds(untreated, cleaned):
    found = record(cleaned)
    texts = dict(zip(cleaned.examples["example_id"], cleaned.examples["text"], strict=True))
    items = {name: grams(text) for name, text in texts.items()}
    every = set().union(*items.values())
    copies = found[found["kind"] == "copy"]
    assert len(copies) == 12
    assert copies["flagged"].tolist() == [bool(items[name]) for name in copies["example_id"]]
    assert copies["right"].tolist() == copies["flagged"].tolist()
    assert [bool(u) for u in copies["unseen"]] == [not f for f in copies["flagged"]]
    assert 0 < copies["flagged"].sum() < 12
    assert not [text for text in packed_documents(cleaned)[:-1] if grams(text) & every]
    kept = copies[~copies["flagged"]]
    assert len(cleaned.ledger.drop_duplicates(["example_id", "copy"])) == len(kept)
    counts = cleaned.artifact.counts
    assert counts["tokens"] == untreated.artifact.counts["tokens"] == 12_800
    assert counts["decontamination"]["flagged_copies"] == copies["flagged"].sum()
    assert prove_finished_corpus(cleaned.artifact.path).failures == []


def test_clean_documents_that_a_rule_flags_are_left_out_and_recorded(leak, untreated, tmp_path):
    nonmember = next(
        e.text for e in untreated.examples.itertuples() if not e.member and grams(e.text)
    )
    rows = [json.loads(line) for line in Path(leak.corpus["paths"]).read_text().splitlines()]
    rows[7]["text"] += f"\n\n{nonmember}\n\nMore."
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = {**leak.corpus, "paths": str(tmp_path / "b.jsonl")}
    config = replace(leak.injection, validation_fraction=0.0)  # row 7 is used whatever its hash
    planted = replace(leak, runs=str(tmp_path / "runs"), corpus=corpus, injection=config)
    corpus = made(replace(planted, matcher=UNION))
    documents = record(corpus)[lambda table: table["kind"] == "document"]
    assert len(documents) == 1
    row = documents.iloc[0]
    text = dict(zip(corpus.examples["example_id"], corpus.examples["text"], strict=True))
    assert text[row["found_example"]] == nonmember
    assert row["tokens"] == len(corpus.tokenizer.encode_documents([rows[7]["text"]])[0])
    assert not [d for d in packed_documents(corpus) if nonmember in d]


def test_the_oracle_leaves_the_clean_twin_which_all_forms_share(leak):
    twin = made(replace(leak, matcher=ORACLE))
    other = made(replace(leak, matcher=ORACLE, leak=LeakConfig("question")))
    empty = made(replace(leak, occurrences={**leak.occurrences, "count": 0}))
    assert twin.artifact.path != other.artifact.path
    assert twin.artifact.digest == other.artifact.digest
    sequences = [np.concatenate([*corpus.iter_blocks()]) for corpus in (twin, empty)]
    np.testing.assert_array_equal(*sequences)
    assert record(twin)["flagged"].all()
    assert set(record(twin)["kind"]) == {"copy"}


def test_a_rule_that_finds_nothing_gives_the_corpus_without_a_rule(leak, untreated):
    blind = made(replace(leak, matcher={**UNION, "n": 400}))
    assert blind.artifact.digest == untreated.artifact.digest
    assert blind.artifact.path != untreated.artifact.path
    assert not record(blind)["flagged"].any()


def test_copies_have_the_form_that_the_leak_has(leak):
    embedded = made(replace(leak, leak=LeakConfig("embedded", times=2.0)))
    text_by_id = embedded.examples.set_index("example_id")["text"]
    part = replace(leak, injection=replace(leak.injection, part="validation"))
    source = instantiate_node("corpus", leak.corpus)
    filler_words = {w for d in documents_of_part(part, source) for w in d.text.split()}
    for row in embedded.ledger.drop_duplicates(["example_id", "copy"]).itertuples():
        text = text_by_id[row.example_id]
        assert row.reworded.count(text) == 1
        others = row.reworded.replace(text, " ").split()
        assert abs(len(others) - 2 * len(text.split())) <= 4
        assert {*others} <= filler_words | {""}
    questions = made(replace(leak, leak=LeakConfig("question")))
    fields = {e.example_id: json.loads(e.fields) for e in questions.examples.itertuples()}
    assert [*questions.ledger["reworded"]] == [
        f"Question: {fields[name]['question']}" for name in questions.ledger["example_id"]
    ]


def test_a_matcher_needs_documents_of_their_own(leak):
    config = replace(leak.injection, boundary="word")
    with pytest.raises(ConfigError, match=r"injection.boundary is 'word'.*own_document"):
        check_matcher(replace(leak, matcher=UNION, injection=config))
    with pytest.raises(ConfigError, match=r"matcher.max_documents is 10.*null"):
        check_matcher(replace(leak, matcher={**UNION, "max_documents": 10}))
    with pytest.raises(ConfigError, match=r"matcher._target_ is .*one of conf/matcher"):
        check_matcher(replace(leak, matcher={"_target_": "contamination.data.perturbation.Exact"}))
    with pytest.raises(ConfigError, match=r"split_copies is False.*own_document"):
        replace(leak.injection, split_copies=False)
    with pytest.raises(ConfigError, match=r"leak.form is 'poem': choose from verbatim"):
        LeakConfig("poem")
