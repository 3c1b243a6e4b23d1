"""Trends of detection over occurrences and along series of conditions (docs/report-tables.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from contamination.analysis.cells import CONTAMINATED, Cell
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.factors import FACTORS, Factor
from contamination.analysis.statistics.dose_response import (
    VARIED,
    BenchmarkScores,
    Curves,
    DoseResponse,
    dose_response,
    dose_response_of_groups,
    log_dose_at_level,
    slope_interval,
)
from contamination.analysis.statistics.groups import (
    ANY,
    groups_of_lacking_benchmarks,
    measurable_groups,
)
from contamination.analysis.statistics.kendall_trend import Detector, dose_tests
from contamination.analysis.statistics.results_table import Estimates, resample_group
from contamination.analysis.statistics.seed_pooling import (
    Replicates,
    hierarchical_draws,
    pooled_estimate,
)
from contamination.analysis.statistics.turning_points import format_levels, turning_levels
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import ALL_BENCHMARKS, Estimate, student_quantile
from contamination.core.statistics.metrics import AUROC
from contamination.detection.baselines.blind import BLIND

LEVEL = 0.75
OCCURRENCES = "occurrences"
NO_SLOPE = "no slope: "
ONE_DOSE = "one number of occurrences per benchmark: no slope and no test"
NOT_MEASURED = f"{NO_SLOPE}some benchmark lacks members or non-members"
COLUMNS = (
    *("condition", "over", "benchmark", "method", "variant", "levels", "lowest", "highest"),
    *("tau", "p_value", "slope", "slope_low", "slope_high", "monotone", "turns"),
    *("reaches", "reaches_low", "reaches_high", "note"),
)

DoseResponses = Mapping[Detector, DoseResponse]
Line = Mapping[float, Estimate]
"""Occurrences (or another level) → AUROC."""


def dose_responses(cell: Cell, config: AnalysisConfig, seed: int) -> DoseResponses:
    """The dose-responses of one cell's contaminated model, by benchmark and over "all".

    There is no "all" where a benchmark lacks members or non-members.
    """
    table = cell.scores[CONTAMINATED]
    doses = cell.examples["occurrences"].to_numpy(np.float64)
    compared = {
        group.benchmark: (group, resample_group(group, cell, config.draws, seed))
        for group in measurable_groups(cell.examples)
        if group.occurrences == ANY
    }
    responses = {}
    for method, variant in table.columns:
        scores = table[method, variant].to_numpy(np.float64)
        samples = {
            name: BenchmarkScores(
                np.log2(doses[g.members]), scores[g.members], scores[g.nonmembers], drawn
            )
            for name, (g, drawn) in compared.items()
        }
        samples_by_name = {name: [sample] for name, sample in samples.items()}
        if samples and not groups_of_lacking_benchmarks(cell.examples):
            samples_by_name[ALL_BENCHMARKS] = list(samples.values())
        for name, benchmark_samples in samples_by_name.items():
            detector = Detector(name, method, variant)
            responses[detector] = dose_response(benchmark_samples, config.confidence)
    return responses


def pool_dose_responses(
    responses_of_cells: Sequence[DoseResponses], replicates: Replicates, seed: int
) -> DoseResponses:
    """The mean over cells that differ in their seed alone, with hierarchical draws.

    Arguments are those of `seed_pooling.pool_estimates`. A detector has a slope where it has one in
    each of the cells that measured it.
    """
    gathered: dict[Detector, dict[int, DoseResponse]] = defaultdict(dict)
    for index, responses in enumerate(responses_of_cells):
        for detector, response in responses.items():
            gathered[detector][index] = response
    return {
        detector: mean_response([*by_cell.values()], replicates.select([*by_cell]), seed)
        for detector, by_cell in gathered.items()
    }


def mean_response(
    responses: Sequence[DoseResponse], replicates: Replicates, seed: int
) -> DoseResponse:
    """The mean over cells of one detector; `needs` is that of the first which has one."""
    if len(responses) == 1:
        return responses[0]
    doses = frozenset[float]().union(*(response.doses for response in responses))
    levels = [
        np.r_[
            of_benchmark[:, 0].mean(),
            hierarchical_draws(of_benchmark[:, 1:], replicates.seeds, seed),
        ]
        for of_benchmark in np.stack([response.levels.T for response in responses], axis=1)
    ]
    slope = pooled_estimate([response.slope for response in responses], replicates, seed)
    return DoseResponse(slope, np.stack(levels, axis=1), doses)


class Condition(NamedTuple):
    """What a series needs of a condition: a cell's facts and the AUROCs over all members."""

    cell: Cell
    auroc: Mapping[Detector, Estimate]


def occurrences_trend_rows(
    condition: str,
    cells: Sequence[Cell],
    pooled: Estimates,
    responses: DoseResponses,
    confidence: float,
) -> Iterator[dict[str, Any]]:
    """Trends over occurrences within one condition, on its contaminated models."""
    tests = dose_tests(cells)
    lines: dict[Detector, dict[float, Estimate]] = defaultdict(dict)
    for occurrences, detector, auroc in _iter_aurocs(pooled):
        if occurrences != ANY:
            lines[detector][float(occurrences)] = auroc
    for detector in {**tests, **responses}:
        tau, p_value = tests.get(detector, (np.nan, np.nan))
        response = responses.get(detector)
        yield {
            "condition": condition,
            "over": OCCURRENCES,
            **detector._asdict(),
            "tau": tau,
            "p_value": p_value,
            **(_dose_columns(response, confidence) if response else {"note": NOT_MEASURED}),
            **_movement_columns(lines.get(detector, {})),
        }


def summarise_condition(cells: Sequence[Cell], pooled: Estimates) -> Condition:
    """What is kept of a condition for `series_trend_rows`."""
    return Condition(
        cells[0],
        {
            detector: auroc
            for occurrences, detector, auroc in _iter_aurocs(pooled)
            if occurrences == ANY
        },
    )


def series_trend_rows(
    conditions: Sequence[Condition], confidence: float
) -> Iterator[dict[str, Any]]:
    """Trends of AUROC over all members along conditions that differ in one fact alone."""
    for factor in FACTORS:
        for series in _iter_series(conditions, factor):
            for detector in series[0].auroc:
                if all(detector in condition.auroc for condition in series):
                    line = {_factor_value(c, factor): c.auroc[detector] for c in series}
                    yield {
                        "condition": series[0].cell.condition,
                        "over": factor.column,
                        **detector._asdict(),
                        **_series_test_columns(line, confidence),
                        **trend_columns(line, confidence),
                    }


def trend_columns(line: Line, confidence: float) -> dict[str, Any]:
    """Slope, monotony and crossing of the AUROC along a series, with their intervals."""
    levels = sorted(line)
    columns: dict[str, Any] = {"levels": len(levels), "note": f"{NO_SLOPE}one level"}
    columns |= {"lowest": float(levels[0]), "highest": float(levels[-1]), "turns": ""}
    if len(levels) < 2:
        return columns
    columns |= _movement_columns(line)
    response = _series_curves(line, confidence)
    if response is None:
        return {**columns, "note": _why_no_slope(line)}
    log_level_range = float(np.log2(levels[0])), float(np.log2(levels[-1]))
    auroc = np.array([line[level].value for level in levels])
    return {**columns, **_slope_columns(response, log_level_range, auroc, confidence)}


def _dose_columns(response: DoseResponse, confidence: float) -> dict[str, Any]:
    """Slope and crossing over occurrences; a note where there are too few data for them."""
    doses = sorted(response.doses)
    columns = {"levels": len(doses), "lowest": doses[0], "highest": doses[-1]}
    if response.slope.needs:
        note = f"{NO_SLOPE}it needs {response.slope.needs}"
        return {**columns, "note": ONE_DOSE if response.slope.needs == VARIED else note}
    curves, x = response.curves, np.log2(doses)
    fitted = np.array([curves.auroc_at(at)[0] for at in x])
    return {**columns, **_slope_columns(curves, (x[0], x[-1]), fitted, confidence)}


def _slope_columns(
    curves: Curves, ends: tuple[float, float], auroc: Scores, confidence: float
) -> dict[str, Any]:
    """Returns the columns of an estimated slope; `auroc` explains why the level is not reached."""
    low, high = slope_interval(curves.slope, confidence)
    return {
        **{"slope": float(curves.slope[0]), "slope_low": low, "slope_high": high},
        **_crossing_columns(log_dose_at_level(curves, *ends, LEVEL), auroc, confidence),
    }


def _movement_columns(line: Line) -> dict[str, Any]:
    """The share of draws that move one way from level to level, and the levels of clear moves."""
    if len(line) < 2:
        return {"turns": ""}
    changes_between_levels = np.diff(_values_with_draws(line)[1:], axis=1)
    one_way = (changes_between_levels >= 0).all(axis=1) | (changes_between_levels <= 0).all(axis=1)
    return {"monotone": float(one_way.mean()), "turns": format_levels(turning_levels(line))}


def _why_no_slope(line: Line) -> str:
    """Why no line can be fitted to the AUROCs of a series."""
    aurocs = [estimate.value for estimate in line.values()]
    limits = sorted({value for value in aurocs if value in (0, 1)})
    inside = sum(0 < value < 1 for value in aurocs)
    if inside > 1:
        return f"{NO_SLOPE}the AUROCs are too far apart for a finite slope"
    where = f"all {'but one of the ' * inside}{len(aurocs)} levels"
    return f"{NO_SLOPE}the AUROC is {' or '.join(f'{value:.0f}' for value in limits)} at {where}"


def _series_curves(line: Line, confidence: float) -> Curves | None:
    """The regression of a series on its levels; its draws are as wide as Student's interval."""
    levels = sorted(line)
    members = np.array([line[level].n_members for level in levels], float)
    smallest_side = min(estimate.smallest_side for estimate in line.values())
    normal_quantile = NormalDist().inv_cdf((1 + confidence) / 2)
    widening = student_quantile(confidence, smallest_side) / normal_quantile
    return dose_response_of_groups(np.log2(levels), _values_with_draws(line), members, widening)


def _values_with_draws(line: Line) -> Scores:
    """The values, then the draws, by level ((1+D)×K)."""
    return np.stack([np.r_[line[at].value, line[at].draws] for at in sorted(line)], axis=1)


def _why_not_reached(auroc: Scores) -> str:
    """Why the level is reached nowhere."""
    if (auroc < LEVEL).all():
        return f"below {LEVEL} wherever measured"
    if (auroc > LEVEL).all():
        return f"above {LEVEL} wherever measured"
    return f"the fitted line does not cross {LEVEL}"


def _crossing_columns(log_occurrences: Scores, auroc: Scores, confidence: float) -> dict[str, Any]:
    """Returns the crossing with its interval; infinite ends are NaN, as the note explains."""
    tail = (1 - confidence) / 2
    interval_ends = np.quantile(log_occurrences[1:], [tail, 1 - tail], method="inverted_cdf")
    crossing_and_ends = np.array([log_occurrences[0], *interval_ends])
    column_names = ("reaches", "reaches_low", "reaches_high")
    reached = {
        name: float(2**log_number) if np.isfinite(log_number) else np.nan
        for name, log_number in zip(column_names, crossing_and_ends, strict=True)
    }
    notes = [] if np.isfinite(crossing_and_ends[0]) else [_why_not_reached(auroc)]
    return {**reached, "note": "; ".join([*notes, *_open_end_notes(*interval_ends)])}


def _open_end_notes(low: float, high: float) -> list[str]:
    """What of the interval lies outside of what was measured."""
    if low == high and np.isinf(low):
        return [f"interval {'above' if low == np.inf else 'below'} what was measured"]
    end_by_side = {"below": low, "above": high}
    return [f"interval open {side}" for side, end in end_by_side.items() if np.isinf(end)]


def _iter_aurocs(pooled: Estimates) -> Iterator[tuple[str, Detector, Estimate]]:
    """The contaminated models' AUROCs: occurrences, detector, estimate."""
    for measure, by_benchmark in pooled.items():
        auroc = (measure.metric, measure.checkpoint) == (AUROC.name, CONTAMINATED)
        if auroc and measure.method != BLIND:
            for benchmark, value in by_benchmark.items():
                if not value.needs:
                    detector = Detector(benchmark, measure.method, measure.variant)
                    yield measure.occurrences, detector, value


def _iter_series(conditions: Sequence[Condition], factor: Factor) -> Iterator[list[Condition]]:
    """Yields conditions that differ in the factor only, in its order; at least two of them."""
    by_recipe: dict[tuple[str, bool], list[Condition]] = defaultdict(list)
    for condition in conditions:
        if condition.auroc and factor.value(condition.cell) is not None:
            key = condition.cell.series[factor.column], condition.cell.swapped
            by_recipe[key].append(condition)
    for series in by_recipe.values():
        if len({_factor_value(condition, factor) for condition in series}) == len(series) > 1:
            yield sorted(series, key=lambda condition: _factor_value(condition, factor))


def _factor_value(condition: Condition, factor: Factor) -> float:
    value = factor.value(condition.cell)
    assert value is not None
    return float(value)


def _series_test_columns(line: Line, confidence: float) -> dict[str, float]:
    """τ over conditions, and how often the slope's draws lie on the other side of none at all."""
    from scipy.stats import kendalltau

    levels = sorted(line)
    auroc = [line[level].value for level in levels]
    tau = 0.0 if np.ptp(auroc) == 0 else float(kendalltau(levels, auroc).statistic)
    response = _series_curves(line, confidence)
    if response is None:
        return {"tau": tau, "p_value": np.nan}
    slope = response.slope
    further = (np.abs(slope[1:] - slope[0]) >= abs(slope[0]) - 1e-12).sum()
    return {"tau": tau, "p_value": float((1 + further) / len(slope))}
