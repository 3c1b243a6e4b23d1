"""Nulls and coverage of what a report prints, wired as it is: a small `perf.coverage`.

A cell has a method a run, so one estimate of the cell is hundreds of repetitions. Benchmarks differ
in size and in level. A test fails by chance once in a thousand times on either side.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, norm

from contamination.analysis.config import AnalysisConfig
from contamination.analysis.statistics import paired, seed_pooling, trends
from contamination.analysis.statistics.controls import (
    ControlKey,
    control_aurocs,
    distances_from_chance,
    with_control_p_values,
)
from contamination.analysis.statistics.results_table import Measure, cell_estimates, cell_rows
from contamination.analysis.statistics.tidy_tables import compute_statistics
from contamination.detection.baselines.blind import SHUFFLES, BlindBaseline

RUNS, LEVEL = 200, 0.95
SIZES = {"a": (45, 90), "b": (90, 60)}
"""Members and non-members of each benchmark."""
DOSES = (1, 2, 8)
CONFIG = AnalysisConfig(draws=200, fpr=[], tpr=[])


def rate(found, runs=RUNS, least=0.05, most=0.05):
    """Whether so many of the runs are what chances from `least` to `most` give."""
    return binom.ppf(0.001, runs, least) <= found <= binom.ppf(0.999, runs, most)


def simulated(cell, rng, effect, runs=RUNS, seed=0):
    """A cell whose members score `effect(dose)` standard deviations higher, whatever the method."""
    rows = [
        (f"{name}-{seed}-{i}", name, i < members, DOSES[i % 3] * (i < members))
        for name, (members, others) in SIZES.items()
        for i in range(members + others)
    ]
    columns = ["example_id", "benchmark", "member", "occurrences"]
    examples = pd.DataFrame(rows, columns=columns).assign(text=lambda e: e["example_id"])
    level = examples["benchmark"].map({"a": 0.0, "b": 5.0}).to_numpy()
    dose = examples["occurrences"].to_numpy()
    shift = level + np.where(dose, effect(np.maximum(dose, 1)), 0)
    scores = shift[:, None] + rng.normal(size=(len(examples), runs))
    methods = pd.MultiIndex.from_tuples([(f"m{i:03d}", "") for i in range(runs)])
    table = pd.DataFrame(scores, index=examples["example_id"], columns=methods)
    return replace(cell, seed=seed, examples=examples, scores={"contaminated": table})


def estimated(cell):
    """Its estimates, without a blind baseline."""
    blind = BlindBaseline(np.full((len(cell.examples), 1 + SHUFFLES), np.nan))
    return cell_estimates(cell, blind, CONFIG, 0)


def flat(dose):
    return 0.7 + 0 * dose


@pytest.fixture(scope="module")
def seeds(cell):
    """Three seeds of one condition; members are apart by the same at every dose."""
    rng = np.random.default_rng(0)
    cells = [simulated(cell, rng, flat, seed=seed) for seed in range(3)]
    return cells, [estimated(each) for each in cells]


def test_doses_share_the_draws_of_their_nonmembers(cell):
    """Members of equal scores: an AUROC's draws differ by those of the non-members alone."""
    made = simulated(cell, np.random.default_rng(4), flat, runs=1)
    inserted = made.examples["member"].to_numpy()
    made.scores["contaminated"][inserted] = 0.3
    found = estimated(made)
    one, other = (
        found[Measure("contaminated", "m000", "", dose, "auroc")]["a"].draws for dose in "18"
    )
    assert one.std() > 0.01
    np.testing.assert_allclose(one, other)


def held(rows, truth):
    """In how many runs the interval held the truth, by benchmark and occurrences."""
    inside = (rows["ci_low"] <= truth) & (truth <= rows["ci_high"])
    return inside.groupby([rows["benchmark"], rows["occurrences"]]).sum()


def test_the_intervals_of_the_results_hold_the_truth(seeds):
    """Of each benchmark and of their mean, of all members and of a dose (15 or 30 a benchmark)."""
    cells, found = seeds
    rows = pd.DataFrame(cell_rows(cells[0], found[0], LEVEL))
    for (benchmark, dose), number in held(rows, norm.cdf(0.7 / 2**0.5)).items():
        assert rate(number, least=0.92, most=0.97), (benchmark, dose, number)
    assert len(held(rows, 0)) == 3 * 4


def test_the_intervals_over_seeds_hold_the_truth(seeds):
    """Of three seeds that do not differ they hold it in 97 to 98%, more than they promise."""
    cells, found = seeds
    joint = seed_pooling.pool_estimates(found, seed_pooling.Replicates.of(cells), 0)
    rows = pd.DataFrame(seed_pooling.condition_rows(cells, found, joint, LEVEL))
    assert (rows["n_seeds"] == 3).all()
    for place, number in held(rows, norm.cdf(0.7 / 2**0.5)).items():
        assert rate(number, least=0.96, most=0.99), (place, number)


def test_slopes_over_doses_include_zero_where_there_is_no_trend(seeds):
    (one, *_), (found, *_) = seeds
    responses = trends.dose_responses(one, CONFIG, 0)
    rows = pd.DataFrame(trends.occurrences_trend_rows("c", [one], found, responses, LEVEL))
    outside = (rows["slope_low"] > 0) | (rows["slope_high"] < 0)
    for benchmark, number in outside.groupby(rows["benchmark"]).sum().items():
        assert rate(number, least=0.035, most=0.065), (benchmark, number)
    tested = (rows["p_value"] < 0.05).groupby(rows["benchmark"]).sum()
    assert all(rate(number, least=0.035, most=0.06) for number in tested), tested


def test_poisson_numbers_do_not_make_a_constant_auroc_fall(cell):
    """Half an example that was added to every dose moved the rare, high ones: 20% "fell"."""
    rng, size, methods = np.random.default_rng(6), 100, 50
    fell = 0
    for seed in range(2):
        occurrences = np.r_[rng.poisson(4, size), np.zeros(size, int)]
        ids = [f"{seed}-{i}" for i in range(2 * size)]
        examples = pd.DataFrame({"example_id": ids, "benchmark": "a", "text": ids})
        examples = examples.assign(member=np.arange(2 * size) < size, occurrences=occurrences)
        examples["contamination"] = ""
        shift = 2**0.5 * norm.ppf(0.92) * (occurrences > 0)
        names = pd.MultiIndex.from_tuples([(f"m{i:03d}", "") for i in range(methods)])
        scores = shift[:, None] + rng.normal(size=(2 * size, methods))
        table = pd.DataFrame(scores, index=examples["example_id"], columns=names)
        tables = {"clean": table.head(0).reindex(table.index, fill_value=0), "contaminated": table}
        made = replace(cell, seed=seed, examples=examples, scores=tables)
        rows = compute_statistics("trial", 0, [made], replace(CONFIG, blind_folds=3)).trends
        fell += (rows.query("benchmark == 'all'")["slope_high"] < 0).sum()
    assert fell <= binom.ppf(0.999, 2 * methods, 0.025)


def test_a_series_has_no_trend_where_there_is_none(cell):
    """Three conditions of their own examples: the bootstrap's p and the slope's interval."""
    rng = np.random.default_rng(1)
    cells = [
        replace(simulated(cell, rng, flat, seed=seed), learning_rate=10.0**-seed)
        for seed in range(1, 4)
    ]
    conditions = [trends.summarise_condition([each], estimated(each)) for each in cells]
    rows = pd.DataFrame(trends.series_trend_rows(conditions, LEVEL))
    rows = rows[rows["benchmark"] == "all"]
    assert len(rows) == RUNS
    assert rate((rows["p_value"] < 0.05).sum(), least=0.035, most=0.07)
    outside = (rows["slope_low"] > 0) | (rows["slope_high"] < 0)
    assert rate(outside.sum(), least=0.035, most=0.07)


def test_a_sweep_of_occurrences_is_paired_over_the_texts_that_its_cells_share(cell):
    """Most of a score is the text's own: unpaired, no slope would ever be told apart from 0.

    The second cell inserts all of the first one's members, the third only some of them.
    """
    rng = np.random.default_rng(5)
    one = simulated(cell, rng, lambda dose: flat(dose) * (dose > 0), seed=1)
    texts = one.scores["contaminated"]
    members = one.examples["member"].to_numpy()
    conditions = []
    for mean, dropped in ((1.0, 0.0), (2.0, 0.0), (4.0, 0.3)):
        occurrences = np.where(members & (rng.random(len(members)) >= dropped), int(mean), 0)
        noise = pd.DataFrame(rng.normal(size=texts.shape), texts.index, texts.columns)
        examples = one.examples.assign(occurrences=occurrences)
        scores = {"contaminated": texts + 0.5 * noise}
        made = replace(one, mean_occurrences=mean, examples=examples, scores=scores)
        conditions.append(trends.summarise_condition([made], estimated(made)))
    rows = pd.DataFrame(trends.series_trend_rows(conditions, LEVEL))
    rows = rows[(rows["over"] == "mean_occurrences") & (rows["benchmark"] == "all")]
    assert len(rows) == RUNS
    outside = (rows["slope_low"] > 0) | (rows["slope_high"] < 0)
    for rejected in ((rows["p_value"] < 0.05).sum(), outside.sum()):
        assert rate(rejected, least=0.04, most=0.065), rejected


def test_a_clean_control_is_off_in_five_percent(cell):
    """Each method is a report of its own, looked at in two benchmarks and their mean."""
    made = simulated(cell, np.random.default_rng(2), lambda dose: 0 * dose)
    clean = replace(made, scores={"clean": made.scores["contaminated"]})
    by_method = defaultdict(dict)
    blind = BlindBaseline(np.full((len(made.examples), 1 + SHUFFLES), np.nan))
    for look, aurocs in control_aurocs(clean, blind, 0).items():
        by_method[look.method][look] = aurocs
    facts = {"cell": "c", "metric": "auroc", "checkpoint": "clean", "occurrences": "any"}
    off, signs = 0, []
    for aurocs in by_method.values():
        rows = pd.DataFrame(aurocs.keys(), columns=ControlKey._fields).assign(needs="", **facts)
        rows = with_control_p_values(rows, "cell", {"c": distances_from_chance(aurocs)})
        off += (rows["p_control"] <= 0.05).any()
        signs += [own[0] > 0.5 for own, p in zip(aurocs.values(), rows["p_control"], strict=True)
                  if p <= 0.05]  # fmt: skip
    assert rate(off, len(by_method))
    assert 0.2 < np.mean(signs) < 0.8


def test_equal_methods_differ_in_five_percent_and_corrected_in_fewer(cell):
    """Twenty methods of each cell, which share two thirds of their noise."""
    rng, p_values, families = np.random.default_rng(3), [], 0
    for seed in range(15):
        made = simulated(cell, rng, flat, runs=20, seed=seed)
        scores = made.scores["contaminated"]
        scores += 1.4 * rng.normal(size=(len(scores), 1))
        scores["m019", ""] = scores["m018", ""] + 1e-3 * rng.normal(size=len(scores))
        found = estimated(made)
        defaults = {f"m{i:03d}": "" for i in range(20)}
        rows = pd.DataFrame(paired.comparison_rows("c", found, defaults, LEVEL))
        rows = rows[rows["benchmark"] == "all"]
        apart = [(f"m{i:03d}", f"m{i + 1:03d}") for i in range(0, 18, 2)]
        own = rows.set_index(["method_a", "method_b"])
        p_values += own["p_value"][apart].tolist()
        twins = own.loc[("m018", "m019")]
        assert twins["ci_high"] - twins["ci_low"] < 0.01  # of the same draws
        families += (rows["p_max_t"] < 0.05).any()
        assert (rows["p_max_t"] >= rows["p_value"]).all()
    assert rate(np.less(p_values, 0.05).sum(), len(p_values), least=0.03, most=0.065)
    assert families <= binom.ppf(0.999, 15, 0.05)
