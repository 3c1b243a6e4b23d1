"""The report's sentences, tables and charts, of two conditions with made-up numbers."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.reference_attack.report import (
    LIMITS,
    dose_chart,
    models_chart,
    report,
    strength_chart,
)
from contamination.audits.reference_attack.tables import (
    all_tables,
    bound_table,
    interval,
    memorisation_table,
    models_table,
    stability_table,
    strength_table,
)
from contamination.core.report.charts import ACCENT, GREY, INK, MEMBER
from tests.audits.checks import error_bar_series, legend_labels, ticks, with_ends

INF = float("inf")


def with_interval(name, value, margin):
    return with_ends(name, value, value - margin, value + margin)


def strength(dose, attack, auroc, d_prime, lacking, share, rate, *, reads=True):
    return {
        "condition": "", "occurrences": dose, "attack": attack, "reads_references": reads,
        **with_interval("auroc", auroc, 0.02), **with_interval("d_prime", d_prime, 0.1),
        **with_interval("lacking", lacking, 0.15), "share": share,
        **with_interval("tpr_at_fpr_0.01", rate, 0.01),
    }  # fmt: skip


def condition_findings(name, cells=16, *, rate=1e-3, coins=True, tokens=(), **changes):
    """Findings with two doses, two attacks and two methods."""
    nan = np.nan
    strengths = [
        strength(1, "rmia", 0.75, 0.95, 0.0, 1.0, 0.10),
        strength(4, "rmia", 0.875, 1.63, 0.0, nan, 0.20),
        strength(1, "lira_online", 0.7, 0.74, 0.21, 0.8, 0.05),
        strength(4, "lira_online", 0.8, 1.19, 0.44, nan, nan),
        strength(1, "loss", 0.60, 0.36, 0.59, 0.4, 0.02, reads=False),
        strength(4, "loss", 0.70, 0.74, 0.89, nan, 0.03, reads=False),
        strength(1, "min_k", 0.58, 0.29, 0.66, 0.32, 0.02, reads=False),
        strength(4, "min_k", 0.90, 1.81, -0.18, nan, 0.25, reads=False),
    ]
    by_models = [
        {"occurrences": dose, "attack": attack, "models": models,
         **with_interval("auroc", auroc, 0.01)}
        for dose, attack, models, auroc in (
            (1, "rmia", 8, 0.65), (1, "rmia", 16, 0.75), (1, "rmia", INF, 0.84),
            (4, "rmia", 8, 0.75), (4, "rmia", 16, 0.875), (4, "rmia", INF, 0.94),
            (4, "lira_online", 16, 0.8),
        )
    ]  # fmt: skip
    stability = [{
        "occurrences": 4, "tpr": 0.4, "fpr": 0.05, "agreement": 0.61, "agreement_if_alike": 0.52,
        "found_never": 0.3, "found_sometimes": 0.45, "found_always": 0.25,
        "alarm_rate_above_twice": 0.125,
    }]  # fmt: skip
    bounds = [
        {"occurrences": 4, "cell": f"{number}", "attack": attack, "epsilon": epsilon, "most": most}
        for attack, epsilons in (("rmia", (0.0, 0.5, 1.5)), ("loss", (0.0, 0.0, 0.25)))
        for number, (epsilon, most) in enumerate(zip(epsilons, (2.0, 2.5, 3.5), strict=True))
    ]
    memorisation = [
        {"occurrences": 4, "example_id": f"e{number:02d}", "text": f"Text\n {number}.",
         "memorisation": 1.5 - number, "standard_error": 0.25, "shrunk": 1.25 - number,
         "mean_in": -1.0 - number, "mean_out": -2.5}
        for number in range(22)
    ]  # fmt: skip
    frames = {
        "strengths": strengths, "by_models": by_models, "stability": stability,
        "bounds": bounds if coins else [], "memorisation": memorisation,
    }  # fmt: skip
    references = SimpleNamespace(tokens=tokens, dose_levels=[1, 4])
    condition = SimpleNamespace(
        name=name, cells=[None] * cells, learning_rate=rate, references=references
    )
    return SimpleNamespace(**{
        "condition": condition, "reference": "rmia", "share_above": 0.625, "delta": 1e-6,
        **{key: pd.DataFrame(rows).assign(condition=name) for key, rows in frames.items()},
        **changes,
    })  # fmt: skip


@pytest.fixture
def findings():
    return condition_findings("m-lr0.001")


@pytest.fixture
def undrawn(monkeypatch):
    """Each chart is its name alone."""

    def named(kind):
        return lambda findings: f"{kind} {findings.condition.name}"

    module = "contamination.audits.reference_attack.report"
    monkeypatch.setattr(f"{module}.models_chart", named("models"))
    monkeypatch.setattr(f"{module}.strength_chart", named("strength"))
    monkeypatch.setattr(f"{module}.dose_chart", lambda conditions: f"doses of {len(conditions)}")


@pytest.fixture
def conditions(findings):
    """The findings of two learning rates; the members of the second were not drawn by coins."""
    return [findings, condition_findings("m-lr0.004", rate=4e-3, coins=False)]


def test_the_strength_of_an_attack_is_a_line_of_its_table(conditions):
    table = strength_table(conditions)
    assert (table.name, table.title) == ("attacks", "Attacks and methods")
    assert table.header == [
        "condition", "copies", "attack or method", "AUROC", "d′", "d′ less than rmia", "share",
        "TPR at FPR ≤ 0.01",
    ]  # fmt: skip
    assert len(table.lines) == len(table.data) == 16
    assert table.lines[2] == [
        "m-lr0.001", "1", "lira_online", "0.700 [0.680, 0.720]", "0.740 [0.640, 0.840]",
        "0.210 [0.060, 0.360]", "0.80", "0.050 [0.040, 0.060]",
    ]  # fmt: skip
    assert table.lines[11][:3] == ["m-lr0.004", "4", "lira_online"]
    assert table.lines[11][-2:] == ["–", "–"]
    assert table.note == (
        "AUROC: mean over benchmarks and cells. d′ less than rmia: how many standard deviations "
        "the row lacks to the reference attack; below 0 it has more. Share: of the reference's "
        "AUROC above 0.5, shown where that AUROC is surely at least 0.625. Thresholds of TPR are "
        "over all cells and examples together, so they are not calibrated for a single example. "
        "Intervals: 95%, over examples and cells."
    )
    assert [*table.data.index] == [*range(16)]


def test_a_value_without_an_interval_is_alone():
    row = pd.Series({"a": 0.5, "a_low": np.nan, "a_high": np.nan, "b": np.nan, "b_low": 0.0,
                     "b_high": 1.0, "c": 0.5, "c_low": 0.25, "c_high": INF})  # fmt: skip
    assert [interval(row, name) for name in "abc"] == ["0.500", "–", "0.500"]


def test_the_table_of_models_has_a_column_for_each_number_of_them(conditions):
    table = models_table(conditions)
    assert (table.name, table.title) == ("models", "AUROC by number of models")
    assert table.header == ["condition", "copies", "attack", "8 models", "16 models", "limit"]
    lines = [
        ["1", "rmia", "0.650 [0.640, 0.660]", "0.750 [0.740, 0.760]", "0.840 [0.830, 0.850]"],
        ["4", "rmia", "0.750 [0.740, 0.760]", "0.875 [0.865, 0.885]", "0.940 [0.930, 0.950]"],
        ["4", "lira_online", "–", "0.800 [0.790, 0.810]", "–"],
    ]
    assert table.lines == [[name, *line] for name in ("m-lr0.001", "m-lr0.004") for line in lines]
    assert len(table.data) == 14
    assert table.note == (
        "AUROC if only so many models had been trained: the mean over disjoint blocks of cells. "
        "The limit is the intercept of a straight line in 1 / models, on the scale of d′: a rough "
        "guide for an attack that still rises fast."
    )


def test_the_table_of_decisions(conditions):
    table = stability_table(conditions)
    assert (table.name, table.title) == ("stability", "Stability of single decisions")
    assert table.header == [
        "condition", "copies", "found", "false alarms", "agreement", "agreement if alike",
        "never found", "sometimes", "always", "examples with twice the alarms",
    ]  # fmt: skip
    numbers = ["0.400", "0.050", "0.610", "0.520", "0.300", "0.450", "0.250", "0.125"]
    assert table.lines == [[name, "4", *numbers] for name in ("m-lr0.001", "m-lr0.004")]
    assert len(table.data) == 2
    assert table.note == (
        "Decisions of rmia at a false-positive rate of 0.05 over all examples. Agreement: the "
        "chance that two models that both saw an example decide alike on it; if alike: what it "
        "would be if all examples were equally hard. An example is found never, sometimes or "
        "always by the cells that saw it. The last column: the share of examples whose own "
        "false-positive rate was seen to be above twice that of all."
    )


def test_the_table_of_bounds_has_their_median_and_extremes(conditions):
    table = bound_table(conditions)
    assert (table.name, table.title) == ("bounds", "Lower bounds on ε from one run")
    assert table.lines == [
        ["m-lr0.001", "4", "rmia", "3", "0.50", "0.00", "1.50", "0.67", "2.50"],
        ["m-lr0.001", "4", "loss", "3", "0.00", "0.00", "0.25", "0.33", "2.50"],
    ]
    assert len(table.data) == 6
    assert table.note == (
        "A lower bound on ε (δ = 1e-06) for each cell alone, by guesses about 25% of the examples, "
        "a number fixed in advance (Steinke et al. 2023). Each holds with 95% confidence; the "
        "highest of several does not. The unit is an example with all its copies."
    )
    assert bound_table(conditions[1:]) is None


def test_the_most_memorised_examples_of_each_condition_are_shown(conditions):
    table = memorisation_table(conditions[::-1])  # in the order in which they are given
    assert (table.name, table.title) == ("memorisation", "The most memorised examples")
    assert table.header == [
        "condition", "copies", "example", "memorisation", "error", "shrunk", "seen", "not seen",
        "text",
    ]  # fmt: skip
    assert len(table.lines) == 2 * 20
    assert len(table.data) == 2 * 22
    assert table.lines[1] == [
        "m-lr0.004", "4", "e01", "0.500", "0.250", "0.250", "-2.00", "-2.50", "Text 1.",
    ]  # fmt: skip
    assert [table.lines[20][column] for column in (0, 2)] == ["m-lr0.001", "e00"]
    assert table.note == (
        "Memorisation: the mean log-probability (nats per token) over the cells that saw the "
        "example, less that over those that did not. Shrunk: the same, drawn towards the mean of "
        "its benchmark as far as its error demands; the order is by it. The first 20 of each "
        "condition are shown; memorisation.csv has all."
    )


@pytest.mark.parametrize(("length", "text"), [(90, "x" * 90), (91, "x" * 89 + "…")])
def test_a_text_of_more_than_90_characters_is_cut(findings, length, text):
    findings.memorisation["text"] = "x" * length
    assert memorisation_table([findings]).lines[0][-1] == text


def test_the_tables_come_in_order_and_without_an_empty_one(conditions):
    names = ["attacks", "models", "stability", "bounds", "memorisation"]
    assert [table.name for table in all_tables(conditions)] == names
    names.remove("bounds")
    assert [table.name for table in all_tables(conditions[1:])] == names


@pytest.mark.usefixtures("undrawn")
def test_the_conclusions_name_the_best_method_and_what_it_lacks(conditions):
    content = report(conditions, {"cells": "32"})
    assert content.title == "The strong reference attack"
    assert (content.facts, content.limits) == ({"cells": "32"}, LIMITS)
    sentences = [
        "1 copy, 16 models.** rmia reaches AUROC 0.750 [0.730, 0.770], and 0.840 with more and "
        "more models. The best method without references, loss, has 0.600 and lacks 0.59 d′ "
        "[0.44, 0.74].",
        "4 copies, 16 models.** rmia reaches AUROC 0.875 [0.855, 0.895], and 0.940 with more and "
        "more models. The best method without references, min_k, has 0.900 and exceeds it by "
        "0.18 d′ [-0.33, -0.03].",
    ]
    one_run_sentence = (
        "One run shows ε ≥ 0.50 (median of 3 cells, δ = 1e-06, 95% confidence each). The unit is "
        "an example with all its copies."
    )
    assert content.conclusions == [
        *(f"**m-lr0.001, {text}" for text in sentences), one_run_sentence,
        *(f"**m-lr0.004, {text}" for text in sentences),
    ]  # fmt: skip
    names = [table.name for table in all_tables(conditions)]
    assert [table.name for table in content.tables] == names


@pytest.mark.usefixtures("undrawn")
def test_a_conclusion_without_a_limit_or_a_method_is_shorter(findings):
    data = findings.by_models
    findings.by_models = data[data["models"] == 16]
    rows = findings.strengths
    findings.strengths = rows[rows["reads_references"] & (rows["occurrences"] == 4)]
    content = report([findings], {})
    assert content.conclusions[0] == (
        "**m-lr0.001, 4 copies, 16 models.** rmia reaches AUROC 0.875 [0.855, 0.895]."
    )
    assert content.charts == ["doses of 1", "strength m-lr0.001"]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("low", "high", "ending"),
    [(-0.1, 0.3, ", not clearly different from 0."), (0.0, 0.3, ", not clearly different from 0."),
     (-0.3, 0.0, ", not clearly different from 0."), (0.1, 0.3, "."), (-0.3, -0.1, ".")],
)  # fmt: skip
def test_a_difference_whose_interval_holds_0_is_not_clear(findings, low, high, ending):
    ends = {"lacking": (low + high) / 2, "lacking_low": low, "lacking_high": high}
    findings.strengths = findings.strengths.assign(**ends)
    for sentence in report([findings], {}).conclusions[:2]:
        words = "lacks" if low + high > 0 else "exceeds it by"
        difference = f"{words} {abs(low + high) / 2:.2f} d′ [{low:.2f}, {high:.2f}]{ending}"
        assert sentence.endswith(difference)


@pytest.mark.usefixtures("undrawn")
def test_fewer_than_16_models_and_passes_that_are_not_stored_are_warned_of():
    without_tokens = (
        "The passes of the cells are not stored beside their scores: multivariate_lira is left "
        "out. Score the cells again (the same command)."
    )
    few_models = (
        "b has 15 models. With fewer than 16 the attack's estimates are poor, and no limit is "
        "worth reading."
    )
    tokens = (np.zeros((1, 1)),)
    enough, fewer = (
        condition_findings(name, cells, tokens=tokens) for name, cells in (("a", 16), ("b", 15))
    )
    bare = condition_findings("c")
    assert report([enough], {}).warnings == []
    assert report([enough, fewer], {}).warnings == [few_models]
    assert report([enough, bare], {}).warnings == [without_tokens]
    assert report([fewer, bare], {}).warnings == [few_models, without_tokens]


# charts


def test_the_chart_of_models_shows_the_reference_and_others_at_the_most_copies(findings):
    chart = models_chart(findings)
    assert (chart.name, chart.title) == (
        "models-m-lr0-001", "AUROC by number of models: m-lr0.001, 4 copies",
    )  # fmt: skip
    assert chart.label == "AUROC of the attacks against the number of models, m-lr0.001"
    assert chart.caption == (
        "Left: the limit of many models. An attack that falls towards the right needs models."
    )
    (axes,) = chart.figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("models (scale: 1 / models)", "AUROC")
    assert ticks(axes.xaxis) == {"8": 1 / 8, "16": 1 / 16, "∞": 0}
    rmia, lira = error_bar_series(axes)
    assert (rmia.label, lira.label) == ("rmia", "lira_online")
    assert rmia.points == [(1 / 8, 0.75), (1 / 16, 0.875), (0, 0.94)]
    assert rmia.ends == [(0.74, 0.76), (0.865, 0.885), (0.93, 0.95)]
    assert (rmia.style[::2], lira.style[::2]) == (("-", "o"), ("--", "o"))
    assert rmia.style[1] != lira.style[1]
    lines = [container.lines[0] for container in axes.containers]
    (chance,) = [line for line in axes.lines if line not in lines]
    assert {*chance.get_ydata()} == {0.5}
    assert (chance.get_color(), chance.get_linewidth()) == (INK, 0.8)
    assert {line.get_markersize() for line in lines} == {4}
    assert chart.figure.get_size_inches().tolist() == [8, 3.6]
    assert legend_labels(chart) == ["rmia", "lira_online"]


def test_the_chart_of_strengths_has_the_strongest_on_top_with_its_interval(findings):
    chart = strength_chart(findings)
    assert (chart.name, chart.title) == (
        "strength-m-lr0-001", "Attacks and methods: m-lr0.001, 4 copies",
    )  # fmt: skip
    assert chart.label == "d′ of attacks and methods with intervals, m-lr0.001"
    assert chart.caption == (
        "In colour: attacks that read the other models. Grey: methods that read one model."
    )
    (axes,) = chart.figure.axes
    assert axes.get_xlabel() == "d′"
    assert ticks(axes.yaxis) == {"loss": 0, "lira_online": 1, "rmia": 2, "min_k": 3}
    assert chart.figure.get_size_inches().tolist() == pytest.approx([8, 0.9 + 0.28 * 4])
    series = error_bar_series(axes, along="x")
    assert [(row.points, row.ends, row.style[1]) for row in series] == [
        ([(0.74, 0)], [(0.64, 0.84)], GREY), ([(1.19, 1)], [(1.09, 1.29)], ACCENT),
        ([(1.63, 2)], [(1.53, 1.73)], MEMBER), ([(1.81, 3)], [(1.71, 1.91)], GREY),
    ]  # fmt: skip
    (zero,) = [line for line in axes.lines if line.get_marker() != "o"]
    assert {*zero.get_xdata()} == {0}
    assert (zero.get_color(), zero.get_linewidth()) == (INK, 0.8)


def test_the_chart_of_doses_has_the_reference_and_the_best_method_at_each_rate(conditions):
    findings = conditions[0]
    findings.strengths = findings.strengths.sort_values("occurrences", ascending=False)
    chart = dose_chart(conditions)
    assert (chart.name, chart.label) == ("doses", "AUROC by copies and learning rate")
    assert chart.title == "Reference attack and the best method by copies and learning rate"
    assert chart.caption == "One-run lower bound on ε by rmia, median over cells: m-lr0.001: 0.50."
    (axes,) = chart.figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("copies of a member", "AUROC")
    assert axes.get_xscale() == "log"
    assert ticks(axes.xaxis) == {"1": 1, "4": 4}
    chance, *lines = sorted(axes.lines, key=lambda line: line.get_marker() == "o")
    assert {*chance.get_ydata()} == {0.5}
    assert (chance.get_color(), chance.get_linewidth()) == (INK, 0.8)
    assert {line.get_markersize() for line in lines} == {4}
    assert chart.figure.get_size_inches().tolist() == [8, 3.6]
    series = {
        line.get_label(): ([*line.get_xdata()], [*line.get_ydata()], line.get_linestyle())
        for line in lines
    }
    assert series == {
        f"{attack}, learning rate {rate}": ([1, 4], aurocs, dash)
        for rate in ("0.001", "0.004")
        for attack, aurocs, dash in (("rmia", [0.75, 0.875], "-"), ("min_k", [0.58, 0.9], ":"))
    }
    assert [line.get_color() for line in lines[::2]] == [line.get_color() for line in lines[1::2]]
    assert lines[0].get_color() != lines[2].get_color()
    assert legend_labels(chart) == [*series]


def test_the_medians_of_all_conditions_are_in_the_caption_and_their_absence_too(conditions):
    slow, fast = conditions
    fast.bounds = slow.bounds.assign(condition="m-lr0.004", epsilon=2.0)
    assert dose_chart(conditions).caption.endswith(": m-lr0.001: 0.50; m-lr0.004: 2.00.")
    slow.bounds = fast.bounds = pd.DataFrame()
    assert dose_chart(conditions).caption == (
        "No one-run bound: the members were not drawn by independent coins."
    )


@pytest.mark.usefixtures("undrawn")
def test_the_chart_of_doses_is_first_and_needs_two_doses_or_rates(findings, conditions):
    charts = ["doses of 2", "models m-lr0.001", "models m-lr0.004"]
    charts += ["strength m-lr0.001", "strength m-lr0.004"]
    assert report(conditions, {}).charts == charts
    findings.condition.references.dose_levels = [4]
    assert report([findings], {}).charts == charts[1::2]
