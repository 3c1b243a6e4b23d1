"""The report of corrected scores, word for word, from findings that are given."""

from dataclasses import replace

import numpy as np
import pytest

from contamination.audits.score.findings import CorrectedScore, Findings
from contamination.audits.score.report import ASSUMPTIONS, LIMITS, SMALLEST, report

OBSERVED = CorrectedScore("naive", 0.8, 0.75, 0.852, 0.0, -0.0004, 0.0)
CORRECTED = CorrectedScore("IPW", 0.7, 0.62, 0.771, 0.1, 0.04, 0.161)
EXPECTED = CorrectedScore("ConStat", 0.65, 0.55, 0.754, 0.15, 0.03, 0.272)
FINDINGS = Findings([OBSERVED, CORRECTED, EXPECTED], 0.9, 0.0234, ["A warning."])


def test_the_report_of_two_corrections():
    content = report(FINDINGS, {"items": "answers.csv"})
    assert content.title == "A benchmark's score, corrected for contamination"
    assert content.conclusions == [
        "**The score is inflated: 80.0 observed, 70.0 [62.0, 77.1] corrected** (IPW, 90% "
        "interval); 10.0 [4.0, 16.1] points of inflation.",
        f"This assumes: {ASSUMPTIONS['IPW']}",
        "ConStat: δ = 15.0 [3.0, 27.2] points above what the reference models lead one to expect; "
        "the p-value of δ ≤ 0 is 0.023.",
    ]
    assert content.warnings == ["A warning."]
    assert (content.limits, content.charts) == (LIMITS, ())
    assert content.facts == {
        "items": "answers.csv",
        "method": "arXiv 2605.24818 (naive to combined), arXiv 2405.16281 (ConStat, with a line in "
        "place of its spline)",
    }


def test_the_table_of_corrected_scores_has_what_each_assumes():
    (table,) = report(FINDINGS, {}).tables
    assert (table.name, table.title, table.least) == ("scores", "Corrected scores", ("assumes",))
    assert table.header == ["score", "points", "inflation", "assumes"]
    assert table.lines == [
        ["naive", "80.0 [75.0, 85.2]", "–", ASSUMPTIONS["naive"]],
        ["IPW", "70.0 [62.0, 77.1]", "10.0 [4.0, 16.1]", ASSUMPTIONS["IPW"]],
        ["ConStat", "65.0 [55.0, 75.4]", "15.0 [3.0, 27.2]", ASSUMPTIONS["ConStat"]],
    ]
    assert table.note == (
        "Points are percent correct, with 90% intervals; those of inflation are paired."
    )
    assert [*table.data] == ["name", "value", "low", "high", "inflation", "inflation_low",
                             "inflation_high", "constat_p", "assumption"]  # fmt: skip
    assert table.data["name"].tolist() == ["naive", "IPW", "ConStat"]
    assert table.data["high"].tolist() == [0.852, 0.771, 0.754]
    np.testing.assert_array_equal(table.data["constat_p"], [np.nan, np.nan, 0.0234])
    assert table.data["assumption"].tolist() == [line[-1] for line in table.lines]


def test_the_first_sentence_prefers_the_combined_score_and_without_references_has_no_constat():
    combined = replace(CORRECTED, name="combined", value=0.72)
    imputed = replace(CORRECTED, name="imputation", value=0.1)
    findings = replace(FINDINGS, scores=[OBSERVED, CORRECTED, imputed, combined], constat_p=None)
    content = report(findings, {})
    verdict, assumption = content.conclusions
    assert "72.0 [62.0, 77.1] corrected** (combined, 90% interval)" in verdict
    assert assumption == f"This assumes: {ASSUMPTIONS['combined']}"
    (table,) = content.tables
    assert table.data["constat_p"].isna().all()
    assert table.data["constat_p"].dtype == float


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.01 * SMALLEST, 0.5, "The score is inflated"),
        (SMALLEST, 0.5, "No inflation is shown"),
        (-0.5, -SMALLEST, "No inflation is shown"),
        (-0.5, -1.01 * SMALLEST, "The corrected score is higher"),
    ],
)
def test_the_verdict_is_of_the_interval_beyond_a_tenth_of_a_point(low, high, verdict):
    best = replace(CORRECTED, inflation_low=low, inflation_high=high)
    content = report(replace(FINDINGS, scores=[OBSERVED, best, EXPECTED]), {})
    assert content.conclusions[0].startswith(f"**{verdict}: 80.0 observed")


def test_a_number_that_rounds_to_zero_has_no_sign():
    best = replace(CORRECTED, inflation=-0.0001, inflation_low=-0.0004, inflation_high=0.0004)
    verdict = report(replace(FINDINGS, scores=[OBSERVED, best, EXPECTED]), {}).conclusions[0]
    assert verdict.endswith("; 0.0 [0.0, 0.0] points of inflation.")
