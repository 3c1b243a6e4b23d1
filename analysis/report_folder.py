"""A report's folder, as others open it (docs/run-folders.md, docs/report-tables.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from contamination.analysis.config import CellPaths
from contamination.core.artifacts import Artifact, open_artifact
from contamination.core.errors import ConfigError
from contamination.core.integrity import errors_naming_folders
from contamination.core.stored_files import parse_typed

KIND = "report"
RESULTS = "results.parquet"
STATISTICS = ("results", "pooled", "comparisons", "trends", "replicates", "flags", "unflagged")
"""The tidy tables: `<name>.parquet`, and a property of `Report`."""
REVISION = "5"
"""Changes with the tables' columns and statistics, so that an older report is not reused."""
REPORT = "report.md"
PAGE = "report.html"
TABLES = "tables"
CHARTS = "charts"
LATEST = "latest.json"


@dataclass(frozen=True)
class Report:
    """A finished report folder."""

    artifact: Artifact

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved config of the stage."""
        return self.artifact.config()

    @cached_property
    def results(self) -> pd.DataFrame:
        """One row per estimate of a cell; columns: `analysis.statistics.results_table.COLUMNS`."""
        return self._table("results")

    @cached_property
    def pooled(self) -> pd.DataFrame:
        """One row per estimate of a condition; the columns are `seed_pooling.COLUMNS`."""
        return self._table("pooled")

    @cached_property
    def comparisons(self) -> pd.DataFrame:
        """One row per pair of methods; the columns are `analysis.statistics.paired.COLUMNS`."""
        return self._table("comparisons")

    @cached_property
    def trends(self) -> pd.DataFrame:
        """One row per trend; the columns are `analysis.statistics.trends.COLUMNS`."""
        return self._table("trends")

    @cached_property
    def replicates(self) -> pd.DataFrame:
        """One row per example and method; the columns are `tidy_tables.REPLICATES_COLUMNS`."""
        return self._table("replicates")

    @cached_property
    def flags(self) -> pd.DataFrame:
        """One row per flag of some scores, with the columns `flagged.FLAG_COLUMNS`."""
        return self._table("flags")

    @cached_property
    def unflagged(self) -> pd.DataFrame:
        """AUROC without flagged examples; the columns are `statistics.flagged.COLUMNS`."""
        if "unflagged.parquet" not in self.artifact.files:  # written before flags were added
            return pd.DataFrame({"condition": [], "benchmark": []})
        return self._table("unflagged")

    def _table(self, name: str) -> pd.DataFrame:
        return self.artifact.table(f"{name}.parquet")


def open_report(path: Path | str) -> Report:
    """Opens a finished report folder.

    Raises:
        ArtifactError: there is none, or it is unfinished.
    """
    return Report(open_artifact(path, KIND))


def cell_paths(field: str, source: Any) -> list[CellPaths]:
    """Returns the folders of the cells of one or several reports, or those in a list of mappings.

    Args:
        field: the config field of `source`, for error messages.
        source: a report's folder, a list of such folders, or a list of {corpus, model, clean,
            contaminated}.

    Raises:
        ConfigError: it is neither.
        ArtifactError: the report can't be used.
    """
    is_several = isinstance(source, Sequence) and not isinstance(source, str)
    if is_several and source and all(isinstance(report, str) for report in source):
        return [paths for report in source for paths in cell_paths(field, report)]
    if isinstance(source, str | Path):
        with errors_naming_folders(source):
            source = open_report(source).config["cells"]
    is_list = isinstance(source, Sequence) and all(isinstance(paths, Mapping) for paths in source)
    if not is_list or not source:
        raise ConfigError(
            f"{field} is {source!r}: give the folder of a report (runs/report/…), a list of such "
            "folders, or a list of cells, each {corpus: DIR, model: DIR, clean: DIR, "
            "contaminated: DIR}."
        )
    try:
        return [parse_typed(dict(paths), CellPaths) for paths in source]
    except ValueError as error:
        raise ConfigError(f"{field}: {error}. Give corpus, model, clean, contaminated.") from error
