"""The report's first sentences: the words follow from the AUROC, its interval and the trend."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.config import AnalysisConfig
from contamination.analysis.factors import BY_COLUMN
from contamination.analysis.plain_summary import (
    describe_detectability,
    plain_controls_sentence,
    plain_sentences,
)
from contamination.analysis.statistics.tidy_tables import compute_statistics
from contamination.analysis.sweeps import Sweep
from tests.analysis.small_report import row

CONFIG = AnalysisConfig(draws=60, fpr=[0.001, 0.25])
JOINT = ["value", "joint_low", "joint_high"]


@pytest.fixture(scope="module")
def tables(cell):
    """One cell's tables; min_k_plus_plus is the best method."""
    return compute_statistics("trial", 0, [cell], CONFIG)


def with_aurocs(pooled: pd.DataFrame, aurocs: dict[str, tuple[float, float, float]]):
    """The pooled table with these AUROCs of the best method, by occurrences."""
    changed = pooled.copy()
    best = (changed["method"] == "min_k_plus_plus") & (changed["metric"] == "auroc")
    best &= (changed["benchmark"] == "all") & (changed["checkpoint"] == "contaminated")
    for occurrences, values in aurocs.items():
        changed.loc[best & (changed["occurrences"] == occurrences), JOINT] = values
    return changed


@pytest.mark.parametrize(
    ("auroc", "low", "high", "words"),
    [
        (0.61, 0.55, 0.67, "barely detectable (AUROC 0.61)"),
        (0.61, 0.50, 0.72, "not distinguishable from non-members (AUROC 0.61)"),
        (0.65, 0.60, 0.70, "partly detectable (AUROC 0.65)"),
        (0.80, 0.75, 0.85, "mostly detectable (AUROC 0.80)"),
        (0.95, 0.92, 0.97, "almost perfectly detectable (AUROC 0.95)"),
        (1.00, 1.00, 1.00, "almost perfectly detectable (AUROC 1.00)"),
        (0.30, 0.20, 0.40, "scored below non-members (AUROC 0.30)"),
    ],
)
def test_the_word_follows_from_the_auroc_and_its_interval(auroc, low, high, words):
    assert describe_detectability({"value": auroc, "ci_low": low, "ci_high": high}) == words


def test_a_rise_is_told_by_its_ends(tables):
    levels = {
        "1": (0.61, 0.55, 0.67),
        "2": (0.7, 0.6, 0.8),
        "4": (0.8, 0.7, 0.9),
        "8": (0.95, 0.9, 0.98),
    }
    answer, rate = plain_sentences(with_aurocs(tables.pooled, levels), tables.trends, [], CONFIG)
    assert answer == (
        "Seen once, members are barely detectable (AUROC 0.61). "
        "Seen 8 times: almost perfectly detectable (AUROC 0.95)."
    )
    found = tables.pooled.query(
        "method == 'min_k_plus_plus' and metric == 'tpr_at_fpr_0.25' and benchmark == 'all'"
        " and occurrences == 'any' and checkpoint == 'contaminated'"
    )["value"].item()
    assert rate == (
        "With min_k_plus_plus, the best of 3 methods, a threshold that falsely flags 25% of the "
        f"non-members finds {found:.0%} of the members."
    )


def test_a_difference_that_the_slope_does_not_show_is_called_unclear(tables):
    slopes = {"slope": 0.1, "slope_low": -0.1, "slope_high": 0.3, "turns": ""}
    answer, _ = plain_sentences(tables.pooled, tables.trends.assign(**slopes), [], CONFIG)
    assert answer.endswith(" The difference is not statistically clear.")


def test_a_turn_is_told_with_every_level(tables):
    levels = {n: (0.5 + x, 0.45 + x, 0.55 + x) for n, x in [("1", 0.1), ("2", 0.4), ("4", 0.2)]}
    turning = tables.trends.assign(turns="1 2 8")
    answer, _ = plain_sentences(with_aurocs(tables.pooled, levels), turning, [], CONFIG)
    assert [f"Seen {n} times: " in answer for n in (2, 4, 8)] == [True] * 3


def test_a_sweep_is_told_by_its_ends_and_names_the_method(findings):
    (answer,) = findings.answer
    assert answer.startswith("With a peak learning rate of 1e-4, members are ")
    assert " With a peak learning rate of 1e-3: " in answer
    assert answer.endswith(" Method: min_k_plus_plus, the best of 3 on average.")


def test_a_control_that_is_off_is_a_caution(sound, one_off):
    assert plain_controls_sentence(sound).startswith("Controls: neither the model before")
    off = plain_controls_sentence(one_off.pooled)
    assert off.startswith("**Caution:** a classifier that sees the texts alone tells members")
    assert plain_controls_sentence(sound.head(0)).startswith("No control was measured")


TREND = {
    "over": "occurrences", "benchmark": "all", "method": "loss", "variant": "", "tau": 0.3,
    "p_value": 0.01, "slope": 0.5, "slope_low": 0.3, "slope_high": 0.7, "turns": "", "note": "",
}  # fmt: skip
NO_TREND = pd.DataFrame(columns=list(TREND))


def test_occurrences_are_told_once_with_the_rate_that_was_measured():
    once, twice = row(0.6, occurrences="1"), row(0.99, occurrences="2")
    rows = [once, twice, row(0.75), row(0.7, method="zlib")]
    rates = [
        row(0.3, metric="tpr_at_fpr_0.05"),
        row(0.9, metric="tpr_at_fpr_0.05", occurrences="1"),
        row(0.8, metric="tpr_at_fpr_0.05", benchmark="imdb"),
        row(0.7, metric="tpr_at_fpr_0.05", checkpoint="clean"),
        row(0.6, metric="tpr_at_fpr_0.05", method="zlib"),
        row(0.5, metric="tpr_at_fpr_0.25"),
    ]
    pooled = pd.DataFrame([*rows, *rates])
    config = AnalysisConfig(fpr=[0.25, 0.05, 0.001])
    answer, rate = plain_sentences(pooled, pd.DataFrame([TREND]), [], config)
    assert answer == (
        "Seen once, members are not distinguishable from non-members (AUROC 0.60). "
        "Seen 2 times: almost perfectly detectable (AUROC 0.99)."
    )
    assert rate == (
        "With loss, the best of 2 methods, a threshold that falsely flags 5% of the non-members "
        "finds 30% of the members."
    )
    alone = pooled[pooled["method"] == "loss"]
    assert plain_sentences(alone, NO_TREND, [], config)[1].startswith("With loss, a threshold that")
    rare = AnalysisConfig(fpr=[0.001])
    assert plain_sentences(alone, NO_TREND, [], rare)[1] == "Measured with loss."
    assert plain_sentences(pooled, NO_TREND, [], rare)[1] == (
        "Measured with loss, the best of 2 methods."
    )
    any_number = pooled[pooled["occurrences"] == "any"]
    assert plain_sentences(any_number, NO_TREND, [], config)[0] == (
        "Members are partly detectable (AUROC 0.75)."
    )


@pytest.mark.parametrize("columns", [{"benchmark": "imdb"}, {"method": "zlib"}, {"variant": "x"},
                                   {"over": "learning_rate"}])  # fmt: skip
def test_a_trend_of_something_else_says_nothing_of_occurrences(columns):
    """The other trend shows no slope, which would be called unclear."""
    pooled = pd.DataFrame([row(0.6, occurrences="1"), row(0.9, occurrences="2"), row(0.75)])
    flat = {**TREND, "slope_low": -0.1}
    config = AnalysisConfig(fpr=[])
    unclear = " The difference is not statistically clear."
    sentence = plain_sentences(pooled, pd.DataFrame([flat]), [], config)[0]
    assert sentence.endswith(unclear)
    sentence = plain_sentences(pooled, pd.DataFrame([{**flat, **columns}]), [], config)[0]
    assert not sentence.endswith(unclear)


def test_of_several_conditions_the_ends_are_named():
    rows = [row(value, condition=name) for name, value in (("a", 0.7), ("b", 0.9), ("c", 0.45))]
    unmeasured = row(np.nan, condition="d", needs="members per benchmark")
    pooled = pd.DataFrame([*rows, unmeasured])
    assert plain_sentences(pooled, NO_TREND, [], CONFIG) == [
        "Of 3 conditions, AUROC is highest in b: members are mostly detectable (AUROC 0.90). It is "
        "lowest in c: not distinguishable from non-members (AUROC 0.45)."
    ]
    one_measured = pd.DataFrame([rows[0], unmeasured])
    assert plain_sentences(one_measured, NO_TREND, [], CONFIG) == [
        "In a, members are not distinguishable from non-members (AUROC 0.70)."
    ]
    assert plain_sentences(pd.DataFrame([unmeasured, {**unmeasured, "condition": "e"}]), NO_TREND,
                           [], CONFIG) == []  # fmt: skip


def rate_sweep(name: str, values: dict[float, float], methods=("loss",), **columns) -> Sweep:
    rows = [
        row(value, condition=f"{name}{rate}", learning_rate=rate, method=method, **columns)
        for rate, value in values.items() for method in methods
    ]  # fmt: skip
    return Sweep(BY_COLUMN["learning_rate"], name, pd.DataFrame(rows), pd.DataFrame(columns=[
        *TREND
    ]))  # fmt: skip


def test_at_most_two_sweeps_are_told_each_with_its_series():
    values = {1e-4: 0.75, 1e-3: 0.85}
    sweeps = [rate_sweep(f"s{number}", values, budget_tokens=number * 1000) for number in (1, 2, 3)]
    text = (
        "With a peak learning rate of 1e-4, members are partly detectable (AUROC 0.75). With a "
        "peak learning rate of 1e-3: mostly detectable (AUROC 0.85)."
    )
    pooled = pd.DataFrame([row(0.7)])
    assert plain_sentences(pooled, NO_TREND, sweeps, CONFIG) == [
        f"{text} Series: 1,000 tokens. Method: loss.",
        f"{text} Series: 2,000 tokens. Method: loss.",
    ]
    two_methods = rate_sweep("two", values, ("loss", "zlib"))
    assert plain_sentences(pooled, NO_TREND, [two_methods], CONFIG) == [
        f"{text} Method: loss, the best of 2 on average."
    ]
    nowhere = rate_sweep("none", values, default=False)
    sentences = plain_sentences(pooled, NO_TREND, [nowhere], CONFIG)
    assert sentences[0] == "Members are not distinguishable from non-members (AUROC 0.70)."


def test_controls_are_told_in_plain_words():
    clean = row(0.5, checkpoint="clean", benchmark="imdb", p_control=0.3)
    blind = {**clean, "method": "blind"}
    clean_control, both_controls = pd.DataFrame([clean]), pd.DataFrame([clean, blind])
    assert plain_controls_sentence(clean_control) == (
        "Control: the model before the contaminated training can't tell members from non-members "
        "beyond chance."
    )
    assert plain_controls_sentence(both_controls) == (
        "Controls: neither the model before the contaminated training nor a classifier that sees "
        "the texts alone tells members from non-members beyond chance."
    )
    assert plain_controls_sentence(both_controls.assign(p_control=0.05)) == (
        "**Caution:** the model before the contaminated training and a classifier that sees the "
        "texts alone tell members from non-members, although neither can know which texts were "
        "inserted. Chance does this in 5% of sound reports; otherwise the members and the "
        "non-members differ as texts, and the numbers above show more than contamination."
    )
    assert plain_controls_sentence(clean_control.head(0)) == (
        "No control was measured: the AUROCs may have other causes than contamination."
    )
