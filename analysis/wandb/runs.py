"""The mirror of the results in Weights & Biases: one run per cell, the one of its training.

Online, that run is continued. Offline, its record is a second folder with the same id, which
`wandb sync` joins to the first.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import copy
from typing import Any

import pandas as pd

from contamination.analysis.cells import CONTAMINATED, Cell
from contamination.analysis.config import AnalysisStage
from contamination.analysis.factors import factor_values
from contamination.analysis.report_folder import CHARTS, Report
from contamination.analysis.statistics.trends import OCCURRENCES
from contamination.analysis.tables.estimates import cell_tables
from contamination.analysis.wandb.keys import (
    BY_OCCURRENCES,
    ENDS,
    NEEDS,
    P_VALUE,
    SIZES,
    method_by_label,
    occurrences_history_rows,
    summary_values,
)
from contamination.core.report.tables import Table, write_tables
from contamination.training.metrics import TRAIN, open_wandb_run
from contamination.training.trained_model import Checkpoint, open_checkpoint

log = logging.getLogger(__name__)

HIDDEN = (*ENDS, *SIZES, NEEDS, P_VALUE)
"""Keys that get no panel of their own."""
ANALYSE = "analyse"
"""The type of a run without a training."""


def mirror_to_wandb(stage: AnalysisStage, cells: Sequence[Cell], report: Report) -> None:
    """Logs each cell's results and attaches its tables and charts; the report is finished by then.

    A mirror that fails (no network, no login) is a warning: the report is the record.
    """
    if stage.wandb.mode == "disabled":
        return
    import wandb

    trained = _training_runs(stage, cells)
    try:
        for cell in cells:
            chart_names = {
                name
                for cell_or_other in cells
                for name in (cell_or_other.name, cell_or_other.condition)
            }
            names_of_others = chart_names - {
                cell.name,
                cell.condition,
            }  # how the others' charts' names end
            rows = report.results[report.results["cell"] == cell.name]
            config = {"cell": {**_cell_config(stage, cell), "methods": method_by_label(rows)}}
            with _open_cell_run(stage, trained[cell.name], config) as run:
                _log_results(run, rows)
                _attach_files(
                    run, cell, cell_tables(rows), report.artifact.path / CHARTS, names_of_others
                )
                run.summary.update(dict(trained[cell.name].last))
    except wandb.errors.Error as error:
        log.warning(
            "The report is finished, but Weights & Biases failed (%s): log in with `wandb login` "
            "or give wandb.mode=offline, remove %s and run this again.",
            str(error).strip().splitlines()[0],
            report.artifact.path,
        )


def _log_results(run: Any, results: pd.DataFrame) -> None:
    """The numbers: curves over the occurrences, and in the summary all that names its number.

    By itself wandb would put each curve's last point there, under a key without its number.
    """
    for name in HIDDEN:
        run.define_metric(f"{name}/*", hidden=True)
    run.define_metric(OCCURRENCES, hidden=True, summary="none")
    rows = occurrences_history_rows(results)
    for key in sorted({key for row in rows for key in row} - {OCCURRENCES}):
        hidden = key.removeprefix(BY_OCCURRENCES).startswith(HIDDEN)
        exact = key.replace(".", r"\.")  # to wandb a dot is a level; no pattern matches beyond it
        run.define_metric(exact, step_metric=OCCURRENCES, summary="none", hidden=hidden)
    for row in rows:
        run.log(row)
    run.summary.update(summary_values(results))


@dataclasses.dataclass(frozen=True)
class _TrainingRun:
    """The run of a cell's training (named by `training.metrics`)."""

    id: str
    name: str
    group: str
    job_type: str
    last: Mapping[str, float]
    """The training's own summary: repeated, since a run's summary is replaced as a whole."""


def _training_runs(stage: AnalysisStage, cells: Sequence[Cell]) -> dict[str, _TrainingRun]:
    """Cell → its training's run. Cells of one model get a run each, named after their scores."""
    models = [open_checkpoint(paths.model) for paths in stage.cells]
    model_by_digest = {model.artifact.digest: model for model in models}
    digests = [cell.digests["model"] for cell in cells]
    runs = {}
    for cell in cells:
        model = model_by_digest[cell.digests["model"]]
        name = model.artifact.path.resolve().name
        is_only_cell = digests.count(cell.digests["model"]) == 1
        suffix = "" if is_only_cell else f"-{cell.digests[CONTAMINATED][:6]}"
        identity = name.rsplit("-", 1)[-1] + suffix
        runs[cell.name] = _TrainingRun(
            id=identity,
            name=name + suffix,
            group=str(model.config["name"]),
            job_type=TRAIN if is_only_cell else ANALYSE,
            last=_last_values(model),
        )
    return runs


def _last_values(model: Checkpoint) -> dict[str, float]:
    """The last numbers of each kind, under the keys that `training.metrics` gives them."""
    last_values: dict[str, float] = {}
    for kind, table in (("train", model.metrics), ("eval", model.evaluations)):
        for name in table.columns.drop("step"):
            measured = table[name].dropna()
            last_values |= {f"{kind}/{name}": float(measured.iloc[-1])} if len(measured) else {}
    return last_values


@contextmanager
def _open_cell_run(
    stage: AnalysisStage, trained: _TrainingRun, config: Mapping[str, Any]
) -> Iterator[Any]:
    run_options = {name: getattr(trained, name) for name in ("id", "name", "group", "job_type")}
    settings = {"console": "off", "x_disable_stats": True}
    run = open_wandb_run(
        stage.wandb, Path(stage.runs), settings, **run_options, config=dict(config)
    )
    try:
        yield run
    finally:
        run.finish()


def _cell_config(stage: AnalysisStage, cell: Cell) -> dict[str, Any]:
    """What runs are grouped and filtered by, such as `cell.learning_rate`."""
    values = {field.name: getattr(cell, field.name) for field in dataclasses.fields(cell)}
    values |= factor_values(cell)
    facts = {k: v for k, v in values.items() if isinstance(v, str | int | float)}
    measured = {"draws": stage.analysis.draws, "confidence": stage.analysis.confidence}
    facts = {"experiment": stage.name, "cell": facts.pop("name"), **facts, **measured}
    return {**facts, "artifacts": dict(cell.digests)}


def _attach_files(
    run: Any, cell: Cell, tables: Sequence[Table], charts: Path, names_of_others: set[str]
) -> None:
    """The cell's tables, and all charts but other cells' and conditions': to look at and as files.

    The report's own table files contain every cell, which would be too much for each run.
    """
    import wandb

    every_chart = sorted(charts.iterdir()) if charts.is_dir() else []
    charts_of_cell = [
        path
        for path in every_chart
        if not any(path.stem.endswith(f"-{name}") for name in names_of_others)
    ]
    media: dict[str, Any] = {
        f"tables/{table.name}": wandb.Table(list(table.header), list(map(list, table.lines)))
        for table in tables
    }
    media |= {f"charts/{p.stem}": wandb.Image(str(p)) for p in charts_of_cell if p.suffix == ".png"}
    run.log(media)
    record = Path(run.dir)
    (record / "charts").mkdir(exist_ok=True)
    files = write_tables(record / "tables", {cell.name: tables})
    files += [Path(copy(path, record / "charts")) for path in charts_of_cell]
    for path in files:
        run.save(str(path), base_path=run.dir, policy="now")
