"""The audit of a set of questions: its test, its verdicts, and what it says about bad input."""

import json
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from contamination.audits.base import AuditStage
from contamination.audits.benchmark import inputs
from contamination.audits.benchmark.api import audit_benchmark
from contamination.audits.benchmark.audit import audit_texts
from contamination.audits.benchmark.comparison import LEAKED, NO_EVIDENCE, UNDETERMINED, d_prime
from contamination.audits.benchmark.exchangeability import combined_scores, relabellings, set_test
from contamination.core.errors import ConfigError, DataError
from contamination.data.examples import make_text
from contamination.data.texts import Texts

WORDS = [
    "river",
    "stone",
    "lamp",
    "winter",
    "market",
    "engine",
    "paper",
    "garden",
    "signal",
    "harbour",
    "copper",
    "letter",
]


def sentence(rng, words=WORDS):
    return " ".join(rng.choice(words, 9)) + "."


def labelled_texts(questions, fresh, seed=0, words=WORDS, benchmark=""):
    """Questions and fresh texts that are drawn alike, unless the questions' words differ."""
    rng = np.random.default_rng(seed)
    rows = [
        make_text(
            f"{side}/{benchmark}{i}",
            f"{benchmark} {sentence(rng, chosen)}",
            side == "question",
            benchmark,
        )
        for side, number, chosen in (("question", questions, words), ("fresh", fresh, WORDS))
        for i in range(number)
    ]
    return rows


def score_tables(shift, seed=0, methods=("loss", "min_k")):
    """Returns a function that scores questions `shift` standard deviations above the others."""

    def score(texts, model):
        rng = np.random.default_rng(seed)
        common = rng.normal(size=len(texts)) + shift * np.array([bool(t.label) for t in texts])
        return pd.concat([
            pd.DataFrame({
                "example_id": [t.example_id for t in texts], "method": method, "variant": "",
                "score": common + 0.3 * rng.normal(size=len(texts)),
                "ranked": True, "default": True,
            })
            for method in methods
        ])  # fmt: skip

    return score


def verdict_of(rows, shift, seed=0, control=inputs.FRESH):
    found = audit_texts(Texts.of(rows), ["m"], score_tables(shift, seed), control, seed, 0.05)
    return found


def test_the_p_value_is_that_of_all_relabellings():
    rng = np.random.default_rng(3)
    score, is_question = rng.normal(size=9), np.arange(9) < 4
    differences = []
    for chosen in combinations(range(9), 4):
        labels = np.isin(np.arange(9), chosen)
        differences.append(score[labels].mean() - score[~labels].mean())
    actual = score[is_question].mean() - score[~is_question].mean()
    exact = np.mean(np.array(differences) >= actual - 1e-12)
    found = set_test(score, is_question, np.arange(9), seed=0).p_value
    assert found == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 9_999) + 1e-4)


def test_relabellings_keep_clusters_whole_and_versions_within():
    cluster = np.array([0, 0, 0, 1, 1, 2, 2, 2, 3, 3])
    is_question = np.array([1, 1, 1, 0, 0, 0, 0, 0, 1, 0], bool)
    drawn = relabellings(is_question, cluster, 300, seed=1)
    for group in (0, 1, 2):
        labels = drawn[:, cluster == group]
        assert (labels.all(axis=1) | ~labels.any(axis=1)).all()
    assert (drawn[:, cluster == 3].sum(axis=1) == 1).all()
    assert {0, 1, 2} == {*np.argmax(drawn[:, [0, 3, 5]], axis=1)}


def test_the_p_value_is_uniform_without_an_effect():
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(20), 3)
    values = []
    for trial in range(400):
        score = rng.normal(size=60) + 2 * rng.normal(size=20)[cluster]
        values.append(set_test(score, np.arange(60) < 30, cluster, trial).p_value)
    rejected = np.mean(np.array(values) <= 0.05)
    assert 0.02 <= rejected <= 0.085
    assert 0.43 <= np.mean(values) <= 0.57


def test_the_smallest_effect_is_found_in_four_of_five():
    rng = np.random.default_rng(1)
    is_question = np.arange(80) < 40
    size = set_test(rng.normal(size=80), is_question, np.arange(80), 0).smallest_effect
    assert size == pytest.approx(2.49 * np.sqrt(2 / 40), rel=0.1)
    found = [
        set_test(rng.normal(size=80) + size * is_question, is_question, np.arange(80), i).p_value
        for i in range(200)
    ]
    assert 0.70 <= np.mean(np.array(found) <= 0.05) <= 0.90


def test_combined_scores_do_not_depend_on_units_or_one_outlier():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(3, 20))
    other = scores * [[1], [1000], [1e-6]]
    other[0, np.argmax(other[0])] = 1e9
    assert combined_scores(other) == pytest.approx(combined_scores(scores))


def test_d_prime_is_finite_at_the_ends():
    assert d_prime(0.5, 20, 20) == 0
    assert d_prime(0.76, 20, 20) == pytest.approx(0.9989, abs=1e-3)
    assert np.isfinite([d_prime(1.0, 20, 20), d_prime(0.0, 20, 20)]).all()


def test_a_leak_is_found_and_its_numbers_are_in_the_sentence():
    found = verdict_of(labelled_texts(60, 60), shift=1.5)
    assert found.verdicts == {("m", ""): LEAKED}
    text = found.markdown()
    assert "**Leaked: yes** (p = 0.0001; blind p = " in text
    row = found.benchmarks.iloc[0]
    assert row["auroc_low"] < row["auroc"] < row["auroc_high"]
    assert row["d_prime_low"] < 1.5 < row["d_prime_high"]
    assert found.questions["p_value"].is_monotonic_increasing
    assert (found.questions["adjusted"] >= found.questions["p_value"]).all()


def test_no_evidence_names_the_effect_that_would_have_been_found():
    found = verdict_of(labelled_texts(40, 40), shift=0.0, seed=2)
    assert found.verdicts == {("m", ""): NO_EVIDENCE}
    text = found.markdown()
    assert "would have been found with 80% power" in text
    assert "This does not show that nothing leaked." in text
    assert "not contaminated" not in text.replace("That the model is not contaminated", "")


def test_sets_that_differ_as_texts_cannot_be_judged():
    others = [word.upper() for word in WORDS]
    found = verdict_of(labelled_texts(40, 40, words=others), shift=1.5)
    assert found.verdicts == {("m", ""): UNDETERMINED}
    assert "the two sets differ as texts (blind p = 0.0099)" in found.markdown()


def test_several_benchmarks_are_corrected_and_several_models_named():
    rows = [*labelled_texts(30, 30, benchmark="one"), *labelled_texts(30, 30, benchmark="two")]
    found = audit_texts(Texts.of(rows), ["old", "new"], score_tables(0.55), inputs.FRESH, 0, 0.05)
    assert {*found.verdicts} == {(m, b) for m in ("old", "new") for b in ("one", "two")}
    for row in found.benchmarks.itertuples():
        assert row.adjusted_p >= row.p_value
    smallest = found.benchmarks.groupby("model")["p_value"].idxmin()
    doubled = found.benchmarks.loc[smallest]
    assert doubled["adjusted_p"].to_numpy() == pytest.approx(2 * doubled["p_value"].to_numpy())
    assert "**old, one.**" in found.markdown()


def test_too_few_questions_and_no_comparison_cannot_be_judged():
    few = verdict_of(labelled_texts(9, 30), shift=3.0)
    assert few.verdicts == {("m", ""): UNDETERMINED}
    assert "9 questions and 30 comparison texts are too few" in few.markdown()
    alone = verdict_of(labelled_texts(30, 0), shift=3.0)
    assert alone.verdicts == {("m", ""): UNDETERMINED}
    assert "there are no fresh questions to compare the questions with" in alone.markdown()


def test_versions_are_compared_within_their_question():
    rng = np.random.default_rng(0)
    questions = Texts.of([make_text(str(i), sentence(rng), None, "") for i in range(30)])
    rows = []
    for i in range(30):
        for _ in range(3):
            rows.append({"text": sentence(rng), "cluster": str(i)})
    versions = Texts.of([make_text(f"v{n}", r["text"], None, "") for n, r in enumerate(rows)])
    from dataclasses import replace

    versions = Texts.of(
        [replace(t, cluster=r["cluster"]) for t, r in zip(versions, rows, strict=True)]
    )
    joined = inputs.questions_and_versions(questions, versions)
    assert len(joined) == 120
    difficulty = {str(i): 20 * rng.normal() for i in range(30)}

    def score(texts, model):
        noise = rng.normal(size=len(texts))
        values = [difficulty[t.cluster] + t.label + e for t, e in zip(texts, noise, strict=True)]
        ids = [t.example_id for t in texts]
        return pd.DataFrame({
            "example_id": ids, "method": "loss", "variant": "", "score": values,
            "ranked": True, "default": True,
        })  # fmt: skip

    found = audit_texts(joined, ["m"], score, inputs.VERSIONS, 0, 0.05)
    assert found.verdicts == {("m", ""): LEAKED}
    with pytest.raises(DataError, match="no question has the id 'v0'"):
        inputs.questions_and_versions(questions, Texts.of([make_text("v0", "x", None, "")]))


def test_orders_have_the_same_questions(tokenizer):
    rng = np.random.default_rng(0)
    questions = Texts.of([make_text(str(i), sentence(rng), None, "") for i in range(43)])
    shards = inputs.published_and_random_orders(questions, tokenizer, 512, 0)
    published = [text for text in shards if text.label]
    assert len(published) == 14
    assert len(shards) == 14 * inputs.ORDERS
    assert "\n\n".join(t.text for t in questions).startswith(published[0].text)
    for text in shards:
        own = next(t for t in published if t.cluster == text.cluster)
        assert sorted(text.text.split("\n\n")) == sorted(own.text.split("\n\n"))
    with pytest.raises(DataError, match="no two consecutive questions fit"):
        inputs.published_and_random_orders(questions, tokenizer, 8, 0)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(5)
    for name in ("mine", "fresh"):
        rows = [{"question": sentence(rng), "answer": "Yes"} for _ in range(12)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return tmp_path


def stage(tmp_path, folder, **fields):
    from omegaconf import OmegaConf

    from contamination.core.config import convert_config

    audit = {"_target_": "contamination.audits.benchmark.audit.Benchmark", **fields}
    node = {
        "audit": audit, "runs": str(tmp_path / "runs"), "model": {"path": str(folder)},
        "method": {"loss": {"_target_": "contamination.detection.methods.loss.Loss"}},
    }  # fmt: skip
    return convert_config(OmegaConf.create(node), AuditStage)


def test_the_stored_audit_is_that_of_the_function(files, toy_folders):
    from contamination.audits.run import read_findings, run

    template = "Question: {question}\nAnswer: {answer}"
    paths = {name: str(files / f"{name}.jsonl") for name in ("mine", "fresh")}
    artifact = run(
        stage(files, toy_folders["target"], questions=paths["mine"], fresh=paths["fresh"],
              template=template)
    )  # fmt: skip
    found = audit_benchmark(
        paths["mine"], paths["fresh"], str(toy_folders["target"]), methods="loss", template=template
    )
    stored = pd.read_parquet(artifact.path / "benchmarks.parquet")
    columns = ["verdict", "questions", "others", "p_value", "blind_p", "auroc", "smallest_effect"]
    pd.testing.assert_frame_equal(stored[columns], found.benchmarks[columns])
    assert read_findings(artifact).startswith("# Did the questions leak?")
    lists = audit_benchmark(
        [f"Question: {json.loads(line)['question']}\nAnswer: Yes"
         for line in (files / "mine.jsonl").read_text().splitlines()],
        pd.DataFrame({"text": [f"Question: {json.loads(line)['question']}\nAnswer: Yes"
                               for line in (files / "fresh.jsonl").read_text().splitlines()]}),
        str(toy_folders["target"]), methods="loss",
    )  # fmt: skip
    assert lists.benchmarks["p_value"].tolist() == found.benchmarks["p_value"].tolist()


def test_what_cannot_be_used_is_named(files, toy_folders):
    mine, fresh = str(files / "mine.jsonl"), str(files / "fresh.jsonl")
    model = str(toy_folders["target"])
    with pytest.raises(DataError, match="is not fresh"):
        audit_benchmark(mine, mine, model, template="{question}")
    with pytest.raises(ConfigError, match="choose one of fresh, versions and order"):
        audit_benchmark(mine, fresh, model, order=True, template="{question}")
    with pytest.raises(ConfigError, match="give one model, or several"):
        audit_benchmark(mine, fresh, template="{question}")
    with pytest.raises(DataError, match="no column 'q'"):
        audit_benchmark(mine, fresh, model, template="{q}")
