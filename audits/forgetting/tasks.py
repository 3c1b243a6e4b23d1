"""Extraction and accuracy of members and non-members at each scored step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contamination.audits.base import AuditStage
from contamination.audits.forgetting.inputs import ForgettingCell, groups_of
from contamination.core.progress import progress_bar
from contamination.data.config import ExamplesConfig
from contamination.detection.config import ScoredModelConfig
from contamination.detection.tasks import accuracy, extraction
from contamination.detection.tasks.config import AccuracyStage, ExtractionConfig, ExtractionStage

ACCURACY, EXTRACTION, RECALL = "accuracy", "extraction", "recall"
CONDITION = ["condition", "step", "task", "occurrences"]


def tasks_table(
    stage: AuditStage,
    cells: Sequence[ForgettingCell],
    tasks: Sequence[str],
    config: ExtractionConfig,
) -> pd.DataFrame:
    """Runs the tasks with every scored model, unless their artefacts exist.

    Returns:
        One row per cell, step, task and group of members: condition, seed, step, task, occurrences,
        tokens_since, members, nonmembers (the means over benchmarks of the share of examples that
        were answered rightly or returned word for word, or of their tokens that were returned) and
        examples (the members asked). The extraction has rows of the task `recall`, too.
    """
    rows = []
    total = sum(len(cell.steps) for cell in cells) * len(tasks)
    with progress_bar(total=total, desc="forgetting", unit="model") as bar:
        for cell in cells:
            for scored in cell.steps:
                for task in tasks:
                    values_by_name = _run_task(stage, cell, scored.model, task, config)
                    for name, values in values_by_name.items():
                        rows += _rows_of_model(cell, scored.step, name, values)
                    bar.update()
    return pd.DataFrame(rows)


def _run_task(
    stage: AuditStage, cell: ForgettingCell, model: Path, task: str, config: ExtractionConfig
) -> dict[str, pd.Series[float]]:
    """Returns the values of each example that was asked, by its id, for what the task measures."""
    nodes: dict[str, Any] = {
        "runs": stage.runs,
        "examples": ExamplesConfig(path=str(cell.cell.corpus.artifact.path)),
        "model": ScoredModelConfig(str(model), stage.model.trust_remote_code),
        "detection": stage.detection,
    }
    if task == ACCURACY:
        answers = accuracy.run(AccuracyStage(**nodes)).table(accuracy.FILE)
        return {ACCURACY: answers.set_index("example_id")["correct"].astype(float)}
    texts = extraction.run(ExtractionStage(**nodes, extraction=config)).table(extraction.FILE)
    texts = texts.set_index("example_id")
    return {
        EXTRACTION: texts["extracted"].astype(float),
        RECALL: (texts["matched"] / texts["tokens"]).astype(float),
    }


def _rows_of_model(
    cell: ForgettingCell, step: int, task: str, values: pd.Series[float]
) -> list[dict[str, object]]:
    examples = cell.cell.cell.examples
    value = values.reindex(examples["example_id"]).to_numpy(np.float64)
    benchmarks = examples["benchmark"].to_numpy(str)
    asked, outside = np.isfinite(value), ~examples["member"].to_numpy(bool)
    rows: list[dict[str, object]] = []
    for occurrences, group in groups_of(cell):
        names = [
            name
            for name in np.unique(benchmarks)
            if all((side & asked & (benchmarks == name)).any() for side in (group, outside))
        ]
        if not names:
            continue
        members, nonmembers = (
            np.mean([value[side & asked & (benchmarks == name)].mean() for name in names])
            for side in (group, outside)
        )
        rows.append({
            "condition": cell.cell.cell.condition, "seed": cell.cell.cell.seed, "step": step,
            "task": task, "occurrences": occurrences,
            "tokens_since": cell.since(step, group)["tokens_since"],
            "members": float(members), "nonmembers": float(nonmembers),
            "examples": int((group & asked).sum()),
        })  # fmt: skip
    return rows
