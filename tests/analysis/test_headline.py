"""The answer first: what is said of a sweep and of the controls follows from the tables."""

from __future__ import annotations

import re
from dataclasses import replace
from statistics import stdev

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.factors import BY_COLUMN
from contamination.analysis.headline import controls_sentence, headlines, sweep_headline
from contamination.analysis.statistics.turning_points import format_levels
from contamination.analysis.sweeps import Sweep
from contamination.analysis.tables.estimates import sweep_table
from tests.analysis.small_report import joint, row

NO_PAIR = pd.DataFrame(columns=["condition"])
ROWS = (
    "benchmark == 'all' and metric == 'auroc' and occurrences == 'any'"
    " and checkpoint == 'contaminated'"
)


@pytest.fixture(scope="module")
def sweep(findings) -> Sweep:
    (sweep,) = findings.sweeps
    return sweep


def with_slopes(sweep: Sweep, **slopes: tuple[float, float, float]) -> Sweep:
    """The sweep with these slopes (value, low, high) by method."""
    columns = ["slope", "slope_low", "slope_high"]
    trends = sweep.trends.copy()
    for method, values in slopes.items():
        trends.loc[trends["method"] == method, columns] = values
    return replace(sweep, trends=trends)


def words(row) -> str:
    return f"{row['value']:.2f} [{row['ci_low']:.2f}, {row['ci_high']:.2f}]"


def joint_words(row) -> str:
    return f"{row['value']:.2f} [{row['joint_low']:.2f}, {row['joint_high']:.2f}]"


def test_it_tells_the_best_and_the_median_method_from_end_to_end(findings, sweep):
    rows = findings.pooled.query(ROWS)
    means = rows.groupby("method")["value"].mean().sort_values()
    middle, best = means.index[1:]
    slopes = {
        best: (0.31, 0.2, 0.4),
        middle: (0.02, -0.1, 0.1),
        means.index[0]: (-0.2, -0.3, -0.1),
    }
    ends = {
        name: [joint_words(own[own["learning_rate"] == rate].iloc[0]) for rate in (1e-4, 1e-3)]
        for name, own in rows.groupby("method")
    }
    assert sweep_headline(with_slopes(sweep, **slopes)) == (
        f"AUROC of {best}, the best of 3 methods on average (AUROC's intervals corrected for the "
        "choice, the slope's not), "
        "rises with peak learning rate from 1e-4 to 1e-3 (tiny_llama, 400,000 tokens), from "
        f"{ends[best][0]} at 1e-4 to {ends[best][1]} at 1e-3: its log-odds increase by 0.31 "
        f"[0.20, 0.40] per doubling. AUROC of {middle}, the median one, shows no clear trend with "
        f"peak learning rate, from {ends[middle][0]} at 1e-4 to {ends[middle][1]} at 1e-3: its "
        "log-odds change by 0.02 [-0.10, 0.10] per "
        "doubling. The slope's interval is above 0 for 1 of 3 methods, below 0 for 1."
    )


def test_a_variant_that_did_better_is_not_the_method(sweep):
    sharp = sweep.rows["method"] == "loss"
    rows = sweep.rows.assign(
        default=sweep.rows["default"] & ~sharp, value=sweep.rows["value"].mask(sharp, 0.99)
    )
    assert "loss" not in sweep_headline(replace(sweep, rows=rows)).replace("slope", "")


def test_one_method_has_no_median(sweep):
    rows = sweep.rows[sweep.rows["method"].isin(["loss", "blind"])]
    said = sweep_headline(replace(sweep, rows=rows))
    assert said.startswith("AUROC of loss ")
    assert "median" not in said
    assert "of 1 methods" not in said


def test_without_trends_it_says_both_ends(sweep):
    said = sweep_headline(replace(sweep, trends=sweep.trends.head(0)))
    assert "has no measured trend with peak learning rate" in said
    assert "it goes from 0." in said
    assert "doubling" not in said


@pytest.mark.parametrize(
    ("values", "turns", "verb"),
    [
        ((0.5, 0.9, 0.6), (0, 1, 2), "rises and then falls"),
        ((0.8, 0.5, 0.7), (0, 1, 2), "falls and then rises"),
        ((0.5, 0.7, 0.61), (0, 1), "rises"),
        ((0.5, 0.7, 0.9), (0, 2), "rises"),
        ((0.55, 0.94, 0.55, 0.94), (0, 1, 2, 3), "zigzags"),
    ],
)
def test_a_turn_between_the_ends_is_no_trend(sweep, values, turns, verb):
    """Intervals reach 0.05 to each side."""
    (one, rows), (two, _) = sweep.line_rows[sweep.line_rows["method"] == "loss"].groupby(
        "learning_rate"
    )
    rates = np.geomspace(one, two, len(values))
    parts = [
        rows.assign(learning_rate=rate, value=v, joint_low=v - 0.05, joint_high=v + 0.05)
        for rate, v in zip(rates, values, strict=True)
    ]
    turned = with_slopes(replace(sweep, rows=pd.concat(parts)), loss=(0.3, 0.2, 0.4))
    turned = replace(turned, trends=turned.trends.assign(turns=format_levels(rates[list(turns)])))
    clause = re.escape(f"{verb} with peak learning rate")
    assert re.search(rf"AUROC of loss.* {clause}", sweep_headline(turned))
    stated = [] if verb == "rises" else [joint_words(part.iloc[0]) for part in parts]
    assert all(value in sweep_headline(turned) for value in stated)


def test_a_method_that_was_not_measured_everywhere_is_not_compared(sweep):
    first = sweep.rows["condition"] == sweep.conditions[0]
    rows = sweep.rows[~(first & (sweep.rows["method"] != "loss"))]
    assert replace(sweep, rows=rows).ranked_methods == [("loss", "")]
    none = replace(sweep, rows=rows.assign(default=False))
    assert sweep_headline(none).endswith("no method was measured everywhere.")


def test_conditions_outside_of_a_sweep_are_told_one_by_one(sweep):
    sentences = {name: [f"Best in {name}.", "It rises.", "Clean.", "Blind."] for name in "ab"}
    assert headlines([], sentences, NO_PAIR) == ["a: Best in a.", "b: Best in b."]
    assert headlines([], {"a": sentences["a"]}, NO_PAIR) == ["Best in a.", "It rises."]
    swept = {name: sentences["a"] for name in sweep.conditions}
    both = headlines([sweep], {**swept, "b": sentences["b"]}, NO_PAIR)
    assert both == [sweep_headline(sweep), "b: Best in b."]


def test_swapped_replicates_are_told_apart_and_together():
    """Four examples, two seeds: loss is above 0 for three of them, min_k for two."""
    means = {"loss": [2.0, 1.0, 0.5, -0.5], "min_k": [3.0, 3.0, -1.0, -1.0]}
    rows = [
        ("x", seed, f"e{i}", method, "", mean + 0.25 * (-1) ** seed)
        for method, some in means.items()
        for i, mean in enumerate(some)
        for seed in (0, 1)
    ]
    columns = ["condition", "seed", "example_id", "method", "variant", "difference"]
    pairs = pd.DataFrame(rows, columns=columns)
    sentences = {"x": ["Best in x."], "x-swapped": ["Best of the others."]}
    error = stdev(means["loss"]) / 4**0.5
    assert headlines([], sentences, pairs) == [
        "x: Best in x.",
        "x-swapped: Best of the others.",
        "x and its swapped replicate together: of 4 examples 75% score higher by the model that "
        "saw them than by the other, with loss, the most of 2 methods (no correction for this "
        "choice); the difference is 0.75 "
        f"(standard error {error:.2f}) standard deviations of the non-members.",
    ]


def test_controls_are_one_line_of_all_conditions(one_off):
    first, second = one_off.rows_by_condition
    sound = one_off.rows_by_condition[first]
    said = controls_sentence(sound)
    assert said.startswith("Controls: clean model within chance of 0.5 (worst benchmark: ")
    assert "; blind baseline within chance of 0.5 (worst benchmark: " in said
    assert controls_sentence(sound.head(0)) == "Controls: not measured."
    assert controls_sentence(one_off.pooled).endswith(
        "; blind baseline **OFF**, AUROC differs from 0.5 (worst benchmark: boolq, 0.66 "
        f"[0.60, 0.72], corrected p = 0.010) in {second}."
    )


@pytest.mark.parametrize("method", ["loss", "blind"])
def test_a_single_control_is_told_alone(one_off, method):
    sound = next(iter(one_off.rows_by_condition.values()))
    said = controls_sentence(sound[sound["method"] == method])
    assert ("clean model" in said, "blind baseline" in said) == (method == "loss", method != "loss")
    assert said.count(";") == 0


def test_the_table_has_a_column_a_value_and_the_controls_beside(findings, sweep):
    table = sweep_table(sweep)
    assert table.header == ["method", "1e-4", "1e-3", "slope", "clean model"]
    rows = findings.pooled.query(ROWS)
    own = rows[rows["method"] == "loss"].sort_values("learning_rate")
    line = next(line for line in table.lines if line[0] == "loss")
    assert line[1:3] == [words(row) for _, row in own.iterrows()]
    assert table.lines[-1][0] == "blind"
    assert table.lines[-1][-2:] == ["–", "–"]
    assert len(table.lines) == 4


def test_the_clean_models_value_is_a_range_where_conditions_differ_in_it(sweep):
    clean = (sweep.rows["checkpoint"] == "clean") & (sweep.rows["method"] == "loss")
    first = clean & (sweep.rows["condition"] == sweep.conditions[0])
    values = sweep.rows["value"].mask(clean, 0.52).mask(first, 0.47)
    line = sweep_table(replace(sweep, rows=sweep.rows.assign(value=values))).lines[0]
    assert (line[0], line[-1]) == ("loss", "0.47 to 0.52")


def rate_sweep(methods: dict[str, tuple[float, float]], **columns) -> Sweep:
    """Each method's AUROC at two learning rates, and a slope of 0.3 [0.2, 0.4]."""
    rows = [
        row(value, condition=f"lr{rate:g}", learning_rate=rate, method=method, **columns)
        for method, values in methods.items()
        for rate, value in zip((1e-4, 1e-3), values, strict=True)
    ]
    tested = {"tau": 0.3, "p_value": 0.01, "turns": "", "note": ""}
    trend = {"variant": "", "slope": 0.3, "slope_low": 0.2, "slope_high": 0.4, **tested}
    trends = pd.DataFrame([{"method": method, **trend} for method in methods])
    return Sweep(BY_COLUMN["learning_rate"], "auroc_by_rate", pd.DataFrame(rows), trends)


def test_a_single_method_is_told_without_a_choice():
    assert sweep_headline(rate_sweep({"loss": (0.6, 0.8)})) == (
        "AUROC of loss rises with peak learning rate from 1e-4 to 1e-3 (tiny, 300,000 tokens), "
        f"from {joint(0.6)} at 1e-4 to {joint(0.8)} at 1e-3: its log-odds increase by 0.30 "
        "[0.20, 0.40] per doubling."
    )


def test_of_two_methods_the_median_is_the_second_and_slopes_at_0_are_not_counted():
    sweep = rate_sweep({"loss": (0.6, 0.8), "zlib": (0.5, 0.6)})
    rise = "rises with peak learning rate"
    ends = "its log-odds increase by 0.30 [0.20, 0.40] per doubling"
    start = (
        "AUROC of loss, the best of 2 methods on average (AUROC's intervals corrected for the "
        f"choice, the slope's not), {rise} from 1e-4 to 1e-3 (tiny, 300,000 tokens), from "
        f"{joint(0.6)} at 1e-4 to {joint(0.8)} at 1e-3: {ends}. AUROC of zlib, the median one, "
    )
    assert sweep_headline(sweep) == (
        f"{start}{rise}, from {joint(0.5)} at 1e-4 to {joint(0.6)} at 1e-3: {ends}. The slope's "
        "interval is above 0 for 2 of 2 methods."
    )
    headline = sweep_headline(with_slopes(sweep, zlib=(0.1, 0.0, 0.2)))
    assert headline.endswith(". The slope's interval is above 0 for 1 of 2 methods.")
    headline = sweep_headline(with_slopes(sweep, zlib=(-0.1, -0.2, 0.0)))
    assert headline.endswith(". The slope's interval is above 0 for 1 of 2 methods.")
    headline = sweep_headline(with_slopes(sweep, zlib=(-0.2, -0.3, -0.1)))
    assert headline.endswith(" above 0 for 1 of 2 methods, below 0 for 1.")
    headline = sweep_headline(with_slopes(sweep, zlib=(np.nan, np.nan, np.nan)))
    assert "slope's interval" not in headline
    untested = replace(sweep, trends=sweep.trends.head(1))
    assert "AUROC of zlib, the median one, has no measured trend with peak learning rate: it was " \
           "not tested; it goes from" in sweep_headline(untested)  # fmt: skip


def test_what_all_series_share_is_said_with_the_first_alone():
    sweeps = [rate_sweep({"loss": (0.6, 0.8)}, budget_tokens=tokens) for tokens in (1_000, 2_000)]
    first_headline, second_headline = (sweep_headline(sweep, sweeps) for sweep in sweeps)
    assert "from 1e-4 to 1e-3 (tiny, 1,000 tokens), from" in first_headline
    assert "from 1e-4 to 1e-3 (2,000 tokens), from" in second_headline
    missing = pd.DataFrame([
        row(np.nan, learning_rate=rate, n_members=0, needs="members per benchmark")
        for rate in (1e-5, 1e-2)
    ])  # fmt: skip
    headline = sweep_headline(replace(sweeps[0], unmeasured=missing))
    assert headline.endswith(
        " per doubling; no value at 1e-5 (no members: nothing to detect); no value at 0.01 (no "
        "members: nothing to detect)."
    )
    rows = sweeps[0].rows.assign(default=False)
    nothing_measured = replace(sweeps[0], rows=rows, unmeasured=missing.head(1))
    assert sweep_headline(nothing_measured) == (
        "Along peak learning rate from 1e-4 to 1e-3 (tiny, 1,000 tokens) no method was measured "
        "everywhere; no value at 1e-5 (no members: nothing to detect)."
    )


def test_a_swapped_pair_of_one_method_and_one_example_is_told_without_a_choice():
    columns = ["condition", "seed", "example_id", "method", "variant", "difference"]
    one_example = pd.DataFrame([("x", 0, "e", "loss", "", 0.5), ("x", 1, "e", "loss", "", 1.0)],
                       columns=columns)  # fmt: skip
    two_conditions = {"x": ["Best in x."], "x-swapped": []}
    assert headlines([], two_conditions, one_example) == [
        "x: Best in x.",
        "x and its swapped replicate together: of 1 example 100% score higher by the model that "
        "saw them than by the other, with loss; the difference is 0.75 standard deviations of the "
        "non-members.",
    ]
    second_variant = one_example.assign(variant="k=2", difference=-1.0)
    variants = pd.concat([one_example.assign(variant="k=1"), second_variant])
    headline = headlines([], two_conditions, variants)[1]
    assert ", with loss (k=1), the most of 2 methods (no correction for this choice);" in headline


def test_controls_of_one_condition_and_of_several_are_told_with_their_worst_benchmark():
    rows = [
        row(0.55, checkpoint="clean", benchmark="imdb", p_control=0.3),
        row(0.52, checkpoint="clean", benchmark="boolq", p_control=0.4, condition="b"),
        row(0.4, checkpoint="clean", method="blind", benchmark="imdb", p_control=0.04,
            condition="b"),
    ]  # fmt: skip
    clean = (
        "clean model within chance of 0.5 (worst benchmark: imdb, loss 0.55 [0.45, 0.65], corrected"
        " p = 0.300)"
    )
    blind = (
        "blind baseline **OFF**, AUROC differs from 0.5 (worst benchmark: imdb, 0.40 [0.30, 0.50], "
        "corrected p = 0.040)"
    )
    assert controls_sentence(pd.DataFrame(rows[:1])) == f"Controls: {clean}."
    assert controls_sentence(pd.DataFrame(rows)) == f"Controls: {clean} in a; {blind} in b."
