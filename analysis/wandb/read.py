"""Reads results back from Weights & Biases: a project online, or offline records.

Online they come by the public API, offline by `wandb leet inspect`, the record's supported reader.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from contamination.analysis.config import WandbReport
from contamination.analysis.report_folder import KIND, REPORT, RESULTS, TABLES
from contamination.analysis.statistics.results_table import COLUMNS
from contamination.analysis.statistics.trends import OCCURRENCES
from contamination.analysis.tables.estimates import cell_tables
from contamination.analysis.tables.paper_comparisons import paper_learning_rate_table
from contamination.analysis.wandb.keys import parse_result_rows
from contamination.core.artifacts import Artifact, WrittenFiles, build_or_open, run_folder
from contamination.core.errors import DataError, require
from contamination.core.files import write_text_atomically
from contamination.core.report.tables import escape_markdown, write_tables


@dataclass(frozen=True)
class CellRun:
    """A run with a cell's results; reading the history costs a request or a process."""

    id: str
    cell: Mapping[str, Any]
    summary: Mapping[str, Any]
    history: Callable[[], Iterable[Mapping[str, Any]]]


def read_results(stage: WandbReport) -> pd.DataFrame:
    """The results table of all cells that are found, with the columns of results.parquet.

    Raises:
        DataError: no run with results.
    """
    runs = read_runs(stage)
    if not runs:
        of_experiment = f" of {stage.experiment}" if stage.experiment else ""
        raise DataError(
            f"{stage.local or stage.project} contains no run with results{of_experiment}: give "
            "a project or folder that an analysis with wandb.mode=online or offline has written to."
        )
    cell_names = [run.cell["cell"] for run in runs]
    rows = []
    for name, run in zip(cell_names, runs, strict=True):
        unique_name = name + f"-{run.id}" * (
            cell_names.count(name) > 1
        )  # each of another experiment
        rows += parse_result_rows(run.summary, run.history(), {**run.cell, "cell": unique_name})
    return pd.DataFrame(rows, columns=list(COLUMNS))


def read_runs(stage: WandbReport) -> list[CellRun]:
    """The runs with a cell's results, one per id, in order of the cells' names."""
    every_run = offline_runs(Path(stage.local)) if stage.local else _iter_online_runs(stage)
    newest_by_id = {run.id: run for run in every_run}
    wanted = [r for r in newest_by_id.values() if stage.experiment in (None, r.cell["experiment"])]
    return sorted(wanted, key=lambda run: (run.cell["cell"], run.id))


def offline_runs(folder: Path) -> Iterable[CellRun]:
    """Yields the offline records with results below `folder`, the oldest first."""
    remedy = "there is no such folder. Give one of offline runs, such as runs/wandb."
    require(folder.is_dir(), "local", str(folder), remedy)
    for path in sorted(folder.glob("offline-run-*/run-*.wandb")):
        (record,) = _inspect_record(path, "--summary")
        cell = record.get("config", {}).get("cell")
        if cell is not None:
            yield CellRun(
                record["run_id"], cell, record["summary"], partial(_offline_history, path)
            )


def _offline_history(path: Path) -> Iterable[Mapping[str, Any]]:
    records = _inspect_record(path)
    return [record["history"]["item"] for record in records if record["type"] == "history"]


def _inspect_record(path: Path, *more: str) -> list[dict[str, Any]]:
    """What `wandb leet inspect --json` prints of a record: one object per line, or a single one."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", *more, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise DataError(
            f"{path} can't be read by `wandb leet inspect` ({last}): it needs wandb 0.31 or later "
            "and a whole record."
        )
    return [json.loads(done.stdout)] if more else list(map(json.loads, done.stdout.splitlines()))


def _iter_online_runs(stage: WandbReport) -> Iterable[CellRun]:
    """The project's runs by the public API, the oldest first."""
    import wandb

    project = f"{stage.entity}/{stage.project}" if stage.entity else str(stage.project)
    try:
        for run in wandb.Api().runs(project, order="+created_at"):
            cell = run.config.get("cell")
            if cell is not None:
                yield CellRun(run.id, cell, dict(run.summary), partial(_occurrences_history, run))
    except (wandb.errors.Error, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise DataError(
            f"project={project} can't be read ({reason}): check its name and owner, and log in "
            "with `wandb login`."
        ) from error


def _occurrences_history(run: Any) -> Iterable[Mapping[str, Any]]:
    """All rows of the history, not a sample; those of the training are left out."""
    return [row for row in run.scan_history() if row.get(OCCURRENCES) is not None]


def write_wandb_report(stage: WandbReport) -> Artifact:
    """Pulls the results and writes their report, or reuses it where it is finished."""
    results = read_results(stage)
    digest = hashlib.sha256(results.to_csv(index=False).encode()).hexdigest()
    name = f"wandb-{stage.experiment or stage.project or 'local'}"
    folder = run_folder(Path(stage.runs), KIND, name, stage, {"results": digest})
    return build_or_open(
        folder,
        stage,
        {"results": digest},
        lambda folder: _write_report_folder(folder, name, results),
    )


def _write_report_folder(folder: Path, name: str, results: pd.DataFrame) -> WrittenFiles:
    results.to_parquet(folder / RESULTS, index=False)
    parts = {str(cell): rows for cell, rows in results.groupby("cell", sort=False)}
    tables = {cell: cell_tables(rows) for cell, rows in parts.items()}
    rates = paper_learning_rate_table(results.assign(condition=results["cell"]))
    if rates is not None:
        tables[""] = [rates]
    written = write_tables(folder / TABLES, tables)
    title = f"{name}: detection of contamination, as logged to Weights & Biases"
    text = [f"# {escape_markdown(title)}"]
    for cell, tables_of_cell in tables.items():
        text.append(f"## {escape_markdown(cell or 'Over all cells')}")
        text += [
            f"### {escape_markdown(table.title)}\n\n{table.markdown()}" for table in tables_of_cell
        ]
    write_text_atomically(folder / REPORT, "\n\n".join(text) + "\n")
    content = [RESULTS, REPORT, *(str(path.relative_to(folder)) for path in written)]
    return WrittenFiles(content, {"cells": len(parts), "estimates": len(results)})
