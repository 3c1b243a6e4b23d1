"""The report of the audit of decontamination: its sentences and tables."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.decontamination.findings import (
    NO_INTERVAL,
    Interval,
    RuleFindings,
    findings_frame,
)
from contamination.audits.decontamination.inputs import NONE, ORACLE, Study
from contamination.audits.decontamination.report import LIMITS, report

RULES = (NONE, ORACLE, "good", "bad")


def around(value):
    return Interval(value, value - 0.1, value + 0.1)


def findings_of(form, rule, recall, **fields):
    by_seed = pd.DataFrame([
        {"form": form, "rule": rule, "seed": 7, "recall": recall + 0.0004, "auroc": 0.6666,
         "effect": 1.2346, "documents_lost": 2},
    ])  # fmt: skip
    values = {
        "right": 0.456, "precision": around(0.8), "documents_lost": 2, "tokens_lost": 1234,
        "share_lost": 0.01234, "leaked_tokens_left": 0.256, "unseen": 0.124,
        "effect": around(1.5), "spillover": around(0.3), "share_left": around(0.4),
        "auroc": around(0.7), "d_prime": around(0.9), "escaped_auroc": around(0.75),
        "escaped_members": 11, **fields,
    }  # fmt: skip
    kinds = {"tq": around(recall), "under 13 words": NO_INTERVAL}
    return RuleFindings(form, rule, around(recall), kinds, by_seed=by_seed, **values)


FINDINGS = [
    findings_of("verbatim", NONE, 0.2, auroc=around(0.9)),
    findings_of("verbatim", ORACLE, 1.0, auroc=around(0.5), right=np.nan),
    findings_of("verbatim", "good", 0.8),
    findings_of("verbatim", "bad", 0.3, escaped_auroc=NO_INTERVAL, share_lost=0.5),
    findings_of("embedded", NONE, 0.1),
    findings_of("embedded", ORACLE, 1.0),
]
INDEX = pd.DataFrame([
    {"form": f.form, "rule": f.rule, "seed": 7, "corpus": "c", "model": f"{f.rule}-0123456789",
     "contaminated": "s"}
    for f in FINDINGS
])  # fmt: skip
STUDY = Study(
    {"verbatim": {}, "embedded": {}}, [7], np.ones((1, 3), bool), np.array(["tq"] * 3),
    np.full(3, 9), ["embedded, bad: only 1 of 2 seeds"], 6, {}, INDEX,
)  # fmt: skip


@pytest.fixture
def content():
    return report(FINDINGS, STUDY, {"method": "min_k"}, 0.9)


def test_each_form_has_a_sentence_on_its_best_and_its_worst_rule(content):
    assert content.title == "Decontamination: what rules find, cost and leave"
    assert content.conclusions == [
        "**verbatim**: without decontamination the AUROC is 0.90 [0.80, 1.00]. good leaves out 80% "
        "of the copies (AUROC 0.70 [0.60, 0.80]) and loses 1.23% of the clean text; bad leaves out "
        "30% (AUROC 0.70 [0.60, 0.80])."
    ]
    assert content.warnings == ["Left out: embedded, bad: only 1 of 2 seeds."]
    assert [*content.limits] == [*LIMITS]
    assert content.facts == {"method": "min_k"}


def test_of_rules_that_find_as_much_the_cheaper_one_is_named():
    cheap = findings_of("verbatim", "cheap", 0.8, tokens_lost=9, share_lost=0.001)
    conclusion = report([*FINDINGS, cheap], STUDY, {"method": "loss"}, 0.9).conclusions[0]
    assert ". cheap leaves out 80% " in conclusion
    assert "loses 0.10% of the clean text; bad leaves" in conclusion


AROUND = {value: f"{value:.2f} [{value - 0.1:.2f}, {value + 0.1:.2f}]" for value in
          (0.3, 0.4, 0.5, 0.7, 0.75, 0.8, 0.9, 1.5)}  # fmt: skip


def test_rules_are_crossed_with_forms(content):
    tables = {table.name: table for table in content.tables}
    assert [*tables] == [
        "recall", "share_left", "effect", "auroc", "escaped", "costs", "recall_by_kind", "by_seed",
        "index",
    ]  # fmt: skip

    def lines(good, bad, none=(), oracle=()):
        rows = {NONE: none, ORACLE: oracle, "good": [good, "–"], "bad": [bad, "–"]}
        return [[rule, *cells] for rule, cells in rows.items() if cells]

    a = AROUND
    assert {name: tables[name].lines for name in [*tables][:5]} == {
        "recall": lines(a[0.8], a[0.3]),
        "share_left": lines(a[0.4], a[0.4]),
        "effect": lines(a[1.5], a[1.5], [a[1.5]] * 2),
        "auroc": lines(a[0.7], a[0.7], [a[0.9], a[0.7]], [a[0.5], a[0.7]]),
        "escaped": lines(f"{a[0.75]} (11)", "– (11)"),
    }
    assert {name: (tables[name].title, tables[name].note) for name in [*tables][:5]} == {
        "recall": (
            "Recall: share of the leaked copies that are left out",
            "Of all copies that were inserted. Intervals: 90%. Clopper-Pearson with a trial per "
            "member.",
        ),
        "share_left": (
            "Share of the effect on members that remains",
            "Effect: how much more likely members became than in the twin without any copy, less "
            "the same of non-members (nats per token). 1: as without decontamination; 0: as in the "
            "twin. Intervals: 90%.",
        ),
        "effect": (
            "Effect on members, nats per token",
            "See above; none is the leak without decontamination. Intervals: 90%.",
        ),
        "auroc": (
            "AUROC of all leaked members (min_k)",
            "Mean over benchmarks and seeds. oracle: the twin, whose members did not leak. "
            "Intervals: 90%.",
        ),
        "escaped": (
            "AUROC of what escaped",
            "Members with at least one copy left, in brackets their number; benchmarks of a cell "
            "with fewer than 5 are left out. Intervals: 90%.",
        ),
    }
    for name in [*tables][:5]:
        assert tables[name].header == ["rule", "verbatim", "embedded"]
        assert len(tables[name].data) == len(FINDINGS)
    ends = ("", "_low", "_high")
    assert {name: [*tables[name].data][2:] for name in [*tables][:7]} == {
        **{name: [f"{name}{end}" for end in ends] for name in ("recall", "share_left")},
        "effect": [f"{name}{end}" for name in ("effect", "spillover") for end in ends],
        "auroc": [f"{name}{end}" for name in ("auroc", "d_prime") for end in ends],
        "escaped": [*(f"escaped_auroc{end}" for end in ends), "escaped_members"],
        "costs": [*(f"precision{end}" for end in ends), "right", "documents_lost", "tokens_lost",
                  "share_lost", "leaked_tokens_left", "unseen"],
        "recall_by_kind": ["recall, tq", "recall, under 13 words"],
    }  # fmt: skip


def test_what_a_rule_costs_has_a_row_per_rule_and_form(content):
    table = next(table for table in content.tables if table.name == "costs")
    assert table.title == "What a rule costs"
    assert table.header == [
        "rule", "form", "precision", "right item", "clean documents lost", "clean tokens lost",
        "share of clean text", "leaked tokens left", "copies it can't see",
    ]  # fmt: skip
    assert table.lines == [
        [rule, form, AROUND[0.8], right, "2", "1,234", share, "26%", "12%"]
        for rule, form, right, share in (
            (ORACLE, "verbatim", "–", "1.23%"), ("good", "verbatim", "0.46", "1.23%"),
            ("bad", "verbatim", "0.46", "50.00%"), (ORACLE, "embedded", "0.46", "1.23%"),
        )
    ]  # fmt: skip
    assert table.note == (
        "Precision: the share of copies among the documents that are left out. Right item: the "
        "share of flagged copies in which their own example is found. Over all seeds: the same "
        "clean documents count once per seed. Intervals: 90%. Clopper-Pearson with a trial per "
        "member or document."
    )


def test_recall_is_also_told_by_benchmark_and_length_and_all_by_seed(content):
    kinds, seeds, models = content.tables[-3:]
    assert (kinds.title, kinds.header) == (
        "Recall by benchmark and length", ["rule", "form", "tq", "under 13 words"]
    )  # fmt: skip
    assert kinds.lines == [
        ["good", "verbatim", AROUND[0.8], "–"], ["bad", "verbatim", AROUND[0.3], "–"]
    ]  # fmt: skip
    assert kinds.note == "Words of the whole example, whatever form leaked. Intervals: 90%."
    assert (seeds.title, seeds.header) == (
        "By seed", ["rule", "form", "seed", "recall", "AUROC", "effect", "clean documents lost"]
    )  # fmt: skip
    assert seeds.lines[2] == ["good", "verbatim", "7", "0.800", "0.667", "1.235", "2"]
    assert seeds.data.equals(pd.concat([f.by_seed for f in FINDINGS], ignore_index=True))
    assert (models.title, models.header) == ("Models", ["rule", "form", "seed", "model"])
    assert models.lines[:2] == [
        [NONE, "verbatim", "7", "none-0123456"], [ORACLE, "verbatim", "7", "oracle-01234"]
    ]  # fmt: skip
    assert models.data is INDEX
    assert models.note == (
        "Cells with equal corpora have the same model. index.csv has the digests of corpus, model "
        "and scores, by which other tables on the same cells are joined."
    )


def test_all_quantities_are_in_one_frame():
    index = pd.concat([INDEX, INDEX.tail(1).assign(seed=8, model="other")])
    table = findings_frame(FINDINGS[-2:], replace(STUDY, index=index))
    assert table["models"].tolist() == ["none-0123456789", "oracle-0123456789 other"]
    row = table.iloc[0].to_dict()
    intervals = {
        name: getattr(FINDINGS[-2], name)
        for name in ("recall", "precision", "effect", "spillover", "share_left", "auroc", "d_prime",
                     "escaped_auroc")
    }  # fmt: skip
    ends = {
        f"{name}{end}": value
        for name, interval in intervals.items()
        for end, value in (("", interval.value), ("_low", interval.low), ("_high", interval.high))
    }
    expected = {
        "form": "embedded", "rule": NONE, **ends, "right": 0.456, "documents_lost": 2,
        "tokens_lost": 1234, "share_lost": 0.01234, "leaked_tokens_left": 0.256, "unseen": 0.124,
        "escaped_members": 11, "recall, tq": 0.1, "models": "none-0123456789",
    }  # fmt: skip
    assert np.isnan(row.pop("recall, under 13 words"))
    assert row == expected
