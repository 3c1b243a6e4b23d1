"""AUROC without the flagged examples: those that share text with a corpus apart from their copies.

A flagged non-member may have been seen, and a flagged member more often than its occurrences say
(`contamination_table`). A benchmark without members or non-members left has rows without a value,
and so has the mean over benchmarks. A condition without a flagged example has no row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from contamination.analysis.cells import CONTAMINATED, Cell
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.methods import method_label, methods_of
from contamination.analysis.statistics import results_table, seed_pooling
from contamination.analysis.statistics.groups import ANY, groups_of_lacking_benchmarks
from contamination.analysis.statistics.results_table import Estimates
from contamination.core.statistics.estimates import ALL_BENCHMARKS, estimate_without_value
from contamination.core.statistics.metrics import AUROC
from contamination.detection.flags import describe_flags
from contamination.injection.contamination_table import (
    CONTAMINATION_COLUMN,
    describe_flagged_counts,
)

COUNTS = ("flagged_members", "flagged_nonmembers")
COLUMNS = (*seed_pooling.COLUMNS[1:], *COUNTS)
FLAG_COLUMNS = ("condition", "cell", "checkpoint", "method", "variant", "flag", "texts", "of")


def unflagged_rows(
    cells: Sequence[Cell], config: AnalysisConfig, seed: int
) -> Iterator[dict[str, Any]]:
    """The rows of one condition."""
    if not any((cell.examples[CONTAMINATION_COLUMN] != "").any() for cell in cells):
        return
    without_flagged, only_auroc = (
        [_without_flagged(cell) for cell in cells],
        replace(config, fpr=[], tpr=[]),
    )
    cell_estimates = [
        results_table.cell_estimates(cell, None, only_auroc, seed) for cell in without_flagged
    ]
    estimate_pairs = zip(without_flagged, cell_estimates, strict=True)
    cell_estimates = [
        _with_lacking_benchmarks(cell, estimates, config.draws)
        for cell, estimates in estimate_pairs
    ]
    replicates = seed_pooling.Replicates.of(without_flagged)
    pooled = seed_pooling.pool_estimates(cell_estimates, replicates, seed)
    counts = _flagged_counts_by_benchmark(cells)
    for row in seed_pooling.condition_rows(
        without_flagged, cell_estimates, pooled, config.confidence
    ):
        if row["occurrences"] == ANY:
            yield {**row, **dict(zip(COUNTS, counts.get(row["benchmark"], (0, 0)), strict=True))}


def unflagged_sentences(
    pooled: pd.DataFrame, unflagged: pd.DataFrame, condition: str
) -> Sequence[str]:
    """How many examples are flagged, and the best method's AUROC with and without them.

    Args:
        pooled: the pooled rows of all examples.
        unflagged: a table of COLUMNS.
        condition: which one; without flagged examples there is no sentence.
    """
    without_flagged = _default_auroc_rows(unflagged, condition)
    if without_flagged.empty:
        return []
    counts = {
        str(row.benchmark): {"members": row.flagged_members, "nonmembers": row.flagged_nonmembers}
        for row in unflagged[unflagged["condition"] == condition].itertuples()
        if row.benchmark != ALL_BENCHMARKS and row.flagged_members + row.flagged_nonmembers
    }
    flagged = describe_flagged_counts(counts)
    head = f"Examples that share text with a corpus beside their copies: {flagged}."
    all_examples = _default_auroc_rows(pooled, condition)
    if all_examples.empty:
        return [f"{head} No AUROC is known with or without them."]
    best = all_examples.sort_values("value", ascending=False, kind="stable").iloc[0]
    is_best = (without_flagged["method"] == best["method"]) & (
        without_flagged["variant"] == best["variant"]
    )
    name = method_label(best["method"], best["variant"], methods_of(all_examples))
    auroc_texts = [_describe_auroc(row) for row in (without_flagged[is_best].iloc[0], best)]
    choice = f" (intervals corrected for the choice among {len(all_examples)} methods)" * (
        len(all_examples) > 1
    )
    return [
        f"{head} Without them the AUROC of {name} is {auroc_texts[0]}, "
        f"with them {auroc_texts[1]}{choice}."
    ]


def _default_auroc_rows(rows: pd.DataFrame, condition: str) -> pd.DataFrame:
    """The default variants' AUROC over all members, mean over benchmarks."""
    return rows[
        (rows["condition"] == condition)
        & (rows["checkpoint"] == CONTAMINATED)
        & (rows["metric"] == AUROC.name)
        & (rows["benchmark"] == ALL_BENCHMARKS)
        & (rows["occurrences"] == ANY)
        & rows["default"]
    ]


def _describe_auroc(row: pd.Series[Any]) -> str:
    """Returns the AUROC with the joint interval, since the method with the highest was chosen."""
    if row["needs"]:
        return f"not known (it needs {row['needs']})"
    return f"{row['value']:.2f} [{row['joint_low']:.2f}, {row['joint_high']:.2f}]"


def _without_flagged(cell: Cell) -> Cell:
    """The cell with its flagged examples on neither side; its members count as one dose.

    They stay in the table as members that were never inserted: a benchmark without any other
    example is then known to be lacking.
    """
    flagged = cell.examples[CONTAMINATION_COLUMN] != ""
    examples = cell.examples.assign(
        member=cell.examples["member"].astype(bool) | flagged,
        occurrences=cell.examples["occurrences"].clip(upper=1).where(~flagged, 0),
    )
    return replace(cell, examples=examples)


def _with_lacking_benchmarks(cell: Cell, estimates: Estimates, draws: int) -> Estimates:
    """With the benchmarks that lack members or non-members, whose AUROC is not known."""
    short = [
        group for group in groups_of_lacking_benchmarks(cell.examples) if group.occurrences == ANY
    ]
    return {
        measure: {**by_benchmark}
        | {
            group.benchmark: estimate_without_value(group.sizes, draws, AUROC.needs(*group.sizes))
            for group in short
        }
        for measure, by_benchmark in estimates.items()
    }


def _flagged_counts_by_benchmark(cells: Sequence[Cell]) -> Mapping[str, tuple[int, int]]:
    """By benchmark, and over ALL, the different flagged members and non-members of the cells."""
    examples = pd.concat(
        [cell.examples[cell.examples[CONTAMINATION_COLUMN] != ""] for cell in cells]
    )
    flagged = examples.drop_duplicates(["benchmark", "example_id", "member"])
    members = flagged["member"].astype(bool)
    counts = {
        str(name): (int(is_member.sum()), int((~is_member).sum()))
        for name, is_member in members.groupby(flagged["benchmark"])
    }
    return {**counts, ALL_BENCHMARKS: (int(members.sum()), int((~members).sum()))}


def flags_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """Returns one row per cell, checkpoint, method and flag."""
    flag_tables = [
        counts.assign(condition=cell.condition, cell=cell.name, checkpoint=checkpoint)
        for cell in cells
        for checkpoint, counts in cell.flags.items()
    ]
    return pd.concat(flag_tables, ignore_index=True)[list(FLAG_COLUMNS)]


def flag_notes(flags: pd.DataFrame, condition: str) -> Sequence[str]:
    """Returns a line per flag of the condition's contaminated models, counted over their seeds."""
    rows = flags[(flags["condition"] == condition) & (flags["checkpoint"] == CONTAMINATED)]
    sizes = rows.groupby("cell")["of"].first()
    texts = rows.groupby(["method", "variant", "flag"])["texts"].sum()
    return describe_flags(texts.reset_index().assign(of=sizes.sum()))
