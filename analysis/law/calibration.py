"""Does calibration by references remove σ_between, and nothing more?

A score is calibrated by subtracting the mean score of R trainings that did not contain the example.
If that removes the examples' own levels and nothing more, the shift stays δ and the variance falls
from σ²_between + σ²_within to σ²_within (1 + 1/R), so that

    d′ calibrated = d′ raw / √(σ²_within (1 + 1/R)),

with d′ = √2 Φ⁻¹(AUROC) in units of the raw non-members' spread. σ²_within is taken from the *other*
conditions of the benchmark and method, so that the prediction reads nothing of what it predicts but
the raw AUROC. The reference cells are those of other seeds, one of each pair of swapped cells: the
number of references does not tell who is a member.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.analysis.cells import Cell
from contamination.analysis.law.detectability import (
    auroc_of_shift,
    calibrated_variance,
    shift_of_auroc,
)
from contamination.analysis.law.measurements import FEWEST, wide_scores
from contamination.analysis.statistics.tidy_tables import swapped_pairs

Floats = NDArray[np.float64]
Groups = dict[tuple[str, str], pd.DataFrame]
DRAWS = 200
COLUMNS = (
    *("method", "occurrences", "cells", "references", "raw", "predicted", "calibrated"),
    *("difference", "low", "high"),
)


@dataclass(frozen=True)
class CalibratedSample:
    """The scores of one cell, benchmark and method at one number of copies, and of non-members.

    Each table has the columns `raw` and `calibrated`, and the examples as its index.
    """

    condition: str
    cell: str
    benchmark: str
    method: str
    occurrences: int
    references: int
    members: pd.DataFrame
    nonmembers: pd.DataFrame


def calibrated_samples(cells: Sequence[Cell]) -> list[CalibratedSample]:
    """Returns the samples of all cells that have references: pairs of swapped cells of other seeds.

    Empty if no condition has such pairs for two seeds.
    """
    by_recipe: dict[str, list[tuple[Cell, Cell]]] = {}
    for pair in swapped_pairs(cells):
        by_recipe.setdefault(pair[0].recipe, []).append(pair)
    samples: list[CalibratedSample] = []
    for pairs in by_recipe.values():
        if len(pairs) > 1:
            wide = [[wide_scores(cell) for cell in pair] for pair in pairs]
            for number, pair in enumerate(pairs):
                others = [tables for k, tables in enumerate(wide) if k != number]
                for cell, tables in zip(pair, wide[number], strict=True):
                    samples += _samples_of_cell(cell, tables, others)
    return samples


def _samples_of_cell(
    cell: Cell, tables: Groups, others: Sequence[Sequence[Groups]]
) -> Iterator[CalibratedSample]:
    for (benchmark, method), table in tables.items():
        levels = [_level_without(pair, (benchmark, method)) for pair in others]
        level = pd.concat(levels, axis=1).reindex(table.index).mean(axis=1, skipna=False)
        scores = pd.DataFrame(
            {"raw": table["standard"], "calibrated": table["standard"] - level}
        ).dropna()
        member, copies = (table.loc[scores.index, name] for name in ("member", "occurrences"))
        for n in sorted({*copies[member]} - {0}):
            chosen = scores[member & (copies == n)]
            if len(chosen) >= FEWEST:
                yield CalibratedSample(
                    cell.condition.replace("-swapped", ""), cell.name, benchmark, method, int(n),
                    len(others), chosen, scores[~member],
                )  # fmt: skip


def _level_without(pair: Sequence[Groups], key: tuple[str, str]) -> pd.Series[float]:
    """Returns each example's score by the training of a pair that did not contain it."""
    parts = [tables[key].loc[~tables[key]["member"], "standard"] for tables in pair]
    joined = pd.concat(parts)
    return joined[~joined.index.duplicated()]


def compare_calibration(
    samples: Sequence[CalibratedSample], within: pd.DataFrame, confidence: float, seed: int
) -> pd.DataFrame:
    """Returns the raw AUROC, the calibrated one, and what the law predicts of it from the raw one.

    One row per method and number of copies, and one per method over all (`occurrences` 0), means
    over cells and benchmarks. `difference` is calibrated − predicted; its interval resamples
    conditions and, in all cells together, examples.

    Args:
        samples: from `calibrated_samples`.
        within: from `measurements.within_variances`.
        confidence: of the intervals.
        seed: of the draws.
    """
    variances = [_variance_of_others(s, within) for s in samples]
    names = sorted({n for s in samples for side in (s.members, s.nonmembers) for n in side.index})
    position_of = {name: position for position, name in enumerate(names)}
    usable = [
        _PairedWins.of(s, v, position_of)
        for s, v in zip(samples, variances, strict=True)
        if np.isfinite(v)
    ]
    rng = np.random.default_rng(seed)
    conditions = sorted({s.sample.condition for s in usable})
    drawn = [_values(usable, np.ones(len(names)), dict.fromkeys(conditions, 1.0))]
    for _ in range(DRAWS if usable else 0):
        times = rng.multinomial(len(conditions), [1 / len(conditions)] * len(conditions))
        weights = dict(zip(conditions, times.astype(float).tolist(), strict=True))
        drawn.append(_values(usable, rng.poisson(1.0, len(names)).astype(float), weights))
    rows = []
    keys = [(s.sample.method, s.sample.occurrences) for s in usable]
    groups = sorted({*keys} | {(method, 0) for method, _ in keys})
    for method, n in groups:
        chosen = [i for i, key in enumerate(keys) if key[0] == method and n in (0, key[1])]
        means = np.array([_weighted_mean(values, weights, chosen) for values, weights in drawn])
        raw, predicted, calibrated = means[0]
        differences = means[1:, 2] - means[1:, 1]
        differences = differences[np.isfinite(differences)]
        tails = [(1 - confidence) / 2, (1 + confidence) / 2]
        low, high = np.quantile(differences, tails)
        rows.append(
            (
                *(method, n, len({usable[i].sample.cell for i in chosen})),
                *(usable[chosen[0]].sample.references, raw, predicted, calibrated),
                *(calibrated - predicted, float(low), float(high)),
            )
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _variance_of_others(sample: CalibratedSample, within: pd.DataFrame) -> float:
    """Returns σ²_within of the benchmark and method in the other conditions; NaN without any."""
    same = (within["benchmark"] == sample.benchmark) & (within["method"] == sample.method)
    other = within[same & (within["condition"] != sample.condition) & ~within["upper_bound"]]
    return float(other["within"].mean()) if len(other) else np.nan


@dataclass(frozen=True)
class _PairedWins:
    """A sample as a table of which member is above which non-member: AUROCs of draws are sums.

    Attributes:
        sample: the sample.
        within: σ²_within for its prediction.
        members: the members' positions among all examples' names, shape (members,).
        nonmembers: the non-members', shape (non-members,).
        wins: raw and calibrated, 1 if the member is above, ½ if tied: (2, members, non-members).
    """

    sample: CalibratedSample
    within: float
    members: NDArray[np.intp]
    nonmembers: NDArray[np.intp]
    wins: Floats

    @classmethod
    def of(
        cls, sample: CalibratedSample, within: float, position_of: Mapping[str, int]
    ) -> _PairedWins:
        members, nonmembers = sample.members, sample.nonmembers
        differences = [
            np.subtract.outer(members[c].to_numpy(float), nonmembers[c].to_numpy(float))
            for c in ("raw", "calibrated")
        ]
        wins: Floats = (1 + np.sign(np.stack(differences))) / 2
        positions = [np.array([position_of[n] for n in s.index]) for s in (members, nonmembers)]
        return cls(sample, within, positions[0], positions[1], wins)


def _values(
    usable: Sequence[_PairedWins],
    counts: Floats,
    condition_weights: Mapping[str, float],
) -> tuple[Floats, Floats]:
    """Returns raw, predicted and calibrated AUROCs (samples, 3), and the samples' weights.

    Args:
        usable: the samples.
        counts: how often each example is drawn, in all cells alike (Poisson numbers are a bootstrap
            whose size is not fixed): (examples,).
        condition_weights: how often each condition is drawn.
    """
    weights = np.array([condition_weights[s.sample.condition] for s in usable])
    values = np.full((len(usable), 3), np.nan)
    for i, paired in enumerate(usable):
        in_sample, out = counts[paired.members], counts[paired.nonmembers]
        if not weights[i] or not in_sample.sum() or not out.sum():
            weights[i] = 0
            continue
        raw, calibrated = (in_sample @ paired.wins @ out) / (in_sample.sum() * out.sum())
        variance = calibrated_variance(paired.within, paired.sample.references)
        predicted = auroc_of_shift(shift_of_auroc(raw), variance, variance).item()
        values[i] = raw, predicted, calibrated
    return values, weights


def _weighted_mean(values: Floats, weights: Floats, chosen: Sequence[int]) -> Floats:
    weight = weights[chosen]
    if not weight.sum():
        return np.full(3, np.nan)
    mean: Floats = (np.where(weight[:, None] > 0, values[chosen], 0.0) * weight[:, None]).sum(
        axis=0
    ) / weight.sum()
    return mean
