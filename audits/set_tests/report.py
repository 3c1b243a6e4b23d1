"""The report of the set tests: error rates, power, verdicts, and what they can't prove."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from contamination.audits.set_tests.findings import SetFindings
from contamination.audits.set_tests.procedures import PROCEDURES
from contamination.core.report.charts import INK, SERIES, InlineChart, page_figure
from contamination.core.report.document import ReportContent
from contamination.core.report.tables import NO_VALUE, Table, format_interval
from contamination.core.terminal import counted

LIMITS = (
    "**That a set was not seen.** A test that does not reject may only lack power; see the tables.",
    "That other models have these rates. They are of the cells' models, copies and texts.",
    "That the draw was made. Each test rests on a draw before publishing. Here the ledger records "
    "it; elsewhere one has to trust the publisher.",
    "CoDeC rejects for texts that were never seen if the model knows texts of their kind.",
)
DASHES = ("-", "--", ":", "-.", (0, (1, 3)), (0, (5, 1)), (0, (3, 1, 1, 1)))


def report(findings: SetFindings, facts: Mapping[str, str]) -> ReportContent:
    """Returns the findings in sentences, tables and a chart."""
    tables = [error_table(findings), power_table(findings), verdict_table(findings)]
    if len(findings.items):
        tables.append(item_table(findings))
    if len(findings.context_shares):
        tables.append(context_table(findings))
    tables.append(_outcomes_table(findings))
    return ReportContent(
        title="Set tests: error rates and power",
        conclusions=[*_conclusions(findings)],
        warnings=[*_warnings(findings)],
        tables=tables,
        charts=[power_chart(findings)] if len(findings.powers) else [],
        limits=LIMITS,
        facts={**facts, "level": f"{findings.alpha:g}"},
    )


def _conclusions(findings: SetFindings) -> Iterator[str]:
    for test, powers in findings.powers.groupby("test", sort=False):
        errors = findings.errors[findings.errors["test"] == test]
        whole = powers[powers["examples"] == powers["examples"].max()]
        by_dose = whole.groupby("occurrences")[["rejected", "sets"]].sum()
        found = "; ".join(
            f"{counted(int(str(dose)), 'copy')}: {row['rejected']} of {row['sets']}"
            for dose, row in by_dose.iterrows()
        )
        false = int(errors["rejected"].sum()), int(errors["sets"].sum())
        yield (
            f"**{test}**: {false[0]} false alarms of {false[1]}; found at "
            f"{whole['examples'].max()} {_unit(str(test))}: {found}."
        )


def _unit(test: str) -> str:
    return "backdoors" if PROCEDURES[test].unit == "backdoors" else "examples"


def _warnings(findings: SetFindings) -> Iterator[str]:
    for row in findings.errors.itertuples():
        if row.low > findings.alpha:
            yield (
                f"{row.test} ({row.origin}) rejects {row.share:.1%} "
                f"[{row.low:.1%}, {row.high:.1%}] of {row.sets} sets that the "
                "model did not see, more than its level."
            )
    missing = [name for name in PROCEDURES if name not in {*findings.outcomes["test"]}]
    if missing:
        yield f"The cells' corpora do not allow these tests: {'; '.join(missing)}."


def error_table(findings: SetFindings) -> Table:
    """Returns the type-I error of each test."""
    data = findings.errors
    lines = [
        [
            str(row.test), str(row.origin), str(row.sets), str(row.rejected),
            format_interval(row.share, row.low, row.high), _p_text(row.uniform_p),
        ]
        for row in data.itertuples()
    ]  # fmt: skip
    note = (
        f"Sets that the model did not see, at level {findings.alpha:g}. Published: the model "
        "before the training, which cells may share. Redrawn: the same after a new draw (of "
        "versions, orders, targets, membership). Held out: what was not inserted, under the model "
        "that saw the rest. "
        "Intervals: Clopper-Pearson, 95%. Uniform p: a Kolmogorov-Smirnov test of the p-values, "
        "randomised where the statistic is discrete; a dash where they are too few."
    )
    header = ["test", "sets", "number", "rejected", "share", "uniform p"]
    return Table("errors", "Type-I error", header, lines, data, note=note)


def power_table(findings: SetFindings) -> Table:
    """Returns the power of each test by learning rate, occurrences and size."""
    data = findings.powers
    doses = sorted(data["occurrences"].unique()) if len(data) else []
    lines = []
    keys = ["test", "learning_rate", "examples"]
    for (test, rate, size), rows in data.groupby(keys, sort=False) if len(data) else ():
        by_dose = {row.occurrences: row for row in rows.itertuples()}
        texts = [
            f"{r.rejected}/{r.sets} [{r.low:.2f}, {r.high:.2f}]" if (r := by_dose.get(dose))
            else NO_VALUE
            for dose in doses
        ]  # fmt: skip
        lines.append([str(test), f"{rate:g}", f"{size}", *texts])
    note = (
        f"Sets that the model saw: rejected at level {findings.alpha:g}, of disjoint parts of "
        "whole sets. Parts of one cell share its model. Intervals: Clopper-Pearson, 95%."
    )
    header = ["test", "learning rate", "examples", *(counted(int(d), "copy") for d in doses)]
    return Table("power", "Power by occurrences and size", header, lines, data, note=note)


def verdict_table(findings: SetFindings) -> Table:
    """Returns the verdicts of the tests on whole sets, counted by test."""
    data = findings.verdicts
    names = sorted(data["verdict"].unique())
    counts = data.groupby(["test", "verdict"], sort=False).size().unstack(fill_value=0)
    lines = [
        [str(test), PROCEDURES[str(test)].assumes, *(str(row.get(name, 0)) for name in names)]
        for test, row in counts.iterrows()
    ]
    note = (
        "Whole sets as they were published, under the models after and before the training. A test "
        "that compares with held-out texts gives no verdict where the texts differ (blind p at "
        "most 0.05). verdicts.csv has the p-value of each set."
    )
    header = ["test", "assumes", *names]
    return Table("verdicts", "Verdicts on whole sets", header, lines, data, note=note)


def item_table(findings: SetFindings) -> Table:
    """Returns how good the lists of single items and the estimated share are."""
    lines = [
        [
            f"{row.learning_rate:g}", NO_VALUE if row.occurrences == 0 else str(row.occurrences),
            f"{row.share:.2f}", f"{row.estimated_share:.2f}",
            *(
                _p_text(getattr(row, f"{kind}_{name}"))
                for kind in ("bh", "scaled") for name in ("listed", "wrong", "found")
            ),
            str(row.sets),
        ]
        for row in findings.item_means.itertuples()
    ]  # fmt: skip
    note = (
        "Conformal p-values of items against held-out ones, corrected for at most "
        f"{findings.item_level:.0%} wrong ones among the listed (Benjamini and Hochberg), and "
        "scaled by the estimated share that was not seen. Means over sets; wrong: the mean share "
        "of wrong ones among the listed; found: the share of the members that is listed. Rows "
        "without copies are sets without members."
    )
    header = ["learning rate", "copies", "seen", "estimated", "listed", "wrong", "found",
              "listed, scaled", "wrong, scaled", "found, scaled", "sets"]  # fmt: skip
    return Table("items", "Which items", header, lines, findings.items, note=note)


def context_table(findings: SetFindings) -> Table:
    """Returns CoDeC's share of texts that drop, by side and occurrences."""
    data = findings.context_shares
    lines = [
        [
            f"{row.learning_rate:g}", NO_VALUE if row.occurrences == 0 else str(row.occurrences),
            str(row.side), str(row.texts), format_interval(row.share, row.low, row.high),
        ]
        for row in data.itertuples()
    ]  # fmt: skip
    note = (
        "The share of texts whose log-probability drops after another text of their side "
        "(Zawalski et al. 2025). Rows without copies: the model before the training. Intervals: "
        "Clopper-Pearson, 95%, as if texts were independent; cells are counted together."
    )
    header = ["learning rate", "copies", "side", "texts", "share"]
    return Table("context", "CoDeC: the share of texts that drop", header, lines, data, note=note)


def _outcomes_table(findings: SetFindings) -> Table:
    header = ["p-values", "tests", "sets"]
    data = findings.outcomes
    lines = [[f"{len(data):,}", str(data["test"].nunique()), str(len(findings.sets))]]
    note = "outcomes.csv has each p-value."
    return Table("outcomes", "All p-values", header, lines, data, note=note)


def _p_text(value: float) -> str:
    return NO_VALUE if pd.isna(value) else f"{value:.2g}"


def power_chart(findings: SetFindings) -> InlineChart:
    """Returns the power of each test by occurrences, for whole sets, over learning rates."""
    data = findings.powers
    whole = data[data["examples"] == data.groupby("test")["examples"].transform("max")]
    with page_figure(8, 3.6) as (figure, axes):
        for number, (test, rows) in enumerate(whole.groupby("test", sort=False)):
            counts = rows.groupby("occurrences")[["rejected", "sets"]].sum()
            colour, dash = SERIES[number % len(SERIES)], DASHES[number % len(DASHES)]
            share = counts["rejected"] / counts["sets"]
            axes.plot(counts.index, share, color=colour, ls=dash, marker="o", ms=4, label=str(test))
        axes.axhline(findings.alpha, color=INK, lw=0.8)
        doses = sorted(whole["occurrences"].unique())
        axes.set_xscale("log", base=2)
        axes.set_xticks(doses, [str(dose) for dose in doses])
        axes.set(xlabel="copies of a member", ylabel="power", ylim=(-0.03, 1.03))
        figure.legend(loc="outside upper center", ncols=3)
        return InlineChart(
            "power", "Power on whole sets by copies",
            figure, "Power of each test by copies",
            f"The line at {findings.alpha:g} is the level.",
        )  # fmt: skip
