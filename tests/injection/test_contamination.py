"""Texts of the pool that stand in a corpus beside the copies: planted, found, counted and told."""

import json
import random
import unicodedata
from dataclasses import replace
from itertools import cycle

import numpy as np
import pandas as pd
import pytest
from tokenizers import normalizers, processors
from transformers import AutoTokenizer

from contamination.core.errors import ConfigError, DataError
from contamination.core.task_runner import TaskRunner, TasksConfig
from contamination.data.config import BenchmarkConfig
from contamination.injection.config import (
    ExportStage,
    InjectionConfig,
    InjectionStage,
    TokenizerConfig,
)
from contamination.injection.contamination_table import (
    count_flagged,
    describe_flagged_counts,
    flags_of_examples,
)
from contamination.injection.corpus import open_corpus
from contamination.injection.export.run import export_corpus, prove_finished_export
from contamination.injection.finished_corpus_search import (
    matches_within_copies,
    search_corpus,
    split_documents,
    texts_by_example,
)
from contamination.injection.run import prove_finished_corpus, run
from contamination.injection.token_stream import Tokenizer
from contamination.injection.verification import NATURAL_COLUMN

ENDS = [f"{b}{c}" for b in ("al", "or", "un", "imp") for c in ("en", "ost", "")]
WORDS, ASKED = ([a + end for a in letters for end in ENDS] for letters in ("bdk", "mrst"))
SIDES = {True: "member", False: "non-member"}


def words(rng, n, of=WORDS):
    return " ".join(rng.choice(of) for _ in range(n))


def question(n):
    return f"{words(random.Random(n), 9, ASKED)} number {n}?"


# "the" begins with another token after a blank than after a line's end
CASES = {
    "own paragraph": lambda text: f"\n\n{text}\n\n",
    "in a sentence": lambda text: f" as they wrote {text}, or so",
    "other white space": lambda text: " " + text.replace(" ", "  ").replace("\n", " \t\n\n ") + " ",
    "other case": lambda text: f" {text.upper()} ",
}


def write_corpus(folder, planted="", at=5):
    """40 documents; in one of them there is a text between the words."""
    folder.mkdir(exist_ok=True)
    rng = random.Random(0)
    rows = [{"id": f"d{n}", "text": words(rng, 120)} for n in range(40)]
    rows[at]["text"] = f"{words(rng, 40)}{planted}{words(rng, 40)}"
    (folder / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "name": "mine",
        "_target_": "contamination.data.readers.files.FilesCorpus",
        "paths": str(folder / "documents.jsonl"),
        "id": "id",
    }


def benchmark(folder):
    rows = [{"question": question(n), "answer": f"place {n}"} for n in range(12)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {
        "rows": {
            "_target_": "contamination.data.readers.files.FileRows",
            "path": str(folder / "rows.jsonl"),
        },
        "fields": {"question": "{question}", "answer": "{answer}"},
    }
    return BenchmarkConfig(
        template="the question: {question}\nAnswer: {answer}", sources={"file": source}
    )


def stage_of(folder, planted="", policy="flag", at=5, **more):
    fields = {"members": 4, "nonmembers": 4, "held_out": 0, "part": "all", "budget_tokens": 6_000}
    return InjectionStage(
        runs=str(folder / "runs"),
        corpus=write_corpus(folder / "documents", planted, at),
        benchmark={"mine": benchmark(folder)},
        occurrences={"_target_": "contamination.injection.occurrences.Fixed", "count": 2},
        tokenizer=TokenizerConfig(path="tests/golden/target"),
        injection=InjectionConfig(**fields, sequence_tokens=128, decontamination=policy, **more),
    )


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """The examples, drawn from a corpus that holds none of them."""
    clean = open_corpus(run(stage_of(tmp_path_factory.mktemp("clean"))).path)
    assert clean.contamination.empty
    assert (clean.examples["contamination"] == "").all()
    assert clean.artifact.counts["flagged"] == {}
    assert clean.artifact.counts["natural_occurrences"] == 0
    return clean.examples


def example(pool, *, member):
    return pool[pool["member"].astype(bool) == member].iloc[0]


@pytest.mark.parametrize("member", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_flag_keeps_counts_and_names_a_natural_occurrence(pool, tmp_path, caplog, case, member):
    own = example(pool, member=member)
    corpus = open_corpus(run(stage_of(tmp_path, CASES[case](own["text"]))).path)
    row = corpus.example_row(own["example_id"])
    assert (row["contamination"], row[NATURAL_COLUMN]) == ("corpus: verbatim", 1)
    others = corpus.examples[corpus.examples["example_id"] != own["example_id"]]
    assert (others[NATURAL_COLUMN] == 0).all()
    (found,) = corpus.contamination.query("example_id == @own.example_id").itertuples()
    assert (found.corpus, found.document_id, found.occurrences) == ("corpus", "d5", 1)
    side = SIDES[member]
    assert f"share text with a corpus, apart from their copies: mine (1 {side})" in caplog.text
    assert corpus.artifact.counts["flagged"] == {
        "mine": {"members": int(member), "nonmembers": int(not member)}
    }
    assert "1 natural occurrences counted" in str(prove_finished_corpus(corpus.artifact.path))


@pytest.mark.parametrize(("at", "document_ids"), [(15, ["d15"]), (16, [])])
def test_documents_count_up_to_the_last_that_is_used(pool, tmp_path, at, document_ids):
    planted = CASES["own paragraph"](example(pool, member=False)["text"])
    corpus = open_corpus(run(stage_of(tmp_path, planted, at=at)).path)
    assert corpus.contamination["document_id"].tolist() == document_ids
    assert corpus.artifact.counts["natural_occurrences"] == len(document_ids)


@pytest.mark.parametrize("case", CASES)
def test_drop_leaves_the_document_out(pool, tmp_path, case):
    own = example(pool, member=False)
    corpus = open_corpus(run(stage_of(tmp_path, CASES[case](own["text"]), "drop")).path)
    assert corpus.contamination["document_id"].tolist() == ["d5"]
    assert (corpus.examples["contamination"] == "").all()  # what was dropped, no model reads
    assert (corpus.examples[NATURAL_COLUMN] == 0).all()
    assert not prove_finished_corpus(corpus.artifact.path).failures


@pytest.mark.parametrize("case", CASES)
def test_off_refuses_it_by_name_and_keeps_what_is_tokenised(pool, tmp_path, case):
    own = example(pool, member=False)
    stage = stage_of(tmp_path, CASES[case](own["text"]), "off", shard_characters=2_000)
    name = own["example_id"]
    said = (
        f"contains the whole text of {name} besides the copies: document d5 has it 1 time. Choose"
    )
    with pytest.raises(DataError, match=said):
        run(stage)
    (folder,) = (tmp_path / "runs" / "corpus").iterdir()
    shards = sorted(path.name for path in folder.glob("tokens/searched-2000/*.ids"))
    assert shards == ["00000.ids", "00001.ids"]  # of about 12


# a tokenizer's normalizer, and how a text is written that it reads as equal
NORMALIZERS = {
    "NFC": lambda text: unicodedata.normalize("NFD", text),
    "NFKC": lambda text: text.replace("ﬁ", "fi").replace("²", "2"),
    "Lowercase": lambda text: text.upper().replace("FI", "ﬁ"),
}


def stage_with(folder, normalizer, planted="", policy="flag"):
    """A tokenizer with this normalizer, and questions with accents, ligatures and raised digits."""
    stage = stage_of(folder, planted, policy)
    tokenizer = AutoTokenizer.from_pretrained(stage.tokenizer.path)
    tokenizer.backend_tokenizer.normalizer = getattr(normalizers, normalizer)()
    tokenizer.save_pretrained(folder / "tokenizer")
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    for row in rows:
        row["question"] = " ".join(f"{word}ﬁé²" for word in row["question"].split())
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return replace(stage, tokenizer=TokenizerConfig(path=str(folder / "tokenizer")))


@pytest.fixture(scope="module", params=NORMALIZERS)
def respelled(request, tmp_path_factory):
    """A normalizer, a non-member's id, and its text in a form that is tokenised as it is."""
    stage = stage_with(tmp_path_factory.mktemp("clean"), request.param)
    own = example(open_corpus(run(stage).path).examples, member=False)
    planted = NORMALIZERS[request.param](own["text"])
    tokenizer = Tokenizer(stage.tokenizer.path)
    assert planted != own["text"]
    assert tokenizer.encode(planted) == tokenizer.encode(own["text"])
    return request.param, own["example_id"], f"\n\n{planted}\n\n"


def test_flag_finds_a_text_in_another_form_that_has_equal_tokens(respelled, tmp_path, caplog):
    normalizer, name, planted = respelled
    corpus = open_corpus(run(stage_with(tmp_path, normalizer, planted)).path)
    row = corpus.example_row(name)
    assert (row["contamination"], row[NATURAL_COLUMN]) == ("corpus: verbatim", 1)
    (found,) = corpus.contamination.itertuples()
    assert (found.example_id, found.document_id, found.occurrences) == (name, "d5", 1)
    assert "share text with a corpus, apart from their copies: mine (1 non-member)" in caplog.text
    assert not prove_finished_corpus(corpus.artifact.path).failures


def test_drop_leaves_out_a_text_in_another_form_that_has_equal_tokens(respelled, tmp_path):
    normalizer, _, planted = respelled
    corpus = open_corpus(run(stage_with(tmp_path, normalizer, planted, "drop")).path)
    assert corpus.contamination["document_id"].tolist() == ["d5"]
    assert not prove_finished_corpus(corpus.artifact.path).failures


def test_off_refuses_a_text_in_another_form_that_has_equal_tokens(respelled, tmp_path):
    normalizer, name, planted = respelled
    with pytest.raises(
        DataError, match=f"contains the whole text of {name} .*document d5 has it 1"
    ):
        run(stage_with(tmp_path, normalizer, planted, "off"))


def test_other_corpora_are_searched_as_their_tokenizer_spells(respelled, tmp_path):
    """Their packed tokens decode to the tokenizer's form, whatever the examples' is."""
    normalizer, name, planted = respelled
    stage = stage_with(tmp_path, normalizer, planted)
    base = run(replace(stage, benchmark={}, injection=replace(stage.injection, members=0,
                                                              nonmembers=0)))  # fmt: skip
    clean = stage_with(tmp_path, normalizer)
    corpus = open_corpus(run(replace(clean, compared={"base": str(base.path)})).path)
    assert corpus.example_row(name)["contamination"] == "base: verbatim"
    assert (corpus.examples["contamination"] != "").sum() == 1


def test_what_only_the_proof_finds_is_flagged_too(tmp_path, caplog):
    """Without a BOS a text may begin in one document and end in the next."""
    stage = stage_with(tmp_path, "NFC")
    tokenizer = AutoTokenizer.from_pretrained(stage.tokenizer.path)
    tokenizer.backend_tokenizer.post_processor = processors.Sequence([])
    tokenizer.save_pretrained(stage.tokenizer.path)
    own = example(open_corpus(run(stage).path).examples, member=False)
    text, path = own["text"], tmp_path / "documents" / "documents.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    middle = text.index("\nAnswer")
    rows[5]["text"] += f" {text[:middle]}"
    rows[6]["text"] = f"{text[middle:]} {rows[6]['text']}"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = open_corpus(run(stage).path)
    row = corpus.example_row(own["example_id"])
    assert (row["contamination"], row[NATURAL_COLUMN]) == ("corpus: verbatim", 1)
    whole = corpus.contamination.query("occurrences > 0")
    assert whole[["document_id", "example_id"]].to_numpy().tolist() == [["", own["example_id"]]]
    assert "mine (1 non-member)" in caplog.text
    assert not prove_finished_corpus(corpus.artifact.path).failures


@pytest.mark.parametrize("policy", ["flag", "off"])
def test_invisible_characters_do_not_hide_a_text(pool, tmp_path, policy):
    own = example(pool, member=False)
    marks = cycle("\u200b\ufeff\u00ad\u2060\ufe0f\u202a\u2066\u180e\U000e0100")
    hidden = "".join(f"{c}{m}" for c, m in zip(own["text"], marks, strict=False))
    stage = stage_of(tmp_path, f" {hidden} ", policy)
    if policy == "off":
        with pytest.raises(DataError, match=f"the whole text of {own['example_id']}"):
            run(stage)
        return
    corpus = open_corpus(run(stage).path)
    row = corpus.example_row(own["example_id"])
    assert (row["contamination"], row[NATURAL_COLUMN]) == ("corpus: verbatim", 1)
    assert not prove_finished_corpus(corpus.artifact.path).failures


def test_what_stands_behind_the_budget_is_no_reason_to_refuse(pool, tmp_path):
    own = example(pool, member=False)
    stage = stage_of(tmp_path, CASES["own paragraph"](own["text"]), "off", at=39)
    assert (open_corpus(run(stage).path).examples[NATURAL_COLUMN] == 0).all()


def test_a_changed_count_and_an_unlisted_text_are_failures(pool, tmp_path, monkeypatch):
    own = example(pool, member=False)
    corpus = open_corpus(run(stage_of(tmp_path, CASES["in a sentence"](own["text"]))).path)
    name = own["example_id"]
    for said, wrong in ((0, "1 natural occurrences, natural_occurrences says 0"),
                        (2, "1 natural occurrences, natural_occurrences says 2")):  # fmt: skip
        changed = corpus.examples.copy()
        changed.loc[changed["example_id"] == name, NATURAL_COLUMN] = said
        vars(corpus)["examples"] = changed
        monkeypatch.setattr("contamination.injection.run.open_corpus", lambda _: corpus)
        assert prove_finished_corpus(corpus.artifact.path).failures == [f"{name}: {wrong}"]
    off = {**corpus.config["injection"], "decontamination": "off"}
    vars(corpus)["config"] = {**corpus.config, "injection": off}
    assert prove_finished_corpus(corpus.artifact.path).failures == [
        f"{name} (non-member): found 1 times in the corpus's text, 0 expected"
    ]


@pytest.mark.parametrize("form", ["Megatron", "Text"])
def test_an_export_has_the_natural_occurrences_too(pool, tmp_path, form):
    own = example(pool, member=False)
    corpus = run(stage_of(tmp_path, CASES["own paragraph"](own["text"])))
    module = {"Megatron": "token_formats", "Text": "text_format"}[form]
    node = {"_target_": f"contamination.injection.export.{module}.{form}"}
    made = export_corpus(ExportStage(str(tmp_path / "runs"), str(corpus.path), node))
    assert made.counts["elsewhere"] == 1
    assert not prove_finished_export(made.path).failures


def test_the_corpus_of_the_clean_model_is_compared_and_stays_as_it_is(pool, tmp_path, caplog):
    """Half of a text (its question) in one document, and a whole one in another."""
    part, whole = pool.iloc[0], pool.iloc[1]
    asked = json.loads(part["fields"])["question"]
    planted = f" {asked} {words(random.Random(9), 9)} {whole['text']} "
    base = run(
        InjectionStage(
            runs=str(tmp_path / "runs"),
            corpus=write_corpus(tmp_path / "base", planted),
            tokenizer=TokenizerConfig(path="tests/golden/target"),
            injection=InjectionConfig(
                members=0, nonmembers=0, part="all", budget_tokens=6_000, sequence_tokens=128
            ),
        )
    )
    alone = stage_of(tmp_path)
    compared = replace(alone, compared={"base": str(base.path)})
    corpus = open_corpus(run(compared).path)
    assert run(alone).path != corpus.artifact.path  # flags are part of what it holds
    assert corpus.example_row(part["example_id"])["contamination"] == "base: 8-gram share"
    assert corpus.example_row(whole["example_id"])["contamination"] == "base: verbatim"
    assert (corpus.examples["contamination"] != "").sum() == 2
    assert (corpus.examples[NATURAL_COLUMN] == 0).all()  # of this corpus
    assert set(corpus.contamination["corpus"]) == {"base"}
    assert "share text with a corpus, apart from their copies" in caplog.text
    assert corpus.contamination["document_id"].str.fullmatch(r"sequence-\d+").all()
    with pytest.raises(ConfigError, match=r"^compared is 'copies': .* are reserved names"):
        replace(alone, compared={"copies": str(base.path)})
    refused = replace(stage_of(tmp_path, policy="off"), compared=compared.compared)
    with pytest.raises(DataError, match="but compared.base contains the whole text of"):
        run(refused)


def test_off_searches_the_corpus_before_others_are_decoded(pool, tmp_path):
    planted = CASES["own paragraph"](example(pool, member=False)["text"])
    clean = InjectionConfig(members=0, nonmembers=0, part="all", budget_tokens=6_000,
                            sequence_tokens=128)  # fmt: skip
    base = run(
        InjectionStage(
            runs=str(tmp_path / "runs"),
            corpus=write_corpus(tmp_path / "base", planted),
            tokenizer=TokenizerConfig(path="tests/golden/target"),
            injection=clean,
        )
    )
    stage = replace(stage_of(tmp_path, planted, "off"), compared={"base": str(base.path)})
    with pytest.raises(DataError, match="but corpus contains the whole text of"):
        run(stage)
    assert not list(tmp_path.rglob("compare-base"))


@pytest.mark.parametrize("policy", ["flag", "drop"])
def test_a_long_template_is_no_match_and_an_example_of_it_is(tmp_path, policy, caplog):
    told = "Read the next question with care and answer it in one short line, please:"
    stage = stage_of(tmp_path, f" {told} {words(random.Random(9), 9)} ", policy)
    long = replace(stage.benchmark["mine"], template=f"{told} {{question}}\nAnswer: {{answer}}")
    stage = replace(stage, benchmark={"mine": long})
    corpus = open_corpus(run(stage).path)
    assert corpus.contamination.empty
    words_of_template = "read the next question with care and answer"
    for _ in range(2):  # when it is made, and when it is reused
        assert "pool: mine: passages that many examples share count as" in caplog.text
        assert f"{words_of_template!r} (8)" in caplog.text
        caplog.clear()
        run(stage)
    own = example(corpus.examples, member=False)
    asked = json.loads(own["fields"])["question"]
    write_corpus(tmp_path / "documents", f" {told} {asked} ")
    corpus = open_corpus(run(stage).path)
    found = corpus.contamination[["document_id", "example_id"]].to_numpy().tolist()
    assert found == [["d5", own["example_id"]]]
    flag = {"flag": "corpus: 8-gram share", "drop": ""}[policy]
    assert corpus.example_row(own["example_id"])["contamination"] == flag


def test_a_text_within_the_copies_of_another_is_flagged(tmp_path):
    """Two questions, one of which ends with the other; each is a member by some seed."""
    long = f"ask this {question(0)}"
    questions = [long, question(0), *(question(n) for n in range(2, 8))]
    stage = stage_of(tmp_path)
    rows = [{"question": each, "answer": "no"} for each in questions]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain = replace(stage.benchmark["mine"], template="{question}")
    drawn = {}
    for seed in range(4):
        made = run(replace(stage, benchmark={"mine": plain}, seed=seed))
        corpus = open_corpus(made.path)
        by_text = corpus.examples.set_index("text")
        drawn[bool(by_text["member"][long])] = by_text["contamination"][question(0)]
        assert (corpus.examples[NATURAL_COLUMN] == 0).all()
        assert not prove_finished_corpus(made.path).failures
    assert drawn == {True: "copies: verbatim", False: ""}


def test_a_copy_in_two_sequences_has_a_text_within_it_once():
    texts = [f"{question(0)} {question(1)}", question(0)]
    examples = pd.DataFrame({"example_id": ["long", "short"], "text": texts})
    ledger = pd.DataFrame({"example_id": "long", "copy": [0, 0, 1], "reworded": None})
    tokenizer = Tokenizer("tests/golden/target")
    (match,) = matches_within_copies(examples, ledger, tokenizer).itertuples()
    assert (match.example_id, match.occurrences) == ("short", 2)


def test_where_drop_leaves_too_little_the_error_names_what_left_most_out(tmp_path):
    """A text of one word that stands in most documents."""
    stage = stage_of(tmp_path, policy="drop")
    rows = [{"question": WORDS[0], "answer": "no"}]
    rows += [{"question": question(n), "answer": "no"} for n in range(1, 8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain = replace(stage.benchmark["mine"], template="{question}")
    said = (
        r"drop left out \d+ documents, \d+ of them for mine-\w+ "
        rf"\(whole text: '{WORDS[0]}'\): choose flag"
    )
    with pytest.raises(ConfigError, match=said):
        run(replace(stage, benchmark={"mine": plain}))


def test_a_document_in_several_parts_is_one(pool, tmp_path, monkeypatch):
    """It is read to its end, and named by the sequence that it begins in."""
    monkeypatch.setattr("contamination.injection.packing.PART_TOKENS", 512)
    own, stage = pool.iloc[0], stage_of(tmp_path)
    text = " ".join(f"{words(random.Random(n), 90)} {own['text']}" for n in range(9))
    path = tmp_path / "documents" / "documents.jsonl"
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([first, json.dumps({"id": "long", "text": text}), *rest]))
    clean = replace(stage.injection, members=0, nonmembers=0)
    base = open_corpus(run(replace(stage, benchmark={}, injection=clean)).path)
    assert len(base.part_paths) > 9
    runner = TaskRunner(tmp_path / "tasks", TasksConfig(), 1)
    found = search_corpus(base, texts_by_example(pool.iloc[:1]), runner, "base", whole=True)
    before = len(base.tokenizer.encode_documents([json.loads(first)["text"]])[0])
    ((name, example, rule, _, times),) = found.itertuples(index=False)
    assert (name, example, rule) == (f"sequence-{before // 128}", own["example_id"], "verbatim")
    assert times == 9


def test_flags_say_the_corpora_and_their_rules():
    examples = pd.DataFrame({"example_id": list("abc"), "benchmark": ["x", "y", "y"],
                             "member": [True, False, True]})  # fmt: skip
    columns = ["document_id", "example_id", "rule", "evidence", "occurrences", "corpus"]
    matches = pd.DataFrame(
        [("d", "a", "13-gram", "", 0, "corpus"), ("e", "a", "8-gram share", "", 0, "corpus"),
         ("d", "b", "13-gram", "", 0, "corpus"), ("s", "b", "13-gram", "", 2, "base")],
        columns=columns,
    )  # fmt: skip
    found = flags_of_examples(examples, matches, dropped=False)
    assert found == ["corpus: 13-gram", "base: verbatim, corpus: 13-gram", ""]
    assert flags_of_examples(examples, matches, dropped=True) == ["", "base: verbatim", ""]
    counts = count_flagged(examples.assign(contamination=found))
    assert counts == {"x": {"members": 1, "nonmembers": 0}, "y": {"members": 0, "nonmembers": 1}}
    assert describe_flagged_counts({**counts, "z": {"members": 2, "nonmembers": 3}}) == (
        "x (1 member); y (1 non-member); z (2 members, 3 non-members)"
    )


@pytest.mark.parametrize("blocks", [1, 3, 50])
def test_documents_of_a_packed_corpus_begin_with_a_bos(blocks):
    ids = np.array([7, 1, 5, 6, 1, 1, 4] * 2, np.int32)
    found = [
        (start, own.tolist()) for start, own in split_documents(np.array_split(ids, blocks), 1, 2)
    ]
    assert found == [(0, [7]), (1, [1, 5, 6]), (4, [1]), (5, [1, 4, 7]), (8, [1, 5, 6]), (11, [1]),
                     (12, [1, 4])]  # fmt: skip


def test_without_a_bos_stretches_overlap(monkeypatch):
    monkeypatch.setattr("contamination.injection.finished_corpus_search.STRETCH_TOKENS", 4)
    found = [(start, own.tolist()) for start, own in split_documents([np.arange(11)], None, 2)]
    assert found == [(0, [*range(6)]), (4, [*range(4, 10)]), (8, [8, 9, 10])]
