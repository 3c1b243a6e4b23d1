"""The audit of forgetting as a command, and the tasks that it runs with each scored model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from contamination.audits.base import AuditStage
from contamination.audits.forgetting import audit, inputs, tasks
from contamination.audits.run import read_findings, run
from contamination.detection.tasks.config import ExtractionConfig
from tests.audits.forgetting.simulated import STEPS, forgetting_cell


@pytest.fixture(scope="module")
def cells():
    return [forgetting_cell(seed) for seed in range(2)]


@pytest.fixture
def stage(cells, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "contamination.audits.cells.open_cells", lambda *_, **__: [cell.cell for cell in cells]
    )
    monkeypatch.setattr("contamination.audits.cells.named_apart", list)
    monkeypatch.setattr(inputs, "read_cells", lambda field, opened: cells)
    target = "contamination.audits.forgetting.audit.Forgetting"
    node = {"_target_": target, "cells": "report", "methods": ["loss"], "tasks": []}
    return AuditStage(audit=node, runs=str(tmp_path))


def test_the_audit_is_an_artefact_that_says_which_method_was_named_in_advance(stage):
    artifact = run(stage)
    assert {"points.csv", "fits.csv", "factors.csv", "means.csv"} <= {*artifact.files}
    text = read_findings(artifact)
    assert "- method: loss, named in advance\n" in text
    assert "- scored models left out: 2, from before the last exposure\n" in text
    assert "A condition has 2 seeds. With fewer than 3" in text
    moved = {**stage.audit, "cells": "another path"}
    assert run(replace(stage, audit=moved)).path == artifact.path


def test_results_of_an_older_revision_are_not_taken(stage, folder_of, monkeypatch):
    folder = folder_of(stage)
    assert folder_of(stage) == folder
    monkeypatch.setattr(audit, "REVISION", audit.REVISION + 1)
    assert folder_of(stage) != folder


def answers(cell):
    """Of all examples but the first four, in another order; more of the members' are right."""
    examples = cell.cell.cell.examples
    rng = np.random.default_rng(0)
    right = rng.random(len(examples)) < np.where(examples["member"], 0.8, 0.3)
    values = pd.Series(right.astype(float), index=examples["example_id"])
    return values.iloc[:3:-1]


def test_tasks_are_means_over_the_benchmarks_of_the_examples_that_were_asked(cells, monkeypatch):
    cell, asked = cells[0], []

    def run_task(stage, cell, model, task, config):
        asked.append((model, task))
        return {task: answers(cell)}

    monkeypatch.setattr(tasks, "_run_task", run_task)
    table = tasks.tasks_table(None, [cell], ["accuracy", "extraction"], ExtractionConfig())
    assert asked == [
        (Path(f"step-{step}"), task) for step in STEPS for task in ("accuracy", "extraction")
    ]
    assert len(table) == len(asked) * 3  # all members, those of one copy and those of four
    examples, values = cell.cell.cell.examples, answers(cell)
    expected = {}
    for group, doses in (("any", {1, 4}), ("1", {1}), ("4", {4}), ("none", {0})):
        by_benchmark = [
            [values[row.example_id] for row in examples.itertuples()
             if row.example_id in values and row.benchmark == name and row.occurrences in doses]
            for name in ("boolq", "imdb")
        ]  # fmt: skip
        expected[group] = (
            np.mean([np.mean(own) for own in by_benchmark]),
            len(sum(by_benchmark, [])),
        )
    for row in table.itertuples():
        assert (row.members, row.examples) == pytest.approx(expected[row.occurrences])
        assert row.nonmembers == pytest.approx(expected["none"][0])
    first = table[table["step"] == STEPS[0]]
    assert first["tokens_since"].iloc[0] == cell.since(STEPS[0], cell.doses > 0)["tokens_since"]
