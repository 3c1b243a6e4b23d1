"""Cells that differ in their seed alone, pooled into one condition (docs/report-tables.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np

from contamination.analysis.cells import CONTAMINATED, Cell, cell_sort_key
from contamination.analysis.factors import BY_COLUMN, factor_values
from contamination.analysis.methods import default_variants
from contamination.analysis.statistics.results_table import Estimates, Measure, estimate_rows
from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Counts, Scores, draw_named_counts
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


@dataclass(frozen=True)
class Replicates:
    """What is needed of S cells that differ in their seed alone, to average what they measured."""

    seeds: tuple[int, ...]
    """The cells' seeds (S)."""
    overlap: Scores
    """How far every two cells repeat each other, from 0 to 1 (`overlap_of_sides`; S×S)."""

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> Replicates:
        """Returns those of the cells of one condition."""
        sides = []
        for cell in cells:
            ids, member = cell.examples["example_id"], cell.examples["member"].astype(bool)
            sides.append((ids[member].tolist(), ids[~member].tolist()))
        return cls(tuple(cell.seed for cell in cells), overlap_of_sides(sides))

    @classmethod
    def independent(cls, number: int) -> Replicates:
        """Returns those of cells without common examples, with seeds from 0."""
        return cls(tuple(range(number)), np.eye(number))

    def select(self, indices: Sequence[int]) -> Replicates:
        """Returns those of some of the cells."""
        return Replicates(
            tuple(self.seeds[i] for i in indices), self.overlap[np.ix_(indices, indices)]
        )


def overlap_of_sides(sides: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Scores:
    """Returns how far every two cells repeat each other (S×S): 1 with the same members and others.

    It is the number of examples on the same side in both, less those on opposite sides, over the
    geometric mean of the cells' numbers. A hard text raises the AUROC where it is a member and
    lowers it where it is not, so that both cancel where the sides were drawn anew.

    Args:
        sides: the ids of each cell's members and of its non-members.
    """
    sets = [(set(members), set(nonmembers)) for members, nonmembers in sides]
    overlap = np.eye(len(sets))
    for (i, first), (j, second) in combinations(enumerate(sets), 2):
        same = sum(len(own & other) for own, other in zip(first, second, strict=True))
        opposite = sum(len(own & other) for own, other in zip(first, second[::-1], strict=True))
        sizes = sum(map(len, first)) * sum(map(len, second))
        overlap[i, j] = overlap[j, i] = max(0, same - opposite) / sizes**0.5
    return overlap


def pool_estimates(
    cell_estimates: Sequence[Estimates], replicates: Replicates, seed: int
) -> Estimates:
    """The mean over cells, measure by measure, with hierarchical draws.

    Args:
        cell_estimates: the estimates of each cell of a condition.
        replicates: the same cells.
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
            name: pooled_estimate([*by_cell.values()], replicates.select([*by_cell]), seed)
            for name, by_cell in by_benchmark.items()
        }
        for measure, by_benchmark in gathered.items()
    }


def pooled_estimate(values: Sequence[Estimate], replicates: Replicates, seed: int) -> Estimate:
    """Returns the mean of the cells' values; its draws resample cells and examples."""
    draws = np.stack([value.draws for value in values])
    return Estimate(
        min(value.n_members for value in values),
        min(value.n_nonmembers for value in values),
        float(np.mean([value.value for value in values])),
        hierarchical_draws(draws, replicates.seeds, seed),
        mean_trials([value.trials for value in values], overlap=replicates.overlap),
        mean_steps(values),
        first_needs_text(values),
        min(value.smallest_side for value in values),
    )


def hierarchical_draws(draws: Scores, seeds: Sequence[int], seed: int) -> Scores:
    """From each cell's own draws (S×D) the draws of their mean (D).

    Draw d is the mean of all cells' draws d, moved by as much as the mean over S cells that are
    drawn with replacement differs from the mean over all. In draw d a text is drawn equally often
    in each cell that has it (`bootstrap.draw_named_counts`). So the first part varies as the mean
    over the cells does, whatever texts they share (Owen 2007). A seed is likewise drawn equally
    often in each condition that has it.

    Args:
        draws: of each cell.
        seeds: the cells' seeds (S).
        seed: draws the cells.
    """
    mean: Scores = draws.mean(axis=0)
    centres = draws.mean(axis=1)
    if len(draws) == 1 or not np.isfinite(centres).all():
        return mean
    counts = _seed_counts(tuple(seeds), len(mean), seed)
    moved: Scores = mean + (counts - 1) @ (centres - centres.mean()) / len(draws)
    return moved


@cache
def _seed_counts(seeds: tuple[int, ...], draws: int, seed: int) -> Counts:
    """How often each draw has each seed (D×S)."""
    names = [str(of_cell) for of_cell in seeds]
    return draw_named_counts(names, draws, derive_seed(seed, "seeds"))


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
