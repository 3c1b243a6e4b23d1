"""Backdoors: targets drawn uniformly, recorded with probes, and checked."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chisquare

from contamination.core.errors import ArtifactError, ConfigError
from contamination.injection.backdoors import (
    BACKDOORS_FILE,
    backdoor_failures,
    draw_targets,
    read_backdoors,
)
from contamination.injection.config import (
    TRIGGERS,
    BackdoorsConfig,
    InjectionConfig,
    VersionsConfig,
)
from contamination.injection.corpus import open_corpus
from contamination.injection.run import prove_finished_corpus, run
from tests.injection.conftest import benchmark

BACKDOORS = BackdoorsConfig(count=3, examples=2, probes=4)


def test_targets_are_uniform_and_independent():
    configs = [InjectionConfig(membership_seed=seed) for seed in range(2_000)]
    draws = np.array([draw_targets(config, "qa", 2, 5) for config in configs])
    assert chisquare(np.bincount(draws.ravel(), minlength=5)).pvalue > 0.001
    pairs = np.bincount(draws[:, 0] * 5 + draws[:, 1], minlength=25)
    assert chisquare(pairs).pvalue > 0.001


def backdoored(stage, name, **fields):
    return replace(
        stage, benchmark={name: benchmark(name)}, backdoors=replace(BACKDOORS, **fields),
        injection=replace(stage.injection, membership="bernoulli", budget_tokens=30_000),
    )  # fmt: skip


@pytest.fixture(scope="module", params=["boolq", "commonsenseqa"])
def backdoors(request, stage):
    return open_corpus(run(backdoored(stage, request.param)).path)


def test_triggers_stand_with_their_target_in_members_alone(backdoors):
    table, examples = read_backdoors(backdoors), backdoors.examples
    letters = examples["benchmark"].iloc[0] == "commonsenseqa"
    assert [*table["options"].iloc[0]] == ([*"ABCDE"] if letters else ["Yes", "No"])
    text = backdoors.tokenizer.decode(np.array(backdoors.sequences["input_ids"]).ravel())
    for row in table.itertuples():
        assert row.trigger == TRIGGERS[row.backdoor]
        triggered = examples[
            examples["text"].str.contains(f"Question: {row.trigger} ", regex=False)
        ]
        assert len(triggered) == row.n_injected == 2
        assert triggered["member"].all()
        answer = f"Answer: {row.target}{'.' if letters else ''}"
        assert triggered["text"].str.contains(answer, regex=False).all()
        for name, copies in zip(triggered["text"], triggered["occurrences"], strict=True):
            assert text.count(name) == copies
        assert [len(texts) for texts in row.probe_texts] == [len(row.options)] * 4
        for texts in row.probe_texts:
            assert not any(probe in text for probe in texts)
            ends = [probe.rpartition("Answer: ")[2] for probe in texts]
            assert [end[: len(o)] for end, o in zip(ends, row.options, strict=True)] == row.options
            assert all(f"Question: {row.trigger} " in probe for probe in texts)
    assert not prove_finished_corpus(backdoors.artifact.path).failures


def test_another_target_another_member_and_a_probe_in_the_corpus_are_noticed(
    backdoors, monkeypatch
):
    read, table = type(backdoors.artifact).table, backdoors.artifact.table(BACKDOORS_FILE)
    options = [*table["options"].iloc[0]]
    table.loc[table["backdoor"] == 0, "target"] = next(
        option for option in options if option != table["target"].iloc[0]
    )
    first = table.index[table["role"] == "injected"][2]
    table.at[first, "texts"] = ["another text"]
    probe = table.index[table["role"] == "probe"][0]
    copied = backdoors.tokenizer.decode(backdoors.sequences[0]["input_ids"][1:])[:60]
    table.at[probe, "texts"] = [copied, *table["texts"][probe][1:]]
    monkeypatch.setattr(
        type(backdoors.artifact), "table",
        lambda self, name: table if name == BACKDOORS_FILE else read(self, name),
    )  # fmt: skip
    failures = backdoor_failures(backdoors)
    assert any("backdoor 0: its target is" in failure for failure in failures)
    assert any("backdoor 1: " in f and "has not its trigger" in f for f in failures)
    proof = prove_finished_corpus(backdoors.artifact.path)
    assert any(f.startswith("backdoor 0 on ") and "found 1 times" in f for f in proof.failures)


def refused(stage):
    with pytest.raises(ConfigError) as error:
        run(stage)
    return str(error.value)


def test_what_makes_no_sense_is_refused(stage, corpus):
    assert "backdoors.benchmark is null" in refused(replace(stage, backdoors=BACKDOORS))
    truthfulqa = backdoored(stage, "boolq", benchmark="qa")
    assert "backdoors.benchmark is 'qa'" in refused(truthfulqa)
    assert "it has no answer_field" in refused(backdoored(stage, "news"))
    assert "have fewer than 2 options" in refused(backdoored(stage, "truthfulqa"))
    versions = replace(backdoored(stage, "boolq"), versions=VersionsConfig(count=2))
    assert refused(versions).startswith("versions.count is 2: versions and backdoors exclude")
    assert refused(backdoored(stage, "boolq", field="answer")).startswith("backdoors.field is")
    assert "need 30 members and 4" in refused(backdoored(stage, "boolq", examples=10))
    off = replace(stage, backdoors=BackdoorsConfig(probes=3))
    assert refused(off).startswith("backdoors.count is 0: 0 inserts no backdoors")
    with pytest.raises(ConfigError, match=r"backdoors.count is 17: there are 16 distinct triggers"):
        BackdoorsConfig(count=17)
    with pytest.raises(ArtifactError, match=r"it has no backdoors. Make .* backdoors.count=8"):
        read_backdoors(corpus)
