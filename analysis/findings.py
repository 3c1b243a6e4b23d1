"""Everything that a report shows, computed once for its charts, tables and page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from contamination.analysis.conditions import rows_by_condition
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.methods import GlossaryEntry
from contamination.analysis.provenance import CellRecord, Facts
from contamination.analysis.sweeps import Sweep
from contamination.core.report.tables import Table


@dataclass(frozen=True)
class Findings:
    """All that a report shows; tables and records are by condition, each with its seeds."""

    title: str
    pooled: pd.DataFrame
    curves: pd.DataFrame
    """`curves.roc_table`."""
    bins: pd.DataFrame
    """`curves.histogram_table`."""
    sweeps: Sequence[Sweep]
    answer: Sequence[str]
    """`plain_summary.plain_sentences`: the answer in plain words, before anything else."""
    headline: Sequence[str]
    """`headline.headlines`: the same with intervals, slopes and comparisons."""
    plain_controls: str
    """`plain_summary.plain_controls_sentence`."""
    controls: str
    """`headline.controls_sentence`."""
    records: Mapping[str, Sequence[CellRecord]]
    tables: Mapping[str, Sequence[Table]]
    sentences: Mapping[str, Sequence[str]]
    """`summary.sentences_by_condition`."""
    cells: Sequence[Facts]
    """`provenance.cell_facts` of each cell."""
    glossary: Sequence[GlossaryEntry]
    examples: Sequence[str]
    """Pages next to the report, one per cell, with its examples token by token."""
    config: AnalysisConfig

    @property
    def rows_by_condition(self) -> dict[str, pd.DataFrame]:
        """The pooled rows of each condition, in their order."""
        return dict(rows_by_condition(self.pooled))

    def sentences_beyond_headline(self, condition: str) -> list[str]:
        """Returns the sentences on a condition beyond the headline."""
        return [sentence for sentence in self.sentences[condition] if sentence not in self.headline]

    def restrict_to_condition(self, condition: str) -> Findings:
        """What there is of one condition."""
        return replace(
            self,
            pooled=self.rows_by_condition[condition],
            curves=self.curves[self.curves["condition"] == condition],
            bins=self.bins[self.bins["condition"] == condition],
            records={condition: self.records.get(condition, ())},
            tables={condition: self.tables.get(condition, ())},
            sentences={condition: self.sentences[condition]},
        )
