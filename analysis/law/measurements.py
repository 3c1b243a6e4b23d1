"""The shifts and AUROCs of cells: what the law is fitted to, and what it is compared with."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.analysis.cells import Cell, name_apart, open_cell
from contamination.analysis.config import CellPaths
from contamination.analysis.statistics.tidy_tables import (
    example_differences,
    standardised_scores,
    swapped_pairs,
)
from contamination.core.statistics.placements import placements
from contamination.training.trained_model import open_trained

log = logging.getLogger(__name__)
COLUMNS = (
    *("cell", "model", "parameters", "learning_rate", "budget_tokens", "seed", "benchmark"),
    *("method", "occurrences", "recency", "n_members", "n_nonmembers", "shift", "shift_error"),
    *("auroc", "auroc_error", "member_variance", "paired"),
)
"""`cell` names a pair of swapped cells, or a single cell. `recency` is the geometric mean of
1 + T / T₀ over the members, where T is the number of tokens trained on since the last copy."""
FEWEST = 5
"""The fewest members (on each side of a swapped pair) of a row."""
GROUP = ["benchmark", "method", "occurrences", "half"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MeasuredCell:
    """A cell, and when its members were last seen.

    Attributes:
        cell: the cell.
        tokens_since: example → tokens trained on after its last copy; none for non-members.
    """

    cell: Cell
    tokens_since: Mapping[str, float]


def open_measured_cells(paths: Sequence[CellPaths]) -> list[MeasuredCell]:
    """Opens cells with their exposures; in the order of `cells.name_apart`.

    Raises:
        ArtifactError: an artefact can't be used.
        ConfigError: a cell is there twice.
    """
    opened = [(open_cell(p), _tokens_since(p)) for p in paths]
    since = {tuple(sorted(cell.digests.items())): tokens for cell, tokens in opened}
    named = name_apart([cell for cell, _ in opened])
    return [MeasuredCell(cell, since[tuple(sorted(cell.digests.items()))]) for cell in named]


def _tokens_since(paths: CellPaths) -> Mapping[str, float]:
    model = open_trained("cells.model", paths.model)
    tokens = model.metrics.set_index("step")["tokens"]
    last = model.exposures.groupby("example_id")["step"].max()
    return {str(name): float(tokens.max() - tokens[step]) for name, step in last.items()}


def measure_cells(
    cells: Sequence[MeasuredCell], recency_tokens: float, *, halves: bool
) -> pd.DataFrame:
    """Returns one row per cell (or swapped pair), benchmark, method and number of copies.

    Args:
        cells: the cells.
        recency_tokens: T₀ of `recency`.
        halves: whether to split each row's members by the tokens since their last copy, at the
            median, so that the effect of recency can be told from that of copies.
    """
    by_name = {c.cell.name: c for c in cells}
    pairs = list(swapped_pairs([c.cell for c in cells]))
    in_pairs = {cell.name for pair in pairs for cell in pair}
    units = [[by_name[cell.name] for cell in pair] for pair in pairs]
    units += [[c] for c in cells if c.cell.name not in in_pairs]
    rows = [row for unit in units for row in _measure_unit(unit, recency_tokens, halves)]
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.sort_values(["cell", "benchmark", "method", "occurrences", "recency"]).reset_index(
        drop=True
    )


def _measure_unit(
    unit: Sequence[MeasuredCell], recency_tokens: float, halves: bool
) -> Iterator[dict[str, Any]]:
    """Yields the rows of one cell, or of two that are swapped replicates of each other."""
    tables = [_long_table(c, recency_tokens) for c in unit]
    member_tables = [t[t["member"] & (t["occurrences"] > 0)] for t in tables]
    differences = example_differences(unit[0].cell, unit[1].cell) if len(unit) == 2 else None
    members = pd.concat(member_tables, keys=range(len(unit)), names=["side"]).reset_index("side")
    if differences is not None:
        key = ["example_id", "method", "variant"]
        members = members.merge(differences[[*key, "difference"]], on=key, how="left")
    members["half"] = 0
    if halves:
        of_dose = members.groupby(["side", "benchmark", "method", "occurrences"])["recency"]
        members["half"] = (members["recency"] > of_dose.transform("median")).astype(int)
    nonmembers = [t[~t["member"]].groupby(["benchmark", "method"]) for t in tables]
    facts = _facts(unit[0].cell)
    for group, rows in members.groupby(GROUP, sort=True):
        sides = [rows[rows["side"] == side] for side in range(len(unit))]
        if min(map(len, sides)) < FEWEST:
            continue
        out = [side.get_group(group[:2]) for side in nonmembers]
        auroc, auroc_error = _mean_auroc(sides, out)
        shift, shift_error = (
            _paired_shift(sides) if differences is not None else _unpaired_shift(sides[0], out[0])
        )
        yield {
            **facts,
            **dict(zip(GROUP[:3], group[:3], strict=True)),
            "recency": float(np.exp(np.log(rows["recency"]).mean())),
            "n_members": len(rows),
            "n_nonmembers": sum(map(len, out)),
            "shift": shift,
            "shift_error": shift_error,
            "auroc": auroc,
            "auroc_error": auroc_error,
            "member_variance": float(np.mean([side["standard"].var(ddof=1) for side in sides])),
            "paired": differences is not None,
        }


def _facts(cell: Cell) -> dict[str, Any]:
    columns = ("model", "parameters", "learning_rate", "budget_tokens", "seed")
    return {"cell": cell.name, **{column: getattr(cell, column) for column in columns}}


def _long_table(measured: MeasuredCell, recency_tokens: float) -> pd.DataFrame:
    """Returns one row per example and default method, with its standardised score and recency."""
    table = _default_rows(standardised_scores(measured.cell), measured.cell)
    since = table["example_id"].map(measured.tokens_since)
    return table.assign(recency=1 + since / recency_tokens)


def _paired_shift(sides: Sequence[pd.DataFrame]) -> tuple[float, float]:
    """Returns the mean of both cells' mean difference, so that their levels cancel."""
    means = [side["difference"].mean() for side in sides]
    variances = [side["difference"].var(ddof=1) / len(side) for side in sides]
    return float(np.mean(means)), float(np.sqrt(sum(variances)) / len(sides))


def _unpaired_shift(members: pd.DataFrame, nonmembers: pd.DataFrame) -> tuple[float, float]:
    variance = members["standard"].var(ddof=1) / len(members) + 1 / len(nonmembers)
    return float(members["standard"].mean()), float(np.sqrt(variance))


def _mean_auroc(sides: Sequence[pd.DataFrame], out: Sequence[pd.DataFrame]) -> tuple[float, float]:
    """Returns the mean AUROC of the cells, and its error over examples.

    An example is a member in one cell of a pair and a non-member in the other, so its influences on
    both are added before they are squared.
    """
    aurocs, influences = [], []
    for members, nonmembers in zip(sides, out, strict=True):
        below, above = placements(
            members["standard"].to_numpy(float), nonmembers["standard"].to_numpy(float)
        )
        auroc = float(below.mean())
        aurocs.append(auroc)
        influences.append(pd.Series((below - auroc) / len(below), members["example_id"]))
        influences.append(pd.Series((above - auroc) / len(above), nonmembers["example_id"]))
    by_example = pd.concat(influences).groupby(level=0).sum() / len(sides)
    return float(np.mean(aurocs)), float(np.sqrt((by_example**2).sum()))


def within_variances(cells: Sequence[Cell]) -> pd.DataFrame:
    """Returns σ²_within by condition, benchmark and method, in units of the non-members' variance.

    It is half of the variance, over examples, of the difference of two trainings' scores of an
    example that neither of them contained. Without two such trainings (one pair of swapped cells
    alone) it is half of the variance of the differences between the two, at the fewest copies: an
    upper bound, since copies shift some examples further than others (`upper_bound`).
    """
    by_recipe: dict[str, list[Cell]] = {}
    for cell in cells:
        by_recipe.setdefault(cell.recipe, []).append(cell)
    rows = [row for of_recipe in by_recipe.values() for row in _variances_of_recipe(of_recipe)]
    columns = ["condition", "benchmark", "method", "within", "examples", "upper_bound"]
    return pd.DataFrame(rows, columns=columns)


def _variances_of_recipe(cells: Sequence[Cell]) -> Iterator[dict[str, Any]]:
    condition = cells[0].condition.replace("-swapped", "")
    for (benchmark, method), squares in _out_differences(cells).items():
        variance = float(np.mean([d.var(ddof=1) for d in squares])) / 2
        number = int(np.mean([len(d) for d in squares]))
        yield {
            "condition": condition, "benchmark": benchmark, "method": method,
            "within": min(variance, 1.0), "examples": number, "upper_bound": False,
        }  # fmt: skip
    if any(c.seed != cells[0].seed for c in cells):
        return
    for pair in swapped_pairs(cells):
        table = example_differences(*pair)
        table = _default_rows(table, pair[0])
        lowest = table[table["occurrences"] == table["occurrences"].min()]
        for (benchmark, method), rows in lowest.groupby(["benchmark", "method"]):
            yield {
                "condition": condition, "benchmark": benchmark, "method": method,
                "within": min(1.0, float(rows["difference"].var(ddof=1)) / 2),
                "examples": len(rows), "upper_bound": True,
            }  # fmt: skip


def _out_differences(cells: Sequence[Cell]) -> dict[tuple[str, str], list[Floats]]:
    """Returns the differences between two cells' scores, by benchmark and method.

    Of examples that neither cell contained, for each two cells with at least `FEWEST` of them.
    """
    wide = [wide_scores(cell) for cell in cells]
    differences: dict[tuple[str, str], list[Floats]] = {}
    for k in range(len(cells)):
        for other in range(k):
            for key in wide[k].keys() & wide[other].keys():
                a, b = wide[k][key], wide[other][key]
                both = a[~a["member"]].join(b[~b["member"]], how="inner", rsuffix="_other")
                if len(both) >= FEWEST:
                    difference = (both["standard"] - both["standard_other"]).to_numpy(float)
                    differences.setdefault(key, []).append(difference)
    return dict(sorted(differences.items()))


def wide_scores(cell: Cell) -> dict[tuple[str, str], pd.DataFrame]:
    """Returns (benchmark, method) → member, occurrences and standard score by example."""
    table = _default_rows(standardised_scores(cell), cell)
    columns = ["member", "occurrences", "standard"]
    return {
        (str(benchmark), str(method)): rows.set_index("example_id")[columns]
        for (benchmark, method), rows in table.groupby(["benchmark", "method"], sort=True)
    }


def _default_rows(table: pd.DataFrame, cell: Cell) -> pd.DataFrame:
    """Returns the rows of the variants that stand for their methods."""
    pairs = pd.MultiIndex.from_frame(table[["method", "variant"]])
    return table[pairs.isin(list(cell.defaults))]
