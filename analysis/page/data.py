"""The data in the page: what its charts draw, as compact JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd

from contamination.analysis.cells import CONTAMINATED
from contamination.analysis.charts import base
from contamination.analysis.charts.curves import SIDES
from contamination.analysis.charts.heat_map import colour_scale, describe_colour_scale
from contamination.analysis.charts.losses import COLOURS, loss_caption
from contamination.analysis.charts.occurrences import describe_missing_levels
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.factors import FACTORS
from contamination.analysis.findings import Findings
from contamination.analysis.methods import Methods, method_style, methods_of
from contamination.analysis.provenance import has_losses, loss_table
from contamination.analysis.statistics.controls import control_warning
from contamination.analysis.statistics.groups import ANY
from contamination.analysis.sweeps import format_short
from contamination.core.statistics.estimates import ALL
from contamination.core.statistics.metrics import AUROC, chosen_metrics
from contamination.detection.baselines.blind import BLIND

MOST_COLOURED = 6
"""So many methods are coloured at first, the rest grey until they are chosen."""
POINT = "Point at a method for its band."
DASHES = ("solid", "dash", "dot", "dashdot")
"""plotly's names of `charts.base.LINES`, in its order."""
ESTIMATES = (
    *("condition", "checkpoint", "benchmark", "label", "occurrences", "metric"),
    *("n_members", "n_nonmembers", "n_seeds", "value", "ci_low", "ci_high", "needs"),
    *(factor.column for factor in FACTORS),
)
CURVES = ("condition", "checkpoint", "benchmark", "label", "fpr", "value", "ci_low", "ci_high")
BINS = (
    *("condition", "checkpoint", "benchmark", "label"),
    *("side", "centre", "share", "ci_low", "ci_high"),
)


def page_data(findings: Findings) -> dict[str, Any]:
    """What page.js reads."""
    pooled, config = findings.pooled, findings.config
    methods, conditions = methods_of(pooled), findings.rows_by_condition
    benchmarks = sorted(pooled["benchmark"].unique(), key=lambda name: (name != ALL, name))
    measured = set(pooled["condition"][pooled["value"].notna()])
    labelled_curves = _with_labels(findings.curves, methods).rename(columns={"tpr": "value"})
    return {
        "highlighted": _highlighted_labels(pooled, methods),
        "summaries": {entry.method: entry.summary for entry in findings.glossary},
        "methods": [_method_data(*pair, methods) for pair in methods],
        "scored": [base.legend_name(*pair, methods) for pair in methods if pair[0] != BLIND],
        "benchmarks": benchmarks,
        "conditions": sorted(conditions, key=lambda name: name not in measured),
        "metrics": _metrics_data(pooled, config),
        "estimates": _packed_columns(_with_labels(pooled, methods), ESTIMATES),
        "curves": _packed_columns(labelled_curves, CURVES),
        "bins": _packed_columns(_with_labels(findings.bins, methods), BINS),
        "factors": _factors_data(findings),
        "stamps": {name: control_warning(rows) for name, rows in conditions.items()},
        "band": f"Bars and bands: {base.describe_intervals(pooled, config)}. {POINT}",
        "curveBand": f"Bars and bands: {base.describe_curve_intervals(pooled, config)}. {POINT}",
        "sides": SIDES,
        "least": float(findings.curves["fpr"].min()) if len(findings.curves) else 0.1,
        **_losses_data(findings),
    }


def _highlighted_labels(pooled: pd.DataFrame, methods: Methods) -> list[str]:
    """The labels of the default variants with the highest AUROC over all conditions: coloured."""
    aurocs = pooled[(pooled["metric"] == AUROC.name) & (pooled["benchmark"] == ALL)]
    aurocs = aurocs[(aurocs["checkpoint"] == CONTAMINATED) & (aurocs["occurrences"] == ANY)]
    means = aurocs[aurocs["default"]].groupby(["method", "variant"])["value"].mean()
    best = means.fillna(0).sort_values(ascending=False, kind="stable").index[:MOST_COLOURED]
    return [base.legend_name(*pair, methods) for pair in methods if pair in best]


def _metrics_data(pooled: pd.DataFrame, config: AnalysisConfig) -> dict[str, Any]:
    measured = set(pooled["metric"])
    return {
        metric.name: {
            "title": metric.title,
            "guess": metric.guess,
            "colours": colour_scale(metric),
            "scale": describe_colour_scale(metric),
        }
        for metric in chosen_metrics(config.fpr, config.tpr)
        if metric.name in measured
    }


def _method_data(method: str, variant: str, methods: Methods) -> dict[str, Any]:
    colour, _, symbol = method_style(method, methods)
    variants = [v for m, v in methods if m == method]
    return {
        "label": base.legend_name(method, variant, methods),
        "colour": colour,
        "symbol": symbol,
        "dash": "dash" if method == BLIND else DASHES[variants.index(variant) % len(DASHES)],
        "blind": method == BLIND,
    }


def _with_labels(table: pd.DataFrame, methods: Methods) -> pd.DataFrame:
    labels = {pair: base.legend_name(*pair, methods) for pair in methods}
    pairs = zip(table["method"], table["variant"], strict=True)
    return table.assign(label=[labels[pair] for pair in pairs])


def _packed_columns(table: pd.DataFrame, columns: tuple[str, ...]) -> dict[str, Any]:
    """Columns of numbers as they are (4 digits), of text as distinct values and codes."""
    packed: dict[str, Any] = {}
    for name in columns:
        if name not in table:
            continue
        column = table[name]
        if pd.api.types.is_numeric_dtype(column):
            packed[name] = [None if pd.isna(x) else _round_to_4_digits(x) for x in column.tolist()]
        else:
            codes, levels = pd.factorize(column)
            packed[name] = {"levels": list(levels), "codes": codes.tolist()}
    return {"length": len(table), "columns": packed}


def _round_to_4_digits(number: float) -> float:
    return number if isinstance(number, int) else float(f"{number:.4g}")


def _factors_data(findings: Findings) -> list[dict[str, Any]]:
    times = Counter(sweep.factor for sweep in findings.sweeps)
    return [
        {
            "name": sweep.factor.axis
            + f": {sweep.distinguishing_text(findings.sweeps)}" * (times[sweep.factor] > 1),
            "axis": sweep.factor.axis,
            "fixed": sweep.shared_text,
            "without": describe_missing_levels(sweep),
            "levels": sweep.levels,
            "texts": [format_short(level) for level in sweep.levels],
            "column": sweep.factor.column,
            "conditions": sweep.conditions,
        }
        for sweep in findings.sweeps
    ]


def _losses_data(findings: Findings) -> dict[str, Any]:
    records_by_condition = {
        name: of_condition
        for name, of_condition in findings.records.items()
        if has_losses(of_condition)
    }
    parts = [
        loss_table(of_condition).assign(condition=name)
        for name, of_condition in records_by_condition.items()
    ]
    columns = ("condition", "side", "step", "loss", "low", "high")
    table = pd.concat(parts) if parts else pd.DataFrame(columns=list(columns))
    return {
        "losses": _packed_columns(table, columns),
        "lossSides": COLOURS,
        "lossDashes": dict(zip(COLOURS, DASHES, strict=False)),
        "lossCaption": {
            name: loss_caption(of_condition) for name, of_condition in records_by_condition.items()
        },
        "exposures": {
            name: sorted(Counter(of_condition[0].exposures.tolist()).items())
            for name, of_condition in records_by_condition.items()
        },
    }
