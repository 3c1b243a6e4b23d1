"""Sweeps: conditions that differ in one factor only, in its order."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from contamination.analysis.cells import Series, SharedSettings
from contamination.analysis.factors import FACTORS, Factor
from contamination.analysis.methods import Methods, checkpoint_of, sort_methods
from contamination.analysis.statistics.groups import ANY
from contamination.analysis.statistics.results_table import why_without_number
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.statistics.metrics import AUROC
from contamination.detection.baselines.blind import BLIND
from contamination.injection.finetuning.config import STAGE_TITLES

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sweep:
    """A series of conditions along one factor."""

    factor: Factor
    name: str
    """Of its files: `auroc_by_<column>`, with a number where several series have the factor."""
    rows: pd.DataFrame
    """AUROC of all members, mean over benchmarks: pooled rows of both checkpoints."""
    trends: pd.DataFrame
    """The rows of `statistics.trends` along it: mean over benchmarks, one row per method."""
    unmeasured: pd.DataFrame = field(default_factory=pd.DataFrame)
    """One row per condition of the series without a number, for example without members."""
    further_phrases: Sequence[str] = ()
    """What its conditions share, unlike those of other series, in words."""

    @property
    def conditions(self) -> list[str]:
        """The names of those that were measured, in the factor's order."""
        return list(self.rows.sort_values(self.factor.column)["condition"].unique())

    @property
    def reason_by_level(self) -> dict[float, str]:
        """The factor's values that have no number, ascending, with the reason."""
        rows = self.unmeasured.to_dict("records")
        reason_by_level = {float(row[self.factor.column]): why_without_number(row) for row in rows}
        return dict(sorted(reason_by_level.items()))

    @property
    def levels(self) -> list[float]:
        """The factor's values that were measured, ascending."""
        return sorted(float(value) for value in self.rows[self.factor.column].unique())

    @property
    def shared_text(self) -> str:
        """What the conditions share, in words: "tiny_llama, 600,000 tokens"."""
        return ", ".join(self.shared_phrases)

    @property
    def shared_phrases(self) -> list[str]:
        """The same as separate phrases."""
        first_row = self.rows.iloc[0]
        phrase_by_column = {"model": str(first_row["model"])}
        for factor in FACTORS:
            if factor.shared_as and pd.notna(first_row.get(factor.column)):
                phrase_by_column[factor.column] = factor.shared_as.format(first_row[factor.column])
        if pd.notna(first_row.get("stage")):
            phrase_by_column["stage"] = f"members in {STAGE_TITLES[first_row['stage']]}"
            phrase_by_column["scope"] = f"{first_row['scope']} scored"
        if pd.notna(first_row["last_tokens"]):
            phrase_by_column["last_tokens"] = (
                f"copies in the last {first_row['last_tokens']:,} tokens"
            )
        for varying_column in (self.factor.column, *self.factor.bound):
            phrase_by_column.pop(varying_column, None)
        return [*phrase_by_column.values(), *self.further_phrases]

    def distinguishing_text(self, sweeps: Iterable[Sweep]) -> str:
        """Returns what of `shared_text` not all series of the factor share, or all of it."""
        of_factor = (sweep for sweep in sweeps if sweep.factor == self.factor)
        shared_words = [set(sweep.shared_phrases) for sweep in of_factor]
        distinguishing = (
            word for word in self.shared_phrases if not all(word in words for words in shared_words)
        )
        return ", ".join(distinguishing) or self.shared_text

    @property
    def line_rows(self) -> pd.DataFrame:
        """The rows that make up the methods' lines: the contaminated models', and blind."""
        return self.rows[self.rows["checkpoint"] == self.rows["method"].map(checkpoint_of)]

    def method_rows(self, method: str, variant: str) -> pd.DataFrame:
        """A method's rows in the factor's order."""
        rows = self.line_rows
        of_method = rows[(rows["method"] == method) & (rows["variant"] == variant)]
        return of_method.sort_values(self.factor.column)

    @property
    def trend_by_method(self) -> dict[Any, dict[Any, Any]]:
        """(method, variant) → its row of the trends."""
        rows = self.trends.to_dict("records")
        return {(row["method"], row["variant"]): row for row in rows}

    @property
    def ranked_methods(self) -> Methods:
        """The default variants that were measured everywhere, by their mean AUROC, best first."""
        rows = self.line_rows[self.line_rows["default"] & (self.line_rows["method"] != BLIND)]
        means = rows.groupby(["method", "variant"])["value"].agg(["mean", "size"])
        means = means[means["size"] == len(self.levels)]["mean"]
        return sorted(sort_methods(means.index), key=lambda pair: -float(means[pair]))


def find_sweeps(pooled: pd.DataFrame, trends: pd.DataFrame, series: Series) -> list[Sweep]:
    """Every series of at least two conditions, factor by factor."""
    return [
        Sweep(
            factor,
            f"auroc_by_{factor.column}" + f"-{i + 1}" * (i > 0),
            rows,
            _trends_of_series(trends, factor, rows),
            unmeasured,
            tuple(phrases),
        )
        for factor in FACTORS
        for i, (shared, rows, unmeasured) in enumerate(_iter_series(pooled, factor, series))
        for phrases in [_iter_distinguishing_phrases(shared, rows, pooled)]
    ]


def conditions_in_sweeps(sweeps: Iterable[Sweep]) -> set[str]:
    """The conditions that are in some sweep, measured or not."""
    tables = [rows for sweep in sweeps for rows in (sweep.rows, sweep.unmeasured) if len(rows)]
    return {condition for rows in tables for condition in rows["condition"]}


def format_short(value: float) -> str:
    """A number on an axis: 0.0001 → 1e-4, 600000 → 600k, 2000000 → 2M."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    if 0 < value < 0.01:
        digits, power = f"{value:.3e}".split("e")
        return f"{float(digits):g}e{int(power)}"
    return f"{value:.3g}"


def _trends_of_series(trends: pd.DataFrame, factor: Factor, rows: pd.DataFrame) -> pd.DataFrame:
    """The trends of the series with these rows: it is named by one of its conditions."""
    along = (trends["over"] == factor.column) & (trends["benchmark"] == ALL_BENCHMARKS)
    return trends[along & trends["condition"].isin(rows["condition"])]


def _iter_distinguishing_phrases(
    shared: SharedSettings, rows: pd.DataFrame, pooled: pd.DataFrame
) -> Iterator[str]:
    """Yields what distinguishes the series from others, beyond `Sweep.shared_phrases`."""
    if shared.swapped:
        yield "members and non-members swapped"
    if pooled["last_tokens"].notna().any() and rows["last_tokens"].isna().all():
        yield "copies not limited to the last tokens"
    level = "mean_occurrences"
    if level in pooled and pooled[level].nunique() > 1 and rows[level].nunique() == 1:
        yield f"mean occurrences {format_short(float(rows[level].iloc[0]))}"


def _iter_series(
    pooled: pd.DataFrame, factor: Factor, series: Series
) -> Iterator[tuple[SharedSettings, pd.DataFrame, pd.DataFrame]]:
    """Conditions that differ in the factor alone, where several of its values were measured.

    What they share, their AUROC rows, and one row for each that has no number.
    """
    if factor.column not in pooled:  # an older report, without this factor
        return
    aurocs = pooled[(pooled["metric"] == AUROC.name) & (pooled["occurrences"] == ANY)]
    aurocs = aurocs[(aurocs["benchmark"] == ALL_BENCHMARKS) & aurocs[factor.column].notna()]
    keys = aurocs["condition"].map(lambda condition: series.get((condition, factor.column)))
    for shared, rows in aurocs.groupby(keys, sort=False):
        conditions = rows.drop_duplicates("condition")
        measured = rows[rows["needs"] == ""]
        unmeasured = conditions[~conditions["condition"].isin(measured["condition"])]
        if conditions[factor.column].duplicated().any():
            log.warning("%s: conditions differ in more than it, so no chart.", factor.column)
        elif measured["condition"].nunique() > 1:
            yield shared, measured, unmeasured
