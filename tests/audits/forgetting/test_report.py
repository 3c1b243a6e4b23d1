"""The report of forgetting: all of its text and charts, from tables of made-up figures."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.forgetting.report import Findings, conditions_chart, report
from contamination.core.report.charts import ACCENT, MEMBER, SERIES
from contamination.core.report.document import markdown_document
from contamination.core.statistics.forgetting_curve import EXPONENTIAL, POWER
from tests.audits.checks import legend_labels, with_ends, words_of

NAN, INF = float("nan"), float("inf")
TOKENS = [400.0, 20_000.0, 1_250_000.0]
CONDITIONS = ["web-lr1e-3", "web-lr1e-2", "web-lr1e-1"]


def means_of(condition, method, excess, below, tokens=TOKENS):
    """Each excess d′ has an interval that begins so far below it."""
    return [
        {"condition": condition, "step": step, "method": method, "occurrences": occurrences,
         "seeds": 2, "tokens_since": since, "decay_since": 0.125 * step, "share_left": left,
         "auroc": 0.75, "d_prime": d + 0.25, **with_ends("excess", d, d - below, d + 0.5)}
        for occurrences in ("any", "4")
        for step, since, d, left in zip(
            (5, 8, 60), tokens, excess, (1.0, 0.75, 0.5), strict=True
        )
    ]  # fmt: skip


MEANS = pd.DataFrame([
    *means_of(CONDITIONS[0], "loss", (2.0, 1.5, 0.5), 0.25),
    *means_of(CONDITIONS[0], "min_k", (0.5, 0.25, 0.125), 0.125),
    *means_of(CONDITIONS[1], "loss", (0.25, 0.0, -0.5), 0.25),
    *means_of(CONDITIONS[2], "loss", (1.0, 0.75, 0.5), 0.125, [0.0, *TOKENS[1:]]),
])  # fmt: skip
POINTS = pd.DataFrame([
    {"condition": condition, "seed": seed, "step": step, "method": method, "occurrences": "any",
     "excess": excess + 0.25 * seed, "share_left": left}
    for condition, method, values in (
        (CONDITIONS[0], "loss", (2.0, 0.5)), (CONDITIONS[0], "min_k", (9.0, 9.0)),
        (CONDITIONS[1], "loss", (0.25, 0.0)), (CONDITIONS[2], "loss", (1.0, 0.75)),
    )
    for seed in (0, 1)
    for step, excess, left in zip((60, 5), values[::-1], (0.5, 0.8), strict=True)
])  # fmt: skip
HALF_LIVES = pd.DataFrame([
    {"condition": CONDITIONS[0], "method": method, "occurrences": occurrences, "form": form,
     "seeds": 2, "anchor": 400.0, "level": 2.0,
     **with_ends("rate", rate, rate / 2, rate * 2),
     **with_ends("half_life", life, low, high), "aic": -7.25, "held_out_error": 0.125,
     "chosen": chosen}
    for method, occurrences, form, rate, life, low, high, chosen in (
        ("loss", "any", EXPONENTIAL, 1e-6, 340_400.0, 999.0, INF, True),
        ("loss", "any", POWER, 0.5, 2.5e9, 1e9, 3e9, False),
        ("loss", "4", EXPONENTIAL, 1e-6, 1e6, NAN, NAN, True),
        ("min_k", "any", EXPONENTIAL, 1e-6, 999_400.0, 1e6, 2.5e6, True),
    )
])  # fmt: skip
EFFECTS = pd.DataFrame([
    {"method": method, "factor": "f", "change": change,
     **with_ends("effect", effect, -0.5, 1.5), "p": p, "cells": 6}
    for method, change, effect, p in (
        ("loss", "learning rate, doubled", 0.625, 0.0499), ("loss", "decay, plus 1", 0.25, 0.05),
        ("min_k", "learning rate, doubled", 0.5, 0.001),
    )
])  # fmt: skip
TASKS = pd.DataFrame([
    {"condition": CONDITIONS[0], "seed": seed, "step": step, "task": task,
     "occurrences": occurrences, "tokens_since": tokens, "members": members,
     "nonmembers": members - gap, "examples": 9}
    for occurrences in ("any", "4")
    for step, task, tokens, members, gaps in (
        (5, "accuracy", 400.0, 0.75, (0.25, 0.25)), (60, "recall", 1_250_000.0, 0.5, (0.125,)),
    )
    for seed, gap in enumerate(gaps)
])  # fmt: skip
FINDINGS = Findings(
    "loss", POINTS, MEANS, pd.DataFrame(), HALF_LIVES, EFFECTS, pd.DataFrame(), TASKS,
    ("Few seeds.",), 0.25, {"cells": "6"},
)  # fmt: skip


FULL = """\
# Forgetting

**web-lr1e-2, loss: nothing to forget.** The members are not detectable right after their last
exposure: the excess d′ of the first scored model is 0.25 [0.00, 0.75]. There is no half-life.

**web-lr1e-1, loss: too few scored models for a half-life.** It has 2, and a curve needs 4 from
after the last exposure. Export the model more often (training.export_steps).

**web-lr1e-3, loss.** The excess d′ falls to half in 340k [1k, never] tokens after the first
scored model (2 seeds; exponential, the form with the lower AIC).

**learning rate, doubled:** the rate of forgetting changes by 0.62 [-0.50, 1.50] per million
tokens.

**decay, plus 1:** the rate of forgetting changes by 0.25 [-0.50, 1.50] per million tokens, not
clearly different from 0.

**web-lr1e-3: faster than weight decay alone.** The mean excess d′ of the first and the last
scored model is 2.12 and 0.62; weight decay alone would leave Π(1 − λη) = 0.62 of it. Difference
at the last model: -0.70 [-1.30, -0.11].

**web-lr1e-1: not clearly faster or slower than weight decay alone.** The mean excess d′ of the
first and the last scored model is 1.12 and 0.88; weight decay alone would leave Π(1 − λη) = 0.62
of it. Difference at the last model: 0.17 [-0.42, 0.77].

**Few seeds.**

## Half-lives

| condition | method | occurrences | form | chosen | first excess | half-life | AIC | error |
| - | - | - | - | - | - | - | - | - |
| web-lr1e-3 | loss | any | exponential | yes | 2.00 | 340k [1k, never] tokens | -7.2 | 0.12 |
| web-lr1e-3 | loss | any | power | no | 2.00 | 2.5e+09 [1.0e+09, 3.0e+09] tokens | -7.2 | 0.12 |
| web-lr1e-3 | loss | 4 | exponential | yes | 2.00 | 1.00M tokens (one seed, no interval) | -7.2 |
0.12 |
| web-lr1e-3 | min_k | any | exponential | yes | 2.00 | 999k [1.00M, 2.50M] tokens | -7.2 | 0.12 |

Half-life: tokens after the first scored model until the excess d′ is half as large; never: the
rate (or an end of its interval) is not above 0. Intervals: 95%, Student's over the seeds' rates.
AIC: the sum over seeds; the form with the lower one is chosen. Error: of the excess that a curve
without the last scored model predicts for it, mean over seeds. Members whose first excess d′ is
not clearly above 0 are left out: there is nothing to forget.

## What the rate of forgetting depends on

| method | change | effect | p | cells |
| - | - | - | - | - |
| loss | learning rate, doubled | 0.625 [-0.500, 1.500] | 0.050 | 6 |
| loss | decay, plus 1 | 0.250 [-0.500, 1.500] | 0.050 | 6 |
| min_k | learning rate, doubled | 0.500 [-0.500, 1.500] | 0.001 | 6 |

Change of the exponential rate k, per million tokens: a k of 1 means that d′ falls to 1/e in a
million tokens. Least squares over the cells, with an intercept for each seed; 95% intervals. The
largest correlation between two factors is 0.25.

## d′ after the exposure

| condition | method | step | tokens since | Σλη | Π(1 − λη) | AUROC | d′ | excess d′ |
| - | - | - | - | - | - | - | - | - |
| web-lr1e-3 | loss | 5 | 0k | 0.625 | 1.00 | 0.750 | 2.25 | 2.00 [1.75, 2.50] |
| web-lr1e-3 | loss | 8 | 20k | 1.000 | 0.75 | 0.750 | 1.75 | 1.50 [1.25, 2.00] |
| web-lr1e-3 | loss | 60 | 1.25M | 7.500 | 0.50 | 0.750 | 0.75 | 0.50 [0.25, 1.00] |
| web-lr1e-3 | min_k | 5 | 0k | 0.625 | 1.00 | 0.750 | 0.75 | 0.50 [0.38, 1.00] |
| web-lr1e-3 | min_k | 8 | 20k | 1.000 | 0.75 | 0.750 | 0.50 | 0.25 [0.12, 0.75] |
| web-lr1e-3 | min_k | 60 | 1.25M | 7.500 | 0.50 | 0.750 | 0.38 | 0.12 [0.00, 0.62] |
| web-lr1e-2 | loss | 5 | 0k | 0.625 | 1.00 | 0.750 | 0.50 | 0.25 [0.00, 0.75] |
| web-lr1e-2 | loss | 8 | 20k | 1.000 | 0.75 | 0.750 | 0.25 | 0.00 [-0.25, 0.50] |
| web-lr1e-2 | loss | 60 | 1.25M | 7.500 | 0.50 | 0.750 | -0.25 | -0.50 [-0.75, 0.00] |
| web-lr1e-1 | loss | 5 | 0k | 0.625 | 1.00 | 0.750 | 1.25 | 1.00 [0.88, 1.50] |
| web-lr1e-1 | loss | 8 | 20k | 1.000 | 0.75 | 0.750 | 1.00 | 0.75 [0.62, 1.25] |
| web-lr1e-1 | loss | 60 | 1.25M | 7.500 | 0.50 | 0.750 | 0.75 | 0.50 [0.38, 1.00] |

All members, means over seeds. Tokens since: the mean over members. Σλη and Π(1 − λη): since the
members' last exposures. Excess: less the d′ of the model before the training on the same
examples; intervals over examples and cells. The file means.csv has each number of occurrences as
well.

## Accuracy and extraction after the exposure

| condition | step | task | tokens since | members | non-members | difference |
| - | - | - | - | - | - | - |
| web-lr1e-3 | 5 | accuracy | 0k | 0.750 | 0.500 | 0.250 [0.250, 0.250] |
| web-lr1e-3 | 60 | recall | 1.25M | 0.500 | 0.375 | – |

Accuracy: the share of questions answered rightly. Extraction: the share of examples whose last
tokens are returned word for word. Recall: the share of these tokens that are returned before the
first wrong one. Means over benchmarks and seeds; the difference has Student's 95% interval over
the seeds.

## Forgetting in all conditions

![d′ of each condition against tokens since the last exposure](charts/conditions.svg)

All members, mean over seeds, all of web. Conditions that share a branching point have the same
first point.

## Forgetting: web-lr1e-3

![d′ against tokens since the last exposure, web-lr1e-3](charts/forgetting-web-lr1e-3.svg)

All members, mean over seeds, 95% intervals over examples and cells. Curves: mean of the seeds'
fits.

## Forgetting: web-lr1e-2

![d′ against tokens since the last exposure, web-lr1e-2](charts/forgetting-web-lr1e-2.svg)

All members, mean over seeds, 95% intervals over examples and cells. Curves: mean of the seeds'
fits.

## Forgetting: web-lr1e-1

![d′ against tokens since the last exposure, web-lr1e-1](charts/forgetting-web-lr1e-1.svg)

All members, mean over seeds, 95% intervals over examples and cells. Curves: mean of the seeds'
fits.

## What this can't prove

- What happens after the last scored model. A half-life longer than the tokens that were trained
on after the exposure is an extrapolation of the curve.
- That a form is the true one. Exponential and power law are compared by fit and by prediction of
the last step; other forms may fit better than both.
- What causes forgetting. The rate is compared between trainings that differ in learning rate,
weight decay or corpus size; at other models, batches or texts it may depend on them differently.
- That nothing is left where d′ is near 0. Another method may still tell members apart.

## What it is based on

- cells: 6
"""


def test_the_report_has_all_figures_in_sentences_and_tables():
    content = report(FINDINGS)
    assert words_of(markdown_document(content, has_charts=True)) == words_of(FULL)
    assert [table.name for table in content.tables] == ["half_lives", "effects", "means", "tasks"]
    for table, data in zip(content.tables, (HALF_LIVES, EFFECTS, MEANS, TASKS), strict=True):
        assert table.data is data


def test_tables_without_rows_are_left_out_and_one_factor_has_no_correlation():
    findings = replace(
        FINDINGS, tasks=TASKS[:0], half_lives=HALF_LIVES[:0], correlation=NAN, warnings=()
    )
    content = report(findings)
    assert [table.name for table in content.tables] == ["effects", "means"]
    assert content.tables[0].note.endswith("95% intervals.")
    assert "falls to half" not in " ".join(content.conclusions)


def tick(axes, value):
    return axes.xaxis.get_major_formatter()(value)


def check_axes(figure, columns):
    (axes,) = figure.axes
    assert axes.get_xlabel() == "tokens since the last exposure"
    assert axes.get_ylabel() == "excess d′, loss"
    assert [tick(axes, value) for value in (0, 20_000, 2.5e6)] == ["0", "20k", "2.50M"]
    assert figure.legends[0]._ncols == columns
    return axes


def test_the_chart_of_all_conditions_has_their_excess_by_tokens():
    chart = conditions_chart(FINDINGS)
    axes = check_axes(chart.figure, 1)
    *lines, zero = axes.lines
    assert [(line.get_label(), line.get_linestyle(), line.get_color()) for line in lines] == [
        ("lr1e-3", "-", SERIES[0]), ("lr1e-2", "-", SERIES[1]), ("lr1e-1", "-", SERIES[2]),
    ]  # fmt: skip
    assert [line.get_marker() for line in lines] == ["o"] * 3
    assert [*lines[0].get_xdata()] == TOKENS
    assert [*lines[1].get_ydata()] == [0.25, 0.0, -0.5]
    assert [*zero.get_ydata()] == [0, 0]
    assert chart.figure.get_size_inches() == pytest.approx([8, 3.2 + 3 * 0.22])
    conditions = [f"run-{letter}" for letter in "abcdefgh"]
    many = pd.concat([MEANS[:3].assign(condition=name) for name in conditions])
    lines = conditions_chart(replace(FINDINGS, means=many)).figure.axes[0].lines
    assert [line.get_linestyle() for line in lines[:8]] == [*["-"] * 6, "--", "--"]
    unlike_names = dict(zip(CONDITIONS, "abc", strict=True))
    renamed = MEANS.assign(condition=MEANS["condition"].map(unlike_names))
    assert conditions_chart(replace(FINDINGS, means=renamed)).caption.startswith(
        "All members, mean over seeds. Conditions"
    )


def test_the_chart_of_a_condition_has_its_curves_and_what_weight_decay_would_leave():
    charts = {chart.title: chart for chart in report(FINDINGS).charts}
    axes = check_axes(charts[f"Forgetting: {CONDITIONS[0]}"].figure, 2)
    curve, power, bound, measured, zero = axes.lines
    tokens = np.linspace(400, 1_250_000, 200)
    assert [(line.get_linestyle(), line.get_color()) for line in (curve, power, bound)] == [
        ("-", ACCENT), ("--", SERIES[1]), (":", SERIES[2]),
    ]  # fmt: skip
    np.testing.assert_allclose(curve.get_xdata(), tokens)
    np.testing.assert_allclose(curve.get_ydata(), 2.0 * np.exp(-1e-6 * (tokens - 400)))
    np.testing.assert_allclose(power.get_ydata(), 2.0 * (tokens / 400) ** -0.5)
    assert [*bound.get_xdata()] == [*measured.get_xdata()] == TOKENS
    assert [*bound.get_ydata()] == [2.0, 1.5, 1.0]
    assert [*measured.get_ydata()] == [2.0, 1.5, 0.5]
    assert (measured.get_marker(), measured.get_color()) == ("o", MEMBER)
    (bars,) = axes.collections
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    assert ends == [[1.75, 2.5], [1.25, 2.0], [0.25, 1.0]]
    assert [*zero.get_ydata()] == [0, 0]
    assert legend_labels(charts[f"Forgetting: {CONDITIONS[1]}"]) == ["measured"]
    assert charts[f"Forgetting: {CONDITIONS[0]}"].figure.get_size_inches().tolist() == [8, 3.6]
