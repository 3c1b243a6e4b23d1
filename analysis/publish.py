"""The files that people read: charts, tables, report.md and report.html."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.cells import Cell, series_of
from analysis.charts.gallery import save_charts
from analysis.conditions import parts_of
from analysis.config import AnalysisStage
from analysis.findings import Findings
from analysis.folder import CHARTS, PAGE, REPORT, TABLES
from analysis.page.build import page
from analysis.report import OVER_CONDITIONS, Picture, Section, markdown
from analysis.statistics.curves import histogram_table, roc_table, samples
from analysis.statistics.pooled import by_condition
from analysis.statistics.tidy_tables import Statistics
from analysis.summary import of_conditions
from analysis.tables.papers import learning_rate_table
from analysis.tables.statistical import condition_tables, series_tables
from analysis.tables.table import Table, write_tables
from analysis.tables.tables import cell_tables
from analysis.training_record import Record
from core.config import identity
from core.files import write_text


def gather(
    stage: AnalysisStage, cells: Sequence[Cell], made: Statistics, records: Sequence[Record]
) -> Findings:
    """All that is shown. `records` are found by their models; a cell may have none."""
    found = samples(cells, stage.seed)
    by_model = {record.model: record for record in records}
    own = {
        name: [by_model[c.digests["model"]] for c in some if c.digests["model"] in by_model]
        for name, some in by_condition(cells).items()
    }
    return Findings(
        title=stage.name,
        pooled=made.pooled,
        curves=roc_table(found, stage.analysis, stage.seed),
        bins=histogram_table(found),
        series=series_of(cells),
        records=own,
        tables=_tables(made),
        sentences=of_conditions(made, stage.analysis.confidence),
        config=stage.analysis,
    )


def publish(folder: Path, stage: AnalysisStage, findings: Findings) -> list[Path]:
    """Write the files; their paths."""
    written = write_tables(folder / TABLES, findings.tables)
    pictures: dict[str, list[Picture]] = {}
    for saved in save_charts(findings, folder / CHARTS):
        picture = Picture(f"{CHARTS}/{saved.paths[0].name}", saved.title, saved.caption)
        pictures.setdefault(saved.condition, []).append(picture)
        written += saved.paths
    write_text(folder / REPORT, markdown(stage.name, _sections(findings, pictures), stage.analysis))
    shown: dict[str, Any] = identity(stage)
    write_text(folder / PAGE, page(findings, shown))
    return [*written, folder / REPORT, folder / PAGE]


def _tables(made: Statistics) -> dict[str, list[Table]]:
    """By condition, and under OVER_CONDITIONS those over all of them."""
    tables = {
        name: [*cell_tables(rows), *condition_tables(made, name)]
        for name, rows in parts_of(made.pooled).items()
    }
    rates = learning_rate_table(made.pooled)
    over = [*([rates] if rates else []), *series_tables(made.trends)]
    return {**tables, OVER_CONDITIONS: over} if over else tables


def _sections(findings: Findings, pictures: Mapping[str, Sequence[Picture]]) -> list[Section]:
    sections = [
        Section(name, rows, findings.tables[name], pictures.get(name, ()), findings.sentences[name])
        for name, rows in findings.conditions.items()
    ]
    over = findings.tables.get(OVER_CONDITIONS, ()), pictures.get(OVER_CONDITIONS, ())
    return [*sections, Section(OVER_CONDITIONS, None, *over)] if any(over) else sections
