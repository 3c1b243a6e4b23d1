"""The analysis stage: from the scores of some cells to a report folder."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from contamination.analysis.cells import Cell, name_apart, open_cell, series_settings
from contamination.analysis.config import AnalysisConfig, AnalysisStage
from contamination.analysis.example_pages import write_example_pages
from contamination.analysis.headline import controls_sentence, headlines
from contamination.analysis.plain_summary import plain_sentences
from contamination.analysis.provenance import CellRecord, open_record
from contamination.analysis.report_folder import (
    KIND,
    LATEST,
    PAGE,
    REPORT,
    REVISION,
    STATISTICS,
    Report,
    open_report,
)
from contamination.analysis.statistics.flagged import flag_notes, unflagged_sentences
from contamination.analysis.statistics.tidy_tables import compute_statistics
from contamination.analysis.summary import sentences_by_condition
from contamination.analysis.sweeps import find_sweeps
from contamination.analysis.tables.estimates import cell_tables, sweep_table
from contamination.analysis.wandb.runs import mirror_to_wandb
from contamination.core.artifacts import (
    Artifact,
    WrittenFiles,
    build_or_open,
    is_complete,
    run_folder,
)
from contamination.core.files import write_text_atomically
from contamination.core.output_paths import is_writable_folder
from contamination.core.terminal import wrap_text

log = logging.getLogger(__name__)

MOST_TABLES, MOST_NOTES = 2, 5
"""So many tables of sweeps and notes on odd scores are printed; the report has all."""


def run(stage: AnalysisStage) -> Artifact:
    """Writes the report on the stage's cells, or reuses it, and logs its main table."""
    stage.wandb.check_login()
    cells = [open_cell(paths) for paths in stage.cells]
    return write_report(stage, cells, [open_record(paths) for paths in stage.cells])


def write_report(
    stage: AnalysisStage, cells: Sequence[Cell], records: Sequence[CellRecord] = ()
) -> Artifact:
    """Makes the report of cells that are already open; their order doesn't matter.

    Without their `records` there are no losses over training and no ledger in the report.
    """
    cells = name_apart(cells)
    inputs = {name: digest for cell in cells for name, digest in cell.inputs.items()}
    inputs["statistics"] = REVISION
    runs = Path(stage.runs)
    folder = run_folder(runs, KIND, stage.name, stage, inputs)
    new = not is_complete(folder)
    artifact = build_or_open(
        folder, stage, inputs, lambda folder: _write_report_folder(folder, stage, cells, records)
    )
    if is_writable_folder(runs / KIND):  # a read-only runs folder serves what is finished
        write_text_atomically(runs / KIND / LATEST, json.dumps({"folder": folder.name}) + "\n")
    _log_answer(open_report(artifact.path), cells, stage.analysis)
    if new:
        mirror_to_wandb(stage, cells, open_report(artifact.path))
    return artifact


def _write_report_folder(
    folder: Path, stage: AnalysisStage, cells: Sequence[Cell], records: Sequence[CellRecord]
) -> WrittenFiles:
    from contamination.analysis.report_files import gather_findings, write_report_files

    tables = compute_statistics(stage.name, stage.seed, cells, stage.analysis)
    tidy = [folder / f"{name}.parquet" for name in STATISTICS]
    for path in tidy:
        getattr(tables, path.stem).to_parquet(path, index=False)
    views = write_example_pages(folder, stage.cells, stage.analysis.examples)
    pages = [str(path.relative_to(folder)) for path in views]
    written = write_report_files(
        folder, stage, gather_findings(stage, cells, tables, records, pages)
    )
    content = [str(path.relative_to(folder)) for path in [*tidy, *written]]
    counts = {"cells": len(cells), "estimates": len(tables.results)}
    return WrittenFiles(content, counts, [PAGE, *pages])


def _log_answer(report: Report, cells: Sequence[Cell], config: AnalysisConfig) -> None:
    """The answer for whoever watches the terminal; the rest is in the report."""
    sweeps = find_sweeps(report.pooled, report.trends, series_settings(cells))
    sentences = sentences_by_condition(report, config.confidence)
    tables = [sweep_table(sweep) for sweep in sweeps]
    tables = tables or [cell_tables(part)[0] for part in [report.pooled] if len(sentences) == 1]
    for sentence in plain_sentences(report.pooled, report.trends, sweeps, config):
        log.info("\n%s", wrap_text(sentence))
    for sentence in headlines(sweeps, sentences, report.replicates):
        log.info("\n%s", wrap_text(sentence))
    for table in tables[:MOST_TABLES]:
        log.info("\n%s\n\n%s", wrap_text(table.title), table.terminal_text())
    log.info("\n%s", wrap_text(controls_sentence(report.pooled)))
    if tables[MOST_TABLES:]:
        log.info("\nTables in the report alone: %d.", len(tables) - MOST_TABLES)
    flagged = {
        name: unflagged_sentences(report.pooled, report.unflagged, name) for name in sentences
    }
    notes_on_scores = [
        f"{name}: {note}"
        for name in sentences
        for note in (*flagged[name], *flag_notes(report.flags, name))
    ]
    for note in notes_on_scores[:MOST_NOTES]:
        log.info("%s", wrap_text(note))
    if notes_on_scores[MOST_NOTES:]:
        log.info("Notes in the report alone: %d.", len(notes_on_scores) - MOST_NOTES)
    path = report.artifact.path
    log.info("\nreport: %s\nin a browser: %s", path / REPORT, path / PAGE)
