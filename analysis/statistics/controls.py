"""The controls of every figure: the clean checkpoint and the blind baseline.

Neither can know a member, so the AUROC of each is 0.5 but for chance, in every benchmark and by
every method. Membership was drawn at random, example by example, and so were the occurrences. So
what chance does is known: the roles of a benchmark's examples (inserted, never inserted,
non-member) are permuted RELABELINGS times, the same for all methods (the blind baseline brings its
own shuffled labels, `results.BlindBaselines`). The permutations are of the texts of all cells
together (`statistics.shared_permutations`), so that relabelled cells share as many members as the
cells do.

Each AUROC's distance from 0.5, in standard deviations of its relabelings, is compared with the
largest distance that a relabeling has anywhere in the report: over benchmarks, their mean, methods
and conditions (single-step max-T, Westfall and Young 1993). A control is off where p ≤ LEVEL: in 5%
of sound reports, however many benchmarks there are and however alike the methods are. Errors of
opposite signs do not cancel, and a small one that all benchmarks share shows in their mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.analysis.cells import CLEAN, Cell
from contamination.analysis.statistics.groups import ANY, measurable_groups
from contamination.analysis.statistics.shared_permutations import (
    ExampleIds,
    ids_by_benchmark,
    shared_permutations,
)
from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.statistics.metrics import AUROC
from contamination.detection.baselines.blind import BLIND, BlindBaseline, text_difference_warning

RELABELINGS = 999
LEVEL = 0.05
TINY = 1e-9
CHUNK = 100
"""Relabelings at a time: those of 20,000 examples are 16 MB."""


class ControlKey(NamedTuple):
    """A tested AUROC of a control: on one benchmark, or the mean over all of them."""

    method: str
    variant: str
    benchmark: str


ControlAurocs = Mapping[ControlKey, Scores]
"""Key → AUROCs: first with the actual labels, then with each relabelling (1 + RELABELINGS)."""


def control_aurocs(
    cell: Cell, blind: BlindBaseline, seed: int, ids: Mapping[str, ExampleIds] | None = None
) -> ControlAurocs:
    """The AUROCs of a cell's clean model and of its blind baseline, also with relabelled examples.

    Args:
        cell: with the scores of its clean model; a benchmark without members or non-members is
            left out.
        blind: the cell's baseline; its missing benchmarks are left out.
        seed: draws the labels.
        ids: `ids_by_benchmark` of all cells that are compared or averaged; None: of this one.
    """
    ids = ids_by_benchmark([cell]) if ids is None else ids
    aurocs_by_key: dict[ControlKey, Scores] = {}
    all_members = [group for group in measurable_groups(cell.examples) if group.occurrences == ANY]
    for group in all_members:
        clean = cell.scores.get(CLEAN)
        if clean is not None and clean.shape[1]:
            rows = np.flatnonzero(cell.examples["benchmark"] == group.benchmark)
            label_seed = derive_seed(seed, "relabelings", group.benchmark)
            roles = _iter_relabelled_roles(
                cell.examples.iloc[rows], ids[group.benchmark], label_seed
            )
            aurocs = _relabelled_aurocs(clean.to_numpy(np.float64)[rows], roles)
            for (method, method_variant), aurocs_of_method in zip(
                clean.columns, aurocs, strict=True
            ):
                aurocs_by_key[ControlKey(method, method_variant, group.benchmark)] = (
                    aurocs_of_method
                )
        blind_aurocs = blind.percentiles[group.members].mean(axis=0)
        if not np.isnan(blind_aurocs).any():
            aurocs_by_key[ControlKey(BLIND, "", group.benchmark)] = blind_aurocs
    return {
        **aurocs_by_key,
        **_means_over_benchmarks(aurocs_by_key, set(cell.examples["benchmark"])),
    }


def mean_control_aurocs(aurocs_of_cells: Sequence[ControlAurocs]) -> ControlAurocs:
    """Returns the mean over the cells of a condition that have the key."""
    keys = dict.fromkeys(key for aurocs in aurocs_of_cells for key in aurocs)
    return {
        key: np.mean(
            [aurocs_by_key[key] for aurocs_by_key in aurocs_of_cells if key in aurocs_by_key],
            axis=0,
        )
        for key in keys
    }


class Distances(NamedTuple):
    """Distances of one control's AUROCs from 0.5, in standard deviations over all labellings."""

    by_key: Mapping[ControlKey, float]
    largest: Scores
    """The largest of any key, for the actual labels and then for each relabelling."""


def distances_from_chance(aurocs_by_key: ControlAurocs) -> dict[str, Distances]:
    """Returns those of the clean model (CLEAN) and of the blind baseline (BLIND), where known."""
    by_control: dict[str, dict[ControlKey, Scores]] = {}
    for key, aurocs in aurocs_by_key.items():
        spread = aurocs.std()
        distance = np.abs(aurocs - AUROC.guess) / (spread if spread > TINY else np.inf)
        by_control.setdefault(_control_of_method(key.method), {})[key] = distance
    return {
        control: Distances(
            {key: float(distance[0]) for key, distance in by_key.items()},
            np.max(list(by_key.values()), axis=0),
        )
        for control, by_key in by_control.items()
    }


def with_control_p_values(
    results: pd.DataFrame,
    name_column: str,
    distances_by_name: Mapping[str, Mapping[str, Distances]],
) -> pd.DataFrame:
    """Returns the results with `p_control`, corrected for all keys; NaN without a test.

    Args:
        results: rows of the results of cells or conditions.
        name_column: which of its columns has their names.
        distances_by_name: the distances of each by control.
    """
    p_values: dict[tuple[str, ...], float] = {}
    for control in (CLEAN, BLIND):
        family = {
            name: named_distances[control]
            for name, named_distances in distances_by_name.items()
            if control in named_distances
        }
        if not family:
            continue
        largest = np.max([named_distances.largest for named_distances in family.values()], axis=0)[
            1:
        ]
        for name, named_distances in family.items():
            for key, distance in named_distances.by_key.items():
                reaching = int((largest >= distance - TINY).sum())
                p_values[name, *key] = (1 + reaching) / (1 + len(largest))
    row_names = results[[name_column, *ControlKey._fields]].itertuples(index=False, name=None)
    p_control = pd.Series([p_values.get(name, np.nan) for name in row_names], results.index, float)
    tested = _is_control(results) & (results["needs"] == "")
    return results.assign(p_control=p_control.where(tested))


def mean_control_rows(results: pd.DataFrame) -> pd.DataFrame:
    """AUROC of the clean checkpoint and the blind baseline: all members, mean over benchmarks.

    None where some benchmark lacks members or non-members.
    """
    means = (results["benchmark"] == ALL_BENCHMARKS) & (results["needs"] == "")
    return results[_is_control(results) & means]


def control_rows_with_p_value(results: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows with a p-value, the smallest first."""
    rows = results[results["p_control"].notna()]
    is_mean = rows["benchmark"] == ALL_BENCHMARKS  # last: of one benchmark it is the same
    order = rows.assign(near=-(rows["value"] - AUROC.guess).abs(), is_mean=is_mean)
    return rows.loc[order.sort_values(["p_control", "near", "is_mean"], kind="stable").index]


def off_control_rows(results: pd.DataFrame) -> pd.DataFrame:
    """The rows by which a control is off, the worst first."""
    rows = control_rows_with_p_value(results)
    return rows[rows["p_control"] <= LEVEL]


def group_by_control(results: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """`control_rows_with_p_value` of the clean models (CLEAN) and of the blind baseline (BLIND)."""
    rows = control_rows_with_p_value(results)
    control = rows["method"].map(_control_of_method)
    return {name: rows[control == name] for name in (CLEAN, BLIND) if (control == name).any()}


def control_warning(results: pd.DataFrame) -> str | None:
    """Returns the warning of a figure or report whose control is off, else None."""
    rows_by_control = {
        name: rows
        for name, rows in group_by_control(results).items()
        if len(off_control_rows(rows))
    }
    warnings = []
    if CLEAN in rows_by_control:
        worst = describe_worst(rows_by_control[CLEAN])
        warnings.append(
            f"The clean model's AUROC differs from 0.5 ({worst}): by chance, "
            f"as in {LEVEL:.0%} of sound reports, or because members and non-members differ in "
            "themselves."
        )
    if BLIND in rows_by_control:
        warnings.append(
            text_difference_warning(f"blind AUROC, {describe_worst(rows_by_control[BLIND])}")
        )
    return " ".join(["CONTROL OFF:", *warnings]) if warnings else None


def describe_verdict(rows: pd.DataFrame) -> str:
    """Returns whether a control with these rows is off, and its worst benchmark."""
    if off_control_rows(rows).empty:
        return f"within chance of 0.5 ({describe_worst(rows)})"
    return f"**OFF**, AUROC differs from 0.5 ({describe_worst(rows)})"


def describe_worst(rows: pd.DataFrame) -> str:
    """Returns the worst benchmark, such as "worst benchmark: imdb, loss 0.06 [0.03, 0.09], …".

    Where AUROC is off on average over benchmarks, and in none of them alone, that comes first;
    rows of the mean alone are reported as the mean.
    """
    means = rows["benchmark"] == ALL_BENCHMARKS
    if means.all():  # such as a sweep's rows
        return _describe_row(rows.iloc[0].to_dict(), "mean over benchmarks: ")
    single = _describe_row(rows[~means].iloc[0].to_dict(), "worst benchmark: {benchmark}, ")
    if off_control_rows(rows[~means]).empty and len(off_control_rows(rows[means])):
        mean = _describe_row(rows[means].iloc[0].to_dict(), "mean over benchmarks: ")
        return f"{mean}; {single}"
    return single


def _describe_row(row: dict[Any, Any], where: str) -> str:
    method = "" if row["method"] == BLIND else f"{row['method']} "
    ends = f"[{row['ci_low']:.2f}, {row['ci_high']:.2f}]"
    benchmark = where.format(benchmark=row["benchmark"])
    return f"{benchmark}{method}{row['value']:.2f} {ends}, corrected p = {row['p_control']:.3f}"


def _control_of_method(method: str) -> str:
    return BLIND if method == BLIND else CLEAN


def _is_control(results: pd.DataFrame) -> pd.Series[bool]:
    return (
        (results["metric"] == AUROC.name)
        & (results["checkpoint"] == CLEAN)
        & (results["occurrences"] == ANY)
    )


class Roles(NamedTuple):
    """Who is inserted and who is a non-member (examples of a benchmark × ≤ CHUNK relabelings)."""

    inserted: NDArray[np.bool_]
    nonmember: NDArray[np.bool_]


def _iter_relabelled_roles(examples: pd.DataFrame, ids: ExampleIds, seed: int) -> Iterator[Roles]:
    """The roles of one benchmark's examples, in chunks: first as they are, then permuted.

    Args:
        examples: those of one cell.
        ids: of the examples of all cells (`ids_by_benchmark`).
        seed: draws the permutations of `ids`.
    """
    member = examples["member"].to_numpy(bool)
    roles = Roles(member & (examples["occurrences"].to_numpy() > 0), ~member)
    yield Roles(*(role[:, None] for role in roles))
    rng = np.random.default_rng(seed)
    for start in range(0, RELABELINGS, CHUNK):
        number = min(CHUNK, RELABELINGS - start)
        sources = shared_permutations(examples, ids, number, rng).T
        yield Roles(*(np.ascontiguousarray(role[sources]) for role in roles))


def _relabelled_aurocs(scores: Scores, roles: Iterator[Roles]) -> Scores:
    """AUROCs of scores (examples × methods) by each labelling: methods × (1 + RELABELINGS)."""
    orders = np.argsort(scores, axis=0, kind="stable").T
    ordered = np.take_along_axis(scores.T, orders, axis=1)
    methods = list(zip(ordered, orders, strict=True))
    return np.concatenate(
        [[_aurocs_of_method(*of_method, chunk) for of_method in methods] for chunk in roles], axis=1
    )


def _aurocs_of_method(ordered_scores: Scores, order: NDArray[np.intp], roles: Roles) -> Scores:
    """Of one method's scores, in ascending order: the share of pairs that an inserted one wins."""
    is_inserted, is_nonmember = (role[order] for role in roles)
    lower = np.zeros((len(order) + 1, is_nonmember.shape[1]), np.int64)
    np.cumsum(is_nonmember, axis=0, out=lower[1:])
    below, not_above = (
        np.searchsorted(ordered_scores, ordered_scores, side) for side in ("left", "right")
    )
    twice_won = np.einsum("nd,nd->d", is_inserted, lower[below] + lower[not_above])
    pairs = is_inserted.sum(axis=0) * is_nonmember.sum(axis=0)
    return np.asarray(twice_won / (2 * pairs), np.float64)


def _means_over_benchmarks(aurocs_by_key: ControlAurocs, benchmarks: set[str]) -> ControlAurocs:
    """The mean over benchmarks, by each method that was looked at in all of them."""
    by_method: dict[tuple[str, str], dict[str, Scores]] = {}
    for key, aurocs in aurocs_by_key.items():
        by_method.setdefault(key[:2], {})[key.benchmark] = aurocs
    return {
        ControlKey(*method, ALL_BENCHMARKS): np.mean(list(aurocs.values()), axis=0)
        for method, aurocs in by_method.items()
        if aurocs.keys() == benchmarks
    }
