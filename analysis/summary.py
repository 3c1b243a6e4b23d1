"""The findings of one condition in sentences, and how to read the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import Any, TypeVar

import pandas as pd

from contamination.analysis.cells import CLEAN, CONTAMINATED
from contamination.analysis.conditions import rows_by_condition
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.methods import Methods, method_label, methods_of
from contamination.analysis.report_folder import Report
from contamination.analysis.statistics.controls import describe_verdict, group_by_control
from contamination.analysis.statistics.flagged import flag_notes, unflagged_sentences
from contamination.analysis.statistics.groups import ANY, occurrences_sort_key
from contamination.analysis.statistics.results_table import why_without_number
from contamination.analysis.statistics.tidy_tables import Statistics
from contamination.analysis.statistics.trends import NO_SLOPE, OCCURRENCES, ONE_DOSE
from contamination.analysis.statistics.turning_points import parse_level_indices
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.statistics.metrics import AUROC, MIN_FALSE_ALARMS
from contamination.detection.baselines.blind import BLIND

Row = Mapping[Any, Any]


class Direction(Enum):
    """What the slope, its test and the values together show."""

    RISES = "rises"
    FALLS = "falls"
    PEAKS = "rises and then falls"
    DIPS = "falls and then rises"
    ZIGZAGS = "zigzags"
    FLAT = "shows no clear trend"
    DISPUTED = "has no clear direction"
    UNKNOWN = "has no measured trend"


def classify_direction(trend: Row, values: pd.DataFrame, alpha: float | None = None) -> Direction:
    """Returns the direction of one method's AUROC.

    AUROC "rises" or "falls" only where the slope's interval excludes 0, Kendall's τ agrees, AUROC
    clearly moves the other way between no two levels, and the last value is not on the wrong side
    of the first. Where no slope could be estimated, a single clear move stands for it. A turn is
    stated by its moves alone: τ may have either sign.

    Args:
        trend: the method's row of the trends (`statistics.trends`).
        values: the method's AUROCs (level, value, ci_low, ci_high), in order of the level.
        alpha: the level at which τ's own one-sided test must agree (over occurrences). None: τ is
            descriptive, and its sign must agree.
    """
    moves = _signs_between_turning_points(trend, values)
    if len(moves) > 1:
        turning = Direction.PEAKS if moves[0] > 0 else Direction.DIPS
        return turning if len(moves) == 2 else Direction.ZIGZAGS
    sign = _sign_of_trend(trend, moves)
    if not sign:
        return Direction.UNKNOWN if math.isnan(trend["slope"]) else Direction.FLAT
    if _describe_contradiction(sign, trend, values, alpha):
        return Direction.DISPUTED
    return Direction.RISES if sign > 0 else Direction.FALLS


def trend_clause(
    name: str, axis: str, trend: Row, values: pd.DataFrame, alpha: float | None
) -> str:
    """A clause on one method, such as "AUROC of loss rises with occurrences: its log-odds …".

    `values` has the column `at` too: what varies, in words. It may be empty.
    """
    which = classify_direction(trend, values, alpha)
    start = f"AUROC of {name} {which.value} with {axis}"
    if which is Direction.UNKNOWN:
        why = str(trend["note"]).removeprefix(NO_SLOPE)
        return f"{start}: {why}{_describe_first_and_last(values, '; it goes')}"
    if which is Direction.ZIGZAGS:
        return f"{start}, in no steady direction: {_describe_every_value(values)}"
    if which in (Direction.PEAKS, Direction.DIPS):
        return f"{start}: {_describe_every_value(values.iloc[_turning_row_indices(trend, values)])}"
    if math.isnan(trend["slope"]):
        ends = _describe_first_and_last(values.iloc[_turning_row_indices(trend, values)], ",")
        why = str(trend["note"]).removeprefix(NO_SLOPE)
        sentence = f"{start}{ends}, by the paired difference of these two levels (no slope: {why})"
    else:
        ends = _describe_first_and_last(values, ",")
        sentence = f"{start}{ends}: its log-odds {_describe_slope(trend)} per doubling"
    if which is Direction.DISPUTED:
        sign = _sign_of_trend(trend, _signs_between_turning_points(trend, values))
        sentence += f"; but {_describe_contradiction(sign, trend, values, alpha)}"
    return sentence


def describe_estimate(row: Row | pd.Series[Any]) -> str:
    """An estimate: 0.91 [0.88, 0.93]."""
    return f"{row['value']:.2f} [{row['ci_low']:.2f}, {row['ci_high']:.2f}]"


def _sign_of_trend(trend: Row, moves: Sequence[int]) -> int:
    """Returns the sign of the slope, or 0 where its interval includes 0.

    Where there is no slope, it is that of the only clear move, or 0 without one.
    """
    if math.isnan(trend["slope"]):
        return moves[0] if moves else 0
    return int(trend["slope_low"] > 0) - int(trend["slope_high"] < 0)


def _describe_contradiction(
    sign: int, trend: Row, values: pd.DataFrame, alpha: float | None
) -> str:
    """Returns what contradicts a rise (1) or a fall (−1), in words; empty if nothing does."""
    if not _is_confirmed_by_tau(trend, sign, alpha):
        return f"Kendall's τ does not confirm it ({_describe_tau(trend, sign, alpha)})"
    if len(values) and sign * (values["value"].iloc[-1] - values["value"].iloc[0]) < 0:
        return f"the last AUROC is {'below' if sign > 0 else 'above'} the first"
    if -sign in _signs_between_turning_points(trend, values):
        return f"AUROC clearly {'falls' if sign > 0 else 'rises'} between some levels"
    return ""


def _is_confirmed_by_tau(trend: Row, sign: int, alpha: float | None) -> bool:
    """Returns whether τ confirms the sign; it does not where it could not be computed."""
    if not sign * trend["tau"] > 0:
        return False
    if alpha is None:
        return True
    return bool(_one_sided_p_value(trend, sign) < alpha)


def _one_sided_p_value(trend: Row, sign: int) -> float:
    """Returns the p-value of τ's test that scores rise (1) or fall (−1)."""
    return float(trend["p_value"] if sign > 0 else 1 - trend["p_value"])


def _signs_between_turning_points(trend: Row, values: pd.DataFrame) -> list[int]:
    """The clear moves between turning points, in order: 1 is up, -1 is down."""
    value_by_level = values["value"].to_numpy()
    return [
        1 if value_by_level[b] > value_by_level[a] else -1
        for a, b in pairwise(_turning_row_indices(trend, values))
    ]


def _turning_row_indices(trend: Row, values: pd.DataFrame) -> list[int]:
    return parse_level_indices(trend["turns"], values["level"].tolist()) if len(values) else []


def _describe_slope(trend: Row) -> str:
    """Such as "increase by 0.71 [0.60, 0.82]"; a fall is written as a positive decrease."""
    slope, low, high = (trend[name] for name in ("slope", "slope_low", "slope_high"))
    verb = "change"
    if low > 0:
        verb = "increase"
    elif high < 0:
        verb, slope, low, high = "decrease", -slope, -high, -low
    return f"{verb} by {slope:.2f} [{low:.2f}, {high:.2f}]"


def _describe_first_and_last(values: pd.DataFrame, lead: str) -> str:
    """Such as ", from 0.55 [0.50, 0.60] at 1 to 0.94 [0.90, 0.97] at 8"; empty without values."""
    if len(values) < 2:
        return ""
    first, last = values.iloc[0], values.iloc[-1]
    ends = (f"{describe_estimate(row)} at {row['at']}" for row in (first, last))
    return f"{lead} from {' to '.join(ends)}"


def _describe_every_value(values: pd.DataFrame) -> str:
    return ", ".join(
        f"{describe_estimate(row)} at {row['at']}" for row in values.to_dict("records")
    )


def _describe_tau(trend: Row, sign: int, alpha: float | None) -> str:
    """τ, with the p-value of its test for a rise (1) or a fall (−1) where there is one."""
    if math.isnan(trend["tau"]):
        return "it could not be computed"
    p_value = _one_sided_p_value(trend, sign)
    tested = f", one-sided p = {p_value:.3f}" if alpha is not None else ""
    return f"{trend['tau']:.2f}{tested}"


Estimates = TypeVar("Estimates", pd.DataFrame, "pd.Series[Any]")


def reading_guide(config: AnalysisConfig) -> str:
    """How to read the numbers."""
    return (
        "Scores are compared between members (inserted into the training corpus) and non-members "
        "(drawn from the same pool, never inserted); a higher score indicates a member, and 0.5 is "
        f"the AUROC of a guess. In brackets: {config.confidence:.0%} intervals from a bootstrap "
        f"over examples, and over seeds where there are several ({config.draws:,} draws; for AUROC "
        "Wilson's interval with the draws' variance). A rate is shown where at least "
        f"{MIN_FALSE_ALARMS} false alarms are expected at its level in each benchmark; otherwise "
        "the table states what is missing. A column with a number contains the members with this "
        "many occurrences, `any` all of them; `all` is the mean over benchmarks, and has a number "
        "where each of them does. Rises, falls and turns between levels are judged by paired "
        "differences, corrected for the number of pairs."
    )


def condition_sentences(
    pooled: pd.DataFrame, comparisons: pd.DataFrame, trends: pd.DataFrame, confidence: float
) -> list[str]:
    """Returns sentences on a condition's best method, its occurrences and its two controls.

    Methods are compared by their default variants. "Strongest" needs the corrected paired test
    against every other method, "rises" the slope's interval and τ's test.
    """
    mean_aurocs = pooled[(pooled["metric"] == AUROC.name) & (pooled["benchmark"] == ALL_BENCHMARKS)]
    detectors = mean_auroc_rows(pooled)
    best = best_method_row(detectors)
    name = method_label(
        best["method"], best["variant"], methods_of(mean_aurocs[mean_aurocs["method"] != BLIND])
    )
    rows_by_control = group_by_control(pooled)
    if best["needs"]:
        main_sentences = [_unmeasured_sentence(best)]
    else:
        best_sentence = _best_method_sentence(
            name, best, methods_of(detectors), comparisons, confidence
        )
        main_sentences = [
            best_sentence,
            _occurrences_sentence(name, best, detectors, trends, confidence),
        ]
    return [
        *main_sentences,
        _control_sentence(
            "Clean control (the model before the contaminated training)", rows_by_control.get(CLEAN)
        ),
        _control_sentence(
            "Blind baseline (a text classifier without the model)", rows_by_control.get(BLIND)
        ),
    ]


def mean_auroc_rows(pooled: pd.DataFrame) -> pd.DataFrame:
    """Returns the AUROCs of the contaminated model, averaged over benchmarks: default variants."""
    mean_aurocs = pooled[(pooled["metric"] == AUROC.name) & (pooled["benchmark"] == ALL_BENCHMARKS)]
    return mean_aurocs[(mean_aurocs["checkpoint"] == CONTAMINATED) & mean_aurocs["default"]]


def best_method_row(mean_aurocs: pd.DataFrame) -> pd.Series[Any]:
    """Returns the row of all members with the highest AUROC, of `mean_auroc_rows`."""
    all_members = mean_aurocs[mean_aurocs["occurrences"] == ANY]
    return all_members.sort_values("value", ascending=False, kind="stable").iloc[0]


def rows_by_occurrences(mean_aurocs: pd.DataFrame, method: str) -> pd.DataFrame:
    """Returns the method's rows by number of occurrences, with joint intervals.

    The columns `at` and `level` are the number of occurrences, as text and as a number.
    """
    rows = mean_aurocs[mean_aurocs["method"].eq(method) & mean_aurocs["occurrences"].ne(ANY)]
    rows = rows.sort_values("occurrences", key=lambda column: column.map(occurrences_sort_key))
    occurrences = rows["occurrences"]
    return with_joint_intervals(rows).assign(at=occurrences, level=occurrences.astype(float))


def sentences_by_condition(tables: Statistics | Report, confidence: float) -> dict[str, list[str]]:
    """The sentences on each condition, in their order; flags on its scores are last."""
    by_condition = {}
    for condition, rows in rows_by_condition(tables.pooled).items():
        comparisons, trends = (
            table[table["condition"] == condition] for table in (tables.comparisons, tables.trends)
        )
        notes_on_scores = [
            *unflagged_sentences(tables.pooled, tables.unflagged, condition),
            *flag_notes(tables.flags, condition),
        ]
        by_condition[condition] = [
            *condition_sentences(rows, comparisons, trends, confidence),
            *notes_on_scores,
        ]
    return by_condition


def _unmeasured_sentence(row: pd.Series[Any]) -> str:
    """Why a condition has no number over its benchmarks."""
    why = why_without_number(row)
    if row["n_members"] and row["n_nonmembers"]:
        return f"{ALL_BENCHMARKS}, the mean over benchmarks: {why}."
    return f"{why[0].upper()}{why[1:]}."


def _best_method_sentence(
    name: str, best: pd.Series[Any], methods: Methods, comparisons: pd.DataFrame, confidence: float
) -> str:
    members, nonmembers = best["n_members"], best["n_nonmembers"]
    sizes_text = f"{format_count(members, 'member')} and {format_count(nonmembers, 'non-member')}"
    auroc_text = (
        f"AUROC {describe_estimate(with_joint_intervals(best))} over "
        f"{'all ' if members > 1 else ''}{sizes_text}, mean over benchmarks"
    )
    if len(methods) == 1:
        return f"The only method: {name}, {auroc_text}."
    auroc_text += f" (interval corrected for the choice among {len(methods)} methods)"
    not_beaten = _indistinguishable_methods(str(best["method"]), comparisons, confidence)
    rivals = ", ".join(method for method, _ in methods if method in not_beaten)
    if not not_beaten:
        level = f"p < {1 - confidence:.2g}"
        return (
            f"Strongest of {len(methods)} methods: {name}, {auroc_text}; it is above each of the "
            f"others (paired tests, corrected, {level})."
        )
    return (
        f"Highest of {len(methods)} methods: {name}, {auroc_text}; not distinguishable from "
        f"{rivals} (paired tests, corrected)."
    )


def _indistinguishable_methods(best: str, comparisons: pd.DataFrame, confidence: float) -> set[str]:
    """Returns the methods from which the test cannot distinguish the best one."""
    rows = comparisons[
        (comparisons["metric"] == AUROC.name) & (comparisons["benchmark"] == ALL_BENCHMARKS)
    ]
    unsure = rows[~(rows["p_max_t"] < 1 - confidence)]
    pairs = zip(unsure["method_a"], unsure["method_b"], strict=True)
    return {method for pair in pairs if best in pair for method in pair if method != best}


def _occurrences_sentence(
    name: str,
    best: pd.Series[Any],
    detectors: pd.DataFrame,
    trends: pd.DataFrame,
    confidence: float,
) -> str:
    """Returns how the best method's AUROC follows the occurrences, and how many methods' rise."""
    slopes = trends[(trends["over"] == OCCURRENCES) & (trends["benchmark"] == ALL_BENCHMARKS)]
    if slopes.empty:
        return "Occurrences: no trend was measured."
    slopes = slopes.set_index(["method", "variant"]).loc[methods_of(detectors)]
    best_trend = slopes.loc[(best["method"], best["variant"])]
    if best_trend["note"] == ONE_DOSE:
        return "Occurrences: no slope, since all members of a benchmark have the same number."
    level_rows = rows_by_occurrences(detectors, best["method"])
    sentence = trend_clause(name, "occurrences", best_trend, level_rows, 1 - confidence)
    measured = slopes[slopes["slope"].notna()]
    if measured.empty:
        return f"{sentence}."
    rising = int((measured["slope_low"] > 0).sum())
    n_methods_text = format_count(len(measured), "method")
    return f"{sentence}. The slope's interval is above 0 for {rising} of {n_methods_text}."


def _control_sentence(name: str, rows: pd.DataFrame | None) -> str:
    """Whether a control is off, by the rows of `group_by_control`."""
    return f"{name}: {'not measured' if rows is None else describe_verdict(rows)}."


def with_joint_intervals(estimates: Estimates) -> Estimates:
    """Returns a row, or rows, of the pooled table with the joint intervals of all methods."""
    corrected = estimates.copy()
    corrected[["ci_low", "ci_high"]] = estimates[["joint_low", "joint_high"]].to_numpy()
    return corrected


def format_count(number: int, noun: str) -> str:
    """1 → "1 seed", 2,000 → "2,000 seeds"."""
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"
