"""The text, the tables and the chart of a fitted law."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contamination.analysis.charts.base import GREY, chart_style, save_figure
from contamination.analysis.law.comparison import LAW
from contamination.analysis.law.config import LawStage
from contamination.analysis.law.fit import FACTORS, MOST_GROWTH, Law, unidentified_growth
from contamination.analysis.methods import method_style, sort_methods
from contamination.core.report.document import ReportContent
from contamination.core.report.tables import NO_VALUE, Table, format_interval


@dataclass(frozen=True)
class LawResults:
    """A fitted law and what was measured of it.

    Attributes:
        stage: what was asked for.
        law: the law.
        measurements: the measured shifts (`measurements.COLUMNS`, and `held_out`).
        fitted: the cells of the fit with the predictors' AUROCs (`comparison.predict_held_out`).
        within: σ²_within (`measurements.within_variances`).
        calibration: `calibration.compare_calibration`.
        held_out: the held-out cells, as `fitted`; empty without any.
        errors: `comparison.summarise` of them; empty without any.
        predictions: the settings that were asked for; empty without any.
    """

    stage: LawStage
    law: Law
    measurements: pd.DataFrame
    fitted: pd.DataFrame
    within: pd.DataFrame
    calibration: pd.DataFrame
    held_out: pd.DataFrame
    errors: pd.DataFrame
    predictions: pd.DataFrame

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables that are written, by name."""
        return {
            "measurements": self.measurements,
            "coefficients": coefficient_rows(self.law, self.stage.confidence),
            "within": self.within,
            "fitted": self.fitted,
            "calibration": self.calibration,
            "held_out": self.held_out,
            "errors": self.errors,
            "predictions": self.predictions,
        }


def coefficient_rows(law: Law, confidence: float) -> pd.DataFrame:
    """Returns the law's coefficients with intervals, and its effects and their deviations.

    `kind` is coefficient, effect (of a method or a benchmark, shrunk, on log δ) or deviation (the
    standard deviation of a group's effects).
    """
    from scipy.stats import t

    quantile = float(t.ppf((1 + confidence) / 2, law.freedom))
    errors = np.sqrt(np.maximum(np.diag(law.covariance), 0.0))
    fixed = 1 + len(law.factors)
    rows = []
    for i, (name, value) in enumerate(zip(law.names, law.values, strict=True)):
        margin = quantile * float(errors[i])
        kind = "coefficient" if i < fixed else "effect"
        rows.append((kind, name, value, float(errors[i]), value - margin, value + margin))
    for group, variance in law.variances.items():
        rows.append(("deviation", group, float(np.sqrt(variance)), np.nan, np.nan, np.nan))
    columns = ["kind", "name", "value", "error", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def law_document(results: LawResults) -> ReportContent:
    """Returns the text and tables of law.md."""
    law, stage = results.law, results.stage
    return ReportContent(
        title=f"{stage.name}: the law of detectability",
        conclusions=[*_conclusions(results)],
        warnings=growth_warnings(law),
        tables=[*_tables(results)],
        limits=[
            "The intervals assume normal effects on log δ and normal errors. They hold for models, "
            "corpora and trainings like those of the fit.",
            *(
                f"{name} was {'unknown' if value is None else f'{value:g}'} in all cells: the law "
                "says nothing about other values."
                for name, value in law.constant.items()
            ),
            "An effect of the corpus's size apart from the tokens since the last copy is not in "
            "the law.",
        ],
        facts={
            "reports": ", ".join(Path(report).name for report in stage.reports),
            "cells of the fit": f"{law.cells} (a pair of swapped cells counts as one)",
            "shifts of the fit": str(law.rows),
            "T₀": f"{law.recency_tokens:,.0f} tokens",
            "errors of the shifts": f"{law.errors:.2f} times the expected variance",
        },
    )


def growth_warnings(law: Law) -> list[str]:
    """Returns a warning that names the methods whose κ is not identified, if there are any."""
    methods = unidentified_growth(law.growth)
    if not methods:
        return []
    named = ", ".join(f"{method} ({law.growth[method]:.3g})" for method in methods)
    return [
        f"κ of {named} is at the bound of the fit, ±{MOST_GROWTH:g}: it is not identified. AUROCs "
        "and powers that are predicted for it may be wrong; its shifts δ do not depend on κ. Give "
        "reports with more members or more copies."
    ]


def _conclusions(results: LawResults) -> Iterator[str]:
    law, confidence = results.law, results.stage.confidence
    table = coefficient_rows(law, confidence)
    rows = table[table["kind"] == "coefficient"].set_index("name")
    exponents = ", ".join(
        f"{FACTORS[name]} {format_interval(*rows.loc[name, ['value', 'low', 'high']])}"
        for name in law.factors
    )
    shift = np.exp(rows.loc["intercept", ["value", "low", "high"]].astype(float))
    centre = ", ".join(f"{name} {centre:.4g}" for name, (_, _, centre) in law.factors.items())
    yield (
        f"**The shift δ of a member's score is {format_interval(*shift)} standard deviations at "
        f"{centre or 'all cells'}; its exponents are {exponents or 'none'}** ({confidence:.0%} "
        "intervals)."
    )
    for _, row in (
        results.errors[results.errors["predictor"] == LAW].iterrows() if len(results.errors) else ()
    ):
        others = results.errors[
            (results.errors["held_out"] == row["held_out"]) & (results.errors["predictor"] != LAW)
        ]
        compared = ", ".join(f"{o['mae']:.3f} by {o['predictor']}" for _, o in others.iterrows())
        yield (
            f"Held-out cells ({row['held_out']} of the fitted range, {row['cells']} cells, "
            f"{row['rows']} AUROCs): mean absolute error {row['mae']:.3f} by the law ({compared}); "
            f"the measured AUROCs' own errors alone give {row['noise']:.3f}. "
            f"{row['coverage']:.0%} of the {confidence:.0%} intervals include the measured value."
        )
    whole = results.calibration[results.calibration["occurrences"] == 0]
    for _, row in whole.iterrows():
        word = "agrees with" if row["low"] <= 0 <= row["high"] else "differs from"
        yield (
            f"Calibration of {row['method']} by {row['references']} reference(s) {word} the "
            f"removal of σ_between alone: AUROC {row['calibrated']:.3f}, predicted "
            f"{row['predicted']:.3f}, raw {row['raw']:.3f}; difference {row['difference']:+.3f} "
            f"[{row['low']:+.3f}, {row['high']:+.3f}]."
        )
    if not len(whole):
        yield (
            "Calibration was not tested: it needs swapped pairs of cells of two seeds in two "
            "conditions."
        )


def _tables(results: LawResults) -> Iterator[Table]:
    tables = results.tables
    rows = tables["coefficients"]
    lines = [
        [
            r.kind,
            r.name,
            format_interval(r.value, r.low, r.high) if r.error == r.error else f"{r.value:.2f}",
        ]
        for r in rows.itertuples(index=False)
    ]
    yield Table(
        "coefficients",
        "Coefficients, effects and deviations on log δ",
        ["kind", "name", "value"],
        lines,
        rows,
    )
    methods = results.within.groupby("method", sort=True)["within"]
    growth = {method: f"{value:.2f}" for method, value in results.law.growth.items()}
    lines = [
        [str(method), f"{w:.2f}", f"{1 - w:.2f}", growth.get(str(method), NO_VALUE)]
        for method, w in methods.mean().items()
    ]
    yield Table(
        "within",
        "Variances, mean over conditions and benchmarks (non-members: 1)",
        ["method", "σ²_within", "σ²_between", "κ"],
        lines,
        results.within,
        note="κ: the members' variance is exp(κ δ). "
        + (
            "σ²_within is an upper bound: there is one seed only."
            if results.within["upper_bound"].any()
            else ""
        ),
    )
    if len(results.errors):
        lines = [
            [r.held_out, r.predictor, str(r.rows), f"{r.mae:.3f}", f"{r.noise:.3f}",
             f"{r.bias:+.3f}",
             NO_VALUE if r.coverage != r.coverage else f"{r.coverage:.0%}",
             NO_VALUE if r.decisions != r.decisions else f"{r.decisions:.0%} of {r.pairs}"]
            for r in results.errors.itertuples(index=False)
        ]  # fmt: skip
        header = [
            "held out",
            "predictor",
            "AUROCs",
            "MAE",
            "by noise",
            "bias",
            "coverage",
            "decisions",
        ]
        yield Table("errors", "Errors on held-out cells, in AUROC", header, lines, results.errors)
    if len(results.calibration):
        lines = [
            [r.method, "all" if r.occurrences == 0 else str(r.occurrences), f"{r.raw:.3f}",
             f"{r.predicted:.3f}", f"{r.calibrated:.3f}",
             f"{r.difference:+.3f} [{r.low:+.3f}, {r.high:+.3f}]"]
            for r in results.calibration.itertuples(index=False)
        ]  # fmt: skip
        header = ["method", "copies", "raw", "predicted", "calibrated", "difference"]
        yield Table(
            "calibration",
            "AUROC after calibration by references",
            header,
            lines,
            results.calibration,
        )
    if len(results.predictions):
        lines = [
            [str(r.setting), r.method, r.benchmark,
             format_interval(r.shift, r.shift_low, r.shift_high),
             format_interval(r.auroc, r.low, r.high), f"{r.strong_auroc:.2f}",
             r.outside or NO_VALUE]
            for r in results.predictions.itertuples(index=False)
        ]  # fmt: skip
        header = [
            "setting",
            "method",
            "benchmark",
            "δ",
            "AUROC",
            "strong attack",
            "outside the fit",
        ]
        yield Table("predictions", "Predicted cells", header, lines, results.predictions)


def save_law_chart(results: LawResults, folder: Path) -> list[Path]:
    """Writes the law as a chart: predicted against measured AUROCs, and shifts against copies."""
    with chart_style():
        figure = Figure(figsize=(10, 4.8), dpi=150, layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_predictions(left, results)
        _draw_shifts(right, results)
    return save_figure(figure, folder, "law")


def _draw_predictions(axes: Axes, results: LawResults) -> None:
    for table, colour, label in (
        (results.fitted, GREY, "fitted"),
        (results.held_out, "#D55E00", "held out"),
    ):
        if len(table):
            errors = [table[LAW] - table["low"], table["high"] - table[LAW]]
            axes.errorbar(
                table["auroc"], table[LAW], np.maximum(0, errors), fmt="o", markersize=3.5,
                color=colour, ecolor=colour, elinewidth=0.5, alpha=0.7, label=label,
            )  # fmt: skip
    lowest = min(0.45, float(results.fitted["auroc"].min()))
    axes.plot([lowest, 1], [lowest, 1], color=GREY, linewidth=0.9)
    axes.set_xlabel("measured AUROC, mean over benchmarks")
    axes.set_ylabel(f"predicted, {results.stage.confidence:.0%} interval")
    axes.legend(frameon=False)


def _draw_shifts(axes: Axes, results: LawResults) -> None:
    table = (
        pd.concat([results.fitted, results.held_out]) if len(results.held_out) else results.fitted
    )
    methods = sort_methods((str(m), "") for m in table["method"].unique())
    for method, _ in methods:
        rows = table[(table["method"] == method) & (table["shift"] > 0)]
        colour, marker, _symbol = method_style(method, methods)
        jitter = 1 + 0.03 * (methods.index((method, "")) - len(methods) / 2)
        axes.plot(
            rows["occurrences"] * jitter, rows["shift"], linestyle="", marker=marker, color=colour,
            markersize=4, alpha=0.7, label=method,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("copies of a member")
    axes.set_ylabel("shift δ, standard deviations")
    axes.legend(frameon=False, fontsize=8)
