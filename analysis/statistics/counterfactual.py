"""Memorisation of single examples: the score with the example in the corpus and without it.

A cell and its swapped replicate (`injection.swap_members`) share the pool, the seed and all else:
who is a member in one is a non-member in the other, so that each example is its own control. The
columns are in docs/report-tables.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from contamination.analysis.cells import CONTAMINATED, Cell

log = logging.getLogger(__name__)

COLUMNS = (
    *("condition", "seed", "example_id", "benchmark", "method", "variant", "occurrences"),
    "difference",
)


def replicates_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """Returns one row per example, method and pair of swapped cells; empty without a pair."""
    parts = [_example_differences(*pair) for pair in swapped_pairs(cells)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(COLUMNS))


def swapped_pairs(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Cell]]:
    """Each cell with its swapped replicate: same recipe, seed and pool of examples."""
    swapped = {(cell.recipe, cell.seed): cell for cell in cells if cell.swapped}
    for cell in cells:
        other = swapped.get((cell.recipe, cell.seed))
        if cell.swapped or other is None:
            continue
        if set(cell.examples["example_id"]) == set(other.examples["example_id"]):
            yield cell, other
        else:
            log.warning("%s and %s: not the same examples, so no pair.", cell.name, other.name)


def _example_differences(cell: Cell, other: Cell) -> pd.DataFrame:
    first, second = _standardised_scores(cell), _standardised_scores(other)
    key = ["example_id", "benchmark", "method", "variant"]
    pairs = first.merge(second, on=key, suffixes=("", "_other"))
    pairs = pairs[pairs["member"] != pairs["member_other"]]
    sign = np.where(pairs["member"], 1.0, -1.0)
    pairs["difference"] = sign * (pairs["standard"] - pairs["standard_other"])
    pairs["occurrences"] = pairs[["occurrences", "occurrences_other"]].max(axis=1)
    pairs = pairs[pairs["occurrences"] > 0]  # 0 may be drawn: then it is out in both
    return pairs.assign(condition=cell.condition, seed=cell.seed)[list(COLUMNS)]


def _standardised_scores(cell: Cell) -> pd.DataFrame:
    """Returns one row per example and method; scores are in the non-members' units."""
    examples = cell.examples[["example_id", "benchmark", "member", "occurrences"]]
    scores = cell.scores[CONTAMINATED]
    long = scores.reset_index(drop=True).set_axis(scores.columns.to_flat_index(), axis=1)
    parts = []
    for method, variant in long.columns:
        rows = examples.assign(method=method, variant=variant, score=long[(method, variant)])
        outside = rows[~rows["member"]].groupby("benchmark")["score"]
        level = rows["benchmark"].map(outside.mean())
        spread = rows["benchmark"].map(outside.std(ddof=1))
        parts.append(rows.assign(standard=(rows["score"] - level) / spread).drop(columns="score"))
    return pd.concat(parts, ignore_index=True)
