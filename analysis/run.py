"""The analysis stage: from the scores of some cells to a report folder."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from analysis.cells import Cell, name_apart, open_cell
from analysis.conditions import parts_of
from analysis.config import AnalysisStage
from analysis.folder import KIND, LATEST, PAGE, REPORT, STATISTICS, open_report
from analysis.mirror.runs import mirror
from analysis.statistics.tidy_tables import statistics
from analysis.summary import of_conditions
from analysis.tables.tables import cell_tables
from analysis.training_record import Record, open_record
from core.artifacts import Artifact, Built, build, is_complete, locate
from core.disk import writable
from core.files import write_text

log = logging.getLogger(__name__)


def run(stage: AnalysisStage) -> Artifact:
    """Write the report on the stage's cells, or reuse it, and log its main table."""
    stage.wandb.check_login()
    records = [open_record(paths) for paths in stage.cells]
    return write_report(stage, [open_cell(paths) for paths in stage.cells], records)


def write_report(
    stage: AnalysisStage, cells: Sequence[Cell], records: Sequence[Record] = ()
) -> Artifact:
    """Make the report of cells that are already open; their order doesn't matter.

    Without their `records` there are no losses over training and no ledger in the report.
    """
    cells = name_apart(cells)
    inputs = {name: digest for cell in cells for name, digest in cell.inputs.items()}
    runs = Path(stage.runs)
    folder = locate(runs, KIND, stage.name, stage, inputs)
    new = not is_complete(folder)
    artifact = build(folder, stage, inputs, lambda folder: _make(folder, stage, cells, records))
    if writable(runs / KIND):  # a read-only runs folder serves what is finished
        write_text(runs / KIND / LATEST, json.dumps({"folder": folder.name}) + "\n")
    _show(artifact, stage.analysis.confidence)
    if new:
        mirror(stage, cells, open_report(artifact.path))
    return artifact


def _make(
    folder: Path, stage: AnalysisStage, cells: Sequence[Cell], records: Sequence[Record]
) -> Built:
    from analysis.publish import gather, publish

    found = statistics(stage.name, stage.seed, cells, stage.analysis)
    tidy = [folder / f"{name}.parquet" for name in STATISTICS]
    for path in tidy:
        getattr(found, path.stem).to_parquet(path, index=False)
    written = publish(folder, stage, gather(stage, cells, found, records))
    content = [str(path.relative_to(folder)) for path in [*tidy, *written]]
    return Built(content, {"cells": len(cells), "estimates": len(found.results)})


def _show(artifact: Artifact, confidence: float) -> None:
    """The main table and the findings, for whoever watches the terminal."""
    report = open_report(artifact.path)
    said = of_conditions(report, confidence)
    for condition, part in parts_of(report.pooled).items():
        main = cell_tables(part)[0]
        log.info("\n%s\n%s\n\n%s\n", condition, main.title, main.markdown())
        for sentence in said[condition]:
            log.info("- %s", sentence)
    log.info("\nreport: %s\nin a browser: %s", artifact.path / REPORT, artifact.path / PAGE)
