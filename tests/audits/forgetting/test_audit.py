"""The audit of forgetting as a command, and the tasks that it runs with each scored model."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from tqdm import tqdm

from contamination.audits.base import AuditStage
from contamination.audits.forgetting import audit, inputs, tasks
from contamination.audits.run import read_findings, run
from contamination.detection.config import DetectionConfig, ScoredModelConfig
from contamination.detection.tasks.config import AccuracyStage, ExtractionConfig, ExtractionStage
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
    assert "- cells: 2\n- method: loss, named in advance\n" in text
    assert "- scored models left out: 2, from before the last exposure\n" in text
    assert "A condition has 2 seeds. With fewer than 3" in text
    assert artifact.counts["cells"] == 2
    for name, seeds in (("points.csv", [0, 1]), ("fits.csv", [0, 1]), ("factors.csv", [0, 1])):
        assert sorted({*pd.read_csv(artifact.path / name)["seed"]}) == seeds
    moved = {**stage.audit, "cells": "another path"}
    assert run(replace(stage, audit=moved)).path == artifact.path


def test_results_of_an_older_revision_are_not_taken(stage, folder_of, monkeypatch):
    folder = folder_of(stage)
    assert folder_of(stage) == folder
    monkeypatch.setattr(audit, "REVISION", audit.REVISION + 1)
    assert folder_of(stage) != folder


def prepared(stage, **fields):
    return audit.Forgetting(cells="report", methods=["loss"], **fields).prepare(stage)


def test_the_inputs_are_the_cells_and_the_scores_of_each_step(stage, cells):
    preparation = prepared(stage, tasks=[])
    names = [cell.cell.name for cell in cells]
    for seed, name in enumerate(names):
        assert {key for key in preparation.inputs if key.startswith(f"{name}/step")} == {
            f"{name}/step {step}" for step in STEPS
        }
        assert preparation.inputs[f"{name}/step {STEPS[0]}"] == f"{seed}-{STEPS[0]}"
    assert {**cells[0].cell.digests, **cells[1].cell.digests}.items() <= preparation.inputs.items()
    assert preparation.slug == cells[0].cell.cell.model
    assert preparation.settings == {"revision": audit.REVISION}


def test_the_tasks_extract_as_many_tokens_as_were_asked_for(stage, cells, monkeypatch, tmp_path):
    calls = []

    def tasks_table(*arguments):
        calls.append(arguments)
        return pd.DataFrame()

    monkeypatch.setattr(tasks, "tasks_table", tasks_table)
    fields = {"tasks": ["extraction"], "extraction_tokens": 7, "extraction_prefix": 13}
    prepared(stage, **fields).conduct(tmp_path)
    assert calls == [(stage, cells, ["extraction"], ExtractionConfig(tokens=7, prefix_tokens=[13]))]


@pytest.mark.parametrize(("fewest", "seeds", "warning"), [
    (2, 2, None), (3, 2, "A condition has 2 seeds. With fewer than 3 a half-life's interval"),
    (3, 1, "A condition has 1 seed. With fewer than 3"),
])  # fmt: skip
def test_few_seeds_are_warned_of(stage, cells, monkeypatch, tmp_path, fewest, seeds, warning):
    monkeypatch.setattr("contamination.audits.forgetting.report.FEWEST_SEEDS", fewest)
    monkeypatch.setattr(inputs, "read_cells", lambda field, opened: cells[:seeds])
    warnings = prepared(stage, tasks=[]).conduct(tmp_path).content.warnings
    of_seeds = [text for text in warnings if text.startswith("A condition has")]
    assert len(of_seeds) == (warning is not None)
    assert all(text.startswith(warning) for text in of_seeds)


def record_stage(tables, stages):
    """A task's `run` that keeps its stage and returns a table of examples."""

    def run(stage):
        stages.append(stage)
        return SimpleNamespace(table=lambda name: tables[name])

    return run


def test_a_task_asks_the_scored_model_about_the_cells_corpus(cells, monkeypatch):
    table = pd.DataFrame({
        "example_id": ["b", "a"], "correct": [True, False], "extracted": [False, True],
        "matched": [3, 8], "tokens": [4, 8],
    })  # fmt: skip
    stages = []
    for module in (tasks.accuracy, tasks.extraction):
        monkeypatch.setattr(module, "run", record_stage({module.FILE: table}, stages))
    stage = AuditStage(
        audit={}, runs="runs", model=ScoredModelConfig(trust_remote_code=True),
        detection=DetectionConfig(device="cpu", batch_tokens=77),
    )  # fmt: skip
    config = ExtractionConfig(tokens=7)
    values = {
        task: tasks._run_task(stage, cells[0], Path("step-5"), task, config)
        for task in ("accuracy", "extraction")
    }
    for task_stage in stages:
        assert task_stage.runs == "runs"
        assert task_stage.examples.path == str(cells[0].cell.corpus.artifact.path)
        assert (task_stage.model.path, task_stage.model.trust_remote_code) == ("step-5", True)
        assert task_stage.detection == stage.detection
    assert [type(task_stage) for task_stage in stages] == [AccuracyStage, ExtractionStage]
    assert stages[1].extraction == config
    assert values["accuracy"]["accuracy"].to_dict() == {"b": 1.0, "a": 0.0}
    assert values["extraction"]["extraction"].to_dict() == {"b": 0.0, "a": 1}
    assert values["extraction"]["recall"].to_dict() == {"b": 0.75, "a": 1.0}


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

    bars = []

    def progress_bar(**options):
        bars.append(options)
        return tqdm(disable=True)

    monkeypatch.setattr(tasks, "_run_task", run_task)
    monkeypatch.setattr(tasks, "progress_bar", progress_bar)
    table = tasks.tasks_table(None, [cell], ["accuracy", "extraction"], ExtractionConfig())
    assert bars == [{"total": 2 * len(STEPS), "desc": "forgetting", "unit": "model"}]
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
    assert {*table["seed"]} == {cell.cell.cell.seed}
    assert {*table["condition"]} == {cell.cell.cell.condition}
    first = table[table["step"] == STEPS[0]]
    assert first["tokens_since"].iloc[0] == cell.since(STEPS[0], cell.doses > 0)["tokens_since"]
