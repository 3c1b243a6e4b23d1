"""The report's first sentences: one per sweep, and one on all controls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from contamination.analysis.cells import CLEAN
from contamination.analysis.methods import method_label
from contamination.analysis.statistics.controls import describe_verdict, group_by_control
from contamination.analysis.summary import format_count, trend_clause, with_joint_intervals
from contamination.analysis.sweeps import Sweep, conditions_in_sweeps, format_short
from contamination.analysis.tables.statistical import summarise_replicates
from contamination.detection.baselines.blind import BLIND

MAIN = 2
"""Number of a condition's sentences with results: the best method, and the occurrences."""


def headlines(
    sweeps: Sequence[Sweep], sentences: Mapping[str, Sequence[str]], replicates: pd.DataFrame
) -> list[str]:
    """Returns a sentence per sweep, per condition outside sweeps, and per swapped pair.

    Args:
        sweeps: those of the report.
        sentences: `summary.sentences_by_condition`.
        replicates: `tidy_tables.replicates_table`.
    """
    outside_sweeps = {
        name: sentences_of_condition
        for name, sentences_of_condition in sentences.items()
        if name not in conditions_in_sweeps(sweeps)
    }
    if len(sentences) == 1:
        return [
            sentence
            for sentences_of_condition in outside_sweeps.values()
            for sentence in sentences_of_condition[:MAIN]
        ]
    condition_sentences = [
        f"{name}: {sentences_of_condition[0]}"
        for name, sentences_of_condition in outside_sweeps.items()
        if sentences_of_condition
    ]
    swapped_pair_sentences = [
        _swapped_pair_sentence(str(name), rows) for name, rows in replicates.groupby("condition")
    ]
    return [
        *(sweep_headline(sweep, sweeps) for sweep in sweeps),
        *condition_sentences,
        *swapped_pair_sentences,
    ]


def sweep_headline(sweep: Sweep, sweeps: Sequence[Sweep] = ()) -> str:
    """Returns how the AUROC of the best and of the median method changes along the sweep.

    Both are by the mean AUROC over the sweep, of the methods' default variants. What all
    sweeps of its factor share is stated only with the first of them.
    """
    methods = sweep.ranked_methods
    low, high = (format_short(level) for level in (sweep.levels[0], sweep.levels[-1]))
    first = next((other for other in sweeps if other.factor == sweep.factor), sweep)
    fixed = sweep.shared_text if first is sweep else sweep.distinguishing_text(sweeps)
    axis_range = f"{sweep.factor.axis} from {low} to {high} ({fixed})"
    if not methods:
        return (
            f"Along {axis_range} no method was measured everywhere{_missing_levels_clause(sweep)}."
        )
    best_method, median_method = methods[0], methods[len(methods) // 2]
    name = method_label(*best_method, methods)
    if len(methods) > 1:
        corrected = "(AUROC's intervals corrected for the choice, the slope's not)"
        name += f", the best of {len(methods)} methods on average {corrected},"
    text = _movement_clause(sweep, best_method, name, axis_range)
    if median_method != best_method:
        median_name = f"{method_label(*median_method, methods)}, the median one,"
        text += f". {_movement_clause(sweep, median_method, median_name, sweep.factor.axis)}"
    return f"{text}{_slope_count_clause(sweep)}{_missing_levels_clause(sweep)}."


def _swapped_pair_sentence(condition: str, replicates: pd.DataFrame) -> str:
    """Returns the result of two swapped replicates: each example is its own control."""
    by_method = summarise_replicates(replicates, ["method", "variant"])
    row = by_method.sort_values("share_above_0", kind="stable").iloc[-1]
    note = f", the most of {len(by_method)} methods (no correction for this choice)"
    note *= len(by_method) > 1
    method, variant = row.name
    examples = format_count(int(row["examples"]), "example")
    error = f" (standard error {row['standard_error']:.2f})" if row["examples"] > 1 else ""
    return (
        f"{condition} and its swapped replicate together: of {examples} "
        f"{row['share_above_0']:.0%} score higher by the model that saw them than by the other, "
        f"with {method_label(method, variant, by_method.index)}{note}; the difference is "
        f"{row['mean']:.2f}{error} standard deviations of the non-members."
    )


def controls_sentence(pooled: pd.DataFrame) -> str:
    """Returns whether the controls of any condition are off, and where each is worst."""
    rows_by_control = group_by_control(pooled)
    if not rows_by_control:
        return "Controls: not measured."
    names = {CLEAN: "clean model", BLIND: "blind baseline"}
    several_conditions = pooled["condition"].nunique() > 1
    verdicts = [
        f"{names[control]} {describe_verdict(rows)}"
        + f" in {rows['condition'].iloc[0]}" * several_conditions
        for control, rows in rows_by_control.items()
    ]
    return f"Controls: {'; '.join(verdicts)}."


def _movement_clause(sweep: Sweep, pair: tuple[str, str], name: str, axis: str) -> str:
    """How the AUROC of a method moves along the sweep."""
    line = with_joint_intervals(sweep.method_rows(*pair))
    untested = {"slope": math.nan, "turns": "", "note": "it was not tested"}
    trend = sweep.trend_by_method.get(pair, untested)
    levels = line[sweep.factor.column]
    level_rows = line.assign(at=levels.map(format_short), level=levels.astype(float))
    return trend_clause(name, axis, trend, level_rows, None)


def _slope_count_clause(sweep: Sweep) -> str:
    """For how many methods the slope's interval excludes 0; nothing where there is one."""
    trends = sweep.trend_by_method
    trend_rows = [trends[pair] for pair in sweep.ranked_methods if pair in trends]
    trend_rows = [row for row in trend_rows if not math.isnan(row["slope"])]
    rising, falling = (
        sum(r["slope_low"] > 0 for r in trend_rows),
        sum(r["slope_high"] < 0 for r in trend_rows),
    )
    falls = f", below 0 for {falling}" * (falling > 0)
    text = f". The slope's interval is above 0 for {rising} of {len(trend_rows)} methods{falls}"
    return text * (len(trend_rows) > 1)


def _missing_levels_clause(sweep: Sweep) -> str:
    """The factor's values without a number, each with the reason."""
    reasons = sweep.reason_by_level.items()
    return "".join(f"; no value at {format_short(level)} ({reason})" for level, reason in reasons)
