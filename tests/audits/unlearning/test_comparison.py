"""The tables of figures, beside naive means, counts and comparisons of pairs."""

import numpy as np
import pytest
from scipy.stats import ks_2samp

from contamination.audits.unlearning import comparison
from contamination.audits.unlearning.comparison import (
    estimate_columns,
    forget_ratio_table,
    group_mean_table,
    membership_table,
    screen_table,
    swap_p_value,
    utility_table,
)
from contamination.audits.unlearning.forget_ratio import apply_ratio_screen, forget_ratio
from contamination.core.statistics.estimates import Estimate, confidence_interval
from contamination.core.statistics.samples import estimate_difference
from tests.audits.unlearning.simulated import (
    MEMBERS,
    MEMBERSHIP,
    MODELS,
    NAMES,
    NONMEMBERS,
    TEXT_IDS,
    named_models,
    simulated_quantity,
)


def ends(estimate):
    return confidence_interval(estimate, 0.95)


def naive_auroc(values):
    wins = [(a > b) + (a == b) / 2 for a in values[MEMBERS] for b in values[NONMEMBERS]]
    return np.mean(wins)


def test_each_methods_scores_separate_members_from_non_members_by_model():
    scores = [simulated_quantity("loss", True), simulated_quantity("min_k", True)]
    table = membership_table(MODELS, scores, 7)
    assert table[["method", "model"]].to_numpy().tolist() == [
        [name, model] for name in ("loss", "min_k") for model in NAMES
    ]
    assert [*table.columns] == [
        "model", "method", "members", "non_members", "auroc", "auroc_low", "auroc_high",
        "distance", "p", "p_holm",
    ]  # fmt: skip
    for row in table.itertuples():
        score = next(score for score in scores if score.name == row.method)
        values, clean = score.values[row.model], score.values["clean"]
        assert row.members == pytest.approx(values[MEMBERS].mean())
        assert row.non_members == pytest.approx(values[NONMEMBERS].mean())
        assert row.auroc == pytest.approx(naive_auroc(values))
        assert (row.auroc_low, row.auroc_high) == ends(score.units.auroc(values))
        if row.model == "clean":
            assert np.isnan([row.distance, row.p, row.p_holm]).all()
            continue
        pair = values[MEMBERS], clean[MEMBERS]
        assert row.distance == pytest.approx(ks_2samp(*pair).statistic)
        assert (
            row.p == swap_p_value(*pair, TEXT_IDS[:10], 7) != swap_p_value(*pair, TEXT_IDS[:10], 8)
        )
    p_values = sorted(table["p"].dropna())
    holm = np.maximum.accumulate([(4 - n) * p for n, p in enumerate(p_values)]).clip(max=1)
    assert sorted(table["p_holm"].dropna()) == pytest.approx([*holm])


def test_without_a_twin_no_distance_is_in_the_table():
    table = membership_table(
        named_models("half", clean=None), [simulated_quantity("loss", True)], 7
    )
    assert table["model"].tolist() == ["original", "half"]
    assert not {"distance", "p", "p_holm"} & {*table}


def test_the_swaps_of_a_p_value_do_not_depend_on_the_memory(monkeypatch):
    rng = np.random.default_rng(1)
    pair, texts = (rng.normal(size=12), rng.normal(size=12) + 0.5), np.repeat(range(6), 2)
    whole = swap_p_value(*pair, texts, 0)
    assert 0.002 < whole < 0.9
    for signs in (1, 24 * 400):  # a swap at a time, and batches of which the last is smaller
        monkeypatch.setattr(comparison, "MAX_SIGNS", signs)
        assert swap_p_value(*pair, texts, 0) == whole


def test_a_rate_of_one_text_has_an_interval_and_a_missing_estimate_none():
    of_one_text = Estimate(1, 0, 1.0, np.ones(9), 1.0)
    columns = estimate_columns("recall", of_one_text)
    assert (columns["recall_low"], columns["recall_high"]) == ends(of_one_text)
    assert 0 < columns["recall_low"] < 1
    missing = estimate_columns("recall", None)
    assert [*missing] == ["recall", "recall_low", "recall_high"]
    assert np.isnan([*missing.values()]).all()


def ratio_columns(name, ratio):
    columns = {name: ratio.value, f"{name}_low": ratio.low, f"{name}_high": ratio.high}
    return columns | {f"{name}_why": ratio.reason}


def test_forget_ratios_are_of_the_members_and_beyond_the_non_members():
    score, recall = simulated_quantity("loss", True), simulated_quantity("recall", False)
    table = forget_ratio_table(MODELS, [score, recall])
    score_row, auroc_row, recall_row = table.to_dict("records")
    for row, source in ((score_row, score), (recall_row, recall)):
        members, others = (
            [source.units.label_mean(source.values[name], side) for name in NAMES]
            for side in (True, False)
        )
        differences = [estimate_difference(a, b) for a, b in zip(members, others, strict=True)]
        expected = {
            "unlearned": "half", "quantity": source.name,
            "method": "loss" if source is score else "",
            **{
                f"{prefix}{column}": source.values[name][side].mean()
                for prefix, side in (("", MEMBERS), ("non_members_", NONMEMBERS))
                for column, name in zip(("original", "after", "clean"), NAMES, strict=True)
            },
            **ratio_columns("share", forget_ratio(members, 9)),
            **ratio_columns("beyond", forget_ratio(differences, 8)),
        }  # fmt: skip
        assert row == pytest.approx(expected, nan_ok=True)
    aurocs = [score.units.auroc(score.values[name]) for name in NAMES]
    auroc_columns = {name: value for name, value in auroc_row.items() if value == value}
    assert auroc_columns == pytest.approx(
        {"unlearned": "half", "quantity": "AUROC of loss", "method": "loss"}
        | dict(zip(("original", "after", "clean"), (e.value for e in aurocs), strict=True))
        | ratio_columns("share", forget_ratio(aurocs, 8))
    )


def test_members_alone_have_no_ratio_beyond_and_no_member_no_ratio():
    members = simulated_quantity("loss", True, [True] * 20)
    (row,) = forget_ratio_table(MODELS, [members]).to_dict("records")
    assert "beyond" not in row
    assert row["quantity"] == "loss"
    assert forget_ratio_table(MODELS, [simulated_quantity("loss", True, [False] * 20)]).empty


def test_the_screen_of_each_model_is_a_row_of_rates():
    score = simulated_quantity("loss", True)
    units, values = score.units, [score.values[name] for name in NAMES]
    screen = apply_ratio_screen(units, *values, 1.3)
    (row,) = screen_table({"half": screen}, score, "original").to_dict("records")
    ratios = values[1] / values[0]
    flags = (ratios > 1 / 1.3) & (ratios < 1.3)
    assert 0 < flags[MEMBERS].sum() < 10
    member = np.array([side is True for side in MEMBERSHIP])
    nonmember = np.array([side is False for side in MEMBERSHIP])
    known = member & (values[0] > values[2]) & (values[1] > (values[0] + values[2]) / 2)
    expected = {"unlearned": "half", "chunks": 20, "suspicious": flags.sum()}
    for name, unit_values, mask, draws in (
        ("share", flags, np.ones(20, bool), "all"),
        ("precision", member, flags & (member | nonmember), "suspicious"),
        ("members", member, member | nonmember, "labelled"),
        ("recall", flags, member, "members"),
        ("false_alarms", flags, nonmember, "non-members"),
        ("kept", flags, known, "known"),
    ):
        unit_values = unit_values.astype(float)
        rate = units.mean_in_mask(unit_values, mask, draws, rate=True)
        columns = estimate_columns(name, rate)
        assert dict(screen.iter_named_rates())[name].draws.tolist() == rate.draws.tolist()
        assert columns[name] == pytest.approx(unit_values[mask].mean())
        assert columns[f"{name}_low"] < columns[f"{name}_high"]
        expected |= columns
    expected["known"] = known.sum()
    falls = values[0] - values[1]
    expected |= estimate_columns("auroc_of_the_fall", units.auroc(falls))
    assert [*row] == [*expected]
    assert row == pytest.approx(expected, nan_ok=True)
    assert expected["auroc_of_the_fall"] == pytest.approx(naive_auroc(falls))


def test_a_screen_without_labels_and_twin_has_its_share_alone():
    score = simulated_quantity("loss", True, [None] * 20)
    screen = apply_ratio_screen(score.units, *(score.values[n] for n in NAMES[:2]), None, 1.3)
    rates = dict(screen.iter_named_rates())
    assert [*rates] == ["share", "precision", "members", "recall", "false_alarms", "kept"]
    assert rates.pop("share").value == screen.suspicious.mean()
    assert {*rates.values()} == {None}
    assert screen.known is None
    table = screen_table({"half": screen}, score, "original")
    assert "auroc_of_the_fall" not in table
    assert table["known"].isna().all()


def test_means_are_of_members_and_non_members_and_of_the_suspicious_among_them():
    recall = simulated_quantity("recall", False)
    suspicious = {"u0", "u1", "u10", "u19", "of another quantity"}
    table = group_mean_table(MODELS, [recall], {"half": suspicious})
    groups = {"members": range(10), "non-members": range(10, 19)}
    by_screen = {
        "members, suspicious": [0, 1], "members, not": range(2, 10),
        "non-members, suspicious": [10], "non-members, not": range(11, 19),
    }  # fmt: skip
    expected = [
        {"quantity": "recall", "model": model, "group": group, "units": len(units),
         "mean": recall.values[model][[*units]].mean()}
        for model in NAMES
        for group, units in (groups | (by_screen if model == "half" else {})).items()
    ]  # fmt: skip
    rows = table[["quantity", "model", "group", "units", "mean"]].to_dict("records")
    assert rows == [pytest.approx(row) for row in expected]
    mask = np.isin(np.arange(20), range(2, 10))
    mean = recall.units.mean_in_mask(recall.values["half"], mask, "members, not")
    row = table[table["group"] == "members, not"].to_dict("records")[0]
    columns = estimate_columns("mean", mean)
    assert {name: row[name] for name in columns} == pytest.approx(columns)
    unlabelled = simulated_quantity("recall", False, [None] * 20)
    table = group_mean_table(MODELS, [unlabelled], {"half": suspicious})
    assert table[["model", "group", "units"]].to_numpy().tolist() == [
        ["original", "texts", 20], ["half", "texts", 20], ["half", "texts, suspicious", 4],
        ["half", "texts, not", 16], ["clean", "texts", 20],
    ]  # fmt: skip


def test_a_change_of_the_loss_is_paired_with_the_originals():
    losses = simulated_quantity("loss", False, [None] * 20)
    table = utility_table(MODELS, losses)
    everything = np.ones(20, bool)
    original, *_ = means = [
        losses.units.mean_in_mask(losses.values[name], everything, "all") for name in NAMES
    ]
    expected = [
        {"model": name, **estimate_columns("loss", mean),
         **estimate_columns("change", estimate_difference(mean, original))}
        for name, mean in zip(NAMES, means, strict=True)
    ]  # fmt: skip
    assert table.to_dict("records") == [pytest.approx(row) for row in expected]
    assert table["loss"].tolist() == pytest.approx([losses.values[n].mean() for n in NAMES])
    assert table["change"][0] == table["change_low"][0] == table["change_high"][0] == 0
