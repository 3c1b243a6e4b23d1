"""What the audit says of planted effects, of nothing, and of cells that can't be compared."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta

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


def clopper_pearson(hits, trials):
    """The 95% interval, of the next whole numbers of hits where they are no whole number."""
    low, high = int(np.floor(hits + 1e-9)), int(np.ceil(hits - 1e-9))
    return (
        beta.ppf(0.025, low, trials - low + 1) if low else 0.0,
        beta.ppf(0.975, high + 1, trials - high) if high < trials else 1.0,
    )


def means_over_benchmarks(statistic, values, members, others):
    """For each seed a statistic of the values of members and of others, mean over benchmarks."""
    benchmarks = BENCHMARKS == "long", BENCHMARKS == "short"
    return [
        np.mean([statistic(row[inside & of], row[outside & of]) for of in benchmarks])
        for row, inside, outside in zip(values, members, others, strict=True)
    ]


def auroc(members, others):
    """The share of pairs in which the member is higher."""
    return np.mean(members[:, None] > others)


def difference(members, others):
    return members.mean() - others.mean()


def test_what_a_rule_finds_and_costs_is_counted_over_seeds():
    planted = study()
    cells = planted.cells["verbatim"]
    half, member = cells["half"], planted.member
    kept = half.kept.copy()
    kept[0, np.flatnonzero(kept[0])[0]] -= 1  # of one member a single copy is found
    n_flagged = np.array([int((half.leaked - kept)[k].sum()) for k in range(K)])
    lost = pd.DataFrame({
        "seed": range(K), "documents_lost": [1, 3], "tokens_lost": [50, 70],
        "clean_tokens": [1000, 2000], "clean_documents": [10, 20],
        "copy_tokens_lost": 10 * n_flagged, "copies_flagged": n_flagged,
        "copies_right": [n_flagged[0], 5],
    })  # fmt: skip
    unseen = np.broadcast_to(np.arange(N) % 5 == 0, (K, N))
    rule = replace(half, kept=kept, lost=lost, unseen=unseen)
    findings = find(planted, cells[NONE], cells[ORACLE], rule, 0.95)
    assert (findings.form, findings.rule) == ("verbatim", "half")
    copies = COPIES * member.sum()

    def recall(chosen):
        trials = chosen.sum()
        share = (half.leaked - kept)[chosen].sum() / (COPIES * trials)
        return pytest.approx((share, *clopper_pearson(share * trials, trials)))

    def values_of(interval):
        return interval.value, interval.low, interval.high

    is_short = planted.words < 13
    assert values_of(findings.recall) == recall(member)
    recall_by_kind = {kind: values_of(share) for kind, share in findings.recall_by_kind.items()}
    assert recall_by_kind == {
        "long": recall(member & (BENCHMARKS == "long")),
        "short": recall(member & (BENCHMARKS == "short")),
        "under 13 words": recall(member & is_short),
        "13 words or more": recall(member & ~is_short),
    }
    total = n_flagged.sum()
    assert findings.right == pytest.approx((n_flagged[0] + 5) / total)
    trials = ((half.leaked - kept) > 0).sum() + 4
    precision = total / (total + 4)
    expected = precision, *clopper_pearson(precision * trials, trials)
    assert values_of(findings.precision) == pytest.approx(expected)
    assert (findings.documents_lost, findings.tokens_lost) == (4, 120)
    assert findings.share_lost == pytest.approx(120 / 3120)
    assert findings.leaked_tokens_left == pytest.approx(1 - total / copies)
    assert findings.unseen == pytest.approx((member & unseen).sum() / member.sum())
    assert findings.escaped_members == (member & (kept > 0)).sum()
    aurocs = means_over_benchmarks(auroc, rule.scores, member, ~member)
    assert findings.auroc.value == pytest.approx(np.mean(aurocs))
    assert findings.auroc.low < findings.auroc.value < findings.auroc.high
    escaped = means_over_benchmarks(auroc, rule.scores, member & (kept > 0), ~member)
    assert findings.escaped_auroc.value == pytest.approx(np.mean(escaped))

    def effects(audited):
        gained = audited.log_probability - cells[ORACLE].log_probability
        return means_over_benchmarks(difference, gained, member, ~member)

    assert findings.effect.value == pytest.approx(np.mean(effects(rule)))
    whole = np.mean(effects(cells[NONE]))
    assert findings.share_left.value == pytest.approx(findings.effect.value / whole)
    by_seed = findings.by_seed.to_dict("list")
    assert by_seed == {
        "form": ["verbatim"] * K, "rule": ["half"] * K, "seed": [*range(K)],
        "recall": pytest.approx([n / (COPIES * own.sum())
                                 for n, own in zip(n_flagged, member, strict=True)]),
        "auroc": pytest.approx(aurocs), "effect": pytest.approx(effects(rule)),
        "effect_without_rule": pytest.approx(effects(cells[NONE])),
        **lost.drop(columns="seed").to_dict("list"),
    }  # fmt: skip


def test_a_rule_that_flags_nothing_has_no_precision():
    planted = study()
    cells = planted.cells["verbatim"]
    findings = find(planted, cells[NONE], cells[ORACLE], cells[NONE], 0.95)
    assert np.isnan([findings.right, findings.precision.value, findings.precision.low]).all()
    assert (findings.recall.value, findings.recall.low) == (0, 0)
    assert findings.recall.high > 0


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


def stored_cell(rule, kept, record=None, documents=None, seed=0):
    """A cell of four examples, of which the first two leaked."""
    cell = audited_cell(np.arange(4.0), np.array(kept), np.zeros(4), seed)
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


def test_a_study_has_the_cells_the_pool_and_their_digests():
    cells = stored_cells()
    cells += [replace(cell, cell=replace(cell.cell, seed=1)) for cell in cells[:2]]
    digests = {**cells[-1].cell.digests, "model": "another"}
    cells[-1] = replace(cells[-1], cell=replace(cells[-1].cell, digests=digests))
    study = inputs.read_study("audit.cells", cells, "min_k")
    assert [*study.cells["verbatim"]] == [NONE, ORACLE]
    assert study.left_out == ["verbatim, marin: only 1 of 2 seeds"]
    assert study.seeds == [0, 1]
    assert study.member.tolist() == [[True, True, False, False]] * 2
    assert study.benchmarks.tolist() == ["imdb", "boolq", "imdb", "boolq"]
    assert study.words.tolist() == [4] * 4
    assert (study.models, study.examples, study.members_per_cell) == (2, 4, 2.0)
    assert study.index.columns.tolist() == [
        "form", "rule", "seed", "corpus", "model", "contaminated"
    ]  # fmt: skip
    assert study.index["rule"].tolist() == [NONE, ORACLE, "marin", NONE, ORACLE]
    assert study.index["seed"].tolist() == [0, 0, 0, 1, 1]
    assert study.index["model"].tolist()[-2:] == ["modelp0", "another"]
    names = {f"{form}/{rule}/seed{seed}" for form, rule, seed in
             study.index[["form", "rule", "seed"]].itertuples(index=False)}  # fmt: skip
    assert {name.rpartition("/")[0] for name in study.digests} == names
    assert study.digests["verbatim/oracle/seed1/model"] == "another"
    assert study.digests["verbatim/marin/seed0/record"] == "marin"
    assert "verbatim/none/seed0/record" not in study.digests
    twin = study.cells["verbatim"][ORACLE]
    assert (twin.form, twin.rule) == ("verbatim", ORACLE)
    assert twin.log_probability.tolist() == [[0, 1, 2, 3]] * 2
    assert twin.scores.tolist() == [cell.scores("", "min_k").tolist() for cell in cells[1:5:3]]
    assert twin.scores.tolist() != twin.log_probability.tolist()


def test_cells_that_cannot_be_compared_are_refused():
    def refused(cells, message):
        with pytest.raises(ConfigError, match=message):
            inputs.read_study("audit.cells", cells, "loss")

    none, oracle, _ = stored_cells()
    refused(
        [none, oracle, none],
        r"^audit\.cells contains two cells with the leak verbatim, the matcher none and seed 0: "
        r"give each cell once\.$",
    )
    remedy = "Give cells that differ in leak, rewording, matcher and seed alone."
    fields = {**none.cell.chosen, "training.learning_rate": 1.0, "model.width": 2}
    wider = replace(oracle, cell=replace(oracle.cell, chosen=fields))
    names = "model.width, training.learning_rate"
    refused([none, wider], rf"^audit\.cells: .* and .* differ in {names}\. {remedy}$")
    varied = {**none.cell.chosen, "leak.form": "question", "rewording.share": 1, "matcher.n": 5}
    leaked_otherwise = replace(oracle, cell=replace(oracle.cell, chosen=varied))
    inputs.read_study("audit.cells", [none, leaked_otherwise], "loss")
    swapped = replace(oracle, cell=replace(oracle.cell, swapped=True))
    refused([none, swapped], rf"differ in injection\.swap_members\. {remedy}$")
    members = oracle.cell.examples.assign(member=np.arange(4) < 1)
    texts = oracle.cell.examples.assign(text="another")
    for examples in (members, texts):
        changed = replace(oracle, cell=replace(oracle.cell, examples=examples))
        refused(
            [none, changed],
            r"^audit\.cells: .* has other examples, or other members of its seed, than .*\. Give "
            r"cells that share the pool and, for a seed, the members\.$",
        )
    other_seed = replace(none, cell=replace(none.cell, examples=members, seed=1))
    refused([none, other_seed], "no cells with matcher=oracle")
    refused(
        [none],
        r"^audit\.cells: no form of leak can be judged \(verbatim: no cells with "
        r"matcher=oracle\)\. Give cells with copies of their members, with matcher=none and "
        r"matcher=oracle for each form and seed\.$",
    )
    refused(stored_cells()[2:], r"verbatim: no cells with matcher=none and matcher=oracle\)")


@pytest.fixture
def stage(tmp_path, monkeypatch):
    def opened(field, source):
        assert (field, source) == ("audit.cells", "report")
        return stored_cells()

    monkeypatch.setattr("contamination.audits.cells.open_cells", opened)
    target = "contamination.audits.decontamination.audit.Decontamination"
    return AuditStage(audit={"_target_": target, "cells": "report"}, runs=str(tmp_path))


def test_the_audit_is_an_artefact_with_a_row_per_cell(stage):
    artifact = run(stage)
    assert artifact.counts == {"cells": 3, "models": 1}
    table = pd.read_csv(artifact.path / "index.csv")
    assert table["rule"].tolist() == [NONE, ORACLE, "marin"]
    facts = "\n".join([
        "- cells: 3", "- models: 1 distinct: cells with equal corpora share one", "- seeds: 0",
        "- members: 2 per cell, of 4 examples", "- method: loss",
    ])  # fmt: skip
    assert facts in read_findings(artifact)
    assert "Intervals: 95%." in read_findings(artifact)
    assert artifact.path.name.startswith("decontamination-m-")
    strict = run(replace(stage, audit={**stage.audit, "confidence": 0.9, "method": "min_k"}))
    assert "Intervals: 90%." in read_findings(strict)
    assert "AUROC of all leaked members (min_k)" in read_findings(strict)


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
    changed = {**shipped, "n": 5, "whole_item_words": None}
    assert describe_rule({"matcher": changed}) == (
        "NgramUnion n=5 min_share=0.5 min_ngrams=1 share_of=line"
    )
    assert describe_rule({"matcher": {}}) == describe_rule({}) == NONE
    assert describe_form({}) == "verbatim"
    assert describe_form({"leak": {"form": "embedded", "times": 2.0}}) == "embedded ×2"
    swap = {"_target_": "contamination.data.perturbation.word_edits.Swap", "share": 0.3}
    assert describe_form({"rewording": swap}) == "reworded (Swap share=0.3)"
    assert describe_form({"rewording": swap, "leak": {"form": "question"}}) == (
        "question, reworded (Swap share=0.3)"
    )
    assert describe_form({"leak": {"form": "rewrapped", "words_per_line": 5}}) == "rewrapped to 5"
    exact = {"_target_": "contamination.data.perturbation.Exact"}
    assert describe_form({"rewording": exact, "leak": None}) == "verbatim"


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
