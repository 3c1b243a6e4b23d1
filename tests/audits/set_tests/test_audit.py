"""The set tests as a command: its artefact and bad input."""

from dataclasses import replace

import pandas as pd
import pytest

from contamination.audits.base import AuditStage
from contamination.audits.run import run
from contamination.audits.set_tests.audit import REVISION, SetTests
from contamination.audits.set_tests.findings import SetFindings, blind_p_values, labelled_texts
from contamination.audits.set_tests.outcomes import run_tests
from contamination.audits.set_tests.sets import ScoredSet
from contamination.core.errors import ConfigError, DataError
from tests.audits.checks import check_preparation
from tests.audits.reference_attack.simulated import audited_cells
from tests.audits.set_tests.simulated import simulated_set


@pytest.fixture(autouse=True)
def cells(monkeypatch):
    cells, open_calls, read_calls = audited_cells(2, 40, 1.0), [], []
    monkeypatch.setattr(
        "contamination.audits.cells.open_cells",
        lambda *arguments: open_calls.append(arguments) or cells,
    )

    def read_sets(stage, cell, *options):
        read_calls.append((stage, cell.name, *options))
        return [simulated_set(cell.cell.seed, saw_it=saw_it) for saw_it in (True, False)]

    monkeypatch.setattr("contamination.audits.set_tests.inputs.read_sets", read_sets)
    return cells, open_calls, read_calls


def stage(tmp_path, **fields):
    target = "contamination.audits.set_tests.audit.SetTests"
    node = {"_target_": target, "cells": "report", "draws": 3, "sizes": [20], **fields}
    return AuditStage(audit=node, runs=str(tmp_path))


def test_the_audit_is_an_artefact(tmp_path):
    artifact = run(stage(tmp_path))
    names = {"errors", "power", "verdicts", "items", "context", "outcomes"}
    expected = {f"{name}.{kind}" for name in names for kind in ("csv", "parquet")}
    own = {name for name in artifact.files if not name.startswith("charts/")}
    assert own == {*expected, "audit.md", "report.html"}
    assert {*artifact.files} - own
    assert artifact.counts["cells"] == 2
    assert len(artifact.table("outcomes.parquet")) == artifact.counts["p_values"]
    verdicts = artifact.table("verdicts.parquet")
    blind = verdicts.groupby("test")["blind_p"].count()
    assert blind["twins, relabelled"] == 4
    assert blind["versions"] == 0
    assert run(stage(tmp_path, cells="another path")).path == artifact.path


def test_the_audit_is_named_by_its_first_model_and_says_what_it_is_based_on(tmp_path, cells):
    audited, open_calls, read_calls = cells
    audited[0] = replace(audited[0], cell=replace(audited[0].cell, model="first"))
    audit = SetTests(cells="report", sizes=[20], draws=1, alpha=0.1, item_level=0.2,
                     version_method="zlib", context=False)  # fmt: skip
    audit_stage = AuditStage(audit={}, seed=4)
    prepared = audit.prepare(audit_stage)
    assert open_calls == [("audit.cells", "report")]
    check_preparation(prepared, audited, REVISION, audit_stage)
    result = prepared.conduct(tmp_path)
    assert read_calls == [(audit_stage, cell.name, "zlib", False, None, {}) for cell in audited]
    assert read_calls[0][-1] is read_calls[1][-1]  # drops under models that cells share
    assert result.content.facts == {
        "cells": "2", "sets": "4", "draws": "1 for each set and size", "versions scored by": "zlib",
        "level": "0.1",
    }  # fmt: skip
    tables = {table.name: table for table in result.content.tables}
    assert result.counts == {"cells": 2, "p_values": len(tables["outcomes"].data)}
    assert "for at most 20% wrong ones" in tables["items"].note
    sets = [simulated_set(seed, saw_it=saw_it) for seed in (0, 1) for saw_it in (True, False)]
    outcomes = run_tests(sets, [20], 1, 4)
    pd.testing.assert_frame_equal(tables["outcomes"].data, outcomes)
    expected = SetFindings(sets, outcomes, blind_p_values(sets, 4), 0.1, 0.2, 4)
    pd.testing.assert_frame_equal(tables["items"].data, expected.items)
    pd.testing.assert_frame_equal(tables["verdicts"].data, expected.verdicts)


def test_cells_to_which_no_test_can_be_applied_are_refused(tmp_path, monkeypatch):
    bare = ScoredSet(simulated_set().name)
    monkeypatch.setattr("contamination.audits.set_tests.inputs.read_sets", lambda *_: [bare])
    with pytest.raises(DataError) as error:
        run(stage(tmp_path))
    assert str(error.value) == (
        "audit.cells: no test can be applied to any set. Give cells with 10 or more members of a "
        "benchmark and as many held-out examples, or versions of so many items."
    )


def test_texts_are_not_compared_without_the_model_if_blind_is_false(tmp_path):
    audit = SetTests(cells="report", blind=False, sizes=[], draws=0)
    content = audit.prepare(AuditStage(audit={})).conduct(tmp_path).content
    verdicts = next(table.data for table in content.tables if table.name == "verdicts")
    assert len(verdicts)
    assert verdicts["blind_p"].isna().all()


def test_each_sets_texts_are_compared_for_themselves():
    """Results are kept by the ids of texts, so that other texts and labels need other ids."""
    first, second = (simulated_set(seed).examples for seed in (0, 1))
    relabelled = replace(first, is_member=~first.is_member)
    ids = [
        (*labelled_texts(examples).column("example_id").to_pylist(),)
        for examples in (first, second, relabelled)
    ]
    assert len({*ids}) == 3
    assert len({*ids[0]}) == len(first.texts)


def test_every_setting_that_changes_the_result_names_the_folder(tmp_path, folder_of):
    changes = [{"alpha": 0.1}, {"sizes": []}, {"draws": 4}, {"item_level": 0.2}, {"context": False},
               {"version_method": "zlib"}, {}]  # fmt: skip
    paths = {folder_of(stage(tmp_path, blind=False, **change)) for change in changes}
    assert len(paths) == len(changes)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cells": None}, "audit.cells is None"),
        ({"sizes": [20, 20]}, "audit.sizes"),
        ({"sizes": [1]}, "audit.sizes"),
        ({"draws": -1}, "audit.draws is -1"),
        ({"alpha": 0}, "audit.alpha is 0"),
        ({"item_level": 1}, "audit.item_level is 1"),
        ({"version_method": "los"}, "audit.version_method is 'los'.*loss"),
    ],
)
def test_bad_fields_are_named(tmp_path, fields, words):
    with pytest.raises(ConfigError, match=words):
        run(stage(tmp_path, **fields))
