"""The report of the audit of questions: its tables, sentences, warnings and charts."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from contamination.audits.benchmark import inputs
from contamination.audits.benchmark import report as report_module
from contamination.audits.benchmark.blind import NO_CORPUS, BlindTests
from contamination.audits.benchmark.comparison import Comparison
from contamination.audits.benchmark.exchangeability import SetTest
from contamination.audits.benchmark.report import (
    ADVICE,
    LIMITS,
    BenchmarkFindings,
    report,
    sentence,
)
from contamination.audits.benchmark.tables import (
    TERMS,
    Findings,
    benchmark_table,
    format_p,
    method_table,
    question_table,
    terms_table,
)
from contamination.core.report.charts import INK, MEMBER, NONMEMBER
from contamination.core.statistics.estimates import Estimate
from tests.audits.checks import legend_labels

BLIND_TESTS = BlindTests("", 0.4, 0.3, 0.5)
NAN = float("nan")


def estimate(value, width=0.1, needs=""):
    """An estimate whose 95% interval has the ends value ± width."""
    draws = np.linspace(value - width / 0.95, value + width / 0.95, 401)
    return Estimate(12, 12, value, draws, needs=needs)


UNMATCHED = Estimate(12, 12, NAN, np.full(3, NAN), needs="≥ 20 texts")
ESTIMATES = {
    ("combined", ""): {"auroc": estimate(0.8), "matched_auroc": estimate(0.7)},
    ("min_k", "k=0.2"): {"auroc": estimate(0.6), "matched_auroc": UNMATCHED},
    ("blind", ""): {"auroc": estimate(0.55)},
}
RANKING = pd.DataFrame({
    "example_id": ["question/a", "b"],
    "text": ["What  is\nit?", "Who? " + "x" * 85 + "y"],
    "score": [1.456, -0.2], "p_value": [0.0346, 0.5], "adjusted": [0.069, 1.0],
})  # fmt: skip
COMPARISON = Comparison(
    "tq", "m", 12, 14, "", 2, 1,
    test=SetTest(0.0123, 0.99, 0.5, 0.1, 0.25), smallest_effect=0.876,
    effect=(0.9, 0.4, 1.4), blind=BLIND_TESTS, estimates=ESTIMATES,
    least_question_p=1 / 15, ranking=RANKING,
    scores=(np.array([0.0, 1.0, 2.0]), np.array([-1.0, 0.0])),
)  # fmt: skip
UNTESTED = Comparison("", "n", 3, 4, "3 questions and 4 comparison texts are too few")


def findings_of(*comparisons, control=inputs.FRESH, p=0.0246, alpha=0.05, **fields):
    adjusted = {(c.model, c.benchmark): p for c in comparisons if c.test is not None}
    return BenchmarkFindings(comparisons, adjusted, control, alpha, **fields)


def test_the_table_of_verdicts_has_a_row_per_model_and_benchmark():
    findings = findings_of(COMPARISON, UNTESTED)
    table = benchmark_table(findings)
    assert (table.name, table.title) == ("benchmarks", "Verdicts")
    assert table.header == [
        "model", "benchmark", "verdict", "questions", "fresh questions", "p (one-sided)",
        "blind p", "d′", "d′ that would be found", "AUROC", "matched AUROC",
    ]  # fmt: skip
    assert table.lines == [
        ["m", "tq", "leaked", "12", "14", "0.025", "0.90", "0.90 [0.40, 1.40]", "0.88",
         "0.80 [0.70, 0.90]", "0.70 [0.60, 0.80]"],
        ["n", "–", "cannot be determined", "3", "4", "–", "–", "–", "–", "–", "–"],
    ]  # fmt: skip
    tested, untested = table.data.astype(object).where(table.data.notna(), None).to_dict("records")
    assert tested == {
        "model": "m", "benchmark": "tq", "verdict": "leaked", "questions": 12, "others": 14,
        "question_units": 12, "other_units": 14, "p_value": 0.0123, "adjusted_p": 0.0246,
        "blind_p": pytest.approx(0.9), "reference_p": None, "left_out": 2, "orphans": 1,
        "d_prime": 0.9, "d_prime_low": 0.4, "d_prime_high": 1.4, "smallest_effect": 0.876,
        "obstacle": "", "auroc": 0.8, "auroc_low": pytest.approx(0.7, abs=1e-3),
        "auroc_high": pytest.approx(0.9, abs=1e-3), "matched_auroc": 0.7,
        "matched_auroc_low": pytest.approx(0.6, abs=1e-3),
        "matched_auroc_high": pytest.approx(0.8, abs=1e-3),
    }  # fmt: skip
    assert {name: value for name, value in untested.items() if value is not None} == {
        "model": "n", "benchmark": "", "verdict": "cannot be determined", "questions": 3,
        "others": 4, "question_units": 3, "other_units": 4, "left_out": 0, "orphans": 0,
        "obstacle": "3 questions and 4 comparison texts are too few",
    }  # fmt: skip
    assert findings.benchmarks.equals(table.data)
    assert findings.verdicts == {("m", "tq"): "leaked", ("n", ""): "cannot be determined"}


ABOUT_P = (
    "p is one-sided and corrected over models and benchmarks; intervals are two-sided (95%). A "
    "model is never called clean; see How to read this."
)


def test_what_counts_as_one_is_said_above_the_verdicts():
    assert benchmark_table(findings_of(COMPARISON)).note == ABOUT_P
    units = replace(COMPARISON, units=(5, 6))
    units_note = (
        "12 questions are 5 units and 14 fresh questions are 6: equal texts, and those of one "
        "cluster, count as one in p, d′, AUROC and the chart, by their mean. "
    )
    table = benchmark_table(findings_of(units))
    assert table.note == units_note + ABOUT_P
    assert table.data[["question_units", "other_units"]].to_numpy().tolist() == [[5, 6]]
    paired = replace(COMPARISON, is_paired=True)
    within_note = "Texts are compared within the same {} only. "
    table = benchmark_table(findings_of(paired, control=inputs.VERSIONS))
    assert table.note == within_note.format("cluster") + ABOUT_P
    table = benchmark_table(findings_of(paired, control=inputs.ORDER))
    assert table.note == within_note.format("shard") + ABOUT_P
    table = benchmark_table(findings_of(units, replace(paired, benchmark="")))
    assert " ".join(table.note.split()) == (
        f"tq: {units_note}(no benchmark): {within_note.format('cluster')}{ABOUT_P}"
    )


@pytest.mark.parametrize(
    ("p_value", "text"), [(0.0412, "0.041"), (0.1, "0.10"), (0.098, "0.098"), (0.0003, "0.0003")]
)
def test_a_p_value_has_two_digits_that_count(p_value, text):
    assert format_p(p_value) == text


def test_the_table_of_questions_lists_the_most_familiar_first():
    table = question_table(findings_of(COMPARISON, UNTESTED))
    assert (table.name, table.title) == ("questions", "The most familiar questions")
    assert table.header == [
        "model", "benchmark", "question", "text", "score", "p", "corrected p"
    ]  # fmt: skip
    assert table.lines == [
        ["m", "tq", "a", "What is it?", "1.46", "0.035", "0.069"],
        ["m", "tq", "b", "Who? " + "x" * 84 + "…", "-0.20", "0.50", "1.00"],
    ]
    assert table.data.to_dict("list") == {
        **RANKING.assign(example_id=["a", "b"]).to_dict("list"), "model": ["m"] * 2,
        "benchmark": ["tq"] * 2,
    }  # fmt: skip
    assert table.note == (
        "Score: the mean normal score over the methods; higher means more familiar. p: the chance "
        "that one of the fresh questions scores at least as high. Corrected: of the questions with "
        "at most this value, at most this share is expected to be listed by chance (Benjamini and "
        "Hochberg). With so few comparison texts no single one can stand out: alone its corrected "
        "p would be 0.80, and it takes 8 together to reach 0.1. The first 20 are shown; "
        "questions.csv has all."
    )
    assert question_table(findings_of(COMPARISON)).header[0] == "question"
    assert question_table(findings_of(UNTESTED)) is None
    assert findings_of(UNTESTED).questions.empty
    open_verdict = replace(COMPARISON, blind=BlindTests("", 0.01, 0.5, 0.5))
    assert question_table(findings_of(open_verdict)) is None


def test_the_text_of_ninety_characters_is_whole_and_twenty_questions_are_shown():
    many = pd.concat([RANKING] * 11, ignore_index=True).assign(text="x" * 90)
    table = question_table(findings_of(replace(COMPARISON, ranking=many)))
    assert (len(table.lines), len(table.data)) == (20, 22)
    assert {line[1] for line in table.lines} == {"x" * 90}


@pytest.mark.parametrize(
    ("control", "is_paired", "words"),
    [
        (inputs.VERSIONS, True, "one of its other versions scores as high (its rank among them). "),
        (inputs.ORDER, True, "a random order of the same shard scores as high (its rank among"),
        (inputs.FRESH, True, "another text of its cluster scores as high (its rank among them). "),
        (inputs.FRESH, False, "one of the fresh questions scores at least as high. "),
    ],
)
def test_the_p_value_of_a_question_is_said_to_be_that_of_the_comparison(control, is_paired, words):
    findings = findings_of(replace(COMPARISON, is_paired=is_paired), UNTESTED, control=control)
    table = question_table(findings)
    assert f"p: the chance that {words}" in table.note
    noun = "shards" if control == inputs.ORDER else "questions"
    assert (table.title, table.header[2]) == (f"The most familiar {noun}", noun[:-1])


@pytest.mark.parametrize(
    ("least", "words"),
    [
        (0.1 / 12, ""),
        (0.101 / 12, "its corrected p would be 0.10, and it takes 2 together to reach 0.1. "),
        (1.2 / 12, "its corrected p would be 1.00, and it takes 12 together to reach 0.1. "),
        (1.21 / 12, "its corrected p would be 1.00, and all together cannot reach 0.1. "),
    ],
)
def test_it_is_said_how_many_questions_must_stand_out_together(least, words):
    note = question_table(findings_of(replace(COMPARISON, least_question_p=least))).note
    assert (words in note) if words else ("stand out" not in note)


def test_the_table_of_methods_has_the_combination_first():
    table = method_table(findings_of(COMPARISON, UNTESTED))
    assert (table.name, table.title) == ("methods", "Methods")
    assert table.header == ["model", "benchmark", "method", "AUROC", "matched AUROC"]
    assert table.lines == [
        ["m", "tq", "combined", "0.80 [0.70, 0.90]", "0.70 [0.60, 0.80]"],
        ["m", "tq", "min_k k=0.2", "0.60 [0.50, 0.70]", "–"],
        ["m", "tq", "blind", "0.55 [0.45, 0.65]", "–"],
    ]
    assert [*table.data] == [
        "model", "benchmark", "method", "variant", "auroc", "auroc_low", "auroc_high",
        "matched_auroc", "matched_auroc_low", "matched_auroc_high",
    ]  # fmt: skip
    ids = table.data[["model", "benchmark", "method", "variant"]].to_numpy().tolist()
    assert ids == [["m", "tq", *key] for key in ESTIMATES]
    assert table.data["auroc"].tolist() == [0.8, 0.6, 0.55]
    assert table.data["matched_auroc"].isna().tolist() == [False, True, True]
    assert table.note == (
        "The row combined is the mean of all methods, which the verdict tests. The row blind never "
        "sees the model."
    )
    alone = replace(COMPARISON, benchmark="", estimates={("combined", ""): {}})
    table = method_table(findings_of(alone))
    assert table.lines == [["m", "–", "combined", "–", "–"]]
    assert "blind" not in table.note
    assert findings_of(COMPARISON).methods["method"].tolist() == ["combined", "min_k", "blind"]


@pytest.mark.parametrize(
    ("control", "name", "effect", "auroc"),
    [
        (inputs.FRESH, "d′", "the difference in standard deviations", "above a comparison text"),
        (
            inputs.VERSIONS,
            "d′",
            "the mean difference between a question",
            "one of its own versions",
        ),
        (inputs.ORDER, "shift within shards", "how much higher the published", "a random order of"),
    ],
)
def test_the_terms_are_those_of_the_comparison(control, name, effect, auroc):
    table = terms_table(findings_of(COMPARISON, control=control))
    assert (table.name, table.title, table.header) == (
        "terms", "How to read this", ["term", "meaning"]
    )  # fmt: skip
    assert [tuple(line) for line in table.lines[:-2]] == [*TERMS]
    (effect_name, effect_meaning), (auroc_name, auroc_meaning) = table.lines[-2:]
    assert (effect_name, auroc_name) == (name, "AUROC")
    assert effect in effect_meaning
    assert auroc in auroc_meaning
    assert table.data.to_dict("split")["data"] == table.lines
    assert [*table.data] == ["term", "meaning"]


SIZE = "0.90 [0.40, 1.40]"
WITH_P = "(one-sided p = 0.025; blind p = 0.90)"


def sentence_of(comparison, **fields):
    findings = findings_of(comparison, **fields)
    return sentence(findings, comparison)


def test_a_leak_is_told_with_its_condition_and_size():
    familiar = "The model finds the questions more familiar than the fresh questions:"
    size = f"d′ = {SIZE}, AUROC 0.80 [0.70, 0.90] (95% intervals)."
    condition = ", unless the two sets differ in a way that the text tests do not see"
    assert sentence_of(COMPARISON) == f"**Leaked: yes{condition}** {WITH_P}. {familiar} {size}"
    assert sentence_of(COMPARISON, drawn=True) == (
        f"**Leaked: yes** {WITH_P}. {familiar} {size} This holds if drawn.json, which is your own "
        "word and signed by nobody else, is true, and if the fresh questions have been private "
        "since before the model's training."
    )
    with_reference = replace(COMPARISON, reference_p=0.35)
    assert "; blind p = 0.90; reference p = 0.35). The" in sentence_of(with_reference)
    orders = replace(COMPARISON, blind=None, is_paired=True)
    assert sentence_of(orders, control=inputs.ORDER) == (
        "**Leaked: yes, if the published order is a random one** (one-sided p = 0.025). The model "
        f"finds the shards more familiar than the random orders: shift within shards = {SIZE}, "
        "AUROC 0.80 [0.70, 0.90] (95% intervals)."
    )


@pytest.mark.parametrize(("low", "is_weak"), [(0.01, False), (0.0, True)])
def test_an_interval_that_includes_no_effect_is_weak_evidence(low, is_weak):
    weak = replace(COMPARISON, effect=(0.9, low, 1.4))
    evidence = sentence_of(weak).partition("(95% intervals).")[2]
    words = "p is one-sided, and the two-sided interval of d′"
    assert evidence == f" The evidence is weak: {words}, includes 0." * is_weak
    evidence = sentence_of(replace(weak, is_paired=True)).partition("(95% intervals).")[2]
    why = ", which also has the uncertainty of the standard deviation"
    assert evidence == f" The evidence is weak: {words}{why}, includes 0." * is_weak


def test_no_evidence_is_told_with_what_would_have_been_found():
    verdict = f"**No evidence of a leak** {WITH_P.replace('0.025', '0.30')}."
    caveat = "This does not show that nothing leaked."
    power = (
        f"An effect of d′ ≥ 0.88 would have been found with 80% power; the effect seen is {SIZE}."
    )
    assert sentence_of(COMPARISON, p=0.3) == f"{verdict} {power} {caveat}"
    without_power = replace(COMPARISON, smallest_effect=np.inf)
    assert sentence_of(without_power, p=0.3) == f"{verdict} {caveat}"
    swapped = replace(without_power, effect=(-1.0, -2.0, -0.01))
    assert sentence_of(swapped, p=0.3) == (
        f"{verdict} The fresh questions look more familiar than the questions: check whether the "
        f"two files are swapped. {caveat}"
    )
    assert "swapped" not in sentence_of(replace(without_power, effect=(-1.0, -2.0, 0.0)), p=0.3)
    orders = sentence_of(replace(COMPARISON, blind=None), p=0.3, control=inputs.ORDER)
    assert ". A shift within shards ≥ 0.88 would have been found" in orders


def test_it_is_told_why_nothing_can_be_determined_and_what_to_do():
    verdict = "**Cannot be determined**: "
    assert sentence_of(UNTESTED) == f"{verdict}{UNTESTED.obstacle}. {ADVICE}"
    alike = replace(UNTESTED, obstacle="all texts have the same score")
    assert sentence_of(alike) == f"{verdict}all texts have the same score."
    may_be = "so that a difference of the scores (p = 0.05) may be one of the texts"
    differ = replace(COMPARISON, blind=BlindTests("", 0.01, 0.5, 0.5))
    reason = f"the two sets differ as texts (blind p = 0.03), {may_be}. {ADVICE}"
    assert sentence_of(differ, p=0.05) == verdict + reason
    nothing = "so that nothing follows from the scores (p = 0.051)"
    assert sentence_of(differ, p=0.051) == verdict + reason.replace(may_be, nothing)
    untold = replace(COMPARISON, blind=BlindTests("there is one letter"))
    assert sentence_of(untold, p=0.05) == (
        f"{verdict}the texts could not be compared without the model, because there is one letter, "
        f"{may_be}. {ADVICE}"
    )
    known_to_reference = replace(COMPARISON, reference_p=0.05)
    assert sentence_of(known_to_reference, p=0.05) == (
        f"{verdict}the reference finds the questions more familiar as well (reference p = 0.05); "
        f"if it has not seen them, the texts differ, {may_be}. If it may have seen them, leave it "
        f"out. {ADVICE}"
    )
    assert sentence_of(replace(COMPARISON, reference_p=0.051)).startswith("**Leaked")


def warnings_of(*comparisons, **fields):
    return [*report_module._warnings(findings_of(*comparisons, **fields))]


CALM = replace(COMPARISON, left_out=0, orphans=0)


def test_warnings_name_what_was_left_out_and_what_may_hide_a_leak():
    assert warnings_of(CALM) == []
    short = "left out, because the model cannot score a text so short."
    with_them = (
        " With them went {} of the same clusters, which had nothing left to be compared with."
    )
    assert warnings_of(COMPARISON) == [f"2 texts were {short}{with_them.format('1 text')}"]
    assert warnings_of(replace(CALM, left_out=1)) == [f"1 text was {short}"]
    of_two_models = warnings_of(replace(CALM, left_out=1), replace(CALM, model="n", left_out=3))
    assert of_two_models == [f"**m.** 1 text was {short}", f"**n.** 3 texts were {short}"]
    hides = "and may have leaked with it, which hides a part of the difference."
    like = "of a question (13 words in a row, or all but a typing error)"
    assert warnings_of(CALM, similar=1) == [
        f"1 of the fresh questions is a near-copy {like} {hides}"
    ]
    assert warnings_of(CALM, similar=2) == [
        f"2 of the fresh questions are near-copies {like} {hides}"
    ]
    unused = "of benchmarks without questions and not used."
    assert warnings_of(CALM, unused=1) == [f"1 of the fresh questions is {unused}"]
    assert warnings_of(CALM, unused=2, notes=["A note."]) == [
        "A note.", f"2 of the fresh questions are {unused}"
    ]  # fmt: skip
    no_words = replace(CALM, blind=BlindTests("", 0.4, 0.3, None))
    assert warnings_of(no_words, CALM) == [NO_CORPUS]
    assert warnings_of(replace(CALM, blind=None), control=inputs.ORDER) == []
    assert warnings_of(replace(CALM, blind=BlindTests("there is one letter"))) == []


def matched(estimate_of_matched):
    estimates = {("combined", ""): {"auroc": estimate(0.8), "matched_auroc": estimate_of_matched}}
    return replace(CALM, estimates=estimates)


def test_a_leak_that_matching_does_not_confirm_has_a_warning():
    part = "part of the difference may be one of the texts."
    unconfirmed = matched(estimate(0.6, 0.2))
    assert warnings_of(unconfirmed) == [
        "After matching on what the texts alone tell, the AUROC is 0.60 [0.40, 0.80], whose "
        f"interval includes 0.5: {part}"
    ]
    unmatched = "The AUROC could not be matched on what the texts alone tell"
    assert warnings_of(matched(UNMATCHED)) == [f"{unmatched} (it needs ≥ 20 texts): {part}"]
    assert warnings_of(replace(CALM, estimates=None)) == [f"{unmatched}: {part}"]
    assert warnings_of(unconfirmed, drawn=True) == []
    assert warnings_of(unconfirmed, p=0.3) == []
    assert warnings_of(unconfirmed, control=inputs.VERSIONS) == []
    assert warnings_of(replace(unconfirmed, is_paired=True)) == []
    (of_model, _) = warnings_of(unconfirmed, replace(unconfirmed, model="n"))
    assert of_model.startswith("**m.** After matching")


def test_the_report_has_conclusions_tables_limits_and_facts(monkeypatch):
    monkeypatch.setattr(report_module, "_score_chart", lambda findings, comparison: comparison)
    findings = findings_of(COMPARISON, UNTESTED)
    content = report(findings, {"model": "DIR"})
    assert content.title == "Did the questions leak?"
    assert [*content.conclusions] == [
        f"**m, tq.** {sentence(findings, COMPARISON)}",
        f"**n, (no benchmark).** {sentence(findings, UNTESTED)}",
    ]
    names = [table.name for table in content.tables]
    assert names == ["benchmarks", "questions", "methods", "terms"]
    assert [*content.charts] == [COMPARISON]
    assert [*content.warnings] == warnings_of(COMPARISON, UNTESTED)
    assert [*content.limits] == [*LIMITS]
    assert content.facts == {
        "model": "DIR", "test": "one-sided, level 0.05",
        "tests of the texts": "level 0.05, whatever the level of the test",
    }  # fmt: skip
    two_models = findings_of(COMPARISON, replace(COMPARISON, model="n"), alpha=0.01)
    assert report(two_models, {}).facts["test"] == (
        "one-sided, level 0.01, corrected over models and benchmarks (Holm)"
    )
    untested = report(findings_of(UNTESTED), {})
    assert [table.name for table in untested.tables] == ["benchmarks", "terms"]
    assert [*untested.charts] == []
    orders = report(findings_of(replace(COMPARISON, blind=None), control=inputs.ORDER), {})
    assert [*orders.limits] == [
        *LIMITS,
        "That the published order is a random one. Where neighbours are alike (sorted by topic or "
        "length), any model finds the published order likelier.",
    ]


def test_the_chart_has_histograms_of_both_sides_in_percent():
    findings = findings_of(UNTESTED, replace(COMPARISON, benchmark="T/Q", units=(3, 2)))
    (chart,) = report(findings, {}).charts
    assert chart.name == "scores-1-m-t-q"
    assert chart.title == "Scores of questions and comparison texts, m T/Q"
    assert chart.label == (
        "Histograms of the combined scores of questions and comparison texts; their means are 1.00 "
        "and -0.50"
    )
    assert chart.caption == (
        "Lines: the means. If the questions leaked, their histogram lies further right."
    )
    (axes,) = chart.figure.axes
    assert axes.get_xlabel() == "combined score (higher: more familiar)"
    assert axes.get_ylabel() == "units of the side (%)"
    means = [line.get_xdata()[0] for line in axes.lines[:2]]
    assert means == [1.0, -0.5]
    assert [to_hex(line.get_color()) for line in axes.lines] == [MEMBER, NONMEMBER, INK]
    assert [*axes.lines[2].get_ydata()] == [0, 0]
    sides = axes.containers
    assert len(sides) == 2
    for side, colour, values in zip(sides, (MEMBER, NONMEMBER), COMPARISON.scores, strict=True):
        assert len(side) == 24
        assert {to_hex(bar.get_facecolor()) for bar in side} == {colour}
        heights = [bar.get_height() for bar in side]
        assert sum(heights) == pytest.approx(100)
        assert max(heights) == pytest.approx(100 / len(values))
        assert side[0].get_x() == -1
        assert side[-1].get_x() + side[-1].get_width() == pytest.approx(2)
    assert legend_labels(chart) == ["questions", "comparison"]


def test_the_chart_of_one_comparison_of_texts_names_none():
    findings = findings_of(COMPARISON)
    chart = report_module._score_chart(findings, COMPARISON)
    assert chart.title == "Scores of questions and comparison texts"
    assert chart.figure.axes[0].get_ylabel() == "texts of the side (%)"


def test_the_names_of_a_comparison_are_those_that_differ():
    without_benchmark = replace(COMPARISON, benchmark="")
    assert findings_of(COMPARISON).about(COMPARISON) == []
    assert findings_of(COMPARISON, without_benchmark).about(without_benchmark) == ["(no benchmark)"]
    assert findings_of(COMPARISON, replace(COMPARISON, model="n")).about(COMPARISON) == ["m"]
    untested = Findings([without_benchmark], {}, inputs.FRESH, 0.05)
    assert untested.verdict(without_benchmark) == "no evidence"
