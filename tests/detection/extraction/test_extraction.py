"""Verbatim extraction, beside the argmax of a float64 forward that is told the true tokens."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from contamination.core.errors import ConfigError, DataError
from contamination.core.models import load_model, load_tokenizer
from contamination.data.config import ExamplesConfig
from contamination.detection.config import DetectionConfig, ScoredModelConfig
from contamination.detection.tasks.config import ExtractionConfig, ExtractionStage
from contamination.detection.tasks.extraction import FILE, format_summary, run
from tests.detection import naive
from tests.detection.accuracy.test_accuracy import corpus  # noqa: F401
from tests.detection.conftest import MEMORISED, UNSEEN
from tests.detection.golden import GOLDEN, examples


@pytest.fixture
def stage(tmp_path):
    def make(rows, folder=GOLDEN / "target", **given):
        (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return ExtractionStage(
            runs=str(tmp_path / "runs"),
            examples=ExamplesConfig(str(tmp_path / "texts.jsonl")),
            model=ScoredModelConfig(str(folder)),
            detection=DetectionConfig(device="cpu"),
            extraction=ExtractionConfig(**given),
        )

    return make


def table_of(stage):
    return pd.read_parquet(run(stage).path / FILE)


def test_what_comes_back_are_the_likeliest_tokens_each_one(stage):
    """Greedy decoding returns a text where each token is the likeliest behind those before it."""
    rows = [{"text": e["text"], "label": i % 2} for i, e in enumerate(examples()[:12])]
    found = table_of(stage(rows, tokens=3, prefix_tokens=[1, 20]))
    model = load_model("model", str(GOLDEN / "target"), "float64")
    tokenizer = load_tokenizer("model", str(GOLDEN / "target"))
    for row in found.itertuples():
        bos, *ids = tokenizer(examples()[int(row.example_id)]["text"])["input_ids"]
        read = naive.token_rows(model, [bos, *ids[-3 - int(row.prefix) :]])[-3:]
        right = [one["top_id"] == token for one, token in zip(read, ids[-3:], strict=True)]
        assert row.matched == (right.index(False) if False in right else 3)
        assert row.extracted == all(right)
    assert len(found) == 24
    assert set(found["matched"]) >= {0, 1}


def test_what_is_learnt_by_heart_comes_back(stage, toy_folders):
    rows = [{"text": MEMORISED, "label": 1}, {"text": UNSEEN, "label": 0}]
    given = stage(rows, toy_folders["target"], tokens=12, prefix_tokens=[8])
    found = table_of(given).set_index("member")["extracted"]
    assert found.to_dict() == {True: True, False: False}
    before = replace(given, model=ScoredModelConfig(str(toy_folders["reference"])))
    assert not table_of(before)["extracted"].any()


def test_texts_that_are_too_short_or_of_no_label_are_counted(stage):
    rows = [{"text": examples()[0]["text"], "label": 1}, {"text": "Short.", "label": 0},
            {"text": examples()[1]["text"]}]  # fmt: skip
    artifact = run(stage(rows, tokens=5, prefix_tokens=[5, 505]))
    assert {(one["reason"], one["examples"]) for one in artifact.counts["left_out"]} == {
        ("fewer than 5 + 5 tokens", 1), ("fewer than 505 + 5 tokens", 2),
        ("no label, or never inserted", 1),
    }  # fmt: skip
    with pytest.raises(DataError, match=r"nothing to extract.*extraction\.prefix_tokens"):
        run(stage(rows[1:], tokens=5))
    with pytest.raises(ConfigError, match=r"extraction\.prefix_tokens is \[0\]"):
        stage(rows, prefix_tokens=[0])


def test_an_answer_is_asked_for_behind_its_question(stage, corpus):  # noqa: F811
    given = replace(stage([], target="answer"), examples=ExamplesConfig(str(corpus)))
    found = table_of(given)
    assert set(found["prefix"]) == {"question"}
    rows = pd.read_parquet(corpus / "examples.parquet").set_index("example_id")
    tokenizer = load_tokenizer("model", str(GOLDEN / "target"))
    assert len(found) == len(rows)
    for row in found.itertuples():
        answer = json.loads(rows.loc[row.example_id, "fields"])["answer"]
        own = tokenizer(f" {answer}", add_special_tokens=False)["input_ids"]
        assert row.tokens == len(own)


def table(shares):
    """By benchmark and occurrences: (extracted, of)."""
    return pd.DataFrame([
        {"example_id": f"{b}-{n}-{i}", "benchmark": b, "member": n != 0, "occurrences": n,
         "prefix": "25", "tokens": 50, "matched": 0, "extracted": i < hits}
        for (b, n), (hits, of) in shares.items() for i in range(of)
    ]).astype({"occurrences": "Int64"})  # fmt: skip


def test_shares_have_wilsons_intervals():
    found = format_summary(
        {"model": table({("a", 0): (0, 40), ("a", 4): (0, 10), ("a", 8): (3, 10)})}, []
    )
    for hits, of in ((0, 40), (0, 10), (3, 20)):
        low, high = binomtest(hits, of).proportion_ci(method="wilson")
        low, high = np.round([low, high], 3)
        line = next(
            line
            for line in found.splitlines()
            if f"{hits / of:.3f} [" in line and f"({of})" in line
        )
        words = line.partition("[")[2].partition("]")[0].split(", ")
        assert np.allclose([float(w) for w in words], [low, high], atol=0.04 if hits else 1e-3)
    assert "last 50 tokens are returned word for word after the 25 tokens before them" in found


def test_a_reference_stands_beside_the_model_and_unknown_occurrences_are_no_rows():
    own = table({("a", 0): (0, 9), ("a", 1): (9, 9), ("b", 0): (1, 9), ("b", 1): (5, 9)})
    unknown = own.assign(occurrences=pd.array([pd.NA] * len(own), "Int64"))
    lines = format_summary({"model": unknown, "reference": own}, [
        {"benchmark": "a", "examples": 3, "reason": "too short"}]).splitlines()  # fmt: skip
    assert [line.split()[:2] for line in lines[2:8]] == [
        [name, group] for name in ("a", "b", "average") for group in ("non-members", "members")
    ]
    assert lines[1].split()[:4] == ["benchmark", "occurrences", "model", "reference"]
    assert lines[3].split()[-2] == "0.0001"
    assert lines[-1] == "left out: a: 3: too short"
