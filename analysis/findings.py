"""All that a report shows, computed once for its charts, its tables and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from analysis.cells import Series
from analysis.conditions import parts_of
from analysis.config import AnalysisConfig
from analysis.tables.table import Table
from analysis.training_record import Record


@dataclass(frozen=True)
class Findings:
    """All that a report shows; tables and records are by condition, each with its seeds."""

    title: str
    pooled: pd.DataFrame
    curves: pd.DataFrame
    """`curves.roc_table`."""
    bins: pd.DataFrame
    """`curves.histogram_table`."""
    series: Series
    """`cells.series_of`."""
    records: Mapping[str, Sequence[Record]]
    tables: Mapping[str, Sequence[Table]]
    sentences: Mapping[str, Sequence[str]]
    """`summary.of_conditions`."""
    config: AnalysisConfig

    @property
    def conditions(self) -> dict[str, pd.DataFrame]:
        """The pooled rows of each condition, in their order."""
        return dict(parts_of(self.pooled))

    def of_condition(self, condition: str) -> Findings:
        """What there is of one condition."""
        return replace(
            self,
            pooled=self.conditions[condition],
            curves=self.curves[self.curves["condition"] == condition],
            bins=self.bins[self.bins["condition"] == condition],
            records={condition: self.records.get(condition, ())},
            tables={condition: self.tables.get(condition, ())},
            sentences={condition: self.sentences[condition]},
        )
