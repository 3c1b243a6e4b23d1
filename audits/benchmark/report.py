"""The report of the audit: the verdict in a sentence, then effects, questions and methods."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from contamination.audits.benchmark import inputs
from contamination.audits.benchmark.blind import BLIND_LEVEL, NO_CORPUS
from contamination.audits.benchmark.comparison import LEAKED, UNDETERMINED, Comparison
from contamination.audits.benchmark.origin import RECORD
from contamination.audits.benchmark.tables import (
    SHIFT,
    Findings,
    benchmark_table,
    estimate_text,
    format_p,
    method_table,
    question_table,
    terms_table,
)
from contamination.core.report.charts import (
    INK,
    MEMBER,
    NONMEMBER,
    InlineChart,
    page_figure,
)
from contamination.core.report.document import (
    ReportContent,
    html_document,
    markdown_document,
)
from contamination.core.statistics.estimates import confidence_interval
from contamination.core.statistics.metrics import AUROC
from contamination.core.terminal import counted
from contamination.detection.baselines.matching import MATCHED
from contamination.detection.evaluation import CONFIDENCE

BINS = 24
ADVICE = (
    "To get an answer, compare with questions that cannot have leaked: hold some back, write or "
    "generate siblings in the same way, or take dated ones (docs/audits.md, Fresh questions)."
)
LIMITS = (
    "**That the model is not contaminated.** A set that was seen once or twice, or among much "
    "other text, often leaves no trace that any method finds.",
    "That the two sets are of the same making. The blind tests find differences of the texts; a "
    "difference that they miss, such as how the parts of a text fit together, could still be one "
    "of familiarity. Only a draw by lot excludes it.",
    "That the fresh questions are fresh. Rewordings of leaked questions are familiar as well, and "
    "hide a leak.",
    "Which question leaked. The verdict is about the set; single questions are ranked, and only "
    "those with a small corrected p-value stand out by themselves.",
)


@dataclass(frozen=True)
class BenchmarkFindings(Findings):
    """The findings of an audit, with their tables as data frames and the report."""

    @property
    def benchmarks(self) -> pd.DataFrame:
        """One row per model and benchmark; see `benchmark_table`."""
        return benchmark_table(self).data

    @property
    def methods(self) -> pd.DataFrame:
        """One row per model, benchmark and method, with its AUROC and matched AUROC."""
        return method_table(self).data

    @property
    def questions(self) -> pd.DataFrame:
        """One row per model and question, likeliest first; none where nothing is determined."""
        table = question_table(self)
        return pd.DataFrame() if table is None else table.data

    def markdown(self) -> str:
        """Returns the report in Markdown."""
        return markdown_document(report(self, {}))

    def html(self) -> str:
        """Returns the report as a page that needs no other file."""
        return html_document(report(self, {}))


def report(findings: Findings, facts: Mapping[str, str]) -> ReportContent:
    """Returns the findings in sentences, tables and charts.

    Args:
        findings: the findings.
        facts: what the audit is based on, by name.
    """
    tested = [c for c in findings.comparisons if c.test is not None]
    corrected = ", corrected over models and benchmarks (Holm)" if len(tested) > 1 else ""
    tables = [benchmark_table(findings), question_table(findings)]
    tables += [method_table(findings)] if tested else []
    blind = f"level {BLIND_LEVEL:g}, whatever the level of the test"
    return ReportContent(
        title="Did the questions leak?",
        conclusions=[*_conclusions(findings)],
        warnings=[*_warnings(findings)],
        tables=[*filter(None, tables), terms_table(findings)],
        charts=[_score_chart(findings, c) for c in tested],
        limits=[*LIMITS, *_order_limit(findings.control)],
        facts={**facts, "test": f"one-sided, level {findings.alpha:g}{corrected}",
               "tests of the texts": blind},
    )  # fmt: skip


def _conclusions(findings: Findings) -> Iterator[str]:
    for comparison in findings.comparisons:
        yield f"{_about(findings, comparison)}{sentence(findings, comparison)}"


def sentence(findings: Findings, comparison: Comparison) -> str:
    """Returns the verdict on one benchmark and model in a few sentences, the answer first."""
    verdict = findings.verdict(comparison)
    if verdict == UNDETERMINED:
        return f"**Cannot be determined**: {_reason(findings, comparison)}"
    p_values = (
        f"(one-sided p = {format_p(findings.adjusted[comparison.model, comparison.benchmark])}"
    )
    if comparison.blind_p is not None:
        p_values += f"; blind p = {format_p(comparison.blind_p)}"
    if comparison.reference_p is not None:
        p_values += f"; reference p = {format_p(comparison.reference_p)}"
    effect, low, high = comparison.effect
    size = f"{effect:.2f} [{low:.2f}, {high:.2f}]"
    name = findings.effect_name
    if verdict == LEAKED:
        return (
            f"**Leaked: yes{_condition(findings)}** {p_values}). The model finds the "
            f"{findings.noun} more familiar than the {findings.control}: {name} = {size}, AUROC "
            f"{estimate_text(comparison.estimate(AUROC.name))} (95% intervals)."
            f"{_weakness(comparison, name)}{_trust(findings)}"
        )
    parts = [f"**No evidence of a leak** {p_values})."]
    found = comparison.smallest_effect
    if np.isfinite(found):
        parts.append(
            f"{'A' if name == SHIFT else 'An effect of'} {name} ≥ {found:.2f} would have been "
            f"found with 80% power; the effect seen is {size}."
        )
    if high < 0:
        parts.append(
            f"The {findings.control} look more familiar than the questions: check whether the two "
            "files are swapped."
        )
    return " ".join([*parts, "This does not show that nothing leaked."])


def _weakness(comparison: Comparison, name: str) -> str:
    """Returns that the evidence is weak, if the interval of the effect includes none."""
    if comparison.effect[1] > 0:
        return ""
    paired = (
        ", which also has the uncertainty of the standard deviation" if comparison.is_paired else ""
    )
    return (
        f" The evidence is weak: p is one-sided, and the two-sided interval of {name}{paired}, "
        "includes 0."
    )


def _trust(findings: Findings) -> str:
    """Returns on whose word there is no condition."""
    if not findings.drawn:
        return ""
    return (
        f" This holds if {RECORD}, which is your own word and signed by nobody else, is true, and "
        f"if the {findings.control} have been private since before the model's training."
    )


def _condition(findings: Findings) -> str:
    """Returns under which condition a difference is a leak; none if membership was drawn."""
    if findings.drawn:
        return ""
    if findings.control == inputs.ORDER:
        return ", if the published order is a random one"
    return ", unless the two sets differ in a way that the text tests do not see"


def _reason(findings: Findings, comparison: Comparison) -> str:
    """Returns why nothing can be determined, and what to do."""
    if comparison.test is None:
        advice = "" if comparison.obstacle.startswith("all texts") else f" {ADVICE}"
        return f"{comparison.obstacle}.{advice}"
    p = findings.adjusted[comparison.model, comparison.benchmark]
    seen = (
        f"so that a difference of the scores (p = {format_p(p)}) may be one of the texts"
        if p <= findings.alpha
        else f"so that nothing follows from the scores (p = {format_p(p)})"
    )
    blind, known = comparison.blind, comparison.reference_p
    if blind is not None and blind.p_value is None:
        return (
            "the texts could not be compared without the model, because "
            f"{blind.obstacle}, {seen}. {ADVICE}"
        )
    if known is not None and known <= BLIND_LEVEL:
        return (
            f"the reference finds the questions more familiar as well (reference p = "
            f"{format_p(known)}); if it has not seen them, the texts differ, {seen}. If it may "
            f"have seen them, leave it out. {ADVICE}"
        )
    assert comparison.blind_p is not None
    return (
        f"the two sets differ as texts (blind p = {format_p(comparison.blind_p)}), {seen}. {ADVICE}"
    )


def _about(findings: Findings, comparison: Comparison) -> str:
    """Returns what a sentence is about, if there are several comparisons."""
    names = findings.about(comparison)
    return f"**{', '.join(names)}.** " if names else ""


def _warnings(findings: Findings) -> Iterator[str]:
    for comparison in findings.comparisons:
        about = _about(findings, comparison)
        if comparison.left_out:
            orphans = (
                f" With them went {counted(comparison.orphans, 'text')} of the same clusters, "
                "which had nothing left to be compared with." * bool(comparison.orphans)
            )
            are = "was" if comparison.left_out == 1 else "were"
            yield (
                f"{about}{counted(comparison.left_out, 'text')} {are} left out, because the model "
                f"cannot score a text so short.{orphans}"
            )
        is_leak = findings.verdict(comparison) == LEAKED
        if is_leak and findings.control == inputs.FRESH and not findings.drawn:
            yield from (f"{about}{warning}" for warning in _matched_warnings(comparison))
    yield from findings.notes
    if any(c.blind is not None and c.blind_p is not None and c.blind.words_p is None
           for c in findings.comparisons):  # fmt: skip
        yield NO_CORPUS
    if findings.similar:
        yield (
            f"{findings.similar} of the {findings.control} "
            f"{'is a near-copy' if findings.similar == 1 else 'are near-copies'} of a question (13 "
            "words in a row, or all but a typing error) and may have leaked with it, which hides a "
            "part of the difference."
        )
    if findings.unused:
        are = "is" if findings.unused == 1 else "are"
        yield (
            f"{findings.unused} of the {findings.control} {are} of benchmarks without questions "
            "and not used."
        )


def _matched_warnings(comparison: Comparison) -> Iterator[str]:
    if comparison.is_paired:
        return
    matched = comparison.estimate(MATCHED.name)
    if matched is None or matched.needs:
        needs = "" if matched is None else f" (it needs {matched.needs})"
        yield (
            f"The AUROC could not be matched on what the texts alone tell{needs}: part of the "
            "difference may be one of the texts."
        )
        return
    low, high = confidence_interval(matched, CONFIDENCE)
    if low <= 0.5:
        yield (
            f"After matching on what the texts alone tell, the AUROC is {matched.value:.2f} "
            f"[{low:.2f}, {high:.2f}], whose interval includes 0.5: part of the difference may be "
            "one of the texts."
        )


def _order_limit(control: str) -> list[str]:
    if control != inputs.ORDER:
        return []
    return [
        "That the published order is a random one. Where neighbours are alike (sorted by topic or "
        "length), any model finds the published order likelier."
    ]


def _score_chart(findings: Findings, comparison: Comparison) -> InlineChart:
    """Returns histograms of the combined scores of both sides, with their means."""
    assert comparison.scores is not None
    about = " ".join(findings.about(comparison))
    sides = zip(("questions", "comparison"), comparison.scores, (MEMBER, NONMEMBER), strict=True)
    edges = np.histogram_bin_edges(np.concatenate(comparison.scores), BINS)
    with page_figure(8, 3.4) as (figure, axes):
        for label, values, colour in sides:
            weights = np.full(len(values), 100 / len(values))
            axes.hist(
                values, edges.tolist(), weights=weights, color=colour, alpha=0.55, label=label
            )
            axes.axvline(values.mean(), color=colour, lw=2)
        axes.axhline(0, color=INK, lw=0.8)
        unit = "units" if comparison.units else "texts"
        axes.set(xlabel="combined score (higher: more familiar)", ylabel=f"{unit} of the side (%)")
        figure.legend(loc="outside upper center", ncols=2)
        return InlineChart(
            _chart_name(findings, comparison),
            f"Scores of questions and comparison texts{f', {about}' if about else ''}",
            figure,
            "Histograms of the combined scores of questions and comparison texts; their means "
            f"are {comparison.scores[0].mean():.2f} and {comparison.scores[1].mean():.2f}",
            "Lines: the means. If the questions leaked, their histogram lies further right.",
        )


def _chart_name(findings: Findings, comparison: Comparison) -> str:
    """Returns a name that is no path and no markup; the number keeps it distinct."""
    number = [*findings.comparisons].index(comparison)
    words = re.sub(r"[^a-z0-9]+", "-", f"{comparison.model} {comparison.benchmark}".lower())
    return f"scores-{number}-{words.strip('-')}"
