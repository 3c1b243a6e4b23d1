"""A report folder from the results that Weights & Biases holds: results.parquet and the tables.

Its name is a hash of those results. Intervals over seeds need the bootstrap's draws, which only the
scores give: here every cell stands by itself.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pandas as pd

from analysis.config import WandbReport
from analysis.folder import KIND, REPORT, RESULTS, TABLES
from analysis.mirror.read import read_results
from analysis.tables.papers import learning_rate_table
from analysis.tables.table import write_tables
from analysis.tables.tables import cell_tables
from core.artifacts import Artifact, Built, build, locate
from core.files import write_text


def write_wandb_report(stage: WandbReport) -> Artifact:
    """Pull the results and write their report, or reuse it where it is finished."""
    results = read_results(stage)
    digest = hashlib.sha256(results.to_csv(index=False).encode()).hexdigest()
    name = f"wandb-{stage.experiment or stage.project or 'local'}"
    folder = locate(Path(stage.runs), KIND, name, stage, {"results": digest})
    return build(folder, stage, {"results": digest}, lambda folder: _make(folder, name, results))


def _make(folder: Path, name: str, results: pd.DataFrame) -> Built:
    results.to_parquet(folder / RESULTS, index=False)
    parts = {str(cell): part for cell, part in results.groupby("cell", sort=False)}
    tables = {cell: cell_tables(part) for cell, part in parts.items()}
    rates = learning_rate_table(results.assign(condition=results["cell"]))
    if rates is not None:
        tables[""] = [rates]
    written = write_tables(folder / TABLES, tables)
    text = [f"# {name}: detection of contamination, as logged to Weights & Biases"]
    for cell, some in tables.items():
        text.append(f"## {cell or 'Over all cells'}")
        text += [f"### {table.title}\n\n{table.markdown()}" for table in some]
    write_text(folder / REPORT, "\n\n".join(text) + "\n")
    content = [RESULTS, REPORT, *(str(path.relative_to(folder)) for path in written)]
    return Built(content, {"cells": len(parts), "estimates": len(results)})
