"""The audit of inflation as a command: its artefact, its settings and bad input."""

from dataclasses import replace

import pandas as pd
import pytest

from contamination.audits.base import AuditStage
from contamination.audits.inflation import inputs
from contamination.audits.inflation.audit import REVISION, Inflation
from contamination.audits.run import run
from contamination.core.errors import ConfigError, DataError
from tests.audits.checks import check_preparation
from tests.audits.inflation.simulated import ITEMS, serve_cells, simulated_cells, with_model


@pytest.fixture(autouse=True)
def cells(monkeypatch):
    answered = [*simulated_cells(2, direct=1.0)]
    return answered, serve_cells(monkeypatch, answered)


def stage(tmp_path, **fields):
    target = "contamination.audits.inflation.audit.Inflation"
    return AuditStage(audit={"_target_": target, "cells": "report", **fields}, runs=str(tmp_path))


def test_the_audit_is_an_artefact_with_a_row_per_item(tmp_path):
    artifact = run(stage(tmp_path))
    tables = ("effects_accuracy", "effects_margin", "clean", "null", "detectability")
    expected = {f"{name}.{kind}" for name in tables for kind in ("csv", "parquet")}
    assert {*artifact.files} == {*expected, "items.parquet", "audit.md", "report.html"}
    assert artifact.counts == {"cells": 6, "conditions": 1}
    items = pd.read_parquet(artifact.path / "items.parquet")
    assert len(items) == 4 * ITEMS
    assert [*items] == [
        "example_id", "benchmark", "chance", "condition", "seed", "swapped", "occurrences",
        "accuracy", "margin", "twin_accuracy", "twin_margin",
    ]  # fmt: skip
    assert run(stage(tmp_path, cells="another path")).path == artifact.path


def test_the_audit_is_named_by_its_first_model_and_based_on_all_cells(tmp_path, cells):
    answered, calls = cells
    answered[0] = with_model(answered[0], "first")
    audit_stage = AuditStage(audit={})
    prepared = Inflation(cells="report", confidence=0.9).prepare(audit_stage)
    assert calls == [(("audit.cells", "report"), {"members_in_finetuning": True})]
    check_preparation(prepared, [entry.cell for entry in answered], REVISION, audit_stage)
    result = prepared.conduct(tmp_path)
    assert result.content.facts == {
        "contaminated cells": "4", "clean twins": "2", "items": "160",
        "confidence of intervals": "90%",
    }  # fmt: skip
    assert result.files == ["items.parquet"]


def test_cells_without_common_questions_are_refused_by_the_field(tmp_path, cells):
    answered, _ = cells
    answers = answered[-1].answers
    answers.drop(answers.index[1:], inplace=True)  # noqa: PD002
    with pytest.raises(DataError, match=r"^audit\.cells: .* share 1 question\."):
        run(stage(tmp_path))


def test_candidates_are_chosen_on_the_seed_that_is_given(tmp_path):
    artifact = run(stage(tmp_path, choose_seed=1))
    table = pd.read_parquet(artifact.path / "detectability.parquet")
    assert table.groupby("part")["seeds"].unique().map(list).to_dict() == {
        "chosen on": ["1"],
        "confirmed on": ["0"],
    }


def test_every_setting_that_changes_the_result_names_the_folder(tmp_path, folder_of):
    changes = [{}, {"confidence": 0.9}, {"choose_seed": 1}]
    assert len({folder_of(stage(tmp_path, **change)) for change in changes}) == len(changes)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cells": None}, "audit.cells is None"),
        ({"confidence": 1}, "audit.confidence is 1"),
        ({"choose_seed": 7}, "audit.choose_seed is 7: no cell has this seed. Choose from 0, 1.$"),
    ],
)
def test_bad_fields_are_named(tmp_path, fields, words):
    with pytest.raises(ConfigError, match=words):
        run(stage(tmp_path, **fields))


def test_cells_without_a_clean_twin_are_refused_by_the_field(tmp_path, monkeypatch):
    contaminated = [one.cell for one in simulated_cells(2) if one.cell.doses.any()]
    monkeypatch.setattr("contamination.audits.cells.open_cells", lambda *_, **__: contaminated)
    with pytest.raises(ConfigError, match=r"^audit\.cells: .* has no clean twin"):
        run(stage(tmp_path))


def test_clean_twins_of_both_replicates_with_one_model_are_asked_once(monkeypatch, tmp_path):
    """Without copies both trainings read the same corpus; only the names of their cells differ."""
    answered = [*simulated_cells(2, direct=1.0)]
    twins = [one for one in answered if not one.cell.doses.any()]
    for twin in twins:
        cell = twin.cell.cell
        other = replace(cell, name=f"{cell.name}-swapped", swapped=True)
        answered.append(replace(twin, cell=replace(twin.cell, cell=other)))
    by_name, asked = {one.cell.name: one.answers for one in answered}, []

    def ask(stage, cell, pool):
        asked.append(cell.name)
        return by_name[cell.name]

    monkeypatch.setattr(inputs, "_ask", ask)
    (group,) = inputs.read_groups("cells", stage(tmp_path), [one.cell for one in answered])
    assert (len(answered), len(group.cells)) == (8, 4)
    assert len(asked) == 6
