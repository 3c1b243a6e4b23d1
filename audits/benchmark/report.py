"""The report of the audit: the verdict in a sentence, then effects, questions and methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from contamination.audits.benchmark import inputs
from contamination.audits.benchmark.comparison import COMBINED, LEAKED, UNDETERMINED, Comparison
from contamination.core.report.charts import (
    INK,
    MEMBER,
    NONMEMBER,
    InlineChart,
    page_figure,
    svg_element,
)
from contamination.core.report.document import ReportContent, html_document, markdown_document
from contamination.core.report.tables import NO_VALUE, Table, format_interval
from contamination.core.statistics.estimates import Estimate, confidence_interval
from contamination.core.statistics.metrics import AUROC
from contamination.detection.baselines.blind import BLIND
from contamination.detection.baselines.matching import MATCHED
from contamination.detection.evaluation import CONFIDENCE

SHOWN_QUESTIONS, SHOWN_CHARACTERS, BINS = 20, 90, 24
ADVICE = (
    "To get an answer, compare with questions that cannot have leaked: hold some back, write or "
    "generate siblings in the same way, or take dated ones (docs/audits.md, Fresh questions)."
)
LIMITS = (
    "**That the model is not contaminated.** A set that was seen once or twice, or among much "
    "other text, often leaves no trace that any method finds.",
    "That the two sets are of the same making. The blind test finds differences of the texts; a "
    "difference that it misses could still be one of familiarity.",
    "Which question leaked. The verdict is about the set; single questions are ranked, and only "
    "those with a small corrected p-value stand out by themselves.",
)


@dataclass(frozen=True)
class BenchmarkFindings:
    """The findings of an audit.

    Attributes:
        comparisons: one per model and benchmark.
        adjusted: their p-values, corrected for the benchmarks of a model.
        control: what the questions are compared with; see `inputs`.
        alpha: the level of the tests.
    """

    comparisons: Sequence[Comparison]
    adjusted: Mapping[tuple[str, str], float]
    control: str
    alpha: float

    def verdict(self, comparison: Comparison) -> str:
        """Returns the verdict on one benchmark and model."""
        key = comparison.model, comparison.benchmark
        return comparison.verdict(self.adjusted.get(key, 1.0), self.alpha)

    @property
    def verdicts(self) -> dict[tuple[str, str], str]:
        """The verdict by model and benchmark."""
        return {(c.model, c.benchmark): self.verdict(c) for c in self.comparisons}

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
        """One row per model and question, likeliest first, with p-values."""
        return question_table(self).data

    def markdown(self) -> str:
        """Returns the report in Markdown."""
        return markdown_document(report(self, {}))

    def html(self) -> str:
        """Returns the report as a page that needs no other file."""
        return html_document(report(self, {}))


def report(findings: BenchmarkFindings, facts: Mapping[str, str]) -> ReportContent:
    """Returns the findings in sentences, tables and charts.

    Args:
        findings: the findings.
        facts: what the audit is based on, by name.
    """
    comparisons = findings.comparisons
    tested = [c for c in comparisons if c.test is not None]
    several = _has_several_benchmarks(comparisons)
    corrected = ", corrected for the benchmarks (Holm)" if several else ""
    tables = [benchmark_table(findings)]
    tables += [question_table(findings), method_table(findings)] if tested else []
    return ReportContent(
        title="Did the questions leak?",
        conclusions=[*_conclusions(findings)],
        warnings=[*_warnings(findings)],
        tables=tables,
        charts=[_score_chart(c, len(comparisons) > 1) for c in tested],
        limits=[*LIMITS, *_order_limit(findings.control)],
        facts={**facts, "test": f"one-sided, level {findings.alpha:g}{corrected}"},
    )


def _conclusions(findings: BenchmarkFindings) -> Iterator[str]:
    for comparison in findings.comparisons:
        about = _about(comparison, findings.comparisons)
        yield f"{about}{sentence(findings, comparison)}"


def sentence(findings: BenchmarkFindings, comparison: Comparison) -> str:
    """Returns the verdict on one benchmark and model in one or two sentences."""
    verdict, test = findings.verdict(comparison), comparison.test
    if test is None:
        return f"**Cannot be determined**: {comparison.obstacle}. {ADVICE}"
    p = findings.adjusted[comparison.model, comparison.benchmark]
    blind = "" if comparison.blind_p is None else f"; blind p = {format_p(comparison.blind_p)}"
    if verdict == UNDETERMINED:
        assert comparison.blind_p is not None
        return (
            "**Cannot be determined**: the two sets differ as texts (blind p = "
            f"{format_p(comparison.blind_p)}), so that a difference of the scores (p = "
            f"{format_p(p)}) may be one of the texts. {ADVICE}"
        )
    effect, low, high = comparison.effect
    if verdict == LEAKED:
        return (
            f"**Leaked: yes** (p = {format_p(p)}{blind}). The model finds the questions more "
            f"familiar than the {findings.control}: d′ = {effect:.2f} [{low:.2f}, {high:.2f}], "
            f"AUROC {_auroc_text(comparison)}."
        )
    return (
        f"**No evidence of a leak** (p = {format_p(p)}{blind}). An effect of d′ ≥ "
        f"{test.smallest_effect:.2f} would have been found with 80% power; the effect seen is "
        f"{effect:.2f} [{low:.2f}, {high:.2f}]. This does not show that nothing leaked."
    )


def _about(comparison: Comparison, comparisons: Sequence[Comparison]) -> str:
    """Returns what a sentence is about, if there are several comparisons."""
    names = []
    if len({c.model for c in comparisons}) > 1:
        names.append(comparison.model)
    if _has_several_benchmarks(comparisons):
        names.append(comparison.benchmark or "(no benchmark)")
    return f"**{', '.join(names)}.** " if names else ""


def _has_several_benchmarks(comparisons: Sequence[Comparison]) -> bool:
    return len({c.benchmark for c in comparisons}) > 1


def _warnings(findings: BenchmarkFindings) -> Iterator[str]:
    for comparison in findings.comparisons:
        matched = comparison.estimate(MATCHED.name)
        if findings.verdict(comparison) != LEAKED or matched is None or matched.needs:
            continue
        low, high = confidence_interval(matched, CONFIDENCE)
        if low <= 0.5:
            about = _about(comparison, findings.comparisons)
            yield (
                f"{about}After matching on what the texts alone tell, the AUROC is "
                f"{matched.value:.2f} [{low:.2f}, {high:.2f}], whose interval includes 0.5: part "
                "of the difference may be one of the texts."
            )


def _order_limit(control: str) -> list[str]:
    if control != inputs.ORDER:
        return []
    return [
        "That the published order is a random one. Where neighbours are alike (sorted by topic or "
        "length), any model finds the published order likelier."
    ]


def format_p(p_value: float) -> str:
    """Returns a p-value with two digits that count, such as .041 or .0003."""
    return f"{p_value:.2g}" if p_value < 0.1 else f"{p_value:.2f}"


def _auroc_text(comparison: Comparison) -> str:
    return _estimate_text(comparison.estimate(AUROC.name))


def _estimate_text(estimate: Estimate | None) -> str:
    if estimate is None or estimate.needs:
        return NO_VALUE
    return format_interval(estimate.value, *confidence_interval(estimate, CONFIDENCE))


def benchmark_table(findings: BenchmarkFindings) -> Table:
    """Returns one row per model and benchmark: verdict, p-values and effects."""
    rows: list[dict[str, Any]] = []
    lines: list[list[str]] = []
    for c in findings.comparisons:
        p = findings.adjusted.get((c.model, c.benchmark))
        effect = (np.nan,) * 3 if c.test is None else c.effect
        row = {
            "model": c.model, "benchmark": c.benchmark, "verdict": findings.verdict(c),
            "questions": c.questions, "others": c.others,
            "p_value": None if c.test is None else c.test.p_value, "adjusted_p": p,
            "blind_p": c.blind_p, "d_prime": effect[0], "d_prime_low": effect[1],
            "d_prime_high": effect[2],
            "smallest_effect": None if c.test is None else c.test.smallest_effect,
            "obstacle": c.obstacle,
        }  # fmt: skip
        for metric in (AUROC.name, MATCHED.name):
            row |= _columns(metric, c.estimate(metric))
        rows.append(row)
        lines.append([
            c.model, c.benchmark or NO_VALUE, findings.verdict(c), str(c.questions), str(c.others),
            NO_VALUE if p is None else format_p(p),
            NO_VALUE if c.blind_p is None else format_p(c.blind_p),
            NO_VALUE if c.test is None else format_interval(*effect),
            NO_VALUE if c.test is None else f"{c.test.smallest_effect:.2f}",
            _auroc_text(c), _estimate_text(c.estimate(MATCHED.name)),
        ])  # fmt: skip
    header = [
        "model", "benchmark", "verdict", "questions", findings.control, "p", "blind p", "d′",
        "d′ that would be found", "AUROC", "matched AUROC",
    ]  # fmt: skip
    note = (
        "p: the chance of a difference at least as large if nothing leaked, corrected for the "
        "benchmarks. Blind p: the same for the texts alone; if it is small, nothing follows about "
        "the model. d′: the difference in standard deviations. The effect that would be found has "
        "80% power. AUROC: the chance that a question scores higher than one of the "
        f"{findings.control}; matched: among texts that the texts alone do not distinguish."
    )
    return Table("benchmarks", "Verdicts", header, lines, pd.DataFrame(rows), note=note)


def question_table(findings: BenchmarkFindings) -> Table:
    """Returns one row per model and question, likeliest first; the text shows the first of them."""
    parts, lines = [], []
    for c in findings.comparisons:
        if c.ranking is None:
            continue
        ids = c.ranking["example_id"].str.partition("/")[2].where(
            c.ranking["example_id"].str.startswith("question/"), c.ranking["example_id"]
        )  # fmt: skip
        part = c.ranking.assign(example_id=ids)
        parts.append(part.assign(model=c.model, benchmark=c.benchmark))
        for row in part.head(SHOWN_QUESTIONS).itertuples():
            lines.append([
                *([c.model] if len({o.model for o in findings.comparisons}) > 1 else []),
                *([c.benchmark] if _has_several_benchmarks(findings.comparisons) else []),
                str(row.example_id), _excerpt(row.text), f"{row.score:.2f}",
                format_p(row.p_value), format_p(row.adjusted),
            ])  # fmt: skip
    several = [
        *(["model"] if len({c.model for c in findings.comparisons}) > 1 else []),
        *(["benchmark"] if _has_several_benchmarks(findings.comparisons) else []),
    ]
    note = (
        "Score: the mean normal score over the methods; higher means more familiar. p: the chance "
        f"that one of the {findings.control} scores at least as high. Corrected: of the questions "
        "with at most this value, at most this share is expected to be listed by chance (Benjamini "
        f"and Hochberg). The first {SHOWN_QUESTIONS} are shown; questions.csv has all."
    )
    header = [*several, "question", "text", "score", "p", "corrected p"]
    data = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return Table("questions", "The most familiar questions", header, lines, data, note=note)


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[: SHOWN_CHARACTERS - 1]}…"


def method_table(findings: BenchmarkFindings) -> Table:
    """Returns one row per model, benchmark and method: AUROC and matched AUROC."""
    rows: list[dict[str, Any]] = []
    lines: list[list[str]] = []
    for c in findings.comparisons:
        for (method, variant), estimates in (c.estimates or {}).items():
            auroc, matched = estimates.get(AUROC.name), estimates.get(MATCHED.name)
            names = {"model": c.model, "benchmark": c.benchmark}
            rows.append(
                {**names, "method": method, "variant": variant}
                | _columns(AUROC.name, auroc)
                | _columns(MATCHED.name, matched)
            )
            lines.append([
                c.model, c.benchmark or NO_VALUE, f"{method} {variant}".strip(),
                _estimate_text(auroc), _estimate_text(matched),
            ])  # fmt: skip
    note = (
        f"The row {COMBINED} is the mean of all methods, which the verdict tests. The row {BLIND} "
        "never sees the model."
    )
    header = ["model", "benchmark", "method", "AUROC", "matched AUROC"]
    return Table("methods", "Methods", header, lines, pd.DataFrame(rows), note=note)


def _columns(metric: str, estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None or estimate.needs:
        return {metric: None, f"{metric}_low": None, f"{metric}_high": None}
    low, high = confidence_interval(estimate, CONFIDENCE)
    return {metric: estimate.value, f"{metric}_low": float(low), f"{metric}_high": float(high)}


def _score_chart(comparison: Comparison, named: bool) -> InlineChart:
    """Returns histograms of the combined scores of both sides, with their means."""
    assert comparison.scores is not None
    about = " ".join(filter(None, (comparison.model, comparison.benchmark))) if named else ""
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
        axes.set(xlabel="combined score (higher: more familiar)", ylabel="texts of the side (%)")
        figure.legend(loc="outside upper center", ncols=2)
        return InlineChart(
            "-".join(filter(None, ("scores", comparison.model, comparison.benchmark))).replace(
                " ", "-"
            ),
            f"Scores of questions and comparison texts{f', {about}' if about else ''}",
            svg_element(
                figure,
                "Histograms of the combined scores of questions and comparison texts; their means "
                f"are {comparison.scores[0].mean():.2f} and {comparison.scores[1].mean():.2f}",
            ),
            "Lines: the means. If the questions leaked, their histogram lies further right.",
        )
