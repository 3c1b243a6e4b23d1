"""What the audit says of planted effects, of nothing, and of cells that can't be compared."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.base import AuditStage
from contamination.audits.decontamination import audit, inputs
from contamination.audits.decontamination.findings import find, find_all, findings_frame
from contamination.audits.decontamination.inputs import (
    NONE,
    ORACLE,
    RuleCells,
    Study,
    describe_form,
    describe_rule,
)
from contamination.audits.decontamination.report import report
from contamination.audits.reference_attack.strength import mean_over_examples, ratio
from contamination.audits.run import read_findings, run
from contamination.core.config import CONF
from contamination.core.errors import ConfigError
from contamination.core.report.document import html_document, markdown_document
from contamination.core.stored_files import read_yaml
from contamination.injection.decontamination.flagging import DECONTAMINATION_FILE
from tests.audits.reference_attack.simulated import audited_cell

K, N, COPIES = 2, 120, 4
BENCHMARKS = np.where(np.arange(N) % 3 == 0, "long", "short")
NO_LOSS = {
    "documents_lost": 0, "tokens_lost": 0, "clean_tokens": 1000, "clean_documents": 10,
    "copy_tokens_lost": 0, "copies_flagged": 0, "copies_right": 0,
}  # fmt: skip


def rule_cells(rule, scores, member, kept, **lost):
    leaked = np.where(member, COPIES, 0)
    flagged = (leaked - kept).sum(axis=1)
    rows = [
        {**NO_LOSS, "seed": k, "copies_flagged": int(n), "copies_right": int(n),
         "copy_tokens_lost": 10 * int(n), **lost}
        for k, n in enumerate(flagged)
    ]  # fmt: skip
    unseen = np.zeros_like(member)
    return RuleCells("verbatim", rule, scores, scores, leaked, kept, pd.DataFrame(rows), unseen)


def study(seed=0, effect=1.0, spillover=0.5, caught=0.5):
    """A leak, its twin, and a rule that finds the copies of a share of the members."""
    rng = np.random.default_rng(seed)
    member = np.stack([rng.permutation(N) < N // 2 for _ in range(K)])
    level = rng.normal(-4, 1, N)
    noise = lambda: 0.3 * rng.normal(size=(K, N))  # noqa: E731
    is_caught = member & (rng.random((K, N)) < caught)
    leaked = np.where(member, COPIES, 0)
    kept = np.where(is_caught, 0, leaked)
    twin = level + noise()
    full = twin + spillover + effect * member + noise()
    left = twin + spillover + effect * (member & ~is_caught) + noise()
    cells = {
        NONE: rule_cells(NONE, full, member, leaked),
        ORACLE: rule_cells(ORACLE, twin, member, np.zeros_like(leaked)),
        "half": rule_cells("half", left, member, kept, documents_lost=1, tokens_lost=50),
    }
    index = pd.DataFrame(
        {"form": "verbatim", "rule": rule, "seed": k, "corpus": rule, "model": f"{rule}{k}",
         "contaminated": "s"} for rule in cells for k in range(K)
    )  # fmt: skip
    words = np.where(np.arange(N) % 4 == 0, 9, 30)
    return Study({"verbatim": cells}, range(K), member, BENCHMARKS, words, [], 6, {}, index)


def test_a_mean_is_that_of_benchmarks_then_of_cells():
    rng = np.random.default_rng(3)
    values, chosen = rng.normal(size=(K, N)), rng.random((K, N)) < 0.4
    found = mean_over_examples(values, chosen, BENCHMARKS)
    by_cell = [
        np.mean([row[flags & (b == BENCHMARKS)].mean() for b in ("long", "short")])
        for row, flags in zip(values, chosen, strict=True)
    ]
    assert found.value == pytest.approx(np.mean(by_cell))
    assert mean_over_examples(values, np.zeros((K, N), bool), BENCHMARKS) is None
    assert ratio(found, found).value == 1
    assert ratio(found, found).error == pytest.approx(0, abs=1e-12)


def test_the_interval_of_a_mean_that_cells_shift_covers_it_with_two_cells():
    rng, covered = np.random.default_rng(5), {"normal": 0, "Student's": 0}
    for _ in range(400):
        values = rng.normal(size=(2, 1)) * 0.2 + rng.normal(size=(2, N)) * 0.5
        mean = mean_over_examples(values, np.ones((2, N), bool), BENCHMARKS)
        ends = {"normal": mean.interval(0.95), "Student's": mean.student_interval(0.95)}
        for name, (low, high) in ends.items():
            covered[name] += low <= 0 <= high
    assert covered["normal"] < 320  # 80%
    assert covered["Student's"] > 348  # 87%


def test_a_planted_effect_is_found_apart_from_the_spillover():
    planted = study(effect=1.0, spillover=0.5, caught=0.5)
    full, twin, half = find_all(planted, 0.95)
    assert full.effect.low < 1.0 < full.effect.high
    assert full.effect.low > 0.7
    assert full.spillover.value == pytest.approx(0.5, abs=0.1)
    assert full.recall.value == 0
    assert full.share_left.value == 1
    assert twin.effect.value == 0
    assert twin.recall.value == twin.precision.value == 1
    escaped = (planted.cells["verbatim"]["half"].kept > 0).sum() / planted.member.sum()
    assert half.recall.value == pytest.approx(1 - escaped)
    assert half.share_left.low < escaped < half.share_left.high
    assert half.auroc.value < half.escaped_auroc.value
    assert half.documents_lost == 2
    assert half.share_lost == pytest.approx(100 / 2100)
    assert half.precision.value == pytest.approx(
        half.recall.value * 480 / (half.recall.value * 480 + 2)
    )
    assert half.recall.low < half.recall.value < half.recall.high


@pytest.mark.parametrize(("escaped", "is_given"), [(4, False), (5, True)])
def test_five_members_that_escaped_give_an_auroc(escaped, is_given):
    planted = study()
    cells = planted.cells["verbatim"]
    member = planted.member & (BENCHMARKS == "short")
    kept = np.where(member & (member.cumsum(axis=1) <= escaped), COPIES, 0)
    few = rule_cells("few", cells[NONE].scores, planted.member, kept)
    findings = find(planted, cells[NONE], cells[ORACLE], few, 0.95)
    assert np.isfinite(findings.escaped_auroc.value) == is_given
    assert findings.escaped_members == K * escaped


def test_intervals_of_nothing_include_0():
    """Without an effect the 95% interval excludes 0 rarely (two-way clustered by two cells)."""
    misses = 0
    for seed in range(200):
        null = study(seed, effect=0.0)
        cells = null.cells["verbatim"]
        found = find(null, cells[NONE], cells[ORACLE], cells[NONE], 0.95)
        misses += not found.effect.low <= 0 <= found.effect.high
    assert misses <= 20  # 10 are expected; more than 20 have a probability below 0.001


def test_the_share_that_is_left_is_not_given_without_an_effect():
    null = study(0, effect=0.0)
    found = find_all(null, 0.95)
    assert np.isnan([f.share_left.value for f in found]).all()


def test_the_report_names_rules_and_forms():
    planted = study()
    findings = find_all(planted, 0.95)
    content = report(findings, planted, {"method": "loss"}, 0.95)
    text = markdown_document(content)
    assert "half" in text
    assert text.count("verbatim") > 5
    assert html_document(content)
    names = ["recall", "share_left", "effect", "auroc", "escaped", "costs", "recall_by_kind"]
    assert [table.name for table in content.tables] == [*names, "by_seed", "index"]
    frame = findings_frame(findings, planted)
    assert frame["rule"].tolist() == [NONE, ORACLE, "half"]
    assert "half0 half1" in frame["models"].tolist()
    table = {table.name: table.data for table in content.tables}
    assert [*table["effect"]][2:] == [
        f"{name}{end}" for name in ("effect", "spillover") for end in ("", "_low", "_high")
    ]
    assert "escaped_members" in table["escaped"]
    assert not [*table["recall"].filter(like="escaped")]


RECORD = pd.DataFrame(
    [("copy", "p-000", True, True, 11, ""), ("copy", "p-000", True, False, 11, ""),
     ("copy", "p-001", False, False, 11, "too short"), ("document", "", True, False, 7, "")],
    columns=["kind", "example_id", "flagged", "right", "tokens", "unseen"],
)  # fmt: skip


def stored_cell(rule, kept, record=None, documents=None):
    """A cell of four examples, of which the first two leaked."""
    cell = audited_cell(np.arange(4.0), np.array(kept), np.zeros(4), 0)
    examples = cell.cell.examples.assign(member=np.arange(4) < 2)
    matcher = read_yaml(CONF / "matcher" / f"{rule}.yaml")
    counts = {"tokens": 1_000, "inserted_tokens": 11 * sum(kept)}
    counts |= {} if documents is None else {"decontamination": {"documents": documents}}
    records = {} if record is None else {DECONTAMINATION_FILE: rule}
    artifact = SimpleNamespace(records=records, counts=counts, table=lambda _: record)
    corpus = SimpleNamespace(config={"matcher": matcher}, artifact=artifact)
    return replace(cell, cell=replace(cell.cell, examples=examples), corpus=corpus)


def stored_cells():
    everything = RECORD[RECORD["kind"] == "copy"].assign(flagged=True, right=True, unseen="")
    return [
        stored_cell(NONE, [2, 1, 0, 0]),
        stored_cell(ORACLE, [0, 0, 0, 0], record=everything, documents=0),
        stored_cell("marin", [0, 1, 0, 0], record=RECORD, documents=30),
    ]


def test_what_a_rule_left_out_is_read_from_its_record():
    cells = inputs.read_study("audit.cells", stored_cells(), "loss").cells["verbatim"]
    assert [*cells] == [NONE, ORACLE, "marin"]
    assert all(found.leaked.tolist() == [[2, 1, 0, 0]] for found in cells.values())
    half = cells["marin"]
    assert half.kept.tolist() == [[0, 1, 0, 0]]
    assert half.unseen.tolist() == [[False, True, False, False]]
    assert half.lost.to_dict("records") == [{
        "seed": 0, "documents_lost": 1, "tokens_lost": 7, "clean_tokens": 989,
        "clean_documents": 30, "copy_tokens_lost": 22, "copies_flagged": 2, "copies_right": 1,
    }]  # fmt: skip
    nothing = {name: 0 for name in half.lost if name != "clean_tokens"}
    assert cells[NONE].lost.to_dict("records") == [{**nothing, "clean_tokens": 967}]


@pytest.fixture
def stage(tmp_path, monkeypatch):
    monkeypatch.setattr("contamination.audits.cells.open_cells", lambda *_, **__: stored_cells())
    target = "contamination.audits.decontamination.audit.Decontamination"
    return AuditStage(audit={"_target_": target, "cells": "report"}, runs=str(tmp_path))


def test_the_audit_is_an_artefact_with_a_row_per_cell(stage):
    artifact = run(stage)
    assert artifact.counts == {"cells": 3, "models": 1}
    table = pd.read_csv(artifact.path / "index.csv")
    assert table["rule"].tolist() == [NONE, ORACLE, "marin"]
    assert "- members: 2 per cell, of 4 examples\n" in read_findings(artifact)


def test_cells_that_cannot_be_judged_are_refused_by_the_field(stage, monkeypatch):
    unjudged = stored_cells()[1:]
    monkeypatch.setattr("contamination.audits.cells.open_cells", lambda *_, **__: unjudged)
    with pytest.raises(ConfigError, match=r"^audit\.cells: no form of leak can be judged"):
        run(stage)


def test_results_of_an_older_revision_are_not_taken(stage, folder_of, monkeypatch):
    folder = folder_of(stage)
    assert folder_of(stage) == folder
    monkeypatch.setattr(audit, "REVISION", audit.REVISION + 1)
    assert folder_of(stage) != folder


def test_rules_and_forms_have_names():
    shipped = read_yaml(CONF / "matcher" / "marin.yaml")
    assert describe_rule({"matcher": shipped}) == "marin"
    assert describe_rule({"matcher": {**shipped, "n": 5}}).startswith("NgramUnion n=5 ")
    assert describe_rule({"matcher": {}}) == describe_rule({}) == NONE
    assert describe_form({}) == "verbatim"
    assert describe_form({"leak": {"form": "embedded", "times": 2.0}}) == "embedded ×2"
    swap = {"_target_": "contamination.data.perturbation.word_edits.Swap", "share": 0.3}
    assert describe_form({"rewording": swap}) == "reworded (Swap share=0.3)"
    assert describe_form({"rewording": swap, "leak": {"form": "question"}}).startswith("question, ")


def test_a_form_in_which_nothing_leaked_is_refused(monkeypatch):
    """Recall, and the text that is left, are shares of the copies."""
    member = np.zeros((1, N), bool)
    clean = {r: rule_cells(r, np.zeros((1, N)), member, np.zeros((1, N), int))
             for r in (NONE, ORACLE)}  # fmt: skip
    monkeypatch.setattr(inputs, "_check_one_setting", lambda *args: None)
    monkeypatch.setattr(inputs, "_check_pools", lambda *args: None)
    monkeypatch.setattr(inputs, "describe_form", lambda config: "verbatim")
    monkeypatch.setattr(inputs, "describe_rule", lambda config: config)
    monkeypatch.setattr(
        inputs, "_read_rule_cells", lambda field, form, rule, cells, method: clean[rule]
    )
    cells = [
        SimpleNamespace(corpus=SimpleNamespace(config=rule), cell=SimpleNamespace(seed=0))
        for rule in (NONE, ORACLE)
    ]
    with pytest.raises(ConfigError, match=r"verbatim: no member leaked .*Give cells with copies"):
        inputs.read_study("audit.cells", cells, "loss")
