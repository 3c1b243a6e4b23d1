"""Does detection move with the occurrences, and along a series of conditions?

Columns (`COLUMNS`), where they need a word:

- `over`: "occurrences" (within a condition), or a fact that differs between conditions that agree
  in all else: "learning_rate", "budget_tokens", "example_max_tokens", "parameters",
  "mean_occurrences".
- `condition`: the condition, or the first of the series.
- `levels`, `lowest`, `highest`: how many values of `over` were measured, and their range.
- `tau`, `p_value`: over occurrences, Kendall's τ-b between them and the scores of the members
  that were inserted, and the p-value of its one-sided test that scores rise with them
  (`analysis.statistics.dose_test`: the mean τ over seeds and benchmarks; NaN where every member has
  the same number, and `note` says so). Along a series, τ between the fact and the AUROC over
  conditions (descriptive: they are few) and the bootstrap's two-sided p-value of the slope.
- `slope`, `slope_low`, `slope_high`: change of the AUROC's log-odds with each doubling
  (`analysis.statistics.dose_response`), and the percentiles of its draws. Where there was no trend
  they left 0 out in 6% of 1,500 simulated lines of 3 points with 15 members each, and in 5% with 30
  or 60 (1,000 draws; 200 draws add up to a point).
- `monotone`: the share of bootstrap draws in which the AUROC moves one way from level to level.
- `reaches`, `reaches_low`, `reaches_high`: where the AUROC reaches 0.75, and its interval: NaN
  where that lies outside of what was measured. `note` says so in words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from analysis.cells import CONTAMINATED, Cell
from analysis.conditions import FACTORS
from analysis.methods import BLIND
from analysis.statistics.dose_response import crossing, fit
from analysis.statistics.dose_test import Detector, dose_tests
from analysis.statistics.groups import ANY
from analysis.statistics.results import Estimates
from core.bootstrap import intervals
from core.estimates import Estimate
from core.metrics import AUROC, Scores

LEVEL = 0.75
OCCURRENCES = "occurrences"
ONE_DOSE = "one number of occurrences a benchmark: no dose test"
COLUMNS = (
    *("condition", "over", "benchmark", "method", "variant", "levels", "lowest", "highest"),
    *("tau", "p_value", "slope", "slope_low", "slope_high", "monotone"),
    *("reaches", "reaches_low", "reaches_high", "note"),
)


class Condition(NamedTuple):
    """What a series needs of a condition: a cell's facts and the AUROCs over all members."""

    cell: Cell
    auroc: Mapping[Detector, Estimate]


Line = Mapping[float, Estimate]
"""Occurrences (or another level) → AUROC."""


def occurrences_rows(
    condition: str, cells: Sequence[Cell], pooled: Estimates, confidence: float
) -> Iterator[dict[str, Any]]:
    """Trends over occurrences within one condition, on its contaminated models."""
    tests = dose_tests(cells)
    lines: dict[Detector, dict[float, Estimate]] = defaultdict(dict)
    for occurrences, detector, auroc in _aurocs(pooled):
        if occurrences != ANY:
            lines[detector][float(occurrences)] = auroc
    for detector in {**tests, **lines}:
        tau, p_value = tests.get(detector, (np.nan, np.nan))
        yield {
            "condition": condition,
            "over": OCCURRENCES,
            **detector._asdict(),
            "tau": tau,
            "p_value": p_value,
            **shape(lines.get(detector, {}), confidence),
            **({} if detector in tests else {"note": ONE_DOSE}),
        }


def condition_of(cells: Sequence[Cell], pooled: Estimates) -> Condition:
    """What is kept of a condition for `series_rows`."""
    return Condition(
        cells[0],
        {detector: auroc for occurrences, detector, auroc in _aurocs(pooled) if occurrences == ANY},
    )


def series_rows(conditions: Sequence[Condition], confidence: float) -> Iterator[dict[str, Any]]:
    """Trends of AUROC over all members along conditions that differ in one fact alone."""
    for over in FACTORS:
        for series in _series(conditions, over):
            for detector in series[0].auroc:
                if all(detector in condition.auroc for condition in series):
                    line = {getattr(c.cell, over): c.auroc[detector] for c in series}
                    yield {
                        "condition": series[0].cell.condition,
                        "over": over,
                        **detector._asdict(),
                        **_series_test(line),
                        **shape(line, confidence),
                    }


def shape(line: Line, confidence: float) -> dict[str, Any]:
    """Slope, monotony and crossing of one line, with their intervals."""
    levels = sorted(line)
    found: dict[str, Any] = {"levels": len(levels), "note": "one level: no slope"}
    if not levels:
        return {**found, "note": "no dose was measured"}
    found |= {"lowest": float(levels[0]), "highest": float(levels[-1])}
    if len(levels) < 2:
        return found
    x, auroc = np.log2(levels), _with_draws(line)
    curves = fit(x, auroc, np.array([line[level].n_members for level in levels], float))
    low, high = intervals(curves.slope[None, 1:], confidence)
    steps = np.diff(auroc[1:], axis=1)
    one_way = (steps >= 0).all(axis=1) | (steps <= 0).all(axis=1)
    return {
        **found,
        "slope": float(curves.slope[0]),
        **{"slope_low": float(low[0]), "slope_high": float(high[0])},
        "monotone": float(one_way.mean()),
        **_reaches(crossing(curves, x[0], x[-1], LEVEL), auroc[0], confidence),
    }


def _with_draws(line: Line) -> Scores:
    """The values, then the draws, by level ((1+D)×K)."""
    return np.stack([np.r_[line[at].value, line[at].draws] for at in sorted(line)], axis=1)


def _side(auroc: Scores) -> str:
    """Why the level is reached nowhere."""
    if (auroc < LEVEL).all():
        return f"below {LEVEL} wherever measured"
    if (auroc > LEVEL).all():
        return f"above {LEVEL} wherever measured"
    return f"the fitted line does not cross {LEVEL}"


def _reaches(log_occurrences: Scores, auroc: Scores, confidence: float) -> dict[str, Any]:
    """The crossing with its interval; infinite ends are NaN, and the note says why."""
    tail = (1 - confidence) / 2
    ends = np.quantile(log_occurrences[1:], [tail, 1 - tail], method="inverted_cdf")
    numbers = np.array([log_occurrences[0], *ends])
    names = ("reaches", "reaches_low", "reaches_high")
    reached = {
        name: float(2**number) if np.isfinite(number) else np.nan
        for name, number in zip(names, numbers, strict=True)
    }
    notes = [] if np.isfinite(numbers[0]) else [_side(auroc)]
    return {**reached, "note": "; ".join([*notes, *_outside(*ends)])}


def _outside(low: float, high: float) -> list[str]:
    """What of the interval lies outside of what was measured."""
    if low == high and np.isinf(low):
        return [f"interval {'above' if low == np.inf else 'below'} what was measured"]
    ends = {"below": low, "above": high}
    return [f"interval open {side}" for side, end in ends.items() if np.isinf(end)]


def _aurocs(pooled: Estimates) -> Iterator[tuple[str, Detector, Estimate]]:
    """The contaminated models' AUROCs: occurrences, detector, estimate."""
    for measure, by_benchmark in pooled.items():
        auroc = (measure.metric, measure.checkpoint) == (AUROC.name, CONTAMINATED)
        if auroc and measure.method != BLIND:
            for benchmark, value in by_benchmark.items():
                if not value.needs:
                    detector = Detector(benchmark, measure.method, measure.variant)
                    yield measure.occurrences, detector, value


def _series(conditions: Sequence[Condition], over: str) -> Iterator[list[Condition]]:
    """Conditions that differ in `over` alone, in its order; at least two of them."""
    found: dict[tuple[str, bool], list[Condition]] = defaultdict(list)
    for condition in conditions:
        if condition.auroc and getattr(condition.cell, over) is not None:
            found[condition.cell.series[over], condition.cell.swapped].append(condition)
    for series in found.values():
        if len({getattr(condition.cell, over) for condition in series}) == len(series) > 1:
            yield sorted(series, key=lambda condition: float(getattr(condition.cell, over)))


def _series_test(line: Line) -> dict[str, float]:
    """τ over conditions, and how often the slope's draws lie on the other side of none at all."""
    from scipy.stats import kendalltau

    levels, auroc = sorted(line), _with_draws(line)
    members = np.array([line[level].n_members for level in levels], float)
    slope = fit(np.log2(levels), auroc, members).slope
    further = (np.abs(slope[1:] - slope[0]) >= abs(slope[0]) - 1e-12).sum()
    tau = 0.0 if np.ptp(auroc[0]) == 0 else float(kendalltau(levels, auroc[0]).statistic)
    return {"tau": tau, "p_value": float((1 + further) / len(slope))}
