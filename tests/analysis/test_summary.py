"""What is said of a condition follows from its tests, not from the order of its numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from contamination.analysis.config import AnalysisConfig
from contamination.analysis.statistics.paired import COLUMNS, comparison_rows
from contamination.analysis.statistics.results_table import Measure
from contamination.analysis.statistics.tidy_tables import compute_statistics
from contamination.analysis.statistics.trends import NO_SLOPE, ONE_DOSE
from contamination.analysis.summary import condition_sentences, sentences_by_condition, trend_clause
from contamination.core.statistics import bootstrap
from contamination.core.statistics.estimates import Estimate, estimate_metrics
from contamination.core.statistics.metrics import AUROC
from tests.analysis.small_report import condition_rows, estimate, joint, row

CONFIDENCE = 0.95


@pytest.fixture(scope="module")
def made(cell):
    """Tables of one cell: min_k_plus_plus is best, then min_k, then loss; all rise."""
    return compute_statistics("trial", 0, [cell], AnalysisConfig(draws=60))


def told(made, **changes) -> list[str]:
    tables = {name: getattr(made, name) for name in ("pooled", "comparisons", "trends")}
    return condition_sentences(**{**tables, **changes}, confidence=CONFIDENCE)


def corrected(made, p_max_t: dict[tuple[str, str], float]) -> pd.DataFrame:
    """The comparisons with these corrected p-values over all benchmarks."""
    pairs = zip(made.comparisons["method_a"], made.comparisons["method_b"], strict=True)
    found = made.comparisons.assign(p_max_t=[p_max_t.get(pair, 0.9) for pair in pairs])
    other = (found["benchmark"] != "all") | (found["metric"] != "auroc")
    return found.assign(p_max_t=found["p_max_t"].mask(other, 0.9))


BOTH = {("loss", "min_k_plus_plus"): 0.01, ("min_k", "min_k_plus_plus"): 0.049}


def test_the_strongest_is_above_every_other_method(made):
    best = told(made, comparisons=corrected(made, BOTH))[0]
    row = made.pooled.query(
        "method == 'min_k_plus_plus' and metric == 'auroc' and benchmark == 'all'"
        " and occurrences == 'any' and checkpoint == 'contaminated'"
    ).iloc[0]
    value = f"{row['value']:.2f} [{row['joint_low']:.2f}, {row['joint_high']:.2f}]"
    assert row["joint_low"] < row["ci_low"]
    assert best == (
        f"Strongest of 3 methods: min_k_plus_plus, AUROC {value} over all {row['n_members']} "
        f"members and {row['n_nonmembers']} non-members, mean over benchmarks (interval "
        "corrected for the choice among 3 methods); it is above each of the others (paired tests, "
        "corrected, p < 0.05)."
    )


@pytest.mark.parametrize(
    ("p_values", "like"),
    [
        ({**BOTH, ("min_k", "min_k_plus_plus"): 0.051}, "min_k"),
        ({**BOTH, ("loss", "min_k_plus_plus"): 0.4}, "loss"),
        ({}, "loss, min_k"),
    ],
)
def test_the_highest_is_not_the_strongest_where_the_test_cannot_tell(made, p_values, like):
    best = told(made, comparisons=corrected(made, p_values))[0]
    assert best.startswith("Highest of 3 methods: min_k_plus_plus, AUROC ")
    assert best.endswith(f"; not distinguishable from {like} (paired tests, corrected).")
    assert "trongest" not in best


def test_a_variant_that_did_better_is_not_the_method(made):
    sharp = made.pooled[made.pooled["method"] == "loss"]
    sharp = sharp.assign(variant="sharper", default=False, value=0.99)
    best = told(made, pooled=pd.concat([made.pooled, sharp]))[0]
    assert "of 3 methods: min_k_plus_plus, " in best


def test_one_method_has_no_rival(made):
    one = made.pooled[made.pooled["method"].isin(["loss", "blind"])]
    assert told(made, pooled=one)[0].startswith("The only method: loss, AUROC ")


def slopes(made, **ends) -> pd.DataFrame:
    """The trends with these ends for the best method over all benchmarks."""
    best = (made.trends["method"] == "min_k_plus_plus") & (made.trends["benchmark"] == "all")
    return made.trends.assign(**{
        name: made.trends[name].mask(best, value) for name, value in ends.items()
    })  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "p_value", "verb", "change"),
    [
        (0.01, 0.4, 0.049, "rises", "increase by 0.20 [0.01, 0.40]"),
        (0.01, 0.4, 0.051, "has no clear direction", "increase by"),
        (-0.01, 0.4, 1e-9, "shows no clear trend", "change by 0.20 [-"),
        (-0.4, -0.01, 0.951, "falls", "decrease by 0.20 [0.01, 0.40]"),
        (-0.4, -0.01, 1e-9, "has no clear direction", "decrease by"),
    ],
)
def test_it_rises_where_the_slopes_interval_and_taus_test_do(
    made, low, high, p_value, verb, change
):
    value = 0.2 if low + high > 0 else -0.2
    ends = {"slope": value, "slope_low": low, "slope_high": high, "p_value": p_value}
    trends = slopes(made, **ends, tau=0.3 if p_value < 0.5 else -0.3, turns="")
    level = made.pooled.assign(ci_low=0.5, ci_high=0.99)
    by_dose = level["occurrences"] != "any"
    level.loc[by_dose, ["value", "joint_low", "joint_high"]] = 0.7, 0.5, 0.99
    dose = told(made, trends=trends, pooled=level)[1]
    assert dose.startswith(
        f"AUROC of min_k_plus_plus {verb} with occurrences, from 0.70 [0.50, 0.99] at 1 to "
        f"0.70 [0.50, 0.99] at 8: its log-odds {change}"
    )
    rising = (trends.query("benchmark == 'all'")["slope_low"] > 0).sum()
    assert f"above 0 for {rising} of 3 methods" in dose


def test_too_few_data_are_said(made):
    none = {"slope": np.nan, "slope_low": np.nan, "slope_high": np.nan, "note": "no slope: too few"}
    none["turns"] = ""
    dose = told(made, trends=slopes(made, **none))[1]
    assert dose.startswith(
        "AUROC of min_k_plus_plus has no measured trend with occurrences: too few; it goes from 0."
    )
    assert "nan" not in dose
    assert " of 2 methods" in dose


def test_one_dose_has_no_slope(make):
    one = compute_statistics("trial", 0, [make(doses=[4])], AnalysisConfig(draws=20))
    assert told(one)[1] == (
        "Occurrences: no slope, since all members of a benchmark have the same number."
    )


def test_without_common_numbers_there_is_a_slope_and_no_ends(made):
    any_dose = made.pooled[made.pooled["occurrences"] == "any"]
    said = told(made, pooled=any_dose)[1]
    assert said.startswith("AUROC of min_k_plus_plus rises with occurrences: ")
    assert "per doubling. " in said


def test_the_controls_are_told_last(sound, made):
    tests = made.comparisons, made.trends, CONFIDENCE
    sound = sound.assign(joint_low=sound["ci_low"], joint_high=sound["ci_high"])
    clean, blind = condition_sentences(sound, *tests)[2:]
    assert "training): within chance of 0.5 (worst benchmark: imdb, min_k" in clean
    assert "model): within chance of 0.5 (worst benchmark: " in blind
    off = sound.copy()
    off.loc[(off["method"] == "blind") & off["p_control"].notna(), "p_control"] = 0.01
    said = condition_sentences(off, *tests)[3]
    assert "model): **OFF**, AUROC differs from 0.5 (worst benchmark: " in said
    assert "corrected p = 0.010" in said


def test_each_condition_is_told_by_its_own_tests(two_rates):
    both = compute_statistics("trial", 0, two_rates, AnalysisConfig(draws=60))
    found = sentences_by_condition(both, CONFIDENCE)
    for cell in two_rates:
        alone = compute_statistics("trial", 0, [cell], AnalysisConfig(draws=60))
        assert found[cell.condition] == sentences_by_condition(alone, CONFIDENCE)[cell.condition]


def compared(rng, lead: float, draws: int = 200, size: int = 60) -> tuple[pd.DataFrame, dict]:
    """The paired tests of four methods on the same examples; the first is ahead by `lead`."""
    hard = rng.normal(size=(2, size))
    resample = bootstrap.draw_resample(size, size, draws, int(rng.integers(1 << 30)))
    pooled: dict[Measure, dict[str, Estimate]] = {}
    for place in range(4):
        members, others = hard + 0.6 * rng.normal(size=(2, size))
        shift = 1 + lead * (place == 0)
        found = estimate_metrics(members + shift, others, resample, [AUROC])["auroc"]
        measure = Measure("contaminated", f"m{place}", "", "any", "auroc")
        pooled[measure] = {"all": found}
    rows = comparison_rows("c", pooled, {f"m{i}": "" for i in range(4)}, CONFIDENCE)
    return pd.DataFrame(rows, columns=list(COLUMNS)), pooled


def claims(rng, lead: float) -> bool:
    comparisons, pooled = compared(rng, lead)
    rows = [
        {"metric": "auroc", "benchmark": "all", "checkpoint": "contaminated", "default": True,
         "needs": "",
         "method": m.method, "variant": "", "occurrences": "any", "value": value["all"].value,
         "n_members": 60, "n_nonmembers": 60, "ci_low": 0.5, "ci_high": 0.9,
         "joint_low": 0.4, "joint_high": 0.9, "p_control": np.nan}
        for m, value in pooled.items()
    ]  # fmt: skip
    trends = pd.DataFrame(columns=["over", "benchmark", "method", "variant"])
    said = condition_sentences(pd.DataFrame(rows), comparisons, trends, CONFIDENCE)
    return said[0].startswith("Strongest")


def test_among_equal_methods_one_is_called_strongest_in_five_percent_at_most():
    rng = np.random.default_rng(0)
    claimed = sum(claims(rng, 0.0) for _ in range(100))
    assert claimed <= binom.ppf(0.9995, 100, 0.05)
    assert sum(claims(rng, 2.0) for _ in range(20)) == 20


TREND = {
    "over": "occurrences", "benchmark": "all", "variant": "", "tau": 0.3, "p_value": 0.01,
    "slope": 0.5, "slope_low": 0.3, "slope_high": 0.7, "turns": "", "note": "",
}  # fmt: skip
COMPARISON = {"metric": "auroc", "benchmark": "all", "method_a": "loss", "method_b": "zlib"}


def test_all_sentences_on_a_condition():
    """Decoys: a pair in one benchmark, a pair of another metric."""
    comparisons = pd.DataFrame([
        {**COMPARISON, "p_max_t": 0.049}, {**COMPARISON, "benchmark": "imdb", "p_max_t": 0.9},
        {**COMPARISON, "metric": "other", "p_max_t": 0.9},
    ])  # fmt: skip
    trends = pd.DataFrame([
        {**TREND, "method": "loss"}, {**TREND, "method": "zlib", "slope_low": 0.0},
        {**TREND, "method": "loss", "benchmark": "imdb", "slope_low": 1.0},
        {**TREND, "method": "loss", "over": "learning_rate", "slope_low": 1.0},
    ])  # fmt: skip
    sizes = "over all 40 members and 50 non-members, mean over benchmarks"
    choice = "(interval corrected for the choice among 2 methods)"
    strongest = (
        f"Strongest of 2 methods: loss, AUROC {joint(0.65)} {sizes} {choice}; it is above each of "
        "the others (paired tests, corrected, p < 0.05)."
    )
    occurrences = (
        f"AUROC of loss rises with occurrences, from {joint(0.55)} at 1 to {joint(0.8)} at 10: its "
        "log-odds increase by 0.50 [0.30, 0.70] per doubling. The slope's interval is above 0 for "
        "1 of 2 methods."
    )
    controls = [
        "Clean control (the model before the contaminated training): **OFF**, AUROC differs from "
        "0.5 (worst benchmark: imdb, loss 0.53 [0.43, 0.63], corrected p = 0.050).",
        "Blind baseline (a text classifier without the model): within chance of 0.5 (worst "
        "benchmark: imdb, 0.49 [0.39, 0.59], corrected p = 0.051).",
    ]
    rows = condition_rows()
    sentences = condition_sentences(rows, comparisons, trends, CONFIDENCE)
    assert sentences == [strongest, occurrences, *controls]

    unsure = comparisons.assign(p_max_t=0.051)
    assert condition_sentences(rows, unsure, trends, CONFIDENCE)[0] == (
        f"Highest of 2 methods: loss, AUROC {joint(0.65)} {sizes} {choice}; not distinguishable "
        "from zlib (paired tests, corrected)."
    )
    sentences = condition_sentences(rows, comparisons, trends.head(0), CONFIDENCE)
    assert sentences[1] == "Occurrences: no trend was measured."
    one_dose = trends.assign(note=ONE_DOSE)
    assert condition_sentences(rows, comparisons, one_dose, CONFIDENCE)[1] == (
        "Occurrences: no slope, since all members of a benchmark have the same number."
    )
    loss = rows[(rows["method"] == "loss") & rows["p_control"].isna()]
    alone = condition_sentences(loss.assign(n_members=1), comparisons, trends.head(1), CONFIDENCE)
    assert alone[0] == (
        f"The only method: loss, AUROC {joint(0.65)} over 1 member and 50 non-members, mean over "
        "benchmarks."
    )
    assert alone[1].endswith(" The slope's interval is above 0 for 1 of 1 method.")
    assert [sentence.rpartition(": ")[2] for sentence in alone[2:]] == ["not measured."] * 2
    no_slope = {"slope": np.nan, "slope_low": np.nan, "slope_high": np.nan}
    few_levels = trends.head(1).assign(**no_slope, note=f"{NO_SLOPE}it needs more")
    assert condition_sentences(loss, comparisons, few_levels, CONFIDENCE)[1] == (
        f"AUROC of loss has no measured trend with occurrences: it needs more; it goes from "
        f"{joint(0.55)} at 1 to {joint(0.8)} at 10."
    )


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"n_members": 0}, "No members: nothing to detect."),
        ({"n_nonmembers": 0}, "No non-members: nothing to compare the members with."),
        ({}, "all, the mean over benchmarks: needs ≥ 20 members."),
    ],
)
def test_a_condition_without_a_number_says_why(sizes, reason):
    rows = pd.DataFrame([row(np.nan, needs="≥ 20 members", **sizes)])
    empty = pd.DataFrame(columns=list(COMPARISON))
    sentences = condition_sentences(rows, empty, pd.DataFrame(columns=list(TREND)), CONFIDENCE)
    assert sentences[0] == reason
    assert len(sentences) == 3


def levels(*values: float) -> pd.DataFrame:
    """Rows at 1, 2, 4, …; intervals reach 0.1 to each side."""
    numbers = [2**i for i in range(len(values))]
    return pd.DataFrame([
        {**row(value), "at": str(number), "level": float(number)}
        for number, value in zip(numbers, values, strict=True)
    ])  # fmt: skip


FALL = {"tau": -0.3, "p_value": 0.99, "slope": -0.5, "slope_low": -0.7, "slope_high": -0.3}
UNTESTED = {"slope": np.nan, "slope_low": np.nan, "slope_high": np.nan, "note": f"{NO_SLOPE}few"}
ENDS = f"from {estimate(0.6)} at 1 to {estimate(0.8)} at 2"


@pytest.mark.parametrize(
    ("changed", "values", "clause"),
    [
        ({}, (0.6, 0.8), f"rises with n, {ENDS}: its log-odds increase by 0.50 [0.30, 0.70] per "
         "doubling"),
        (FALL, (0.8, 0.6), f"falls with n, from {estimate(0.8)} at 1 to {estimate(0.6)} at 2: its "
         "log-odds decrease by 0.50 [0.30, 0.70] per doubling"),
        ({"slope_low": -0.1}, (0.6, 0.8), f"shows no clear trend with n, {ENDS}: its log-odds "
         "change by 0.50 [-0.10, 0.70] per doubling"),
        ({"tau": -0.1}, (0.6, 0.8), f"has no clear direction with n, {ENDS}: its log-odds increase "
         "by 0.50 [0.30, 0.70] per doubling; but Kendall's τ does not confirm it (-0.10, one-sided "
         "p = 0.010)"),
        ({"p_value": 0.05}, (0.6, 0.8), f"has no clear direction with n, {ENDS}: its log-odds "
         "increase by 0.50 [0.30, 0.70] per doubling; but Kendall's τ does not confirm it (0.30, "
         "one-sided p = 0.050)"),
        ({"tau": np.nan}, (0.6, 0.8), f"has no clear direction with n, {ENDS}: its log-odds "
         "increase by 0.50 [0.30, 0.70] per doubling; but Kendall's τ does not confirm it (it "
         "could not be computed)"),
        ({}, (0.8, 0.9, 0.6), f"has no clear direction with n, from {estimate(0.8)} at 1 to "
         f"{estimate(0.6)} at 4: its log-odds increase by 0.50 [0.30, 0.70] per doubling; but the "
         "last AUROC is below the first"),
        (FALL, (0.6, 0.5, 0.7), f"has no clear direction with n, from {estimate(0.6)} at 1 to "
         f"{estimate(0.7)} at 4: its log-odds decrease by 0.50 [0.30, 0.70] per doubling; but the "
         "last AUROC is above the first"),
        ({"turns": "2 4"}, (0.6, 0.9, 0.7), f"has no clear direction with n, from {estimate(0.6)} "
         f"at 1 to {estimate(0.7)} at 4: its log-odds increase by 0.50 [0.30, 0.70] per doubling; "
         "but AUROC clearly falls between some levels"),
        (UNTESTED, (0.6, 0.8), f"has no measured trend with n: few; it goes {ENDS}"),
        ({**UNTESTED, "turns": "1 2"}, (0.6, 0.8), f"rises with n, {ENDS}, by the paired "
         "difference of these two levels (no slope: few)"),
        ({"turns": "1 2 4"}, (0.6, 0.9, 0.7), f"rises and then falls with n: {estimate(0.6)} at 1, "
         f"{estimate(0.9)} at 2, {estimate(0.7)} at 4"),
        ({"turns": "1 2 4"}, (0.9, 0.6, 0.8), f"falls and then rises with n: {estimate(0.9)} at 1, "
         f"{estimate(0.6)} at 2, {estimate(0.8)} at 4"),
        ({"turns": "1 2 4 8"}, (0.6, 0.9, 0.6, 0.9), "zigzags with n, in no steady direction: "
         f"{estimate(0.6)} at 1, {estimate(0.9)} at 2, {estimate(0.6)} at 4, {estimate(0.9)} at 8"),
    ],
)  # fmt: skip
def test_a_clause_on_a_trend(changed, values, clause):
    trend = {**TREND, **changed}
    assert trend_clause("x", "n", trend, levels(*values), 0.05) == f"AUROC of x {clause}"


def test_without_a_test_the_sign_of_tau_must_agree():
    two_levels, one_level = levels(0.6, 0.8), levels(0.6)
    disputed = trend_clause("x", "n", {**TREND, "tau": -0.1, "p_value": 0.9}, two_levels, None)
    assert disputed.endswith("; but Kendall's τ does not confirm it (-0.10)")
    assert trend_clause("x", "n", {**TREND, "p_value": 0.9}, two_levels, None).startswith(
        "AUROC of x rises"
    )
    assert trend_clause("x", "n", TREND, one_level, None) == (
        "AUROC of x rises with n: its log-odds increase by 0.50 [0.30, 0.70] per doubling"
    )
