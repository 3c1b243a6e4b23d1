"""Draws, the share of the way and the distance, beside simulations of the null."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, ks_2samp
from scipy.stats import t as student

from contamination.audits.unlearning.audit_units import AuditUnits
from contamination.audits.unlearning.comparison import estimate_columns, ks_distance, swap_p_value
from contamination.audits.unlearning.forget_ratio import SAME, fieller_interval, forget_ratio
from contamination.audits.unlearning.tables import format_estimate
from contamination.core.seeds import derive_seed
from contamination.core.statistics.estimates import Estimate
from contamination.core.statistics.metrics import AUROC
from contamination.core.statistics.samples import UnitSample, estimate_difference
from contamination.detection.evaluation import DRAWS


def units(members, others, chunks=1, benchmarks=1, seed=0):
    rows = [
        {"text_id": f"{member}{text}", "benchmark": f"b{text % benchmarks}", "member": member}
        for member, count in ((True, members), (False, others))
        for text in range(count)
        for _ in range(chunks)
    ]
    return AuditUnits(pd.DataFrame(rows).astype({"member": "boolean"}), seed)


def test_all_chunks_of_a_text_are_drawn_together():
    found = units(5, 4, chunks=3)
    (group,) = found.benchmarks
    for side, texts in ((group.members, 5), (group.nonmembers, 4)):
        drawn = side.drawn.reshape(len(side.drawn), texts, 3)
        assert (drawn == drawn[:, :, :1]).all()
        assert (side.drawn.sum(axis=1) == texts * 3).all()


def test_draws_have_a_seed_and_a_name_each():
    """So that models are compared on the same draws, in whatever order they are read."""
    audit_units = units(9, 8, chunks=2, benchmarks=1, seed=4)
    ids, (group,) = audit_units.table["text_id"].to_numpy(str), audit_units.benchmarks
    values = np.arange(len(ids)) % 2.0
    for side, mask, name in (
        (group.members, audit_units.sides[True], "members 0"),
        (group.nonmembers, audit_units.sides[False], "non-members 0"),
    ):
        sample = UnitSample.draw(mask, ids, DRAWS, derive_seed(4, "audit", name))
        assert (side.drawn == sample.drawn).all()
    sample = UnitSample.draw(audit_units.sides[True], ids, DRAWS, derive_seed(4, "audit", "known"))
    mean = audit_units.mean_in_mask(values, audit_units.sides[True], "known")
    rate = audit_units.mean_in_mask(values, audit_units.sides[True], "known", rate=True)
    assert mean.draws.tolist() == sample.mean(values).draws.tolist()
    assert rate.trials == sample.mean(values, rate=True).trials != mean.trials
    assert audit_units.mean_in_mask(values, np.zeros(len(ids), bool), "known") is None


def test_units_without_a_label_are_on_no_side():
    table = units(9, 8, chunks=2).table
    table.loc[[0, 20], "member"] = pd.NA
    audit_units = AuditUnits(table[::-1], 0)
    assert [*audit_units.table.columns] == ["text_id", "benchmark", "member"]
    assert audit_units.table.index.tolist() == [*range(34)]
    assert {side: mask.sum() for side, mask in audit_units.sides.items()} == {True: 17, False: 15}
    assert not audit_units.sides[True][33] | audit_units.sides[False][13]
    assert audit_units.has_both_labels
    assert audit_units.count_texts(with_controls=False) == 9
    assert audit_units.count_texts(with_controls=True) == 8
    values = np.arange(34.0)
    for member, mask in audit_units.sides.items():
        assert audit_units.label_mean(values, member).value == pytest.approx(values[mask].mean())
    assert not units(9, 0).has_both_labels
    assert AuditUnits(table[:0], 0).benchmarks == []


def test_auroc_and_its_draws_are_those_of_the_drawn_chunks():
    rng = np.random.default_rng(0)
    found = units(16, 17, chunks=2, benchmarks=2)
    values = rng.normal(size=len(found.table)).round(1)
    estimates = []
    for group in found.benchmarks:
        sides = group.members, group.nonmembers
        estimates.append(AUROC.value(*(values[side.rows] for side in sides)))
        for draw in (0, 17):
            own = [np.repeat(values[s.rows], s.drawn[draw].astype(int)) for s in sides]
            assert group.auroc(values).draws[draw] == pytest.approx(AUROC.value(*own))
    assert found.auroc(values).value == pytest.approx(np.mean(estimates))


def test_a_benchmark_of_members_alone_makes_all_texts_one_group():
    table = units(16, 16, benchmarks=2).table
    assert len(AuditUnits(table, 0).benchmarks) == 2
    table.loc[table["member"] & (table["benchmark"] == "b1"), "benchmark"] = "b2"
    assert len(AuditUnits(table, 0).benchmarks) == 1


def test_the_mean_of_one_text_has_no_interval():
    found = units(1, 2)
    one, two = (
        estimate_columns("loss", found.label_mean(np.arange(3.0), member))
        for member in (True, False)
    )
    assert one["loss"] == 0.0
    assert np.isnan([one["loss_low"], one["loss_high"]]).all()
    assert format_estimate(one, "loss") == "0.000"
    assert two["loss_low"] < two["loss"] < two["loss_high"]


def test_benchmarks_of_few_texts_make_one_group_whose_draws_differ():
    found = units(12, 12, benchmarks=12)
    assert len(found.benchmarks) == 1
    assert found.label_mean(np.arange(24.0), True).draws.std() > 0


def three(rng, share, texts, gap=0.5, noise=0.3):
    """Members' scores before, after and of the twin: every text has a gap of its own."""
    base, own = rng.normal(size=texts), gap * rng.exponential(size=texts)
    means = base + own, base + own * (1 - share), base
    return [mean + noise * rng.normal(size=texts) for mean in means]


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_the_interval_holds_the_true_share(share):
    rng, found = np.random.default_rng(3), units(40, 1)
    hits = []
    for _ in range(150):
        means = [found.label_mean(np.append(v, 0), True) for v in three(rng, share, 40)]
        one = forget_ratio(means, 40)
        hits.append(one.low <= share <= one.high)
    assert binomtest(sum(hits), 150, 0.95).pvalue > 0.001


def test_an_original_that_is_the_twin_has_no_way_to_go():
    rng, found = np.random.default_rng(0), units(40, 1)
    told = 0
    for _ in range(150):
        means = [found.label_mean(np.append(v, 0), True) for v in three(rng, 0, 40, gap=0)]
        told += not forget_ratio(means, 40).reason
    assert told / 150 < 0.07


def test_the_same_model_has_gone_no_way_and_the_twin_all_of_it():
    rng, found = np.random.default_rng(0), units(40, 1)
    before, _, clean = (found.label_mean(np.append(v, 0), True) for v in three(rng, 0, 40))
    same = forget_ratio([before, before, clean], 40)
    twin = forget_ratio([before, clean, clean], 40)
    assert (same.value, same.low, same.high) == (0, 0, 0)
    assert (twin.value, twin.low, twin.high) == pytest.approx((1, 1, 1))
    assert forget_ratio([clean, before, before], 40).reason == SAME  # learnt to score lower


def test_rounding_that_is_the_same_for_all_texts_is_no_way_to_go():
    found, scores = units(40, 1), np.append(np.random.default_rng(0).normal(size=40), 0)
    before, after = (found.label_mean(scores - less, True) for less in (0, 1e-6))
    assert forget_ratio([before, after, after], 40).reason == SAME


def test_the_share_is_the_same_in_any_unit():
    """Zlib's scores, in nats a token and byte, of long texts are some 0.0001."""
    found, values = units(40, 1), [*three(np.random.default_rng(0), 0.5, 40)]
    one, tiny, huge = (
        forget_ratio([found.label_mean(np.append(v, 0) * unit, True) for v in values], 40)
        for unit in (1, 2.0**-20, 2.0**60)
    )
    assert not one.reason
    assert tiny == huge == one


def test_the_forget_ratio_has_fiellers_interval_with_students_quantile():
    audit_units = units(5, 1)
    before, after, clean = (
        audit_units.label_mean(np.append(v, 0), True)
        for v in three(np.random.default_rng(0), 0.5, 5)
    )
    ratio = forget_ratio([before, after, clean], 5, 0.5)
    falls = before.value - after.value, before.value - clean.value
    covariance = np.cov([before.draws - after.draws, before.draws - clean.draws]) * 5 / 4
    limits = fieller_interval(*falls, covariance, student.ppf(0.75, 4))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((falls[0] / falls[1], *limits))
    assert ratio.reason == ""


def test_the_ratio_of_a_single_text_is_not_estimated():
    audit_units, values = units(1, 1), [np.array([v, 0.0]) for v in (-1.0, -1.5, -2.0)]
    means = [audit_units.label_mean(v, True) for v in values]
    assert forget_ratio(means, 1).reason == "fewer than 2 texts"
    means_of_two = [units(2, 1).label_mean(np.append(v, v[0]), True) for v in values]
    assert forget_ratio(means_of_two, 2).reason != "fewer than 2 texts"


def test_fiellers_limits_are_where_the_test_of_a_ratio_turns():
    covariance = np.array([[0.04, 0.01], [0.01, 0.02]])
    for limit in fieller_interval(1.0, 2.0, covariance, 2.0):
        spread = np.array([1, -limit])
        assert (1 - 2 * limit) ** 2 == pytest.approx(4 * spread @ covariance @ spread)
    assert fieller_interval(1.0, 0.2, covariance, 2.0) is None
    assert fieller_interval(0.0, 0.0, np.zeros((2, 2)), 2.0) is None


def test_a_difference_is_of_the_draws():
    one, other = (Estimate(2, 0, v, np.array([v, v + 1])) for v in (3.0, 1.0))
    assert (
        estimate_difference(one, other).value,
        estimate_difference(one, other).draws.tolist(),
    ) == (2, [2, 2])


def swapped_by_text(pair, text, chosen):
    """The two models' scores, exchanged for the units of some texts."""
    is_swapped = np.isin(text, np.flatnonzero(chosen))
    return np.where(is_swapped, pair[1], pair[0]), np.where(is_swapped, pair[0], pair[1])


def test_the_distance_is_kolmogorovs_and_its_p_value_that_of_all_swaps_of_whole_texts():
    """Whatever the actual labels are: so it is uniform without a difference."""
    rng, text = np.random.default_rng(3), np.repeat(range(5), [3, 5, 7, 9, 11])
    difference = 2 * rng.normal(size=5)[text] + 0.3 * rng.normal(size=len(text))
    first = rng.normal(size=len(text))
    pair = first.round(2), (first + difference).round(2)
    swaps = [swapped_by_text(pair, text, chosen) for chosen in product([0, 1], repeat=5)]
    distances = np.array([ks_2samp(*own).statistic for own in swaps])
    assert len(set(distances.round(6))) > 5
    for place, (own, distance) in enumerate(zip(swaps, distances, strict=True)):
        assert ks_distance(*own) == pytest.approx(distance)
        share = np.mean(distances >= distance - 1e-9)
        error = 4 * np.sqrt(share * (1 - share) / 999) + 0.001
        assert swap_p_value(*own, text.astype(str), place) == pytest.approx(share, abs=error)
    whole = np.repeat(range(20), 2)
    scores = rng.normal(size=40)
    assert swap_p_value(scores, scores + 9, whole, 0) == 0.001
