"""ROC curves and histograms agree with the metrics and the counts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from contamination.analysis.config import AnalysisConfig
from contamination.analysis.statistics.curves import (
    EDGES,
    CurveKey,
    ScoreSample,
    histogram_table,
    roc_table,
    score_samples,
)
from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Resample, draw_named_counts
from contamination.core.statistics.estimates import confidence_interval, estimate_metrics
from contamination.core.statistics.metrics import tpr_at_fpr

CONFIG = AnalysisConfig(draws=60)


def one(table, **equal):
    for column, value in equal.items():
        table = table[table[column] == value]
    return table


PLACE = CurveKey("c", "contaminated", "a", "loss", "")


def sample_of(members, nonmembers):
    names = (tuple(f"{side}{i}" for i in range(len(scores))) for side, scores in
             (("m", members), ("n", nonmembers)))  # fmt: skip
    return ScoreSample(members, nonmembers, tuple(names), 0)


@pytest.fixture(scope="module")
def found(cell):
    return score_samples([cell])


def test_a_curve_is_the_metric_at_each_rate(found):
    place, (sample,) = next(iter(found.items()))
    line = one(roc_table(found, CONFIG, 0), **place._asdict())
    expected = [tpr_at_fpr(rate).value(sample.members, sample.nonmembers) for rate in line["fpr"]]
    np.testing.assert_allclose(line["tpr"], expected)
    assert line["tpr"].is_monotonic_increasing
    assert line["tpr"].iloc[-1] == 1
    draw_seed = derive_seed(0, "curves", place.benchmark)
    drawn = Resample(*(draw_named_counts(side, CONFIG.draws, draw_seed) for side in sample.names))
    wanted = [tpr_at_fpr(float(rate)) for rate in line["fpr"]]
    found = estimate_metrics(sample.members, sample.nonmembers, drawn, wanted).values()
    expected = [confidence_interval(each, CONFIG.confidence) for each in found]
    np.testing.assert_allclose(line[["ci_low", "ci_high"]], expected)


def test_all_is_the_mean_over_benchmarks(found):
    lines = one(roc_table(found, CONFIG, 0), checkpoint="contaminated", method="loss")
    wide = lines.pivot(index="fpr", columns="benchmark", values="tpr")
    np.testing.assert_allclose(wide["all"], wide[["boolq", "imdb"]].mean(axis=1))


def test_two_seeds_are_pooled_into_one_condition(make):
    config = AnalysisConfig(draws=60)
    cells = [make(seed=0), make(seed=1)]
    pooled, single = (
        roc_table(score_samples(some_cells), config, 0) for some_cells in (cells, cells[:1])
    )
    assert len(pooled) == len(single)
    for column in ("tpr", "ci_low", "ci_high"):  # the same scores of the same examples twice
        np.testing.assert_allclose(pooled[column], single[column])


def test_bands_follow_the_seed():
    samples = {PLACE: [sample_of(np.arange(20.0), np.arange(20.0) - 3)]}
    bands = [roc_table(samples, CONFIG, seed)["ci_low"].to_numpy() for seed in (0, 1)]
    assert (bands[0] != bands[1]).any()


def test_a_seed_without_one_of_the_examples_makes_a_band_no_narrower(make):
    """Its other examples are the same ones, and drawn as often."""
    config, one = AnalysisConfig(draws=60), make(seed=0)
    rows = np.arange(len(one.examples)) != 0
    tables = {name: table[rows] for name, table in one.scores.items()}
    almost = replace(
        make(seed=1), examples=one.examples[rows].reset_index(drop=True), scores=tables
    )
    single, pooled = (
        roc_table(score_samples(cells), config, 0) for cells in ([one], [one, almost])
    )
    narrower = (pooled["ci_high"] - pooled["ci_low"]) / (single["ci_high"] - single["ci_low"])
    assert narrower.mean() == pytest.approx(1, abs=0.05)


def test_shares_add_up_to_one_on_each_side(found):
    bins = histogram_table(found)
    sides = bins.groupby(["checkpoint", "benchmark", "method", "variant", "side"])
    assert (sides["share"].count() == len(EDGES) - 1).all()
    np.testing.assert_allclose(sides["share"].sum(), 1)
    assert bins["share"].between(bins["ci_low"] - 1e-9, bins["ci_high"] + 1e-9).all()


def by_hand(scores, others):
    """How many scores lie in each half deviation of the others from -4 to 6; outer ones open."""
    mean = sum(others) / len(others)
    deviation = (sum((x - mean) ** 2 for x in others) / len(others)) ** 0.5
    counts = [0] * 20
    for x in scores:
        counts[min(max(math.floor(((x - mean) / deviation + 4) * 2), 0), 19)] += 1
    return np.array(counts)


def test_a_bin_holds_the_mean_share_of_the_benchmarks_and_wilsons_interval():
    """Benchmarks of unequal size and two seeds, each on its own scale."""
    rng = np.random.default_rng(0)
    sizes = {"a": [(12, 30), (9, 40)], "b": [(50, 20)], "c": [(7, 9)]}
    drawn = {
        name: [
            sample_of(rng.normal(1, 3, m) + k, rng.normal(k, 2, n)) for k, (m, n) in enumerate(of)
        ]
        for name, of in sizes.items()
    }
    drawn["c"][0].members[:2] = -99, 99
    drawn["b"][0].members[:3] = -7.3  # in the first bin itself
    place = CurveKey("c", "contaminated", "", "loss", "")
    bins = histogram_table({place._replace(benchmark=name): of for name, of in drawn.items()})
    assert bins["centre"].iloc[:20].tolist() == pytest.approx(np.arange(20) / 2 - 3.75)
    assert set(bins["benchmark"]) == {"a", "b", "c", "all"}
    for side, which in (("members", 0), ("non-members", 1)):
        counts = {
            name: sum(by_hand(each[which], each.nonmembers) for each in of)
            for name, of in drawn.items()
        }
        for name, parts in {**{k: [v] for k, v in counts.items()}, "all": counts.values()}.items():
            found = one(bins, benchmark=name, side=side)
            share = np.mean([each / each.sum() for each in parts], axis=0)
            assert found["share"].tolist() == pytest.approx(share)
            n = len(parts) ** 2 / sum(1 / each.sum() for each in parts)
            for p, low, high in zip(share, found["ci_low"], found["ci_high"], strict=True):
                ends = np.roots([1 + 1.96**2 / n, -2 * p - 1.96**2 / n, p**2])
                assert [low, high] == pytest.approx(sorted(ends), abs=1e-9)


def test_equal_scores_of_nonmembers_are_not_divided_by_no_deviation():
    place = PLACE
    flat = {place: [sample_of(np.array([1.0, 2.2]), np.full(3, 1.0))]}
    members = one(histogram_table(flat), side="members", benchmark="a")
    assert members.loc[members["share"] == 0.5, "centre"].tolist() == [0.25, 1.25]


def test_all_has_no_curve_where_a_benchmark_lacks_a_side():
    place = PLACE
    scores = np.arange(20.0)
    lacks = {
        place: [sample_of(scores, scores)],
        place._replace(benchmark="b"): [sample_of(scores[:0], scores)],
        place._replace(benchmark="c"): [sample_of(scores, scores[:0])],
    }
    for table in (histogram_table(lacks), roc_table(lacks, CONFIG, 0)):
        assert set(table["benchmark"]) == {"a"}


def test_scores_far_outside_stay_in_the_outer_bins(found):
    place, (sample,) = next(iter(found.items()))
    far = {place: [sample._replace(members=np.full(5, 1e9))]}
    bins = one(histogram_table(far), side="members", benchmark=place.benchmark)
    assert bins["share"].iloc[-1] == 1
