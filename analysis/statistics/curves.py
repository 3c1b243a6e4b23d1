"""Whole curves of each condition: ROC with bands, and histograms of the scores.

A condition is what cells share that differ in their seed alone. `condition`, `checkpoint`,
`benchmark`, `method` and `variant` mean what they mean in the pooled table; "all" benchmarks is
the mean over benchmarks. Members are all that were inserted, however often.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.analysis.cells import Cell
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.statistics.groups import (
    ANY,
    groups_of_lacking_benchmarks,
    measurable_groups,
)
from contamination.analysis.statistics.seed_pooling import (
    Replicates,
    overlap_of_sides,
    pooled_estimate,
)
from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Resample, draw_named_counts
from contamination.core.statistics.estimates import (
    ALL_BENCHMARKS,
    Estimate,
    confidence_intervals,
    estimate_metrics,
    mean_estimate,
)
from contamination.core.statistics.metrics import tpr_at_fpr

Floats = NDArray[np.float64]
T = TypeVar("T")
_cached_draw_counts = lru_cache(maxsize=64)(draw_named_counts)

MOST_DRAWS = 200
"""Resamples of a band: fewer than a table's, since it is read by eye."""
RATES = np.geomspace(1e-3, 1, 31)
"""The false-positive rates of a ROC curve."""
EDGES = np.linspace(-4, 6, 21)
"""A histogram's bins, in standard deviations of the non-members; the outer ones are open."""
Z = 1.96
"""Of the histograms' 95% Wilson intervals."""


class CurveKey(NamedTuple):
    """The condition, model and method of a curve."""

    condition: str
    checkpoint: str
    benchmark: str
    method: str
    variant: str


class ScoreSample(NamedTuple):
    """One cell's scores of members and non-members, of one benchmark."""

    members: Floats
    nonmembers: Floats
    names: tuple[tuple[str, ...], tuple[str, ...]]
    """The ids of the members and of the non-members, which are drawn by them."""
    seed: int
    """The cell's."""

    @property
    def is_measurable(self) -> bool:
        """Whether there are members and non-members."""
        return len(self.members) > 0 and len(self.nonmembers) > 0


ScoreSamples = Mapping[CurveKey, Sequence[ScoreSample]]
"""Curve → its samples, one per cell."""


def score_samples(cells: Sequence[Cell]) -> dict[CurveKey, list[ScoreSample]]:
    """Returns the scores behind the curves: one sample per cell (a seed) of each condition.

    It has those of a benchmark that lacks members or non-members too; `measurable_samples` leaves
    them out.
    """
    samples_by_key: dict[CurveKey, list[ScoreSample]] = defaultdict(list)
    for cell in cells:
        all_groups = [
            *measurable_groups(cell.examples),
            *groups_of_lacking_benchmarks(cell.examples),
        ]
        ids = cell.examples["example_id"].to_numpy()
        compared = [
            (group, (tuple(ids[group.members].tolist()), tuple(ids[group.nonmembers].tolist())))
            for group in all_groups
            if group.occurrences == ANY
        ]
        for checkpoint, table in cell.scores.items():
            for method, variant in table.columns:
                scores = table[method, variant].to_numpy(np.float64)
                for group, names in compared:
                    key = CurveKey(cell.condition, checkpoint, group.benchmark, method, variant)
                    sides = scores[group.members], scores[group.nonmembers]
                    samples_by_key[key].append(ScoreSample(*sides, names, cell.seed))
    return samples_by_key


def roc_table(samples_by_key: ScoreSamples, config: AnalysisConfig, seed: int) -> pd.DataFrame:
    """Returns one row per point: the curve's key, fpr, tpr, ci_low, ci_high.

    The band resamples seeds (where there are several), then examples within. Rates that the
    non-members are too few for (`core.statistics.metrics.fewest_examples`) have no point.
    """
    draws = min(config.draws, MOST_DRAWS)
    measurable = measurable_samples(samples_by_key)
    keys_by_draws = sorted(measurable, key=lambda key: (key.condition, key.benchmark))
    estimates = {
        key: _roc_estimates_over_seeds(
            measurable[key], draws, derive_seed(seed, "curves", key.benchmark)
        )
        for key in keys_by_draws  # so that each group's draws are made once
    }
    curves = {key: estimates[key] for key in measurable}
    for key, parts in _parts_of_mean_curves(curves, samples_by_key).items():
        curves[key] = [mean_estimate(of_rate) for of_rate in zip(*parts, strict=True)]
    rows = []
    for key, line in curves.items():
        low_and_high = confidence_intervals(line, config.confidence)
        for rate, tpr, low, high in zip(RATES, line, *low_and_high, strict=True):
            if not tpr.needs:
                rows.append((*key, rate, tpr.value, float(low), float(high)))
    return pd.DataFrame(rows, columns=[*CurveKey._fields, "fpr", "tpr", "ci_low", "ci_high"])


def _roc_estimates_over_seeds(
    sample_by_seed: Sequence[ScoreSample], draws: int, seed: int
) -> list[Estimate]:
    """TPR at each of `RATES`, the mean over seeds."""
    metrics, by_cell = [tpr_at_fpr(float(fpr)) for fpr in RATES], []
    for sample in sample_by_seed:
        drawn = Resample(*(_cached_draw_counts(side, draws, seed) for side in sample.names))
        by_cell.append(estimate_metrics(sample.members, sample.nonmembers, drawn, metrics).values())
    replicates = Replicates(
        tuple(sample.seed for sample in sample_by_seed),
        overlap_of_sides([sample.names for sample in sample_by_seed]),
    )
    return [pooled_estimate(of_rate, replicates, seed) for of_rate in zip(*by_cell, strict=True)]


def histogram_table(samples_by_key: ScoreSamples) -> pd.DataFrame:
    """Returns one row per bin and side: the curve's key, side, centre, share, ci_low, ci_high.

    Scores are standardised by the mean and deviation of the benchmark's non-members, so that
    benchmarks and methods share one axis; seeds are put together, and "all" is the mean of the
    benchmarks' shares.
    """
    counts_by_key = {
        key: [sum(map(_bin_counts, sample_by_seed))]
        for key, sample_by_seed in measurable_samples(samples_by_key).items()
    }
    for key, parts in _parts_of_mean_curves(counts_by_key, samples_by_key).items():
        counts_by_key[key] = [benchmark_counts for (benchmark_counts,) in parts]
    rows = [
        row
        for key, parts in counts_by_key.items()
        for row in _iter_histogram_rows(key, np.stack(parts))
    ]
    column_names = [*CurveKey._fields, "side", "centre", "share", "ci_low", "ci_high"]
    return pd.DataFrame(rows, columns=column_names)


def _bin_counts(sample: ScoreSample) -> Floats:
    """Returns the numbers of members and of non-members per bin (2 × bins)."""
    centre, spread = sample.nonmembers.mean(), sample.nonmembers.std() or 1.0
    standardised_scores = [
        (scores - centre) / spread for scores in (sample.members, sample.nonmembers)
    ]
    inside = [np.clip(scores, EDGES[0], EDGES[-1]) for scores in standardised_scores]
    return np.array([np.histogram(scores, EDGES)[0] for scores in inside], np.float64)


def _iter_histogram_rows(key: CurveKey, counts: Floats) -> Iterator[tuple[object, ...]]:
    """Yields the rows of one curve from its counts (benchmarks × 2 × bins), weighted equally.

    The mean of K shares of n_k scores is at least as certain as one of K² / Σ 1/n_k scores: equal
    where the shares are equal.
    """
    centres = (EDGES[1:] + EDGES[:-1]) / 2
    sizes = counts.sum(axis=2)
    shares = (counts / sizes[..., None]).mean(axis=0)
    for side, share, sized in zip(("members", "non-members"), shares, sizes.T, strict=True):
        n = len(sized) ** 2 / (1 / sized).sum()
        middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
        half = Z * np.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
        low, high = np.maximum(middle - half, 0), middle + half
        for numbers in zip(centres, share, low, high, strict=True):
            yield (*key, side, *map(float, numbers))


def measurable_samples(samples_by_key: ScoreSamples) -> dict[CurveKey, list[ScoreSample]]:
    """Returns the samples with members and non-members."""
    measurable = {
        key: [cell for cell in cells if cell.is_measurable] for key, cells in samples_by_key.items()
    }
    return {key: cells for key, cells in measurable.items() if cells}


def _parts_of_mean_curves(
    parts: Mapping[CurveKey, T], samples_by_key: ScoreSamples
) -> dict[CurveKey, list[T]]:
    """The parts of "all", those of every benchmark; none where a benchmark was not measured."""
    means: dict[CurveKey, list[T]] = defaultdict(list)
    for key, part in parts.items():
        means[key._replace(benchmark=ALL_BENCHMARKS)].append(part)
    for key, cells in samples_by_key.items():
        if not all(cell.is_measurable for cell in cells):
            means.pop(key._replace(benchmark=ALL_BENCHMARKS), None)
    return means
