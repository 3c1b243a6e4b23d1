"""The report of the reference attack: conclusions, charts and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from contamination.audits.reference_attack.attacks import MULTIVARIATE
from contamination.audits.reference_attack.findings import CONFIDENCE, ConditionFindings
from contamination.audits.reference_attack.tables import all_tables, joined
from contamination.core.report.charts import (
    ACCENT,
    GREY,
    INK,
    MEMBER,
    SERIES,
    InlineChart,
    page_figure,
)
from contamination.core.report.document import ReportContent
from contamination.core.terminal import counted

LIMITS = (
    "**What a perfect attacker could know.** The attack is strong because it has many models that "
    "differ in their members alone. It is no upper bound: another statistic, or the weights, may "
    "tell more. With few models it loses to simple methods by estimation alone; see the limit.",
    "Which examples of *another* model were members. A real attacker does not have the pool, the "
    "recipe and the base model.",
    "That a single decision is right. Decisions on one example change from model to model.",
    "How private a training is. A bound on ε says “at least”.",
)
DASHES = ("-", "--", ":", "-.")


def report(findings: Sequence[ConditionFindings], facts: Mapping[str, str]) -> ReportContent:
    """Returns the findings of all conditions in sentences, tables and charts."""
    charts = [models_chart(f) for f in findings if f.by_models["models"].nunique() > 1]
    charts += [strength_chart(f) for f in findings]
    if len({*_factors(findings)}) > 1:
        charts.insert(0, dose_chart(findings))
    return ReportContent(
        title="The strong reference attack",
        conclusions=[sentence for f in findings for sentence in _conclusions(f)],
        warnings=[*_warnings(findings)],
        tables=all_tables(findings),
        charts=charts,
        limits=LIMITS,
        facts=facts,
    )


def _conclusions(findings: ConditionFindings) -> Iterator[str]:
    reference, table = findings.reference, findings.strengths
    cells = len(findings.condition.cells)
    for dose, rows in table.groupby("occurrences"):
        about = f"**{findings.condition.name}, {counted(dose, 'copy')}, {cells} models.** "
        row = rows[rows["attack"] == reference].iloc[0]
        limits = findings.by_models
        limit = limits[(limits["attack"] == reference) & (limits["occurrences"] == dose)]
        limit = limit[np.isinf(limit["models"])]
        beyond = (
            f", and {limit.iloc[0]['auroc']:.3f} with more and more models" if len(limit) else ""
        )
        methods = rows[~rows["reads_references"]].sort_values("auroc", ascending=False)
        yield (
            f"{about}{reference} reaches AUROC {row['auroc']:.3f} "
            f"[{row['auroc_low']:.3f}, {row['auroc_high']:.3f}]{beyond}."
            + (_best_method(methods.iloc[0], reference) if len(methods) else "")
        )
    bounds = findings.bounds
    if len(bounds):
        of_reference = bounds[bounds["attack"] == reference]["epsilon"]
        yield (
            f"One run shows ε ≥ {of_reference.median():.2f} (median of {len(of_reference)} cells, "
            f"δ = {findings.delta:g}, {CONFIDENCE:.0%} confidence each). The unit is an example "
            "with all its copies."
        )


def _best_method(method: pd.Series, reference: str) -> str:
    low, high = method["lacking_low"], method["lacking_high"]
    words = "lacks" if method["lacking"] > 0 else "exceeds it by"
    clearly = "" if low > 0 or high < 0 else ", not clearly different from 0"
    return (
        f" The best method without references, {method['attack']}, has {method['auroc']:.3f} and "
        f"{words} {abs(method['lacking']):.2f} d′ [{low:.2f}, {high:.2f}]{clearly}."
    )


def _warnings(findings: Sequence[ConditionFindings]) -> Iterator[str]:
    few = [f for f in findings if len(f.condition.cells) < 16]
    if few:
        yield (
            f"{few[0].condition.name} has {len(few[0].condition.cells)} models. With fewer than 16 "
            "the attack's estimates are poor, and no limit is worth reading."
        )
    if any(not f.condition.references.tokens for f in findings):
        yield (
            f"The passes of the cells are not stored beside their scores: {MULTIVARIATE} is left "
            "out. Score the cells again (the same command)."
        )


def models_chart(findings: ConditionFindings) -> InlineChart:
    """Returns AUROC against 1 / models, with the straight lines to their limits."""
    data, name = findings.by_models, findings.condition.name
    with page_figure(8, 3.6) as (figure, axes):
        drawn = [findings.reference, "lira_online", "lira_offline_pooled", MULTIVARIATE]
        drawn = [attack for attack in dict.fromkeys(drawn) if (data["attack"] == attack).any()]
        dose = data["occurrences"].max()
        for attack, colour, dash in zip(drawn, SERIES, DASHES, strict=False):
            rows = data[(data["attack"] == attack) & (data["occurrences"] == dose)]
            x, y = 1 / rows["models"].to_numpy(float), rows["auroc"].to_numpy()
            margin = np.abs(rows[["auroc_low", "auroc_high"]].to_numpy().T - y)
            axes.errorbar(x, y, margin, color=colour, ls=dash, marker="o", ms=4, label=attack)
        axes.axhline(0.5, color=INK, lw=0.8)
        ticks = sorted(data["models"].unique())
        axes.set_xticks([1 / t for t in ticks], ["∞" if np.isinf(t) else f"{t:.0f}" for t in ticks])
        axes.set(xlabel="models (scale: 1 / models)", ylabel="AUROC")
        figure.legend(loc="outside upper center", ncols=2)
        return InlineChart(
            f"models-{_slug(name)}", f"AUROC by number of models: {name}, {counted(dose, 'copy')}",
            figure, f"AUROC of the attacks against the number of models, {name}",
            "Left: the limit of many models. An attack that falls towards the right needs models.",
        )  # fmt: skip


def strength_chart(findings: ConditionFindings) -> InlineChart:
    """Returns the d′ of each attack and method with its interval, for the most copies."""
    table, name = findings.strengths, findings.condition.name
    dose = table["occurrences"].max()
    rows = table[table["occurrences"] == dose].sort_values("d_prime")
    with page_figure(8, 0.9 + 0.28 * len(rows)) as (figure, axes):
        for position, (_, row) in enumerate(rows.iterrows()):
            colour = MEMBER if row["attack"] == findings.reference else (
                ACCENT if row["reads_references"] else GREY
            )  # fmt: skip
            ends = [[row["d_prime"] - row["d_prime_low"]], [row["d_prime_high"] - row["d_prime"]]]
            axes.errorbar([row["d_prime"]], [position], xerr=ends, color=colour, marker="o")
        axes.axvline(0, color=INK, lw=0.8)
        axes.set_yticks(range(len(rows)), rows["attack"].tolist())
        axes.set(xlabel="d′")
        return InlineChart(
            f"strength-{_slug(name)}", f"Attacks and methods: {name}, {counted(dose, 'copy')}",
            figure, f"d′ of attacks and methods with intervals, {name}",
            "In colour: attacks that read the other models. Grey: methods that read one model.",
        )  # fmt: skip


def _factors(findings: Sequence[ConditionFindings]) -> Iterator[tuple[float, int]]:
    for f in findings:
        yield from ((f.condition.learning_rate, d) for d in f.condition.references.dose_levels)


def dose_chart(findings: Sequence[ConditionFindings]) -> InlineChart:
    """Returns the AUROC of the reference attack and of methods by copies and learning rate."""
    data = joined(findings, lambda f: f.strengths.assign(learning_rate=f.condition.learning_rate))
    reference = findings[0].reference
    means = data[~data["reads_references"]].groupby("attack")["auroc"].mean()
    best = str(means.idxmax()) if len(means) else reference
    bounds = joined(findings, lambda f: f.bounds)
    with page_figure(8, 3.6) as (figure, axes):
        for rate, colour in zip(sorted(data["learning_rate"].unique()), SERIES, strict=False):
            for attack, dash in ((reference, "-"), (best, ":")):
                rows = data[(data["learning_rate"] == rate) & (data["attack"] == attack)]
                rows = rows.sort_values("occurrences")
                label = f"{attack}, learning rate {rate:g}"
                axes.plot(rows["occurrences"], rows["auroc"], dash, marker="o", ms=4,
                          color=colour, label=label)  # fmt: skip
        axes.axhline(0.5, color=INK, lw=0.8)
        axes.set_xscale("log", base=2)
        doses = sorted(data["occurrences"].unique())
        axes.set_xticks(doses, [str(dose) for dose in doses])
        axes.set(xlabel="copies of a member", ylabel="AUROC")
        figure.legend(loc="outside upper center", ncols=2)
        return InlineChart(
            "doses", "Reference attack and the best method by copies and learning rate",
            figure, "AUROC by copies and learning rate",
            _bound_caption(bounds, reference),
        )  # fmt: skip


def _bound_caption(bounds: pd.DataFrame, reference: str) -> str:
    if bounds.empty:
        return "No one-run bound: the members were not drawn by independent coins."
    medians = bounds[bounds["attack"] == reference].groupby("condition")["epsilon"].median()
    texts = [f"{name}: {value:.2f}" for name, value in medians.items()]
    return f"One-run lower bound on ε by {reference}, median over cells: {'; '.join(texts)}."


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.lower())
