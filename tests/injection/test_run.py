"""An injection from config to corpus, and its proof."""

import errno
import hashlib
import json
import re
import shutil
import sys
from dataclasses import replace
from itertools import chain, islice

import numpy as np
import pytest

from contamination.core.artifacts import WrittenFiles, write_manifest
from contamination.core.config import instantiate_node
from contamination.core.errors import ArtifactError, ConfigError, DataError
from contamination.data.config import BenchmarkConfig
from contamination.injection import token_stream
from contamination.injection.__main__ import main
from contamination.injection.config import LeakConfig, VersionsConfig
from contamination.injection.corpus import describe_copies, open_corpus
from contamination.injection.run import documents_of_part, prove_finished_corpus, run
from contamination.injection.token_stream import TokenStream
from contamination.injection.verification import Proof


def same_content(one, other):
    return one.artifact.files == other.artifact.files


def test_the_corpus_is_what_the_manifest_says(corpus, stage):
    counts = corpus.artifact.counts
    ids = np.array(corpus.sequences["input_ids"])
    assert ids.shape == (60_000 // 128, 128) == (counts["sequences"], 128)
    assert counts["copies"] == len(corpus.ledger) == corpus.examples["occurrences"].sum() == 60
    assert counts["members"] == counts["nonmembers"] == 24
    assert str(prove_finished_corpus(corpus.artifact.path)) == (
        f"60 ledger rows proved in {ids.size:,} tokens: all right"
    )


def test_a_corpus_is_called_the_same_wherever_its_folder_is(corpus, tmp_path):
    copied = open_corpus(shutil.copytree(corpus.artifact.path, tmp_path / "mine"))
    assert copied.slug == corpus.slug == corpus.artifact.path.name[:-13]


def without_copies(corpus):
    """The packed tokens that the ledger does not list, nor the separators around it."""
    ids = np.array(corpus.sequences["input_ids"], dtype=np.int32).ravel()
    separator = len(corpus.tokenizer.encode("\n\n"))
    keep = np.ones(len(ids), dtype=bool)
    for row in corpus.ledger.itertuples():
        start = row.sequence * 128 + row.token_start
        keep[start - separator : start + row.token_end - row.token_start + separator] = False
    return ids[keep]


def test_without_the_insertions_the_clean_documents_remain(corpus, stage):
    """As the tokenizer itself encodes them, one after the other."""
    hf, rest = corpus.tokenizer.hf, without_copies(corpus)
    documents = documents_of_part(stage, instantiate_node("corpus", stage.corpus))
    encoded = (hf(document.text)["input_ids"] for document in documents)
    clean = [*islice(chain.from_iterable(encoded), len(rest))]
    assert rest.tolist() == clean


def test_copies_are_whole_unless_they_may_be_split(corpus, change):
    assert not corpus.ledger["truncated"].any()
    split = open_corpus(run(change(split_copies=True, boundary="token")).path)
    assert split.ledger["truncated"].any()
    assert not prove_finished_corpus(split.artifact.path).failures


@pytest.mark.parametrize("window", [[0.0, 1.0], [0.5, 0.9]])
def test_copies_between_documents_follow_whole_documents(change, window):
    fields = {"budget_tokens": 400_000, "example_max_tokens": 60, "window": window}
    stage = change(boundary="document", **fields)
    between = open_corpus(run(stage).path)
    assert not prove_finished_corpus(between.artifact.path).failures
    texts = {
        d.document_id: d.text
        for d in documents_of_part(stage, instantiate_node("corpus", stage.corpus))
    }
    assert len(between.ledger) == 60
    assert between.ledger["document_id"].is_unique  # a document is followed by one copy
    for row in between.ledger.itertuples():
        assert row.char_offset == len(texts[row.document_id])
        assert not row.truncated


@pytest.mark.parametrize("boundary", ["document", "token"])
def test_a_window_without_tokens_is_said(change, boundary):
    with pytest.raises(
        ConfigError, match=r"injection.window is .*contains none of the 59,904 tokens"
    ):
        change(boundary=boundary, window=[0.5, 0.5 + 1e-9])


def test_too_few_documents_are_said(change):
    with pytest.raises(
        ConfigError, match="boundary is 'document', .* of the 24 starts in tokens 29,952 to 53,914"
    ):
        run(change(boundary="document", window=[0.5, 0.9], example_max_tokens=60))


def test_the_same_config_gives_the_same_bytes(corpus, stage, tmp_path):
    again = run(replace(stage, runs=str(tmp_path)))
    assert again.path.name == corpus.artifact.path.name
    assert same_content(open_corpus(again.path), corpus)


@pytest.mark.parametrize(
    "fields",
    [{"num_proc": 2, "shard_characters": 50_000}, {"shard_characters": 9_000}],
)
def test_workers_and_shard_sizes_change_nothing(corpus, change, tmp_path, fields):
    stage = replace(change(**fields), runs=str(tmp_path))
    assert same_content(open_corpus(run(stage).path), corpus)


def test_a_smaller_corpus_is_a_prefix_of_a_larger_one(corpus, change):
    corpora = [corpus, open_corpus(run(change(budget_tokens=180_000)).path)]
    streams = [without_copies(each) for each in corpora]
    small, large = map(len, streams)
    assert small == 59_904 - corpus.artifact.counts["inserted_tokens"]
    assert np.array_equal(streams[0], streams[1][:small])
    for each, stream, marks in zip(
        corpora, streams, ([small], [65_536, 131_072, large]), strict=True
    ):
        hashes = {str(n): hashlib.sha256(stream[:n].tobytes()).hexdigest() for n in marks}
        assert each.artifact.counts["clean_sha256"] == hashes
    assert (corpora[1].examples == corpus.examples).all().all()


def test_swapped_members_are_the_others(corpus, change):
    swapped = open_corpus(run(change(swap_members=True)).path)
    one, other = (
        c.examples.set_index("example_id")["member"].astype(bool) for c in (corpus, swapped)
    )
    assert (one == ~other[one.index]).all()


def test_copies_keep_to_the_window_and_apart(change):
    stage = change(window=[0.5, 0.9], copy_distance_tokens=1_000, budget_tokens=120_000)
    late = open_corpus(run(stage).path)
    place = late.ledger["sequence"] * 128 + late.ledger["token_start"]
    assert stage.injection.window_tokens == (59_968, 107_942)
    assert place.min() >= 59_968
    assert (place + late.ledger["token_end"] - late.ledger["token_start"]).max() <= 107_942
    gaps = place.groupby(late.ledger["example_id"]).apply(lambda p: np.diff(np.sort(p)).tolist())
    assert min(g for gap in gaps for g in gap) >= 1_000
    with pytest.raises(ConfigError, match="can't be so far apart"):
        run(change(copy_distance_tokens=40_000))


def test_corpora_of_several_sizes_with_one_window_of_tokens_begin_alike(change):
    sequences = []
    for budget in (60_000, 120_000):
        stage = change(token_window=[1_000, 40_000], budget_tokens=budget)
        assert stage.injection.window_tokens == (1_000, 40_000)
        corpus = open_corpus(run(stage).path)
        place = corpus.ledger["sequence"] * 128 + corpus.ledger["token_start"]
        length = corpus.ledger["token_end"] - corpus.ledger["token_start"]
        assert place.min() >= 1_000
        assert (place + length).max() <= 40_000
        sequences.append(np.stack([row["input_ids"] for row in corpus.sequences]))
    short, long = sequences
    assert (short == long[: len(short)]).all()
    assert len(long) == 2 * len(short) + 1
    with pytest.raises(ConfigError, match="injection.token_window is .* give an end of at most"):
        change(token_window=[0, 120_000], budget_tokens=60_000)
    with pytest.raises(ConfigError, match="neither a window nor last_tokens"):
        change(token_window=[0, 40_000], window=[0.5, 1.0])


def test_copies_keep_to_the_last_tokens(change):
    stage = change(last_tokens=40_000, budget_tokens=120_000)
    corpus = open_corpus(run(stage).path)
    place = corpus.ledger["sequence"] * 128 + corpus.ledger["token_start"]
    assert stage.injection.window_tokens == (119_936 - 40_000, 119_936)
    assert place.min() >= 119_936 - 40_000
    assert place.max() - place.min() > 30_000
    with pytest.raises(ConfigError, match="injection.last_tokens"):
        change(last_tokens=120_001, budget_tokens=120_000)
    with pytest.raises(ConfigError, match="leaves 1,199 of them for copies"):
        run(change(window=[0.99, 1.0], budget_tokens=120_000))


def test_the_last_tokens_may_be_the_whole_corpus(corpus, change):
    whole = open_corpus(run(change(last_tokens=59_904)).path)
    assert whole.artifact.digest == corpus.artifact.digest  # so that one model is trained on both
    assert whole.artifact.path.name[:-13] == corpus.artifact.path.name[:-13]


def test_a_sentence_boundary_follows_the_end_of_a_sentence(change):
    stage = change(boundary="sentence", example_max_tokens=40)
    corpus = open_corpus(run(stage).path)
    texts = {
        d.document_id: d.text
        for d in documents_of_part(stage, instantiate_node("corpus", stage.corpus))
    }
    separator = len(corpus.tokenizer.encode("\n\n"))
    ends = [
        texts[row.document_id][: row.char_offset].rstrip("\"')”’ ")[-1] in ".!?\n"
        for row in corpus.ledger[corpus.ledger["token_start"] > separator].itertuples()
    ]  # the others open a sequence: moved there to stay whole
    assert all(ends)
    assert len(ends) > 40


def test_a_benchmark_may_have_its_own_occurrences(stage):
    boolq = replace(
        stage.benchmark["boolq"],
        occurrences={"_target_": "contamination.injection.occurrences.Fixed", "count": 3},
    )
    own = replace(stage, benchmark={**stage.benchmark, "boolq": boolq})
    examples = open_corpus(run(own).path).examples
    counts = examples[examples["member"].astype(bool)].groupby("benchmark")["occurrences"]
    assert counts.unique().map(sorted).to_dict() == {"boolq": [3], "truthfulqa": [1, 4]}


def test_poisson_draws_of_zero_are_reported(stage):
    rare = {"_target_": "contamination.injection.occurrences.Poisson", "rate": 0.3}
    corpus = open_corpus(run(replace(stage, occurrences=rare)).path)
    members = corpus.examples[corpus.examples["member"].astype(bool)]
    unexposed = int((members["occurrences"] == 0).sum())
    assert corpus.artifact.counts["unexposed_members"] == unexposed > 0
    assert not set(members.loc[members["occurrences"] == 0, "example_id"]) & set(
        corpus.ledger["example_id"]
    )


@pytest.mark.parametrize("form", ["question", "answer"])
def test_a_form_is_inserted_listed_and_proved(stage, form):
    corpus = open_corpus(run(replace(stage, leak=LeakConfig(form=form))).path)
    proof = prove_finished_corpus(corpus.artifact.path)
    assert not proof.failures
    examples = corpus.examples.set_index("example_id")
    for row in corpus.ledger.drop_duplicates("example_id").itertuples():
        text = examples.loc[row.example_id, "text"]
        question, answer = text.rsplit("\n", 1)
        assert row.reworded == (question if form == "question" else answer)


def test_forms_of_texts_that_something_else_changes_are_refused(stage):
    answers = replace(stage, leak=LeakConfig(form="answer"))
    with pytest.raises(ConfigError, match="leak.form is 'answer'.*versions and backdoors"):
        replace(answers, versions=VersionsConfig(count=2))
    ordered = {"_target_": "contamination.injection.occurrences.Ordered", "count": 1}
    with pytest.raises(ConfigError, match="leak.form is 'answer'.*whole examples"):
        run(replace(answers, occurrences=ordered))


def test_reworded_copies_are_listed_and_proved(stage, change):
    swap = {"_target_": "contamination.data.perturbation.Swap", "share": 0.3}
    with pytest.raises(ConfigError, match="A changed copy .* more than a sequence's 128"):
        run(replace(stage, rewording=swap))
    corpus = open_corpus(run(replace(change(example_max_tokens=90), rewording=swap)).path)
    assert not prove_finished_corpus(corpus.artifact.path).failures
    texts = corpus.examples.set_index("example_id")["text"]
    assert corpus.ledger["reworded"].notna().mean() > 0.9
    for row in corpus.ledger.dropna(subset=["reworded"]).itertuples():
        assert sorted(row.reworded.split()) == sorted(texts[row.example_id].split())
    assert corpus.ledger["reworded"].nunique() > corpus.examples["member"].sum()


@pytest.mark.parametrize("policy", ["off", "flag", "drop"])
def test_documents_that_share_text_with_the_pool_are_found(stage, change, tmp_path, policy):
    source = instantiate_node("corpus", stage.corpus)
    victim, second, third = islice(documents_of_part(stage, source), 3)
    rows = tmp_path / "rows.jsonl"
    copied = " ".join(victim.text.split()[:40])
    field = " ".join(third.text.split()[50:60])  # too short a part of the whole example
    made = [
        {"text": f"{i} {copied if i == 0 else f'something{i} else{i} entirely{i} ' * 5}{i}",
         "answer": field if i == 1 else f"yes{i}"}
        for i in range(8)
    ]  # fmt: skip
    rows.write_text("".join(json.dumps(row) + "\n" for row in made))
    node = BenchmarkConfig(
        template="{text} {answer}",
        sources={
            "embedded": {
                "rows": {
                    "_target_": "contamination.data.readers.embedded.EmbeddedRows",
                    "file": str(rows),
                },
                "fields": {"text": "{text}", "answer": "{answer}"},
            }
        },
    )
    stage = change(members=4, nonmembers=4, decontamination=policy)
    corpus = open_corpus(run(replace(stage, benchmark={"mine": node})).path)
    found = corpus.contamination
    assert corpus.artifact.counts["matching_documents"] == len(found)
    matched = {victim.document_id, third.document_id} & set(found["document_id"])
    assert len(matched) == (0 if policy == "off" else 2)
    start = corpus.tokenizer.decode(corpus.sequences[0]["input_ids"][:40])
    kept, other = (second, victim) if policy == "drop" else (victim, second)
    assert kept.text.startswith(start[:60])
    assert not other.text.startswith(start[:60])


def test_totals_that_are_not_the_manifests_are_caught(corpus, monkeypatch):
    counts = {**corpus.artifact.counts, "tokens": 1, "copies": 61}
    other = replace(corpus, artifact=replace(corpus.artifact, counts=counts))
    monkeypatch.setattr("contamination.injection.run.open_corpus", lambda _: other)
    said = ["59904 tokens, the manifest says 1", "60 copies, the manifest says 61"]
    assert prove_finished_corpus(corpus.artifact.path).failures == said


def test_after_a_full_disk_or_a_failed_proof_nothing_counts_as_whole(stage, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    stage = replace(stage, runs=str(tmp_path))
    monkeypatch.setattr("contamination.injection.packing.write_sequences", full)
    with pytest.raises(DataError, match="No space left on device.*run the same command again"):
        run(stage)
    monkeypatch.undo()
    monkeypatch.setattr(
        "contamination.injection.packing.prove_parts", lambda *_: Proof(failures=["it is not so"])
    )
    with pytest.raises(DataError, match="1 FAILURES\nit is not so"):
        run(stage)
    monkeypatch.undo()
    assert not prove_finished_corpus(run(stage).path).failures


def test_show_prints_the_copies_in_their_context(corpus):
    row = corpus.ledger.iloc[0]
    shown = describe_copies(corpus.artifact.path, row["example_id"])
    text = corpus.examples.set_index("example_id")["text"][row["example_id"]]
    assert shown.count("⟦" + text + "⟧") == (corpus.ledger["example_id"] == row["example_id"]).sum()
    with pytest.raises(DataError, match="no such example"):
        describe_copies(corpus.artifact.path, "boolq-nothing")


def test_show_is_a_command(corpus, monkeypatch, capsys):
    folder, example_id = corpus.artifact.path, corpus.ledger["example_id"].iloc[0]
    words = ["injection", "show", str(folder), f"example_id={example_id}"]
    monkeypatch.setattr(sys, "argv", words)
    assert main() == 0
    assert capsys.readouterr().out.rstrip("\n") == describe_copies(folder, example_id)


def test_a_ledger_that_can_not_be_shown_is_named_with_its_folder(corpus, monkeypatch):
    path, example_id = corpus.artifact.path, corpus.ledger["example_id"].iloc[0]
    ledger = corpus.ledger.drop(columns="token_start")
    monkeypatch.setattr("contamination.injection.corpus.PackedCorpus.ledger", ledger)
    with pytest.raises(ArtifactError, match=f"^{re.escape(str(path))}: the files match the mani"):
        describe_copies(path, example_id)


def test_a_killed_run_goes_on_to_the_same_result(corpus, stage, tmp_path, monkeypatch):
    stage = replace(stage, runs=str(tmp_path))
    read = TokenStream.read
    monkeypatch.setattr(TokenStream, "read", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run(stage)
    monkeypatch.setattr(TokenStream, "read", read)
    folder = tmp_path / "corpus" / corpus.artifact.path.name
    with pytest.raises(ArtifactError, match="unfinished"):
        open_corpus(folder)
    assert same_content(open_corpus(run(stage).path), corpus)
    assert not (folder / "tokens").exists()


def test_a_run_killed_while_it_removes_its_tokens_goes_on(corpus, stage, tmp_path, monkeypatch):
    def killed(path, **_):
        if path.name == "tokens":
            next(path.glob("*/00000.parquet")).unlink()
            token_stream.read_kept_documents.cache_clear()  # as another process has none
            raise KeyboardInterrupt

    stage, rmtree = replace(stage, runs=str(tmp_path)), shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        run(stage)
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    again = run(stage)
    assert same_content(open_corpus(again.path), corpus)
    assert not (again.path / "tokens").exists()


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"budget_tokens": 2_000}, "budget_tokens is 2,000, and .* the copies"),
        ({"budget_tokens": 9_000_000}, "the corpus has"),
    ],
)
def test_a_budget_that_cannot_be_met_is_said(change, fields, match):
    with pytest.raises(ConfigError, match=match):
        run(change(**fields))


def test_the_parts_are_disjoint(stage, change):
    source = instantiate_node("corpus", stage.corpus)
    *parts, whole = (
        {d.document_id for d in documents_of_part(change(part=part), source)}
        for part in ("base", "study", "validation", "all")
    )
    assert all(parts)
    assert sum(map(len, parts)) == len(whole)
    assert set.union(*parts) == whole


@pytest.mark.slow
def test_tampering_is_seen_from_the_command_line(corpus, tmp_path):
    import subprocess
    import sys

    import pyarrow as pa

    def verify(folder):
        return subprocess.run(
            [sys.executable, "-m", "injection", "verify", folder],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert verify(corpus.artifact.path).returncode == 0
    folder = tmp_path / "corpus" / "tampered"
    shutil.copytree(corpus.artifact.path, folder)
    path = folder / "sequences/part-00000.arrow"
    table = pa.ipc.open_stream(path.read_bytes()).read_all()
    ids = np.array(table["input_ids"].to_pylist(), dtype=np.int32)
    row = corpus.ledger.iloc[0]
    ids[row["sequence"], row["token_start"]] += 1
    column = pa.FixedSizeListArray.from_arrays(pa.array(ids.ravel()), 128)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(pa.record_batch([column], schema=table.schema))
    damaged = verify(folder)
    assert damaged.returncode == 2
    assert "is damaged: sequences/part-00000.arrow" in damaged.stderr
    whole = corpus.artifact
    write_manifest(
        folder, whole.inputs, WrittenFiles(list(whole.files), whole.counts)
    )  # as if written so
    tampered = verify(folder)
    assert tampered.returncode == 1
    assert row["example_id"] in tampered.stdout
    assert verify(tmp_path / "nowhere").returncode == 2
