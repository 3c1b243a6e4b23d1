"""The one-run audit as a command: its artefact, its sentences, and bad input."""

import json
from dataclasses import replace

import numpy as np
import pytest

from contamination.analysis.wandb.read import _inspect_record, offline_runs
from contamination.audits import cells as cells_module
from contamination.audits.base import AuditStage
from contamination.audits.one_run_bound.guesses import GuessRule, OneRunBound
from contamination.audits.one_run_bound.report import Group, report
from contamination.audits.run import MARKDOWN, run
from contamination.core.errors import ConfigError
from contamination.core.report.document import markdown_document
from contamination.training.config import WandbConfig
from tests.analysis.wandb.test_wandb import needs_reader
from tests.audits.reference_attack.simulated import audited_cell, draw_cells


@pytest.fixture(autouse=True)
def one_cell(monkeypatch):
    phi, dose = draw_cells(2, 200, 2.0, between=0.1)
    cells = [audited_cell(p, d, p, k) for k, (p, d) in enumerate(zip(phi, dose, strict=True))]
    monkeypatch.setattr(cells_module, "open_cells", lambda field, given: cells[:given])
    monkeypatch.setattr("contamination.injection.membership.check_membership", lambda *_: None)
    return cells[0]


def stage(tmp_path, **fields):
    target = "contamination.audits.one_run_bound.audit.OneRun"
    return AuditStage(audit={"_target_": target, "cells": 1, **fields}, runs=str(tmp_path))


def test_the_audit_is_an_artefact_with_a_bound(tmp_path):
    made = run(stage(tmp_path))
    assert {*made.files} == {"bound.csv", "bound.parquet", MARKDOWN, "report.html"}
    text = (made.path / MARKDOWN).read_text()
    assert f"**ε ≥ {made.counts['epsilon']:.2f}** (δ = 1e-05, 95% confidence)" in text
    assert made.counts["guesses"] == 50  # a quarter of 200, half of them on each side
    assert made.counts["epsilon"] > 0.5
    assert "named in advance" in text
    assert json.loads(json.dumps(dict(made.counts)))


def test_every_setting_that_changes_the_bound_names_the_folder(tmp_path, folder_of):
    changes = [{}, {"delta": 0.0}, {"confidence": 0.9}, {"shares": [0.5]}, {"attacks": ["min_k"]},
               {"choose": "on_half"}]  # fmt: skip
    assert len({folder_of(stage(tmp_path, **change)) for change in changes}) == len(changes)


def test_several_rules_are_said_and_corrected(tmp_path):
    made = run(stage(tmp_path, attacks=["loss", "min_k"], shares=[0.1, 0.25]))
    text = (made.path / MARKDOWN).read_text()
    assert "the best of 4 named in advance, at a corrected level" in text
    assert "95% confidence" in text
    assert made.table("bound.parquet")["confidence"].item() == pytest.approx(1 - 0.05 / 4)


def test_a_half_is_chosen_on_and_the_other_judged(tmp_path):
    made = run(stage(tmp_path, choose="on_half", attacks=["loss", "min_k"]))
    assert made.table("bound.parquet")["examples"].item() == 100
    assert "chosen on the other half" in (made.path / MARKDOWN).read_text()


def test_a_bound_of_zero_is_no_proof_of_privacy():
    rule = GuessRule("loss", 0.25)
    nothing = OneRunBound(rule, 0.0, 0.6, 800, 200, 98, 1e-5, 0.95, 4.1)
    content = report(nothing, Group(4, 4, 8), 1, False, {})
    text = markdown_document(content)
    (table,) = content.tables
    assert table.header == [
        "attack", "ε at least", "δ", "guesses", "right", "examples", "p of ε = 0", "copies",
    ]  # fmt: skip
    assert table.lines == [["loss", "0.000", "1e-05", "200", "98", "800", "0.6", "4"]]
    assert "**No ε above 0 is shown**" in text
    assert "an example with its 4 copies, in up to 8 sequences" in text
    assert "does not show privacy" in text


def test_a_bound_for_one_copy_follows_only_without_delta():
    rule = GuessRule("loss", 0.25)
    for delta, follows in ((0.0, True), (1e-5, False)):
        found = OneRunBound(rule, 2.0, 1e-9, 800, 200, 190, delta, 0.95, 4.1)
        text = markdown_document(report(found, Group(4, 4, 8), 1, False, {}))
        assert ("For one copy it follows that ε ≥ 0.50" in text) == follows


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cells": None}, "audit.cells is None"),
        ({"attacks": ["los"]}, "audit.attacks is 'los': .* Did you mean loss"),
        ({"attacks": []}, "audit.attacks"),
        ({"attacks": ["loss", "loss"]}, "audit.attacks"),
        ({"shares": [0.0]}, "audit.shares"),
        ({"choose": "afterwards"}, "audit.choose is 'afterwards': choose from in_advance"),
        ({"delta": 0.01}, "audit.delta is 0.01: with 200 examples give less than 0.005"),
        ({"delta": -1}, "audit.delta is -1"),
        ({"confidence": 1.0}, "audit.confidence is 1.0"),
        ({"cells": 2}, "audit.cell is None: name one cell. Known: m-lr0.001"),
        ({"cells": 2, "cell": "m"}, "audit.cell is 'm': name one cell"),
    ],
)
def test_bad_fields_are_named(tmp_path, fields, words):
    with pytest.raises(ConfigError, match=words):
        run(stage(tmp_path, **fields))


def test_no_score_of_a_label_is_used(one_cell, tmp_path):
    """With labels drawn anew the guesses are the same, and as many are right as by chance."""
    made = run(stage(tmp_path, shares=[1.0]))
    rng = np.random.default_rng(99)
    one_cell.cell.examples["member"] = rng.random(200) < 0.5
    again = run(stage(tmp_path / "b", shares=[1.0]))
    assert again.counts["guesses"] == made.counts["guesses"] == 200
    assert again.counts["correct"] < 125 < made.counts["correct"]


@needs_reader
def test_its_numbers_table_and_page_are_a_run_in_weights_and_biases(tmp_path):
    mirrored = replace(stage(tmp_path), wandb=WandbConfig("offline"), name="private")
    artifact = run(mirrored)
    (path,) = tmp_path.glob(f"wandb/offline-run-*{artifact.path.name[-12:]}/*.wandb")
    (run_fields,) = [line["run"] for line in _inspect_record(path) if line["type"] == "run"]
    assert (run_fields["run_group"], run_fields["job_type"]) == ("private", "audit")
    (record,) = _inspect_record(path, "--summary")
    summary = record["summary"]
    assert summary["one_run_bound/epsilon"] == pytest.approx(artifact.counts["epsilon"])
    assert {"tables/one_run_bound/bound", "pages/one_run_bound"} <= summary.keys()
    assert [*offline_runs(tmp_path / "wandb")] == []  # not taken for a cell
    run(mirrored)  # reused, so not logged again
    assert len([*tmp_path.glob("wandb/offline-run-*")]) == 1


def test_cells_of_several_doses_are_told_apart_by_name(tmp_path, monkeypatch):
    """Their conditions are named alike until their numbers of copies tell them apart."""
    phi, dose = draw_cells(2, 200, 2.0, between=0.1)
    cells = [
        audited_cell(p, copies * d, p, number, copies=copies)
        for number, (p, d, copies) in enumerate(zip(phi, dose, (1, 4), strict=True))
    ]
    cells = [replace(c, cell=replace(c.cell, seed=0, name=cells[0].name)) for c in cells]
    monkeypatch.setattr(cells_module, "open_cells", lambda *_: cells)
    with pytest.raises(ConfigError, match=r"occurrences1.*occurrences4"):
        run(stage(tmp_path, cell=cells[0].name))


def test_members_with_different_numbers_of_copies_are_warned_of():
    """These are drawn for all members together, so a coin changes more than its example."""
    lower_bound = OneRunBound(GuessRule("loss", 0.25), 1.0, 0.01, 200, 50, 40, 1e-5, 0.95, 3.0)
    ladder = report(lower_bound, Group(1, 8, 16), 1, False, {})
    assert any("1 to 8 copies" in warning for warning in ladder.warnings)
    assert not report(lower_bound, Group(8, 8, 16), 1, False, {}).warnings


def test_an_attack_that_is_no_name_is_an_error_and_no_traceback(tmp_path):
    with pytest.raises(ConfigError, match=r"audit.attacks is None.*loss"):
        run(stage(tmp_path, attacks=[None]))
