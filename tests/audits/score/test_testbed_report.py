"""The report on corrected scores against clean twins, word for word, from errors that are given."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.score.estimation import (
    COMBINED,
    CONSTAT,
    EPG_IPW,
    HELD_OUT,
    IMPUTATION,
    IPW,
    NAIVE,
)
from contamination.audits.score.testbed.cases import AS_LEAKED, CLEAN_MODEL, MORE_COPIES
from contamination.audits.score.testbed.findings import SpikingFindings, Sufficiency
from contamination.audits.score.testbed.report import (
    LIMITS,
    _warnings,
    benchmark_table,
    error_table,
    report,
    rmse_chart,
    sufficiency_table,
)
from contamination.audits.score.testbed.spiking import OTHER_TWIN
from contamination.core.report.charts import GREY, INK, SERIES
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from tests.audits.checks import legend_columns, legend_labels, ticks


def error(scenario, benchmark, spiked, estimator, bias, rmse, gain, **changes):
    return {
        "condition": "leaked", "scenario": scenario, "benchmark": benchmark, "spiked": spiked,
        "estimator": estimator, "bias": bias, "bias_low": bias - 2, "bias_high": bias + 3,
        "rmse": rmse, "rmse_low": rmse - 0.5, "rmse_high": rmse + 1.5,
        "gain": gain, "gain_low": gain - 1.2, "gain_high": gain + 1.4,
        "seeds": 3, "cells": 6, "items": 31.6, **changes,
    }  # fmt: skip


def as_leaked():
    """Two benchmarks and their mean; more spiked examples come first."""
    numbers = {NAIVE: (7, 8, 0), IPW: (3, 4, -4), COMBINED: (0.6, 1.2, -6.8),
               OTHER_TWIN: (-0.2, 1.6, -6.4)}  # fmt: skip
    for place, benchmark in enumerate(("a", "b", ALL_BENCHMARKS)):
        for spiked in (10, 2):
            for name, (bias, rmse, gain) in numbers.items():
                penalty = 2 * (spiked == 2 and name in (IPW, COMBINED))
                yield error(
                    AS_LEAKED, benchmark, spiked, name, bias + place, rmse + penalty + place, gain,
                    items=31.6 + place,
                )  # fmt: skip


def of_clean_models():
    near_zero = {"condition": "clean", "bias_low": -0.9, "bias_high": 0.0}
    for spiked in (10, 2):
        yield error(CLEAN_MODEL, "a", spiked, NAIVE, 0, 0.6, 0, condition="clean")
        # off 0, but by a tenth of a point at most
        tiny = {"bias_low": 0.01, "bias_high": 0.2}
        yield error(CLEAN_MODEL, "a", spiked, IPW, 0.09, 0.7, 0.1, **near_zero | tiny)
        shift = 3 * (spiked == 2)
        yield error(CLEAN_MODEL, "a", spiked, EPG_IPW, shift - 4, 5, 5, condition="clean")
        yield error(CLEAN_MODEL, "a", spiked, COMBINED, 2.5, 3, 3, condition="clean")
        yield error(CLEAN_MODEL, "a", spiked, HELD_OUT, -0.3, 3, 3, **near_zero)


def more_copies():
    for spiked in (5, 2):
        yield error(MORE_COPIES, "a", spiked, NAIVE, 6, 7, 0)
        yield error(MORE_COPIES, "a", spiked, IPW, 2, 3, -4)


@pytest.fixture
def findings():
    errors = pd.DataFrame([*of_clean_models(), *more_copies(), *as_leaked()])
    sufficiency = [
        Sufficiency("clean", CLEAN_MODEL, IPW, 2, None, 2, 10, True),
        Sufficiency("leaked", MORE_COPIES, IPW, 5, None, 2, 5, True),
        Sufficiency("leaked", AS_LEAKED, IPW, 10, 2, 2, 10, True),
        Sufficiency("leaked", AS_LEAKED, COMBINED, 2, 10, 2, 10, True),
    ]
    failed = pd.DataFrame({"estimator": [CONSTAT, IPW, CONSTAT], "failed": [0.125, 0.0, 0.25]})
    return SpikingFindings(errors, failed, sufficiency, 1.0, 0.9, ["leaked, c: too few items."])


def test_the_report_of_all_scenarios(findings):
    content = report(findings, {"cells": "3"}, ["From the cells."])
    assert content.title == "How far off are corrected scores? Against clean twins"
    assert content.conclusions == [
        "Without contamination (clean) naive is right, and with 10 spiked examples on each side "
        "the corrections change the score by, in points: IPW 0.1 [0.0, 0.2]; EPG-IPW -4.0 "
        "[-6.0, -1.0]; combined 2.5 [0.5, 5.5].",
        "**leaked, spiked: most copies, the benchmark fewest: no number of spiked examples up to 5 "
        "on each side suffices for IPW: its RMSE is not shown to be below naive's.** Naive: bias "
        "6.0 [4.0, 9.0], RMSE 7.0 [6.5, 8.5] points.",
        "**leaked: 10 spiked examples on each side suffice for combined: from there on its RMSE is "
        "below naive's and within 1 point of that with 10.** Naive: bias 9.0 [7.0, 12.0], RMSE "
        "10.0 [9.5, 11.5] points; another clean twin: RMSE 3.6 [3.1, 5.1].",
        "IPW: RMSE 8.0 [7.5, 9.5] with 2 and 6.0 [5.5, 7.5] with 10 spiked examples on each side; "
        "it still falls by more than 1 point up to 10; below naive's from 2 on. Bias with 10: "
        "5.0 [3.0, 8.0].",
        "combined: RMSE 5.2 [4.7, 6.7] with 2 and 3.2 [2.7, 4.7] with 10 spiked examples on each "
        "side; within 1 point of the latter from 2 on; below naive's from 10 on. Bias with 10: "
        "2.6 [0.6, 5.6].",
    ]
    assert content.warnings == [
        "From the cells.",
        "**EPG-IPW changes the score of clean models** (clean): by -4.0 [-6.0, -1.0] points with "
        "10 spiked examples on each side.",
        "**combined changes the score of clean models** (clean): by 2.5 [0.5, 5.5] points with 10 "
        "spiked examples on each side.",
        "ConStat has no value in 25.0% of the repetitions of some cell, which are left out of its "
        "errors.",
        "Left out: leaked, c: too few items.",
    ]
    assert content.limits == LIMITS
    assert content.facts == {"cells": "3", "confidence of intervals": "90%"}
    assert [chart.name for chart in content.charts] == ["rmse-leaked"]


def test_the_table_of_errors_has_each_score_and_the_references_once(findings):
    table = error_table(findings)
    assert (table.name, table.title) == ("errors", "Errors against the clean twin")
    assert table.header == ["condition", "spiked members were copied", "score", "spiked", "bias",
                            "RMSE", "RMSE − naive's", "seeds", "items"]  # fmt: skip
    leaked, copied = "9.0 [7.0, 12.0]", "2.0 [0.0, 5.0]"
    assert [line[:1] + line[2:] for line in table.lines] == [
        ["leaked", "naive", "–", leaked, "10.0 [9.5, 11.5]", "–", "3", "34"],
        ["leaked", "IPW", "10", "5.0 [3.0, 8.0]", "6.0 [5.5, 7.5]", "-4.0 [-5.2, -2.6]", "3", "34"],
        ["leaked", "combined", "10", "2.6 [0.6, 5.6]", "3.2 [2.7, 4.7]", "-6.8 [-8.0, -5.4]", "3",
         "34"],
        ["leaked", "another clean twin", "–", "1.8 [-0.2, 4.8]", "3.6 [3.1, 5.1]",
         "-6.4 [-7.6, -5.0]", "3", "34"],
        ["leaked", "IPW", "2", "5.0 [3.0, 8.0]", "8.0 [7.5, 9.5]", "-4.0 [-5.2, -2.6]", "3", "34"],
        ["leaked", "combined", "2", "2.6 [0.6, 5.6]", "5.2 [4.7, 6.7]", "-6.8 [-8.0, -5.4]", "3",
         "34"],
        ["leaked", "naive", "–", "6.0 [4.0, 9.0]", "7.0 [6.5, 8.5]", "–", "3", "32"],
        ["leaked", "IPW", "5", copied, "3.0 [2.5, 4.5]", "-4.0 [-5.2, -2.6]", "3", "32"],
        ["leaked", "IPW", "2", copied, "3.0 [2.5, 4.5]", "-4.0 [-5.2, -2.6]", "3", "32"],
        ["clean", "naive", "–", "0.0 [-2.0, 3.0]", "0.6 [0.1, 2.1]", "–", "3", "32"],
        ["clean", "IPW", "10", "0.1 [0.0, 0.2]", "0.7 [0.2, 2.2]", "0.1 [-1.1, 1.5]", "3", "32"],
        ["clean", "EPG-IPW", "10", "-4.0 [-6.0, -1.0]", "5.0 [4.5, 6.5]", "5.0 [3.8, 6.4]", "3",
         "32"],
        ["clean", "combined", "10", "2.5 [0.5, 5.5]", "3.0 [2.5, 4.5]", "3.0 [1.8, 4.4]", "3",
         "32"],
        ["clean", "known non-members", "10", "-0.3 [-0.9, 0.0]", "3.0 [2.5, 4.5]", "3.0 [1.8, 4.4]",
         "3", "32"],
        ["clean", "IPW", "2", "0.1 [0.0, 0.2]", "0.7 [0.2, 2.2]", "0.1 [-1.1, 1.5]", "3", "32"],
        ["clean", "EPG-IPW", "2", "-1.0 [-3.0, 2.0]", "5.0 [4.5, 6.5]", "5.0 [3.8, 6.4]", "3",
         "32"],
        ["clean", "combined", "2", "2.5 [0.5, 5.5]", "3.0 [2.5, 4.5]", "3.0 [1.8, 4.4]", "3", "32"],
        ["clean", "known non-members", "2", "-0.3 [-0.9, 0.0]", "3.0 [2.5, 4.5]", "3.0 [1.8, 4.4]",
         "3", "32"],
    ]  # fmt: skip
    scenarios = [line[1] for line in table.lines]
    assert scenarios == [AS_LEAKED] * 6 + [MORE_COPIES] * 3 + [CLEAN_MODEL] * 9
    pd.testing.assert_frame_equal(table.data, findings.means)
    assert table.note == (
        "Points of accuracy against the clean twin of the same seed on the same items; mean over "
        "benchmarks, cells and seeds, with 90% intervals over seeds. Spiked: known members, and as "
        "many known non-members. RMSE − naive's: below 0, the correction helps. References of "
        "imputation, combined and ConStat are the clean twins of other seeds; imputation and "
        "combined take ten known non-members. Items: in a benchmark."
    )


def test_the_table_of_spiked_examples_needed_leaves_clean_models_out(findings):
    unjudged = replace(findings.sufficiency[2], estimator=EPG_IPW, is_judged=False, helps=None)
    extended = replace(findings, sufficiency=[*findings.sufficiency, unjudged], tolerance=0.5)
    table = sufficiency_table(extended)
    assert (table.name, table.title) == ("needed", "Spiked examples needed")
    assert table.header == ["condition", "spiked members were copied", "score", "settles",
                            "below naive's", "most tried"]  # fmt: skip
    assert table.lines == [
        ["leaked", MORE_COPIES, "IPW", "5", "none", "5"],
        ["leaked", AS_LEAKED, "IPW", "10", "2", "10"],
        ["leaked", AS_LEAKED, "combined", "2", "10", "10"],
        ["leaked", AS_LEAKED, "EPG-IPW", "10", "not judged", "10"],
    ]
    columns = ["condition", "scenario", "estimator", "settles", "helps", "most"]
    rows = [("leaked", MORE_COPIES, IPW, 5, np.nan, 5), ("leaked", AS_LEAKED, IPW, 10, 2.0, 10),
            ("leaked", AS_LEAKED, COMBINED, 2, 10.0, 10),
            ("leaked", AS_LEAKED, EPG_IPW, 10, np.nan, 10)]  # fmt: skip
    pd.testing.assert_frame_equal(table.data, pd.DataFrame(rows, columns=columns))
    assert table.note == (
        "Settles: the fewest from which on the RMSE is within 0.5 points of that with the most. "
        "Below naive's: the fewest from which on the interval of RMSE − naive's RMSE is below 0. "
        "On each side."
    )
    clean = findings.errors.query("scenario == @CLEAN_MODEL")
    clean_alone = replace(findings, sufficiency=findings.sufficiency[:1], errors=clean)
    content = report(clean_alone, {}, [])
    assert [*content.tables[1].data] == columns
    assert [table.name for table in content.tables] == ["errors", "needed"]  # of one benchmark
    assert content.charts == []


def test_the_table_by_benchmark_has_the_most_spiked_examples(findings):
    table = benchmark_table(findings)
    assert (table.name, table.title) == ("by_benchmark", "Errors by benchmark")
    assert table.header == ["condition", "benchmark", "score", "spiked", "bias", "RMSE", "items"]
    assert table.lines == [
        ["leaked", "a", "naive", "10", "7.0 [5.0, 10.0]", "8.0 [7.5, 9.5]", "32"],
        ["leaked", "a", "IPW", "10", "3.0 [1.0, 6.0]", "4.0 [3.5, 5.5]", "32"],
        ["leaked", "a", "combined", "10", "0.6 [-1.4, 3.6]", "1.2 [0.7, 2.7]", "32"],
        ["leaked", "a", "another clean twin", "10", "-0.2 [-2.2, 2.8]", "1.6 [1.1, 3.1]", "32"],
        ["leaked", "b", "naive", "10", "8.0 [6.0, 11.0]", "9.0 [8.5, 10.5]", "33"],
        ["leaked", "b", "IPW", "10", "4.0 [2.0, 7.0]", "5.0 [4.5, 6.5]", "33"],
        ["leaked", "b", "combined", "10", "1.6 [-0.4, 4.6]", "2.2 [1.7, 3.7]", "33"],
        ["leaked", "b", "another clean twin", "10", "0.8 [-1.2, 3.8]", "2.6 [2.1, 4.1]", "33"],
    ]
    assert {*table.data["benchmark"]} == {"a", "b"}
    assert len(table.data) == len(findings.errors) - 8
    assert table.note == (
        "With the most spiked examples, copied as the benchmark's members. The files have all rows."
    )


def test_one_seed_and_one_number_of_spiked_examples_have_no_intervals(findings):
    ends = {f"{name}_{end}": np.nan for name in ("bias", "rmse", "gain") for end in ("low", "high")}
    rows = [error(AS_LEAKED, "a", 2, name, -1, rmse, rmse - 8, seeds=1, **ends)
            for name, rmse in ((NAIVE, 8), (IPW, 4))]  # fmt: skip
    unjudged = Sufficiency("leaked", AS_LEAKED, IPW, 2, None, 2, 2, False)
    content = report(
        replace(findings, errors=pd.DataFrame(rows), sufficiency=[unjudged],
                by_cell=findings.by_cell[:0], omissions=[]), {}, [],
    )  # fmt: skip
    assert content.conclusions == [
        "**leaked: whether spiked examples suffice for IPW can't be said from one seed.** Naive: "
        "bias -1.0, RMSE 8.0 points.",
        "IPW: RMSE 4.0 with 2 spiked examples on each side. Bias with 2: -1.0.",
    ]
    assert content.warnings == [
        "**One seed only for leaked**: there are no intervals. Add seeds to the sweep."
    ]


def test_a_correction_that_does_not_help_is_said_of_each_score(findings):
    helpless = [replace(item, helps=None) for item in findings.sufficiency]
    conclusions = report(replace(findings, sufficiency=helpless), {}, []).conclusions
    assert conclusions[3].endswith(
        "up to 10; not shown to be below naive's. Bias with 10: 5.0 [3.0, 8.0]."
    )


def naive_with(findings, **changes):
    errors = findings.errors.copy()
    errors.loc[errors["estimator"] == NAIVE, [*changes]] = [*changes.values()]
    warnings = _warnings(replace(findings, errors=errors))
    return [warning for warning in warnings if "bias is" in warning]


def test_a_score_without_inflation_is_named_with_how_far_two_clean_twins_differ(findings):
    assert naive_with(findings, bias_low=0.0) == [
        "**No inflation is shown for leaked**: naive's bias is 9.0 [0.0, 12.0] points, so there "
        "may be nothing to correct on average. Its RMSE is 10.0 [9.5, 11.5], that of another clean "
        "twin 3.6 [3.1, 5.1]: more than two clean twins differ, in no direction that is shown."
    ]
    assert naive_with(findings, bias_low=0.0, seeds=1) == []
    assert naive_with(findings, bias=-2.0, bias_low=-4.0, bias_high=-0.1) == [
        "**The score is lower than the clean twin's for leaked**: naive's bias is -2.0 "
        "[-4.0, -0.1] points, so on average there is no inflation to correct."
    ]
    (zero,) = naive_with(findings, bias=-2.0, bias_low=-4.0, bias_high=0.0)
    assert zero.startswith("**No inflation is shown for leaked**")
    assert naive_with(findings, bias_low=-4.0, bias_high=-0.1, seeds=1) == []


def test_benchmarks_that_the_model_answers_as_its_clean_twin_are_named(findings):
    errors = findings.errors.copy()
    is_naive = (errors["estimator"] == NAIVE) & (errors["scenario"] == AS_LEAKED)
    errors.loc[is_naive & (errors["benchmark"] == "a"), "rmse"] = 0.1  # a tenth is something
    errors.loc[is_naive & (errors["benchmark"] == "b"), "rmse"] = 0.09
    errors = pd.concat([errors, errors[is_naive].assign(condition="a second")])
    warnings = _warnings(replace(findings, errors=errors))
    assert [warning for warning in warnings if "Nothing" in warning] == [
        f"**Nothing to correct in b** ({condition}): the model answers as its clean twin does. "
        "These benchmarks lower the means over benchmarks; read the others' rows."
        for condition in ("leaked", "a second")
    ]


def test_the_chart_has_a_line_of_each_score_and_of_the_references(findings):
    names = (IPW, EPG_IPW, COMBINED, IMPUTATION, CONSTAT)
    rows = [
        error(AS_LEAKED, "a", spiked, name, 1, spiked / 2 + place, -1, condition="At 2%")
        for spiked in (10, 2)
        for place, name in enumerate((NAIVE, OTHER_TWIN, *names))
    ]
    other_conditions = [*of_clean_models(), *as_leaked()]
    chart = rmse_chart(replace(findings, errors=pd.DataFrame([*other_conditions, *rows])), "At 2%")
    assert (chart.name, chart.title) == ("rmse-at-2-", "RMSE by spiked examples: At 2%")
    assert chart.label == "RMSE against the number of spiked examples, At 2%"
    assert chart.caption == (
        "imputation, combined and ConStat read the clean twins of other seeds. Imputation and "
        "combined take ten known non-members."
    )
    (axes,) = chart.figure.axes
    lines = [
        (line.get_label(), [*line.get_ydata()], line.get_color(), line.get_linestyle(),
         line.get_marker() == "o", line.get_linewidth() == 1)
        for line in axes.lines
    ]  # fmt: skip
    assert lines == [
        (IPW, [3, 7], SERIES[0], "-", True, False),
        (EPG_IPW, [4, 8], SERIES[1], "-", True, False),
        (COMBINED, [5, 9], SERIES[2], "-", True, False),
        (IMPUTATION, [6, 10], SERIES[3], "-", True, False),
        (CONSTAT, [7, 11], SERIES[0], "--", True, False),
        (NAIVE, [1, 5], INK, "-", False, True),
        (OTHER_TWIN, [2, 6], GREY, "--", False, True),
    ]
    assert all([*line.get_xdata()] == [2, 10] for line in axes.lines)
    assert (axes.get_xscale(), axes.xaxis.get_transform().base) == ("log", 2)
    assert ticks(axes.xaxis) == {"2": 2, "10": 10}
    assert axes.get_ylim()[0] == 0
    assert (axes.get_xlabel(), axes.get_ylabel()) == (
        "spiked examples on each side", "RMSE, points",
    )  # fmt: skip
    assert legend_labels(chart) == [*names, NAIVE, OTHER_TWIN]
    assert legend_columns(chart) == 4
    ipw_errors = pd.DataFrame(row for row in rows if row["estimator"] == IPW)
    chart = rmse_chart(replace(findings, errors=ipw_errors), "At 2%")
    assert len(chart.figure.axes[0].lines) == 1
