"""What was swept: conditions that differ in one fact alone, in its order."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from analysis.cells import Series
from analysis.methods import BLIND, Methods, checkpoint_of, in_order
from analysis.statistics.groups import ANY
from analysis.statistics.results import ALL
from core.metrics import AUROC

log = logging.getLogger(__name__)


class Factor(NamedTuple):
    """A column that conditions may differ in."""

    column: str
    title: str
    axis: str
    bound: tuple[str, ...] = ()
    """Columns that change with it."""


FACTORS = (
    Factor("learning_rate", "Detection by learning rate", "peak learning rate"),
    Factor("budget_tokens", "Detection by corpus size", "tokens of the training corpus"),
    Factor("parameters", "Detection by model size", "parameters of the model", ("model",)),
    Factor("example_max_tokens", "Detection by text length", "most tokens of an example"),
)


@dataclass(frozen=True)
class Sweep:
    """A series of conditions along one factor."""

    factor: Factor
    name: str
    """Of its files: `auroc_by_<column>`, with a number where several series have the factor."""
    rows: pd.DataFrame
    """AUROC of all members, mean over benchmarks: pooled rows of both checkpoints."""
    trends: pd.DataFrame
    """Those of `statistics.trends` along it, of the mean over benchmarks, one row a method."""

    @property
    def conditions(self) -> list[str]:
        """Their names, in the factor's order."""
        return list(self.rows.sort_values(self.factor.column)["condition"].unique())

    @property
    def levels(self) -> list[float]:
        """The factor's values, ascending."""
        return sorted(float(value) for value in self.rows[self.factor.column].unique())

    @property
    def fixed(self) -> str:
        """What the conditions share, in words: "tiny_llama, 600,000 tokens"."""
        first = self.rows.iloc[0]
        words = {
            "model": str(first["model"]),
            "learning_rate": f"learning rate {first['learning_rate']:g}",
            "budget_tokens": f"{first['budget_tokens']:,} tokens",
        }
        if pd.notna(first["last_tokens"]):
            words["last_tokens"] = f"copies in the last {first['last_tokens']:,} tokens"
        for varies in (self.factor.column, *self.factor.bound):
            words.pop(varies, None)
        return ", ".join(words.values())

    @property
    def line_rows(self) -> pd.DataFrame:
        """The rows that make up the methods' lines: the contaminated models', and blind."""
        return self.rows[self.rows["checkpoint"] == self.rows["method"].map(checkpoint_of)]

    def line(self, method: str, variant: str) -> pd.DataFrame:
        """A method's rows in the factor's order."""
        rows = self.line_rows
        own = rows[(rows["method"] == method) & (rows["variant"] == variant)]
        return own.sort_values(self.factor.column)

    @property
    def slopes(self) -> dict[Any, dict[Any, Any]]:
        """(method, variant) → its row of the trends."""
        rows = self.trends.to_dict("records")
        return {(row["method"], row["variant"]): row for row in rows}

    @property
    def ranking(self) -> Methods:
        """The default variants that were measured everywhere, by their mean AUROC, best first."""
        rows = self.line_rows[self.line_rows["default"] & (self.line_rows["method"] != BLIND)]
        means = rows.groupby(["method", "variant"])["value"].agg(["mean", "size"])
        means = means[means["size"] == len(self.levels)]["mean"]
        return sorted(in_order(means.index), key=lambda pair: -float(means[pair]))


def sweeps_of(pooled: pd.DataFrame, trends: pd.DataFrame, series: Series) -> list[Sweep]:
    """Every series of at least two conditions, factor by factor."""
    return [
        Sweep(factor, _name(factor, i), rows, _own(trends, factor, rows))
        for factor in FACTORS
        for i, rows in enumerate(_groups(pooled, factor, series))
    ]


def swept(sweeps: Iterable[Sweep]) -> set[str]:
    """The conditions that are in some sweep."""
    return {condition for sweep in sweeps for condition in sweep.conditions}


def short(value: float) -> str:
    """A number on an axis: 0.0001 → 1e-4, 600000 → 600k, 2000000 → 2M."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    if value < 0.01:
        digits, power = f"{value:.3e}".split("e")
        return f"{float(digits):g}e{int(power)}"
    return f"{value:g}"


def _name(factor: Factor, place: int) -> str:
    return f"auroc_by_{factor.column}" + f"-{place + 1}" * (place > 0)


def _own(trends: pd.DataFrame, factor: Factor, rows: pd.DataFrame) -> pd.DataFrame:
    """The trends of the series with these rows: it is named by one of its conditions."""
    along = (trends["over"] == factor.column) & (trends["benchmark"] == ALL)
    return trends[along & trends["condition"].isin(rows["condition"])]


def _groups(pooled: pd.DataFrame, factor: Factor, series: Series) -> Iterator[pd.DataFrame]:
    """AUROC rows of conditions that differ in the factor alone, where it has several values."""
    if factor.column not in pooled:
        return
    shown = pooled[(pooled["metric"] == AUROC.name) & (pooled["occurrences"] == ANY)]
    shown = shown[(shown["benchmark"] == ALL) & (shown["needs"] == "")]
    shown = shown[shown[factor.column].notna()]
    keys = shown["condition"].map(lambda condition: series.get((condition, factor.column)))
    for _, rows in shown.groupby(keys, sort=False):
        conditions = rows.drop_duplicates("condition")[factor.column]
        if conditions.duplicated().any():
            log.warning("%s: conditions differ in more than it, so no chart.", factor.column)
        elif len(conditions) > 1:
            yield rows
