"""The report's first sentences: the words follow from the AUROC, its interval and the trend."""

from __future__ import annotations

import pandas as pd
import pytest

from contamination.analysis.config import AnalysisConfig
from contamination.analysis.plain_summary import (
    describe_detectability,
    plain_controls_sentence,
    plain_sentences,
)
from contamination.analysis.statistics.tidy_tables import compute_statistics

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
