"""The report's first sentences, for a reader who knows no paper on detection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from contamination.analysis.cells import CLEAN
from contamination.analysis.conditions import rows_by_condition
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.methods import method_label, methods_of
from contamination.analysis.statistics.controls import LEVEL, group_by_control, off_control_rows
from contamination.analysis.statistics.trends import OCCURRENCES
from contamination.analysis.summary import (
    Direction,
    Row,
    best_method_row,
    classify_direction,
    format_count,
    mean_auroc_rows,
    rows_by_occurrences,
    with_joint_intervals,
)
from contamination.analysis.sweeps import Sweep, format_short
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.statistics.metrics import tpr_at_fpr
from contamination.detection.baselines.blind import BLIND

TERMS = (
    "**AUROC** is the probability that a random member scores above a random non-member: 0.5 is a "
    "guess, 1 is perfect. A **member** is a text that was inserted into the training corpus, a "
    "**non-member** one from the same source that was not. An **occurrence** is one copy of a "
    "member in the corpus; a **method** is a formula that turns the model's probabilities into a "
    "score."
)
"""The terms of the first sentences, explained."""
DETECTABILITY = (
    (0.65, "barely"),
    (0.8, "partly"),
    (0.95, "mostly"),
    (math.inf, "almost perfectly"),
)
"""An AUROC below the number is described by the word, where its interval excludes 0.5."""
MOST_SWEEPS = 2
UNCLEAR = (Direction.FLAT, Direction.DISPUTED)


def plain_sentences(
    pooled: pd.DataFrame, trends: pd.DataFrame, sweeps: Sequence[Sweep], config: AnalysisConfig
) -> list[str]:
    """Returns the answer in two plain sentences or paragraphs; numbers are AUROCs.

    Args:
        pooled: the report's pooled table.
        trends: its trends.
        sweeps: its sweeps; at most two are described.
        config: the report's confidence and false-positive rates.
    """
    described = [
        text for sweep in sweeps[:MOST_SWEEPS] if (text := _sweep_sentences(sweep, sweeps))
    ]
    if described:
        return described
    conditions = dict(rows_by_condition(pooled))
    best_rows = {name: best_method_row(mean_auroc_rows(rows)) for name, rows in conditions.items()}
    measured = {name: row for name, row in best_rows.items() if not math.isnan(row["value"])}
    if len(conditions) > 1:
        return _condition_sentences(measured)
    return [
        sentence
        for name, best in measured.items()
        for sentence in (
            _members_sentence(best, conditions[name], trends, config.confidence),
            _true_positives_sentence(best, conditions[name], config.fpr),
        )
    ]


def describe_detectability(row: Row | pd.Series[Any]) -> str:
    """Returns such as "partly detectable (AUROC 0.71)"; the row has an interval."""
    auroc_text = f"(AUROC {row['value']:.2f})"
    if row["ci_high"] < 0.5:
        return f"scored below non-members {auroc_text}"
    if not row["ci_low"] > 0.5:
        return f"not distinguishable from non-members {auroc_text}"
    word = next(word for limit, word in DETECTABILITY if row["value"] < limit)
    return f"{word} detectable {auroc_text}"


def _members_sentence(
    best: pd.Series[Any], rows: pd.DataFrame, trends: pd.DataFrame, confidence: float
) -> str:
    """How detectable members are, at the fewest and at the most occurrences."""
    levels = rows_by_occurrences(mean_auroc_rows(rows), best["method"])
    levels = levels[levels["value"].notna()]
    if levels.empty:
        return f"Members are {describe_detectability(with_joint_intervals(best))}."
    slopes = trends[
        (trends["over"] == OCCURRENCES)
        & (trends["benchmark"] == ALL_BENCHMARKS)
        & (trends["method"] == best["method"])
        & (trends["variant"] == best["variant"])
    ]
    seen = [f"Seen {'once' if at == '1' else f'{at} times'}" for at in levels["at"]]
    direction = (
        classify_direction(slopes.iloc[0].to_dict(), levels, 1 - confidence)
        if len(slopes)
        else Direction.UNKNOWN
    )
    return _describe_levels(levels, seen, direction)


def _sweep_sentences(sweep: Sweep, sweeps: Sequence[Sweep]) -> str:
    """How detectable members are at the ends of the sweep; empty without a method everywhere.

    Where several sweeps have its factor, it says of which series it is.
    """
    if not sweep.ranked_methods:
        return ""
    pair = sweep.ranked_methods[0]
    line = with_joint_intervals(sweep.method_rows(*pair))
    levels = line[sweep.factor.column]
    starts = [f"With {sweep.factor.setting.format(format_short(level))}" for level in levels]
    trend = sweep.trend_by_method.get(pair)
    direction = (
        classify_direction(trend, line.assign(level=levels.astype(float)))
        if trend
        else Direction.UNKNOWN
    )
    others = [other for other in sweeps if other.factor == sweep.factor and other is not sweep]
    series = f" Series: {sweep.distinguishing_text(sweeps)}." * bool(others)
    return _describe_levels(line, starts, direction) + series + _method_note(sweep.ranked_methods)


def _describe_levels(rows: pd.DataFrame, starts: Sequence[str], direction: Direction) -> str:
    """The first and the last row in words; where the AUROC turns, every row."""
    descriptions = [describe_detectability(row) for row in rows.to_dict("records")]
    turns = direction in (Direction.PEAKS, Direction.DIPS, Direction.ZIGZAGS)
    shown = range(len(rows)) if turns else sorted({0, len(rows) - 1})
    first, *others = [(starts[i], descriptions[i]) for i in shown]
    text = f"{first[0]}, members are {first[1]}."
    text += "".join(f" {start}: {description}." for start, description in others)
    unclear = others and direction in UNCLEAR
    return text + " The difference is not statistically clear." * bool(unclear)


def _method_note(methods: Sequence[tuple[str, str]]) -> str:
    name = method_label(*methods[0], methods)
    if len(methods) == 1:
        return f" Method: {name}."
    return f" Method: {name}, the best of {len(methods)} on average."


def _condition_sentences(best_rows: dict[str, pd.Series[Any]]) -> list[str]:
    """The conditions in which members are most and least detectable."""
    if not best_rows:
        return []
    ordered = sorted(best_rows, key=lambda name: -float(best_rows[name]["value"]))
    texts = {
        name: describe_detectability(with_joint_intervals(best_rows[name])) for name in ordered
    }
    if len(ordered) == 1:
        return [f"In {ordered[0]}, members are {texts[ordered[0]]}."]
    return [
        f"Of {len(ordered)} conditions, AUROC is highest in {ordered[0]}: members are "
        f"{texts[ordered[0]]}. It is lowest in {ordered[-1]}: {texts[ordered[-1]]}."
    ]


def _true_positives_sentence(
    best: pd.Series[Any], rows: pd.DataFrame, false_positive_rates: Sequence[float]
) -> str:
    """How many members are found at the lowest measured false-positive rate, and the method."""
    methods = methods_of(mean_auroc_rows(rows))
    name = method_label(best["method"], best["variant"], methods)
    choice = f", the best of {format_count(len(methods), 'method')}" * (len(methods) > 1)
    shared = ["method", "variant", "checkpoint", "benchmark", "occurrences"]
    value_by_metric = rows[(rows[shared] == best[shared]).all(axis=1)].set_index("metric")["value"]
    for rate in sorted(false_positive_rates):
        share = value_by_metric.get(tpr_at_fpr(rate).name, math.nan)
        if not math.isnan(share):
            return (
                f"With {name}{choice}, a threshold that falsely flags {100 * rate:.3g}% of the "
                f"non-members finds {share:.0%} of the members."
            )
    return f"Measured with {name}{choice}."


def plain_controls_sentence(pooled: pd.DataFrame) -> str:
    """Returns whether the controls of any condition are off, in plain words."""
    rows_by_control = group_by_control(pooled)
    names = {
        CLEAN: "the model before the contaminated training",
        BLIND: "a classifier that sees the texts alone",
    }
    off = [
        names[control] for control, rows in rows_by_control.items() if len(off_control_rows(rows))
    ]
    if off:
        return (
            f"**Caution:** {' and '.join(off)} tell{'s' * (len(off) == 1)} members from "
            "non-members, although neither can know which texts were inserted. Chance does this in "
            f"{LEVEL:.0%} of sound reports; otherwise the members and the non-members differ as "
            "texts, and the numbers above show more than contamination."
        )
    passed = [names[control] for control in rows_by_control]
    if not passed:
        return "No control was measured: the AUROCs may have other causes than contamination."
    return (
        f"Control: {' and '.join(passed)} can't tell members from non-members beyond chance."
        if len(passed) == 1
        else f"Controls: neither {' nor '.join(passed)} tells members from non-members beyond "
        "chance."
    )
