"""Gathers what a report shows and writes it: charts, tables, report.md and report.html."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pandas as pd

from contamination.analysis.cells import Cell, series_settings
from contamination.analysis.charts.gallery import save_charts
from contamination.analysis.conditions import rows_by_condition
from contamination.analysis.config import AnalysisStage
from contamination.analysis.findings import Findings
from contamination.analysis.headline import controls_sentence, headlines
from contamination.analysis.methods import glossary_entries, methods_of
from contamination.analysis.page.build import render_page
from contamination.analysis.plain_summary import TERMS, plain_controls_sentence, plain_sentences
from contamination.analysis.provenance import CellRecord, cell_facts, report_provenance
from contamination.analysis.report_folder import CHARTS, PAGE, REPORT, TABLES
from contamination.analysis.statistics.controls import (
    LEVEL,
    control_rows_with_p_value,
    control_warning,
)
from contamination.analysis.statistics.curves import histogram_table, roc_table, score_samples
from contamination.analysis.statistics.seed_pooling import cells_by_condition
from contamination.analysis.statistics.tidy_tables import Statistics
from contamination.analysis.summary import reading_guide, sentences_by_condition
from contamination.analysis.sweeps import Sweep, find_sweeps
from contamination.analysis.tables.estimates import cell_tables, sweep_table
from contamination.analysis.tables.paper_comparisons import paper_learning_rate_table
from contamination.analysis.tables.statistical import condition_tables, series_tables
from contamination.core.files import write_text_atomically
from contamination.core.report.tables import Table, escape_markdown, write_tables
from contamination.detection.baselines.blind import BLIND

ON_CONTROLS = (
    f"A control is off where p ≤ {LEVEL:g}: how likely chance has one AUROC as far from 0.5 in any "
    "benchmark (or in their mean), by any method, in any condition of this report. So the clean "
    f"model is off in {LEVEL:.0%} of the reports in which nothing is wrong, and so is the blind "
    "baseline."
)
OVER_CONDITIONS = ""
"""The condition of what spans several: it comes first."""


class Picture(NamedTuple):
    """A chart's file, relative to the report, its title and its caption."""

    path: str
    title: str
    caption: str


@dataclass(frozen=True)
class Section:
    """One condition's part of the report, or what spans several (without results of its own)."""

    condition: str
    results: pd.DataFrame | None
    tables: Sequence[Table]
    charts: Sequence[Picture]
    sentences: Sequence[str] = ()
    """The sentences on the condition beyond the headline."""


def gather_findings(
    stage: AnalysisStage,
    cells: Sequence[Cell],
    tables: Statistics,
    records: Sequence[CellRecord],
    examples: Sequence[str] = (),
) -> Findings:
    """All that is shown. `records` are found by their models; a cell may have none."""
    samples_by_curve = score_samples(cells)
    by_model = {record.model: record for record in records}
    records_by_condition = {
        name: [by_model[c.digests["model"]] for c in members if c.digests["model"] in by_model]
        for name, members in cells_by_condition(cells).items()
    }
    confidence = stage.analysis.confidence
    sweeps = find_sweeps(tables.pooled, tables.trends, series_settings(cells))
    sentences = sentences_by_condition(tables, confidence)
    scored = tables.pooled[tables.pooled["method"] != BLIND]
    classes = {name: path for record in records for name, path in record.methods.items()}
    return Findings(
        title=stage.name,
        pooled=tables.pooled,
        curves=roc_table(samples_by_curve, stage.analysis, stage.seed),
        bins=histogram_table(samples_by_curve),
        sweeps=sweeps,
        answer=plain_sentences(tables.pooled, tables.trends, sweeps, stage.analysis),
        headline=headlines(sweeps, sentences, tables.replicates),
        plain_controls=plain_controls_sentence(tables.pooled),
        controls=controls_sentence(tables.pooled),
        records=records_by_condition,
        tables=_tables_by_condition(tables, sweeps),
        sentences=sentences,
        cells=[cell_facts(cell, by_model.get(cell.digests["model"])) for cell in cells],
        glossary=glossary_entries(
            dict.fromkeys(method for method, _ in methods_of(scored)), classes
        ),
        examples=examples,
        config=stage.analysis,
    )


def write_report_files(folder: Path, stage: AnalysisStage, findings: Findings) -> list[Path]:
    """Writes the files; the paths of all but the page, which says when and where it was written."""
    written = write_tables(folder / TABLES, findings.tables)
    pictures: dict[str, list[Picture]] = {}
    for saved in save_charts(findings, folder / CHARTS):
        picture = Picture(f"{CHARTS}/{saved.paths[0].name}", saved.title, saved.caption)
        pictures.setdefault(saved.condition, []).append(picture)
        written += saved.paths
    write_text_atomically(
        folder / REPORT, render_markdown(findings, _report_sections(findings, pictures))
    )
    write_text_atomically(folder / PAGE, render_page(findings, report_provenance()))
    return [*written, folder / REPORT]


def _tables_by_condition(statistics: Statistics, sweeps: Sequence[Sweep]) -> dict[str, list[Table]]:
    """Under OVER_CONDITIONS those over all conditions, the sweeps' first; then by condition."""
    tables_by_condition = {
        name: [*cell_tables(rows), *condition_tables(statistics, name)]
        for name, rows in rows_by_condition(statistics.pooled).items()
    }
    learning_rates = paper_learning_rate_table(statistics.pooled)
    over_conditions = [
        *map(sweep_table, sweeps),
        *([learning_rates] if learning_rates else []),
        *series_tables(statistics.trends),
    ]
    return (
        {OVER_CONDITIONS: over_conditions, **tables_by_condition}
        if over_conditions
        else tables_by_condition
    )


def _report_sections(
    findings: Findings, pictures: Mapping[str, Sequence[Picture]]
) -> list[Section]:
    sections = []
    for name, rows in findings.rows_by_condition.items():
        sentences = findings.sentences_beyond_headline(name)
        tables, charts = findings.tables[name], pictures.get(name, ())
        sections.append(Section(name, rows, tables, charts, sentences))
    over_conditions = findings.tables.get(OVER_CONDITIONS, ()), pictures.get(OVER_CONDITIONS, ())
    return (
        [Section(OVER_CONDITIONS, None, *over_conditions), *sections]
        if any(over_conditions)
        else sections
    )


def render_markdown(findings: Findings, sections: Sequence[Section]) -> str:
    """Returns report.md: the answer first, then the controls, the charts and the tables."""
    config = findings.config
    title = escape_markdown(f"{findings.title}: detection of contamination")
    parts = [f"# {title}", *map(escape_markdown, findings.answer)]
    parts += [escape_markdown(findings.plain_controls), TERMS]
    for section in sections:
        parts += _render_section(section)
    if findings.examples:
        links = "\n".join(
            f"- [{escape_markdown(Path(path).stem)}]({quote(path)})" for path in findings.examples
        )
        parts += ["## Examples, token by token", links]
    slopes = map(escape_markdown, (*findings.headline, findings.controls))
    parts += ["## Slopes and comparisons", *slopes]
    return "\n\n".join([*parts, "## How to read this", reading_guide(config)]) + "\n"


def _render_section(section: Section) -> list[str]:
    charts_and_tables = [
        *(
            f"![{escape_markdown(chart.title)}]({quote(chart.path)})\n\n"
            f"*{escape_markdown(chart.caption)}*"
            for chart in section.charts
        ),
        *(f"### {escape_markdown(table.title)}\n\n{table.markdown()}" for table in section.tables),
    ]
    results = section.results
    if results is None:
        return ["## Over all conditions", *charts_and_tables]
    warning = control_warning(results)
    return [
        f"## {escape_markdown(section.condition)}",
        *([f"> **{escape_markdown(warning)}**"] if warning else []),
        "\n".join(f"- {escape_markdown(sentence)}" for sentence in section.sentences),
        *charts_and_tables,
        *([ON_CONTROLS] if len(control_rows_with_p_value(results)) else []),
    ]
