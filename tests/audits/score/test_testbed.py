"""Errors of corrected scores against clean twins: planted cases, sizes, and the command."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from contamination.audits.base import AuditStage
from contamination.audits.run import run
from contamination.audits.score.audit import REVISION, Score
from contamination.audits.score.estimation import (
    COMBINED,
    EPG_IPW,
    HELD_OUT,
    IMPUTATION,
    IPW,
    NAIVE,
)
from contamination.audits.score.testbed.cases import (
    AS_LEAKED,
    CLEAN_MODEL,
    MORE_COPIES,
    Case,
    cells_without_twin,
    read_cases,
)
from contamination.audits.score.testbed.findings import Spiking, Sufficiency, measure_errors
from contamination.audits.score.testbed.report import (
    _compare_with_other_twin,
    _verdict,
    _warnings,
    error_table,
)
from contamination.audits.score.testbed.spiking import (
    OTHER_TWIN,
    benchmark_sizes,
    case_errors,
    plan_spiking,
)
from contamination.core.errors import ConfigError, DataError
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from tests.audits.checks import check_preparation
from tests.audits.inflation.simulated import (
    ITEMS,
    serve_cells,
    simulated_cells,
    simulated_groups,
    with_model,
)

LEVELS = (2, 10, 40)


def planted(seed, separation=6.0, boost=0.6, items=400, references=3, benchmark="b", noise=0.0,
            scenario=AS_LEAKED):  # fmt: skip
    """A model that answers as its clean twin, but for members: wrong ones become right."""
    rng = np.random.default_rng(seed)
    ease = np.random.default_rng(7).normal(0, 1, items)
    clean = (rng.random(items) < expit(ease)).astype(float)
    changed = rng.random(items) < noise
    member = rng.permutation(np.arange(items) < items // 2)
    correct = np.where(changed, 1 - clean, clean)
    correct = np.where(member & (rng.random(items) < boost), 1.0, correct)
    others = (rng.random((items, references)) < expit(ease)[:, None]).astype(float)
    return Case(
        "condition", scenario, seed, f"cell{seed}", benchmark, correct, clean,
        rng.normal(0, 1, items) + separation * member, member, member, ~member,
        others if references else None,
    )  # fmt: skip


def measured(cases, levels=LEVELS, prevalence=None, repeats=30, tolerance=1.0):
    findings = measure_errors(cases, Spiking(levels, 0.3, repeats, prevalence, 0), tolerance, 0.95)
    return findings, findings.means.set_index(["scenario", "spiked", "estimator"])


def test_a_score_that_separates_is_corrected_for_and_naive_is_off_by_the_planted_inflation():
    cases = [planted(seed) for seed in range(4)]
    findings, means = measured(cases, prevalence=0.3)
    expected = [100 * 0.3 * (case.correct - case.clean)[case.may_be_asked].mean() for case in cases]
    naive = means.loc[AS_LEAKED, 40, NAIVE]
    assert naive["bias"] == pytest.approx(np.mean(expected), abs=0.5)
    assert naive["bias"] > 6
    assert naive["gain"] == 0
    for name in (IPW, COMBINED):
        row = means.loc[AS_LEAKED, 40, name]
        assert abs(row["bias"]) < 1.5, name
        assert row["gain_high"] < 0, name
    (ipw,) = (item for item in findings.sufficiency if item.estimator == IPW)
    assert ipw.most == 40
    assert ipw.suffices in (10, 40)
    assert ipw.helps is not None
    lines = [line for line in error_table(findings).lines if line[2] in (NAIVE, IPW)]
    assert [(line[2], line[3]) for line in lines] == [
        (IPW, "2"), (IPW, "10"), (NAIVE, "–"), (IPW, "40"),
    ]  # fmt: skip


def test_a_score_that_says_nothing_corrects_for_nothing():
    findings, means = measured(
        [planted(seed, separation=0.0) for seed in range(3)], levels=(40,), prevalence=0.3
    )
    naive, ipw = (means.loc[AS_LEAKED, 40, name] for name in (NAIVE, IPW))
    assert ipw["bias"] == pytest.approx(naive["bias"], abs=0.5)
    assert all(item.helps is None for item in findings.sufficiency if item.estimator == IPW)


def test_a_clean_model_in_place_of_the_contaminated_one_has_no_error_of_naive():
    cases = [planted(seed) for seed in range(3)]
    null = [replace(case, scenario=CLEAN_MODEL, correct=case.clean) for case in cases]
    for case in null:
        case.score[:] = np.random.default_rng(case.seed).normal(size=len(case.score))
    _, means = measured([*cases, *null], levels=(10,))
    row = means.loc[CLEAN_MODEL, 10, NAIVE]
    assert row[["bias", "rmse"]].tolist() == [0, 0]
    assert abs(means.loc[CLEAN_MODEL, 10, IPW]["bias"]) < 0.5
    assert means.loc[CLEAN_MODEL, 10, EPG_IPW]["bias"] < -0.5  # the largest of 200 z


def test_numbers_of_spiked_examples_are_compared_on_the_same_benchmark():
    errors = case_errors(planted(0), LEVELS, 0.3, 10, 0, None)
    assert (
        errors[errors["estimator"].isin([NAIVE, OTHER_TWIN])]
        .groupby("estimator")[["bias", "square"]]
        .nunique()
        .eq(1)
        .all(axis=None)
    )
    assert errors[errors["estimator"] == HELD_OUT]["square"].is_monotonic_decreasing
    assert {*errors.loc[errors["spiked"] == 2, "estimator"]}.isdisjoint({IMPUTATION, COMBINED})
    assert {IMPUTATION, COMBINED} < {*errors.loc[errors["spiked"] == 10, "estimator"]}
    pd.testing.assert_frame_equal(errors, case_errors(planted(0), LEVELS, 0.3, 10, 0, None))


def test_the_largest_benchmark_has_the_share_and_leaves_the_spiked_examples():
    case = planted(0, items=80)
    sizes = benchmark_sizes(case, 20, 0.3)
    assert (sizes.members, sizes.nonmembers) == (8, 18)
    apart = replace(case, may_be_spiked=case.nonmember & False)
    assert not benchmark_sizes(apart, 1, 0.3).are_enough
    assert not benchmark_sizes(case, 40, 0.3).are_enough


def test_numbers_and_benchmarks_without_enough_items_are_left_out_and_named():
    cases = [planted(0, items=80), planted(0, items=16, benchmark="small")]
    plan = plan_spiking(cases, [40, 20, 2], 0.3)
    assert (plan.levels, plan.left_out, plan.wanted) == ([2, 20], ["small"], [40])
    assert [case.benchmark for case in plan.cases] == ["b"]
    findings, _ = measured(cases, levels=(2, 40), repeats=10)
    assert findings.omissions == [
        "condition, as the benchmark: small: too few items.",
        "condition, as the benchmark: 40 spiked examples on each side: too few items.",
    ]
    with pytest.raises(DataError, match=r"audit.spiked is \[40\]: no benchmark.*injection.members"):
        measured(cases, levels=(40,))


def test_the_seed_is_the_unit_and_a_single_one_has_no_interval():
    """Swapped replicates and benchmarks are means within a seed; naive loops of the definitions."""
    cases = [
        replace(planted(10 * seed + k, benchmark=name), seed=seed, cell=f"{seed}{k}")
        for seed in range(3)
        for k in range(2)
        for name in ("a", "b")
    ]
    findings, means = measured(cases, levels=(10,), repeats=10)
    table = findings.by_cell[findings.by_cell["estimator"] == IPW]
    squares = [
        np.mean([table[table["cell"] == f"{seed}{k}"]["square"].mean() for k in range(2)])
        for seed in range(3)
    ]
    row = means.loc[AS_LEAKED, 10, IPW]
    assert row["rmse"] == pytest.approx(100 * np.sqrt(np.mean(squares)))
    assert (row["seeds"], row["cells"]) == (3, 6)
    biases = 100 * table.groupby("seed")["bias"].mean().to_numpy()
    half = 4.302653 * biases.std(ddof=1) / np.sqrt(3)  # Student's, 2 degrees of freedom
    assert row["bias_high"] - row["bias"] == pytest.approx(half, rel=1e-5)
    findings, means = measured([planted(0)], levels=(10,), repeats=10)
    assert np.isnan(means.loc[AS_LEAKED, 10, IPW]["rmse_high"])
    assert not findings.sufficiency[0].is_judged


def test_cases_have_the_twin_of_their_seed_and_the_twins_of_others_as_references():
    (group,) = simulated_groups(3, direct=1.0)
    cases = read_cases("audit.method", [group], "loss")
    assert {case.scenario for case in cases} == {AS_LEAKED, CLEAN_MODEL}
    rows = group.family.benchmarks == "imdb"
    case = next(c for c in cases if (c.seed, c.benchmark, c.scenario) == (1, "imdb", AS_LEAKED))
    twins = group.family.results["accuracy"]
    np.testing.assert_array_equal(case.clean, twins[1, rows])
    np.testing.assert_array_equal(case.references, twins[[0, 2]][:, rows].T)
    np.testing.assert_array_equal(case.may_be_spiked, ~case.nonmember)
    null = next(c for c in cases if (c.seed, c.benchmark, c.scenario) == (1, "imdb", CLEAN_MODEL))
    np.testing.assert_array_equal(null.correct, null.clean)
    assert null.may_be_asked.sum() > 0
    assert cells_without_twin([group]) == []


def test_with_several_numbers_of_copies_the_most_copied_members_are_spiked_for_the_fewest():
    (group,) = simulated_groups(2)
    doses = np.where(group.doses > 0, 1 + 7 * (np.arange(ITEMS) % 4 < 2), 0)
    cases = read_cases("audit.method", [replace(group, doses=doses)], "loss")
    apart = [case for case in cases if case.scenario == MORE_COPIES]
    assert apart
    for case in apart:
        assert not case.members_are_shared
        assert case.may_be_spiked.sum() > 10
        assert case.may_be_asked.sum() > 10


def test_a_seed_without_a_twin_is_named_and_scores_that_are_missing_are_refused():
    (group,) = simulated_groups(2)
    family = replace(group.family, seeds=[7, 8])
    alone = replace(group, family=family)
    assert len(cells_without_twin([alone])) == 4
    with pytest.raises(DataError, match="no contaminated cell has a clean twin of its own seed"):
        read_cases("audit.method", [alone], "loss")
    with pytest.raises(ConfigError, match="audit.method is 'los'.*loss"):
        read_cases("audit.method", [group], "los")


@pytest.mark.parametrize(
    ("high", "words"),
    [
        (
            -0.7,
            "another clean twin 1.5 [0.7, 2.2]: more than two clean",
        ),
        (0.7, "another clean twin 1.5 [0.7, 2.2]: not shown to be more than two clean"),
        (None, "is not known"),
    ],
)
def test_naives_rmse_is_compared_with_that_of_another_clean_twin(high, words):
    naive = {"condition": "c", "scenario": AS_LEAKED, "estimator": NAIVE, "gain_high": np.nan,
             "rmse": 8.3, "rmse_low": 2.7, "rmse_high": 13.8}  # fmt: skip
    other = naive | {"estimator": OTHER_TWIN, "gain_high": high, "rmse": 1.5, "rmse_low": 0.7,
                     "rmse_high": 2.2}  # fmt: skip
    other_condition = other | {"condition": "another", "gain_high": -5.0}
    rows = [naive, other_condition, *([] if high is None else [other])]
    means = pd.DataFrame(rows)
    assert words in _compare_with_other_twin(means, means.iloc[0])


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-4.0, 3.0, "**No inflation is shown for condition**: naive's bias is -1.0 [-4.0, 3.0]"),
        (-4.0, -0.5, "**The score is lower than the clean twin's for condition**"),
        (0.5, 3.0, None),
    ],
)
def test_a_bias_is_called_inflation_by_its_interval(low, high, words):
    findings, _ = measured([planted(seed) for seed in range(3)], repeats=5)
    errors = findings.errors.copy()
    naive = errors["estimator"] == NAIVE
    errors.loc[naive, ["bias", "bias_low", "bias_high"]] = [-1.0, low, high]
    warnings = [w for w in _warnings(replace(findings, errors=errors)) if "bias is" in w]
    assert [warning.startswith(words) for warning in warnings] == ([True] if words else [])


@pytest.fixture
def cells(monkeypatch):
    answered = [*simulated_cells(3, direct=2.0)]
    return answered, serve_cells(monkeypatch, answered)


def stage(tmp_path, **fields):
    target = "contamination.audits.score.audit.Score"
    node = {"_target_": target, "cells": "report", "repeats": 10, "spiked": [2, 10], **fields}
    return AuditStage(audit=node, runs=str(tmp_path))


@pytest.mark.usefixtures("cells")
def test_the_audit_of_cells_is_an_artefact_with_the_errors(tmp_path):
    artifact = run(stage(tmp_path))
    tables = ("errors", "needed", "by_benchmark")
    files = {f"{name}.{kind}" for name in tables for kind in ("csv", "parquet")}
    own = {name for name in artifact.files if not name.startswith("charts/")}
    assert own == {*files, "errors_by_cell.parquet", "audit.md", "report.html"}
    assert {*artifact.files} - own
    text = (artifact.path / "audit.md").read_text()
    assert "another clean twin: RMSE" in text
    assert "Without contamination (clean) naive is right" in text
    assert "IPW: RMSE" in text
    assert {*artifact.table("errors.parquet")["benchmark"]} == {ALL_BENCHMARKS}
    assert {*artifact.table("by_benchmark.parquet")["benchmark"]} == {"boolq", "imdb"}
    needed = artifact.table("needed.parquet")
    assert {*needed["scenario"]} == {AS_LEAKED}
    assert run(stage(tmp_path, cells="another path")).path == artifact.path


def test_the_audit_of_cells_says_what_it_is_based_on_and_what_it_leaves_out(tmp_path, cells):
    answered, calls = cells
    first, *others = [entry for entry in answered if entry.cell.doses.any() or entry.seed == 0]
    answered[:] = [with_model(first, "first"), *others]
    audit_stage = AuditStage(audit={})
    fields = {"repeats": 10, "spiked": [2], "share": 0.25, "prevalence": 0.2, "confidence": 0.9}
    prepared = Score(cells="report", **fields).prepare(audit_stage)
    assert calls == [(("audit.cells", "report"), {})]
    check_preparation(prepared, [entry.cell for entry in answered], REVISION, audit_stage)
    result = prepared.conduct(tmp_path)
    assert result.content.facts == {
        "contaminated cells": "6", "clean twins": "1", "membership": "loss",
        "share of members": "0.25 in the benchmarks; the corrections are told 0.2",
        "repetitions": "10 for each cell and benchmark",
        "benchmarks": "corrected one by one, each with spiked examples of its own",
        "confidence of intervals": "90%",
    }  # fmt: skip
    assert result.counts == {"cells": 7, "conditions": 1}
    assert result.files == ["errors_by_cell.parquet"]
    by_cell = pd.read_parquet(tmp_path / "errors_by_cell.parquet")
    assert [*by_cell] == ["condition", "scenario", "seed", "cell", "benchmark", "spiked",
                          "estimator", "bias", "square", "failed", "items"]  # fmt: skip
    lacking = [
        f"contaminated{swapped}-seed{seed}" for seed in (1, 2) for swapped in ("", "-swapped")
    ]
    assert result.content.warnings[:5] == [
        *(f"Left out: {name}, because its seed has no clean twin." for name in lacking),
        "**One clean twin only**: there are no reference models, so imputation, the combined score "
        "and ConStat are left out. Add seeds to the sweep.",
    ]


@pytest.mark.usefixtures("cells")
def test_every_setting_of_cells_that_changes_the_errors_names_the_folder(tmp_path, folder_of):
    changes = [{}, {"spiked": [2]}, {"share": 0.2}, {"repeats": 11}, {"tolerance": 2.0},
               {"confidence": 0.9}, {"prevalence": 0.3}, {"method": "min_k"}]  # fmt: skip
    assert len({folder_of(stage(tmp_path, **change)) for change in changes}) == len(changes)


@pytest.mark.usefixtures("cells")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cells": None}, "audit.items is None: give one of audit.items .* and audit.cells"),
        ({"items": "a.csv"}, "audit.items is 'a.csv': give one of audit.items"),
        (
            {"draws": 200},
            r"audit.draws is 200: leave it out, because it has no meaning with audit\.cells\.$",
        ),
        ({"references": ["a"]}, r"audit.references is \['a'\]: leave it out"),
        (
            {
                "cells": None,
                "items": "a.csv",
                "spiked": [2, 5, 10, 20, 40],
                "repeats": 200,
                "share": 0.2,
            },
            r"audit.share is 0.2: leave it out, because it has no meaning with audit\.items\.$",
        ),
        ({"spiked": [1]}, r"audit.spiked is \[1\]: give whole numbers of 2 or more"),
        ({"spiked": []}, "audit.spiked is"),
        ({"spiked": [2, 2]}, "audit.spiked is"),
        ({"share": 1.0}, "audit.share is 1.0"),
        ({"repeats": 1}, "audit.repeats is 1"),
        ({"tolerance": 0.0}, "audit.tolerance is 0.0"),
        ({"method": "los"}, "audit.method is 'los'.*loss"),
    ],
)
def test_bad_fields_of_cells_are_named(tmp_path, fields, words):
    with pytest.raises(ConfigError, match=words):
        run(stage(tmp_path, **fields))


def needs(**changes):
    item = Sufficiency("condition", AS_LEAKED, IPW, 5, 10, 2, 20, True)
    return _verdict(replace(item, **changes), 1.0)


def test_the_verdict_says_what_was_shown_and_no_more():
    assert needs().startswith("10 spiked examples on each side suffice for IPW: from there on")
    assert needs(helps=None) == (
        "no number of spiked examples up to 20 on each side suffices for IPW: its RMSE is not "
        "shown to be below naive's."
    )
    assert needs(settles=20) == (
        "10 spiked examples on each side bring the RMSE of IPW below naive's, but it still falls "
        "by more than 1 point up to 20, the most tried."
    )
    assert needs(fewest=20, settles=20, helps=20) == (
        "20 spiked examples on each side bring the RMSE of IPW below naive's; fewer and more were "
        "not tried."
    )
    assert "can't be said from one seed" in needs(is_judged=False, helps=None)
