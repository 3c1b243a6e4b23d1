"""Versions of examples: drawn uniformly and independently, recorded, counted and checked."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare

from contamination.core.errors import ArtifactError, ConfigError
from contamination.injection.config import InjectionConfig, VersionsConfig
from contamination.injection.copies import make_copies
from contamination.injection.corpus import open_corpus
from contamination.injection.membership import draw_membership
from contamination.injection.pool import draw_pool, read_candidates
from contamination.injection.pool_sizes import PoolSizes
from contamination.injection.run import prove_finished_corpus, run
from contamination.injection.token_stream import Tokenizer
from contamination.injection.versions import (
    VERSIONS_FILE,
    draw_identifiers,
    draw_versions,
    read_versions,
)

SWAP = {"_target_": "contamination.data.perturbation.word_edits.Swap"}
K = 5


def test_draws_are_uniform_and_independent_of_each_other_and_of_the_membership():
    configs = [InjectionConfig(membership_seed=seed) for seed in range(600)]
    draws = np.array([draw_versions(config, "qa", 40, K) for config in configs])
    member = np.array([draw_membership(config, "qa", PoolSizes(20, 20)) for config in configs])
    assert chisquare(np.bincount(draws.ravel(), minlength=K)).pvalue > 0.001
    pairs = np.bincount(draws[:, 0] * K + draws[:, 1], minlength=K * K)
    assert chisquare(pairs).pvalue > 0.001
    joint = np.bincount((draws * 2 + member).ravel(), minlength=2 * K)
    assert chisquare(joint).pvalue > 0.001
    others = np.array([draw_versions(config, "another", 40, K) for config in configs])
    assert abs((draws == others).mean() - 1 / K) < 0.02


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [("canary", r"[0-9a-z]{12}"), ("url", r"https://example\.org/[0-9a-z]{10}"),
     ("sha256", r"[0-9a-f]{64}"),
     ("uuid", r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")],
)  # fmt: skip
def test_identifiers_are_distinct_and_of_their_kind(kind, pattern):
    config = VersionsConfig(count=200, kind=kind)
    identifiers = pd.Series(draw_identifiers(config, 0, "a"))
    assert identifiers.str.fullmatch(pattern).all()
    assert identifiers.nunique() == 200
    assert identifiers.tolist() == draw_identifiers(config, 0, "a")
    assert not {*identifiers} & {
        *draw_identifiers(config, 0, "b"),
        *draw_identifiers(config, 1, "a"),
    }


@pytest.fixture(scope="module")
def canary_stage(stage):
    injection = replace(stage.injection, membership="bernoulli", budget_tokens=60_000)
    return replace(stage, injection=injection, versions=VersionsConfig(count=K))


@pytest.fixture(scope="module")
def canaries(canary_stage):
    return open_corpus(run(canary_stage).path)


def test_the_drawn_version_is_the_only_one_in_the_corpus(canaries):
    versions = read_versions(canaries)
    examples = canaries.examples.set_index("example_id")
    assert len(versions) == K * len(examples)
    assert (versions.groupby("example_id")["injected"].sum() == 1).all()
    drawn = versions[versions["injected"]].set_index("example_id")
    assert drawn["text"].equals(examples["text"].loc[drawn.index])
    assert drawn["text"].str.contains(r"\nReference: [0-9a-z]{12}$").all()
    text = canaries.tokenizer.decode(np.array(canaries.sequences["input_ids"]).ravel())
    for row in versions.itertuples():
        assert text.count(row.text) == (row.occurrences if row.injected else 0)
    assert versions["occurrences"].sum() == K * len(canaries.ledger) > 0
    assert not prove_finished_corpus(canaries.artifact.path).failures


def test_the_pool_is_the_same_without_versions_and_with_other_seeds(canaries, canary_stage, corpus):
    assert canaries.examples["example_id"].tolist() == corpus.examples["example_id"].tolist()
    assert canaries.held_out["example_id"].tolist() == corpus.held_out["example_id"].tolist()
    tokenizer = Tokenizer(str(canary_stage.tokenizer.path))
    other = draw_pool(
        replace(canary_stage, seed=1).resolved(), read_candidates(canary_stage), tokenizer
    ).records[VERSIONS_FILE]
    versions = read_versions(canaries)
    assert other["text"].tolist() == versions["text"].tolist()
    assert (other["injected"] != versions["injected"]).any()


def test_rewordings_leave_the_original_out(stage, corpus):
    injection = replace(stage.injection, example_max_tokens=100)
    versions = VersionsConfig(count=3, kind="rewording")
    reworded = replace(stage, rewording=SWAP, versions=versions, injection=injection)
    tokenizer = Tokenizer(str(stage.tokenizer.path))
    pool = draw_pool(reworded.resolved(), read_candidates(reworded), tokenizer)
    versions = pool.records[VERSIONS_FILE]
    assert not {*versions["text"]} & {*corpus.examples["text"]}
    assert (versions.groupby("example_id")["text"].nunique() == 3).all()
    drawn = versions.loc[versions["injected"], "text"].tolist()
    assert pool.examples["text"].tolist() == drawn
    assert {*make_copies(reworded.resolved(), pool.examples, tokenizer).texts} <= {*drawn}


def replaced_table(corpus, monkeypatch, table):
    """The proof of the corpus with another table of versions."""
    read = type(corpus.artifact).table
    monkeypatch.setattr(
        type(corpus.artifact), "table",
        lambda self, name: table if name == VERSIONS_FILE else read(self, name),
    )  # fmt: skip
    return prove_finished_corpus(corpus.artifact.path).failures


def test_another_draw_is_noticed(canaries, monkeypatch):
    table = canaries.artifact.table(VERSIONS_FILE)
    member = canaries.examples.loc[canaries.examples["occurrences"] > 0, "example_id"].iloc[0]
    rows = table["example_id"] == member
    table.loc[rows, "injected"] = np.roll(table.loc[rows, "injected"], 1)
    failures = replaced_table(canaries, monkeypatch, table)
    assert any("is listed as drawn, the seed draws" in failure for failure in failures)


def test_exchanged_texts_are_noticed(canaries, monkeypatch):
    table = canaries.artifact.table(VERSIONS_FILE)
    (first, second), name = table.index[~table["injected"]][:2], table["example_id"].iloc[0]
    table.loc[[first, second], "text"] = table.loc[[second, first], "text"].to_numpy()
    assert replaced_table(canaries, monkeypatch, table) == [
        f"{name}: its versions have not the identifiers that the seed draws"
    ]


def test_a_version_that_occurs_and_a_missing_version_are_noticed(canaries, monkeypatch):
    table = canaries.artifact.table(VERSIONS_FILE)
    name, version = table.loc[~table["injected"], ["example_id", "version"]].iloc[0]
    row = (table["example_id"] == name) & (table["version"] == version)
    start = canaries.tokenizer.decode(canaries.sequences[0]["input_ids"][1:])[:60]
    table.loc[row, "text"] = start  # a text that stands in the corpus
    failures = replaced_table(canaries, monkeypatch, table)
    assert any(f.startswith(f"{name} version {version}: found 1 times") for f in failures)
    failures = replaced_table(canaries, monkeypatch, table[~row])
    assert f"{name}: {K - 1} distinct versions, {K} expected" in failures


def refused(stage, **versions):
    with pytest.raises(ConfigError) as error:
        run(replace(stage, versions=VersionsConfig(**versions)))
    return str(error.value)


def test_what_makes_no_sense_is_refused(stage):
    assert refused(stage, kind="uuid").startswith("versions.count is 1: one version is no choice")
    assert "rewording=swap" in refused(stage, count=2, kind="rewording")
    reworded = replace(stage, rewording=SWAP)
    assert refused(reworded, count=2).startswith("rewording is 'Swap': each copy would be another")
    for template in (
        "{text}",
        "{text} {identifier} {identifier}",
        "{text!r} {identifier}",
        "{text",
    ):
        assert refused(stage, count=2, template=template).startswith("versions.template is ")
    with pytest.raises(ConfigError, match=r"versions.kind is 'hash': choose from canary"):
        VersionsConfig(kind="hash")
    tight = replace(stage, injection=replace(stage.injection, example_max_tokens=120))
    assert "and a version or trigger: lower it" in refused(tight, count=2)


def test_a_corpus_without_versions_has_none(corpus):
    with pytest.raises(ArtifactError, match=r"only one version. Make the corpus with versions.cou"):
        read_versions(corpus)


def test_a_text_with_too_few_rewordings_is_an_error(stage, monkeypatch):
    monkeypatch.setattr("contamination.injection.versions.MAX_ATTEMPTS", 2)
    delete = {"_target_": "contamination.data.perturbation.word_edits.Delete", "share": 0.01}
    many = replace(stage, rewording=delete, versions=VersionsConfig(count=150, kind="rewording"))
    with pytest.raises(ConfigError, match=r"versions.count is 150, but .* has only \d+ distinct"):
        draw_pool(many.resolved(), read_candidates(many), Tokenizer(str(many.tokenizer.path)))
