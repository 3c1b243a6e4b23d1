"""ROC curves and histograms agree with the metrics and the counts."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.config import AnalysisConfig
from analysis.inference.curves import EDGES, histogram_table, roc_table, samples
from core.metrics import tpr_at_fpr

CONFIG = AnalysisConfig(draws=60)


def one(table, **equal):
    for column, value in equal.items():
        table = table[table[column] == value]
    return table


@pytest.fixture(scope="module")
def found(cell):
    return samples([cell], 0)


def test_a_curve_is_the_metric_at_each_rate(found):
    place, (sample,) = next(iter(found.items()))
    line = one(roc_table(found, CONFIG, 0), **place._asdict())
    expected = [tpr_at_fpr(sample.members, sample.nonmembers, rate) for rate in line["fpr"]]
    np.testing.assert_allclose(line["tpr"], expected)
    assert line["tpr"].is_monotonic_increasing
    assert line["tpr"].iloc[-1] == 1
    assert (line["ci_low"] <= line["ci_high"]).all()


def test_all_is_the_mean_over_benchmarks(found):
    lines = one(roc_table(found, CONFIG, 0), checkpoint="contaminated", method="loss")
    wide = lines.pivot(index="fpr", columns="benchmark", values="tpr")
    np.testing.assert_allclose(wide["all"], wide[["boolq", "imdb"]].mean(axis=1))


def test_two_seeds_are_pooled_into_one_condition(make):
    config = AnalysisConfig(draws=60)
    cells = [make(seed=0), make(seed=1)]
    pooled, single = roc_table(samples(cells, 0), config, 0), roc_table(samples(cells[:1], 0),
                                                                        config, 0)  # fmt: skip
    assert len(pooled) == len(single)
    np.testing.assert_allclose(pooled["tpr"], single["tpr"])  # the same scores twice


def test_shares_add_up_to_one_on_each_side(found):
    bins = histogram_table(found)
    sides = bins.groupby(["checkpoint", "benchmark", "method", "variant", "side"])
    assert (sides["share"].count() == len(EDGES) - 1).all()
    np.testing.assert_allclose(sides["share"].sum(), 1)
    assert bins["share"].between(bins["ci_low"] - 1e-9, bins["ci_high"] + 1e-9).all()


def test_scores_far_outside_stay_in_the_outer_bins(found):
    place, (sample,) = next(iter(found.items()))
    far = {place: [sample._replace(members=np.full(5, 1e9))]}
    bins = one(histogram_table(far), side="members", benchmark=place.benchmark)
    assert bins["share"].iloc[-1] == 1
