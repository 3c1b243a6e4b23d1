"""Cells that differ in their seed alone, pooled into one condition (docs/report-tables.md)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contamination.analysis.cells import CONTAMINATED, Cell, cell_sort_key
from contamination.analysis.factors import BY_COLUMN, factor_values
from contamination.analysis.methods import default_variants
from contamination.analysis.statistics.results import Estimates, Measure, estimate_rows
from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import (
    Estimate,
    first_needs_text,
    joint_intervals,
    mean_steps,
    mean_trials,
)
from contamination.core.statistics.metrics import AUROC

_FACTS = (
    *("learning_rate", "budget_tokens", "model"),
    *("example_max_tokens", "last_tokens", "parameters", "mean_occurrences"),
    *("stage", "scope", "epochs"),
)
"""Facts of the cells, in the order of their columns; further factors follow."""
FACTS = (*_FACTS, *(column for column in BY_COLUMN if column not in _FACTS))
COLUMNS = (
    *("experiment", "condition", "checkpoint", "benchmark", "method", "variant", "occurrences"),
    *("default", "n_members", "n_nonmembers", "n_seeds", "metric", "value", "ci_low", "ci_high"),
    *("joint_low", "joint_high", "needs", "p_control"),
    *FACTS,
)


def cells_by_condition(cells: Sequence[Cell]) -> Mapping[str, list[Cell]]:
    """The cells of each condition in order of seed, so that conditions pair seed with seed."""
    grouped_cells: dict[str, list[Cell]] = defaultdict(list)
    for cell in sorted(cells, key=cell_sort_key):
        grouped_cells[cell.condition].append(cell)
    return grouped_cells


def pool_estimates(
    cell_estimates: Sequence[Estimates], example_digests: Sequence[str], seed: int
) -> Estimates:
    """The mean over cells, measure by measure, with hierarchical draws.

    Args:
        cell_estimates: the estimates of each cell of a condition, in order of their seeds.
        example_digests: each cell's `examples_digest`.
        seed: draws which cells make up a draw: the same for every measure and every condition, so
            that their differences stay paired.
    """
    if len(cell_estimates) == 1:
        return cell_estimates[0]
    gathered: dict[Measure, dict[str, dict[int, Estimate]]] = defaultdict(lambda: defaultdict(dict))
    for index, estimates in enumerate(cell_estimates):
        for measure, by_benchmark in estimates.items():
            for benchmark, value in by_benchmark.items():
                gathered[measure][benchmark][index] = value
    return {
        measure: {
            name: pooled_estimate(
                list(by_cell.values()), seed, [example_digests[index] for index in by_cell]
            )
            for name, by_cell in by_benchmark.items()
        }
        for measure, by_benchmark in gathered.items()
    }


def pooled_estimate(
    values: Sequence[Estimate], seed: int, examples: Sequence[object] = ()
) -> Estimate:
    """Returns the mean of the cells' values; its draws resample cells, then examples."""
    draws = np.stack([value.draws for value in values])
    cells_by_first = Counter(_first_cells_with_same_examples(examples, len(values)))
    return Estimate(
        min(value.n_members for value in values),
        min(value.n_nonmembers for value in values),
        float(np.mean([value.value for value in values])),
        hierarchical_draws(draws, seed, examples),
        mean_trials([values[first].trials for first in cells_by_first], [*cells_by_first.values()]),
        mean_steps(values),
        first_needs_text(values),
        min(value.smallest_side for value in values),
    )


def hierarchical_draws(draws: Scores, seed: int, examples: Sequence[object] = ()) -> Scores:
    """From each cell's own draws (S×D) the draws of their mean (D).

    Draw d is a mean over S cells drawn with replacement. A cell that was drawn twice counts with
    two resamples of its examples, so each place has its own order of the resamples. Cells of equal
    `examples` (S; none given: all differ) have the same ones in the same resamples. They share the
    order: more of them make the mean over such examples no more certain (Owen 2007).
    """
    cells, size = draws.shape
    if cells == 1:
        only: Scores = draws[0]
        return only
    picked, order = _resampling_plan(_first_cells_with_same_examples(examples, cells), size, seed)
    mean: Scores = draws[picked, order].mean(axis=0)
    return mean


def _first_cells_with_same_examples(example_keys: Sequence[object], cells: int) -> tuple[int, ...]:
    """Returns for each cell the first one with the same examples."""
    cell_keys = example_keys or range(cells)
    return tuple(cell_keys.index(cell_key) for cell_key in cell_keys)


@cache
def _resampling_plan(
    firsts: tuple[int, ...], size: int, seed: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which cell (S×D) and which of its draws (S×D) stand at each place of each draw."""
    n_cells = len(firsts)
    rng = np.random.default_rng(derive_seed(seed, "seeds", n_cells))
    picked_cell = rng.integers(0, n_cells, (n_cells, size))
    orders = np.array([rng.permutation(size) for _ in range(n_cells)])
    first_cell = np.array(firsts)
    has_shared_examples = np.bincount(first_cell, minlength=n_cells)[first_cell] > 1
    order_of_cell = np.where(
        has_shared_examples[picked_cell], first_cell[picked_cell], np.arange(n_cells)[:, None]
    )
    return picked_cell, orders[order_of_cell, np.arange(size)]


def condition_rows(
    cells: Sequence[Cell],
    cell_estimates: Sequence[Estimates],
    pooled: Estimates,
    confidence: float,
) -> Iterator[dict[str, Any]]:
    """Yields one row per estimate of one condition.

    Args:
        cells: its cells.
        cell_estimates: their estimates, to count who has measured what.
        pooled: `pool_estimates` of these.
        confidence: coverage of the intervals.
    """
    names = [name for name in ("condition", *FACTS) if name not in BY_COLUMN]
    facts = {name: getattr(cells[0], name) for name in names} | factor_values(cells[0])
    joint = _joint_intervals(pooled, default_variants(cells), confidence)
    for row in estimate_rows(cells, pooled, confidence):
        measure = Measure(*(row[name] for name in Measure._fields))
        seeds = sum(row["benchmark"] in estimates.get(measure, {}) for estimates in cell_estimates)
        low, high = joint.get((measure, row["benchmark"]), (np.nan, np.nan))
        yield {**facts, "n_seeds": seeds, **row, "joint_low": low, "joint_high": high}


def _joint_intervals(
    pooled: Estimates, defaults: Mapping[str, str], confidence: float
) -> dict[tuple[Measure, str], tuple[float, float]]:
    """Returns the ends of the joint intervals, for each AUROC of a default variant."""
    families: dict[tuple[str, str], dict[Measure, Estimate]] = defaultdict(dict)
    for measure, by_benchmark in pooled.items():
        is_default = defaults.get(measure.method) == measure.variant
        if is_default and (measure.checkpoint, measure.metric) == (CONTAMINATED, AUROC.name):
            for benchmark, estimate in by_benchmark.items():
                families[measure.occurrences, benchmark][measure] = estimate
    ends = {}
    for (_, benchmark), family in families.items():
        interval_ends = joint_intervals([*family.values()], confidence)
        for measure, low, high in zip(family, *interval_ends, strict=True):
            ends[measure, benchmark] = float(low), float(high)
    return ends
