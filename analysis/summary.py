"""How to read the numbers, and the findings in words, made from those of one condition."""

from __future__ import annotations

from typing import Any, TypeVar

import pandas as pd

from analysis.cells import CLEAN, CONTAMINATED
from analysis.conditions import parts_of
from analysis.config import AnalysisConfig
from analysis.direction import described
from analysis.direction import in_words as in_words
from analysis.folder import Report
from analysis.methods import BLIND, Methods, label, methods_of
from analysis.statistics.controls import by_control, verdict
from analysis.statistics.flags import notes
from analysis.statistics.groups import ANY, occurrences_order
from analysis.statistics.results import ALL, lacks
from analysis.statistics.tidy_tables import Statistics
from analysis.statistics.trends import OCCURRENCES, ONE_DOSE
from analysis.statistics.unflagged import unflagged_sentence
from core.metrics import AUROC
from core.metrics.rates import ALARMS

Estimates = TypeVar("Estimates", pd.DataFrame, "pd.Series[Any]")


def reading_guide(config: AnalysisConfig) -> str:
    """How to read the numbers."""
    return (
        "Scores are compared between members (inserted into the training corpus) and non-members "
        "(drawn from the same pool, never inserted); a higher score says member, and 0.5 is the "
        f"AUROC of a guess. In brackets: {config.confidence:.0%} intervals from a bootstrap over "
        f"examples, and over seeds where there are several ({config.draws:,} draws; for AUROC "
        "Wilson's interval with the draws' variance). A rate is shown where at least "
        f"{ALARMS} false alarms are expected at its level in each benchmark; else it says what it "
        "needs. A column with a number holds the members "
        "with so many occurrences, `any` all of them; `all` is the mean over benchmarks, and has a "
        "number where each of them does."
    )


def sentences(
    pooled: pd.DataFrame, comparisons: pd.DataFrame, trends: pd.DataFrame, confidence: float
) -> list[str]:
    """The best method, the effect of occurrences, and the two controls, of one condition.

    Methods are compared by their default variants. A claim needs its own test: "strongest" the
    paired one against every other method, corrected; "rises" the slope's interval and τ's test.
    """
    shown = pooled[(pooled["metric"] == AUROC.name) & (pooled["benchmark"] == ALL)]
    detectors = shown[(shown["checkpoint"] == CONTAMINATED) & shown["default"]]
    over_all = detectors[detectors["occurrences"] == ANY]
    best = over_all.sort_values("value", ascending=False, kind="stable").iloc[0]
    name = label(best["method"], best["variant"], methods_of(shown[shown["method"] != BLIND]))
    looked = by_control(pooled)
    if best["needs"]:
        found = [_unmeasured(best)]
    else:
        best_of = _best(name, best, methods_of(detectors), comparisons, confidence)
        found = [best_of, _trend(name, best, detectors, trends, confidence)]
    return [
        *found,
        _control("Clean control (the model before the contaminated training)", looked.get(CLEAN)),
        _control("Blind baseline (a text classifier without the model)", looked.get(BLIND)),
    ]


def of_conditions(made: Statistics | Report, confidence: float) -> dict[str, list[str]]:
    """The sentences on each condition, in their order; flags on its scores are last."""
    found = {}
    for condition, part in parts_of(made.pooled).items():
        comparisons, trends = (
            table[table["condition"] == condition] for table in (made.comparisons, made.trends)
        )
        odd = [
            *unflagged_sentence(made.pooled, made.unflagged, condition),
            *notes(made.flags, condition),
        ]
        found[condition] = [*sentences(part, comparisons, trends, confidence), *odd]
    return found


def _unmeasured(row: pd.Series[Any]) -> str:
    """Why a condition has no number over its benchmarks."""
    why = lacks(row)
    if row["n_members"] and row["n_nonmembers"]:
        return f"{ALL}, the mean over benchmarks: {why}."
    return f"{why[0].upper()}{why[1:]}."


def _best(
    name: str, best: pd.Series[Any], methods: Methods, comparisons: pd.DataFrame, confidence: float
) -> str:
    members, others = best["n_members"], best["n_nonmembers"]
    measured = (
        f"AUROC {in_words(jointly(best))} over {'all ' if members > 1 else ''}"
        f"{many(members, 'member')} and {many(others, 'non-member')}, mean over benchmarks"
    )
    if len(methods) == 1:
        return f"The only method: {name}, {measured}."
    measured += f" (interval corrected for the choice among {len(methods)} methods)"
    like = _not_beaten(str(best["method"]), comparisons, confidence)
    rivals = ", ".join(method for method, _ in methods if method in like)
    if not like:
        level = f"p < {1 - confidence:.2g}"
        return (
            f"Strongest of {len(methods)} methods: {name}, {measured}; it is above each of the "
            f"others (paired tests, corrected, {level})."
        )
    return (
        f"Highest of {len(methods)} methods: {name}, {measured}; not distinguishable from {rivals} "
        "(paired tests, corrected)."
    )


def _not_beaten(best: str, comparisons: pd.DataFrame, confidence: float) -> set[str]:
    """The methods from which the test can't tell the best one."""
    rows = comparisons[(comparisons["metric"] == AUROC.name) & (comparisons["benchmark"] == ALL)]
    unsure = rows[~(rows["p_max_t"] < 1 - confidence)]
    pairs = zip(unsure["method_a"], unsure["method_b"], strict=True)
    return {method for pair in pairs if best in pair for method in pair if method != best}


def _trend(
    name: str,
    best: pd.Series[Any],
    detectors: pd.DataFrame,
    trends: pd.DataFrame,
    confidence: float,
) -> str:
    """What each doubling does to the best method's AUROC, and for how many methods it rises."""
    slopes = trends[(trends["over"] == OCCURRENCES) & (trends["benchmark"] == ALL)]
    if slopes.empty:
        return "Occurrences: no trend was measured."
    slopes = slopes.set_index(["method", "variant"]).loc[methods_of(detectors)]
    row = slopes.loc[(best["method"], best["variant"])]
    if row["note"] == ONE_DOSE:
        return "Occurrences: no slope, since all members of a benchmark have the same number."
    values = detectors[detectors["method"].eq(best["method"]) & detectors["occurrences"].ne(ANY)]
    values = values.sort_values("occurrences", key=lambda column: column.map(occurrences_order))
    values = jointly(values).assign(at=values["occurrences"])
    said = described(name, "occurrences", row, values, 1 - confidence)
    measured = slopes[slopes["slope"].notna()]
    if measured.empty:
        return f"{said}."
    rising = int((measured["slope_low"] > 0).sum())
    methods = many(len(measured), "method")
    return f"{said}. The slope's interval is above 0 for {rising} of {methods}."


def _control(name: str, rows: pd.DataFrame | None) -> str:
    """Whether a control is off, by the rows of `by_control`."""
    return f"{name}: {'not measured' if rows is None else verdict(rows)}."


def jointly(estimates: Estimates) -> Estimates:
    """A row, or rows, of the pooled table with intervals that hold for any choice of a method."""
    corrected = estimates.copy()
    corrected[["ci_low", "ci_high"]] = estimates[["joint_low", "joint_high"]].to_numpy()
    return corrected


def many(number: int, noun: str) -> str:
    """1 → "1 seed", 2,000 → "2,000 seeds"."""
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"
