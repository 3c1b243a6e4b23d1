"""The report of corrected scores: each with its interval and what it assumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

import pandas as pd

from contamination.audits.score.estimation import (
    COMBINED,
    CONSTAT,
    EPG_IPW,
    HELD_OUT,
    IMPUTATION,
    IPW,
    NAIVE,
)
from contamination.audits.score.findings import CorrectedScore, Findings
from contamination.core.report.document import ReportContent
from contamination.core.report.tables import Table

ASSUMPTIONS = {
    NAIVE: "Nothing leaked.",
    HELD_OUT: "The known non-members were drawn at random from the benchmark.",
    IPW: "Membership is unrelated to difficulty, d̂ is calibrated, and members that are not "
    "recognised are few.",
    EPG_IPW: "As IPW, but d̂ need only rank the items. It is too low without contamination, since "
    "the threshold is chosen by its result.",
    IMPUTATION: "ĉ is right on average over the benchmark.",
    COMBINED: "ĉ is right on average over the likely members, and d̂ is calibrated.",
    CONSTAT: "The reference models are clean, the known non-members are comparable with the "
    "benchmark, and the model would follow the reference models' line.",
}
"""What each score assumes to be right."""
PREFERRED = (COMBINED, IPW)
"""The score of the first sentence: the first of these that there is. It is fixed in advance."""
SMALLEST = 0.001
"""The smallest inflation that the first sentence names: 0.1 points. The estimated share of members
is never 0, so without contamination the correction is tiny, and its sign may seem certain."""
LIMITS = (
    "**That the correction is complete.** The intervals show the sampling error, not the members "
    "that the method does not recognise: IPW and the combined score then correct too little, and "
    "their intervals miss the clean score more often than their level says (docs/audits.md).",
    "**What the model would score without the benchmark in its training.** Spiked examples show "
    "how members with their number of copies look. Items with fewer copies are recognised less.",
    "Spillover. If training on some items also raises the accuracy on others of the benchmark, the "
    "non-members are inflated, too, and every score here but imputation is too high.",
    "The best of several. The scores differ in what they assume; choose by the assumption, not by "
    "the result.",
)
"""What the scores can't prove."""


def report(findings: Findings, facts: Mapping[str, str]) -> ReportContent:
    """Returns the corrected scores in sentences and a table.

    Args:
        findings: the results.
        facts: what the audit is based on, by name.
    """
    return ReportContent(
        title="A benchmark's score, corrected for contamination",
        conclusions=[*_conclusions(findings)],
        warnings=findings.warnings,
        tables=[_table(findings)],
        limits=LIMITS,
        facts={
            **facts,
            "method": "arXiv 2605.24818 (naive to combined), arXiv 2405.16281 (ConStat, with a "
            "line in place of its spline)",
        },
    )


def _conclusions(findings: Findings) -> Iterator[str]:
    by_name = {score.name: score for score in findings.scores}
    observed = by_name[NAIVE]
    best = next(by_name[name] for name in PREFERRED if name in by_name)
    level = f"{findings.confidence:.0%} interval"
    verdict = (
        "The score is inflated"
        if best.inflation_low > SMALLEST
        else "The corrected score is higher"
        if best.inflation_high < -SMALLEST
        else "No inflation is shown"
    )
    yield (
        f"**{verdict}: {100 * observed.value:.1f} observed, {_points(best)} corrected** "
        f"({best.name}, {level}); {_inflation(best)} points of inflation."
    )
    yield f"This assumes: {ASSUMPTIONS[best.name]}"
    if findings.constat_p is not None:
        yield (
            f"ConStat: δ = {_inflation(by_name[CONSTAT])} points above what the reference models "
            f"lead one to expect; the p-value of δ ≤ 0 is {findings.constat_p:.2g}."
        )


def _points(score: CorrectedScore) -> str:
    return _format(score.value, score.low, score.high)


def _inflation(score: CorrectedScore) -> str:
    return _format(score.inflation, score.inflation_low, score.inflation_high)


def _format(value: float, low: float, high: float) -> str:
    # Adding 0.0 turns a rounded −0.0 into 0.0.
    points = [round(100 * number, 1) + 0.0 for number in (value, low, high)]
    return f"{points[0]:.1f} [{points[1]:.1f}, {points[2]:.1f}]"


def _table(findings: Findings) -> Table:
    lines = [
        [s.name, _points(s), "–" if s.name == NAIVE else _inflation(s), ASSUMPTIONS[s.name]]
        for s in findings.scores
    ]
    data = pd.DataFrame([asdict(score) for score in findings.scores])
    data["constat_p"] = [findings.constat_p if s.name == CONSTAT else None for s in findings.scores]
    data["constat_p"] = data["constat_p"].astype(float)
    data["assumption"] = [ASSUMPTIONS[score.name] for score in findings.scores]
    header = ["score", "points", "inflation", "assumes"]
    level = f"{findings.confidence:.0%}"
    note = f"Points are percent correct, with {level} intervals; those of inflation are paired."
    return Table("scores", "Corrected scores", header, lines, data, ("assumes",), note)
