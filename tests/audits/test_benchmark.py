"""The audit of a set of questions: its test, its verdicts, and what it says about bad input."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from contamination.audits.base import AuditStage
from contamination.audits.benchmark import blind as blind_module
from contamination.audits.benchmark import exchangeability, inputs
from contamination.audits.benchmark.api import audit_benchmark
from contamination.audits.benchmark.audit import Benchmark
from contamination.audits.benchmark.blind import BlindTests, blind_tests
from contamination.audits.benchmark.comparison import LEAKED, NO_EVIDENCE, UNDETERMINED
from contamination.audits.benchmark.effects import d_prime, paired_effect
from contamination.audits.benchmark.exchangeability import (
    Design,
    combined_scores,
    merged_clusters,
    set_test,
)
from contamination.audits.benchmark.origin import is_drawn, with_merged_clusters
from contamination.audits.benchmark.tables import question_table
from contamination.audits.benchmark.verdict import REFERENCE, audit_texts, order_texts
from contamination.core.errors import ConfigError, DataError
from contamination.core.files import hashed_json
from contamination.core.hashing import file_digest
from contamination.core.report.tables import format_interval
from contamination.core.statistics.estimates import Estimate
from contamination.data.examples import make_text
from contamination.data.texts import Texts
from contamination.detection.baselines.classifiers import StyleRegression
from contamination.detection.baselines.words import WordModel, english

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


@pytest.fixture(autouse=True)
def little_work(request, monkeypatch):
    """Few shuffles for the classifier, and counts of the tests' words in the place of English."""
    monkeypatch.setattr(blind_module, "SHUFFLES", 39)
    if "english_words" not in request.fixturenames:
        monkeypatch.setattr(blind_module, "word_scores", word_scores)


def word_scores(texts):
    return np.array([WORD_MODEL.scores(text) for text in texts]).T


def sentence(rng, words=WORDS):
    return " ".join(rng.choice(words, 9)) + "."


WORD_MODEL = WordModel.of([sentence(np.random.default_rng(9)) for _ in range(200)])


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


def by_itself(is_question):
    return Design(is_question, np.arange(len(is_question)))


def rejected(draw, trials=400):
    """The share of data sets with p ≤ .05, at 199 relabellings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchangeability, "RELABELLINGS", 199)
        return np.mean([set_test(*draw(), seed).p_value <= 0.05 for seed in range(trials)])


def test_the_p_value_is_that_of_all_relabellings():
    rng = np.random.default_rng(3)
    score, is_question = rng.normal(size=9), np.arange(9) < 4
    statistics = []
    for chosen in combinations(range(9), 4):
        sides = score[[*chosen]], np.delete(score, chosen)
        error = np.sqrt(sum(side.var(ddof=1) / len(side) for side in sides))
        statistics.append((sides[0].mean() - sides[1].mean()) / error)
    exact = np.mean(np.array(statistics) >= statistics[0] - 1e-12)
    found = set_test(score, by_itself(is_question), seed=0)
    assert found.p_value == pytest.approx(
        exact, abs=4 * np.sqrt(exact * (1 - exact) / 9_999) + 1e-4
    )
    assert found.difference == pytest.approx(score[:4].mean() - score[4:].mean())


def test_relabellings_keep_clusters_whole_and_versions_within():
    cluster = np.array([0, 0, 0, 1, 1, 2, 2, 2, 3, 3])
    is_question = np.array([1, 1, 1, 0, 0, 0, 0, 0, 1, 0], bool)
    drawn = np.concatenate([*Design(is_question, cluster).relabellings(700, seed=1)])
    assert len(drawn) == 700
    for group in (0, 1, 2):
        labels = drawn[:, cluster == group]
        assert (labels.all(axis=1) | ~labels.any(axis=1)).all()
    assert (drawn[:, cluster == 3].sum(axis=1) == 1).all()
    assert {0, 1, 2} == {*np.argmax(drawn[:, [0, 3, 5]], axis=1)}


def test_only_a_few_relabellings_are_in_memory_together():
    blocks = by_itself(np.arange(40) < 20).relabellings(exchangeability.RELABELLINGS, 0)
    assert max(map(len, blocks)) == exchangeability.AT_ONCE


@pytest.mark.parametrize("sizes", [(2, 10), (10, 2)])
def test_clusters_of_unequal_size_keep_the_level(sizes):
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(24), np.repeat(sizes, 12))
    design = Design(cluster < 12, cluster)
    assert 0.02 <= rejected(lambda: (rng.normal(size=144), design)) <= 0.085


def test_the_p_value_is_uniform_where_clusters_are_alike_within():
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(20), 3)
    design = Design(np.arange(60) < 30, cluster)
    found = rejected(lambda: (rng.normal(size=60) + 2 * rng.normal(size=20)[cluster], design))
    assert 0.02 <= found <= 0.085


def test_repeated_texts_count_once():
    rng = np.random.default_rng(0)
    texts = [f"{side} {i} {sentence(rng)}" for side in "ab" for i in range(10)]
    rows = [
        make_text(f"{i}/{copy}", text if copy else f" {text.upper()} ", text[0] == "a", "")
        for copy in range(4) for i, text in enumerate(texts)
    ]  # fmt: skip
    cluster = with_merged_clusters(Texts.of(rows)).column("cluster").to_pylist()
    assert len({*cluster}) == 20
    names = np.unique(cluster, return_inverse=True)[1]
    design = Design(np.array([row.label for row in rows]), names)
    assert 0.02 <= rejected(lambda: (np.tile(rng.normal(size=20), 4), design)) <= 0.085


def test_clusters_that_share_a_text_are_one():
    assert merged_clusters(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2])).tolist() == [0, 0, 0, 1]


def test_the_smallest_effect_is_found_in_four_of_five():
    rng = np.random.default_rng(1)
    design = by_itself(np.arange(80) < 40)
    sizes = [set_test(rng.normal(size=80), design, seed).smallest_difference for seed in range(8)]
    size = np.mean(sizes)
    assert size == pytest.approx(2.49 * np.sqrt(2 / 40), rel=0.1)
    found = rejected(lambda: (rng.normal(size=80) + size * design.is_question, design), 200)
    assert 0.70 <= found <= 0.90


def test_the_interval_of_a_difference_within_clusters_covers_it():
    rng = np.random.default_rng(2)
    cluster = np.tile(np.arange(20), 2)
    design = Design(np.arange(40) < 20, cluster)
    covered = 0
    for _ in range(100):
        score = rng.normal(size=40) + 3 * rng.normal(size=20)[cluster] + 0.7 * design.is_question
        _, low, high = paired_effect(combined_scores(score[None]), design)
        covered += low <= 0.7 / np.sqrt(10) <= high
    assert 0.88 <= covered / 100 <= 0.99


def test_combined_scores_do_not_depend_on_units_or_one_outlier():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(3, 20))
    other = scores * [[1], [1000], [1e-6]]
    other[0, np.argmax(other[0])] = 1e9
    assert combined_scores(other) == pytest.approx(combined_scores(scores))


def test_d_prime_is_finite_at_the_ends():
    def of(auroc):
        return d_prime(Estimate(20, 20, auroc, np.full(100, auroc), 160.0), (20, 20))

    assert of(0.5)[0] == 0
    assert of(0.76)[0] == pytest.approx(0.9989, abs=1e-3)
    assert np.isfinite([of(1.0), of(0.0)]).all()


def test_a_leak_is_found_and_its_numbers_are_in_the_sentence():
    found = verdict_of(labelled_texts(40, 40), shift=1.5)
    assert found.verdicts == {("m", ""): LEAKED}
    text = found.markdown()
    assert "**Leaked: yes, unless the two sets differ in a way that the text tests do not" in text
    assert "(one-sided p = 0.0001; blind p = " in text
    assert "## How to read this" in text
    row = found.benchmarks.iloc[0]
    assert row["auroc_low"] < row["auroc"] < row["auroc_high"]
    assert row["d_prime_low"] < 1.5 < row["d_prime_high"]
    aurocs = [
        format_interval(*row[[name, f"{name}_low", f"{name}_high"]])
        for name in ("auroc", "matched_auroc")
    ]
    assert f"| {' | '.join(aurocs)} |" in text.partition("## Verdicts")[2].partition("## ")[0]
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
    assert "the two sets differ as texts (blind p = 0.0015" in found.markdown()
    assert found.questions.empty
    assert "The most familiar questions" not in found.markdown()
    strict = audit_texts(
        Texts.of(labelled_texts(40, 40, words=others)), ["m"], score_tables(1.5), inputs.FRESH, 0,
        alpha=0.001,
    )  # fmt: skip
    assert strict.verdicts == {("m", ""): UNDETERMINED}
    effects = [verdict.benchmarks["smallest_effect"].item() for verdict in (strict, found)]
    assert effects[0] > 1.2 * effects[1]  # (3.1 + 0.8) / (1.6 + 0.8) of a normal's deviations


def test_one_cluster_of_both_sides_leaves_the_text_tests_on():
    rows = labelled_texts(20, 20, words=[word.upper() for word in WORDS])
    rows[0], rows[20] = (replace(rows[i], cluster="c") for i in (0, 20))
    found = verdict_of(rows, shift=1.5)
    assert found.verdicts == {("m", ""): UNDETERMINED}
    assert found.benchmarks["blind_p"].item() <= 0.05


def test_a_missing_text_test_is_not_passed(monkeypatch):
    rows = labelled_texts(20, 20)
    missing = lambda seed: lambda texts: BlindTests("9 are too few")  # noqa: E731
    monkeypatch.setattr("contamination.audits.benchmark.verdict.cached_blind_tests", missing)
    found = verdict_of(rows, shift=3.0)
    assert found.verdicts == {("m", ""): UNDETERMINED}
    said = "could not be compared without the model, because 9 are too few"
    assert said in found.markdown()


@pytest.fixture
def english_words():
    if english() is None:
        pytest.skip("the embedded corpus is not installed")


def test_misspelt_words_are_seen_without_the_model(english_words):
    rng = np.random.default_rng(0)
    rows = labelled_texts(20, 20, seed=5)

    def misspelt(text):
        words = text.split(" ")
        place = rng.integers(1, 5)
        words[place] = words[place][:2] + words[place][3:1:-1] + words[place][4:]
        return " ".join(words)

    changed = [replace(row, text=misspelt(row.text)) if row.label else row for row in rows]
    assert blind_tests(Texts.of(rows), 0).words_p > 0.05
    assert blind_tests(Texts.of(changed), 0).words_p <= 0.001


def test_a_reference_that_finds_the_questions_familiar_leaves_the_verdict_open():
    rows = Texts.of(labelled_texts(20, 20))
    for shift, verdict in ((1.5, UNDETERMINED), (0.0, LEAKED)):
        tables = {"m": score_tables(1.5), REFERENCE: score_tables(shift, seed=5)}
        found = audit_texts(
            rows, ["m"], lambda texts, name, t=tables: t[name](texts, name), inputs.FRESH, 0, 0.05,
            reference=True,
        )  # fmt: skip
        assert found.verdicts == {("m", ""): verdict}
        assert "reference p = " in found.markdown()


def test_swapped_files_are_pointed_out():
    text = verdict_of(labelled_texts(20, 20), shift=-2.0).markdown()
    assert "check whether the two files are swapped" in text


def test_a_draw_on_record_removes_the_condition(tmp_path):
    names = ["published.csv", "fresh.csv"]
    paths = [tmp_path / name for name in names]
    for path in paths:
        path.write_text(f"text\n{path.name}\n")
    assert not is_drawn(*paths)
    files = {path.name: file_digest(path) for path in paths}
    (tmp_path / "drawn.json").write_text(hashed_json({"seed_drawn": True, "files": files}))
    assert is_drawn(*map(str, paths))
    for entries in ({}, {"seed_drawn": False}):  # an older record, and a seed that was given
        (tmp_path / "drawn.json").write_text(hashed_json({**entries, "files": files}))
        assert not is_drawn(*paths)
    (tmp_path / "drawn.json").write_text(hashed_json({"seed_drawn": True, "files": files}))
    assert not is_drawn(paths[0], paths[0])
    rows = Texts.of(labelled_texts(20, 20))
    found = audit_texts(rows, ["m"], score_tables(1.5), inputs.FRESH, 0, 0.05, drawn=True)
    assert "**Leaked: yes** (one-sided p = " in found.markdown()
    assert "your own word and signed by nobody else" in found.markdown()
    paths[0].write_text("text\nanother\n")
    assert not is_drawn(*paths)


def test_scores_that_are_no_numbers_are_named():
    def with_nan(texts, model):
        table = score_tables(0.0)(texts, model).reset_index(drop=True)
        table.loc[3, "score"] = np.nan
        return table

    with pytest.raises(DataError, match="loss: its score of the text question/3 is missing"):
        audit_texts(Texts.of(labelled_texts(20, 20)), ["m"], with_nan, inputs.FRESH, 0, 0.05)


def test_texts_that_a_model_cannot_score_are_left_out_of_all():
    def unranked(texts, model):
        table = score_tables(0.0)(texts, model).reset_index(drop=True)
        table.loc[3, "ranked"] = False
        return table

    found = audit_texts(Texts.of(labelled_texts(20, 20)), ["m"], unranked, inputs.FRESH, 0, 0.05)
    assert found.benchmarks[["questions", "others", "left_out"]].to_numpy().tolist() == [
        [19, 20, 1]
    ]
    assert "1 text was left out" in found.markdown()


def test_equal_scores_say_nothing():
    def constant(texts, model):
        return score_tables(0.0)(texts, model).assign(score=1.0)

    found = audit_texts(Texts.of(labelled_texts(20, 20)), ["m"], constant, inputs.FRESH, 0, 0.05)
    assert found.verdicts == {("m", ""): UNDETERMINED}
    assert "all texts have the same score" in found.markdown()


def test_a_level_that_no_p_value_reaches_is_refused():
    with pytest.raises(ConfigError, match="give 0.0001 or more"):
        audit_texts(Texts.of(labelled_texts(10, 10)), ["m"], score_tables(0), inputs.FRESH, 0, 1e-5)


def test_copies_are_not_fresh():
    rng = np.random.default_rng(0)
    rows = [
        make_text(f"{side}/{i}", sentence(np.random.default_rng(i)) + end, side == "question", "")
        for side, end in (("question", ""), ("fresh", " .")) for i in range(12)
    ]  # fmt: skip
    with pytest.raises(DataError, match="12 of its texts are the same as questions, such as"):
        audit_texts(Texts.of(rows), ["m"], score_tables(0), inputs.FRESH, 0, 0.05)
    long = [sentence(rng) + " " + sentence(rng) for _ in range(12)]
    rows = [
        make_text(f"{side}/{i}", f"{start} {text}", side == "question", "")
        for side, start in (("question", "Well"), ("fresh", "So")) for i, text in enumerate(long)
    ]  # fmt: skip
    with pytest.raises(DataError, match="12 of its texts are near-copies of questions"):
        audit_texts(Texts.of(rows), ["m"], score_tables(0), inputs.FRESH, 0, 0.05)


def test_benchmarks_that_do_not_match_say_so():
    unnamed = [replace(row, benchmark="" if not row.label else "one")
               for row in labelled_texts(12, 12)]  # fmt: skip
    text = verdict_of(unnamed, shift=1.0)
    assert text.benchmarks[["questions", "others"]].to_numpy().tolist() == [[12, 0]]
    assert "the fresh questions name no benchmark" in text.markdown()
    other = [replace(row, benchmark="one" if row.label else "two") for row in unnamed]
    text = verdict_of(other, shift=1.0).markdown()
    assert "there are no fresh questions of 'one', only of 'two'" in text


def test_single_questions_against_few_others_cannot_stand_out():
    text = verdict_of(labelled_texts(12, 12, seed=1), shift=3.0).markdown()
    assert "no single one can stand out" in text


def test_one_model_by_two_names_is_refused():
    rows = Texts.of(labelled_texts(12, 12))
    with pytest.raises(ConfigError, match="old and new, which score alike"):
        audit_texts(rows, ["old", "new"], score_tables(0), inputs.FRESH, 0, 0.05)


def test_charts_have_names_that_are_no_paths():
    rows = [replace(row, benchmark="a/b|<c>") for row in labelled_texts(10, 10)]
    page = verdict_of(rows, shift=1.0).html()
    assert "scores-0-m-a-b-c" in page


def test_several_benchmarks_are_corrected_and_several_models_named():
    rows = [*labelled_texts(12, 12, benchmark="one"), *labelled_texts(12, 12, benchmark="two")]
    tables = {"old": score_tables(0.55), "new": score_tables(0.55, seed=1)}
    found = audit_texts(
        Texts.of(rows), ["old", "new"], lambda texts, name: tables[name](texts, name), inputs.FRESH,
        0, 0.05,
    )  # fmt: skip
    assert {*found.verdicts} == {(m, b) for m in ("old", "new") for b in ("one", "two")}
    for row in found.benchmarks.itertuples():
        assert row.adjusted_p >= row.p_value
    smallest = found.benchmarks.loc[found.benchmarks["p_value"].idxmin()]
    assert smallest["adjusted_p"] == pytest.approx(4 * smallest["p_value"])
    assert "**old, one.**" in found.markdown()
    untested = [replace(comparison, blind=None) for comparison in found.comparisons]
    table = question_table(replace(found, comparisons=untested))
    assert table.header[:2] == ["model", "benchmark"]
    assert {len(line) for line in table.lines} == {len(table.header)}
    assert {tuple(line[:2]) for line in table.lines} <= {*found.verdicts}


def test_too_few_questions_and_no_comparison_cannot_be_judged():
    few = verdict_of(labelled_texts(9, 30), shift=3.0)
    assert few.verdicts == {("m", ""): UNDETERMINED}
    assert "9 questions and 30 comparison texts are too few" in few.markdown()
    alone = verdict_of(labelled_texts(30, 0), shift=3.0)
    assert alone.verdicts == {("m", ""): UNDETERMINED}
    assert "there are no fresh questions to compare the questions with" in alone.markdown()
    rows = labelled_texts(12, 12)
    rows = [replace(row, cluster=f"c{i // 3}") if row.label else row for i, row in enumerate(rows)]
    said = "12 questions and 12 comparison texts in 4 and 12 clusters are too few"
    assert said in verdict_of(rows, shift=3.0).markdown()


def test_versions_are_compared_within_their_question():
    rng = np.random.default_rng(0)
    questions = Texts.of([make_text(str(i), sentence(rng), None, "") for i in range(30)])
    rows = []
    for i in range(30):
        for _ in range(3):
            rows.append({"text": sentence(rng), "cluster": str(i)})
    versions = Texts.of([make_text(f"v{n}", r["text"], None, "") for n, r in enumerate(rows)])
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
    shards, note = inputs.published_and_random_orders(questions, tokenizer, 512, 0)
    assert note == (
        "The order test uses 42 of 43 questions, in 14 shards. Left out are those longer than the "
        "model's context of 512 tokens (0) and those left without a neighbour that fits into it "
        "with them (1)."
    )
    published = [text for text in shards if text.label]
    assert len(published) == 14
    assert len(shards) == 14 * inputs.ORDERS
    assert "\n\n".join(t.text for t in questions).startswith(published[0].text)
    for text in shards:
        own = next(t for t in published if t.cluster == text.cluster)
        assert sorted(text.text.split("\n\n")) == sorted(own.text.split("\n\n"))
    with pytest.raises(DataError, match="no two consecutive questions fit"):
        inputs.published_and_random_orders(questions, tokenizer, 8, 0)


def test_each_benchmark_has_its_own_orders(tokenizer):
    rng = np.random.default_rng(0)
    rows = [make_text(f"{b}{i}", sentence(rng), None, b) for b in ("x", "y") for i in range(21)]
    shards, notes = order_texts(Texts.of(rows), tokenizer, 512, 0)
    assert [note.partition("The")[0] for note in notes] == ["x: ", "y: "]
    assert {(t.benchmark, t.cluster.split(" of ")[1]) for t in shards} == {("x", "x"), ("y", "y")}


def test_shards_fit_into_the_models_own_context(toy_folders):
    rng = np.random.default_rng(0)
    questions = [*(sentence(rng) for _ in range(12)), " ".join(sentence(rng) for _ in range(20))]
    found = audit_benchmark(questions, model=str(toy_folders["target"]), order=True)
    text = found.markdown()
    assert "The order test uses 12 of 13 questions" in text
    assert "the model's context of 128 tokens (1)" in text


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


def test_files_are_read_before_a_model_is_opened(files):
    mine, fresh = (str(files / f"{name}.jsonl") for name in ("mine", "fresh"))
    template = "Question: {question}"
    for given, message in ((str(files / "fresch.jsonl"), "no such file"), (mine, "not fresh")):
        fields = {"questions": mine, "fresh": given, "template": template}
        config = stage(files, files / "no-model", **fields)
        with pytest.raises((ConfigError, DataError), match=f"^audit.fresh.* {message}"):
            Benchmark(**fields).prepare(config)
    with pytest.raises(ConfigError, match="model"):
        Benchmark(questions=mine, fresh=fresh, template=template).prepare(config)
    fields = {"questions": mine, "fresh": fresh, "order": True}
    with pytest.raises(ConfigError, match="audit is 'fresh and order': choose one comparison"):
        Benchmark(**fields).prepare(stage(files, files / "no-model", **fields))


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


def test_a_question_that_is_repeated_counts_once_in_all_numbers():
    rows = labelled_texts(40, 60)
    rows += [make_text(f"question/again {i}", rows[0].text, True, "") for i in range(150)]
    once = rows[0].text

    def score(texts, model):
        rng = np.random.default_rng(1)
        values = rng.normal(size=len(texts)) + 1.5 * np.array([bool(t.label) for t in texts])
        values[[t.text == once for t in texts]] = -3.0
        return pd.DataFrame({
            "example_id": [t.example_id for t in texts], "method": "loss", "variant": "",
            "score": values, "ranked": True, "default": True,
        })  # fmt: skip

    found = audit_texts(Texts.of(rows), ["m"], score, inputs.FRESH, 0, 0.05)
    assert found.verdicts == {("m", ""): LEAKED}
    row = found.benchmarks.iloc[0]
    assert row["d_prime_low"] > 0.5
    assert row["auroc_low"] > 0.6
    assert row["matched_auroc_low"] > 0.6
    assert (row["questions"], row["question_units"], row["other_units"]) == (190, 40, 60)
    scores = found.comparisons[0].scores
    assert [len(side) for side in scores] == [40, 60]
    assert 0 < row["smallest_effect"] < 1
    text = found.markdown()
    assert "190 questions are 40 units" in text
    assert (found.methods["auroc"] > 0.6).sum() == 2


def test_style_of_units_is_that_of_their_mean_features():
    rng = np.random.default_rng(0)
    features, unit = rng.normal(size=(24, 6)), np.repeat(np.arange(8), 3)
    means = features.reshape(8, 3, 6).mean(axis=1)
    orders = [rng.permutation(8)]

    def style(features, orders):
        rows = np.arange(len(features))
        labels = np.zeros((len(rows), 1), bool)
        return StyleRegression(features @ features.T, labels, rows, orders, 4)

    of_units = style(features, [orders[0][unit]]).of_units(unit)
    values = rng.normal(size=8)
    assert of_units.predict(values) == pytest.approx(style(means, orders).predict(values))


def joined_versions(questions=12):
    rng = np.random.default_rng(0)
    originals = [make_text(str(i), sentence(rng), None, "") for i in range(questions)]
    versions = [replace(make_text(f"v{i}", sentence(rng), None, ""), cluster=str(i))
                for i in range(questions)]  # fmt: skip
    return inputs.questions_and_versions(Texts.of(originals), Texts.of(versions))


def scores_by_text(values, ranked=True):
    """A table of one method by the texts' ids."""
    return pd.DataFrame({
        "example_id": [*values], "method": "loss", "variant": "", "score": [*values.values()],
        "ranked": ranked, "default": True,
    })  # fmt: skip


def test_versions_stay_pairs_without_a_question_that_cannot_be_ranked():
    def score(texts, model):
        rng = np.random.default_rng(0)
        difficulty = {str(i): 50.0 * i for i in range(12)}
        values = {t.example_id: difficulty[t.cluster] + 2 * t.label + rng.normal() for t in texts}
        table = scores_by_text(values)
        return table.assign(ranked=table["example_id"] != "question/0")

    joined = joined_versions()
    by_id = {t.example_id: t.cluster for t in joined}
    assert by_id["question/0"] == "0"

    def score_of_merged(texts, model):
        return score(Texts.of(replace(t, cluster=by_id[t.example_id]) for t in texts), model)

    found = audit_texts(joined, ["m"], score_of_merged, inputs.VERSIONS, 0, 0.05)
    (comparison,) = found.comparisons
    assert comparison.is_paired
    assert (comparison.questions, comparison.others) == (11, 11)
    assert found.benchmarks.iloc[0][["left_out", "orphans"]].tolist() == [1, 1]
    assert found.verdicts == {("m", ""): LEAKED}
    assert "1 text was left out" in found.markdown()
    assert "With them went 1 text of the same clusters" in found.markdown()


def test_cluster_ids_on_both_sides_are_pointed_out(caplog):
    rows = labelled_texts(30, 30)
    rows = [replace(row, cluster=row.example_id.partition("/")[2]) for row in rows]
    found = verdict_of(rows, shift=1.5)
    for text in (found.markdown(), caplog.text):
        assert "30 clusters, such as '0', are named on both sides" in text
        assert "They look like row numbers." in text
        assert "give the two files distinct ones" in text
    text = found.markdown()
    assert "Texts are compared within the same cluster only." in text
    assert "that another text of its cluster scores as high" in text
    assert "all together cannot reach 0.1" in text
    assert "The row blind" not in text
    assert "could not be matched" not in text
    distinct = [replace(row, cluster=row.example_id) for row in rows]
    assert "on both sides" not in verdict_of(distinct, shift=1.5).markdown()


def test_a_p_value_whose_interval_includes_none_is_weak_evidence():
    found = verdict_of(labelled_texts(20, 20), shift=1.5)
    assert "The evidence is weak" not in found.markdown()
    weak = replace(found.comparisons[0], effect=(0.5, -0.1, 1.1))
    text = replace(found, comparisons=[weak]).markdown()
    assert "The evidence is weak: p is one-sided" in text
    assert "uncertainty of the standard deviation, includes 0" not in text
    text = replace(found, comparisons=[replace(weak, is_paired=True)]).markdown()
    assert "uncertainty of the standard deviation, includes 0" in text


def test_the_reference_is_another_model():
    rows = Texts.of(labelled_texts(12, 12))

    def score(texts, name):
        table = score_tables(1.0)(texts, name)
        extra = table.assign(method="reference")
        return table if name == REFERENCE else pd.concat([table, extra])

    with pytest.raises(ConfigError, match="reference.path is 'a model that scores like m'"):
        audit_texts(rows, ["m"], score, inputs.FRESH, 0, 0.05, reference=True)


def test_orders_name_shards_and_an_effect_of_their_own(tokenizer):
    rng = np.random.default_rng(0)
    questions = [make_text(str(i), sentence(rng), None, "") for i in range(40)]
    long = make_text("long", " ".join(sentence(rng) for _ in range(40)), None, "")
    shards, notes = order_texts(Texts.of([*questions, long]), tokenizer, 512, 0)
    (note,) = notes
    assert note.startswith("The order test ")
    assert "uses 39 of 41 questions, in 13 shards." in note
    assert "512 tokens (1) and" in note
    scores = {t.example_id: rng.normal() + 3 * t.label for t in shards}
    found = audit_texts(
        shards, ["m"], lambda *_: scores_by_text(scores), inputs.ORDER, 0, 0.05, notes=notes
    )
    text = found.markdown()
    assert note in text
    assert "finds the shards more familiar than the random orders: shift within shards = " in text
    assert "d′ =" not in text
    assert "not to be compared with one" in text
    assert "- That the published order is a random one." in text
    assert found.benchmarks["shards"].tolist() == [13]
    few, notes = order_texts(Texts.of(questions[:12]), tokenizer, 512, 0)
    scores = {t.example_id: rng.normal() for t in few}
    found = audit_texts(few, ["m"], lambda *_: scores_by_text(scores), inputs.ORDER, 0, 0.05)
    assert "6 shards of questions are too few: the order test needs 10, so 20" in found.markdown()


def test_questions_that_are_all_too_short_are_named():
    def unranked(texts, model):
        table = score_tables(0.0)(texts, model)
        return table.assign(ranked=~table["example_id"].str.startswith("question"))

    found = audit_texts(Texts.of(labelled_texts(12, 12)), ["m"], unranked, inputs.FRESH, 0, 0.05)
    text = found.markdown()
    assert "0 questions and 12 comparison texts are too few (12 texts too short for the" in text


def test_blank_texts_are_left_out_and_counted():
    rows = [*labelled_texts(12, 12), make_text("question/blank", " ", True, "")]
    texts, (note,) = inputs.without_empty_texts(Texts.of(rows), inputs.FRESH)
    assert len(texts) == 24
    assert note.endswith("are blank: 1.")
    joined = joined_versions()
    blank = Texts.of(replace(t, text="") if t.example_id == "question/3" else t for t in joined)
    left, _ = inputs.without_empty_texts(blank, inputs.VERSIONS)
    assert len(left) == 22
    with pytest.raises(DataError, match="audit.questions: each is blank"):
        inputs.without_empty_texts(Texts.of(rows[-1:]), inputs.FRESH)


def test_too_few_questions_need_no_model():
    def score(texts, name):
        raise AssertionError("scored")

    found = audit_texts(Texts.of(labelled_texts(1, 30)), ["m"], score, inputs.FRESH, 0, 0.05)
    assert "1 question and 30 comparison texts are too few" in found.markdown()


def test_benchmarks_in_another_case_are_pointed_out():
    rows = [replace(row, benchmark="TQ" if row.label else "tq") for row in labelled_texts(12, 12)]
    assert "write the benchmark 'TQ' in another case" in verdict_of(rows, shift=1.0).markdown()
