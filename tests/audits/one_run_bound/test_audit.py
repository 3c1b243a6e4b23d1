"""The one-run audit as a command: its artefact, its sentences, and bad input."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.wandb.read import _inspect_record, offline_runs
from contamination.audits import cells as cells_module
from contamination.audits.base import AuditStage
from contamination.audits.one_run_bound.audit import OneRun
from contamination.audits.one_run_bound.guesses import (
    AttackScores,
    GuessRule,
    OneRunBound,
    bound,
    choose_on_half,
)
from contamination.audits.one_run_bound.report import LIMITS, Group, group_of, report
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
    assert [*made.counts] == ["epsilon", "guesses", "correct"]
    assert made.path.name.startswith("one-run-bound-m-")
    for fact in ("cell: m-lr0.001-tokens250000-seed0", "model: model", "corpus: corpus"):
        assert f"\n- {fact}\n" in text


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
    assert made.table("bound.parquet")["rules"].item() == 1


def test_the_seed_draws_the_half_among_the_named_attacks_and_shares(one_cell, tmp_path):
    examples = one_cell.cell.examples
    member, benchmarks = examples["member"].to_numpy(bool), examples["benchmark"].to_numpy(str)
    scores = {
        name: AttackScores(name, one_cell.scores("", name), benchmarks)
        for name in ("loss", "min_k")
    }
    for seed in (3, 4):
        rule = choose_on_half([*scores.values()], member, 1e-4, 0.9, seed, [0.2, 0.6])
        expected = bound(rule, scores[rule.attack], member, 1e-4, 0.9)
        audit = OneRun(cells=1, attacks=[*scores], shares=[0.2, 0.6], choose="on_half", delta=1e-4,
                       confidence=0.9)  # fmt: skip
        result = audit.prepare(AuditStage(audit={}, seed=seed)).conduct(tmp_path)
        names = ("epsilon", "guesses", "correct")
        assert result.counts == {name: getattr(expected, name) for name in names}


def test_the_cells_are_named_after_their_fields_and_their_coins_are_checked(one_cell, monkeypatch):
    calls = []

    def open_cells(*arguments):
        calls.append(arguments)
        return [one_cell]

    def check_membership(*arguments):
        calls.append(arguments)

    monkeypatch.setattr(cells_module, "open_cells", open_cells)
    monkeypatch.setattr("contamination.injection.membership.check_membership", check_membership)
    prepared = OneRun(cells="report").prepare(AuditStage(audit={}))
    assert calls == [("audit.cells", "report"), ("audit.cells", one_cell.corpus)]
    assert (prepared.slug, prepared.settings) == ("m", {})
    assert prepared.inputs == {
        f"m-lr0.001-tokens250000-seed0/{name}": digest
        for name, digest in one_cell.cell.digests.items()
    }


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


def test_a_bound_is_said_with_its_unit_its_rule_and_its_chance_of_error():
    rule = GuessRule("min_k k=0.2", 0.25)
    lower_bound = OneRunBound(rule, 2.0, 1.5e-9, 800, 200, 190, 0.0, 0.975, 4.125, looks=2)
    content = report(lower_bound, Group(4, 4, 8), 2, False, {"cell": "m"})
    assert content.title == "A lower bound on ε from one training run"
    assert content.conclusions == [
        "**ε ≥ 2.00** (δ = 0, 95% confidence). The unit is an example with its 4 copies, in up to "
        "8 sequences.",
        "By the scores of min_k k=0.2, 200 of 800 coins were guessed and 190 guesses were right "
        "(the rule was the best of 2 named in advance, at a corrected level). All right would have "
        "shown ε ≥ 4.12. The p-value of ε = 0 is 1.5e-09.",
        "For one copy it follows that ε ≥ 0.50, a 4th of it (group privacy, with δ = 0).",
    ]
    assert content.limits == LIMITS
    assert content.facts == {
        "cell": "m",
        "rule": "min_k k=0.2, 0.25 of the examples guessed; the best of 2 named in advance, at a "
        "corrected level",
        "method": "Steinke, Nasr and Jagielski 2023, theorem 5.2 (arXiv 2305.08846)",
    }
    (table,) = content.tables
    assert (table.name, table.title) == ("bound", "The bound")
    assert table.lines == [
        ["min_k k=0.2", "2.000", "0", "200", "190", "800", "1.5e-09", "4"],
    ]  # fmt: skip
    assert table.data.to_dict("records") == [{
        "epsilon": 2.0, "p_value": 1.5e-9, "examples": 800, "guesses": 200, "correct": 190,
        "delta": 0.0, "confidence": 0.975, "most": 4.125, "looks": 2, "attack": "min_k k=0.2",
        "share": 0.25, "rules": 2, "fewest_copies": 4, "most_copies": 4, "most_sequences": 8,
    }]  # fmt: skip
    for rules, is_split, words in (
        (1, False, "named in advance"),
        (1, True, "chosen on the other half of the examples"),
    ):
        content = report(lower_bound, Group(1, 1, 8), rules, is_split, {})
        assert f"(the rule was {words})" in content.conclusions[1]
        assert content.facts["rule"].endswith(f"guessed; {words}")
        assert len(content.conclusions) == 2  # nothing else follows for one copy
    no_bound = report(replace(lower_bound, epsilon=0.0), Group(4, 4, 8), 1, False, {})
    assert no_bound.conclusions[0] == (
        "**No ε above 0 is shown** (δ = 0, 95% confidence). The unit is an example with its 4 "
        "copies, in up to 8 sequences."
    )
    assert len(no_bound.conclusions) == 2


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (Group(1, 1, 2), "an example with its 1 copy, in up to 2 sequences"),
        (Group(4, 4, 8), "an example with its 4 copies, in up to 8 sequences"),
        (Group(1, 4, 9), "an example with its 1 to 4 copies, in up to 9 sequences"),
        (Group(0, 0, 0), "an example with its 0 copies, in up to 0 sequences"),
    ],
)
def test_a_group_is_the_copies_of_an_example(group, words):
    assert group.describe() == words


def test_the_group_is_read_from_the_members_and_the_ledger():
    dose = np.array([0, 4, 2, 0, 3])
    cell = audited_cell(np.zeros(5), dose, np.zeros(5), 0)
    assert group_of(cell) == Group(2, 4, 0)
    ledger = pd.DataFrame({"example_id": ["a", "a", "b", "a", "b"], "sequence": [1, 1, 2, 3, 2]})
    assert group_of(replace(cell, corpus=replace(cell.corpus, ledger=ledger))) == Group(2, 4, 2)
    without_members = audited_cell(np.zeros(5), 0 * dose, np.zeros(5), 0)
    assert group_of(without_members) == Group(0, 0, 0)


@pytest.mark.parametrize(
    ("guesses", "most", "warned"), [(20, 0.75, True), (800, 0.75, False), (20, 1.0, False)]
)
def test_few_guesses_that_could_not_show_much_are_warned_of(guesses, most, warned):
    lower_bound = OneRunBound(GuessRule("loss", 0.25), 0.0, 0.6, 800, guesses, 9, 1e-5, 0.95, most)
    warning = (
        f"{guesses} guesses show ε ≥ {most:.2f} at most: insert more examples, or guess a larger "
        "share."
    )
    assert report(lower_bound, Group(4, 4, 8), 1, False, {}).warnings == [warning] * warned


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
        ({"delta": 0.01}, r"audit.delta is 0.01: with 200 examples give less than 0.005\.$"),
        ({"delta": 0.005}, "audit.delta is 0.005: with 200 examples give less than 0.005"),
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
    assert ladder.warnings == [
        "The members have 1 to 8 copies, which are drawn for all members together. A coin "
        "therefore changes the copies of other examples, too, and the theorem assumes that it "
        "changes one example alone. For a bound that holds give a cell with occurrences=fixed."
    ]
    assert not report(lower_bound, Group(8, 8, 16), 1, False, {}).warnings


def test_an_attack_that_is_no_name_is_an_error_and_no_traceback(tmp_path):
    with pytest.raises(ConfigError, match=r"audit.attacks is None.*loss"):
        run(stage(tmp_path, attacks=[None]))
