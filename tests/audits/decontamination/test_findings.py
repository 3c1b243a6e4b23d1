"""What the audit says of planted effects, of nothing, and of cells that can't be compared."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.decontamination import inputs
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
from contamination.core.config import CONF
from contamination.core.errors import ConfigError
from contamination.core.report.document import html_document, markdown_document
from contamination.core.stored_files import read_yaml

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
    frame = findings_frame(findings, planted)
    assert frame["rule"].tolist() == [NONE, ORACLE, "half"]
    assert "half0 half1" in frame["models"].tolist()
    table = {table.name: table.data for table in content.tables}
    assert [*table["effect"]][2:] == [
        f"{name}{end}" for name in ("effect", "spillover") for end in ("", "_low", "_high")
    ]
    assert "escaped_members" in table["escaped"]
    assert not [*table["recall"].filter(like="escaped")]


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
