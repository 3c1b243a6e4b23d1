"""The tables of the audit: verdicts, the most familiar questions, methods, and what terms mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import pandas as pd

from contamination.audits.benchmark import inputs
from contamination.audits.benchmark.comparison import UNDETERMINED, Comparison
from contamination.audits.benchmark.effects import COMBINED
from contamination.core.report.tables import NO_VALUE, Table, format_interval
from contamination.core.statistics.estimates import Estimate, confidence_interval
from contamination.core.statistics.metrics import AUROC
from contamination.detection.baselines.blind import BLIND
from contamination.detection.baselines.matching import MATCHED
from contamination.detection.evaluation import CONFIDENCE

SHOWN_QUESTIONS, SHOWN_CHARACTERS = 20, 90
D_PRIME, SHIFT = "d′", "shift within shards"
"""The names of the effect; that of the order test is on another scale."""
MEANING_OF_EFFECT = {
    inputs.FRESH: "the difference in standard deviations of the scores; 0: none, 1: large",
    inputs.VERSIONS: "the mean difference between a question and its versions, in standard "
    "deviations of all scores; 0: none. Its interval includes the uncertainty of the standard "
    "deviation, which p does not need, so it can include 0 where p is small",
    inputs.ORDER: "how much higher the published order of a shard scores than random orders of the "
    "same shard, in standard deviations between shards. Those are large, so it is far below a d′ "
    "(0: none, 1: large) and not to be compared with one",
}
MEANING_OF_AUROC = {
    inputs.FRESH: "the chance that a question scores above a comparison text; 0.5: no difference",
    inputs.VERSIONS: "the chance that a question scores above one of its own versions; 0.5: no "
    "difference",
    inputs.ORDER: "the chance that the published order of a shard scores above a random order of "
    "it; 0.5: no difference",
}
LISTED = 0.1
"""The share of wrongly listed questions that most readers accept."""
TERMS = (
    ("p", "the chance that questions are so much more familiar if nothing leaked: one-sided, while "
     "the intervals are two-sided, of 95%, and include 0 up to a p of about 0.025"),
    ("Holm", "several p-values are corrected, so that a false alarm among all of them, over models "
     "and benchmarks, is as rare as one in a single test; p-values are given per model"),
    ("blind p", "the chance of so large a difference of the texts, without any model, if they were "
     "divided at random: the smallest of three tests' (a classifier, shapes, words), times three. "
     "At 0.05 or less nothing follows about the model"),
    ("80% power", "a difference of this size would have been found in four of five such audits"),
    ("matched AUROC", "the same among texts that the texts alone do not distinguish: what remains "
     "if differences of the texts are taken out"),
    ("unit", "what counts as one in p, d′, AUROC and the chart: a text, or the mean of a "
     "cluster or of equal texts"),
    ("conformal p of a question", "the chance that a comparison text scores as high"),
    ("corrected p of a question", "if you list all questions with this value or a lower one, at "
     "most this share of the list is expected to be wrong (Benjamini and Hochberg)"),
)  # fmt: skip


@dataclass(frozen=True)
class Findings:
    """The findings of an audit.

    Attributes:
        comparisons: one per model and benchmark.
        adjusted: their p-values, corrected for all models and benchmarks (Holm).
        control: what the questions are compared with; see `inputs`.
        alpha: the level of the tests.
        drawn: whether the user's record says that it was drawn at random which texts are questions.
        unused: the comparison texts of benchmarks that have no questions.
        similar: the comparison texts that are near-copies of a question; see `origin`.
        notes: further warnings about the texts.
    """

    comparisons: Sequence[Comparison]
    adjusted: Mapping[tuple[str, str], float]
    control: str
    alpha: float
    drawn: bool = False
    unused: int = 0
    similar: int = 0
    notes: Sequence[str] = ()

    def verdict(self, comparison: Comparison) -> str:
        """Returns the verdict on one benchmark and model."""
        key = comparison.model, comparison.benchmark
        return comparison.verdict(self.adjusted.get(key, 1.0), self.alpha)

    @property
    def verdicts(self) -> dict[tuple[str, str], str]:
        """The verdict by model and benchmark."""
        return {(c.model, c.benchmark): self.verdict(c) for c in self.comparisons}

    @property
    def has_several_benchmarks(self) -> bool:
        """Whether there is more than one benchmark."""
        return len({c.benchmark for c in self.comparisons}) > 1

    @property
    def has_several_models(self) -> bool:
        """Whether there is more than one model."""
        return len({c.model for c in self.comparisons}) > 1

    @property
    def effect_name(self) -> str:
        """What the effect is called."""
        return SHIFT if self.control == inputs.ORDER else D_PRIME

    @property
    def noun(self) -> str:
        """What is audited: questions, or shards of them."""
        return "shards" if self.control == inputs.ORDER else "questions"

    def about(self, comparison: Comparison) -> Sequence[str]:
        """Returns the names that distinguish a comparison from the others."""
        names = [comparison.model] * self.has_several_models
        return names + [comparison.benchmark or "(no benchmark)"] * self.has_several_benchmarks


def format_p(p_value: float) -> str:
    """Returns a p-value with two digits that count, such as .041 or .0003."""
    return f"{p_value:.2g}" if p_value < 0.1 else f"{p_value:.2f}"


def estimate_text(estimate: Estimate | None) -> str:
    """Returns an estimate with its interval."""
    if estimate is None or estimate.needs:
        return NO_VALUE
    return format_interval(estimate.value, *confidence_interval(estimate, CONFIDENCE))


def benchmark_table(findings: Findings) -> Table:
    """Returns one row per model and benchmark: verdict, p-values and effects."""
    rows: list[dict[str, Any]] = []
    lines: list[list[str]] = []
    for c in findings.comparisons:
        p = findings.adjusted.get((c.model, c.benchmark))
        effect = c.effect
        units = c.units or (c.questions, c.others)
        row = {
            "model": c.model, "benchmark": c.benchmark, "verdict": findings.verdict(c),
            findings.noun: c.questions, "others": c.others,
            "question_units": units[0], "other_units": units[1],
            "p_value": None if c.test is None else c.test.p_value, "adjusted_p": p,
            "blind_p": c.blind_p, "reference_p": c.reference_p, "left_out": c.left_out,
            "orphans": c.orphans,
            "d_prime": effect[0], "d_prime_low": effect[1],
            "d_prime_high": effect[2],
            "smallest_effect": None if c.test is None else c.smallest_effect,
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
            NO_VALUE if c.test is None else f"{c.smallest_effect:.2f}",
            estimate_text(c.estimate(AUROC.name)), estimate_text(c.estimate(MATCHED.name)),
        ])  # fmt: skip
    header = [
        "model", "benchmark", "verdict", findings.noun, findings.control, "p (one-sided)",
        "blind p", findings.effect_name, f"{findings.effect_name} that would be found", "AUROC",
        "matched AUROC",
    ]  # fmt: skip
    note = (
        f"{''.join(_units(findings))}p is one-sided and corrected over models and benchmarks; "
        "intervals are two-sided (95%). A model is never called clean; see How to read this."
    )
    return Table("benchmarks", "Verdicts", header, lines, pd.DataFrame(rows), note=note)


def _units(findings: Findings) -> Iterator[str]:
    """Yields what counts as one, where it is no text."""
    for c in findings.comparisons:
        about = ", ".join(findings.about(c))
        if c.is_paired:
            within = "the same shard" if findings.control == inputs.ORDER else "the same cluster"
            yield f"{about}{': ' * bool(about)}Texts are compared within {within} only. "
        elif c.units:
            yield (
                f"{about}{': ' * bool(about)}{c.questions} questions are {c.units[0]} units and "
                f"{c.others} {findings.control} are {c.units[1]}: equal texts, and those of one "
                "cluster, count as one in p, d′, AUROC and the chart, by their mean. "
            )


def question_table(findings: Findings) -> Table | None:
    """Returns one row per model and question, likeliest first; the text shows the first of them.

    Questions are listed only where something can be determined; None if there are none.
    """
    parts, lines, alone, most = [], [], 0.0, 0
    for c in findings.comparisons:
        if c.ranking is None or findings.verdict(c) == UNDETERMINED:
            continue
        ids = c.ranking["example_id"].str.partition("/")[2].where(
            c.ranking["example_id"].str.startswith("question/"), c.ranking["example_id"]
        )  # fmt: skip
        part = c.ranking.assign(example_id=ids)
        parts.append(part.assign(model=c.model, benchmark=c.benchmark))
        alone = max(alone, c.questions * c.least_question_p)
        most = max(most, c.questions)
        names = [c.model] * findings.has_several_models
        names += [c.benchmark] * findings.has_several_benchmarks
        for row in part.head(SHOWN_QUESTIONS).itertuples():
            lines.append([
                *names, str(row.example_id), _excerpt(str(row.text)), f"{row.score:.2f}",
                format_p(row.p_value), format_p(row.adjusted),
            ])  # fmt: skip
    if not parts:
        return None
    note = (
        "Score: the mean normal score over the methods; higher means more familiar. p: the chance "
        + (
            "that one of its other versions scores as high (its rank among them). "
            if findings.control == inputs.VERSIONS
            else "that a random order of the same shard scores as high (its rank among them). "
            if findings.control == inputs.ORDER
            else "that another text of its cluster scores as high (its rank among them). "
            if all(c.is_paired for c in findings.comparisons if c.ranking is not None)
            else f"that one of the {findings.control} scores at least as high. "
        )
        + "Corrected: of the questions with at most this value, at most this share is expected to "
        "be listed by chance (Benjamini and Hochberg). "
    )
    if alone > LISTED:
        note += (
            f"With so few comparison texts no single one can stand out: alone its corrected p "
            f"would be {min(1.0, alone):.2f}, and "
        )
        together = ceil(alone / LISTED)
        note += (
            f"it takes {together} together to reach {LISTED:g}. "
            if together <= most
            else f"all together cannot reach {LISTED:g}. "
        )
    note += f"The first {SHOWN_QUESTIONS} are shown; questions.csv has all."
    header = [
        *["model"] * findings.has_several_models, *["benchmark"] * findings.has_several_benchmarks,
        findings.noun.removesuffix("s"), "text", "score", "p", "corrected p",
    ]  # fmt: skip
    data = pd.concat(parts, ignore_index=True)
    return Table("questions", f"The most familiar {findings.noun}", header, lines, data, note=note)


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[: SHOWN_CHARACTERS - 1]}…"


def method_table(findings: Findings) -> Table:
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
                estimate_text(auroc), estimate_text(matched),
            ])  # fmt: skip
    note = (
        f"The row {COMBINED} is the mean of all methods, which the verdict tests."
        + f" The row {BLIND} never sees the model." * any(row["method"] == BLIND for row in rows)
    )
    header = ["model", "benchmark", "method", "AUROC", "matched AUROC"]
    return Table("methods", "Methods", header, lines, pd.DataFrame(rows), note=note)


def _columns(metric: str, estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None or estimate.needs:
        return {metric: None, f"{metric}_low": None, f"{metric}_high": None}
    low, high = confidence_interval(estimate, CONFIDENCE)
    return {metric: estimate.value, f"{metric}_low": float(low), f"{metric}_high": float(high)}


def terms_table(findings: Findings) -> Table:
    """Returns what the terms mean."""
    terms = [
        *TERMS,
        (findings.effect_name, MEANING_OF_EFFECT[findings.control]),
        ("AUROC", MEANING_OF_AUROC[findings.control]),
    ]
    data = pd.DataFrame(terms, columns=["term", "meaning"])
    lines = [[*term] for term in terms]
    return Table("terms", "How to read this", [*data.columns], lines, data)
