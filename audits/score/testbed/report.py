"""The report on corrected scores whose truth is known: RMSE by the number of spiked examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from contamination.audits.score.estimation import CONSTAT, EPG_IPW, IMPUTATION, IPW, NAIVE
from contamination.audits.score.report import PREFERRED, SMALLEST
from contamination.audits.score.testbed.cases import AS_LEAKED, CLEAN_MODEL, MORE_COPIES
from contamination.audits.score.testbed.findings import (
    POINTS,
    WITHOUT_SPIKING,
    SpikingFindings,
    Sufficiency,
)
from contamination.audits.score.testbed.spiking import OTHER_TWIN
from contamination.core.report.charts import (
    GREY,
    INK,
    SERIES,
    InlineChart,
    page_figure,
)
from contamination.core.report.document import ReportContent
from contamination.core.report.tables import Table
from contamination.core.statistics.estimates import ALL_BENCHMARKS

DASHES = ("-", "--", ":", "-.")
LIMITS = (
    "**How far off a correction of another model's score is.** The errors are those of these "
    "models, copies, texts and membership scores.",
    "What a model would score on average without contamination. The truth is one clean twin, whose "
    "answers differ from a second one's by chance; the row *another clean twin* shows by how much. "
    "The RMSE of naive and of the corrected scores includes this difference, which no correction "
    "can remove.",
    "The error on other items. Intervals are over seeds; all of them answer the same questions.",
    "How often the intervals of `audit score items=…` cover the clean score: a bootstrap in each "
    "repetition was not made.",
    "That an error comes from the correction alone. Corrections take non-members as clean: if the "
    "members change the accuracy on them (spillover, see the audit `inflation`), that is part of "
    "the error.",
)
"""What the errors can't prove."""


def report(
    findings: SpikingFindings, facts: Mapping[str, str], warnings: Sequence[str]
) -> ReportContent:
    """Returns the errors in sentences, tables and charts.

    Args:
        findings: the results.
        facts: what the audit is based on, by name.
        warnings: reasons to trust the results less, beside those that the findings give.
    """
    tables = [error_table(findings), sufficiency_table(findings)]
    if (findings.errors["benchmark"] == ALL_BENCHMARKS).any():
        tables.append(benchmark_table(findings))
    means = findings.means
    conditions = [*dict.fromkeys(means.loc[means["scenario"] == AS_LEAKED, "condition"])]
    return ReportContent(
        title="How far off are corrected scores? Against clean twins",
        conclusions=[*_conclusions(findings)],
        warnings=[*warnings, *_warnings(findings)],
        tables=tables,
        charts=[rmse_chart(findings, condition) for condition in conditions],
        limits=LIMITS,
        facts={**facts, "confidence of intervals": f"{findings.confidence:.0%}"},
    )


def _interval(row: pd.Series, name: str) -> str:
    """Returns a number of points with its interval, if it has one."""
    value, low, high = (
        round(float(row[column]), 1) + 0.0 for column in (name, f"{name}_low", f"{name}_high")
    )
    if not np.isfinite(high):
        return f"{value:.1f}"
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


def _conclusions(findings: SpikingFindings) -> Iterator[str]:
    means = findings.means
    for (condition, scenario), rows in means.groupby(["condition", "scenario"], sort=False):
        most = rows["spiked"].max()
        at_most = rows[rows["spiked"] == most].set_index("estimator")
        preferred = next(name for name in PREFERRED if name in at_most.index)
        if scenario == CLEAN_MODEL:
            changes = [name for name in (IPW, EPG_IPW, preferred) if name in at_most.index]
            errors = "; ".join(
                f"{name} {_interval(at_most.loc[name], 'bias')}" for name in dict.fromkeys(changes)
            )
            yield (
                f"Without contamination ({condition}) naive is right, and with {most} spiked "
                f"examples on each side the corrections change the score by, in points: {errors}."
            )
            continue
        by_estimator = {
            item.estimator: item
            for item in findings.sufficiency
            if (item.condition, item.scenario) == (condition, scenario)
        }
        about = str(condition) if scenario == AS_LEAKED else f"{condition}, spiked: {scenario}"
        naive = at_most.loc[NAIVE]
        verdict = _verdict(by_estimator[preferred], findings.tolerance)
        yield (
            f"**{about}: {verdict}** Naive: bias {_interval(naive, 'bias')}, RMSE "
            f"{_interval(naive, 'rmse')} points"
            + (
                f"; another clean twin: RMSE {_interval(at_most.loc[OTHER_TWIN], 'rmse')}."
                if OTHER_TWIN in at_most.index
                else "."
            )
        )
        if scenario == AS_LEAKED:
            for name, item in by_estimator.items():
                yield _course(rows[rows["estimator"] == name], item, findings.tolerance)


def _verdict(item: Sufficiency, tolerance: float) -> str:
    if not item.is_judged:
        return f"whether spiked examples suffice for {item.estimator} can't be said from one seed."
    if item.suffices is None:
        return (
            f"no number of spiked examples up to {item.most} on each side suffices for "
            f"{item.estimator}: its RMSE is not shown to be below naive's."
        )
    spiked = "spiked examples on each side"
    if item.fewest == item.most:
        return (
            f"{item.most} {spiked} bring the RMSE of {item.estimator} below naive's; fewer and "
            "more were not tried."
        )
    if item.settles == item.most:
        return (
            f"{item.helps} {spiked} bring the RMSE of {item.estimator} below naive's, but it still "
            f"falls by more than {_tolerance(tolerance)} up to {item.most}, the most tried."
        )
    return (
        f"{item.suffices} {spiked} suffice for {item.estimator}: from there on its RMSE is below "
        f"naive's and within {_tolerance(tolerance)} of that with {item.most}."
    )


def _tolerance(points: float) -> str:
    return f"{points:g} point{'s' * (points != 1)}"


def _course(rows: pd.DataFrame, item: Sufficiency, tolerance: float) -> str:
    """Returns the RMSE of one estimator with the fewest and the most spiked examples."""
    rows = rows.sort_values("spiked")
    first, last = rows.iloc[0], rows.iloc[-1]
    text = f"{item.estimator}: RMSE {_interval(first, 'rmse')} with {first['spiked']}"
    if len(rows) > 1:
        text += f" and {_interval(last, 'rmse')} with {last['spiked']} spiked examples on each side"
        text += (
            f"; it still falls by more than {_tolerance(tolerance)} up to {item.most}"
            if item.settles == item.most
            else f"; within {_tolerance(tolerance)} of the latter from {item.settles} on"
        )
    else:
        text += " spiked examples on each side"
    if item.is_judged:
        text += (
            "; not shown to be below naive's"
            if item.helps is None
            else f"; below naive's from {item.helps} on"
        )
    return f"{text}. Bias with {last['spiked']}: {_interval(last, 'bias')}."


def _compare_with_other_twin(means: pd.DataFrame, naive: pd.Series) -> str:
    """Returns whether naive's RMSE is more than the difference between two clean twins."""
    is_same = (means["condition"] == naive["condition"]) & (means["scenario"] == naive["scenario"])
    rows = means[is_same & (means["estimator"] == OTHER_TWIN)]
    if rows.empty:
        return "How far two clean twins differ is not known: there is only one."
    other_twin = rows.iloc[0]
    rmse = _interval(naive, "rmse")
    rmse += f", that of another clean twin {_interval(other_twin, 'rmse')}"
    if other_twin["gain_high"] < 0:
        return (
            f"Its RMSE is {rmse}: more than two clean twins differ, in no direction that is shown."
        )
    return f"Its RMSE is {rmse}: not shown to be more than two clean twins differ."


def _warnings(findings: SpikingFindings) -> Iterator[str]:
    means = findings.means
    single = means[means["seeds"] == 1]
    if len(single):
        names = "; ".join(dict.fromkeys(single["condition"]))
        yield f"**One seed only for {names}**: there are no intervals. Add seeds to the sweep."
    naive = means[(means["estimator"] == NAIVE) & (means["scenario"] == AS_LEAKED)]
    for _, row in naive.drop_duplicates("condition").iterrows():
        if row["bias_high"] < 0 and row["seeds"] > 1:
            yield (
                f"**The score is lower than the clean twin's for {row['condition']}**: naive's "
                f"bias is {_interval(row, 'bias')} points, so on average there is no inflation to "
                "correct."
            )
        elif not row["bias_low"] > 0 and row["seeds"] > 1:
            yield (
                f"**No inflation is shown for {row['condition']}**: naive's bias is "
                f"{_interval(row, 'bias')} points, so there may be nothing to correct on average. "
                f"{_compare_with_other_twin(means, row)}"
            )
    yield from _null_warnings(means)
    single_names = findings.errors[findings.errors["benchmark"] != ALL_BENCHMARKS]
    of_naive = single_names[
        (single_names["estimator"] == NAIVE) & (single_names["scenario"] == AS_LEAKED)
    ]
    alike = of_naive[of_naive["rmse"] < POINTS * SMALLEST]
    for condition, rows in alike.groupby("condition", sort=False):
        names = ", ".join(dict.fromkeys(rows["benchmark"]))
        yield (
            f"**Nothing to correct in {names}** ({condition}): the model answers as its clean twin "
            "does. These benchmarks lower the means over benchmarks; read the others' rows."
        )
    failed = findings.by_cell[findings.by_cell["failed"] > 0]
    for name, rows in failed.groupby("estimator", sort=False):
        yield (
            f"{name} has no value in {rows['failed'].max():.1%} of the repetitions of some cell, "
            "which are left out of its errors."
        )
    for omission in findings.omissions:
        yield f"Left out: {omission}"


def _null_warnings(means: pd.DataFrame) -> Iterator[str]:
    null = means[(means["scenario"] == CLEAN_MODEL) & ~means["estimator"].isin(WITHOUT_SPIKING)]
    for (condition, name), rows in null.groupby(["condition", "estimator"], sort=False):
        last = rows.loc[rows["spiked"].idxmax()]
        is_off = last["bias_low"] > 0 or last["bias_high"] < 0
        if is_off and abs(last["bias"]) > POINTS * SMALLEST:
            yield (
                f"**{name} changes the score of clean models** ({condition}): by "
                f"{_interval(last, 'bias')} points with {last['spiked']} spiked examples on each "
                "side."
            )


def error_table(findings: SpikingFindings) -> Table:
    """Returns bias and RMSE of every score by number of spiked examples, mean over benchmarks."""
    data = findings.means
    lines = []
    for _, row in data.iterrows():
        is_reference = row["estimator"] in WITHOUT_SPIKING
        if is_reference and row["spiked"] != _largest(data, row):
            continue
        lines.append([
            str(row["condition"]), str(row["scenario"]), str(row["estimator"]),
            "–" if is_reference else str(row["spiked"]),
            _interval(row, "bias"), _interval(row, "rmse"),
            "–" if row["estimator"] == NAIVE else _interval(row, "gain"),
            str(row["seeds"]), f"{row['items']:.0f}",
        ])  # fmt: skip
    order = {AS_LEAKED: 0, MORE_COPIES: 1, CLEAN_MODEL: 2}
    lines.sort(key=lambda line: order[line[1]])
    note = (
        "Points of accuracy against the clean twin of the same seed on the same items; mean over "
        f"benchmarks, cells and seeds, with {findings.confidence:.0%} intervals over seeds. "
        "Spiked: known members, and as many known non-members. RMSE − naive's: below 0, the "
        "correction helps. References of imputation, combined and ConStat are the clean twins of "
        "other seeds; imputation and combined take ten known non-members. Items: in a benchmark."
    )
    header = ["condition", "spiked members were copied", "score", "spiked", "bias", "RMSE",
              "RMSE − naive's", "seeds", "items"]  # fmt: skip
    return Table("errors", "Errors against the clean twin", header, lines, data, note=note)


def _largest(data: pd.DataFrame, row: pd.Series) -> int:
    same = (data["condition"] == row["condition"]) & (data["scenario"] == row["scenario"])
    return int(data.loc[same, "spiked"].max())


def sufficiency_table(findings: SpikingFindings) -> Table:
    """Returns how many spiked examples each score needs."""
    used = [item for item in findings.sufficiency if item.scenario != CLEAN_MODEL]
    lines = [
        [
            item.condition, item.scenario, item.estimator, str(item.settles),
            "not judged" if not item.is_judged else str(item.helps or "none"), str(item.most),
        ]
        for item in used
    ]  # fmt: skip
    columns = ["condition", "scenario", "estimator", "settles", "helps", "most"]
    data = pd.DataFrame([{c: getattr(item, c) for c in columns} for item in used], columns=columns)
    data["helps"] = data["helps"].astype(float)
    note = (
        f"Settles: the fewest from which on the RMSE is within {_tolerance(findings.tolerance)} of "
        "that with the most. Below naive's: the fewest from which on the interval of RMSE − "
        "naive's RMSE is below 0. On each side."
    )
    header = ["condition", "spiked members were copied", "score", "settles", "below naive's",
              "most tried"]  # fmt: skip
    return Table("needed", "Spiked examples needed", header, lines, data, note=note)


def benchmark_table(findings: SpikingFindings) -> Table:
    """Returns the errors by benchmark with the most spiked examples."""
    data = findings.errors[findings.errors["benchmark"] != ALL_BENCHMARKS]
    most = data.groupby(["condition", "scenario"])["spiked"].transform("max")
    is_row = (data["spiked"] == most) & (data["scenario"] == AS_LEAKED)
    lines = [
        [
            str(row["condition"]), str(row["benchmark"]), str(row["estimator"]), str(row["spiked"]),
            _interval(row, "bias"), _interval(row, "rmse"), f"{row['items']:.0f}",
        ]
        for _, row in data[is_row].iterrows()
    ]  # fmt: skip
    note = (
        "With the most spiked examples, copied as the benchmark's members. The files have all rows."
    )
    header = ["condition", "benchmark", "score", "spiked", "bias", "RMSE", "items"]
    return Table("by_benchmark", "Errors by benchmark", header, lines, data, note=note)


def rmse_chart(findings: SpikingFindings, condition: str) -> InlineChart:
    """Returns the RMSE of each score against the number of spiked examples."""
    means = findings.means
    rows = means[(means["condition"] == condition) & (means["scenario"] == AS_LEAKED)]
    names = [name for name in dict.fromkeys(rows["estimator"]) if name not in WITHOUT_SPIKING]
    with page_figure(8, 3.6) as (figure, axes):
        for number, name in enumerate(names):
            line = rows[rows["estimator"] == name].sort_values("spiked")
            colour = SERIES[number % len(SERIES)]
            dash = DASHES[(number // len(SERIES)) % len(DASHES)]
            axes.plot(line["spiked"], line["rmse"], dash, marker="o", ms=4, color=colour,
                      label=name)  # fmt: skip
        for name, colour, dash in ((NAIVE, INK, "-"), (OTHER_TWIN, GREY, "--")):
            line = rows[rows["estimator"] == name].sort_values("spiked")
            if len(line):
                axes.plot(line["spiked"], line["rmse"], dash, lw=1, color=colour, label=name)
        levels = sorted(rows["spiked"].unique())
        axes.set_xscale("log", base=2)
        axes.set_xticks(levels, [str(level) for level in levels])
        axes.set_ylim(bottom=0)
        axes.set(xlabel="spiked examples on each side", ylabel="RMSE, points")
        figure.legend(loc="outside upper center", ncols=4)
        return InlineChart(
            f"rmse-{''.join(c if c.isalnum() else '-' for c in condition.lower())}",
            f"RMSE by spiked examples: {condition}",
            figure, f"RMSE against the number of spiked examples, {condition}",
            f"{IMPUTATION}, combined and {CONSTAT} read the clean twins of other seeds. Imputation "
            "and combined take ten known non-members.",
        )  # fmt: skip
