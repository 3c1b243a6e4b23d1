"""Members in a random canonical order: shards that stand whole and in order, and are checked."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chisquare

from contamination.core.errors import ArtifactError, ConfigError
from contamination.injection.config import InjectionConfig, VersionsConfig
from contamination.injection.corpus import open_corpus
from contamination.injection.finetuning.config import FinetuningStage
from contamination.injection.occurrences import ORDERED_TARGET
from contamination.injection.ordering import (
    ORDER_FILE,
    cut_into_shards,
    draw_order,
    order_failures,
    read_order,
)
from contamination.injection.run import prove_finished_corpus, run


def ordered(stage, node=(), **fields):
    injection = replace(stage.injection, **{"example_max_tokens": 50, **fields})
    occurrences = {"_target_": ORDERED_TARGET, "count": 3, **dict(node)}
    return replace(stage, injection=injection, occurrences=occurrences)


@pytest.fixture(scope="module")
def shards(stage):
    return open_corpus(run(ordered(stage, membership="bernoulli")).path)


def test_orders_are_uniform_and_differ_between_benchmarks():
    configs = [InjectionConfig(occurrence_seed=seed) for seed in range(2_400)]
    draws = np.array([draw_order(config, "qa", 4) for config in configs])
    counts = np.unique(draws, axis=0, return_counts=True)[1]
    assert len(counts) == 24
    assert chisquare(counts).pvalue > 0.001
    others = np.array([draw_order(config, "another", 4) for config in configs])
    assert abs((draws == others).all(axis=1).mean() - 1 / 24) < 0.02


def test_each_copy_of_a_shard_stands_whole_and_in_order(shards):
    order, separator = read_order(shards), shards.tokenizer.encode("\n\n")
    assert {*order["example_id"]} == {*shards.examples["example_id"]}
    flat, width = np.array(shards.sequences["input_ids"]), shards.sequence_tokens
    sizes = order.groupby(["benchmark", "member", "shard"]).size()
    assert sizes.max() >= 2
    for (_, _), rows in order.groupby(["benchmark", "shard"]):
        assert rows["position"].tolist() == [*range(len(rows))]
        texts = [token for text in rows["text"] for token in (
            *separator, *shards.tokenizer.encode(text))]  # fmt: skip
        ids = np.array([*texts, *separator])
        assert len(ids) <= width
        starts = range(width - len(ids) + 1)
        copies = sum(
            int((flat[:, start : start + len(ids)] == ids).all(axis=1).sum()) for start in starts
        )
        assert copies == rows["occurrences"].iloc[0] == 3 * rows["member"].iloc[0]
    assert not prove_finished_corpus(shards.artifact.path).failures


def test_shards_are_cut_as_they_fit_or_to_size():
    assert cut_into_shards([4, 5, 8, 1, 1, 6, 9], 10, None) == [2, 3, 1, 1]
    assert cut_into_shards([4, 5, 8, 1, 1, 6, 9], 10, 2) == [2, 2, 2, 1]
    assert cut_into_shards([], 10, None) == []


def edited(corpus, monkeypatch, table):
    read = type(corpus.artifact).table
    monkeypatch.setattr(
        type(corpus.artifact), "table",
        lambda self, name: table if name == ORDER_FILE else read(self, name),
    )  # fmt: skip
    return order_failures(corpus)


def test_an_edited_order_is_noticed(shards, monkeypatch):
    table = shards.artifact.table(ORDER_FILE)
    assert edited(shards, monkeypatch, table) == []
    table.loc[[0, 1], "example_id"] = table.loc[[1, 0], "example_id"].to_numpy()
    failures = edited(shards, monkeypatch, table)
    assert failures[0].startswith("order.parquet: not the order that the seed draws: [('boolq', 0")
    assert any("copy 2: " in f and f.endswith("does not follow its predecessor") for f in failures)


def test_a_ledger_whose_shard_is_torn_apart_is_noticed(shards):
    other, ledger = open_corpus(shards.artifact.path), shards.ledger.copy()
    pair = read_order(shards).query("member and position == 1")["example_id"].iloc[0]
    row = ledger.index[ledger["example_id"] == pair][0]
    ledger.loc[row, "sequence"] += 1
    vars(other)["ledger"] = ledger
    (failure,) = order_failures(other)
    assert f"{pair} does not follow its predecessor" in failure


def test_what_makes_no_sense_is_refused(stage):
    with pytest.raises(ConfigError, match=r"shard_examples is 6, but .* give null .*as many"):
        run(ordered(stage, {"shard_examples": 6}))
    with pytest.raises(ConfigError, match="injection.split_copies is True: .*never split"):
        run(ordered(stage, split_copies=True))
    swap = {"_target_": "contamination.data.perturbation.word_edits.Swap"}
    with pytest.raises(ConfigError, match="rewording is 'Swap': with occurrences=ordered"):
        run(replace(ordered(stage), rewording=swap))
    with pytest.raises(ConfigError, match=r"shard_examples is 1: give 2 or more, or null"):
        run(ordered(stage, {"shard_examples": 1}))
    with pytest.raises(ConfigError, match="occurrences is 'ordered': a fine-tuning set has no"):
        FinetuningStage(corpus_folder="corpus", occurrences={"_target_": ORDERED_TARGET})


def test_a_corpus_without_order_has_none(corpus):
    assert order_failures(corpus) == []
    with pytest.raises(ArtifactError, match="no canonical order. Make .* occurrences=ordered"):
        read_order(corpus)


def test_versions_may_be_ordered_and_benchmarks_have_occurrences_of_their_own(stage):
    boolq = replace(stage.benchmark["boolq"], occurrences={"_target_": ORDERED_TARGET, "count": 2})
    injection = replace(stage.injection, example_max_tokens=45)
    benchmark = {**stage.benchmark, "boolq": boolq}
    mixed = replace(
        stage, benchmark=benchmark, injection=injection, versions=VersionsConfig(count=2)
    )
    corpus = open_corpus(run(mixed).path)
    assert {*read_order(corpus)["benchmark"]} == {"boolq"}
    assert not prove_finished_corpus(corpus.artifact.path).failures
