"""Is one method better than another? A paired bootstrap between every two of them.

Both methods score the same examples and their intervals use the same resamples (and the same
seeds), so the draws of the difference are the difference of the draws. Compared are the methods'
default variants on the contaminated model over all members. The columns are in
docs/report-tables.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from contamination.analysis.cells import CONTAMINATED
from contamination.analysis.methods import sort_methods
from contamination.analysis.statistics.groups import ANY
from contamination.analysis.statistics.results_table import Estimates
from contamination.core.statistics.bootstrap import Scores, percentile_intervals
from contamination.core.statistics.estimates import Estimate
from contamination.core.statistics.significance import holm_correction
from contamination.detection.baselines.blind import BLIND

COLUMNS = (
    *("condition", "benchmark", "method_a", "method_b", "metric", "difference", "ci_low"),
    *("ci_high", "p_value", "p_holm", "p_max_t"),
)


class Differences(NamedTuple):
    """Of P pairs: the differences (P), their draws (P×D)."""

    value: Scores
    draws: Scores


def comparison_rows(
    condition: str, pooled: Estimates, defaults: Mapping[str, str], confidence: float
) -> Iterator[dict[str, Any]]:
    """Every two methods of one condition, by each benchmark and metric.

    `defaults` names the variant of each method (`analysis.methods.default_variants`).
    """
    for (benchmark, metric), by_method in _estimates_by_family(pooled, defaults).items():
        method_pairs = list(combinations(by_method, 2))
        if not method_pairs:
            continue
        differences = _paired_differences(by_method, method_pairs)
        low, high = percentile_intervals(differences.draws, confidence)
        p_value = pairwise_p_values(differences)
        comparison_columns = [
            differences.value,
            low,
            high,
            p_value,
            holm_correction(p_value),
            max_t_p_values(differences),
        ]
        for (a, b), comparison_numbers in zip(
            method_pairs, np.transpose(comparison_columns).tolist(), strict=True
        ):
            yield dict(
                zip(COLUMNS, (condition, benchmark, a, b, metric, *comparison_numbers), strict=True)
            )


def pairwise_p_values(differences: Differences) -> Scores:
    """Two-sided, from draws that are moved to a difference of zero (P)."""
    distances_from_value = np.abs(differences.draws - differences.value[:, None])
    further = (distances_from_value >= np.abs(differences.value)[:, None] - 1e-12).sum(axis=1)
    shares: Scores = (1 + further) / (1 + differences.draws.shape[1])
    return shares


def max_t_p_values(differences: Differences) -> Scores:
    """Step-down max-T: each difference against the largest of those not yet rejected (P)."""
    spread = differences.draws.std(axis=1)
    never_equal = np.where(
        differences.value == 0, np.inf, 1e-12
    )  # a difference that is always the same
    scale = np.where(spread > 1e-12, spread, never_equal)  # less is rounding
    observed = np.abs(differences.value) / scale
    order = np.argsort(-observed)
    away = np.abs(differences.draws - differences.value[:, None]) / scale[:, None]
    largest = np.maximum.accumulate(away[order][::-1])[::-1]
    further = (largest >= observed[order][:, None] - 1e-12).sum(axis=1)
    adjusted = np.empty_like(observed)
    adjusted[order] = np.maximum.accumulate((1 + further) / (1 + differences.draws.shape[1]))
    return adjusted


def _estimates_by_family(
    pooled: Estimates, defaults: Mapping[str, str]
) -> Mapping[tuple[str, str], dict[str, Estimate]]:
    """(benchmark, metric) → method → its estimate, the methods in their usual order."""
    contaminated_measures = [
        measure
        for measure in pooled
        if measure.checkpoint == CONTAMINATED
        and measure.occurrences == ANY
        and measure.method != BLIND
        and measure.variant == defaults[measure.method]
    ]
    sorted_methods = sort_methods(
        (measure.method, measure.variant) for measure in contaminated_measures
    )
    families: dict[tuple[str, str], dict[str, Estimate]] = {}
    for measure in sorted(
        contaminated_measures, key=lambda m: sorted_methods.index((m.method, m.variant))
    ):
        for benchmark, value in pooled[measure].items():
            if not value.needs:
                families.setdefault((benchmark, measure.metric), {})[measure.method] = value
    return families


def _paired_differences(
    by_method: Mapping[str, Estimate], pairs: Sequence[tuple[str, str]]
) -> Differences:
    index_of = {method: i for i, method in enumerate(by_method)}
    values = np.array([estimate.value for estimate in by_method.values()])
    draws = np.stack([estimate.draws for estimate in by_method.values()])
    first_index, second_index = (
        np.array([index_of[name] for name in side]) for side in zip(*pairs, strict=True)
    )
    return Differences(
        values[first_index] - values[second_index], draws[first_index] - draws[second_index]
    )
