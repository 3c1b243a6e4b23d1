"""The report of inflation, word for word, from made-up effects."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.inflation.report import (
    LIMITS,
    _blind_spots,
    _warnings,
    clean_table,
    detectability_table,
    dose_chart,
    effect_table,
    null_table,
    report,
)
from contamination.core.report.charts import INK, SERIES
from tests.audits.checks import (
    error_bar_series,
    frame,
    legend_columns,
    legend_labels,
    ticks,
    with_ends,
)

EFFECTS = {"direct": (0.04, 0.01, 0.07), "spillover": (0.02, -0.01, 0.05),
           "total": (0.06, 0.025, 0.093)}  # fmt: skip


def effect_rows(measure, copies, benchmark, scale):
    for name, numbers in EFFECTS.items():
        value, low, high = (scale * number for number in numbers)
        yield {
            "condition": "leaked", "learning_rate": 1e-3, "form": "verbatim",
            "stage": "pretraining",
            "occurrences": copies, "measure": measure, "benchmark": benchmark, "effect": name,
            "value": value, "low": low, "high": high, "seeds": 2 + (name == "total"),
            "items": 40 - (name == "spillover"),
        }  # fmt: skip


def effects():
    rows = []
    for measure, scale in (("accuracy", 1), ("margin", 10)):
        for place, benchmark in enumerate(("a", "b", "all")):
            for copies in (4, 1):
                rows += effect_rows(measure, copies, benchmark, scale * (1 + place))
    data = pd.DataFrame(rows)
    is_unknown = (data["effect"] == "direct") & (data["occurrences"] == 1)
    data.loc[is_unknown, ["value", "low", "high"]] = np.nan
    is_equal = (data["effect"] == "spillover") & (data["occurrences"] == 1)
    data.loc[is_equal, ["low", "high"]] = np.nan
    return data


def clean():
    return frame(
        "condition benchmark value low high seeds items chance free at_chance",
        ("clean", "a", 0.3, 0.2, 0.4, 3, 40, 0.25, False, True),
        ("clean", "b", 0.5, 0.45, 0.55, 3, 42, 0.0, True, False),
        ("clean", "all", 0.4, 0.35, 0.45, 3, 82, 0.125, False, True),
    )


def null():
    rows = [
        ("clean", "a", measure, name, 0.012, -0.01, 0.03, 2)
        for measure in ("accuracy", "margin")
        for name in EFFECTS
    ]
    rows[1] = ("clean", "a", "accuracy", "spillover", 0.034, 0.01, 0.05, 2)
    rows[5] = ("clean", "a", "margin", "total", -0.34, -0.5, -0.1, 1)
    rows += [("alone", "a", "margin", "total", 0.5, 0.1, 0.9, 1)]
    return frame("condition benchmark measure effect value low high seeds", *rows)


def detectability():
    rows = []
    for part, seeds in (("chosen on", "0"), ("confirmed on", "1, 2")):
        for measure, scale in (("accuracy", 1), ("margin", 10)):
            for copies in (1, 4):
                rows.append({
                    "condition": "leaked", "occurrences": copies, "part": part, "seeds": seeds,
                    "benchmark": "a", "method": "min_k",
                    **with_ends("d_prime", 0.5 * copies, 0.4 * copies, 0.6 * copies),
                    **with_ends("twins_d_prime", 2.0, 2.0, 2.0),
                    "detected": copies == 4, "measure": measure, "value": 0.06 * scale,
                    "low": 0.025 * scale, "high": 0.093 * scale, "inflated": True,
                })  # fmt: skip
    return pd.DataFrame(rows)


@pytest.fixture
def findings():
    return SimpleNamespace(
        effects=effects(), clean=clean(), null=null(), detectability=detectability(),
        confidence=0.9, lacking_replicates=["one", "two"],
        groups=[SimpleNamespace(name=name, seeds=seeds)
                for name, seeds in (("z", [0]), ("leaked", [0, 1]), ("y", [1]))],
    )  # fmt: skip


def test_the_conclusions_are_the_means_over_benchmarks_and_the_blind_spots(findings):
    content = report(findings, {"items": "82"})
    assert content.title == "Inflation of scores"
    assert content.conclusions == [
        "**leaked, 4 copies: 18.0 [7.5, 27.9]** (accuracy, points; direct 12.0 [3.0, 21.0], "
        "spillover 6.0 [-3.0, 15.0]).",
        "**leaked, 1 copy: 18.0 [7.5, 27.9]** (accuracy, points; spillover 6.0 (all equal)).",
        "**leaked, 4 copies: 1.80 [0.75, 2.79]** (margin, nats; direct 1.20 [0.30, 2.10], "
        "spillover 0.60 [-0.30, 1.50]).",
        "**leaked, 1 copy: 1.80 [0.75, 2.79]** (margin, nats; spillover 0.60 (all equal)).",
        "Of 4 combinations of condition, copies, benchmark and measure, 2 are inflated and "
        "undetected on the seed on which candidates are chosen; 2 of them are both on the other "
        "seeds: leaked, 1 copy, a (accuracy); leaked, 1 copy, a (margin).",
        "Where no method detects anything on the other seeds, the total effect is at most 9.3 "
        "(accuracy, points; the highest of 1 upper ends: leaked, 1 copy, a (accuracy)).",
        "Where no method detects anything on the other seeds, the total effect is at most 0.93 "
        "(margin, nats; the highest of 1 upper ends: leaked, 1 copy, a (margin)).",
    ]
    assert content.facts == {"items": "82", "confidence of intervals": "90%"}
    assert content.limits == LIMITS
    assert [table.name for table in content.tables] == [
        "effects_accuracy", "effects_margin", "clean", "null", "detectability",
    ]  # fmt: skip
    assert [chart.name for chart in content.charts] == ["doses-accuracy", "doses-margin"]
    findings.effects = findings.effects.query("occurrences == 4 and effect != 'total'")
    findings.null, findings.detectability = findings.null[:0], findings.detectability[:0]
    content = report(findings, {})
    assert (content.charts, content.conclusions) == ([], [])
    assert [table.name for table in content.tables] == [
        "effects_accuracy", "effects_margin", "clean",
    ]  # fmt: skip


def test_blind_spots_are_inflated_and_undetected_in_both_parts(findings):
    data = findings.detectability
    is_confirmed = data["part"] == "confirmed on"
    has_one_copy = (data["occurrences"] == 1) & is_confirmed
    data.loc[has_one_copy, "detected"] = True
    data.loc[is_confirmed & (data["occurrences"] == 4), "d_prime_low"] = 0.342
    sentences = [*_blind_spots(findings)]
    assert sentences == [
        "Of 4 combinations of condition, copies, benchmark and measure, 2 are inflated and "
        "undetected on the seed on which candidates are chosen; 0 of them are both on the other "
        "seeds.",
        "No condition is undetected on the other seeds (accuracy, points): the lowest lower end of "
        "a best method's interval of d′ is 0.34.",
        "No condition is undetected on the other seeds (margin, nats): the lowest lower end of a "
        "best method's interval of d′ is 0.34.",
    ]
    data.loc[is_confirmed, "detected"] = False
    data.loc[is_confirmed, "inflated"] = False
    data.loc[has_one_copy & (data["measure"] == "accuracy"), "high"] = 0.12
    data.loc[is_confirmed & (data["measure"] == "margin") & ~has_one_copy, "high"] = np.nan
    assert [*_blind_spots(findings)] == [
        sentences[0],
        "Where no method detects anything on the other seeds, the total effect is at most 12 "
        "(accuracy, points; the highest of 2 upper ends: leaked, 1 copy, a (accuracy)).",
        "Where no method detects anything on the other seeds, the total effect is at most 0.93 "
        "(margin, nats; the highest of 1 upper ends: leaked, 1 copy, a (margin)).",
        "Of 2 undetected on the other seeds 1 have no upper end (margin, nats): all their effects "
        "are equal, which bounds nothing.",
    ]
    data.loc[~is_confirmed, "inflated"] = False
    assert "measure, 0 are inflated" in next(_blind_spots(findings))
    findings.detectability = data[~is_confirmed]
    assert [*_blind_spots(findings)] == []


def test_warnings_name_what_the_cells_lack(findings):
    assert [*_warnings(findings)] == [
        "No direct effect for one; two: no seed has swapped replicates. Add "
        "injection.swap_members=false,true to the sweep.",
        "One seed only for y; z: the intervals are over items, and do not show how models of other "
        "seeds differ.",
        "The null row of alone has one pair of twins: its intervals are over items alone, and miss "
        "0 in a quarter of the cases (docs/validation/inflation.md).",
        "Clean accuracy is near chance (its interval includes chance): a (clean). Accuracy can "
        "hide inflation there; read the margin.",
        "Clean against clean is off 0: spillover, a, accuracy (3.4). One such interval in twenty "
        "is expected.",
    ]
    findings.null.loc[:, "seeds"] = 2
    findings.null.loc[0, ["low", "high"]] = 0.0
    assert [*_warnings(findings)][-2:] == [
        "Clean against clean is off 0: total, a, margin (-0.34). One such interval in twenty is "
        "expected.",
        "Clean against clean is off 0: total, a, margin (0.5). One such interval in twenty is "
        "expected.",
    ]
    findings.lacking_replicates, findings.groups = [], findings.groups[1:2]
    findings.null, findings.clean = findings.null[:0], findings.clean[1:]
    assert [*_warnings(findings)] == [
        "There is only one clean twin, so there is no null row. Add seeds."
    ]


NOTE = (
    "Total: inserted items less the same items under the clean twin. Direct: inserted items less "
    "the same items under the swapped replicate, which left them out. Spillover: items that were "
    "left out less the same items under the clean twin; where members have several numbers of "
    "copies it is that of all of them. {} Intervals: 90%, clustered by items and by seeds."
)


def test_the_table_of_effects(findings):
    table = effect_table(findings, "accuracy")
    assert (table.name, table.title) == ("effects_accuracy", "Inflation: accuracy, points")
    assert table.header == ["condition", "stage", "form", "copies", "benchmark", "total", "direct",
                            "spillover", "seeds", "items"]  # fmt: skip
    assert table.lines == [
        ["leaked", "pretraining", "verbatim", *cells, "3", "40"]
        for cells in (
            ["4", "a", "6.0 [2.5, 9.3]", "4.0 [1.0, 7.0]", "2.0 [-1.0, 5.0]"],
            ["1", "a", "6.0 [2.5, 9.3]", "–", "2.0 (all equal)"],
            ["4", "b", "12.0 [5.0, 18.6]", "8.0 [2.0, 14.0]", "4.0 [-2.0, 10.0]"],
            ["1", "b", "12.0 [5.0, 18.6]", "–", "4.0 (all equal)"],
            ["4", "all", "18.0 [7.5, 27.9]", "12.0 [3.0, 21.0]", "6.0 [-3.0, 15.0]"],
            ["1", "all", "18.0 [7.5, 27.9]", "–", "6.0 (all equal)"],
        )
    ]
    assert {*table.data["measure"]} == {"accuracy"}
    assert len(table.data) == 18
    assert table.note == NOTE.format(
        "Free answers are right if they match an accepted answer exactly."
    )
    table = effect_table(findings, "margin")
    assert (table.name, table.title) == ("effects_margin", "Inflation: margin, nats")
    assert table.lines[0][5:8] == ["0.60 [0.25, 0.93]", "0.40 [0.10, 0.70]", "0.20 [-0.10, 0.50]"]
    assert table.note == NOTE.format(
        "The margin is the right option's log-probability less the best wrong one's; of a free "
        "answer the log-probability of the right answer."
    )


def test_the_tables_of_clean_twins(findings):
    table = clean_table(findings)
    assert (table.name, table.title) == ("clean", "Accuracy of the clean twins")
    assert table.header == ["clean twins", "benchmark", "accuracy, points", "chance", "near chance",
                            "seeds", "items"]  # fmt: skip
    assert table.lines == [
        ["clean", "a", "30.0 [20.0, 40.0]", "25.0", "yes", "3", "40"],
        ["clean", "b", "50.0 [45.0, 55.0]", "0 (free answers)", "no", "3", "42"],
        ["clean", "all", "40.0 [35.0, 45.0]", "12.5", "yes", "3", "82"],
    ]
    assert table.data is findings.clean
    assert table.note == (
        "Chance: the mean of 1 / options. Near chance: the interval of the accuracy includes it."
    )
    table = null_table(findings)
    assert (table.name, table.title) == ("null", "Clean against clean")
    assert table.header == ["clean twins", "benchmark", "measure", "total", "direct", "spillover",
                            "pairs"]  # fmt: skip
    assert table.lines == [
        ["clean", "a", "accuracy, points", "1.2 [-1.0, 3.0]", "1.2 [-1.0, 3.0]", "3.4 [1.0, 5.0]",
         "2"],
        ["clean", "a", "margin, nats", "-0.34 [-0.50, -0.10]", "0.01 [-0.01, 0.03]",
         "0.01 [-0.01, 0.03]", "2"],
        ["alone", "a", "margin, nats", "0.50 [0.10, 0.90]", "–", "–", "1"],
    ]  # fmt: skip
    assert table.data is findings.null
    assert table.note == (
        "Clean twins of disjoint pairs of seeds: the first takes the place of the contaminated "
        "model, the second of its swapped replicate and of its clean twin."
    )


def test_the_table_of_detectability(findings):
    findings.detectability.loc[7, "inflated"] = False
    findings.detectability.loc[7, "twins_d_prime"] = np.nan
    findings.detectability.loc[6, "twins_d_prime_high"] = 2.127
    table = detectability_table(findings)
    assert (table.name, table.title) == ("detectability", "Inflation and detectability")
    assert table.header == [
        "condition", "copies", "benchmark", "measure", "seeds", "total", "best method", "d′",
        "d′ against twins", "inflated", "detected",
    ]  # fmt: skip
    accuracy, margin = (
        ["accuracy, points", "6.0 [2.5, 9.3]"],
        ["margin, nats", "0.60 [0.25, 0.93]"],
    )
    low, high, perfect = "0.50 [0.40, 0.60]", "2.00 [1.60, 2.40]", "2.00 (all members above)"
    assert table.lines == [
        ["leaked", copies, "a", measure, seeds, total, "min_k", d_prime, twins, inflated, detected]
        for (measure, total), copies, seeds, d_prime, twins, inflated, detected in (
            (accuracy, "1", "chosen on 0", low, perfect, "yes", "no"),
            (accuracy, "4", "chosen on 0", high, perfect, "yes", "yes"),
            (margin, "1", "chosen on 0", low, perfect, "yes", "no"),
            (margin, "4", "chosen on 0", high, perfect, "yes", "yes"),
            (accuracy, "1", "confirmed on 1, 2", low, perfect, "yes", "no"),
            (accuracy, "4", "confirmed on 1, 2", high, perfect, "yes", "yes"),
            (margin, "1", "confirmed on 1, 2", low, "2.00 [2.00, 2.13]", "yes", "no"),
            (margin, "4", "confirmed on 1, 2", high, "–", "not shown", "yes"),
        )
    ]
    assert table.data is findings.detectability
    assert table.note == (
        "d′ = √2 Φ⁻¹(AUROC) of members against non-members: of the method with the largest one, "
        "and of the loss against the clean twins of other seeds, which no auditor has. Inflated: "
        "the total effect's interval is above 0. Detected: some method's d′ has an interval above "
        "0. Candidates are chosen on one seed and confirmed on the others."
    )
    columns = [name for name in findings.detectability if name.startswith("twins_")]
    findings.detectability = findings.detectability.drop(columns=columns)
    assert {line[8] for line in detectability_table(findings).lines} == {"–"}


def test_the_chart_by_copies_has_each_effect_with_its_interval(findings):
    without_copies = pd.DataFrame(effect_rows("accuracy", 0, "all", 1))
    findings.effects = pd.concat([findings.effects, without_copies])
    chart = dose_chart(findings, "accuracy")
    assert (chart.name, chart.title) == ("doses-accuracy", "Inflation by copies: accuracy, points")
    assert chart.label == "Effects by copies, accuracy, points"
    assert chart.caption == (
        "Mean over benchmarks. Direct effect and spillover add up to the total."
    )
    (axes,) = chart.figure.axes
    direct, spillover, total = error_bar_series(axes)
    assert direct == ("direct", [(4, 12.0)], [(3.0, 21.0)], ("-", SERIES[0], "o"))
    assert total == (
        "total", [(1, 18.0), (4, 18.0)], [(7.5, 27.9), (7.5, 27.9)], ("--", SERIES[0], "o"),
    )  # fmt: skip
    assert (spillover.label, spillover.points) == ("spillover", [(1, 6.0), (4, 6.0)])
    assert (spillover.ends[-1], spillover.style) == ((-3.0, 15.0), (":", SERIES[0], "o"))
    (zero,) = [line for line in axes.lines if line.get_color() == INK]
    assert ([*zero.get_ydata()], zero.get_linewidth()) == ([0, 0], 0.8)
    assert (axes.get_xscale(), axes.xaxis.get_transform().base) == ("log", 2)
    assert ticks(axes.xaxis) == {"1": 1, "4": 4}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("copies of a member", "accuracy, points")
    assert legend_labels(chart) == ["direct", "spillover", "total"]
    assert legend_columns(chart) == 3


def test_the_chart_by_copies_names_the_lines_of_several_learning_rates(findings):
    reworded = findings.effects.assign(learning_rate=0.01, form="reworded", condition="other")
    findings.effects = pd.concat([findings.effects, reworded])
    (axes,) = dose_chart(findings, "margin").figure.axes
    series = error_bar_series(axes)
    assert [line.label for line in series] == [
        f"{effect} {condition}"
        for condition in ("0.001, pretraining, verbatim", "0.01, pretraining, reworded")
        for effect in ("direct", "spillover", "total")
    ]
    assert [line.style[1] for line in series] == [SERIES[0]] * 3 + [SERIES[1]] * 3
    assert series[5].points == [(1, 1.8), (4, 1.8)]
    assert series[5].ends == [(0.75, 2.79), (0.75, 2.79)]
