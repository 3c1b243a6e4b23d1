"""`analyse law`: from the cells of reports to the folder of a fitted law."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contamination.analysis.cells import Cell
from contamination.analysis.law.calibration import calibrated_samples, compare_calibration
from contamination.analysis.law.comparison import predict_held_out, summarise
from contamination.analysis.law.config import LawStage
from contamination.analysis.law.fit import Law, fit_law
from contamination.analysis.law.measurements import (
    MeasuredCell,
    measure_cells,
    open_measured_cells,
    within_variances,
)
from contamination.analysis.law.predict import LOW_FPR, NEW, predict
from contamination.analysis.law.report import LawResults, law_document, save_law_chart
from contamination.analysis.law.report_tables import measure_reports
from contamination.analysis.law.stored_law import KIND, write_law
from contamination.analysis.report_folder import Report, cell_paths, open_report
from contamination.core.artifacts import Artifact, WrittenFiles, build_or_open, run_folder
from contamination.core.errors import ConfigError, near_names
from contamination.core.files import write_text_atomically
from contamination.core.integrity import errors_naming_folders
from contamination.core.report.document import markdown_document
from contamination.core.stored_files import read_text
from contamination.core.table_files import write_data_files

log = logging.getLogger(__name__)
REVISION = "3"
"""Of what stored results mean."""
DOCUMENT = "law.md"


def run(stage: LawStage) -> Artifact:
    """Fits the law to the reports' cells, or reuses the finished folder, and logs its conclusions.

    Raises:
        UserError: a report or a cell can't be used, or the cells do not allow a fit.
    """
    if stage.tables:
        with errors_naming_folders(*stage.reports):
            reports = [open_report(report) for report in stage.reports]
            inputs = {f"report{i}": report.artifact.digest for i, report in enumerate(reports)}
        cells: list[MeasuredCell] = []
    else:
        named = [(f"reports.{i}", report) for i, report in enumerate(stage.reports)]
        cells = open_measured_cells([p for name, report in named for p in cell_paths(name, report)])
        inputs = {name: digest for c in cells for name, digest in c.cell.inputs.items()}
        reports = []
    inputs["revision"] = REVISION
    folder = run_folder(Path(stage.runs), KIND, stage.name, stage, inputs)
    artifact = build_or_open(
        folder, stage, inputs, lambda f: _write_folder(f, stage, cells, reports)
    )
    text = read_text(artifact.path / DOCUMENT)
    for block in text.partition("\n## ")[0].split("\n\n")[1:]:
        log.info("%s", block.strip().replace("**", ""))
    log.info("law: %s", artifact.path / DOCUMENT)
    return artifact


def _write_folder(
    folder: Path, stage: LawStage, cells: Sequence[MeasuredCell], reports: Sequence[Report]
) -> WrittenFiles:
    if stage.tables:
        with errors_naming_folders(*stage.reports):
            rows = measure_reports(reports)
        results = compare_rows(stage, rows, rows, within_variances([]), [])
    else:
        results = fit_and_compare(stage, cells)
    tables = {name: table for name, table in results.tables.items() if len(table)}
    files = [f for name, table in tables.items() for f in write_data_files(folder, name, table)]
    files.append(write_law(folder, results.law))
    files += [path.name for path in save_law_chart(results, folder)]
    write_text_atomically(folder / DOCUMENT, markdown_document(law_document(results)))
    counts = {"cells": results.law.cells, "rows": results.law.rows}
    return WrittenFiles([*files, DOCUMENT], counts)


def fit_and_compare(stage: LawStage, cells: Sequence[MeasuredCell]) -> LawResults:
    """Returns the fitted law, and all that is measured of it."""
    log.info("law: measuring %d cells", len(cells))
    splits = "recency" in stage.factors
    rows = measure_cells(cells, stage.recency_tokens, halves=splits)
    whole = measure_cells(cells, stage.recency_tokens, halves=False) if splits else rows
    if not len(rows):
        raise ConfigError(
            "reports: no cell has enough members at a number of copies to measure a shift. Give "
            "reports with more members, or factors=[occurrences,learning_rate,parameters], which "
            "does not split them by the tokens since their last copy."
        )
    return compare_rows(
        stage, rows, whole, within_variances([c.cell for c in cells]), [c.cell for c in cells]
    )


def compare_rows(
    stage: LawStage,
    rows: pd.DataFrame,
    whole: pd.DataFrame,
    within: pd.DataFrame,
    cells: Sequence[Cell],
) -> LawResults:
    """Returns the law fitted to measured rows, and all that is measured of it.

    Args:
        stage: what to fit, hold out and predict.
        rows: what is fitted, one row per half of a row of `whole` or the same.
        whole: what predictions are compared with.
        within: from `measurements.within_variances`.
        cells: the cells for the test of calibration; none: there is no test.
    """
    held, held_whole = (held_out_rows(table, stage.held_out) for table in (rows, whole))
    log.info("law: fitting %d shifts", int((~held).sum()))
    law = fit_law(
        rows[~held],
        {str(m): float(w) for m, w in within.groupby("method")["within"].mean().items()},
        stage.recency_tokens,
        stage.factors,
    )
    compared = pd.DataFrame()
    if held_whole.any():
        compared = predict_held_out(
            law, whole[~held_whole], whole[held_whole], stage.confidence, stage.seed
        )
    fitted = predict_held_out(
        law, whole[~held_whole], whole[~held_whole], stage.confidence, stage.seed
    )
    log.info("law: testing calibration by references")
    calibration = compare_calibration(
        calibrated_samples(cells), within, stage.confidence, stage.seed
    )
    return LawResults(
        stage, law, rows.assign(held_out=held), fitted, within, calibration, compared,
        summarise(compared, stage.confidence) if len(compared) else compared,
        predict_settings(law, stage),
    )  # fmt: skip


def held_out_rows(rows: pd.DataFrame, rules: Sequence[Mapping[str, Any]]) -> pd.Series[bool]:
    """Returns which rows a rule selects: all columns that it names have its value, or one of them.

    Raises:
        ConfigError: a rule names an unknown column, or selects nothing, or everything is selected.
    """
    columns = [c for c in rows.columns if c not in ("shift", "shift_error", "auroc", "auroc_error")]
    held = pd.Series(False, rows.index)
    for number, rule in enumerate(rules):
        selected = pd.Series(bool(rule), rows.index)
        for column, value in rule.items():
            if column not in columns:
                hint = near_names(str(column), columns)
                raise ConfigError(f"held_out.{number}.{column}: unknown column. {hint}")
            values = value if isinstance(value, list | tuple) else [value]
            selected &= rows[column].isin(values)
        if not selected.any():
            raise ConfigError(
                f"held_out.{number} is {dict(rule)}: it selects no cell. Give values that occur, "
                "such as one of each column of measurements.csv."
            )
        held |= selected
    if held.all():
        raise ConfigError("held_out selects all cells: nothing is left to fit. Hold out fewer.")
    return held


def predict_settings(law: Law, stage: LawStage) -> pd.DataFrame:
    """Returns a row per setting of `predict` and method: shift, AUROC and the strong attack's.

    Raises:
        ConfigError: a setting is incomplete, or the fit says nothing about it.
    """
    rows = []
    for number, query in enumerate(stage.predict):
        values = {str(k): v for k, v in query.items() if k not in ("method", "benchmark")}
        try:
            settings = {name: float(value) for name, value in values.items()}
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"predict.{number} is {dict(query)}: give numbers for factors."
            ) from error
        if "tokens_since" in settings:
            settings["recency"] = 1 + settings.pop("tokens_since") / law.recency_tokens
        methods = [str(query["method"])] if "method" in query else law.methods
        benchmarks = [str(query["benchmark"])] if "benchmark" in query else None
        for method in methods:
            try:
                prediction = predict(law, settings, method, benchmarks, seed=stage.seed)
            except ConfigError as error:
                raise ConfigError(f"predict.{number}.{error}") from error
            low, high = prediction.interval(stage.confidence)
            shift_low, shift_high = np.quantile(
                prediction.shifts.mean(axis=1),
                [(1 - stage.confidence) / 2, (1 + stage.confidence) / 2],
            )
            rows.append({
                "setting": number, **settings, "method": method,
                "benchmark": query.get("benchmark", "all"), "shift": prediction.shift,
                "shift_low": float(shift_low), "shift_high": float(shift_high),
                "auroc": prediction.auroc, "low": low, "high": high,
                f"tpr_at_fpr_{LOW_FPR:g}": prediction.tpr,
                "strong_auroc": float(np.median(prediction.strong)),
                "outside": ", ".join((*prediction.outside, *(["method"] if method == NEW else []))),
            })  # fmt: skip
    return pd.DataFrame(rows)
