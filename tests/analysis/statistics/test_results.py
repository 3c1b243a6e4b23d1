"""The results table: its columns, its numbers, and what is left out of it."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from contamination.analysis.cells import make_cell
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.statistics import results_table as module
from contamination.analysis.statistics.groups import measurable_groups
from contamination.analysis.statistics.results_table import (
    COLUMNS,
    BlindBaselines,
    resample_group,
    why_without_number,
)
from contamination.core.errors import DataError
from tests.analysis.conftest import SHIFT, results_table

QUICK = AnalysisConfig(draws=50, blind_folds=3)
KEY = ["cell", "checkpoint", "benchmark", "method", "variant", "occurrences", "metric"]


def test_columns_are_the_promised_ones_and_only_what_is_not_carried_is_nan(results):
    assert tuple(results.columns) == COLUMNS
    numbers = ["value", "ci_low", "ci_high"]
    for name in numbers:
        assert (results[name].isna() == (results["needs"] != "")).all()
    assert not results.drop(columns=[*numbers, "p_control"]).isna().any().any()
    control = results.query("checkpoint == 'clean' and metric == 'auroc' and occurrences == 'any'")
    assert control["p_control"].between(0, 1).all()
    assert results.drop(control.index)["p_control"].isna().all()
    assert not results.duplicated(KEY).any()
    assert set(results["occurrences"]) == {"1", "2", "4", "8", "any"}
    rates = {f"tpr_at_fpr_{rate}" for rate in (0.001, 0.05, 0.25)}
    assert set(results["metric"]) == {"auroc", "fpr_at_tpr_0.75", *rates}
    blind = results.query("method == 'blind'")
    assert (set(blind["checkpoint"]), set(blind["variant"])) == ({"clean"}, {""})
    assert set(results["learning_rate"]) == {0.001}
    assert results["default"].all()
    # (3 methods × 2 checkpoints + blind) × 5 doses × (2 benchmarks + all) × 5 metrics
    assert len(results) == 7 * 5 * 3 * 5


def test_a_rate_needs_the_examples_that_carry_it(results):
    """32 + 32 a benchmark, 8 members a dose: no rate is a number below 5 expected alarms."""
    found = results.groupby(["metric", "benchmark", "occurrences"])["needs"].unique()
    assert {name: set(part) for name, part in results.groupby("metric")["needs"]} == {
        "auroc": {""},
        "tpr_at_fpr_0.001": {"≥ 5,000 non-members", "≥ 5,000 non-members per benchmark"},
        "tpr_at_fpr_0.05": {"≥ 100 non-members", "≥ 100 non-members per benchmark"},
        "tpr_at_fpr_0.25": {""},
        "fpr_at_tpr_0.75": {"", "≥ 20 members", "≥ 20 members per benchmark"},
    }
    assert found["fpr_at_tpr_0.75", "imdb", "8"].tolist() == ["≥ 20 members"]
    assert found["fpr_at_tpr_0.75", "imdb", "any"].tolist() == [""]


def test_auroc_equals_scikit_learn(cell, results):
    scored = cell.examples.set_index("example_id")
    rows = results.query("metric == 'auroc' and method != 'blind' and benchmark != 'all'")
    for row in rows.itertuples():
        dose = [int(row.occurrences)] if row.occurrences != "any" else [1, 2, 4, 8]
        kept = scored[
            (scored["benchmark"] == row.benchmark) & scored["occurrences"].isin([0, *dose])
        ]
        scores = cell.scores[row.checkpoint].loc[kept.index, (row.method, row.variant)]
        assert row.value == pytest.approx(roc_auc_score(kept["member"], scores), abs=1e-12)
        assert row.n_members == kept["member"].sum()
        assert row.n_nonmembers == 32


def test_all_is_the_mean_over_benchmarks(results):
    key = [name for name in KEY if name != "benchmark"]
    single = results[results["benchmark"] != "all"].groupby(key)
    mean = results[results["benchmark"] == "all"].set_index(key)
    pd.testing.assert_series_equal(
        mean["value"].sort_index(), single["value"].mean().sort_index(), check_names=False
    )
    assert (mean["n_members"].sort_index() == single["n_members"].sum().sort_index()).all()
    width = mean["ci_high"] - mean["ci_low"]
    single_width = single["ci_high"].mean() - single["ci_low"].mean()
    assert width.mean() == pytest.approx(single_width.mean() / 2**0.5, rel=0.1)


def test_intervals_hold_their_value(results):
    auroc = results[results["metric"] == "auroc"]
    assert (auroc["ci_low"] <= auroc["value"] + 1e-9).all()
    assert (auroc["value"] <= auroc["ci_high"] + 1e-9).all()


def test_the_simulated_effect_is_found(results):
    """And the clean checkpoint, on the same examples, shows nothing."""
    chosen = results.query("metric == 'auroc' and benchmark == 'all'")
    rows = chosen.set_index(["method", "checkpoint", "occurrences"])
    value, low, high = (rows[name] for name in ("value", "ci_low", "ci_high"))
    spread = (65 / (12 * 32 * 32) / 2) ** 0.5  # without an effect: a mean of two of 32 + 32
    for method, shift in SHIFT.items():
        for dose in (1, 2, 4, 8):
            expected = norm.cdf(0.6 * shift * np.log2(1 + dose) / 2**0.5)
            key = method, "contaminated", str(dose)
            assert low[key] - 0.02 <= expected <= high[key] + 0.02
        assert low[method, "contaminated", "any"] > 0.5
        assert value[method, "clean", "any"] == pytest.approx(0.5, abs=2 * spread)
        assert low[method, "clean", "any"] <= 0.5 <= high[method, "clean", "any"]


def test_cells_that_share_a_corpus_share_its_resamples(make):
    """Another learning rate changes no control: same examples, same clean scores, same draws."""
    cell = make()
    other = replace(cell, name="other", learning_rate=1.0)
    table = results_table("trial", 0, [cell, other], QUICK)
    parts = [part.drop(columns=["cell", "learning_rate"]) for _, part in table.groupby("cell")]
    pd.testing.assert_frame_equal(*(part.reset_index(drop=True) for part in parts))


def drawn(cell, seed=0, benchmark="boolq", dose="any"):
    """The resamples of one group, as columns named after the examples."""
    own = {
        (group.benchmark, group.occurrences): group for group in measurable_groups(cell.examples)
    }
    group = own[benchmark, dose]
    found, names = resample_group(group, cell, 9, seed), cell.examples["example_id"].to_numpy()
    sides = (found.members, group.members), (found.nonmembers, group.nonmembers)
    return [pd.DataFrame(counts, columns=names[rows]) for counts, rows in sides]


def test_resamples_follow_the_seed_the_examples_and_the_benchmark(make):
    one = make()
    first = drawn(one, dose="1")
    assert [side.shape for side in first] == [(9, 8), (9, 32)]
    for side, same in zip(first, drawn(replace(one, learning_rate=1.0), dose="1"), strict=True):
        pd.testing.assert_frame_equal(side, same)
    others = [drawn(one, seed=1, dose="1"), drawn(one, benchmark="imdb", dose="1")]
    for members, nonmembers in others:
        assert (members.to_numpy() != first[0].to_numpy()).any()
        assert (nonmembers.to_numpy() != first[1].to_numpy()).any()
    pd.testing.assert_frame_equal(drawn(one, dose="2")[1], first[1])
    assert (drawn(one, dose="2")[0].to_numpy() != first[0].to_numpy()).any()


def test_cells_that_insert_the_same_texts_more_often_draw_them_together(make):
    """A sweep of occurrences is paired, also over the members that only some cells insert."""
    one = make(doses=[1], a_dose=32)
    more = replace(one, examples=one.examples.assign(occurrences=4 * one.examples["occurrences"]))
    for side, same in zip(drawn(one), drawn(more), strict=True):
        pd.testing.assert_frame_equal(side, same)
    fewer = one.examples["occurrences"].mask(one.examples.index % 4 == 0, 0)
    members, nonmembers = drawn(replace(one, examples=one.examples.assign(occurrences=fewer)))
    pd.testing.assert_frame_equal(nonmembers, drawn(one)[1])
    both = np.stack([members, drawn(one)[0][members.columns]]).reshape(2, -1)
    assert members.shape[1] == 24
    assert np.corrcoef(both)[0, 1] > 0.8


def test_the_blind_baseline_is_made_once_of_the_same_examples(make, monkeypatch):
    made = []
    monkeypatch.setattr(
        module, "make_blind_baseline", lambda *given: made.append(given) or len(made)
    )
    cell, same = make(), make(learning_rate=1.0)
    other, blind = make(a_dose=4), BlindBaselines(3, 0)
    assert [blind(each) for each in (cell, same, other, cell)] == [1, 1, 2, 1]
    assert [BlindBaselines(4, seed)(cell) for seed in (0, 1)] == [3, 4]
    examples, folds, seeds, _ = zip(*made, strict=True)
    assert examples[:2] == (cell.examples, other.examples)
    assert folds == (3, 3, 4, 4)
    assert [seeds.index(seed) for seed in seeds] == [0, 1, 0, 3]


def test_the_seed_moves_intervals_but_no_value_of_a_detector(cell):
    one, two = (results_table("trial", seed, [cell], QUICK) for seed in (0, 1))
    detector = one["method"] != "blind"
    np.testing.assert_array_equal(one.loc[detector, "value"], two.loc[detector, "value"])
    detector &= one["needs"] == ""
    assert (one.loc[detector, "ci_low"] != two.loc[detector, "ci_low"]).any()


def test_a_dose_that_some_benchmarks_lack_has_no_mean(make_parts, caplog):
    parts = make_parts(benchmarks=["arc", "boolq", "imdb"], a_dose=4)
    examples = parts["corpus"].examples
    kept = examples[(examples["benchmark"] == "boolq") | (examples["occurrences"] != 8)]
    cell = make_cell(**{**parts, "corpus": replace(parts["corpus"], examples=kept)})
    with caplog.at_level(logging.WARNING):
        table = results_table("trial", 0, [cell], QUICK)
    assert set(table.query("occurrences == '8'")["benchmark"]) == {"boolq"}
    assert set(table.query("occurrences == '4'")["benchmark"]) == {"arc", "boolq", "imdb", "all"}
    assert not table.query("metric == 'auroc'")["value"].isna().any()
    assert caplog.messages == [
        f"{cell.name} has no members or no non-members in arc (occurrences 8), imdb (occurrences "
        "8): no values there, and no mean over benchmarks of these occurrences."
    ]


def test_a_benchmark_too_small_for_the_blind_baseline_keeps_its_detectors(make_parts):
    parts = make_parts(benchmarks=["boolq"], doses=[1], a_dose=1)
    table = results_table("trial", 0, [make_cell(**parts)], QUICK)
    assert set(table["method"]) == {"loss", "min_k", "min_k_plus_plus"}
    assert not table.query("metric == 'auroc'")["value"].isna().any()


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ((0, 9), "no members: nothing to detect"),
        ((9, 0), "no non-members: nothing to compare the members with"),
        ((9, 9), "needs ≥ 20 members"),
    ],
)
def test_a_row_without_a_number_tells_why(sizes, why):
    row = dict(zip(("n_members", "n_nonmembers"), sizes, strict=True))
    assert why_without_number({**row, "needs": "≥ 20 members"}) == why


def test_a_cell_without_members_has_rows_of_all_alone_and_of_the_detectors(make_parts):
    parts = make_parts(doses=[0])
    estimated = module.cell_estimates(make_cell(**parts), BlindBaselines(3, 0)(make_cell(**parts)),
                                 QUICK, 0)  # fmt: skip
    assert len(estimated) == 2 * 3 * 5
    assert {measure.occurrences for measure in estimated} == {"any"}
    for measure, found in estimated.items():
        (value,) = found.values()
        assert (list(found), value.n_members, value.n_nonmembers) == (["all"], 0, 16)
        assert measure.metric != "auroc" or value.needs == "members per benchmark"


def test_nothing_to_compare_is_an_error(make_parts):
    parts = make_parts()
    alone = parts["corpus"].examples.query("member")
    cell = make_cell(**{**parts, "corpus": replace(parts["corpus"], examples=alone)})
    with pytest.raises(DataError, match="nothing to compare"):
        results_table("trial", 0, [cell], QUICK)
